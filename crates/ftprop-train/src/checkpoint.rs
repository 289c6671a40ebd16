//! Checkpoints: a network's parameters and, where training is to go on, everything that takes, as one
//! safetensors file.
//!
//! The file holds nothing that belongs to one machine or moment, so two runs that computed the same have
//! files with the same bytes.

use crate::error::Error;
use crate::files;
use crate::recipe::Recipe;
use ftprop_data::{Dataset, Normalize, Preprocess};
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Graph, Network, Tally};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// The metadata's one key: safetensors writes several in no fixed order.
const KEY: &str = "ftprop";
const VERSION: u32 = 1;
/// The moving average of the weights, and the statistics that belong to it.
const AVERAGE: &str = "optimizer.average";
const AVERAGE_STATISTICS: &str = "optimizer.average_statistics";

/// What a checkpoint says beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    version: u32,
    /// The recipe, without what belongs to one machine.
    pub recipe: String,
    /// What the network needs to be used.
    pub model: ModelInfo,
    /// Where training stands.
    pub state: State,
    /// The optimizer's steps; none where its moments were left out.
    optimizer_steps: Option<u64>,
}

/// What a trained network needs to be used without its data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The classes' names, in the order of the outputs.
    pub classes: Vec<String>,
    /// Height, width and channels of an example.
    pub input: [usize; 3],
    /// Raw value that counts as 1, then each channel's mean and deviation.
    pub full: f32,
    /// Each channel's mean, of values between 0 and 1.
    pub mean: Vec<f32>,
    /// Each channel's deviation.
    pub std: Vec<f32>,
    /// Pictures: what the shorter edge is resized to.
    pub resize: Option<usize>,
}

impl ModelInfo {
    /// What networks that learn from this data need.
    pub fn of(dataset: &Dataset) -> Self {
        let Normalize { full, mean, std } = dataset.normalize.clone();
        ModelInfo {
            classes: dataset.classes.clone(),
            input: [dataset.shape.height, dataset.shape.width, dataset.shape.channels],
            full,
            mean,
            std,
            resize: dataset.preprocess().map(|p| p.resize),
        }
    }

    /// The shape of an example.
    pub fn shape(&self) -> ftprop_data::Shape {
        let [height, width, channels] = self.input;
        ftprop_data::Shape::new(height, width, channels)
    }

    /// How the data that it was trained on was normalised.
    pub fn normalize(&self) -> Normalize {
        Normalize { full: self.full, mean: self.mean.clone(), std: self.std.clone() }
    }

    /// How a picture becomes an input; none for a table.
    pub fn preprocess(&self) -> Option<Preprocess> {
        let normalize = Normalize { full: 255.0, ..self.normalize() };
        self.resize.map(|resize| Preprocess { shape: self.shape(), resize, normalize })
    }
}

/// Where training stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The epoch under way, counted from 1; one past the last when training is done.
    pub epoch: u32,
    /// The next batch of that epoch.
    pub batch: usize,
    /// Steps taken in all.
    pub step: u64,
    /// The epoch's tally so far.
    pub tally: ExactTally,
    /// The best epoch so far and its score.
    pub best: Option<Best>,
    /// How long the epoch has taken so far. Between epochs that is nothing, and is not written: files of runs that did
    /// the same must not differ.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub seconds: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl State {
    /// Nothing is done yet.
    pub fn start() -> Self {
        State { epoch: 1, batch: 0, step: 0, tally: ExactTally::default(), best: None, seconds: 0.0 }
    }
}

/// The epoch whose network is kept as the best, and its top-1 share as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// Counted from 1.
    pub epoch: u32,
    top1_bits: u64,
}

impl Best {
    /// An epoch and its score.
    pub fn new(epoch: u32, top1: f64) -> Self {
        Best { epoch, top1_bits: top1.to_bits() }
    }

    /// Its score, a fraction of 1.
    pub fn top1(&self) -> f64 {
        f64::from_bits(self.top1_bits)
    }
}

/// A tally whose sum comes back bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactTally {
    examples: u64,
    loss_sum_bits: u64,
    top1: u64,
    top5: u64,
}

impl From<Tally> for ExactTally {
    fn from(t: Tally) -> Self {
        ExactTally { examples: t.examples, loss_sum_bits: t.loss_sum.to_bits(), top1: t.top1, top5: t.top5 }
    }
}

impl From<ExactTally> for Tally {
    fn from(t: ExactTally) -> Self {
        Tally { examples: t.examples, loss_sum: f64::from_bits(t.loss_sum_bits), top1: t.top1, top5: t.top5 }
    }
}

/// What a checkpoint holds of a network, wherever that lives.
pub struct Contents<'a> {
    /// What the numbers are.
    pub graph: &'a Graph,
    /// The network.
    pub network: NetworkState<'a>,
    /// What training depends on beside it; without that a checkpoint can be used but not trained on.
    pub optimizer: Option<OptimizerState<'a>>,
}

