//! Pictures in folders: `train/CLASS/*` and `val/CLASS/*` (or `test/CLASS/*`), as ImageNet is laid out, or `CLASS/*`
//! alone.
//!
//! Classes are the class folders in alphabetical order. Names that begin with a dot are passed over in silence, other
//! files than pictures are passed over and counted; a class folder may have folders of its own. Pictures are decoded
//! when a batch needs them; opening a data set reads the folders only.
//!
//! Without a part for testing, a fifth of each class is held out at random, the same in every run: see
//! [`Split::hold_out_of_each_class`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ftprop_tensor::random::{Purpose, Stream};

use crate::dataset::{Dataset, PassedOver};
use crate::decode::EXTENSIONS;
use crate::preprocess::{Normalize, Shape};
use crate::sizes::check_sizes;
use crate::split::{Content, Split};
use crate::{DataError, Options, Source};

/// The names a folder of training pictures may have, in letters of any case.
const TRAIN: [&str; 2] = ["train", "training"];
/// The names a folder of test pictures may have; the first that is there is it.
const TEST: [&str; 5] = ["val", "validation", "valid", "test", "testing"];
/// The part of each class that is held out where nothing is set aside for testing.
pub(crate) const TEST_FRACTION: f64 = 0.2;
/// Folders in folders beyond this are a loop or a slip.
const MOST_DEPTH: usize = 32;

pub(crate) fn open(path: &Path, options: &Options) -> Result<Dataset, DataError> {
    let (resize, crop) = (options.resize.unwrap_or(256), options.crop.unwrap_or(224));
    let shape = Shape::new(crop, crop, 3);
    check_sizes(resize, shape)?;
    // Pictures of a single class are nothing to learn from, but can be measured by who knows others.
    let layout = match layout(path) {
        Err(DataError::LoneClass { .. }) if options.whole && options.known.is_some() => Layout::Classes,
        layout => layout?,
    };
    let (name, normalize) = (Source::Folder.to_string(), Normalize::imagenet());
    let mut passed_over = PassedOver::default();
    let known = options.known.as_ref().map(|known| &known.classes[..]);
    let (classes, train, test) = match layout {
        Layout::Parts { train, test, .. } => {
            let classes = known.map_or_else(|| class_folders(&train), |known| Ok(known.to_vec()))?;
            let mut part = |folder: &Path| read(folder, &classes, resize, shape, &mut passed_over);
            let (train, test) = (part(&train)?, part(&test)?);
            (classes, train, test)
        }
        Layout::Classes => {
            let classes = known.map_or_else(|| class_folders(path), |known| Ok(known.to_vec()))?;
            let all = read(path, &classes, resize, shape, &mut passed_over)?;
            // As for other data in one piece: a run's seed moves its validation split, never its test part.
            let (train, test) = match options.whole {
                true => (all.clone(), all),
                false => all.divide_each_class(TEST_FRACTION, Stream::new(0, Purpose::Split, 1))?,
            };
            (classes, train, test)
        }
    };
    Dataset { name, shape, classes, normalize, train, test, passed_over, table: None }.crop_to(crop)
}

/// How a folder of pictures is laid out.
pub(crate) enum Layout {
    /// Class folders in a part for training and one for testing, and others that might have been the latter.
    Parts { train: PathBuf, test: PathBuf, others: Vec<PathBuf> },
    /// Class folders alone.
    Classes,
}

/// Finds out how a folder is laid out, from the folders that are there.
pub(crate) fn layout(path: &Path) -> Result<Layout, DataError> {
    let missing = |wanted: &str| DataError::Missing {
        dataset: "a folder of pictures".into(),
        wanted: wanted.into(),
        places: vec![path.to_owned()],
    };
    if let Some(train) = called(path, &TRAIN).into_iter().next() {
        let mut tests = called(path, &TEST).into_iter();
        return match tests.next() {
            Some(test) => Ok(Layout::Parts { train, test, others: tests.filter(|other| divided(other)).collect() }),
            None => {
                let name = train.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let instead = format!("(the path of {name} itself holds a part of it out)");
                Err(missing(&format!("val/CLASS/* or test/CLASS/* beside {name} {instead}")))
            }
        };
    }
    let all = entries(path)?;
    let classes: Vec<&Entry> = all.iter().filter(|entry| entry.is_folder && pictured(&entry.path)).collect();
    match (&classes[..], all.iter().filter(|entry| entry.is_picture()).count()) {
        ([], 0) => Err(missing("train/CLASS/* and val/CLASS/*, or CLASS/* of two classes or more")),
        ([], count) => Err(DataError::LoosePictures { path: path.to_owned(), count }),
        ([only], _) => Err(DataError::LoneClass { path: only.path.clone() }),
        _ => Ok(Layout::Classes),
    }
}

