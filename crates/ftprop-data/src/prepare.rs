//! What one batch holds: a pure function of the plan, the epoch and the batch's number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ftprop_tensor::Share;
use ftprop_tensor::random::{Permutation, Purpose, Stream};

use crate::augment::{Augment, Draws, Room};
use crate::photo::{Out, Scratch};
use crate::split::{Content, Split};
use crate::view::{Chosen, Picture};
use crate::window::Cutter;
use crate::{DataError, Normalize};

/// How long other bad images are looked for once there is one.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to do with an image that cannot be read or decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadImage {
    /// End with an error that names it.
    #[default]
    Stop,
    /// Leave it out of its batch, which is then smaller, and count it.
    Skip,
}

/// How a split becomes batches.
#[derive(Clone, Debug)]
pub struct LoaderConfig {
    /// Examples a batch, at most as many as the split has; the last batch of an epoch has what is left.
    pub batch: usize,
    /// Decides the order of the examples, crops and flips.
    pub seed: u64,
    /// A new random order every epoch; otherwise the split's own.
    pub shuffle: bool,
    /// Crops and flips.
    pub augment: Augment,
    /// How values become a network's input.
    pub normalize: Normalize,
    /// Threads that prepare batches ahead; with 0 the calling thread prepares each when it is asked for.
    /// At most `workers + 2` batches are in memory at a time.
    pub workers: usize,
    /// What to do with an image that cannot be read.
    pub bad_image: BadImage,
    /// Which part of each batch is prepared, where several processes share the batches. Such a part may be empty, and is
    /// delivered all the same.
    pub share: Share,
    /// For pictures in files: deliver the windows' bytes, cut and resized but not mirrored, blanked, coloured or normalised,
    /// for a device that does the rest itself.
    pub pixels: bool,
}

impl LoaderConfig {
    /// Shuffled, not augmented, one worker.
    pub fn training(batch: usize, seed: u64, normalize: Normalize) -> Self {
        LoaderConfig { seed, shuffle: true, ..LoaderConfig::evaluation(batch, normalize) }
    }

    /// In the split's own order, not augmented, one worker.
    pub fn evaluation(batch: usize, normalize: Normalize) -> Self {
        LoaderConfig {
            batch,
            seed: 0,
            shuffle: false,
            augment: Augment::default(),
            normalize,
            workers: 1,
            bad_image: BadImage::default(),
            share: Share::WHOLE,
            pixels: false,
        }
    }
}

/// The buffers of one batch, used again and again.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) images: Vec<f32>,
    pub(crate) pixels: Vec<u8>,
    pub(crate) labels: Vec<u32>,
    pub(crate) numbers: Vec<u32>,
    pub(crate) skipped: usize,
    pub(crate) first_skipped: Option<DataError>,
}

/// A checked configuration with its split.
pub(crate) struct Plan {
    split: Split,
    config: LoaderConfig,
    cutter: Cutter,
    /// For each picture of a file whether it was found whole before.
    whole: Box<[AtomicBool]>,
}

impl Plan {
    pub(crate) fn new(split: Split, config: LoaderConfig) -> Result<Self, DataError> {
        if split.is_empty() {
            return Err(DataError::Empty { what: "the split".into() });
        }
        if config.batch == 0 {
            return Err(DataError::Option("a batch must hold at least one example".into()));
        }
        if config.batch > split.len() {
            return Err(DataError::BatchTooLarge { batch: config.batch, examples: split.len() });
        }
        match split.content() {
            Content::Floats { shape, .. }
                if config.augment != Augment::default() && shape.height * shape.width == 1 =>
            {
                return Err(DataError::Option("crops, padding and flips need pictures, this is a table".into()));
            }
            Content::Floats { .. } if !config.augment.is_plain() => {
                return Err(DataError::Option(
                    "random parts, colours and TrivialAugment need pictures of bytes, not of floats".into(),
                ));
            }
            Content::Files { .. } | Content::Pictures(_) if config.augment.pad != 0 => {
                let why = "photos are cropped from larger ones, not padded; set the padding to 0";
                return Err(DataError::Option(why.into()));
            }
            _ => {}
        }
        config.augment.check(split.shape())?;
        if config.pixels && config.augment.trivial {
            return Err(DataError::Option("TrivialAugment is done before pictures are delivered, not to bytes".into()));
        }
        if config.pixels && !split.is_encoded() {
            return Err(DataError::Option("only pictures in files are delivered as bytes".into()));
        }
        if let (Some((_, picture)), Augment { reflect: true, pad, .. }) = (split.bytes(), config.augment)
            && pad >= picture.height.min(picture.width)
        {
            let edge = picture.height.min(picture.width);
            return Err(DataError::Option(format!(
                "a picture of {edge} pixels cannot reflect into a padding of {pad}"
            )));
        }
        let cutter = Cutter::new(split.shape(), &config.augment, &config.normalize)?;
        if let Content::Pixels { shape, .. } = split.content()
            && config.augment.crop
            && cutter.room(shape.height, shape.width) == (Room { x: 0, y: 0 })
        {
            let why = "a random crop has no room to move in: pad the pictures (`pad`), or make the window smaller than \
                       they are (`crop`)";
            return Err(DataError::Option(why.into()));
        }
        let files = match split.content() {
            Content::Files { paths, .. } => paths.len(),
            Content::Pictures(pictures) => pictures.len(),
            _ => 0,
        };
        let whole = (0..files).map(|_| AtomicBool::new(false)).collect();
        Ok(Plan { split, config, cutter, whole })
    }

