//! A random part of a picture, as Inception's training cuts them.
//!
//! Only sums, products, quotients and square roots of f64 decide, each rounded once, so every device that knows them finds
//! the same part.

use ftprop_tensor::random::Stream;

/// The number of the first random number of the tries.
const FIRST: u64 = 8;
/// How often a part is drawn that may not fit.
const TRIES: u64 = 10;

/// A rectangle of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Its first row.
    pub y: usize,
    /// Its first column.
    pub x: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Patch {
    /// The part of a picture that an example's random numbers say.
    ///
    /// In try t the part has `(least + (most - least) · u) · height · width` pixels, u the number 8 + 2t. Its longer edge
    /// is r times its shorter one: the lower 63 bits of number 9 + 2t, the lower 39 of them dropped, are k, and
    /// r = 1 + k / (3 · 2²⁴), so from 1 to 4/3; the highest bit says that it stands upright. The first of ten tries that
    /// fits is taken. Where none does it is the largest part whose proportions are at most 4 : 3.
    pub(crate) fn draw(own: Stream, [least, most]: [f32; 2], height: usize, width: usize) -> Patch {
        let (least, most) = (f64::from(least), f64::from(most));
        let pixels = height as f64 * width as f64;
        let mut size = (height.min(width * 4 / 3).max(1), width.min(height * 4 / 3).max(1));
        for number in (0..TRIES).map(|t| FIRST + 2 * t) {
            let area = (least + (most - least) * f64::from(own.uniform(number))) * pixels;
            let bits = own.u64(number + 1);
            let ratio = 1.0 + ((bits << 1) >> 40) as f64 / 50_331_648.0;
            let long = ((area * ratio).sqrt() + 0.5).floor() as usize;
            let short = ((area / ratio).sqrt() + 0.5).floor() as usize;
            let tried = if bits >> 63 == 1 { (long, short) } else { (short, long) };
            if (1..=height).contains(&tried.0) && (1..=width).contains(&tried.1) {
                size = tried;
                break;
            }
        }
        let place = |number: u64, room: usize| own.below(number, room as u64 + 1) as usize;
        Patch { y: place(0, height - size.0), x: place(1, width - size.1), height: size.0, width: size.1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_the_picture_and_have_the_areas_and_proportions_asked_for() {
        for (height, width) in [(160, 213), (300, 200), (64, 64)] {
            let (mut upright, mut total) = (0, 0.0);
            for example in 0..2000 {
                let part = Patch::draw(Stream::numbered(5).fork(example), [0.25, 1.0], height, width);
                assert!(part.y + part.height <= height && part.x + part.width <= width, "{part:?}");
                let area = (part.height * part.width) as f64 / (height * width) as f64;
                let ratio = part.height.max(part.width) as f64 / part.height.min(part.width) as f64;
                assert!((0.24..=1.0).contains(&area) && ratio < 1.36, "{part:?}");
                upright += usize::from(part.height > part.width);
                total += area;
            }
            // As many upright as lying where both fit; large ones fit less often than small ones.
            assert!((0.45..0.66).contains(&(total / 2000.0)), "{}", total / 2000.0);
            assert!((600..1400).contains(&upright), "{upright}");
        }
    }

    #[test]
    fn what_is_too_long_for_any_try_shows_as_much_as_it_can() {
        let part = Patch::draw(Stream::numbered(1), [0.9, 1.0], 1000, 10);
        assert_eq!((part.height, part.width), (13, 10));
        let part = Patch::draw(Stream::numbered(1), [0.9, 1.0], 1, 5);
        assert_eq!((part.height, part.width), (1, 1));
        assert_eq!(Patch::draw(Stream::numbered(1), [1.0, 1.0], 1, 1), Patch { y: 0, x: 0, height: 1, width: 1 });
    }
}