/// Whether a folder holds pictures, and not only folders of them.
fn pictured(folder: &Path) -> bool {
    entries(folder).is_ok_and(|inside| inside.iter().any(Entry::is_picture))
}

/// Whether a folder holds folders.
fn divided(folder: &Path) -> bool {
    entries(folder).is_ok_and(|inside| inside.iter().any(|entry| entry.is_folder))
}

/// The folders in a folder that have one of some names, in the order of the names. One with pictures and no folders in it is no
/// part but a class: trains can be told from cars.
fn called(path: &Path, names: &[&str]) -> Vec<PathBuf> {
    let all: Vec<Entry> = entries(path).unwrap_or_default();
    let has = |entry: &&Entry, name: &str| {
        let own = entry.path.file_name().and_then(|own| own.to_str()).unwrap_or_default();
        entry.is_folder && own.eq_ignore_ascii_case(name) && (!pictured(&entry.path) || divided(&entry.path))
    };
    names.iter().flat_map(|name| all.iter().filter(move |entry| has(entry, name))).map(|e| e.path.clone()).collect()
}

/// Whether a folder has a part for training.
pub(crate) fn has_train(path: &Path) -> bool {
    !called(path, &TRAIN).is_empty()
}

/// The names of the class folders, sorted.
fn class_folders(folder: &Path) -> Result<Vec<String>, DataError> {
    let mut names = Vec::new();
    for Entry { path, .. } in entries(folder)?.into_iter().filter(|entry| entry.is_folder) {
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

fn read(
    folder: &Path,
    classes: &[String],
    resize: usize,
    window: Shape,
    passed_over: &mut PassedOver,
) -> Result<Split, DataError> {
    let (mut paths, mut labels) = (Vec::new(), Vec::new());
    passed_over.loose += entries(folder)?.iter().filter(|entry| entry.is_picture()).count();
    for name in class_folders(folder)? {
        let path = folder.join(&name);
        let Some(label) = classes.iter().position(|class| *class == name) else {
            return Err(DataError::UnknownClass { path });
        };
        let before = paths.len();
        collect(&path, 0, &mut paths, &mut passed_over.kinds)?;
        if paths.len() == before {
            return Err(DataError::EmptyClass { path });
        }
        labels.resize(paths.len(), label as u32);
    }
    Ok(Split::new(Content::Files { paths, resize }, labels, window))
}

/// Adds the pictures of a folder and of the folders in it, in the order of their names.
fn collect(
    folder: &Path,
    depth: usize,
    paths: &mut Vec<PathBuf>,
    passed_over: &mut BTreeMap<String, usize>,
) -> Result<(), DataError> {
    for entry in entries(folder)? {
        if entry.is_picture() {
            paths.push(entry.path);
        } else if entry.is_folder && !entry.is_link && depth < MOST_DEPTH {
            collect(&entry.path, depth + 1, paths, passed_over)?;
        } else {
            *passed_over.entry(entry.kind()).or_default() += 1;
        }
    }
    Ok(())
}

struct Entry {
    path: PathBuf,
    is_folder: bool,
    is_file: bool,
    is_link: bool,
    /// Whether it is a link and what it leads to is not there, or out of reach.
    is_dangling: bool,
}

impl Entry {
    fn extension(&self) -> String {
        self.path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase()
    }

    fn is_picture(&self) -> bool {
        self.is_file && EXTENSIONS.contains(&self.extension().as_str())
    }

    /// What to call it where it is passed over.
    fn kind(&self) -> String {
        match (self.is_folder, self.is_file, self.extension()) {
            (true, ..) => "folder".into(),
            (_, false, _) if self.is_dangling => "by a link that leads nowhere".into(),
            // A pipe or a device; reading one could wait for ever.
            (_, false, _) => "no file".into(),
            (.., extension) if extension.is_empty() => "without extension".into(),
            (.., extension) => format!(".{extension}"),
        }
    }
}

/// The entries of a folder but the hidden ones, sorted: the order of a directory is the file system's whim.
fn entries(folder: &Path) -> Result<Vec<Entry>, DataError> {
    let failed = |why| DataError::Read { path: folder.to_owned(), why };
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let (path, mut kind) = (entry.path(), entry.file_type().map_err(failed)?);
        let (is_link, mut is_dangling) = (kind.is_symlink(), false);
        if is_link {
            match fs::metadata(&path) {
                Ok(about) => kind = about.file_type(),
                Err(_) => is_dangling = true,
            }
        }
        all.push(Entry { path, is_folder: kind.is_dir(), is_file: kind.is_file(), is_link, is_dangling });
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}
