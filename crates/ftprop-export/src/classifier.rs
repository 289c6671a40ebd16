//! Using a packed model: what `predict`, `eval` and `export --check` have in common.

use crate::error::Error;
use ftprop_cuda::CudaNetwork;
use ftprop_data::{Normalize, Preprocess, Shape};
use ftprop_nn::Network;
use ftprop_runtime::{Engine, EngineOptions};
use ftprop_train::device::Gpu;
use ftprop_train::engine::build_cuda_network;
use ftprop_train::files;
use ftprop_train::model::Model;
use std::path::Path;

/// A packed model that is ready, taking the same normalised pictures as the trained network.
pub struct Classifier {
    engine: Engine,
    classes: Vec<String>,
    bytes: Vec<u8>,
    logits: Vec<f32>,
}

/// A network that classifies, as trained or packed.
pub enum Runner {
    Float(Box<Network>),
    Gpu(Box<OnGpu>),
    Packed(Box<Classifier>),
}

impl Runner {
    /// The logits of normalised pictures.
    pub fn logits(&mut self, images: &[f32]) -> Result<&[f32], Error> {
        match self {
            Runner::Float(network) => Ok(network.infer(images)),
            Runner::Gpu(gpu) => {
                gpu.logits = gpu.network.infer(images)?;
                Ok(&gpu.logits)
            }
            Runner::Packed(classifier) => classifier.logits(images),
        }
    }
}

/// A float network on a GPU.
pub struct OnGpu {
    network: CudaNetwork,
    logits: Vec<f32>,
}

impl OnGpu {
    /// Puts a trained network on a GPU, for batches of at most `batch`.
    pub fn new(model: &Model, gpu: &Gpu, batch: usize) -> Result<Self, Error> {
        let (input, classes) = (model.network.input(), model.info.classes.len());
        let network = build_cuda_network(&model.recipe, input, classes, gpu, batch)?;
        network.set_values(model.network.values())?;
        network.set_stats(model.network.stats())?;
        Ok(OnGpu { network, logits: Vec::new() })
    }
}

impl Classifier {
    pub fn open(path: &Path, threads: usize) -> Result<Self, Error> {
        let refused = |e: ftprop_runtime::Error| Error::NotAModel { path: path.to_path_buf(), why: e.to_string() };
        Classifier::new(&files::read(path)?, threads).map_err(refused)
    }

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
    pub fn logits(&mut self, images: &[f32]) -> Result<&[f32], Error> {
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
