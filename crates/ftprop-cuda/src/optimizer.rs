//! The optimizer's pass over the flat buffers, and the clipping of the gradient before it.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::basic;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::matrices::MatrixPass;
use crate::memory::DeviceBuffer;
use crate::parameters::ParameterBuffers;
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use crate::step::StepBuffers;
use crate::stream::CudaStream;
use ftprop_nn::Learning;
use ftprop_nn::optimizer::{ParameterGroups, device_average};
use std::fmt::Write;
use std::ops::Range;

const FILE: KernelFile = KernelFile { name: "optimizer.cu", text: include_str!("../kernels/optimizer.cu") };

kernels! {
    /// An optimizer's pass over the flat buffers.
    OptimizeArgs = "optimize" in FILE {
        values: DevicePtr,
        grads: DevicePtr,
        moment1: DevicePtr,
        moment2: DevicePtr,
        average: DevicePtr,
        operands: DevicePtr,
        groups: DevicePtr,
        clip_scale: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        counter: DevicePtr,
        first: u32,
        count: u32,
        advance: i32,
    }

    /// What the gradient is multiplied by so that its norm is at most `most`.
    ClipArgs = "clip" in basic::FILE {
        grads: DevicePtr,
        counted: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        scale: DevicePtr,
        norm: DevicePtr,
        count: u32,
        most: f64,
    }
}

/// Blocks that the gradient's norm is summed by.
const CLIP_BLOCKS: u32 = 256;

/// An optimizer's kernels and regions.
pub(crate) struct OptimizerPass {
    kernel: Kernel<OptimizeArgs>,
    counter: Region,
    /// The number of each parameter's group, where there is more than one.
    groups: Option<DeviceBuffer>,
    clip: Option<GradientClip>,
    matrices: Option<MatrixPass>,
}

/// Scales the whole gradient down to a norm.
struct GradientClip {
    kernel: Kernel<ClipArgs>,
    most: f64,
    /// Which gradients count, where some are of what is frozen: a byte each, 0 or 1.
    counted: Option<DeviceBuffer>,
    partial: Region,
    counter: Region,
    scale: Region,
    norm: Region,
}

/// The kernel for groups of parameters.
pub(crate) fn source(learning: &Learning, scalars: &ScalarLayout, precision: Precision) -> Source {
    with_updates(Source::new(FILE, precision), learning, scalars)
}

/// Adds the groups' updates to a file that calls them, written down from their definitions.
pub(crate) fn with_updates(source: Source, learning: &Learning, scalars: &ScalarLayout) -> Source {
    let groups = learning.groups.groups();
    let mut text = String::new();
    let mut cases = String::new();
    for (i, group) in groups.iter().enumerate() {
        // Matrices have their own kernels; here their weights only become copies and averages, as do those that are frozen.
        let Some(update) = group.device_update(&format!("update{i}")) else { continue };
        text += &update;
        let at: Vec<String> = (0..4).map(|s| format!("at[{}]", scalars.group_at(i) + s)).collect();
        let _ = writeln!(cases, "    case {i}: update{i}(w, m, v, g, {}); break;", at.join(", "));
    }
    let _ = writeln!(
        text,
        "__device__ __forceinline__ void update(u32 group, float& w, float& m, float& v, float g, const float* at) {{\n    \
         switch (group) {{\n{cases}    }}\n}}"
    );
    if learning.average.is_some() {
        text += &device_average("moving_average");
    }
    source
        .int("MOMENTS", learning.groups.moments())
        .int("GROUPS", groups.len())
        .int("AVERAGE", usize::from(learning.average.is_some()))
        .int("SCALARS", scalars.width())
        .int("AVERAGE_SCALAR", scalars.average_at())
        .functions(&text)
}

/// The number of each parameter's group, where there is more than one.
fn group_numbers(groups: &ParameterGroups) -> Option<Vec<u8>> {
    if groups.groups().len() == 1 {
        return None;
    }
    let mut numbers = vec![0; groups.parameters()];
    for span in groups.spans() {
        numbers[span.range.clone()].fill(span.group as u8);
    }
    Some(numbers)
}

/// Which gradients count for the norm; none where all do.
fn counted(groups: &ParameterGroups) -> Option<Vec<u8>> {
    let unfrozen = groups.unfrozen()?;
    let mut counted = vec![0; groups.parameters()];
    unfrozen.for_each(|range| counted[range].fill(1));
    Some(counted)
}

