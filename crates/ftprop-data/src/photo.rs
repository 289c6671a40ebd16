//! Pictures from files, resized.
//!
//! A picture is resized, keeping its proportions, until it just covers the square whose side is `resize` (its
//! shorter edge is then that long). The window of the network's input is cut from that: the centre here and in
//! tests, a random place in training.

use std::fs::{self, File};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::DataError;
use crate::augment::{Augment, Placement};
use crate::decode::{EXTENSIONS, decode};
use crate::preprocess::{Preprocess, Shape};
use crate::resize::Axis;
use crate::trivial::Canvas;
use crate::view::{Chosen, Picture, Viewer};
use crate::window::Cutter;

/// A picture so long and thin that it would be larger than this after resizing is refused.
pub(crate) const MOST_PIXELS: usize = 1 << 26;
/// The longest shorter edge that a picture is resized to.
const MOST_EDGE: usize = 1 << 14;
/// A file larger than this is no picture.
const MOST_FILE: u64 = 1 << 30;

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

/// Whether a file's name ends as those of pictures do that can be read.
pub fn is_picture(path: &Path) -> bool {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    EXTENSIONS.contains(&ending.as_str())
}

/// One picture as a network's input: decoded, resized, the centre cut out and normalised.
pub fn load_image(path: &Path, preprocess: &Preprocess) -> Result<Vec<f32>, DataError> {
    let (shape, cutter) = (preprocess.shape, one_window(preprocess)?);
    let mut out = vec![0.0; shape.size()];
    Scratch::default().load(path, preprocess.resize, false, &cutter, &Chosen::Centre, Out::Values(&mut out))?;
    Ok(out)
}

/// The same pixels as they are, not normalised: for a model that takes bytes.
pub fn load_pixels(path: &Path, preprocess: &Preprocess) -> Result<Vec<u8>, DataError> {
    let (window, cutter) = (preprocess.shape, one_window(preprocess)?);
    let mut scratch = Scratch::default();
    let (height, width, pixels) = scratch.decode(path, window.channels, false)?;
    let picture = Picture { height, width, pixels: &pixels };
    let (new_height, new_width) =
        cover(height, width, window, preprocess.resize).ok_or_else(|| refused(path, "it is too long and thin"))?;
    let placed = Placement::centre(cutter.room(new_height, new_width));
    let rows = Axis::whole(height, new_height, placed.y, window.height);
    let columns = Axis::whole(width, new_width, placed.x, window.width);
    Ok(scratch.viewer.resample(&picture, window.channels, rows, columns).to_vec())
}

/// Checks what a picture is to become, before anything of that size is made.
fn one_window(preprocess: &Preprocess) -> Result<Cutter, DataError> {
    let shape = preprocess.shape;
    check_sizes(preprocess.resize, shape)?;
    if shape.size() == 0 || preprocess.resize < shape.height.min(shape.width) {
        return Err(DataError::Option(format!(
            "an input of {}×{} pixels cannot be cut from a picture resized to {}",
            shape.height, shape.width, preprocess.resize
        )));
    }
    Cutter::new(shape, &Augment::default(), &preprocess.normalize)
}

/// Where an example goes: as values for a network, or as bytes that a device makes into them.
pub(crate) enum Out<'a> {
    Values(&'a mut [f32]),
    Pixels(&'a mut [u8]),
}

/// What a thread keeps between pictures.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) file: Vec<u8>,
    pub(crate) viewer: Viewer,
    pub(crate) canvas: Canvas,
}

impl Scratch {
    /// Writes the window of the picture in a file that was chosen.
    pub(crate) fn load(
        &mut self,
        path: &Path,
        resize: usize,
        known_whole: bool,
        cutter: &Cutter,
        chosen: &Chosen<'_>,
        out: Out<'_>,
    ) -> Result<(), DataError> {
        let (height, width, pixels) = self.decode(path, cutter.window().channels, known_whole)?;
        let picture = Picture { height, width, pixels: &pixels };
        let shown = match out {
            Out::Values(out) => self.viewer.show(&picture, Some(resize), cutter, chosen, out),
            Out::Pixels(out) => self.viewer.show_pixels(&picture, Some(resize), cutter, chosen, out),
        };
        shown.map_err(|why| refused(path, &why))
    }

    /// Height, width and bytes of the picture in a file.
    pub(crate) fn decode(
        &mut self,
        path: &Path,
        channels: usize,
        known_whole: bool,
    ) -> Result<(usize, usize, Vec<u8>), DataError> {
        let failed = |why| DataError::Read { path: path.to_owned(), why };
        // Opening a pipe would wait for somebody to write to it.
        let about = fs::metadata(path).map_err(failed)?;
        if !about.is_file() {
            return Err(refused(path, "it is no file"));
        }
        if about.len() > MOST_FILE {
            return Err(refused(path, &format!("{} bytes are more than a picture has", about.len())));
        }
        self.file.clear();
        File::open(path).and_then(|file| file.take(MOST_FILE).read_to_end(&mut self.file)).map_err(failed)?;
        // A decoder's bug must not end a training run.
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&self.file, channels, known_whole)))
            .unwrap_or_else(|_| Err("the decoder failed".into()));
        decoded.map_err(|why| refused(path, &one_line(&why)))
    }
}

pub(crate) fn refused(path: &Path, why: &str) -> DataError {
    DataError::Image { path: path.to_owned(), why: why.to_owned() }
}

/// A decoder's words on one line, and not too many: some quote what they did not understand.
fn one_line(why: &str) -> String {
    let words = why.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
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
