//! Everything that can be wrong with data, one clear line each.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("unknown data set `{name}`; known: {known}")]
    UnknownSource { name: String, known: String },

    #[error(
        "{dataset} needs a path: say where its files are, with --data PATH (--data-path for solve and separable) or data.path in a recipe"
    )]
    PathNeeded { dataset: &'static str },

    #[error("{dataset} not found: looked for {wanted} in {}", list(.places))]
    Missing { dataset: String, wanted: String, places: Vec<PathBuf> },

    #[error("cannot read {}: {why}", .path.display())]
    Read { path: PathBuf, why: io::Error },

    #[error("{} ends too early ({why}); it looks truncated, fetch or copy it again", .path.display())]
    Truncated { path: PathBuf, why: String },

    #[error("{} is not {wanted}: {why}", .path.display())]
    Format { path: PathBuf, wanted: &'static str, why: String },

    #[error(
        "{}: example {example} (counted from 0) has label {label}, but there are only {classes} classes (0 to {})",
        .path.display(), classes.saturating_sub(1)
    )]
    Label { path: PathBuf, example: usize, label: u32, classes: usize },

    #[error("{}, line {line}: {why}", .path.display())]
    Row { path: PathBuf, line: u64, why: String },

    #[error("{}: {why}", .path.display())]
    Table { path: PathBuf, why: String },

    #[error("class folder {} holds no .jpg, .jpeg or .png file; add some or remove the folder", .path.display())]
    EmptyClass { path: PathBuf },

    #[error("class folder {} has no counterpart among the training classes", .path.display())]
    UnknownClass { path: PathBuf },

    #[error("cannot decode image {}: {why}", .path.display())]
    Image { path: PathBuf, why: String },

    #[error("none of the {count} images could be used; the first: {first}")]
    AllSkipped { count: usize, first: Box<DataError> },

    #[error("{what} holds no examples")]
    Empty { what: String },

    #[error("a batch of {batch} is larger than the {examples} examples it is drawn from; make it smaller")]
    BatchTooLarge { batch: usize, examples: usize },

    #[error("cannot hold out {wanted} of {examples} examples: at least one must be held out and one must remain")]
    HoldOut { wanted: String, examples: usize },

    #[error("{0}")]
    Option(String),

    #[error("a worker thread failed while it prepared batch {batch}; this is a bug, please report it")]
    Worker { batch: usize },
}

impl DataError {
    /// A failed read; an early end of a compressed stream counts as truncation.
    pub(crate) fn read(path: &Path, why: io::Error) -> Self {
        let path = path.to_owned();
        match why.kind() {
            io::ErrorKind::UnexpectedEof => DataError::Truncated { path, why: why.to_string() },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                DataError::Format { path, wanted: "a sound gzip or tar file", why: why.to_string() }
            }
            _ => DataError::Read { path, why },
        }
    }
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}
