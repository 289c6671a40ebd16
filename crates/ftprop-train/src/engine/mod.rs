//! A recipe's network on some device: what the trainer, evaluation and golden cases compute with.

#[cfg(feature = "cuda")]
mod cuda;
pub(crate) mod teacher;

use crate::device::Place;
use crate::error::Error;
use crate::recipe::{Recipe, input_shape};
use ftprop_data::{Dataset, Loader, Split};
use ftprop_nn::engine::{Part, Teacher};
use ftprop_nn::{CpuEngine, Engine, Graph, Learning, Network, Precision, Tally};
use ftprop_tensor::Cpu;
use std::sync::Arc;

/// The parts of a data set that a run uses.
pub struct Parts<'a> {
    /// What is learned from, if this engine learns.
    pub train: Option<&'a Split>,
    /// What is held out of it.
    pub validation: Option<&'a Split>,
    /// What the figures are of, if it is measured.
    pub test: Option<&'a Split>,
}

/// What a network is compiled for.
pub struct EngineConfig {
    /// The network.
    pub graph: Arc<Graph>,
    /// How it learns.
    pub learning: Learning,
    /// The most examples a batch may have.
    pub batch: usize,
    /// On a GPU: what its matrix units compute with.
    pub precision: Precision,
    /// On a GPU: whether the same seed is to give the same bytes.
    pub deterministic: bool,
}

impl EngineConfig {
    /// Of a recipe's network for a data set's examples and classes.
    pub fn new(recipe: &Recipe, dataset: &Dataset) -> Result<Self, Error> {
        let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
        EngineConfig::of(recipe, graph, recipe.train.batch)
    }

    /// Of a graph that was resolved by a recipe.
    pub fn of(recipe: &Recipe, graph: Arc<Graph>, batch: usize) -> Result<Self, Error> {
        let learning = recipe.learning(&graph)?;
        let (precision, deterministic) = (recipe.train.precision, recipe.train.deterministic);
        Ok(EngineConfig { graph, learning, batch, precision, deterministic })
    }
}

/// Compiles a network for a device.
pub fn compile(config: EngineConfig, place: &Place) -> Result<Box<dyn Engine>, Error> {
    match &place.gpu {
        #[cfg(feature = "cuda")]
        Some(gpu) => Ok(Box::new(cuda::compile(config, gpu)?)),
        #[cfg(not(feature = "cuda"))]
        Some(gpu) => match *gpu {},
        None => {
            let EngineConfig { graph, learning, batch, .. } = config;
            Ok(Box::new(CpuEngine::new(place.cpu.clone(), graph, learning, batch)?))
        }
    }
}

/// A recipe's network for its data, on a device; parts of the data live there where they can. The teacher is the recipe's.
pub fn open(
    recipe: &Recipe,
    dataset: &Dataset,
    parts: &Parts<'_>,
    place: &Place,
    teacher: Option<Arc<Teacher>>,
) -> Result<Box<dyn Engine>, Error> {
    let mut config = EngineConfig::new(recipe, dataset)?;
    if let Some(train) = parts.train {
        config.learning.criterion = recipe.training_criterion(&config.graph, train)?;
    }
    config.learning.teacher = teacher;
    if let Some(team) = &place.team {
        config.batch = team.share().most(config.batch);
        config.learning.sync_norm = recipe.train.sync_norm;
    }
    let mut engine: Box<dyn Engine> = match &place.gpu {
        #[cfg(feature = "cuda")]
        Some(gpu) => {
            let mut network = cuda::open(config, recipe, dataset, parts, gpu, place.team.as_ref())?;
            if let Some(team) = &place.team
                && cuda::join(&mut network, gpu, team)?
            {
                return Ok(Box::new(network));
            }
            Box::new(network)
        }
        _ => compile(config, place)?,
    };
    if let Some(team) = &place.team {
        engine.set_reducer(team.reducer())?;
    }
    Ok(engine)
}

/// A recipe's network for a data set on the CPU, without an optimizer.
pub fn build_network(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>, batch: usize) -> Result<Network, Error> {
    let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
    Ok(Network::new(cpu, graph, batch)?)
}

/// Tallies a part, or a loader's share of it; the loader delivers it where it does not live on the device.
pub fn evaluate(engine: &mut dyn Engine, part: Part, loader: &Loader) -> Result<Tally, Error> {
    if let Some(resident) = engine.resident().filter(|resident| resident.has(part)) {
        return Ok(resident.evaluate(part, loader.config().share, loader.config().batch)?);
    }
    let mut tally = Tally::default();
    let mut batches = loader.epoch(0, 0);
    while let Some(batch) = batches.next_batch()? {
        if !batch.is_empty() {
            tally.add(&engine.evaluate(batch.images, batch.labels)?);
        }
    }
    Ok(tally)
}
