//! What is kept on disk between runs: compiled kernels and timings.
//!
//! A kernel is code that will run, and a damaged one takes the whole GPU down. So its file begins with its length and a
//! checksum, and it is taken only if it is whole, is the user's own and cannot be written by anyone else.

use crate::environment;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a kept kernel begins with; then its length and two hashes of it, 8 bytes each.
const MAGIC: &[u8; 8] = b"ftpcub\x01\n";
const HEAD: usize = MAGIC.len() + 24;

/// What is to be said about the cache.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What a person should hear about the kept kernels since this was last asked: those that could not be used.
pub fn take_notes() -> Vec<String> {
    std::mem::take(&mut NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where kernels and timings are kept: `FTPROP_CACHE`, else the user's cache folder; `None` where there is none.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let set = environment::folder;
    set("FTPROP_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|f| f.join("ftprop")))
        .or_else(|| set("HOME").map(|f| f.join(".cache").join("ftprop")))
        .or_else(|| set("LOCALAPPDATA").map(|f| f.join("ftprop")))
}

/// Keeps a file, for its owner alone. A cache that cannot be written costs time only, so failures are passed over.
pub(crate) fn keep(path: &Path, bytes: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let _ = ftprop_files::create_folder(folder).and_then(|()| ftprop_files::write_private(path, bytes));
}

/// Keeps machine code.
pub(crate) fn keep_image(path: &Path, image: &[u8]) {
    keep(path, &[&head(image)[..], image].concat());
}

/// Machine code that was kept; none where there is none, or none that may be used, and then a note says so.
pub(crate) fn kept_image(path: &Path) -> Option<Vec<u8>> {
    match read_image(path) {
        Ok(image) => image,
        Err(why) => {
            let note = format!("{} was not used ({why}); the kernel was compiled again", path.display());
            NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(note);
            None
        }
    }
}

fn read_image(path: &Path) -> Result<Option<Vec<u8>>, &'static str> {
    match std::fs::metadata(path) {
        Err(_) => return Ok(None),
        // Opening a pipe would wait for ever.
        Ok(found) if !found.is_file() => return Err("it is not a file"),
        Ok(_) => {}
    }
    let mut file = File::open(path).map_err(|_| "it cannot be read")?;
    check_owner(&file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|_| "it cannot be read")?;
    if bytes.len() < HEAD || bytes[..MAGIC.len()] != MAGIC[..] {
        return Err("it is not a kept kernel");
    }
    let image = bytes.split_off(HEAD);
    if bytes == head(&image) { Ok(Some(image)) } else { Err("it is damaged") }
}

fn head(image: &[u8]) -> Vec<u8> {
    let numbers = [image.len() as u64, hash(image, 3), hash(image, 4)];
    MAGIC.iter().copied().chain(numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
}

/// Refuses what somebody else could have written.
#[cfg(unix)]
fn check_owner(file: &File) -> Result<(), &'static str> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata().map_err(|_| "it cannot be looked at")?;
    // SAFETY: this only asks who the process runs as.
    let user = unsafe { libc::geteuid() };
    if found.uid() != user {
        Err("it is somebody else's")
    } else if found.mode() & 0o022 != 0 {
        Err("others may write to it")
    } else {
        Ok(())
    }
}

/// Elsewhere the cache lies in a folder that is the user's alone.
#[cfg(not(unix))]
fn check_owner(_file: &File) -> Result<(), &'static str> {
    Ok(())
}

/// FNV-1a of the bytes, then scattered.
pub(crate) fn hash(bytes: impl AsRef<[u8]>, salt: u64) -> u64 {
    let fnv = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    ftprop_tensor::random::mix(bytes.as_ref().iter().fold(0xcbf2_9ce4_8422_2325 ^ salt, fnv))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Folder(std::env::temp_dir().join(format!("ftprop-cache-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_damaged_kernel_is_not_loaded() {
        let folder = Folder::new("damaged");
        let path = folder.0.join("kernels/x.cubin");
        let image: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        assert_eq!(read_image(&path), Ok(None));
        keep_image(&path, &image);
        assert_eq!(read_image(&path), Ok(Some(image.clone())));
        let good = std::fs::read(&path).unwrap();
        for bit in (0..good.len() * 8).step_by(37) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            assert!(read_image(&path).is_err(), "bit {bit}");
        }
        for length in [0, 7, HEAD - 1, HEAD, good.len() - 1] {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(read_image(&path).is_err(), "length {length}");
        }
        // What an older version kept has no head.
        std::fs::write(&path, &image).unwrap();
        assert_eq!(kept_image(&path), None);
        let notes = take_notes();
        assert!(notes.iter().any(|note| note.contains("x.cubin") && note.contains("compiled again")), "{notes:?}");
        keep_image(&path, &image);
        assert_eq!(kept_image(&path), Some(image));
    }

    #[cfg(unix)]
    #[test]
    fn a_kernel_that_others_may_write_is_not_loaded() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("owner");
        let path = folder.0.join("kernels/x.cubin");
        keep_image(&path, b"code");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_image(&path), Err("others may write to it"));
        }
        keep_image(&path, b"code");
        assert_eq!(read_image(&path), Ok(Some(b"code".to_vec())), "compiled again, it is one's own again");
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(read_image(&path), Err("it is not a file"));
    }
}
