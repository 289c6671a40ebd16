//! Learning from a teacher's logits: its kernels. The teacher itself is another executor.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_nn::{Distillation, Shape};

const FILE: KernelFile = KernelFile { name: "distillation.cu", text: include_str!("../kernels/distillation.cu") };

kernels! {
    /// Mixes the teacher's slopes into those by the logits.
    DistilArgs = "distil" in FILE {
        logits: DevicePtr,
        teacher: DevicePtr,
        slopes: DevicePtr,
        step: DevicePtr,
        n: i32,
    }

    /// Each example's loss with the teacher's part.
    DistilLossesArgs = "distil_losses" in FILE {
        logits: DevicePtr,
        teacher: DevicePtr,
        losses: DevicePtr,
        n: i32,
    }

    /// Gives a batch to another network.
    CopyPixelsArgs = "copy_pixels" in FILE {
        from: DevicePtr,
        to: DevicePtr,
        pixels: u32,
        channels: u32,
        from_stored: u32,
        to_stored: u32,
    }
}

/// Warps of a block, each for an example.
const WARPS: u32 = 8;

/// The kernels for a teacher.
pub(crate) struct DistillationPass {
    distil: Kernel<DistilArgs>,
    losses: Kernel<DistilLossesArgs>,
    copy: Kernel<CopyPixelsArgs>,
}

/// The kernels' text; each flag says whether those logits are f32 whatever the activations are.
pub(crate) fn source(
    distillation: Distillation,
    classes: usize,
    [own_f32, teacher_f32]: [bool; 2],
    precision: Precision,
) -> Source {
    with_settings(Source::new(FILE, precision).int("CLASSES", classes), distillation)
        .int("LOGITS_F32", usize::from(own_f32))
        .int("TEACHER_F32", usize::from(teacher_f32))
}

/// What a file that knows of a teacher is compiled for.
pub(crate) fn with_settings(source: Source, distillation: Distillation) -> Source {
    source.float("TEMPERATURE", distillation.temperature()).float("WEIGHT", distillation.weight())
}

impl DistillationPass {
    pub(crate) fn new(device: &Device, source: Source) -> Result<Self, CudaError> {
        let module = device.module(source)?;
        Ok(DistillationPass {
            distil: Kernel::find(&module)?,
            losses: Kernel::find(&module)?,
            copy: Kernel::find(&module)?,
        })
    }

    /// Mixes the teacher's slopes into those of n examples.
    pub(crate) fn mix(
        &self,
        stream: &CudaStream,
        [logits, teacher, slopes, step]: [DevicePtr; 4],
        n: usize,
    ) -> Result<(), CudaError> {
        let args = DistilArgs { logits, teacher, slopes, step, n: n as i32 };
        let config = LaunchConfig { grid: ((n as u32).div_ceil(WARPS), 1, 1), threads: 32 * WARPS, shared: 0 };
        // SAFETY: logits and slopes have room for a full batch, in both networks.
        unsafe { self.distil.launch(stream, config, &args) }
    }

    /// Adds the teacher's part to each of n examples' losses.
    pub(crate) fn add_losses(
        &self,
        stream: &CudaStream,
        [logits, teacher, losses]: [DevicePtr; 3],
        n: usize,
    ) -> Result<(), CudaError> {
        let args = DistilLossesArgs { logits, teacher, losses, n: n as i32 };
        let config = LaunchConfig { grid: ((n as u32).div_ceil(WARPS), 1, 1), threads: 32 * WARPS, shared: 0 };
        // SAFETY: logits have room for a full batch, in both networks, and so have the losses.
        unsafe { self.losses.launch(stream, config, &args) }
    }

    /// Copies n examples from one network's input to another's; each comes with the channels that it stores.
    pub(crate) fn copy(
        &self,
        stream: &CudaStream,
        (from, from_stored): (DevicePtr, usize),
        (to, to_stored): (DevicePtr, usize),
        example: Shape,
        n: usize,
    ) -> Result<(), CudaError> {
        let pixels = n * example.height * example.width;
        let args = CopyPixelsArgs {
            from,
            to,
            pixels: pixels as u32,
            channels: example.channels as u32,
            from_stored: from_stored as u32,
            to_stored: to_stored as u32,
        };
        // SAFETY: both inputs have room for a full batch with the channels that they store.
        unsafe { self.copy.launch(stream, LaunchConfig::for_items(pixels * to_stored), &args) }
    }
}
