//! The sizes that pictures are resized to and cut to, and how large they may be.

use crate::DataError;
use crate::preprocess::Shape;

/// A picture so long and thin that it would be larger than this after resizing is refused.
pub(crate) const MOST_PIXELS: usize = 1 << 26;
/// The longest shorter edge that a picture is resized to.
const MOST_EDGE: usize = 1 << 14;

/// Checks sizes that pictures are resized to and cut to, before anything of that size is made.
pub(crate) fn check_sizes(resize: usize, window: Shape) -> Result<(), DataError> {
    let Shape { height, width, .. } = window;
    if resize > MOST_EDGE {
        return Err(DataError::Option(format!("pictures are not resized to {resize} pixels; at most {MOST_EDGE}")));
    }
    if height.checked_mul(width).is_none_or(|pixels| pixels > MOST_PIXELS) {
        return Err(DataError::Option(format!("an input of {height}×{width} pixels is more than {MOST_PIXELS}")));
    }
    Ok(())
}

/// Height and width of a picture resized to just cover the rectangle that has the window's proportions and
/// whose shorter edge is `resize`; for a square window: the picture's shorter edge becomes `resize`.
pub(crate) fn cover(height: usize, width: usize, window: Shape, resize: usize) -> Option<(usize, usize)> {
    let edge = window.height.min(window.width);
    let scaled = |side: usize, by: usize, of: usize| Some(side.checked_mul(by)? / of);
    let (least_height, least_width) = (scaled(resize, window.height, edge)?, scaled(resize, window.width, edge)?);
    let (new_height, new_width) = if least_width.checked_mul(height)? >= least_height.checked_mul(width)? {
        (scaled(height, least_width, width)?, least_width)
    } else {
        (least_height, scaled(width, least_height, height)?)
    };
    (new_height.checked_mul(new_width)? <= MOST_PIXELS).then_some((new_height, new_width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_edge_becomes_what_was_asked_and_the_window_is_covered() {
        let square = Shape::new(224, 224, 3);
        assert_eq!(cover(200, 300, square, 256), Some((256, 384)));
        assert_eq!(cover(300, 200, square, 256), Some((384, 256)));
        assert_eq!(cover(256, 256, square, 256), Some((256, 256)));
        assert_eq!(cover(1, 1_000_000, square, 256), None);
        assert_eq!(cover(200, 300, square, 1 << 61), None);
        let wide = Shape::new(2, 3, 1);
        for (height, width) in [(1, 1), (7, 5), (5, 7), (100, 3), (2, 3)] {
            let (h, w) = cover(height, width, wide, 2).unwrap();
            assert!(h >= 2 && w >= 3 && (h == 2 || w == 3), "{height}×{width}: {h}×{w}");
        }
    }
}
