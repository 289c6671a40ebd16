//! Files that are either whole or absent, and which of them are packed models.

pub use ftprop_files::*;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How a packed model begins.
const PACKED: &[u8] = b"FTPACKED";

/// Whether a path names a packed model, by its ending or, whatever it is called, by how the file begins.
pub fn is_packed(path: &Path) -> bool {
    let begins = || {
        let mut begin = [0; PACKED.len()];
        // Reading a pipe would take from it what is meant for others.
        path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == PACKED
    };
    (path.extension() == Some(OsStr::new("ftp")) && !path.is_dir()) || begins()
}
