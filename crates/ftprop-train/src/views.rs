//! Test-time augmentation: a network is asked about several views of each picture, and the mean of its logits counts.
//!
//! ```
//! use ftprop_train::views::Views;
//! let views: Views = "flip,shift".parse()?;
//! assert_eq!((views.to_string().as_str(), views.count()), ("flip,shift", 6));
//! # Ok::<(), ftprop_train::Error>(())
//! ```

use crate::error::Error;
use crate::evaluate::Predictor;
use ftprop_data::Shape;
use std::fmt;
use std::str::FromStr;

/// Which views there are beside the picture itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Views {
    /// Each view mirrored, too.
    flip: bool,
    /// Moved by one pixel, to the upper left and to the lower right; what comes in is the edge again.
    shift: bool,
}

impl Views {
    /// How many views of a picture the network is asked about.
    pub fn count(self) -> usize {
        (1 + usize::from(self.flip)) * (1 + 2 * usize::from(self.shift))
    }

    /// The same network, which answers with the mean over the views of pictures of that shape.
    pub fn through(self, network: Box<dyn Predictor>, shape: Shape) -> Box<dyn Predictor> {
        Box::new(Viewed { network, views: self, shape, view: Vec::new(), mean: Vec::new() })
    }

    /// Each view as whether it is mirrored, and by how much it is moved; the picture itself first.
    fn all(self) -> impl Iterator<Item = (bool, isize)> {
        let flips: &[bool] = if self.flip { &[false, true] } else { &[false] };
        let shifts: &[isize] = if self.shift { &[0, -1, 1] } else { &[0] };
        shifts.iter().flat_map(|&by| flips.iter().map(move |&flip| (flip, by)))
    }
}

impl FromStr for Views {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut views = Views { flip: false, shift: false };
        for name in text.split(',') {
            let known = match name.trim() {
                "flip" => &mut views.flip,
                "shift" => &mut views.shift,
                _ => return Err(Error::Views { name: name.into() }),
            };
            if std::mem::replace(known, true) {
                return Err(Error::Views { name: name.into() });
            }
        }
        Ok(views)
    }
}

impl fmt::Display for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.flip, self.shift) {
            (true, true) => "flip,shift",
            (true, false) => "flip",
            (false, true) => "shift",
            (false, false) => "none",
        })
    }
}

/// A network that is asked about several views.
struct Viewed {
    network: Box<dyn Predictor>,
    views: Views,
    shape: Shape,
    view: Vec<f32>,
    mean: Vec<f32>,
}

impl Predictor for Viewed {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error> {
        self.mean.clear();
        let share = 1.0 / self.views.count() as f32;
        for (flip, by) in self.views.all() {
            look(examples, self.shape, flip, by, &mut self.view);
            let logits = self.network.classify(&self.view)?;
            self.mean.resize(logits.len(), 0.0);
            self.mean.iter_mut().zip(logits).for_each(|(mean, logit)| *mean += share * logit);
        }
        Ok(&self.mean)
    }
}

/// Pictures mirrored, and moved down and to the right by so many pixels.
fn look(pictures: &[f32], shape: Shape, flip: bool, by: isize, view: &mut Vec<f32>) {
    let Shape { height, width, channels } = shape;
    let moved = |at: usize, side: usize| (at as isize - by).clamp(0, side as isize - 1) as usize;
    view.clear();
    for picture in pictures.chunks_exact(height * width * channels) {
        for row in 0..height {
            let line = &picture[moved(row, height) * width * channels..][..width * channels];
            for column in 0..width {
                let from = moved(column, width);
                let from = if flip { width - 1 - from } else { from };
                view.extend_from_slice(&line[from * channels..][..channels]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it was shown: the first pixel, and the sum of all.
    struct Echo(Vec<f32>);
    impl Predictor for Echo {
        fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error> {
            self.0 = examples.chunks_exact(6).flat_map(|e| [e[0], e.iter().sum()]).collect();
            Ok(&self.0)
        }
    }

    #[test]
    fn views_are_mirrored_and_moved() {
        let (shape, picture) = (Shape::new(2, 3, 1), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let seen = |flip, by| {
            let mut view = Vec::new();
            look(&picture, shape, flip, by, &mut view);
            view
        };
        assert_eq!(seen(false, 0), picture);
        assert_eq!(seen(true, 0), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        assert_eq!(seen(false, 1), [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]);
        assert_eq!(seen(false, -1), [5.0, 6.0, 6.0, 5.0, 6.0, 6.0]);
        assert_eq!(seen(true, 1), [3.0, 3.0, 2.0, 3.0, 3.0, 2.0]);
    }

    #[test]
    fn the_mean_over_the_views_counts() {
        let two = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0];
        let mut network = "flip".parse::<Views>().unwrap().through(Box::new(Echo(vec![])), Shape::new(2, 3, 1));
        assert_eq!(network.classify(&two).unwrap(), [2.0, 21.0, 4.5, 9.0]);
        for wrong in ["", "flips", "flip,flip", "flip;shift"] {
            assert!(wrong.parse::<Views>().is_err(), "{wrong}");
        }
    }
}
