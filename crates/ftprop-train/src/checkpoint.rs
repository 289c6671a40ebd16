//! Checkpoints: a network's parameters and, where training is to go on, everything that takes, as one
//! safetensors file.
//!
//! The file holds nothing that belongs to one machine or moment, so two runs that computed the same have
//! files with the same bytes. A checksum covers all of it, and nothing is taken from a file that does not match.

mod checksum;
mod origin;
mod state;

pub use origin::Origin;
pub(crate) use origin::mark_of;
pub use state::{Best, ExactTally, State};

use crate::error::Error;
use crate::files;
use crate::recipe::Recipe;
use ftprop_data::{Dataset, Known, Normalize, Preprocess, TableTransform};
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Graph, Network};
use ftprop_tensor::bytes;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The metadata's one key: safetensors writes several in no fixed order.
const KEY: &str = "ftprop";
const VERSION: u32 = 2;
/// The version before there were checksums.
const UNSUMMED: u32 = 1;
/// No picture is resized to more, see [`ftprop_data`].
const LARGEST_EDGE: usize = 16384;
/// An optimizer's moments, numbered.
const MOMENT: &str = "optimizer.moment";
/// The moving average of the weights, and the statistics that belong to it.
const AVERAGE: &str = "optimizer.average";
const AVERAGE_STATISTICS: &str = "optimizer.average_statistics";

/// What a checkpoint says beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    version: u32,
    /// Of the whole file; before the recipe, whose text it could be mistaken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
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
    /// Tables: what is done to the cells of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableTransform>,
    /// What it learned from.
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub origin: Origin,
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
            table: dataset.table.clone(),
            origin: Origin { data: Some(dataset.mark()), ..Origin::default() },
        }
    }

    /// What no network can have been trained on, if it says that.
    fn impossible(&self) -> Option<&'static str> {
        let finite = bytes::all_finite;
        let sizes = self.input.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        if self.classes.is_empty() {
            Some("it has no classes")
        } else if sizes.is_none_or(|all| all == 0 || all > isize::MAX as usize / 4) {
            Some("no example has such a shape")
        } else if self.resize.is_some_and(|edge| edge == 0 || edge > LARGEST_EDGE) {
            Some("no picture can be resized so")
        } else if self.mean.len() != self.std.len()
            || self.mean.is_empty()
            || !finite(&[self.full])
            || !finite(&self.mean)
            || !finite(&self.std)
            || self.full <= 0.0
            || self.std.iter().any(|&std| std <= 0.0)
        {
            Some("no data are normalised so")
        } else {
            None
        }
    }

    /// What other data for it depend on.
    pub fn known(&self) -> Known {
        Known { classes: self.classes.clone(), table: self.table.clone() }
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
        checksum: Some(checksum::UNKNOWN.into()),
        recipe: recipe.portable().to_toml().map_err(|e| e.to_string())?,
        model: model.clone(),
        state: *state,
        optimizer_steps: contents.optimizer.as_ref().map(|o| o.steps),
    };
    let header = serde_json::to_string(&header).map_err(|e| e.to_string())?;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let NetworkState { values, statistics } = &contents.network;
    for p in contents.graph.parameters() {
        tensors.push((p.name.clone(), shape_of(&p.kind, p.range.len()), bytes::write(&values[p.range.clone()])));
    }
    for s in contents.graph.statistics() {
        tensors.push((s.name.clone(), vec![s.range.len()], bytes::write(&statistics[s.range.clone()])));
    }
    if let Some(optimizer) = &contents.optimizer {
        let mut flat = |name: String, numbers: &[f32]| tensors.push((name, vec![numbers.len()], bytes::write(numbers)));
        for (i, moment) in optimizer.moments.iter().enumerate() {
            flat(format!("{MOMENT}{i}"), moment);
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
    let mut bytes = views
        .and_then(|views| safetensors::serialize(views, Some(HashMap::from([(KEY.to_string(), header)]))))
        .map_err(|e| e.to_string())?;
    checksum::put(&mut bytes);
    Ok(bytes)
}

fn unwritable(path: &Path, why: String) -> Error {
    Error::Unwritable { what: path.display().to_string(), why }
}

/// What a person should hear about a checkpoint that is used all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// It was written before checkpoints had checksums.
    NoChecksum {
        /// The file.
        path: PathBuf,
    },
    /// The last one could not be used, so this is the one before it.
    FellBack {
        /// What is wrong with the last one.
        why: String,
        /// The file that is used in its place.
        used: PathBuf,
    },
    /// It was written before checkpoints said which data they were trained on.
    NoOrigin {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoChecksum { path } => {
                write!(f, "{} has no checksum, as older ones have none, so damage would not be noticed", path.display())
            }
            Note::FellBack { why, used } => write!(f, "{why}; using the one before it, {}", used.display()),
            Note::NoOrigin { path } => write!(
                f,
                "{} does not say which data it was trained on, as older ones do not, so a change of the data would not be \
                 noticed",
                path.display()
            ),
        }
    }
}

/// A checkpoint in memory.
pub struct Checkpoint {
    path: PathBuf,
    bytes: Vec<u8>,
    /// What it says beside its tensors.
    pub header: Header,
    /// What a person should hear about it.
    pub notes: Vec<Note>,
}

