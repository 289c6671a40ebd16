//! Datasets, decoding, augmentation and batches for ftprop.
//!
//! [`open`] reads a data set, a [`Loader`] turns one of its [`Split`]s into batches, prepared ahead of the
//! trainer by worker threads. What a batch holds is a pure function of the seed, the epoch and the batch's
//! number: it does not depend on the number of workers, nor on where an epoch was resumed.
//!
//! ```
//! use ftprop_data::{Loader, LoaderConfig, Options, Source, open};
//!
//! let digits = open(Source::Digits, None, &Options::default())?;
//! let loader = Loader::new(&digits.train, LoaderConfig::training(64, 7, digits.normalize.clone()))?;
//! let mut epoch = loader.epoch(1, 0);
//! let mut seen = 0;
//! while let Some(batch) = epoch.next_batch()? {
//!     assert_eq!(batch.images.len(), batch.len() * digits.shape.size());
//!     seen += batch.len();
//! }
//! assert_eq!(seen, digits.train.len());
//! # Ok::<(), ftprop_data::DataError>(())
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `dataset` | [`Dataset`] |
//! | `preprocess` | [`Shape`], [`Normalize`], [`Preprocess`] |
//! | `split` | [`Split`]: examples and labels, and holding some of them out |
//! | `statistics` | mean and deviation of what is in memory |
//! | `source`, `open` | [`Source`], and [`open()`]: which reader for which name |
//! | `detect` | [`Source::detect`]: what a path holds |
//! | `digits`, `cifar`, `idx`, `folder`, `csv_file` | one file a format, [`CsvTable`] |
//! | `table`, `table_file` | [`TableTransform`]: from cells to numbers, for any rows alike |
//! | `prepared` | [`prepare`]: pictures decoded once, in one file |
//! | `pictures` | [`Pictures`]: those of different sizes, in such a file or in memory |
//! | `sizes` | what pictures are resized to, and how large they may be |
//! | `photo`, `decode`, `jpeg_scan`, `jpeg_reduced`, `resize` | pictures from files, [`load_image`] |
//! | `augment` | crops and flips, and which random number decides which |
//! | `patch` | [`Patch`]: a random part of a picture |
//! | `colours` | [`Jitter`], [`Colours`]: pictures brighter, more contrasty, more colourful |
//! | `trivial` | TrivialAugment: one operation of fourteen a picture |
//! | `typical` | how large photographs are, by some of them |
//! | `mark` | [`DataMark`]: data that is known again |
//! | `memory` | numbers in memory, whoever they belong to |
//! | `view` | what of a picture is shown, at which size |
//! | `window` | cutting a normalised window out of a picture |
//! | `loader` | [`Loader`], [`Epoch`], [`Batch`] and their threads |
//! | `prepare` | what one batch holds |
//! | `bytes` | whole files, gzipped or not, [`read_text`] |
//! | `error` | [`DataError`] |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod augment;
mod bytes;
mod cifar;
mod colours;
mod csv_file;
mod dataset;
mod decode;
mod detect;
mod digits;
mod error;
mod folder;
mod idx;
mod jpeg_reduced;
mod jpeg_scan;
mod loader;
mod mark;
mod memory;
mod open;
mod patch;
mod photo;
mod pictures;
mod prepare;
mod prepared;
mod preprocess;
mod resize;
mod sizes;
mod source;
mod split;
mod statistics;
mod table;
mod table_file;
mod trivial;
mod typical;
mod view;
mod window;

pub use augment::{Augment, Draws, Placement, Room};
pub use bytes::read_text;
pub use colours::{Colours, Jitter};
pub use csv_file::{CsvTable, LabelColumn};
pub use dataset::{Dataset, PassedOver};
pub use detect::Found;
pub use error::DataError;
pub use loader::{Batch, Epoch, Loader};
pub use mark::{DataMark, Mark, Overlap};
pub use open::open;
pub use patch::Patch;
pub use photo::{is_picture, load_image, load_pixels};
pub use pictures::Pictures;
pub use prepare::{BadImage, LoaderConfig};
pub use prepared::{PrepareOptions, Prepared, Preparing, prepare};
pub use preprocess::{Normalize, Preprocess, Shape};
pub use source::{Known, Options, Source};
pub use split::{HoldOut, Split};
pub use table::{ColumnKind, CsvOptions, Missing, TableColumn, TableTransform, TestPart};
