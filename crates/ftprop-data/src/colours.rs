//! Pictures made brighter or darker, more or less contrasty, more or less colourful.
//!
//! Each pixel by itself, in f32, each operation rounded once and in this order, so that every device finds the same bits:
//! saturation first, `x ← g + s · (x − g)` with the pixel's grey `g = (0.299 r + 0.587 g) + 0.114 b`; then brightness,
//! `x ← b · x`; then contrast around the value that normalising makes 0, `x ← m + c · (x − m)`; then what lies below black
//! or above `full` is cut off, and the value normalised. (Others take contrast around the mean of each picture; that
//! would need a pass of its own over each.)

use crate::{DataError, Normalize};
use ftprop_tensor::random::Stream;

/// How far colours may change: each factor is drawn evenly from 1 − x to 1 + x, x between 0, for no change, and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// Brighter or darker.
    pub brightness: f32,
    /// Further from the mean colour, or nearer.
    pub contrast: f32,
    /// Further from grey, or nearer.
    pub saturation: f32,
}

/// By what the colours of one picture change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colours {
    /// What values are multiplied by.
    pub brightness: f32,
    /// What distances from the mean are multiplied by.
    pub contrast: f32,
    /// What distances from grey are multiplied by.
    pub saturation: f32,
}

impl Jitter {
    /// No change.
    pub const NONE: Jitter = Jitter { brightness: 0.0, contrast: 0.0, saturation: 0.0 };

    /// Whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == Jitter::NONE
    }

    /// The factors of an example, `1 + x · (2u − 1)` with the numbers 5, 6 and 7 for u.
    pub(crate) fn draw(&self, own: Stream) -> Option<Colours> {
        let factor = |number: u64, reach: f32| 1.0 + reach * (2.0 * own.uniform(number) - 1.0);
        (!self.is_none()).then(|| Colours {
            brightness: factor(5, self.brightness),
            contrast: factor(6, self.contrast),
            saturation: factor(7, self.saturation),
        })
    }

    pub(crate) fn check(&self, channels: usize) -> Result<(), DataError> {
        if self.is_none() {
            return Ok(());
        }
        let all = [self.brightness, self.contrast, self.saturation];
        if !all.iter().all(|reach| (0.0..=1.0).contains(reach)) {
            return Err(DataError::Option("brightness, contrast and saturation change by 0 to 1".into()));
        }
        match channels {
            3 => Ok(()),
            _ => Err(DataError::Option(format!("colours change in RGB pictures; these have {channels} channels"))),
        }
    }
}

impl Colours {
    /// A pixel's bytes as a network's input.
    pub(crate) fn apply(&self, pixel: [u8; 3], normalize: &Normalize) -> [f32; 3] {
        let [r, g, b] = pixel.map(f32::from);
        let grey = (0.299 * r + 0.587 * g) + 0.114 * b;
        let values = [r, g, b];
        std::array::from_fn(|c| {
            let mean = normalize.mean[c] * normalize.full;
            let x = grey + self.saturation * (values[c] - grey);
            let x = self.brightness * x;
            let x = mean + self.contrast * (x - mean);
            normalize.apply(x.max(0.0).min(normalize.full), c)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_factor_does_what_its_name_says() {
        let normalize = Normalize::pixels(&[0.5, 0.4, 0.3], &[0.5, 0.5, 0.5]);
        let same = Colours { brightness: 1.0, contrast: 1.0, saturation: 1.0 };
        let raw = |colours: Colours, pixel| {
            let values = colours.apply(pixel, &normalize);
            std::array::from_fn::<_, 3, _>(|c| ((values[c] * 0.5 + normalize.mean[c]) * 255.0).round() as i32)
        };
        assert_eq!(raw(same, [10, 100, 200]), [10, 100, 200]);
        assert_eq!(raw(Colours { brightness: 1.5, ..same }, [10, 100, 200]), [15, 150, 255]);
        assert_eq!(raw(Colours { saturation: 0.0, ..same }, [10, 100, 200]), [84, 84, 84]);
        assert_eq!(raw(Colours { contrast: 0.0, ..same }, [10, 100, 200]), [128, 102, 77]);
        assert_eq!(raw(Colours { contrast: 2.0, ..same }, [10, 102, 77]), [0, 102, 78]);
    }

    #[test]
    fn factors_are_drawn_from_where_they_may_lie() {
        let jitter = Jitter { brightness: 0.4, contrast: 0.2, saturation: 0.0 };
        let drawn: Vec<_> = (0..1000).map(|i| jitter.draw(Stream::numbered(2).fork(i)).unwrap()).collect();
        assert!(drawn.iter().all(|c| (0.6..=1.4).contains(&c.brightness) && (0.8..=1.2).contains(&c.contrast)));
        assert!(drawn.iter().all(|c| c.saturation == 1.0));
        assert!(drawn.iter().any(|c| c.brightness < 0.65) && drawn.iter().any(|c| c.brightness > 1.35));
        assert!(Jitter::NONE.draw(Stream::numbered(2)).is_none());
        assert!(Jitter { contrast: 1.5, ..jitter }.check(3).is_err() && jitter.check(1).is_err());
    }
}
