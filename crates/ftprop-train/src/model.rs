//! Trained networks, ready for use: from a run folder or a checkpoint file.

use crate::checkpoint::{self, Checkpoint, ModelInfo, Note};
use crate::error::Error;
use crate::recipe::Recipe;
use crate::run::RunFolder;
use ftprop_nn::engine::NetworkState;
use ftprop_nn::{Graph, Network, Shape};
use ftprop_tensor::Cpu;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trained network with what it needs to be used.
pub struct Model {
    /// The network, on the CPU.
    pub network: Network,
    /// What it was trained by.
    pub recipe: Recipe,
    /// What it needs to be used without its data.
    pub info: ModelInfo,
    /// The file it was read from, if it was.
    pub path: Option<PathBuf>,
    /// What a person should hear about that file.
    pub notes: Vec<Note>,
}

/// Which of a run's two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of the epoch that was best on the validation part; without one that of the last.
    Best,
    /// That of the last step.
    Last,
}

impl Model {
    /// Loads a run folder's network, or a checkpoint file, for batches of at most `batch`.
    pub fn load(path: &Path, which: Which, cpu: Arc<Cpu>, batch: usize) -> Result<Self, Error> {
        let folder = if path.is_dir() { Some(RunFolder::open(path)?) } else { None };
        let missing = |folder: &RunFolder, file: PathBuf| {
            let path = path.to_path_buf();
            Ok::<_, Error>(match folder.metrics()?.is_empty() {
                true => Error::NoEpoch { path },
                false => Error::NoNetwork { path, file },
            })
        };
        let checkpoint = match (&folder, which) {
            (None, _) => Checkpoint::read(path)?,
            (Some(folder), Which::Best) if !folder.best().exists() => {
                return Err(missing(folder, folder.best())?);
            }
            (Some(folder), Which::Best) => Checkpoint::read(&folder.best())?,
            (Some(folder), Which::Last) => match folder.last()? {
                Some(checkpoint) => checkpoint,
                None => return Err(missing(folder, folder.checkpoint())?),
            },
        };
        let mut recipe = checkpoint.recipe()?;
        let info = checkpoint.header.model.clone();
        let graph = graph(&recipe, &info)?;
        checkpoint.check(&graph)?;
        let mut network = Network::new(cpu, graph, batch)?;
        checkpoint.restore(&mut network)?;
        if let Some(folder) = &folder {
            // The folder's recipe knows where the data is; the checkpoint's does not.
            recipe.place_as(&folder.recipe()?);
        }
        Ok(Model { network, recipe, info, path: Some(checkpoint.path().to_path_buf()), notes: checkpoint.notes })
    }

    /// A network with these parameters and statistics, for batches of at most `batch`.
    pub fn new(
        recipe: Recipe,
        info: ModelInfo,
        state: &NetworkState<'_>,
        cpu: Arc<Cpu>,
        batch: usize,
    ) -> Result<Self, Error> {
        let mut network = Network::new(cpu, graph(&recipe, &info)?, batch)?;
        network.values_mut().copy_from_slice(&state.values);
        network.stats_mut().copy_from_slice(&state.statistics);
        Ok(Model { network, recipe, info, path: None, notes: Vec::new() })
    }

    /// By which its numbers are known again.
    pub(crate) fn mark(&self) -> u32 {
        let (values, statistics) = (self.network.values().into(), self.network.stats().into());
        checkpoint::mark_of(&NetworkState { values, statistics })
    }
}

fn graph(recipe: &Recipe, info: &ModelInfo) -> Result<Arc<Graph>, Error> {
    let [height, width, channels] = info.input;
    Ok(recipe.graph(Shape { height, width, channels }, info.classes.len())?)
}

/// The softmax of one example's logits.
pub fn confidences(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f32> = logits.iter().map(|z| (z - most).exp()).collect();
    let sum: f32 = e.iter().sum();
    e.into_iter().map(|v| v / sum).collect()
}

/// The classes from the most to the least likely, with their confidences.
pub fn ranked(logits: &[f32]) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = confidences(logits).into_iter().enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}
