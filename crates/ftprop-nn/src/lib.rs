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
//! | [`spec`] | a network as a recipe writes it |
//! | [`presets`] | the paper's networks |
//! | [`network`] | a spec becomes a network that runs and learns |
//! | [`parameter`] | what the numbers in the flat buffers are |
//! | [`output_loss`] | the loss of the whole network |
//! | [`optimizer`], [`schedule`] | the step along the gradients |
//! | [`precision`] | what a GPU multiplies with |
//! | [`probe`] | one step watched from within its hard layers |
//! | [`timing`] | where a step's time goes |

#![forbid(unsafe_code)]

pub mod activation;
mod build;
mod error;
pub mod layer_loss;
mod layers;
mod math;
mod names;
pub mod network;
pub mod optimizer;
pub mod output_loss;
pub mod parameter;
pub mod precision;
pub mod presets;
pub mod probe;
pub mod schedule;
mod shape;
pub mod spec;
pub mod target;
pub mod timing;

pub use activation::Activation;
pub use build::LayerInfo;
pub use error::NnError;
pub use layer_loss::LayerLoss;
pub use network::{Network, Step};
pub use optimizer::{Optimizer, OptimizerSpec};
pub use output_loss::{Criterion, OutputLoss, Tally};
pub use precision::Precision;
pub use probe::{Diagnosis, LayerDiagnosis, Probe};
pub use schedule::{Schedule, ScheduleKind};
pub use shape::Shape;
pub use spec::{Defaults, LayerSpec};
