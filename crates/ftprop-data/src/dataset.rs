//! A data set: two splits, the names of the classes, and how its values are normalised.

use std::collections::BTreeMap;
use std::fmt;

use crate::DataError;
use crate::preprocess::{Normalize, Preprocess, Shape};
use crate::split::Split;
use crate::table::TableTransform;

/// A data set: from [`open`](crate::open), or put together by hand from two splits.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// For reports; [`open`](crate::open) uses the name of its [`Source`](crate::Source).
    pub name: String,
    /// The shape of the examples a [`Loader`](crate::Loader) delivers, and so of the network's input.
    pub shape: Shape,
    /// The names of the classes; label i is class i.
    pub classes: Vec<String>,
    /// How the raw values become a network's input.
    pub normalize: Normalize,
    /// The examples to learn from.
    pub train: Split,
    /// The examples to measure by.
    pub test: Split,
    /// Files that were found and not used.
    pub passed_over: PassedOver,
    /// For tables: what was done to the cells, to be done to other rows alike.
    pub table: Option<TableTransform>,
}

/// Files in a folder of pictures that are none, counted by kind, and pictures of no class.
///
/// ```
/// let passed_over = ftprop_data::PassedOver { kinds: [(".txt".into(), 2), (".mp4".into(), 1)].into(), loose: 0 };
/// assert_eq!(passed_over.to_string(), "3 files that are no pictures were passed over: 1 .mp4, 2 .txt");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// How many of each kind; a kind is a name's end, in lower case.
    pub kinds: BTreeMap<String, usize>,
    /// Pictures beside the class folders.
    pub loose: usize,
}

impl PassedOver {
    /// How many in all.
    pub fn count(&self) -> usize {
        self.kinds.values().sum::<usize>() + self.loose
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let others: usize = self.kinds.values().sum();
        let others = match others {
            0 => None,
            1 => Some(format!("1 file that is no picture was passed over: {}", kinds.join(", "))),
            others => Some(format!("{others} files that are no pictures were passed over: {}", kinds.join(", "))),
        };
        let loose = match self.loose {
            0 => None,
            1 => Some("1 picture in no class folder was passed over".to_string()),
            loose => Some(format!("{loose} pictures in no class folder were passed over")),
        };
        f.write_str(&others.into_iter().chain(loose).collect::<Vec<_>>().join("; "))
    }
}

impl Dataset {
    /// How a picture from elsewhere is made into an input; `None` for a table.
    pub fn preprocess(&self) -> Option<Preprocess> {
        let resize = self.test.shorter_edge()?;
        let normalize = Normalize { full: 255.0, ..self.normalize.clone() };
        Some(Preprocess { shape: self.shape, resize, normalize })
    }

    /// The same data seen through a square window: at random places in training where
    /// [`Augment::crop`](crate::Augment) says so, else in the centre.
    pub fn crop_to(mut self, side: usize) -> Result<Self, DataError> {
        self.train.crop_to(side)?;
        self.test.crop_to(side)?;
        self.shape = self.train.shape();
        Ok(self)
    }
}
