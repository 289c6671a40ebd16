//! What a step depends on beside its batch, as the kernels see it.

use crate::memory::Pod;
use ftprop_nn::OptimizerSpec;
use ftprop_tensor::random::{Purpose, Stream, mix};

/// `struct DeviceStep` of the kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceStep {
    pub(crate) number: u64,
    pub(crate) dropout_base: u64,
    pub(crate) shuffle_key: u64,
    pub(crate) augment_key: u64,
    pub(crate) index: u32,
    pub(crate) batch: u32,
}

// SAFETY: whole numbers without padding.
unsafe impl Pod for DeviceStep {}

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

/// `struct StepScalars` of the kernels: what a schedule changes from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct StepScalars {
    lr: f32,
    rate: f32,
    root: f32,
    keep: f32,
    tau: f32,
}

// SAFETY: numbers without padding.
unsafe impl Pod for StepScalars {}

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

/// `struct Tally` of the kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceTally {
    pub(crate) loss_sum: f64,
    pub(crate) examples: u64,
    pub(crate) top1: u64,
    pub(crate) top5: u64,
}

// SAFETY: numbers without padding.
unsafe impl Pod for DeviceTally {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernels_structs() {
        assert_eq!((size_of::<DeviceStep>(), size_of::<StepScalars>(), size_of::<DeviceTally>()), (40, 20, 32));
    }

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
