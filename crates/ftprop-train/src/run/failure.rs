//! Why a run of a fleet failed, `failure.txt`, for whoever reports on it later.

use super::RunFolder;
use crate::error::Error;
use crate::files;
use crate::words::plain;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn file(run: &Path) -> PathBuf {
    run.join("failure.txt")
}

/// Why the run of this folder failed when it was last trained, on one line; nothing where it did not. The folder need not
/// hold a run: it may have failed before it was made.
pub fn failure(run: &Path) -> Result<Option<String>, Error> {
    match files::read(&file(run)) {
        Ok(text) => Ok(Some(plain(String::from_utf8_lossy(&text).trim()).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Keeps why a run failed, unless it is one that another process trains.
pub(crate) fn keep_failure(run: &Path, why: &Error) -> Result<(), Error> {
    if matches!(why, Error::Locked { .. }) {
        return Ok(());
    }
    files::create_folder(run)?;
    Ok(files::write(&file(run), format!("{}\n", plain(&why.to_string())).as_bytes())?)
}

impl RunFolder {
    /// The run goes on: what it came to before, or why it failed, is not what it comes to.
    pub(crate) fn forget_ending(&self) -> Result<(), Error> {
        remove(&self.summary_path())?;
        remove(&file(&self.path))
    }
}

/// Removes a file, where there is one: a link to a device is somebody's wish.
fn remove(path: &Path) -> Result<(), Error> {
    if !path.is_file() {
        return Ok(());
    }
    std::fs::remove_file(path).map_err(|why| files::FileError::new("remove", path, why).into())
}
