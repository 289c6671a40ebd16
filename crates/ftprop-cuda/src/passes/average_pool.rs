//! Average pooling.

use super::{BatchContext, vector_width};
use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::plan::AveragePool;
use crate::precision::Precision;
use crate::stream::CudaStream;

const FILE: KernelFile = KernelFile { name: "average_pool.cu", text: include_str!("../../kernels/average_pool.cu") };

kernels! {
    /// Average pooling.
    AveragePoolForwardArgs = "average_pool_forward" in FILE {
        x: DevicePtr,
        y: DevicePtr,
        n: i32,
    }

    /// The slopes by what was pooled.
    AveragePoolBackwardArgs = "average_pool_backward" in FILE {
        dy: DevicePtr,
        dx: DevicePtr,
        n: i32,
        accumulate: i32,
        share: f32,
    }
}

/// An average pooling with its kernels.
pub(crate) struct CompiledAveragePool {
    pub(super) average: AveragePool,
    forward: Kernel<AveragePoolForwardArgs>,
    backward: Kernel<AveragePoolBackwardArgs>,
    vector_width: usize,
}

/// Channels that one thread takes: as many as 16 bytes hold, where they come out even.
fn channels_at_once(channels: usize, precision: Precision) -> usize {
    let wide = precision == Precision::Bf16 && channels.is_multiple_of(8);
    if wide { 8 } else { vector_width(&[channels]) }
}

impl CompiledAveragePool {
    pub(super) fn source(a: &AveragePool, precision: Precision) -> Source {
        let g = &a.geometry;
        Source::new(FILE, precision)
            .int("C", g.channels)
            .int("VEC", channels_at_once(g.channels, precision))
            .int("HEIGHT", g.height)
            .int("WIDTH", g.width)
            .int("POOL_KERNEL", g.kernel)
            .int("POOL_STRIDE", g.stride)
            .int("POOL_PAD", g.pad)
            .int("POOL_H", g.out_height())
            .int("POOL_W", g.out_width())
    }

    pub(super) fn new(device: &Device, average: AveragePool, precision: Precision) -> Result<Self, CudaError> {
        let module = device.module(CompiledAveragePool::source(&average, precision))?;
        let vector_width = channels_at_once(average.geometry.channels, precision);
        let (forward, backward) = (Kernel::find(&module)?, Kernel::find(&module)?);
        Ok(CompiledAveragePool { average, forward, backward, vector_width })
    }

    pub(super) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let a = &self.average;
        let args = AveragePoolForwardArgs { x: batch.values(a.x), y: batch.values(a.out), n: batch.n as i32 };
        let items = batch.n * a.geometry.out_len() / self.vector_width;
        // SAFETY: both tensors have room for a full batch.
        unsafe { self.forward.launch(stream, LaunchConfig::for_items(items), &args) }
    }

    pub(super) fn backward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        self.down(batch.slopes(self.average.out), batch.slopes(self.average.x), self.share(), batch.n, stream)
    }

    /// The loss's curvature goes by the squares of what slopes are multiplied by.
    pub(super) fn carry(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (from, to, share) = (batch.curvature(self.average.out), batch.curvature(self.average.x), self.share());
        self.down(from, to, share * share, batch.n, stream)
    }

    /// The share that a pixel has of its window.
    fn share(&self) -> f32 {
        1.0 / (self.average.geometry.kernel * self.average.geometry.kernel) as f32
    }

    /// What comes down from windows to their pixels, by a share for each.
    fn down(&self, dy: DevicePtr, dx: DevicePtr, share: f32, n: usize, stream: &CudaStream) -> Result<(), CudaError> {
        if dx.is_null() {
            return Ok(());
        }
        let a = &self.average;
        let args = AveragePoolBackwardArgs { dy, dx, n: n as i32, accumulate: i32::from(a.adds), share };
        let items = n * a.geometry.in_len() / self.vector_width;
        // SAFETY: both tensors' slopes have room for a full batch.
        unsafe { self.backward.launch(stream, LaunchConfig::for_items(items), &args) }
    }
}
