//! What is kept on disk between runs: compiled kernels and timings.

use std::path::{Path, PathBuf};

/// Where kernels and timings are kept: `FTPROP_CACHE`, else the user's cache folder; `None` where there is none.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("FTPROP_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|f| f.join("ftprop")))
        .or_else(|| set("HOME").map(|f| f.join(".cache").join("ftprop")))
        .or_else(|| set("LOCALAPPDATA").map(|f| f.join("ftprop")))
}

/// Writes a file aside and renames it, so that another process never reads half of it. A cache that cannot be
/// written costs time only, so failures are passed over.
pub(crate) fn keep(path: &Path, bytes: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let aside = path.with_extension(format!("{}.{:?}.part", std::process::id(), std::thread::current().id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&aside, bytes))
        .and_then(|()| std::fs::rename(&aside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
}

/// FNV-1a of the text, then scattered.
pub(crate) fn hash(text: &str, salt: u64) -> u64 {
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ salt, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    ftprop_tensor::random::mix(fnv)
}
