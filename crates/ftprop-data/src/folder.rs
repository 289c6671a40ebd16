//! Pictures in the folder layout of ImageNet: `train/CLASS/*` and `val/CLASS/*` (or `test/CLASS/*`).
//!
//! Classes are the folders of `train` in alphabetical order. Files with other extensions and names that begin
//! with a dot are passed over; a class folder may have folders of its own. Pictures are decoded when a batch
//! needs them; opening a data set reads the folders only.

use std::fs;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Normalize, Shape};
use crate::split::{Content, Split};
use crate::{DataError, Source};

const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];
/// The names a folder of test pictures may have.
const TEST: [&str; 3] = ["val", "validation", "test"];

pub(crate) fn open(path: &Path, resize: usize, crop: usize) -> Result<Dataset, DataError> {
    let missing = |wanted: &str| DataError::Missing {
        dataset: "a folder of pictures".into(),
        wanted: wanted.into(),
        places: vec![path.to_owned()],
    };
    let train = path.join("train");
    if !train.is_dir() {
        return Err(missing("train/CLASS/*"));
    }
    let test = TEST.map(|name| path.join(name)).into_iter().find(|folder| folder.is_dir());
    let test = test.ok_or_else(|| missing("val/CLASS/* or test/CLASS/*"))?;
    let classes = class_folders(&train)?;
    let normalize = Normalize::imagenet();
    let shape = Shape::new(crop, crop, 3);
    let (train, test) = (read(&train, &classes, resize, shape)?, read(&test, &classes, resize, shape)?);
    Dataset { name: Source::Folder.to_string(), shape, classes, normalize, train, test }.crop_to(crop)
}

/// The names of the class folders, sorted.
fn class_folders(folder: &Path) -> Result<Vec<String>, DataError> {
    let mut names = Vec::new();
    for path in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        names.push(name.ok_or_else(|| DataError::Format {
            path,
            wanted: "a class folder",
            why: "its name is not valid UTF-8".into(),
        })?);
    }
    if names.is_empty() {
        return Err(DataError::Empty { what: format!("{} (one folder a class is expected)", folder.display()) });
    }
    Ok(names)
}

fn read(folder: &Path, classes: &[String], resize: usize, window: Shape) -> Result<Split, DataError> {
    let (mut paths, mut labels) = (Vec::new(), Vec::new());
    for name in class_folders(folder)? {
        let path = folder.join(&name);
        let Ok(label) = classes.binary_search(&name) else {
            return Err(DataError::UnknownClass { path });
        };
        let before = paths.len();
        collect(&path, &mut paths)?;
        if paths.len() == before {
            return Err(DataError::EmptyClass { path });
        }
        labels.resize(paths.len(), label as u32);
    }
    Ok(Split::new(Content::Files { paths, resize }, labels, window))
}

/// Adds the pictures of a folder and of the folders in it, in the order of their names.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), DataError> {
    for path in entries(folder)? {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)) {
            paths.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            collect(&path, paths)?;
        }
    }
    Ok(())
}

/// The entries of a folder but the hidden ones, sorted: the order of a directory is the file system's whim.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |why| DataError::Read { path: folder.to_owned(), why };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
