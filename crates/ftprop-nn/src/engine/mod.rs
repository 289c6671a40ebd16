//! Engines: a network with all that learning needs, on some device.
//!
//! One trait for training, evaluation, prediction and golden cases. A training step has three phases: forward and
//! backward ([`learn`](Engine::learn)), then the gradients as one flat buffer that something may reduce
//! ([`gradients`](Engine::gradients), [`Reducer`]), then the optimizer ([`optimize`](Engine::optimize)). Whole steps at
//! full speed are announced in [spans](StepSpan) and followed by [`finish`](Engine::finish), because a device that
//! runs ahead should not be waited for after each.
//!
//! [`CpuEngine`] is the CPU's. [`suite`] holds any engine to what all have to do.
//!
//! ```
//! use ftprop_nn::engine::{CpuEngine, Engine, Learning};
//! use ftprop_nn::{Activation, Defaults, Graph, LayerLoss, OptimizerSpec, Shape, Step, presets};
//! use ftprop_tensor::Cpu;
//! use std::sync::Arc;
//!
//! let input = Shape::vector(4);
//! let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
//! let layers = presets::layers("mlp", input, &[8]).unwrap();
//! let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 2).unwrap());
//! let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-2).unwrap()).unwrap();
//! let mut engine = CpuEngine::new(Arc::new(Cpu::new(1).unwrap()), graph, learning, 3).unwrap();
//! engine.initialise(1).unwrap();
//! let (images, labels) = ([1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.], [0, 1, 0]);
//! let before = engine.evaluate(&images, &labels).unwrap();
//! for number in 0..50 {
//!     engine.learn(&images, &labels, &Step { seed: 1, number, progress: 0.0 }).unwrap();
//!     engine.optimize(1.0).unwrap();
//! }
//! assert!(engine.evaluate(&images, &labels).unwrap().loss() < before.loss());
//! ```

mod cpu;
pub mod suite;
mod teacher;

pub use cpu::CpuEngine;
pub use teacher::Teacher;

use crate::NnError;
use crate::graph::Graph;
use crate::network::Step;
use crate::optimizer::{OptimizerSpec, ParameterGroups};
use crate::output_loss::{Criterion, OutputLoss, Tally};
use crate::portion::Portion;
use ftprop_tensor::Share;
use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

/// How a network learns, wherever it lives.
#[derive(Clone, Debug)]
pub struct Learning {
    /// The loss of the whole network.
    pub criterion: Criterion,
    /// Which parameters are learned how.
    pub groups: Arc<ParameterGroups>,
    /// The largest norm that the whole gradient may have.
    pub clip: Option<f64>,
    /// What a moving average of the weights keeps of itself at each step; none where there is no average.
    pub average: Option<f64>,
    /// Another network that is learned from beside the labels.
    pub teacher: Option<Arc<Teacher>>,
    /// Whether batch norm, where several engines share a batch, goes by the examples of all and not by an engine's own.
    /// It then asks the [reducer](Reducer::sum) at every norm, forward and back.
    pub sync_norm: bool,
}

impl Learning {
    /// Cross entropy and one optimizer for everything.
    pub fn new(graph: &Graph, optimizer: &OptimizerSpec) -> Result<Self, NnError> {
        Ok(Learning {
            criterion: Criterion::new(OutputLoss::CrossEntropy, 0.0)?,
            groups: Arc::new(ParameterGroups::resolve(optimizer, &[], graph)?),
            clip: None,
            average: None,
            teacher: None,
            sync_norm: false,
        })
    }
}

/// Consecutive training steps of one epoch.
#[derive(Clone, Debug)]
pub struct StepSpan {
    /// The run's seed.
    pub seed: u64,
    /// Which epoch's order and augmentation.
    pub epoch: u64,
    /// The first batch, counted in the epoch.
    pub first_batch: usize,
    /// The first step's number, counted over the whole run.
    pub first_step: u64,
    /// For each step what the learning rate is multiplied by, and the share of training done.
    pub steps: Vec<(f64, f32)>,
    /// Where the engine's examples are in each of the batches, which are then all of one size; none where it learns from
    /// whole batches.
    pub portion: Option<Portion>,
}

/// What a network is made of, wherever it lives: enough to use it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkState<'a> {
    /// All parameters.
    pub values: Cow<'a, [f32]>,
    /// All running statistics.
    pub statistics: Cow<'a, [f32]>,
}

