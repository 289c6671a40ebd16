//! The loss of the whole network, and the tally of what it saw.

use crate::CudaError;
use crate::abi::{DevicePtr, DeviceTally};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::memory::DeviceBuffer;
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use crate::stream::CudaStream;
use ftprop_nn::{Criterion, OutputLoss};

const FILE: KernelFile = KernelFile { name: "output_loss.cu", text: include_str!("../kernels/output_loss.cu") };

kernels! {
    /// The loss, its slopes and the tally.
    OutputLossArgs = "output_loss" in FILE {
        logits: DevicePtr,
        labels: DevicePtr,
        slopes: DevicePtr,
        tally: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        losses: DevicePtr,
        not_numbers: DevicePtr,
        weights: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        n: i32,
        learning: i32,
    }
}

/// What the loss is taken for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// To count.
    Measure,
    /// To learn: slopes by the logits are written, and where there is a place for them each example's loss.
    Learn { losses: DevicePtr },
    /// To see each example's loss, when the slopes by the logits are no longer needed. Nothing counts.
    Try { losses: DevicePtr },
}

/// The most blocks that the loss is summed by, and warps of each.
const MAX_BLOCKS: u32 = 64;
const WARPS: u32 = 8;

/// The loss's kernel, and where it tallies.
pub(crate) struct LossPass {
    kernel: Kernel<OutputLossArgs>,
    tally: Region,
    /// Where what is tried is tallied, for nobody.
    idle_tally: Region,
    partial: Region,
    counter: Region,
    /// The number of the first pass that met something that is no number, 0 while none has.
    not_numbers: Region,
    /// The weights of the classes.
    weights: Option<DeviceBuffer>,
}

/// The kernel for a loss; `logits_f32` says whether the logits are f32 whatever the activations are.
pub(crate) fn source(
    criterion: &Criterion,
    classes: usize,
    logits_f32: bool,
    scalars: &ScalarLayout,
    precision: Precision,
) -> Source {
    source_of(FILE, criterion, classes, logits_f32, scalars, precision)
}

/// The same for another file that looks at the loss.
pub(crate) fn source_of(
    file: KernelFile,
    criterion: &Criterion,
    classes: usize,
    logits_f32: bool,
    scalars: &ScalarLayout,
    precision: Precision,
) -> Source {
    let loss = match criterion.loss() {
        OutputLoss::CrossEntropy => "OUTPUT_LOSS_CROSS_ENTROPY",
        OutputLoss::MultiHinge => "OUTPUT_LOSS_MULTI_HINGE",
        OutputLoss::SquaredMultiHinge => "OUTPUT_LOSS_SQUARED_MULTI_HINGE",
        OutputLoss::CrammerSinger => "OUTPUT_LOSS_CRAMMER_SINGER",
        OutputLoss::OneVsRestHinge => "OUTPUT_LOSS_ONE_VS_REST_HINGE",
        OutputLoss::SquaredOneVsRestHinge => "OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE",
    };
    Source::new(file, precision)
        .int("CLASSES", classes)
        .name("OUTPUT_LOSS", loss)
        .float("SMOOTHING", criterion.smoothing())
        .int("LOGITS_F32", usize::from(logits_f32))
        .int("WEIGHTED", usize::from(criterion.class_weights().is_some()))
        .int("MIXED", usize::from(scalars.mixes()))
        .int("SCALARS", scalars.width())
        .int("MIX_SCALAR", scalars.mixing_at())
}

impl LossPass {
    pub(crate) fn new(
        device: &Device,
        source: Source,
        criterion: &Criterion,
        classes: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let weights = criterion.class_weights();
        if let Some(wrong) = weights.map(<[f32]>::len).filter(|&count| count != classes) {
            return Err(CudaError::Length { what: "weights of classes", got: wrong, expected: classes });
        }
        Ok(LossPass {
            kernel: Kernel::find(&device.module(source)?)?,
            tally: layout.take(size_of::<DeviceTally>()),
            idle_tally: layout.take(size_of::<DeviceTally>()),
            partial: layout.take(MAX_BLOCKS as usize * size_of::<DeviceTally>()),
            counter: layout.take(4),
            not_numbers: layout.take(4),
            weights: weights.map(|weights| DeviceBuffer::of(device, weights, "weights of classes")).transpose()?,
        })
    }

    /// Tallies n examples as asked.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        [logits, labels, slopes]: [DevicePtr; 3],
        [step, scalars]: [DevicePtr; 2],
        n: usize,
        purpose: Purpose,
    ) -> Result<(), CudaError> {
        let (tally, losses, learning) = match purpose {
            Purpose::Measure => (self.tally, DevicePtr::NULL, false),
            Purpose::Learn { losses } => (self.tally, losses, true),
            Purpose::Try { losses } => (self.idle_tally, losses, true),
        };
        let args = OutputLossArgs {
            logits,
            labels,
            slopes,
            tally: arena.at(tally),
            partial: arena.at(self.partial),
            counter: arena.at(self.counter),
            losses,
            not_numbers: arena.at(self.not_numbers),
            weights: self.weights(),
            step,
            scalars,
            n: n as i32,
            learning: i32::from(learning),
        };
        let blocks = (n as u32).div_ceil(WARPS).min(MAX_BLOCKS);
        let config = LaunchConfig { grid: (blocks, 1, 1), threads: 32 * WARPS, shared: 0 };
        // SAFETY: logits, labels and slopes have room for a full batch, the partial tallies for every block; there is a
        // weight for each class wherever the kernel looks for one.
        unsafe { self.kernel.launch(stream, config, &args) }
    }

    /// Where the weights of the classes are, null where they have none.
    pub(crate) fn weights(&self) -> DevicePtr {
        self.weights.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::start)
    }

    /// Where passes leave their number when they meet something that is no number.
    pub(crate) fn not_numbers(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.not_numbers)
    }

    /// Waits for the stream's work, and gives the number of the first pass that met something that is no number, from 1.
    pub(crate) fn read_not_numbers(&self, stream: &CudaStream, arena: &Arena) -> Result<Option<usize>, CudaError> {
        let number = arena.read::<u32>(stream, self.not_numbers, 1)?[0];
        Ok((number > 0).then_some(number as usize))
    }

    pub(crate) fn clear_not_numbers(&self, stream: &CudaStream, arena: &Arena) -> Result<(), CudaError> {
        arena.clear(stream, self.not_numbers)
    }

    pub(crate) fn clear_tally(&self, stream: &CudaStream, arena: &Arena) -> Result<(), CudaError> {
        arena.clear(stream, self.tally)
    }

    /// Waits for the stream's work.
    pub(crate) fn read_tally(&self, stream: &CudaStream, arena: &Arena) -> Result<DeviceTally, CudaError> {
        Ok(arena.read(stream, self.tally, 1)?[0])
    }

    pub(crate) fn write_tally(&self, stream: &CudaStream, arena: &Arena, tally: DeviceTally) -> Result<(), CudaError> {
        arena.write(stream, self.tally, &[tally])
    }
}
