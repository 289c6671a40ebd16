//! What a step depends on beside its batch, as the kernels see it.

use crate::CudaError;
use crate::abi::{DevicePtr, DeviceStep, StepScalars};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::stream::CudaStream;
use ftprop_nn::OptimizerSpec;
use ftprop_tensor::random::{Purpose, Stream, mix};

impl DeviceStep {
    pub(crate) fn new(seed: u64, epoch: u64, number: u64, batch: usize) -> Self {
        DeviceStep {
            number,
            dropout_base: mix(mix(seed).wrapping_add(Purpose::Dropout as u64)),
            shuffle_key: Stream::new(seed, Purpose::Shuffle, epoch).key(),
            augment_key: Stream::new(seed, Purpose::Augment, epoch).key(),
            index: 0,
            batch: batch as u32,
        }
    }
}

impl StepScalars {
    /// For the optimizer's step number `t`, counted from 1, worked out as the CPU does.
    pub(crate) fn new(spec: &OptimizerSpec, t: u64, lr_factor: f64, progress: f32) -> Self {
        let lr = spec.lr() * lr_factor;
        let tau = 10f32.powf(2.0 * progress.clamp(0.0, 1.0) - 1.0);
        let plain = StepScalars { lr: lr as f32, rate: lr as f32, root: 1.0, keep: 1.0, tau };
        match *spec {
            OptimizerSpec::Adam { beta1, beta2, .. } => StepScalars::adam(plain, lr, beta1, beta2, t),
            OptimizerSpec::Adamw { beta1, beta2, weight_decay, .. } => {
                StepScalars { keep: (1.0 - lr * weight_decay) as f32, ..StepScalars::adam(plain, lr, beta1, beta2, t) }
            }
            _ => plain,
        }
    }

    fn adam(plain: StepScalars, lr: f64, beta1: f64, beta2: f64, t: u64) -> Self {
        let t = i32::try_from(t).unwrap_or(i32::MAX);
        let rate = (lr / (1.0 - beta1.powi(t))) as f32;
        let root = (1.0 / (1.0 - beta2.powi(t)).sqrt()) as f32;
        StepScalars { rate, root, ..plain }
    }
}

/// Rows of the table of scalars: a longer span of steps is cut into parts.
pub(crate) const SCALAR_ROWS: usize = 1 << 16;

/// Where the kernels find the step and the scalars of the steps that follow.
pub(crate) struct StepBuffers {
    step: Region,
    scalars: Region,
}

impl StepBuffers {
    pub(crate) fn new(layout: &mut ArenaLayout) -> Self {
        StepBuffers {
            step: layout.take(size_of::<DeviceStep>()),
            scalars: layout.take(SCALAR_ROWS * size_of::<StepScalars>()),
        }
    }

    /// The [`DeviceStep`].
    pub(crate) fn step(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.step)
    }

    /// The table of [`StepScalars`].
    pub(crate) fn scalars(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.scalars)
    }

    /// Sets the next step and the scalars from it on, at most [`SCALAR_ROWS`], in order with the stream's work.
    pub(crate) fn set(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        step: DeviceStep,
        scalars: &[StepScalars],
    ) -> Result<(), CudaError> {
        arena.write(stream, self.step, &[step])?;
        arena.write(stream, self.scalars, scalars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_masks_come_from_the_same_stream_as_on_the_cpu() {
        let step = DeviceStep::new(7, 3, 41, 0);
        assert_eq!(mix(step.dropout_base.wrapping_add(step.number)), Stream::new(7, Purpose::Dropout, 41).key());
    }

    #[test]
    fn adams_scalars_start_with_the_learning_rate_and_decoupled_decay_shrinks() {
        let first = StepScalars::new(&OptimizerSpec::adam(1e-3), 1, 0.5, 0.5);
        assert!((first.rate - 5e-3).abs() < 1e-8 && (first.tau - 1.0).abs() < 1e-6 && first.keep == 1.0);
        let spec = OptimizerSpec::Adamw { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.5 };
        assert_eq!(StepScalars::new(&spec, 10, 1.0, 0.0).keep, 0.95);
    }
}
