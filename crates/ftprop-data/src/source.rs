//! Which data sets there are, and what can be chosen about them. Readers know these words; opening one is `open`'s.

use std::fmt;
use std::str::FromStr;

use crate::DataError;
use crate::table::{CsvOptions, TableTransform};

/// A kind of data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in digits; needs no path.
    Digits,
    /// CIFAR-10, the binary version.
    Cifar10,
    /// CIFAR-100, the binary version.
    Cifar100,
    /// MNIST's four IDX files.
    Mnist,
    /// Fashion-MNIST's four IDX files.
    FashionMnist,
    /// Pictures in class folders: `train/CLASS/*` and `val/CLASS/*`, as ImageNet is laid out, or `CLASS/*` alone.
    Folder,
    /// Pictures that [`prepare`](crate::prepare) decoded, in one file.
    Prepared,
    /// A table with a label column.
    Csv,
    /// Arrays that a program handed over. They are nowhere but in its memory, so they cannot be opened by a path.
    Arrays,
}

impl Source {
    /// Every kind that can be opened.
    pub const ALL: [Source; 8] = [
        Source::Digits,
        Source::Cifar10,
        Source::Cifar100,
        Source::Mnist,
        Source::FashionMnist,
        Source::Folder,
        Source::Prepared,
        Source::Csv,
    ];

    /// How many examples the published data set has to learn from and to measure by, where there is one.
    pub const fn published(self) -> Option<[usize; 2]> {
        match self {
            Source::Cifar10 | Source::Cifar100 => Some([50_000, 10_000]),
            Source::Mnist | Source::FashionMnist => Some([60_000, 10_000]),
            _ => None,
        }
    }

    /// The name in recipes and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Digits => "digits",
            Source::Cifar10 => "cifar10",
            Source::Cifar100 => "cifar100",
            Source::Mnist => "mnist",
            Source::FashionMnist => "fashion-mnist",
            Source::Folder => "folder",
            Source::Prepared => "prepared",
            Source::Csv => "csv",
            Source::Arrays => "arrays",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Source {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        Source::ALL.into_iter().chain([Source::Arrays]).find(|source| source.name() == name).ok_or_else(|| {
            let known = Source::ALL.map(Source::name).join(", ");
            DataError::UnknownSource { name: name.to_owned(), known }
        })
    }
}

/// What can be chosen when a data set is opened; the default suits each.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The side of the square window that the network sees; by default the whole picture, for folders
    /// 224, for prepared files seven eighths of the shorter edge.
    pub crop: Option<usize>,
    /// For folders: what the shorter edge of a picture is resized to; by default 256. For prepared files:
    /// by default as it is.
    pub resize: Option<usize>,
    /// For tables.
    pub csv: CsvOptions,
    /// For class folders and tables: what a network was trained on, where these data are for it.
    pub known: Option<Known>,
    /// Do not divide data that come in one piece: all of it is to be measured, and is the test part.
    pub whole: bool,
}

/// What a network was trained on, as far as other data depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The names of its classes; others are refused, and not all need occur.
    pub classes: Vec<String>,
    /// For tables: what was done to the cells, to be done to these alike.
    pub table: Option<TableTransform>,
}
