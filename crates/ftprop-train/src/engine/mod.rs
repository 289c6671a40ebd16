//! A network in training on some device: what the trainer asks of it.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod stretch;

use crate::checkpoint::Contents;
use crate::device::Place;
use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_data::{Dataset, Loader, Split};
use ftprop_nn::Tally;
use ftprop_nn::parameter::{Parameter, Statistic};

pub use cpu::build_network;
#[cfg(feature = "cuda")]
pub use cuda::build_cuda_network;
#[cfg(feature = "cuda")]
pub use ftprop_cuda::Stretch;
#[cfg(not(feature = "cuda"))]
pub use stretch::Stretch;

/// A part of the data that is looked at, not learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What is held out of the training part.
    Validation,
    /// What the figures are of.
    Test,
}

/// The parts of a data set that a run uses.
pub struct Parts<'a> {
    /// What is learned from.
    pub train: &'a Split,
    /// What is held out of it.
    pub validation: Option<&'a Split>,
    /// What the figures are of.
    pub test: &'a Split,
}

/// A network with its optimizer and all that a step needs.
///
/// Steps are announced in stretches. Their batches come from the host by [`learn`](Engine::learn), one each, or
/// are made on the device by [`learn_resident`](Engine::learn_resident). What they gave is known when they are
/// [settled](Engine::settle).
pub trait Engine: Send {
    /// What the numbers of the network are.
    fn parameters(&self) -> &[Parameter];
    /// What its running statistics are.
    fn statistics(&self) -> &[Statistic];
    /// The network, as a checkpoint keeps it for use.
    fn network(&self) -> Result<Contents<'_>, Error>;
    /// The network and its optimizer: everything that training depends on.
    fn contents(&self) -> Result<Contents<'_>, Error>;
    /// Goes on from a checkpoint's contents, which have an optimizer.
    fn restore(&mut self, contents: &Contents<'_>) -> Result<(), Error>;
    /// Sets every parameter to where training starts from.
    fn initialise(&mut self, seed: u64) -> Result<(), Error>;
    /// Whether the training part lives on the device.
    fn has_training_data(&self) -> bool;
    /// Whether asking for results after each step would slow it down.
    fn runs_ahead(&self) -> bool;
    /// Announces steps whose batches the host brings.
    fn begin(&mut self, stretch: Stretch) -> Result<(), Error>;
    /// The next announced step.
    fn learn(&mut self, images: &[f32], labels: &[u32]) -> Result<(), Error>;
    /// Steps on the training part that lives on the device.
    fn learn_resident(&mut self, stretch: &Stretch) -> Result<(), Error>;
    /// Waits for the steps so far and gives what they tallied since the last call.
    fn settle(&mut self) -> Result<Tally, Error>;
    /// Tallies a part; the loader delivers it where it does not live on the device.
    fn evaluate(&mut self, part: Part, loader: &Loader) -> Result<Tally, Error>;
    /// The first layer or parameter that is not finite.
    fn first_non_finite(&self) -> Option<String>;
}

/// A network for a recipe and its data, on a device.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only a GPU keeps parts of the data"))]
pub fn open(recipe: &Recipe, dataset: &Dataset, parts: &Parts<'_>, place: &Place) -> Result<Box<dyn Engine>, Error> {
    match &place.gpu {
        #[cfg(feature = "cuda")]
        Some(gpu) => Ok(Box::new(cuda::CudaEngine::new(recipe, dataset, parts, gpu)?)),
        #[cfg(not(feature = "cuda"))]
        Some(gpu) => match *gpu {},
        None => Ok(Box::new(cpu::CpuEngine::new(recipe, dataset, place.cpu.clone())?)),
    }
}