impl Checkpoint {
    /// Reads a checkpoint's file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Checkpoint::parse(path, files::read(path)?)
    }

    /// A checkpoint from the bytes of its file; `path` is what errors call it.
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, Error> {
        let not = |why: String| Error::NotACheckpoint { path: path.to_path_buf(), why };
        let damaged = |why: String| Error::Damaged { path: path.to_path_buf(), why };
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| {
            let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
            let of =
                |whose: &str| format!("a model of {whose}; this takes a run folder, a checkpoint or a packed model");
            match ending.as_deref() {
                _ if files::is_packed(path) => {
                    not("a packed model, and this takes a run folder or a checkpoint".into())
                }
                Some("onnx") => not(of("ONNX")),
                Some("pt" | "pth" | "ckpt") => not(of("PyTorch")),
                Some("tflite" | "h5" | "keras" | "pb") => not(of("TensorFlow")),
                _ => damaged(format!("not a checkpoint, or a damaged one ({e})")),
            }
        })?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|e| damaged(format!("the checkpoint is damaged ({e})")))?;
        let text = metadata
            .metadata()
            .as_ref()
            .and_then(|m| m.get(KEY))
            .ok_or_else(|| not("a safetensors file, but not one that ftprop wrote".into()))?;
        let header: Header =
            serde_json::from_str(text).map_err(|e| damaged(format!("its header cannot be understood ({e})")))?;
        let mut notes = Vec::new();
        match (header.version, checksum::matches(&bytes)) {
            (UNSUMMED, None) => notes.push(Note::NoChecksum { path: path.to_path_buf() }),
            (UNSUMMED | VERSION, Some(true)) => {}
            (UNSUMMED | VERSION, _) => {
                return Err(damaged("the checkpoint is damaged (its checksum does not match)".into()));
            }
            (format, _) => return Err(Error::OtherFormat { path: path.to_path_buf(), format }),
        }
        if let Some(why) = header.state.impossible().or_else(|| header.model.impossible()) {
            return Err(damaged(format!("the checkpoint says what cannot be ({why})")));
        }
        for (name, view) in tensors.iter().filter(|(name, _)| !name.starts_with(MOMENT)) {
            if view.dtype() == Dtype::F32 && !bytes::all_finite_in(view.data()) {
                return Err(damaged(format!("the checkpoint is damaged ({name} has a value that is no number)")));
            }
        }
        Ok(Checkpoint { path: path.to_path_buf(), bytes, header, notes })
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether training can go on from it; one for use has no optimizer.
    pub fn can_go_on(&self) -> bool {
        self.header.optimizer_steps.is_some()
    }

    /// The recipe that it was trained by, without what belongs to one machine.
    pub fn recipe(&self) -> Result<Recipe, Error> {
        Recipe::from_toml(&format!("the recipe in {}", self.path.display()), &self.header.recipe)
    }

    fn tensors(&self) -> Result<SafeTensors<'_>, Error> {
        SafeTensors::deserialize(&self.bytes)
            .map_err(|e| Error::NotACheckpoint { path: self.path.clone(), why: e.to_string() })
    }

    /// A tensor's bytes, if it has this shape.
    fn tensor<'a>(&self, tensors: &SafeTensors<'a>, name: &str, shape: &[usize]) -> Result<&'a [u8], Error> {
        let view = tensors.tensor(name).map_err(|_| self.other(format!("it has no {name}")))?;
        if view.shape() != shape || view.dtype() != Dtype::F32 {
            return Err(self.other(format!("{name} is {:?} there and {shape:?} here", view.shape())));
        }
        Ok(view.data())
    }

    /// Refuses a network that is not the saved one, before anything takes memory for it: what a recipe claims may be large.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), Error> {
        let tensors = self.tensors()?;
        for p in graph.parameters() {
            self.tensor(&tensors, &p.name, &shape_of(&p.kind, p.range.len()))?;
        }
        for s in graph.statistics() {
            self.tensor(&tensors, &s.name, &[s.range.len()])?;
        }
        let expected = graph.parameters().len() + graph.statistics().len();
        let stored = tensors.names().iter().filter(|n| !n.starts_with("optimizer.")).count();
        if stored != expected {
            return Err(self.other(format!("it has {stored} tensors, this network {expected}")));
        }
        Ok(())
    }

    /// The saved numbers, for a network of this graph.
    pub fn contents<'a>(&self, graph: &'a Graph) -> Result<Contents<'a>, Error> {
        self.check(graph)?;
        let tensors = self.tensors()?;
        let read = |name: &str, shape: &[usize], into: &mut [f32]| -> Result<(), Error> {
            let data = self.tensor(&tensors, name, shape)?;
            bytes::read_into(data, into);
            Ok(())
        };
        let mut values = vec![0.0; graph.parameter_count()];
        for p in graph.parameters() {
            read(&p.name, &shape_of(&p.kind, p.range.len()), &mut values[p.range.clone()])?;
        }
        let mut statistics = vec![0.0; graph.statistic_count()];
        for s in graph.statistics() {
            read(&s.name, &[s.range.len()], &mut statistics[s.range.clone()])?;
        }
        let flat = |name: &str, len: usize| {
            let mut numbers = vec![0.0; len];
            read(name, &[len], &mut numbers).map(|()| Cow::from(numbers))
        };
        let optimizer = self.header.optimizer_steps.map(|steps| {
            let mut moments = Vec::new();
            while let Ok(view) = tensors.tensor(&format!("{MOMENT}{}", moments.len())) {
                moments.push(bytes::read(view.data()).into());
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

/// The shape that a parameter has in a file.
pub(crate) fn shape_of(kind: &ParameterKind, len: usize) -> Vec<usize> {
    match kind {
        ParameterKind::Conv { geometry: g, .. } => {
            vec![g.out_channels, g.kernel_h, g.kernel_w, g.in_channels / g.groups]
        }
        ParameterKind::Fc { input, outputs } => vec![*outputs, input.len()],
        _ => vec![len],
    }
}