impl OptimizerPass {
    pub(crate) fn new(
        device: &Device,
        stream: &CudaStream,
        learning: &Learning,
        scalars: &ScalarLayout,
        precision: Precision,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let groups = group_numbers(&learning.groups).map(|numbers| {
            let buffer = DeviceBuffer::new(device, numbers.len(), "the parameters' groups")?;
            buffer.write(stream, 0, &numbers)?;
            Ok::<_, CudaError>(buffer)
        });
        Ok(OptimizerPass {
            kernel: Kernel::find(&device.module(source(learning, scalars, precision))?)?,
            counter: layout.take(4),
            groups: groups.transpose()?,
            clip: GradientClip::new(device, learning, precision, layout)?,
            matrices: MatrixPass::new(device, &learning.groups, scalars, precision, layout)?,
        })
    }

    /// Whether a part of the parameters can be learned before the gradients of the others are there.
    pub(crate) fn can_be_parted(&self) -> bool {
        self.clip.is_none() && self.matrices.is_none()
    }

    /// Whether some of the parameters are learned as matrices.
    pub(crate) fn has_matrices(&self) -> bool {
        self.matrices.is_some()
    }

    /// One step along the gradients of these parameters, which begin at a multiple of four; all of them, unless it
    /// [can be parted](Self::can_be_parted). With `advance` the device goes on to the next step's numbers.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        parameters: &ParameterBuffers,
        step: &StepBuffers,
        (range, advance): (Range<usize>, bool),
    ) -> Result<(), CudaError> {
        let clip_scale = match &self.clip {
            Some(clip) => clip.run(stream, arena, parameters)?,
            None => DevicePtr::NULL,
        };
        if let Some(matrices) = &self.matrices {
            matrices.run(stream, arena, parameters, step, clip_scale)?;
        }
        let args = OptimizeArgs {
            values: parameters.value(0),
            grads: parameters.grad(0),
            moment1: parameters.moment(0),
            moment2: parameters.moment(1),
            average: parameters.average(),
            operands: parameters.operands(),
            groups: self.groups.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::start),
            clip_scale,
            step: step.step(arena),
            scalars: step.scalars(arena),
            counter: arena.at(self.counter),
            first: range.start as u32,
            count: range.end as u32,
            advance: i32::from(advance),
        };
        // SAFETY: the flat buffers have so many numbers, and there are as many moments as the kernel was compiled for.
        unsafe { self.kernel.launch(stream, LaunchConfig::for_items(range.len().div_ceil(4)), &args) }
    }

    /// The norm of the last gradient, where gradients are clipped. Waits for the stream's work.
    pub(crate) fn gradient_norm(&self, stream: &CudaStream, arena: &Arena) -> Result<Option<f64>, CudaError> {
        self.clip.as_ref().map(|clip| Ok(arena.read::<f64>(stream, clip.norm, 1)?[0])).transpose()
    }
}

impl GradientClip {
    /// None where nothing is clipped.
    fn new(
        device: &Device,
        learning: &Learning,
        precision: Precision,
        layout: &mut ArenaLayout,
    ) -> Result<Option<Self>, CudaError> {
        let Some(most) = learning.clip else { return Ok(None) };
        let counted = counted(&learning.groups).map(|all| DeviceBuffer::of(device, &all, "which gradients count"));
        Ok(Some(GradientClip {
            kernel: Kernel::find(&device.module(basic::source(precision))?)?,
            most,
            counted: counted.transpose()?,
            partial: layout.take(8 * CLIP_BLOCKS as usize),
            counter: layout.take(4),
            scale: layout.take(4),
            norm: layout.take(8),
        }))
    }

    /// Gives the address of what the gradient is to be multiplied by.
    fn run(&self, stream: &CudaStream, arena: &Arena, parameters: &ParameterBuffers) -> Result<DevicePtr, CudaError> {
        let [partial, counter, scale, norm] =
            [self.partial, self.counter, self.scale, self.norm].map(|region| arena.at(region));
        let (grads, count) = (parameters.grad(0), parameters.count() as u32);
        let counted = self.counted.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::start);
        let args = ClipArgs { grads, counted, partial, counter, scale, norm, count, most: self.most };
        let config = LaunchConfig { grid: (CLIP_BLOCKS, 1, 1), threads: 256, shared: 0 };
        // SAFETY: there are so many gradients, a byte for each where any are told apart, and a partial sum for every block.
        unsafe { self.kernel.launch(stream, config, &args)? };
        Ok(scale)
    }
}