/// What training depends on beside the network.
pub struct OptimizerState<'a> {
    /// Steps that the optimizer has taken.
    pub steps: u64,
    /// Its moments.
    pub moments: Vec<Cow<'a, [f32]>>,
    /// The moving average of the weights, where there is one, and the statistics that belong to it.
    pub average: Option<NetworkState<'a>>,
}

impl<'a> Contents<'a> {
    /// A network for use.
    pub fn for_use(graph: &'a Graph, network: NetworkState<'a>) -> Self {
        Contents { graph, network, optimizer: None }
    }

    /// A network under training; `averaged` are the statistics that belong to its moving average.
    pub fn for_training(graph: &'a Graph, state: TrainingState<'a>, averaged: Option<&'a [f32]>) -> Self {
        let TrainingState { network, steps, moments, average } = state;
        let statistics = averaged.map_or_else(|| network.statistics.clone(), Cow::from);
        let average = average.map(|values| NetworkState { values, statistics });
        Contents { graph, network, optimizer: Some(OptimizerState { steps, moments, average }) }
    }

    /// Everything that training depends on; none of a checkpoint for use.
    pub fn training(self) -> Option<TrainingState<'a>> {
        let OptimizerState { steps, moments, average } = self.optimizer?;
        Some(TrainingState { network: self.network, steps, moments, average: average.map(|a| a.values) })
    }

    /// The network to be used: the averaged one where there is one.
    pub fn used(self) -> NetworkState<'a> {
        self.optimizer.and_then(|optimizer| optimizer.average).unwrap_or(self.network)
    }
}

/// Writes a checkpoint aside and renames it.
pub fn save(
    path: &Path,
    recipe: &Recipe,
    model: &ModelInfo,
    state: &State,
    contents: &Contents<'_>,
) -> Result<(), Error> {
    let bytes = to_bytes(recipe, model, state, contents).map_err(|why| unwritable(path, why))?;
    files::write(path, &bytes)?;
    Ok(())
}

/// A checkpoint's bytes, for keeping a network elsewhere than in a file of its own.
pub fn pack(recipe: &Recipe, model: &ModelInfo, state: &State, contents: &Contents<'_>) -> Result<Vec<u8>, Error> {
    to_bytes(recipe, model, state, contents).map_err(|why| Error::Unwritable { what: "the checkpoint".into(), why })
}

fn to_bytes(recipe: &Recipe, model: &ModelInfo, state: &State, contents: &Contents<'_>) -> Result<Vec<u8>, String> {
    let header = Header {
        version: VERSION,
        recipe: recipe.portable().to_toml().map_err(|e| e.to_string())?,
        model: model.clone(),
        state: *state,
        optimizer_steps: contents.optimizer.as_ref().map(|o| o.steps),
    };
    let header = serde_json::to_string(&header).map_err(|e| e.to_string())?;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let NetworkState { values, statistics } = &contents.network;
    for p in contents.graph.parameters() {
        tensors.push((p.name.clone(), shape_of(&p.kind, p.range.len()), bytes_of(&values[p.range.clone()])));
    }
    for s in contents.graph.statistics() {
        tensors.push((s.name.clone(), vec![s.range.len()], bytes_of(&statistics[s.range.clone()])));
    }
    if let Some(optimizer) = &contents.optimizer {
        let mut flat = |name: String, numbers: &[f32]| tensors.push((name, vec![numbers.len()], bytes_of(numbers)));
        for (i, moment) in optimizer.moments.iter().enumerate() {
            flat(format!("optimizer.moment{i}"), moment);
        }
        if let Some(NetworkState { values, statistics }) = &optimizer.average {
            flat(AVERAGE.into(), values);
            flat(AVERAGE_STATISTICS.into(), statistics);
        }
    }
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .map(|(name, shape, bytes)| TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name, view)))
        .collect();
    views
        .and_then(|views| safetensors::serialize(views, Some(HashMap::from([(KEY.to_string(), header)]))))
        .map_err(|e| e.to_string())
}

fn unwritable(path: &Path, why: String) -> Error {
    Error::Unwritable { what: path.display().to_string(), why }
}

/// A checkpoint in memory.
pub struct Checkpoint {
    path: std::path::PathBuf,
    bytes: Vec<u8>,
    /// What it says beside its tensors.
    pub header: Header,
}

