//! Using a packed model: what `predict`, `eval` and `export --check` have in common.

use crate::error::Error;
use ftprop_data::{DataMark, Normalize, Preprocess, Shape, Source, TableTransform};
use ftprop_nn::{Criterion, NnError, OutputLoss};
use ftprop_runtime::{Element, Engine, EngineOptions, Model, Preprocessing, note};
use ftprop_train::evaluate::Predictor;
use ftprop_train::files;
use std::collections::BTreeMap;
use std::path::Path;

/// A packed model that is ready, taking the same normalised examples as the trained network.
pub struct Classifier {
    engine: Engine,
    classes: Vec<String>,
    notes: BTreeMap<String, String>,
    table: Option<TableTransform>,
    bytes: Vec<u8>,
    reals: Vec<f32>,
    logits: Vec<f32>,
}

impl Predictor for Classifier {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], ftprop_train::Error> {
        self.logits(examples).map_err(|e| ftprop_train::Error::Outside(Box::new(e)))
    }

    fn takes_pixels(&self) -> bool {
        self.engine.preprocessing().element == Element::Byte
    }

    fn classify_pixels(&mut self, pixels: &[u8]) -> Result<&[f32], ftprop_train::Error> {
        self.logits_of_pixels(pixels).map_err(|e| ftprop_train::Error::Outside(Box::new(e)))
    }
}

impl Classifier {
    /// A packed model's file, for so many threads.
    pub fn open(path: &Path, threads: usize) -> Result<Self, Error> {
        let refused = |e: ftprop_runtime::Error| Error::NotAModel { path: path.to_path_buf(), why: e.to_string() };
        Classifier::new(&files::read(path)?, threads).map_err(refused)
    }

    /// A packed model in memory, for so many threads.
    pub fn new(packed: &[u8], threads: usize) -> Result<Self, ftprop_runtime::Error> {
        let model = Model::parse(packed)?;
        let engine = Engine::new(&model, &EngineOptions { threads, ..EngineOptions::default() })?;
        let classes = match engine.class_names() {
            [] => (0..engine.classes()).map(|class| class.to_string()).collect(),
            names => names.to_vec(),
        };
        let table = table(&model, &classes)?;
        let (bytes, reals, logits) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Classifier { engine, classes, notes: model.notes, table, bytes, reals, logits })
    }

    /// The classes' names; their numbers where the model has none.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The data that it was trained on, if it says so.
    pub fn source(&self) -> Option<Source> {
        self.notes.get(note::SOURCE)?.parse().ok()
    }

    /// By which the data that it was trained on are known again, if it says so.
    pub fn trained_on(&self) -> Option<DataMark> {
        serde_json::from_str(self.notes.get(note::DATA)?).ok()
    }

    /// What is done to the rows of a table; none for a model of pictures.
    pub fn table(&self) -> Option<&TableTransform> {
        self.table.as_ref()
    }

    /// The loss that it was trained with; none if it does not say.
    pub fn criterion(&self) -> Option<Result<Criterion, NnError>> {
        let loss: OutputLoss = self.notes.get(note::LOSS)?.parse().ok()?;
        let smoothing = self.notes.get(note::LABEL_SMOOTHING).and_then(|text| text.parse().ok()).unwrap_or(0.0);
        Some(Criterion::new(loss, smoothing))
    }

    /// The shape of an example.
    pub fn shape(&self) -> Shape {
        let input = self.engine.preprocessing().input;
        Shape::new(input.height, input.width, input.channels)
    }

    /// How examples are normalised, as a network in float takes them.
    pub fn normalize(&self) -> Normalize {
        let about = self.engine.preprocessing();
        match about.element {
            Element::Byte => Normalize::pixels(&about.mean, &about.std),
            Element::Real => Normalize { full: 1.0, mean: about.mean.clone(), std: about.std.clone() },
        }
    }

    /// How a picture becomes an input; none for a model of tables.
    pub fn preprocess(&self) -> Option<Preprocess> {
        let (about, shape) = (self.engine.preprocessing(), self.shape());
        let edge = shape.height.min(shape.width);
        let resize = about.resize_shorter.map_or(edge, |resize| resize as usize);
        (about.element == Element::Byte).then(|| Preprocess { shape, resize, normalize: self.normalize() })
    }

    /// The logits of pictures as bytes, which is what a model of pictures takes; one of tables refuses them.
    pub fn logits_of_pixels(&mut self, pixels: &[u8]) -> Result<&[f32], ftprop_runtime::Error> {
        self.logits.resize(pixels.len() / self.engine.image_len() * self.engine.classes(), 0.0);
        self.engine.classify(pixels, &mut self.logits)?;
        Ok(&self.logits)
    }

    /// The logits of normalised examples. The model normalises them itself, so this undoes the normalising: for pictures
    /// exactly for what was made from bytes, and to the nearest byte otherwise.
    pub fn logits(&mut self, examples: &[f32]) -> Result<&[f32], ftprop_runtime::Error> {
        let about = self.engine.preprocessing();
        let channels = about.mean.len();
        let raw = |(i, v): (usize, &f32)| raw(about, *v, i % channels);
        self.logits.resize(examples.len() / self.engine.image_len() * self.engine.classes(), 0.0);
        match about.element {
            Element::Byte => {
                self.bytes.clear();
                self.bytes.extend(examples.iter().enumerate().map(raw).map(to_byte));
                self.engine.classify(&self.bytes, &mut self.logits)?;
            }
            Element::Real => {
                self.reals.clear();
                self.reals.extend(examples.iter().enumerate().map(raw));
                self.engine.classify_reals(&self.reals, &mut self.logits)?;
            }
        }
        Ok(&self.logits)
    }
}

/// A normalised value of a channel as it was before.
fn raw(about: &Preprocessing, normalised: f32, channel: usize) -> f32 {
    normalised * about.std[channel] + about.mean[channel]
}

/// The nearest byte, 255 being 1.
fn to_byte(raw: f32) -> u8 {
    (raw * 255.0).round() as u8
}

/// The byte that a packed model of pictures is given for each value of data of which `full` is 1, one table a channel: by
/// [`Classifier::logits`], digit for digit. Where `full` is not 255, that is not the same number.
pub fn bytes_given(about: &Preprocessing, full: f32) -> Vec<[u8; 256]> {
    let normalised = Normalize { full, mean: about.mean.clone(), std: about.std.clone() }.tables();
    let given = |(channel, table): (usize, &[f32; 256])| table.map(|value| to_byte(raw(about, value, channel)));
    normalised.iter().enumerate().map(given).collect()
}

/// The transformation that a model of tables keeps, if it fits the model.
fn table(model: &Model<'_>, classes: &[String]) -> Result<Option<TableTransform>, ftprop_runtime::Error> {
    let Some(text) = model.notes.get(note::TABLE) else { return Ok(None) };
    let invalid = |what: String| ftprop_runtime::Error::Invalid { place: "the note `table`".into(), what };
    let table: TableTransform = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
    let about = &model.preprocessing;
    let fits = about.element == Element::Real && table.width() as u64 == about.input.len() && table.classes == classes;
    if fits { Ok(Some(table)) } else { Err(invalid("it is of another table than the model's".into())) }
}