/// Everything that training depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingState<'a> {
    /// The network.
    pub network: NetworkState<'a>,
    /// Steps that the optimizer has taken.
    pub steps: u64,
    /// Its moments.
    pub moments: Vec<Cow<'a, [f32]>>,
    /// The moving average of the weights, where there is one.
    pub average: Option<Cow<'a, [f32]>>,
}

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// What is learned from.
    Train,
    /// What is held out of it.
    Validation,
    /// What the figures are of.
    Test,
}

/// A network with its optimizer and all that a step needs.
///
/// Steps at full speed are announced by [`begin`](Engine::begin), and their batches come from the host by
/// [`step`](Engine::step), one each; or they are made on the device by [`Resident::train`]. What they gave is known when
/// they are [finished](Engine::finish).
pub trait Engine: Send {
    /// What the network is.
    fn graph(&self) -> &Arc<Graph>;
    /// The most examples a batch may have.
    fn batch(&self) -> usize;

    /// Sets every parameter and statistic to where training starts from.
    fn initialise(&mut self, seed: u64) -> Result<(), EngineError>;
    /// What the network is made of.
    fn network(&self) -> Result<NetworkState<'_>, EngineError>;
    /// Puts a network's numbers in place; the optimizer's are left as they are.
    fn set_network(&mut self, state: &NetworkState<'_>) -> Result<(), EngineError>;
    /// Everything that training depends on.
    fn state(&self) -> Result<TrainingState<'_>, EngineError>;
    /// Goes on from a state.
    fn restore(&mut self, state: &TrainingState<'_>) -> Result<(), EngineError>;

    /// One step of Algorithm 2 up to the optimizer: forward, loss, then targets and slopes layer by layer.
    fn learn(&mut self, images: &[f32], labels: &[u32], step: &Step) -> Result<Tally, EngineError> {
        self.learn_portion(images, labels, step, None)
    }
    /// The same on a portion of a batch that several engines share, of which there may be no example here. The gradients
    /// have been through the reducer afterwards, where there is one.
    fn learn_portion(
        &mut self,
        images: &[f32],
        labels: &[u32],
        step: &Step,
        portion: Option<Portion>,
    ) -> Result<Tally, EngineError>;
    /// The gradients of the last [`learn`](Self::learn), in the order of the parameters.
    fn gradients(&self) -> Result<Cow<'_, [f32]>, EngineError>;
    /// Puts others in their place, such as their mean over several engines.
    fn set_gradients(&mut self, gradients: &[f32]) -> Result<(), EngineError>;
    /// One step along the gradients, the learning rate scaled by `lr_factor`. Gives the gradient's norm back where it is
    /// clipped.
    fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, EngineError>;

    /// The logits of a batch, `[n, classes]`, with running statistics and without dropout.
    fn infer(&mut self, images: &[f32]) -> Result<Cow<'_, [f32]>, EngineError>;
    /// The logits of the last batch that went through.
    fn logits(&self) -> Result<Cow<'_, [f32]>, EngineError>;
    /// Tallies a batch without learning from it.
    fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, EngineError>;
    /// Takes a batch's statistics into the running ones, which become the mean over this batch and the `before` ones
    /// that were taken in before it: for weights that the running statistics do not belong to. Where norms go by the
    /// batches of all engines there may be no example here.
    fn take_statistics(&mut self, images: &[f32], before: usize) -> Result<(), EngineError>;

    /// Announces steps whose batches the host brings.
    fn begin(&mut self, span: StepSpan) -> Result<(), EngineError>;
    /// The next announced step, optimizer and all. Of a batch that several engines share there may be no example.
    fn step(&mut self, images: &[f32], labels: &[u32]) -> Result<(), EngineError>;
    /// Whether [`step_pixels`](Self::step_pixels) takes batches in the place of [`step`](Self::step).
    fn takes_pixels(&self) -> bool {
        false
    }
    /// The next announced step on pictures as bytes, cut to the input's size: the device mirrors, blanks, colours and
    /// normalises them, as the examples' numbers say.
    fn step_pixels(&mut self, _pixels: &[u8], _labels: &[u32], _numbers: &[u32]) -> Result<(), EngineError> {
        Err(EngineError::Unsupported { device: "this device", what: "learn from pictures as bytes".into() })
    }
    /// Waits for the steps so far and gives what they tallied since the last call.
    fn finish(&mut self) -> Result<Tally, EngineError>;
    /// Whether asking for results after each step would slow it down.
    fn runs_ahead(&self) -> bool {
        false
    }
    /// Data that lives on the device, where any does.
    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }
    /// What gradients and running statistics go through between the backward pass and the optimizer, in
    /// [`step`](Self::step) as in phases.
    fn set_reducer(&mut self, reducer: Box<dyn Reducer>) -> Result<(), EngineError>;

    /// The first layer or parameter that is not finite, for telling what blew up.
    fn first_non_finite(&self) -> Option<String>;
}

/// Data that lives on an engine's device.
pub trait Resident {
    /// Whether a part does.
    fn has(&self, part: Part) -> bool;
    /// Steps on the training part, which lives there; their batches are made on the device.
    fn train(&mut self, span: &StepSpan) -> Result<(), EngineError>;
    /// Tallies a share of each batch of a part that lives there, in batches of `batch`.
    fn evaluate(&mut self, part: Part, share: Share, batch: usize) -> Result<Tally, EngineError>;
}

/// Something that gradients go through, such as their sum over processes that share batches.
pub trait Reducer: Send {
    /// Changes all gradients and running statistics in place, the same for the same ones of all.
    fn reduce(&mut self, gradients: &mut [f32], statistics: &mut [f32]) -> Result<(), EngineError>;
    /// Every number becomes its sum over all processes that share batches, in the same order on each: what batch norm goes
    /// by where it is to see all examples ([`Learning::sync_norm`]). The running statistics then follow from it, and are not
    /// handed to [`reduce`](Self::reduce).
    fn sum(&mut self, numbers: &mut [f64]) -> Result<(), EngineError>;
}

/// What an engine cannot do, or could not.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The network, or a setting of how it learns.
    #[error(transparent)]
    Network(#[from] NnError),
    /// A batch that is none of this network's.
    #[error("{values} values and {labels} labels are no batch of at most {batch} examples of {input}")]
    Batch {
        /// Numbers that were given.
        values: usize,
        /// Labels that were given.
        labels: usize,
        /// Examples that a batch may have.
        batch: usize,
        /// An example's shape.
        input: String,
    },
    /// A label that is no class.
    #[error("label {label} is not below {classes} classes")]
    Label {
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// Numbers of another network.
    #[error("{got} {what} where this network has {expected}; they are of another network")]
    Length {
        /// What they are.
        what: &'static str,
        /// How many were given.
        got: usize,
        /// How many there are.
        expected: usize,
    },
    /// A step that nobody announced.
    #[error("a step was taken that was not announced")]
    NotAnnounced,
    /// Something that this kind of device does not do.
    #[error("{device} cannot {what}")]
    Unsupported {
        /// The kind of device.
        device: &'static str,
        /// What it was asked for.
        what: String,
    },
    /// There was not enough memory on the device.
    #[error(transparent)]
    Memory(Box<dyn Error + Send + Sync>),
    /// Others that it learns together with.
    #[error(transparent)]
    Ranks(Box<dyn Error + Send + Sync>),
    /// Anything else of the device.
    #[error(transparent)]
    Device(Box<dyn Error + Send + Sync>),
}

/// Checks that a batch is one of a network's, and gives its number of examples.
pub fn check_batch(graph: &Graph, batch: usize, images: &[f32], labels: Option<&[u32]>) -> Result<usize, EngineError> {
    let input = graph.input();
    let n = images.len() / input.len();
    let whole = n > 0 && n <= batch && n * input.len() == images.len();
    if !whole || labels.is_some_and(|labels| labels.len() != n) {
        let labels = labels.map_or(n, <[u32]>::len);
        return Err(EngineError::Batch { values: images.len(), labels, batch, input: input.to_string() });
    }
    match labels.into_iter().flatten().find(|&&label| label as usize >= graph.classes()) {
        Some(&label) => Err(EngineError::Label { label, classes: graph.classes() }),
        None => Ok(n),
    }
}

/// Checks that so many numbers are what a network has.
pub fn check_length(what: &'static str, got: usize, expected: usize) -> Result<(), EngineError> {
    if got == expected { Ok(()) } else { Err(EngineError::Length { what, got, expected }) }
}
