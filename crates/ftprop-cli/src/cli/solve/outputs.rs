//! Where results will go, tried before the work that makes them.

use crate::error::Error;
use ftprop_lab::plot::base_path;
use ftprop_train::files;
use ftprop_train::run::refuse_own_file;
use std::path::Path;

/// The same for the two files of a picture.
pub(in crate::cli) fn try_picture(path: &Path) -> Result<(), Error> {
    let base = base_path(path)?;
    for ending in [".svg", ".png"] {
        let mut whole = base.clone().into_os_string();
        whole.push(ending);
        try_file(Path::new(&whole))?;
    }
    Ok(())
}

/// Refuses a file that could not be written, in a folder that is not there or not ours or with a folder in its place, and one
/// that a run lives by.
pub(in crate::cli) fn try_file(file: &Path) -> Result<(), Error> {
    refuse_own_file(file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Error::Other(format!("{}: there is no folder {}", file.display(), folder.display())));
    }
    Ok(files::try_writing(file)?)
}
