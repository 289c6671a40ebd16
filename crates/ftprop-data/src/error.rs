//! Everything that can be wrong with data, one clear line each.

use ftprop_files::FileError;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// No data set has this name.
    #[error("unknown data set `{name}`; known: {known}")]
    UnknownSource {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },

    /// Data that lie somewhere, and nobody said where.
    #[error("{dataset} needs a path: say where its files are")]
    PathNeeded {
        /// Which data set.
        dataset: &'static str,
    },

    /// Data that only the program that handed them over had.
    #[error("the data were arrays in a program's memory and are nowhere else; hand them over again")]
    InMemory,

    /// Files that are not where they were looked for.
    #[error("{dataset} not found: looked for {wanted} in {}", list(.places))]
    Missing {
        /// Which data set.
        dataset: String,
        /// What was wanted.
        wanted: String,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },

    /// Some files of a data set are there, and others are not.
    #[error("{} holds a part of {dataset} only: {missing} must be there too; unpack its archive again", .path.display())]
    Incomplete {
        /// Which data set.
        dataset: &'static str,
        /// Its folder.
        path: PathBuf,
        /// The files that are missing.
        missing: String,
    },

    /// The system cannot read a file.
    #[error("cannot read {}: {why}", .path.display())]
    Read {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        why: io::Error,
    },

    /// The system cannot read or write a file.
    #[error(transparent)]
    File(#[from] FileError),

    /// A file ends before its data do.
    #[error("{} ends too early ({why}); it looks truncated, fetch or copy it again", .path.display())]
    Truncated {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// A packed file holds far more than its size allows for.
    #[error("{} unpacks to more than {room} bytes, far more than data do; if that is right, unpack it first", .path.display())]
    UnpacksTooLarge {
        /// Which file or folder.
        path: PathBuf,
        /// Bytes that it may unpack to.
        room: u64,
    },

    /// A file is of another kind than it should be.
    #[error("{} is not {wanted}: {why}", .path.display())]
    Format {
        /// Which file or folder.
        path: PathBuf,
        /// What was wanted.
        wanted: &'static str,
        /// What is wrong.
        why: String,
    },

    /// A label beyond the classes.
    #[error(
        "{}: example {example} (counted from 0) has label {label}, but there are only {classes} classes (0 to {})",
        .path.display(), classes.saturating_sub(1)
    )]
    Label {
        /// Which file or folder.
        path: PathBuf,
        /// The example's number.
        example: usize,
        /// Its label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },

    /// A row of a table is wrong.
    #[error("{}, line {line}: {why}", .path.display())]
    Row {
        /// Which file or folder.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },

    /// A row of a table has a missing value where nothing stands for such.
    #[error(
        "{}, line {line}: {what} in {column}, a missing value; choose for training what stands for such: mean, median or indicator",
        .path.display()
    )]
    MissingValue {
        /// Which file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What the cell says.
        what: String,
        /// The column in words.
        column: String,
    },

    /// A table is wrong as a whole.
    #[error("{}: {why}", .path.display())]
    Table {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// Nothing that is known was found at a path.
    #[error(
        "{} holds no data that are known: looked for a table (.csv, .tsv, .csv.gz), the files of CIFAR-10, CIFAR-100, \
         MNIST or Fashion-MNIST, pictures in class folders (CLASS/* or train/CLASS/* and val/CLASS/*), and a file of \
         prepared pictures",
        .path.display()
    )]
    Unrecognised {
        /// Which file or folder.
        path: PathBuf,
    },

    /// Pictures that are in no class folder.
    #[error(
        "{count} pictures lie in {} itself, and no class folders with pictures; put those of each class in a folder of its \
         own: CLASS/*", .path.display()
    )]
    LoosePictures {
        /// The folder.
        path: PathBuf,
        /// How many.
        count: usize,
    },

    /// A single class folder.
    #[error("only {} holds pictures, so there is a single class and nothing to tell apart; add a folder of another", .path.display())]
    LoneClass {
        /// The class's folder.
        path: PathBuf,
    },

    /// A class folder without pictures.
    #[error(
        "class folder {} holds no picture (.jpg, .jpeg, .png, .webp, .bmp, .gif, .tif or .tiff); add some or remove \
         the folder", .path.display()
    )]
    EmptyClass {
        /// Which file or folder.
        path: PathBuf,
    },

    /// A class to test that was never trained.
    #[error("class folder {} has no counterpart among the training classes", .path.display())]
    UnknownClass {
        /// Which file or folder.
        path: PathBuf,
    },

    /// A picture that cannot be used.
    #[error("cannot decode image {}: {why}", .path.display())]
    Image {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// All pictures of a split that cannot be used, as far as they were looked at.
    #[error(
        "{count} of the {looked_at} images that were looked at cannot be used: {}; mend or remove them, or let bad \
         images be skipped (bad_images = \"skip\")", some(.which)
    )]
    BadImages {
        /// How many.
        count: usize,
        /// Of how many that were looked at.
        looked_at: usize,
        /// What is wrong with each.
        which: Vec<DataError>,
    },

    /// No picture of an epoch could be used.
    #[error("none of the {count} images could be used; the first: {first}")]
    AllSkipped {
        /// How many.
        count: usize,
        /// What is wrong with the first.
        first: Box<DataError>,
    },

    /// Nothing to learn from.
    #[error("{what} holds no examples")]
    Empty {
        /// What is empty.
        what: String,
    },

    /// A batch of more examples than there are.
    #[error("a batch of {batch} is larger than the {examples} examples it is drawn from; make it smaller")]
    BatchTooLarge {
        /// The size, or the number, of the batch.
        batch: usize,
        /// How many examples there are.
        examples: usize,
    },

    /// A part that leaves nothing, or takes nothing.
    #[error("cannot hold out {wanted} of {examples} examples: at least one must be held out and one must remain")]
    HoldOut {
        /// What was wanted.
        wanted: String,
        /// How many examples there are.
        examples: usize,
    },

    /// A setting that cannot be.
    #[error("{0}")]
    Option(String),

    /// A thread that prepares batches failed.
    #[error("a worker thread failed while it prepared batch {batch}; this is a bug, please report it")]
    Worker {
        /// The size, or the number, of the batch.
        batch: usize,
    },
}

