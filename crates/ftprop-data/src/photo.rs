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
use crate::sizes::{check_sizes, cover};
use crate::trivial::Canvas;
use crate::view::{Chosen, Picture, Viewer};
use crate::window::Cutter;

/// A file larger than this is no picture.
const MOST_FILE: u64 = 1 << 30;

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
    let least = least_side(window, preprocess.resize);
    let (height, width, pixels) = scratch.decode(path, window.channels, false, least)?;
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
        let least = match *chosen {
            Chosen::Drawn { augment: Augment { area: Some([smallest, _]), .. }, .. } => {
                least_side_of_parts(cutter.window(), *smallest)
            }
            _ => least_side(cutter.window(), resize),
        };
        let (height, width, pixels) = self.decode(path, cutter.window().channels, known_whole, least)?;
        let picture = Picture { height, width, pixels: &pixels };
        let shown = match out {
            Out::Values(out) => self.viewer.show(&picture, Some(resize), cutter, chosen, out),
            Out::Pixels(out) => self.viewer.show_pixels(&picture, Some(resize), cutter, chosen, out),
        };
        shown.map_err(|why| refused(path, &why))
    }

    /// Height, width and bytes of the picture in a file, whose sides need not be longer than `least`.
    pub(crate) fn decode(
        &mut self,
        path: &Path,
        channels: usize,
        known_whole: bool,
        least: usize,
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
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(&self.file, channels, known_whole, least)))
            .unwrap_or_else(|_| Err("the decoder failed".into()));
        decoded.map_err(|why| refused(path, &one_line(&why)))
    }
}

/// How long the sides of a picture have to be so that resizing it to cover the window never makes it larger, however it
/// is turned.
pub(crate) fn least_side(window: Shape, resize: usize) -> usize {
    let (shorter, longer) = (window.height.min(window.width).max(1), window.height.max(window.width));
    resize.saturating_mul(longer).div_ceil(shorter)
}

/// The same for a window that shows a random part: the smallest one, and of that the shorter side.
fn least_side_of_parts(window: Shape, smallest: f32) -> usize {
    let share = (f64::from(smallest) * 3.0 / 4.0).sqrt();
    (window.height.max(window.width) as f64 / share).ceil() as usize
}

pub(crate) fn refused(path: &Path, why: &str) -> DataError {
    DataError::Image { path: path.to_owned(), why: why.to_owned() }
}

/// A decoder's words on one line, and not too many: some quote what they did not understand.
fn one_line(why: &str) -> String {
    let words = why.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(200).collect()
}
