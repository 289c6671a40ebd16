//! The paper's section 3: deep hard-threshold networks learned by mini-batch feasible target propagation.
//!
//! Start with these three, in this order:
//!
//! | module | subject |
//! | --- | --- |
//! | [`activation`] | what a hidden unit outputs |
//! | [`layer_loss`] | how well a unit meets its target |
//! | [`target`] | which target a unit gets, and the slope that follows |
//!
//! Then the machinery around them:
//!
//! | module | subject |
//! | --- | --- |
//! | [`number`], [`trace`] | what these formulas are written over, and how they reach a GPU |
//! | [`spec`] | a network as a recipe writes it |
//! | [`presets`] | the paper's networks |
//! | [`graph`] | a spec becomes checked, typed nodes, from which everything else is lowered |
//! | [`network`] | a graph becomes a network on the CPU that runs and learns |
//! | [`engine`] | a network with all that learning needs, on any device; the CPU's |
//! | [`portion`] | a batch that several engines share |
//! | [`parameter`] | what the numbers in the flat buffers are |
//! | [`output_loss`], [`mixing`], [`distillation`] | the loss of the whole network; mixed examples; learning from another one |
//! | [`optimizer`], [`schedule`] | the step along the gradients |
//! | [`precision`] | what a GPU multiplies with |
//! | [`probe`] | one step watched from within its hard layers |
//! | [`timing`] | where a step's time goes |

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod activation;
pub mod distillation;
pub mod engine;
mod error;
pub mod graph;
pub mod layer_loss;
mod layers;
mod lower;
pub mod mixing;
mod names;
pub mod network;
pub mod number;
pub mod optimizer;
pub mod output_loss;
pub mod parameter;
pub mod portion;
pub mod precision;
pub mod presets;
pub mod probe;
pub mod schedule;
pub mod spec;
pub mod target;
pub mod timing;
pub mod trace;
pub mod whiten;

pub use activation::Activation;
pub use distillation::Distillation;
pub use engine::{CpuEngine, Engine, EngineError, Learning};
pub use error::NnError;
pub use ftprop_tensor::Shape;
pub use graph::Graph;
pub use layer_loss::LayerLoss;
pub use mixing::Mixing;
pub use names::Numbers;
pub use network::{Network, Step};
pub use optimizer::{GroupSpec, Optimizer, OptimizerSpec, ParameterGroups};
pub use output_loss::{Criterion, OutputLoss, Tally};
pub use portion::Portion;
pub use precision::Precision;
pub use probe::{Diagnosis, LayerDiagnosis, Probe};
pub use schedule::{Schedule, ScheduleKind};
pub use spec::{Defaults, LayerSpec};
