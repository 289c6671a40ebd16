//! Files that take more than one sitting to write.

use crate::{FileError, sync_folder_of};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file under way beside its destination, as `NAME.part`: it stays when its writer ends, for the next one to go on, and
/// gets its name when it is whole.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    aside: PathBuf,
    path: PathBuf,
}

impl Unfinished {
    /// Opens what is under way for `path`, or begins it. Two writers at once are refused.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |error| FileError::new("write", path, error);
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut aside_name = name.to_owned();
        aside_name.push(".part");
        let aside = path.with_file_name(aside_name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&aside);
        let file = file.map_err(|error| FileError::new("write", &aside, error))?;
        if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
            return Err(failed(io::Error::other("another process is writing it; wait for that, or stop it")));
        }
        Ok(Unfinished { file, aside, path: path.to_owned() })
    }

    /// What is there so far, to be read and written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, durably.
    pub fn finish(self) -> Result<(), FileError> {
        let finish = || {
            self.file.sync_all()?;
            fs::rename(&self.aside, &self.path)?;
            sync_folder_of(&self.path)
        };
        finish().map_err(|error| FileError::new("write", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};

    #[test]
    fn what_is_under_way_stays_until_it_is_finished() {
        let path = std::env::temp_dir().join(format!("ftprop-files-unfinished-{}", std::process::id()));
        let part = path.with_file_name(format!("ftprop-files-unfinished-{}.part", std::process::id()));
        Unfinished::open(&path).unwrap().file().write_all(b"one").unwrap();
        assert!(part.exists() && !path.exists());
        let again = Unfinished::open(&path).unwrap();
        assert!(Unfinished::open(&path).unwrap_err().to_string().contains("another process"));
        let mut text = String::new();
        again.file().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        again.file().seek(SeekFrom::End(0)).unwrap();
        again.file().write_all(b" two").unwrap();
        again.finish().unwrap();
        assert!(!part.exists());
        assert_eq!(crate::read_text(&path).unwrap(), "one two");
        fs::remove_file(&path).unwrap();
    }
}
