//! Deep networks with hard-threshold activations: trained by feasible target propagation, proved by search, packed for use.
//!
//! This crate is the door to the others. [`prelude`] has what most programs need; the rest is in its own crate:
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`train`] | recipes, the training loop, run folders, several runs at once |
//! | [`export`] | trained networks for other programs: packed, ONNX, PyTorch |
//! | `lab` | studies, reports and pictures (feature `plot`) |
//! | [`nn`] | activations, layer losses, targets, layers, networks, optimizers |
//! | [`data`] | data sets, augmentation, batches |
//! | [`search`] | exact and heuristic search over targets, with certificates |
//! | [`runtime`] | packed models and what runs them |
//! | [`tensor`] | kernels of the CPU, shapes, randomness |
//! | `cuda` | the same networks on an NVIDIA GPU (feature `cuda`) |
//!
//! Both features are on unless they are turned off. Nothing here prints; see the `examples` for how little it takes:
//!
//! ```
//! use ftprop::prelude::*;
//!
//! let mut recipe = Recipe::built_in("digits")?.into_recipe();
//! recipe.train.epochs = 1;
//! let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 0)?);
//! let mut trainer = Trainer::new(recipe.checked()?, &dataset, &place)?;
//! trainer.run(&mut ())?;
//! assert!(trainer.metrics()[0].test.top1 > 0.5);
//! # Ok::<(), ftprop::train::Error>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(feature = "cuda")]
pub use ftprop_cuda as cuda;
pub use ftprop_data as data;
pub use ftprop_export as export;
#[cfg(feature = "plot")]
pub use ftprop_lab as lab;
pub use ftprop_nn as nn;
pub use ftprop_runtime as runtime;
pub use ftprop_search as search;
pub use ftprop_tensor as tensor;
pub use ftprop_train as train;

/// What most programs need.
pub mod prelude {
    pub use ftprop_data::{Dataset, Loader, LoaderConfig, Source};
    pub use ftprop_export::classifier::Classifier;
    #[cfg(feature = "plot")]
    pub use ftprop_lab::pictures::Pictures;
    pub use ftprop_nn::{
        Activation, CpuEngine, Criterion, Defaults, Engine, Graph, LayerLoss, LayerSpec, Learning, Network, Optimizer,
        OptimizerSpec, OutputLoss, Shape, Step,
    };
    pub use ftprop_runtime::pack::WeightFormat;
    pub use ftprop_search::{Certificate, Problem, SolveConfig};
    pub use ftprop_tensor::Cpu;
    pub use ftprop_train::checked::CheckedRecipe;
    pub use ftprop_train::choice::DeviceChoice;
    pub use ftprop_train::device::Place;
    pub use ftprop_train::evaluate::{Predictor, evaluate, predict};
    pub use ftprop_train::fleet::{FleetObserver, Job, train_all};
    pub use ftprop_train::model::{Model, Which};
    pub use ftprop_train::observe::{Answer, Ending, Learned, Observer, RunView, StepReport, StopFlag, Together};
    pub use ftprop_train::recipe::Recipe;
    pub use ftprop_train::run::RunFolder;
    pub use ftprop_train::trainer::Trainer;
}
