//! Where the loss's curvature comes from, for target rules that look at it: its second derivatives by the logits, and the
//! squares of the weights, which carry it down.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::memory::DeviceBuffer;
use crate::parameters::ParameterBuffers;
use crate::precision::Precision;
use crate::stream::CudaStream;

pub(crate) const FILE: KernelFile = KernelFile { name: "curvature.cu", text: include_str!("../kernels/curvature.cu") };

kernels! {
    /// The diagonal of the loss's second derivatives by the logits.
    LossCurvatureArgs = "loss_curvature" in FILE {
        logits: DevicePtr,
        labels: DevicePtr,
        curvature: DevicePtr,
        weights: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        n: i32,
    }

    /// The squares of the parameters.
    SquareValuesArgs = "square_values" in FILE {
        values: DevicePtr,
        squares: DevicePtr,
        count: u32,
    }
}

/// Warps of a block, each for an example.
const WARPS: u32 = 8;

/// Its kernels, and the squares.
pub(crate) struct CurvaturePass {
    loss: Kernel<LossCurvatureArgs>,
    square: Kernel<SquareValuesArgs>,
    squares: DeviceBuffer,
    /// Bytes of a square.
    bytes: usize,
    count: usize,
}

impl CurvaturePass {
    /// For so many parameters.
    pub(crate) fn new(device: &Device, source: Source, count: usize, precision: Precision) -> Result<Self, CudaError> {
        let (module, bytes) = (device.module(source)?, precision.activation_bytes());
        let squares = DeviceBuffer::new(device, bytes * count, "the squares of the parameters")?;
        Ok(CurvaturePass { loss: Kernel::find(&module)?, square: Kernel::find(&module)?, squares, bytes, count })
    }

    /// Where the square of parameter number `at` is, as matrix units read it.
    pub(crate) fn squared(&self, at: usize) -> DevicePtr {
        self.squares.at(self.bytes * at)
    }

    /// Bytes of device memory that it uses.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes * self.count
    }

    /// The squares as the parameters are now, and the curvature by the logits of n examples.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        parameters: &ParameterBuffers,
        [logits, labels, curvature, weights, step, scalars]: [DevicePtr; 6],
        n: usize,
    ) -> Result<(), CudaError> {
        let (values, squares) = (parameters.value(0), self.squares.start());
        let args = SquareValuesArgs { values, squares, count: self.count as u32 };
        // SAFETY: both buffers have so many numbers.
        unsafe { self.square.launch(stream, LaunchConfig::for_items(self.count), &args)? };
        let args = LossCurvatureArgs { logits, labels, curvature, weights, step, scalars, n: n as i32 };
        let config = LaunchConfig { grid: ((n as u32).div_ceil(WARPS), 1, 1), threads: 32 * WARPS, shared: 0 };
        // SAFETY: logits and curvature have room for a full batch.
        unsafe { self.loss.launch(stream, config, &args) }
    }
}
