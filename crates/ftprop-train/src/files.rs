//! Files that are either whole or absent, and which of them are packed models.

pub use ftprop_files::*;

use std::ffi::OsStr;
use std::path::Path;

/// Whether a path names a packed model, by its ending.
pub fn is_packed(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("ftp")) && !path.is_dir()
}
