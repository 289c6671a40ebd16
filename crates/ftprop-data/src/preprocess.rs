//! What a network takes: the shape of an example, how its values are normalised, how a picture becomes one.

use crate::DataError;

/// The shape of one example, in the order it lies in memory: rows, then pixels, then channels.
///
/// A table of features is 1 × 1 × columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Values of a pixel.
    pub channels: usize,
}

impl Shape {
    /// A shape of so many rows, columns and channels.
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
    /// For each channel.
    pub mean: Vec<f32>,
    /// The deviation of each channel.
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

/// How a picture becomes a network's input.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// The network's input; one channel (grey) or three (RGB).
    pub shape: Shape,
    /// What the shorter edge is resized to; at least the input's.
    pub resize: usize,
    /// Of bytes, so with `full` = 255.
    pub normalize: Normalize,
}
