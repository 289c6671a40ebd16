//! Files that are either whole or absent.
//!
//! Everything that is left behind goes through here. [`write()`] puts the bytes in a second file beside the
//! destination and renames it into place, so that a crash, a full disk, another writer or `kill -9` at any moment leaves
//! one whole content and nothing between. [`append_line`] adds one line to a log and takes it back if only a part of it
//! fitted. An [`Unfinished`] file is written in several sittings, [`Pages`] are a large one that is read here and there. A
//! failure becomes a [`FileError`]: one line with the path, the cause and a remedy.
//!
//! ```
//! let folder = std::env::temp_dir().join(format!("ftprop-files-doc-{}", std::process::id()));
//! ftprop_files::create_folder(&folder)?;
//! ftprop_files::write(&folder.join("summary.json"), b"{}")?;
//! assert_eq!(ftprop_files::read_text(&folder.join("summary.json"))?, "{}");
//!
//! let missing = ftprop_files::read_text(&folder.join("recipe.toml")).unwrap_err();
//! assert!(missing.to_string().ends_with("recipe.toml: no such file or folder; check the path"));
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), ftprop_files::FileError>(())
//! ```

#![deny(missing_docs, unsafe_code)]

mod mapped;
mod unfinished;
mod write;

pub use mapped::Pages;
pub use unfinished::Unfinished;
pub use write::{
    clear_leftovers, is_standard_output, keep_previous, try_writing, write, write_new, write_private, write_with,
};

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file operation that failed: what was tried, on which path, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {}", path.display(), explain(source))]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Wraps `source`; `action` completes the sentence "cannot … PATH".
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }

    /// The kind of the underlying error, for callers that treat a missing file as normal.
    pub fn kind(&self) -> ErrorKind {
        self.source.kind()
    }

    /// The path that was read or written.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The cause in plain words and, where one is known, the remedy.
fn explain(error: &io::Error) -> String {
    let known = match error.kind() {
        ErrorKind::StorageFull => "the disk is full; free some space and try again",
        ErrorKind::QuotaExceeded => "your disk quota is used up; free some space and try again",
        ErrorKind::PermissionDenied => "permission denied; check who owns it or choose another place",
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only; choose another place",
        ErrorKind::NotFound => "no such file or folder; check the path",
        ErrorKind::IsADirectory => "this is a folder, a file was expected",
        ErrorKind::AlreadyExists => "there is a file of this name; choose another place",
        ErrorKind::FileTooLarge => "larger than files may become here; see ulimit -f, or choose another place",
        ErrorKind::NotADirectory => "a part of this path is a file, a folder was expected",
        ErrorKind::UnexpectedEof => "the file ends too early; it may be truncated, fetch or make it again",
        ErrorKind::InvalidData => return format!("the content is not valid: {}", one_line(error)),
        _ => return one_line(error),
    };
    known.to_owned()
}

fn one_line(error: &io::Error) -> String {
    error.to_string().lines().collect::<Vec<_>>().join("; ")
}

/// A rename is durable only once the folder that holds the name is.
#[cfg(unix)]
fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Elsewhere folders cannot be opened as files; the rename itself is all that can be asked for.
#[cfg(not(unix))]
fn sync_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Appends `line` and a line feed to the file at `path`, creating it if needed, and waits until it is on the disk.
/// When only a part fits, the file is cut back to what it was.
pub fn append_line(path: &Path, line: &str) -> Result<(), FileError> {
    let append = || -> io::Result<()> {
        let fresh = !path.exists();
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let before = file.metadata()?.len();
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_data()) {
            let _ = file.set_len(before);
            return Err(error);
        }
        if fresh { sync_folder_of(path) } else { Ok(()) }
    };
    append().map_err(|error| FileError::new("append to", path, error))
}

/// The whole content of the file at `path`.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(|error| FileError::new("read", path, error))
}

/// The whole content of the file at `path`, which must be UTF-8.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|error| FileError::new("read", path, error))
}

/// Makes the folder at `path` with all its parents; one that is there already is fine.
pub fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| FileError::new("create the folder", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of the test's own that goes away with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ftprop-files-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lines_are_appended_one_after_the_other() {
        let folder = Folder::new("append");
        let path = folder.0.join("metrics.jsonl");
        append_line(&path, "{\"epoch\":1}").unwrap();
        append_line(&path, "{\"epoch\":2}").unwrap();
        assert_eq!(read_text(&path).unwrap(), "{\"epoch\":1}\n{\"epoch\":2}\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_in_one_line() {
        // Linux keeps a device that is always full.
        let error = append_line(Path::new("/dev/full"), "x").unwrap_err();
        assert_eq!(error.to_string(), "cannot append to /dev/full: the disk is full; free some space and try again");
    }

    #[test]
    fn causes_are_named() {
        let folder = Folder::new("causes");
        let file = folder.0.join("file");
        write(&file, b"x").unwrap();
        let inside_a_file = write(&file.join("inner"), b"x").unwrap_err().to_string();
        assert!(inside_a_file.ends_with("a folder was expected"), "{inside_a_file}");
        let missing_folder = write(&folder.0.join("no/such/file"), b"x").unwrap_err().to_string();
        assert!(missing_folder.ends_with("no such file or folder; check the path"), "{missing_folder}");
        let a_folder = read(&folder.0).unwrap_err().to_string();
        assert!(a_folder.ends_with("this is a folder, a file was expected"), "{a_folder}");
        write(&file, &[0xff, 0xfe]).unwrap();
        let not_text = read_text(&file).unwrap_err().to_string();
        assert!(not_text.contains("the content is not valid"), "{not_text}");
        assert_eq!(not_text.lines().count(), 1);
    }
}
