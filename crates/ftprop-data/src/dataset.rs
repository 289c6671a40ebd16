//! A data set: two splits, the names of the classes, and how its values are normalised.

use crate::DataError;
use crate::photo::Preprocess;
use crate::split::Split;

/// The shape of one example, in the order it lies in memory: rows, then pixels, then channels.
///
/// A table of features is 1 × 1 × columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Shape {
    pub const fn new(height: usize, width: usize, channels: usize) -> Self {
        Shape { height, width, channels }
    }

    /// How many values one example has.
    pub const fn size(self) -> usize {
        self.height * self.width * self.channels
    }
}

/// Normalising: a raw value x becomes `(x / full - mean) / std`, channel by channel, in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// The raw value that counts as 1: 255 for pixels, 16 for the digits, 1 for a table.
    pub full: f32,
    pub mean: Vec<f32>,
    pub std: Vec<f32>,
}

impl Normalize {
    /// For pixels of 0 to 255, with mean and deviation of the values divided by 255.
    pub fn pixels(mean: &[f32], std: &[f32]) -> Self {
        Normalize { full: 255.0, mean: mean.to_vec(), std: std.to_vec() }
    }

    /// ImageNet's customary numbers, for RGB photos.
    pub fn imagenet() -> Self {
        Normalize::pixels(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])
    }

    /// The normalised value of every byte, one table a channel.
    pub fn tables(&self) -> Vec<[f32; 256]> {
        (0..self.mean.len()).map(|c| std::array::from_fn(|x| self.apply(x as f32, c))).collect()
    }

    pub(crate) fn apply(&self, x: f32, channel: usize) -> f32 {
        (x / self.full - self.mean[channel]) / self.std[channel]
    }

    /// Checks that there is a usable mean and deviation for each channel.
    pub(crate) fn check(&self, channels: usize) -> Result<(), DataError> {
        if self.mean.len() != channels || self.std.len() != channels {
            return Err(DataError::Option(format!(
                "normalising has {} means and {} deviations, but the examples have {channels} channels",
                self.mean.len(),
                self.std.len()
            )));
        }
        let usable = |x: &f32| x.is_finite();
        if !self.mean.iter().all(usable) || !self.std.iter().chain([&self.full]).all(|x| usable(x) && *x > 0.0) {
            return Err(DataError::Option("normalising needs finite means and positive deviations".into()));
        }
        Ok(())
    }
}

/// A data set: from [`open`](crate::open), or put together by hand from two splits.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// For reports; [`open`](crate::open) uses the name of its [`Source`](crate::Source).
    pub name: String,
    /// The shape of the examples a [`Loader`](crate::Loader) delivers, and so of the network's input.
    pub shape: Shape,
    /// The names of the classes; label i is class i.
    pub classes: Vec<String>,
    pub normalize: Normalize,
    pub train: Split,
    pub test: Split,
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
