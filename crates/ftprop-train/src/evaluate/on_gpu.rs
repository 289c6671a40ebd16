//! Trained networks on a GPU.

use super::Predictor;
use crate::device::Gpu;
use crate::engine::build_cuda_network;
use crate::error::Error;
use crate::model::Model;
use ftprop_cuda::CudaNetwork;

/// A trained network on a GPU.
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

impl Predictor for OnGpu {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error> {
        self.logits = self.network.infer(examples)?;
        Ok(&self.logits)
    }
}
