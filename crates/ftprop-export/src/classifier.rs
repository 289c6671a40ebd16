//! Using a packed model: what `predict`, `eval` and `export --check` have in common.

use crate::error::Error;
use ftprop_data::{Normalize, Preprocess, Shape};
use ftprop_runtime::{Engine, EngineOptions};
use ftprop_train::evaluate::Predictor;
use ftprop_train::files;
use std::path::Path;

/// A packed model that is ready, taking the same normalised pictures as the trained network.
pub struct Classifier {
    engine: Engine,
    classes: Vec<String>,
    bytes: Vec<u8>,
    logits: Vec<f32>,
}

impl Predictor for Classifier {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], ftprop_train::Error> {
        self.logits(examples).map_err(|e| ftprop_train::Error::Outside(Box::new(e)))
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
        let engine = Engine::load(packed, &EngineOptions { threads, ..EngineOptions::default() })?;
        let classes = match engine.class_names() {
            [] => (0..engine.classes()).map(|class| class.to_string()).collect(),
            names => names.to_vec(),
        };
        Ok(Classifier { engine, classes, bytes: Vec::new(), logits: Vec::new() })
    }

    /// The classes' names; their numbers where the model has none.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// How a picture becomes an input.
    pub fn preprocess(&self) -> Preprocess {
        let about = self.engine.preprocessing();
        let shape = Shape::new(about.input.height, about.input.width, about.input.channels);
        let edge = shape.height.min(shape.width);
        Preprocess {
            shape,
            resize: about.resize_shorter.map_or(edge, |resize| resize as usize),
            normalize: Normalize::pixels(&about.mean, &about.std),
        }
    }

    /// The logits of normalised pictures. The model takes bytes and normalises them itself, so this undoes the
    /// normalising: exactly for what was made from bytes, and to the nearest byte otherwise.
    pub fn logits(&mut self, images: &[f32]) -> Result<&[f32], ftprop_runtime::Error> {
        let about = self.engine.preprocessing();
        let channels = about.mean.len();
        let byte =
            |(i, v): (usize, &f32)| ((v * about.std[i % channels] + about.mean[i % channels]) * 255.0).round() as u8;
        self.bytes.clear();
        self.bytes.extend(images.iter().enumerate().map(byte));
        self.logits.resize(images.len() / self.engine.image_len() * self.engine.classes(), 0.0);
        self.engine.classify(&self.bytes, &mut self.logits)?;
        Ok(&self.logits)
    }
}
