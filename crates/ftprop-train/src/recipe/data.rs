//! What a recipe's data settings come to: where the data are, the data set, what is held out, what is done to its pictures.

use super::{BadImages, ColumnRecipe, CsvRecipe, DataRecipe, absolute};
use crate::error::Error;
use ftprop_data::{
    Augment, BadImage, CsvOptions, DataError, Dataset, Found, HoldOut, Jitter, Known, LabelColumn, Options, Source,
    Split, TestPart,
};
use std::path::Path;

impl DataRecipe {
    /// Opens the data set.
    pub fn open(&self) -> Result<Dataset, Error> {
        self.open_as(None, false)
    }

    /// Opens data for a network that was trained on other data; `whole` leaves data in one piece undivided.
    pub fn open_for(&self, known: Known, whole: bool) -> Result<Dataset, Error> {
        self.open_as(Some(known), whole)
    }

    /// Says where the data are. Where the recipe has the built-in digits, which lie nowhere, or photographs, which may have
    /// been prepared or not, what is there decides what kind of data they are, and that is given back if it is another.
    pub fn locate(&mut self, path: &Path) -> Result<Option<Found>, Error> {
        let other = match self.source {
            Source::Digits => true,
            Source::Folder => path.is_file(),
            Source::Prepared => path.is_dir(),
            _ => false,
        };
        let found = other.then(|| Source::detect(path)).transpose()?;
        if let Some(found) = &found {
            self.source = found.source;
        }
        self.path = Some(absolute(path));
        Ok(found)
    }

    /// The same for data that a network is to be measured on, which may be of any kind that suits it: what is there decides,
    /// where that can be told. Kinds that lie in files of the same names cannot be told apart, and the network knows.
    pub fn locate_others(&mut self, path: &Path) -> Result<Option<Found>, Error> {
        let family = |source: Source| match source {
            Source::FashionMnist => Source::Mnist,
            Source::Cifar100 => Source::Cifar10,
            other => other,
        };
        match Source::detect(path) {
            Ok(found) if family(found.source) != family(self.source) => {
                (self.source, self.path) = (found.source, Some(absolute(path)));
                Ok(Some(found))
            }
            Err(DataError::LoneClass { .. }) => {
                (self.source, self.path) = (Source::Folder, Some(absolute(path)));
                Ok(None)
            }
            _ => self.locate(path),
        }
    }

    fn open_as(&self, known: Option<Known>, whole: bool) -> Result<Dataset, Error> {
        let label = match &self.csv.label {
            None => LabelColumn::Last,
            Some(ColumnRecipe::Index(index)) => LabelColumn::Index(*index),
            Some(ColumnRecipe::Name(name)) => LabelColumn::Name(name.clone()),
        };
        let test = match (&self.csv.test_file, self.csv.test_fraction) {
            (Some(file), _) => TestPart::File(file.clone()),
            (None, Some(fraction)) => TestPart::Fraction(fraction),
            (None, None) => CsvOptions::default().test,
        };
        let CsvRecipe { header, missing, ref categories, ref ignore, .. } = self.csv;
        let csv = CsvOptions { label, header, test, missing, categories: categories.clone(), ignore: ignore.clone() };
        let options = Options { crop: self.crop, resize: self.resize, csv, known, whole };
        Ok(ftprop_data::open(self.source, self.path.as_deref(), &options)?)
    }

    /// The side of the window that is trained with in an epoch, where the recipe says so.
    pub fn side_at(&self, epoch: u32) -> Option<usize> {
        self.sizes.iter().rev().find(|&&(first, _)| first <= epoch).map(|&(_, side)| side)
    }

    /// The training part and what is held out of it for validation.
    pub fn hold_out(&self, train: &Split, seed: u64) -> Result<(Split, Option<Split>), Error> {
        if self.validation == 0.0 {
            return Ok((train.clone(), None));
        }
        let amount = if self.validation < 1.0 {
            HoldOut::Fraction(self.validation)
        } else {
            HoldOut::Count(self.validation as usize)
        };
        let (train, validation) = train.hold_out(amount, seed)?;
        Ok((train, Some(validation)))
    }

    /// What is done to training pictures.
    pub fn augment(&self) -> Augment {
        Augment {
            pad: self.pad,
            reflect: self.reflect,
            crop: self.random_crop,
            flip: self.flip,
            alternate: self.alternate_flips,
            cutout: self.cutout,
            area: self.area,
            jitter: Jitter { brightness: self.brightness, contrast: self.contrast, saturation: self.saturation },
            trivial: self.trivial_augment,
        }
    }

    /// What is done about pictures that do not decode.
    pub fn bad_image(&self) -> BadImage {
        match self.bad_images {
            BadImages::Stop => BadImage::Stop,
            BadImages::Skip => BadImage::Skip,
        }
    }
}
