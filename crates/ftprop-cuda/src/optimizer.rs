//! The optimizer's pass over the flat buffers, and the clipping of the gradient before it.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::{ClipArgs, OptimizeArgs};
use crate::compile::{File, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::parameters::ParameterBuffers;
use crate::precision::Precision;
use crate::step::StepBuffers;
use crate::stream::CudaStream;
use ftprop_nn::OptimizerSpec;

/// Blocks that the gradient's norm is summed by.
const CLIP_BLOCKS: u32 = 256;

/// An optimizer's kernels and regions.
pub(crate) struct OptimizerPass {
    kernel: Kernel<OptimizeArgs>,
    counter: Region,
    clip: Option<GradientClip>,
}

/// Scales the whole gradient down to a norm.
struct GradientClip {
    kernel: Kernel<ClipArgs>,
    most: f64,
    partial: Region,
    counter: Region,
    scale: Region,
    norm: Region,
}

/// Moments that an optimizer keeps of each parameter.
pub(crate) fn moment_count(spec: &OptimizerSpec) -> usize {
    match spec {
        OptimizerSpec::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
        OptimizerSpec::Rmsprop { momentum, .. } => 1 + usize::from(*momentum != 0.0),
        OptimizerSpec::Adam { .. } | OptimizerSpec::Adamw { .. } => 2,
    }
}

/// The kernel for an optimizer.
pub(crate) fn source(spec: &OptimizerSpec, precision: Precision) -> Source {
    let source = Source::new(File::Optimizer, precision).int("MOMENTS", moment_count(spec));
    match *spec {
        OptimizerSpec::Sgd { momentum, nesterov, weight_decay, .. } => source
            .name("OPTIMIZER", if momentum == 0.0 { "OPTIMIZER_SGD" } else { "OPTIMIZER_SGD_MOMENTUM" })
            .float("DECAY", weight_decay as f32)
            .float("MOMENTUM", momentum as f32)
            .int("NESTEROV", usize::from(nesterov)),
        OptimizerSpec::Adam { beta1, beta2, eps, .. } | OptimizerSpec::Adamw { beta1, beta2, eps, .. } => {
            let decay = if let OptimizerSpec::Adam { weight_decay, .. } = *spec { weight_decay } else { 0.0 };
            source
                .name("OPTIMIZER", "OPTIMIZER_ADAM")
                .float("DECAY", decay as f32)
                .float("BETA1", beta1 as f32)
                .float("BETA2", beta2 as f32)
                .float("REST1", (1.0 - beta1) as f32)
                .float("REST2", (1.0 - beta2) as f32)
                .float("EPS", eps as f32)
        }
        OptimizerSpec::Rmsprop { alpha, momentum, eps, weight_decay, .. } => source
            .name("OPTIMIZER", if momentum == 0.0 { "OPTIMIZER_RMSPROP" } else { "OPTIMIZER_RMSPROP_MOMENTUM" })
            .float("DECAY", weight_decay as f32)
            .float("ALPHA", alpha as f32)
            .float("REST1", (1.0 - alpha) as f32)
            .float("MOMENTUM", momentum as f32)
            .float("EPS", eps as f32),
    }
}

impl OptimizerPass {
    /// `clip` is the largest norm that the whole gradient may have.
    pub(crate) fn new(
        device: &Device,
        spec: &OptimizerSpec,
        clip: Option<f64>,
        precision: Precision,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        Ok(OptimizerPass {
            kernel: Kernel::find(&device.module(source(spec, precision))?)?,
            counter: layout.take(4),
            clip: clip.map(|most| GradientClip::new(device, most, precision, layout)).transpose()?,
        })
    }

    /// One step along the gradients. With `advance` the device goes on to the next step's numbers.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        parameters: &ParameterBuffers,
        step: &StepBuffers,
        advance: bool,
    ) -> Result<(), CudaError> {
        let clip_scale = match &self.clip {
            Some(clip) => clip.run(stream, arena, parameters)?,
            None => DevicePtr::NULL,
        };
        let count = parameters.count();
        let args = OptimizeArgs {
            values: parameters.value(0),
            grads: parameters.grad(0),
            moment1: parameters.moment(0),
            moment2: parameters.moment(1),
            bf16_values: parameters.bf16_values(),
            clip_scale,
            step: step.step(arena),
            scalars: step.scalars(arena),
            counter: arena.at(self.counter),
            count: count as u32,
            advance: i32::from(advance),
        };
        // SAFETY: the flat buffers have so many numbers, and there are as many moments as the kernel was compiled for.
        unsafe { self.kernel.launch(stream, LaunchConfig::for_items(count.div_ceil(4)), &args) }
    }

    /// The norm of the last gradient, where gradients are clipped. Waits for the stream's work.
    pub(crate) fn gradient_norm(&self, stream: &CudaStream, arena: &Arena) -> Result<Option<f64>, CudaError> {
        self.clip.as_ref().map(|clip| Ok(arena.read::<f64>(stream, clip.norm, 1)?[0])).transpose()
    }
}

impl GradientClip {
    fn new(device: &Device, most: f64, precision: Precision, layout: &mut ArenaLayout) -> Result<Self, CudaError> {
        Ok(GradientClip {
            kernel: Kernel::find(&device.module(Source::new(File::Basic, precision))?)?,
            most,
            partial: layout.take(8 * CLIP_BLOCKS as usize),
            counter: layout.take(4),
            scale: layout.take(4),
            norm: layout.take(8),
        })
    }

    /// Gives the address of what the gradient is to be multiplied by.
    fn run(&self, stream: &CudaStream, arena: &Arena, parameters: &ParameterBuffers) -> Result<DevicePtr, CudaError> {
        let [partial, counter, scale, norm] =
            [self.partial, self.counter, self.scale, self.norm].map(|region| arena.at(region));
        let (grads, count) = (parameters.grad(0), parameters.count() as u32);
        let args = ClipArgs { grads, partial, counter, scale, norm, count, most: self.most };
        let config = LaunchConfig { grid: (CLIP_BLOCKS, 1, 1), threads: 256, shared: 0 };
        // SAFETY: there are so many gradients, and a partial sum for every block.
        unsafe { self.kernel.launch(stream, config, &args)? };
        Ok(scale)
    }
}
