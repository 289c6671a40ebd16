//! Which classes a run's kept network takes for which, with examples of its mistakes.

use super::runs::json;
use ftprop_data::{Normalize, Split};
use ftprop_nn::engine::Part;
use ftprop_train::Error;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::confusion::Confusion;
use ftprop_train::device::Place;
use ftprop_train::evaluate::evaluation_loader;
use ftprop_train::measuring::{Asked, Measured, Measuring, WhichData};
use ftprop_train::model::{Model, Which, ranked};
use ftprop_train::run::RunFolder;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::SystemTime;
use tiny_skia::{ColorU8, Pixmap};

/// The most examples that are looked at: somebody waits, and training goes on beside.
const EXAMPLES: usize = 2000;
/// The most mistakes that are shown.
const SHOWN: usize = 24;
/// The most classes that a matrix is shown of.
const CLASSES: usize = 40;
const BATCH: usize = 50;

/// What was found of each run, by when its network was kept.
#[derive(Default)]
pub(super) struct Mistakes {
    found: Mutex<HashMap<PathBuf, (SystemTime, String)>>,
    /// Held by whoever looks; one at a time, since it takes a core.
    looking: Mutex<()>,
}

/// What is shown of a run.
#[derive(Serialize)]
struct Report {
    /// Which part, and of how many examples how many were looked at.
    part: &'static str,
    examples: usize,
    of: usize,
    right: u64,
    classes: Vec<String>,
    /// Rows are true classes; none where there are too many.
    confusion: Option<Vec<Vec<u64>>>,
    mistakes: Vec<Mistake>,
}

/// An example that the network was wrong about.
#[derive(Serialize)]
struct Mistake {
    /// Its number in the part.
    number: usize,
    truth: usize,
    answer: usize,
    confidence: f32,
    /// A PNG in base64, where it is a picture.
    picture: Option<String>,
}

impl Mistakes {
    /// Of a run's kept network, as JSON; an error as a field of that name, `waiting` where somebody else is looking.
    pub(super) fn of(&self, run: &Path) -> String {
        let kept = std::fs::metadata(run.join("best.safetensors")).and_then(|file| file.modified());
        let Ok(kept) = kept else { return r#"{"waiting":"no network was kept yet"}"#.into() };
        if let Some(known) = self.known(run, kept) {
            return known;
        }
        let _looking = match self.looking.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return r#"{"waiting":"another run is being looked at"}"#.into(),
        };
        let found = match look(run) {
            Ok(report) => json(&report),
            Err(error) => serde_json::json!({ "error": error.to_string() }).to_string(),
        };
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(run.to_path_buf(), (kept, found.clone()));
        found
    }

    fn known(&self, run: &Path, kept: SystemTime) -> Option<String> {
        let all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(run).filter(|(when, _)| *when == kept).map(|(_, found)| found.clone())
    }
}

fn look(run: &Path) -> Result<Report, Error> {
    RunFolder::open(run)?;
    let cpu = Place::open(DeviceChoice::Cpu, 1)?.cpu;
    let mut model = Model::load(run, Which::Best, cpu.clone(), BATCH)?;
    let held_out = model.recipe.data.validation > 0.0;
    let part = if held_out { Part::Validation } else { Part::Test };
    let Measured { mut dataset, .. } =
        Measuring::of(&model.recipe, &model.info, WhichData::Own, Asked::Part(part)).open()?;
    dataset.normalize = model.info.normalize();
    let (_, validation) = model.recipe.data.hold_out(&dataset.train, model.recipe.train.seed)?;
    let (part, split): (_, &Split) = match &validation {
        Some(split) => ("validation", split),
        None => ("test", &dataset.test),
    };
    let loader = evaluation_loader(split, &model.recipe, &dataset, BATCH)?;
    let mut confusion = Confusion::new(dataset.classes.len());
    let (mut mistakes, mut examples, mut right) = (Vec::new(), 0, 0);
    let size = dataset.shape.height * dataset.shape.width * dataset.shape.channels;
    let mut batches = loader.epoch(0, 0);
    // Evenly over the part, in whole batches: class folders come one class after another.
    let every = loader.batches_per_epoch().div_ceil(EXAMPLES / BATCH).max(1);
    while let Some(batch) = batches.next_batch()? {
        if !batch.index.is_multiple_of(every) {
            continue;
        }
        let logits = cpu.enter(|| model.network.infer(batch.images)).to_vec();
        confusion.add(batch.labels, &logits);
        for (i, (z, &truth)) in logits.chunks_exact(dataset.classes.len()).zip(batch.labels).enumerate() {
            let (answer, confidence) = ranked(z)[0];
            examples += 1;
            if answer == truth as usize {
                right += 1;
            } else if mistakes.len() < SHOWN {
                let pixels = &batch.images[i * size..(i + 1) * size];
                let picture = picture(pixels, dataset.shape, &dataset.normalize);
                let number = batch.index * loader.config().batch + i;
                mistakes.push(Mistake { number, truth: truth as usize, answer, confidence, picture });
            }
        }
    }
    let count = dataset.classes.len();
    Ok(Report {
        part,
        examples,
        of: split.len(),
        right,
        confusion: (count <= CLASSES).then(|| (0..count).map(|truth| confusion.row(truth).to_vec()).collect()),
        classes: dataset.classes.clone(),
        mistakes,
    })
}

/// A normalised picture as a PNG in base64; none of what is no picture of one or three colours.
fn picture(values: &[f32], shape: ftprop_data::Shape, normalize: &Normalize) -> Option<String> {
    let channels = shape.channels;
    if shape.height * shape.width < 2 || !(channels == 1 || channels == 3) {
        return None;
    }
    let mut map = Pixmap::new(shape.width as u32, shape.height as u32)?;
    for (pixel, values) in map.pixels_mut().iter_mut().zip(values.chunks_exact(channels)) {
        let byte = |c: usize| {
            let c = c.min(channels - 1);
            (255.0 * (values[c] * normalize.std[c] + normalize.mean[c])).round().clamp(0.0, 255.0) as u8
        };
        *pixel = ColorU8::from_rgba(byte(0), byte(1), byte(2), 255).premultiply();
    }
    map.encode_png().ok().map(|png| base64(&png))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0u32, |sum, &b| (sum << 8) | u32::from(b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let shown = digit <= three.len();
            text.push(if shown { DIGITS[(number >> (18 - 6 * digit)) as usize & 63] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
