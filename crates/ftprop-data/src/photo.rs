//! Decoding and resizing pictures from files.
//!
//! A picture is resized, keeping its proportions, until it just covers the square whose side is `resize` (its
//! shorter edge is then that long). The window of the network's input is cut from that: the centre here and in
//! tests, a random place in training.

use std::fs::File;
use std::io::{Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use image::{ImageReader, Limits};

use crate::DataError;
use crate::augment::{Placement, Room};
use crate::dataset::{Normalize, Shape};
use crate::resize::{self, Region, Rows};
use crate::window::Cutter;

/// A picture so long and thin that it would be larger than this after resizing is refused.
const MOST_PIXELS: usize = 1 << 26;

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

/// One picture as a network's input: decoded, resized, the centre cut out and normalised.
pub fn load_image(path: &Path, preprocess: &Preprocess) -> Result<Vec<f32>, DataError> {
    let shape = preprocess.shape;
    if shape.size() == 0 || preprocess.resize < shape.height.min(shape.width) {
        return Err(DataError::Option(format!(
            "an input of {}×{} pixels cannot be cut from a picture resized to {}",
            shape.height, shape.width, preprocess.resize
        )));
    }
    let cutter = Cutter::new(shape, 0, &preprocess.normalize)?;
    let mut out = vec![0.0; shape.size()];
    Scratch::default().load(path, preprocess.resize, &cutter, Placement::centre, &mut out)?;
    Ok(out)
}

/// What a thread keeps between pictures.
#[derive(Default)]
pub(crate) struct Scratch {
    file: Vec<u8>,
    resized: Vec<u8>,
    rows: Rows,
}

impl Scratch {
    /// Writes the window of the picture in a file; `place` says where it lies, given the room there is.
    pub(crate) fn load(
        &mut self,
        path: &Path,
        resize: usize,
        cutter: &Cutter,
        place: impl FnOnce(Room) -> Placement,
        out: &mut [f32],
    ) -> Result<(), DataError> {
        let window = cutter.window();
        let refused = |why: String| DataError::Image { path: path.to_owned(), why };
        self.file.clear();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut self.file))
            .map_err(|why| DataError::Read { path: path.to_owned(), why })?;
        // A decoder's bug must not end a training run.
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&self.file, window.channels)))
            .unwrap_or_else(|_| Err("the decoder failed".into()));
        let (height, width, pixels) = decoded.map_err(refused)?;
        let (new_height, new_width) = cover(height, width, window, resize).ok_or_else(|| {
            refused(format!("{width}×{height} pixels are too long and thin to be resized to {resize}"))
        })?;
        let placed = place(cutter.room(new_height, new_width));
        // Only the window is ever made; it is then cut whole.
        let region = Region { y: placed.y, x: placed.x, height: window.height, width: window.width };
        let (from, to) = ((height, width), (new_height, new_width));
        match window.channels {
            1 => resize::resize::<1>(&pixels, from, to, region, &mut self.rows, &mut self.resized),
            _ => resize::resize::<3>(&pixels, from, to, region, &mut self.rows, &mut self.resized),
        }
        let whole = Placement { x: 0, y: 0, flip: placed.flip };
        cutter.cut(&self.resized, window.height, window.width, whole, out);
        Ok(())
    }
}

/// Height, width and bytes of an encoded picture, grey or RGB.
fn decode(file: &[u8], channels: usize) -> Result<(usize, usize, Vec<u8>), String> {
    let mut reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|why| why.to_string())?;
    if reader.format().is_none() {
        return Err(format!("it is neither JPEG nor PNG ({} bytes)", file.len()));
    }
    if reader.format() == Some(image::ImageFormat::Jpeg) && !jpeg_is_whole(file) {
        return Err("the file is truncated".into());
    }
    reader.limits(Limits::default());
    let picture = reader.decode().map_err(|why| why.to_string())?;
    let (height, width) = (picture.height() as usize, picture.width() as usize);
    if height == 0 || width == 0 {
        return Err("it has no pixels".into());
    }
    match channels {
        1 => Ok((height, width, picture.into_luma8().into_raw())),
        3 => Ok((height, width, picture.into_rgb8().into_raw())),
        _ => Err(format!("a picture has 1 or 3 channels, the network wants {channels}")),
    }
}

/// Whether the last marker of consequence ends the image. The decoder fills what is missing with grey and says
/// nothing, so a truncated file has to be noticed here.
fn jpeg_is_whole(file: &[u8]) -> bool {
    const START_OF_SCAN: [u8; 2] = [0xff, 0xda];
    const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
    let last = file.windows(2).rev().find(|&marker| marker == START_OF_SCAN || marker == END_OF_IMAGE);
    last == Some(&END_OF_IMAGE[..])
}

/// Height and width of a picture resized to just cover the rectangle that has the window's proportions and
/// whose shorter edge is `resize`; for a square window: the picture's shorter edge becomes `resize`.
fn cover(height: usize, width: usize, window: Shape, resize: usize) -> Option<(usize, usize)> {
    let edge = window.height.min(window.width);
    let (least_height, least_width) = (resize * window.height / edge, resize * window.width / edge);
    let (new_height, new_width) = if least_width * height >= least_height * width {
        (height * least_width / width, least_width)
    } else {
        (least_height, width * least_height / height)
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
        let wide = Shape::new(2, 3, 1);
        for (height, width) in [(1, 1), (7, 5), (5, 7), (100, 3), (2, 3)] {
            let (h, w) = cover(height, width, wide, 2).unwrap();
            assert!(h >= 2 && w >= 3 && (h == 2 || w == 3), "{height}×{width}: {h}×{w}");
        }
    }

    #[test]
    fn a_truncated_jpeg_is_noticed() {
        assert!(jpeg_is_whole(&[0xff, 0xda, 1, 2, 0xff, 0xd9, 0]));
        assert!(!jpeg_is_whole(&[0xff, 0xd9, 0xff, 0xda, 1, 2]));
        assert!(!jpeg_is_whole(&[]));
    }
}