    pub(crate) fn config(&self) -> &LoaderConfig {
        &self.config
    }

    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    pub(crate) fn batches(&self) -> usize {
        self.split.len().div_ceil(self.config.batch)
    }

    /// Fills the slot with a batch of an epoch. Gives up early, with the slot in any state, once `stop` is set.
    pub(crate) fn fill(
        &self,
        epoch: u64,
        batch: usize,
        slot: &mut Slot,
        scratch: &mut Scratch,
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let (config, split) = (&self.config, &self.split);
        let start = batch * config.batch;
        let own = config.share.of(config.batch.min(split.len() - start));
        let (from, to) = (start + own.start, start + own.end);
        let size = split.shape().size();
        let order = Permutation::new(Stream::new(config.seed, Purpose::Shuffle, epoch), split.len());
        let draws = Draws::new(config.seed, epoch);

        // One of the two is used.
        let (values, bytes) = if config.pixels { (0, size) } else { (size, 0) };
        slot.images.resize((to - from) * values, 0.0);
        slot.pixels.resize((to - from) * bytes, 0);
        slot.labels.clear();
        slot.numbers.clear();
        slot.skipped = 0;
        slot.first_skipped = None;
        for position in from..to {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let position = if config.shuffle { order.at(position) } else { position };
            let at = slot.labels.len();
            let out = match config.pixels {
                true => Out::Pixels(&mut slot.pixels[at * size..(at + 1) * size]),
                false => Out::Values(&mut slot.images[at * size..(at + 1) * size]),
            };
            match self.example(split.number(position), &draws, out, scratch) {
                Ok(()) => {
                    if config.augment.trivial {
                        let (own, values) = (draws.of(split.number(position)), &mut slot.images[at * size..][..size]);
                        scratch.canvas.augment(own, split.shape(), &config.normalize, values);
                    }
                    slot.labels.push(split.label(position));
                    slot.numbers.push(split.number(position) as u32);
                }
                Err(bad) if config.bad_image == BadImage::Skip => {
                    slot.skipped += 1;
                    slot.first_skipped.get_or_insert(bad);
                }
                Err(bad) => return Err(bad),
            }
        }
        slot.images.truncate(slot.labels.len() * values);
        slot.pixels.truncate(slot.labels.len() * bytes);
        Ok(())
    }

    /// Looks for other bad images, for as long as somebody waits for a message.
    pub(crate) fn bad_images(&self, found: DataError) -> DataError {
        let Content::Files { .. } = self.split.content() else { return found };
        let (started, mut scratch) = (Instant::now(), Scratch::default());
        let mut out = vec![0.0; self.split.shape().size()];
        let (mut which, mut looked_at) = (Vec::new(), 0);
        for position in 0..self.split.len() {
            if started.elapsed() > PATIENCE {
                break;
            }
            looked_at += 1;
            let number = self.split.number(position);
            which.extend(self.example(number, &Draws::new(0, 0), Out::Values(&mut out), &mut scratch).err());
        }
        let words = found.to_string();
        if !which.iter().any(|bad| bad.to_string() == words) {
            which.insert(0, found);
            looked_at += 1;
        }
        DataError::BadImages { count: which.len(), looked_at, which }
    }

    fn example(&self, number: usize, draws: &Draws, out: Out<'_>, scratch: &mut Scratch) -> Result<(), DataError> {
        let chosen = Chosen::Drawn { draws, number, augment: &self.config.augment };
        let out = match (self.split.content(), out) {
            (Content::Files { paths, .. }, out) => {
                let resize = self.split.resized_to().unwrap_or_default();
                let whole = &self.whole[number];
                let known = whole.load(Ordering::Relaxed);
                scratch.load(&paths[number], resize, known, &self.cutter, &chosen, out)?;
                whole.store(true, Ordering::Relaxed);
                return Ok(());
            }
            (_, Out::Values(out)) => out,
            (_, Out::Pixels(_)) => unreachable!("only pictures in files are delivered as bytes"),
        };
        match self.split.content() {
            Content::Files { .. } => {}
            Content::Pixels { shape, bytes } => {
                let pixels = &bytes.get()[number * shape.size()..(number + 1) * shape.size()];
                let picture = Picture { height: shape.height, width: shape.width, pixels };
                let shown = scratch.viewer.show(&picture, None, &self.cutter, &chosen, out);
                shown.map_err(DataError::Option)?;
            }
            Content::Pictures(pictures) => {
                let whole = &self.whole[number];
                let pixels = pictures.pixels(number, !whole.load(Ordering::Relaxed), &mut scratch.file)?;
                let (height, width) = pictures.size(number);
                let picture = Picture { height, width, pixels };
                let shown = scratch.viewer.show(&picture, self.split.resized_to(), &self.cutter, &chosen, out);
                shown.map_err(DataError::Option)?;
                whole.store(true, Ordering::Relaxed);
            }
            Content::Floats { shape, values } => {
                let numbers = &values.get()[number * shape.size()..(number + 1) * shape.size()];
                let placed = chosen.place(self.cutter.room(shape.height, shape.width), self.cutter.window());
                self.cutter.cut_floats(numbers, shape.height, shape.width, placed, &self.config.normalize, out);
            }
        }
        Ok(())
    }
}
