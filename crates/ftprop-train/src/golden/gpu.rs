//! Golden cases on a GPU.

use super::{Case, Subject};
use crate::device::Gpu;
use crate::error::Error;
use ftprop_cuda::{CudaNetwork, NetworkConfig, Precision, Tuning};
use ftprop_nn::parameter::Parameter;
use ftprop_nn::{Defaults, LayerSpec, OutputLoss, Shape, Step};

/// A case's network, computed in f32.
pub(super) fn network(
    gpu: &Gpu,
    layers: Vec<LayerSpec>,
    defaults: Defaults,
    input: Shape,
    classes: usize,
    case: &Case,
) -> Result<CudaNetwork, Error> {
    let config = NetworkConfig {
        layers,
        defaults,
        input,
        classes,
        batch: case.batch,
        precision: Precision::F32,
        tuning: Tuning::Fixed,
        loss: OutputLoss::CrossEntropy,
        label_smoothing: 0.0,
        optimizer: case.optimizer,
        clip: None,
    };
    Ok(CudaNetwork::new(&gpu.device, config)?)
}

impl Subject for CudaNetwork {
    fn parameters(&self) -> &[Parameter] {
        CudaNetwork::parameters(self)
    }

    fn start(&mut self, values: &[f32]) -> Result<(), Error> {
        Ok(self.set_values(values)?)
    }

    fn learn(&mut self, images: &[f32], labels: &[u32], step: &Step) -> Result<(f64, Vec<f32>), Error> {
        let tally = CudaNetwork::learn(self, images, labels, step)?;
        Ok((tally.loss(), self.logits(labels.len())?))
    }

    fn grads(&self) -> Result<Vec<f32>, Error> {
        Ok(CudaNetwork::grads(self)?)
    }

    fn optimize(&mut self) -> Result<Vec<f32>, Error> {
        CudaNetwork::optimize(self, 1.0)?;
        Ok(self.values()?)
    }
}
