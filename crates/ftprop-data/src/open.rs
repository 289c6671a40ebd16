//! Opening a data set by its kind.

use std::path::Path;

use crate::source::{Options, Source};
use crate::{DataError, Dataset, cifar, digits, folder, idx, prepared, table_file};

/// Opens a data set and checks it. The path is a folder, an archive or a file, as the kind has it.
pub fn open(source: Source, path: Option<&Path>, options: &Options) -> Result<Dataset, DataError> {
    let place = || path.ok_or(DataError::PathNeeded { dataset: source.name() });
    if options.resize.is_some() && !matches!(source, Source::Folder | Source::Prepared) {
        return Err(DataError::Option(format!("`resize` is for folders of pictures; {source} has one size only")));
    }
    let dataset = match source {
        Source::Digits if path.is_some() => {
            let why = "the digits are built in and lie nowhere; say which kind of data the path holds, or leave it out";
            return Err(DataError::Option(why.into()));
        }
        Source::Digits => digits::open()?,
        Source::Cifar10 => cifar::open10(place()?)?,
        Source::Cifar100 => cifar::open100(place()?)?,
        Source::Mnist => idx::open_mnist(place()?)?,
        Source::FashionMnist => idx::open_fashion(place()?)?,
        Source::Folder => return folder::open(place()?, options),
        Source::Prepared => return prepared::open(place()?, options),
        Source::Csv => table_file::open(place()?, options)?,
        Source::Arrays => return Err(DataError::InMemory),
    };
    match options.crop {
        Some(side) => dataset.crop_to(side),
        None => Ok(dataset),
    }
}