impl DataError {
    /// The line of a table that is wrong, counted from 1, where it is a single one.
    pub fn line(&self) -> Option<u64> {
        match self {
            DataError::Row { line, .. } | DataError::MissingValue { line, .. } => Some(*line),
            _ => None,
        }
    }

    /// A failed read; an early end of a compressed stream counts as truncation.
    pub(crate) fn read(path: &Path, why: io::Error) -> Self {
        let path = path.to_owned();
        if let Some(room) = too_much(&why) {
            return DataError::UnpacksTooLarge { path, room };
        }
        match why.kind() {
            io::ErrorKind::UnexpectedEof => DataError::Truncated { path, why: why.to_string() },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                DataError::Format { path, wanted: "a sound gzip or tar file", why: why.to_string() }
            }
            _ => DataError::Read { path, why },
        }
    }
}

/// The first few of some errors.
fn some(which: &[DataError]) -> String {
    const MOST: usize = 20;
    let words: Vec<_> = which.iter().take(MOST).map(DataError::to_string).collect();
    let more = if which.len() > MOST { format!("; and {} more", which.len() - MOST) } else { String::new() };
    words.join("; ") + &more
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Why reading stops: there is more than there is room for.
#[derive(Debug, thiserror::Error)]
#[error("it unpacks to more than {room} bytes")]
pub(crate) struct TooMuch {
    pub(crate) room: u64,
}

/// The room that there was, if reading stopped for that reason, however often it was passed on.
pub(crate) fn too_much(why: &io::Error) -> Option<u64> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = why.get_ref().map(|why| why as _);
    while let Some(why) = cause {
        if let Some(TooMuch { room }) = why.downcast_ref() {
            return Some(*room);
        }
        cause = why.source();
    }
    None
}
