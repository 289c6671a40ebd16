//! Average pooling.

use super::{BatchContext, vector};
use crate::CudaError;
use crate::compile::{File, Kernels, Source};
use crate::plan::AveragePool;
use crate::precision::Precision;
use crate::stream::{Args, CudaStream, LaunchConfig};

/// An average pooling with its kernels.
pub(crate) struct CompiledAveragePool {
    pub(super) average: AveragePool,
    pub(super) kernels: Kernels,
    pub(super) vector: usize,
}

impl CompiledAveragePool {
    pub(super) fn source(a: &AveragePool, precision: Precision) -> Source {
        let g = &a.geometry;
        Source::new(File::AveragePool, precision)
            .int("C", g.channels)
            .int("VEC", vector(&[g.channels]))
            .int("HEIGHT", g.height)
            .int("WIDTH", g.width)
            .int("POOL_KERNEL", g.kernel)
            .int("POOL_STRIDE", g.stride)
            .int("POOL_PAD", g.pad)
            .int("POOL_H", g.out_height())
            .int("POOL_W", g.out_width())
    }

    pub(super) fn forward(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let a = &self.average;
        let args = Args::default().ptr(l.values(a.x)).ptr(l.values(a.out)).int(l.n);
        let items = l.n * a.geometry.out_len() / self.vector;
        // SAFETY: the arguments are those of `average` in average_pool.cu.
        unsafe { stream.launch(&self.kernels, 0, LaunchConfig::for_items(items), &args) }
    }

    pub(super) fn back(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let a = &self.average;
        if l.slopes(a.x) == 0 {
            return Ok(());
        }
        let args = Args::default().ptr(l.slopes(a.out)).ptr(l.slopes(a.x)).int(l.n).int(usize::from(a.adds));
        let items = l.n * a.geometry.in_len() / self.vector;
        // SAFETY: the arguments are those of `average_back` in average_pool.cu.
        unsafe { stream.launch(&self.kernels, 1, LaunchConfig::for_items(items), &args) }
    }
}