impl Checkpoint {
    /// Reads a checkpoint's file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Checkpoint::from_bytes(files::read(path)?, path)
    }

    /// A checkpoint from its bytes; errors call it `path`.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, Error> {
        let not = |why: String| Error::NotACheckpoint { path: path.to_path_buf(), why };
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| {
            not(if files::is_packed(path) {
                "a packed model, and this takes a run folder or a checkpoint".into()
            } else {
                format!("not a checkpoint, or a damaged one ({e})")
            })
        })?;
        SafeTensors::deserialize(&bytes).map_err(|e| not(format!("the checkpoint is damaged ({e})")))?;
        let text = metadata
            .metadata()
            .as_ref()
            .and_then(|m| m.get(KEY))
            .ok_or_else(|| not("a safetensors file, but not one that ftprop wrote".into()))?;
        let header: Header =
            serde_json::from_str(text).map_err(|e| not(format!("its header cannot be understood ({e})")))?;
        if header.version != VERSION {
            return Err(not(format!("written by another version of ftprop (format {})", header.version)));
        }
        Ok(Checkpoint { path: path.to_path_buf(), bytes, header })
    }

    /// The recipe that it was trained by, without what belongs to one machine.
    pub fn recipe(&self) -> Result<Recipe, Error> {
        Recipe::from_toml(&format!("the recipe in {}", self.path.display()), &self.header.recipe)
    }

    /// The saved numbers, for a network of this graph.
    pub fn contents<'a>(&self, graph: &'a Graph) -> Result<Contents<'a>, Error> {
        let tensors = SafeTensors::deserialize(&self.bytes)
            .map_err(|e| Error::NotACheckpoint { path: self.path.clone(), why: e.to_string() })?;
        let read = |name: &str, shape: &[usize], into: &mut [f32]| -> Result<(), Error> {
            let view = tensors.tensor(name).map_err(|_| self.other(format!("it has no {name}")))?;
            if view.shape() != shape || view.dtype() != Dtype::F32 {
                return Err(self.other(format!("{name} is {:?} there and {shape:?} here", view.shape())));
            }
            into.iter_mut().zip(view.data().chunks_exact(4)).for_each(|(v, b)| *v = f32_from(b));
            Ok(())
        };
        let expected = graph.parameters().len() + graph.statistics().len();
        let stored = tensors.names().iter().filter(|n| !n.starts_with("optimizer.")).count();
        let mut values = vec![0.0; graph.parameter_count()];
        for p in graph.parameters() {
            read(&p.name, &shape_of(&p.kind, p.range.len()), &mut values[p.range.clone()])?;
        }
        let mut statistics = vec![0.0; graph.statistic_count()];
        for s in graph.statistics() {
            read(&s.name, &[s.range.len()], &mut statistics[s.range.clone()])?;
        }
        if stored != expected {
            return Err(self.other(format!("it has {stored} tensors, this network {expected}")));
        }
        let flat = |name: &str, len: usize| {
            let mut numbers = vec![0.0; len];
            read(name, &[len], &mut numbers).map(|()| Cow::from(numbers))
        };
        let optimizer = self.header.optimizer_steps.map(|steps| {
            let mut moments = Vec::new();
            while let Ok(view) = tensors.tensor(&format!("optimizer.moment{}", moments.len())) {
                moments.push(view.data().chunks_exact(4).map(f32_from).collect::<Vec<f32>>().into());
            }
            let average = tensors.tensor(AVERAGE).is_ok().then(|| {
                let values = flat(AVERAGE, graph.parameter_count())?;
                Ok::<_, Error>(NetworkState { values, statistics: flat(AVERAGE_STATISTICS, graph.statistic_count())? })
            });
            Ok::<_, Error>(OptimizerState { steps, moments, average: average.transpose()? })
        });
        let network = NetworkState { values: values.into(), statistics: statistics.into() };
        Ok(Contents { graph, network, optimizer: optimizer.transpose()? })
    }

    /// Puts the saved numbers into a network on the CPU, for use.
    pub fn restore(&self, network: &mut Network) -> Result<(), Error> {
        let graph = network.graph().clone();
        let used = self.contents(&graph)?.used();
        network.values_mut().copy_from_slice(&used.values);
        network.stats_mut().copy_from_slice(&used.statistics);
        Ok(())
    }

    /// The error of a checkpoint that does not belong to the network at hand.
    pub fn other(&self, difference: String) -> Error {
        Error::OtherNetwork { path: self.path.clone(), difference }
    }
}

fn shape_of(kind: &ParameterKind, len: usize) -> Vec<usize> {
    match kind {
        ParameterKind::Conv { geometry: g, .. } => {
            vec![g.out_channels, g.kernel_h, g.kernel_w, g.in_channels / g.groups]
        }
        ParameterKind::Fc { input, outputs } => vec![*outputs, input.len()],
        _ => vec![len],
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn f32_from(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_within_an_epoch_only() {
        let between = State::start();
        let within = State { batch: 7, seconds: 1.5, ..between };
        let text = |state: &State| serde_json::to_string(state).unwrap();
        assert!(!text(&between).contains("seconds") && text(&within).contains("1.5"));
        for state in [between, within] {
            assert_eq!(serde_json::from_str::<State>(&text(&state)).unwrap(), state);
        }
    }
}
