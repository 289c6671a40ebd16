//! Batch norm's statistics and coefficients.

use super::{BatchContext, ColumnReduction, vector};
use crate::CudaError;
use crate::arena::{ArenaLayout, Region};
use crate::compile::{File, Kernels, Source};
use crate::plan::Norm;
use crate::precision::Precision;
use crate::stream::{Args, CudaStream, LaunchConfig};
use cudarc::driver::sys::CUdeviceptr;
use ftprop_nn::Shape;

/// A norm's numbers on the device.
pub(crate) struct CompiledNorm {
    pub(super) norm: Norm,
    pub(super) tensor: usize,
    pub(super) kernels: Kernels,
    pub(super) columns: ColumnReduction,
    pub(super) channels: usize,
    pub(super) rows_per_image: usize,
    pub(super) mean: Region,
    pub(super) inverse: Region,
    pub(super) scale: Region,
    pub(super) shift: Region,
    pub(super) coefficients: Region,
    pub(super) partial: Region,
    pub(super) counter: Region,
}

impl CompiledNorm {
    /// For sums over so many rows of a full batch.
    pub(super) fn source(channels: usize, rows: usize, precision: Precision) -> Source {
        let vector = vector(&[channels]);
        let across = ColumnReduction::new(channels, vector, rows).across;
        Source::new(File::Norm, precision).int("C", channels).int("VEC", vector).int("THREADS_X", across)
    }

    pub(super) fn new(
        norm: Norm,
        tensor: usize,
        shape: Shape,
        batch: usize,
        kernels: Kernels,
        layout: &mut ArenaLayout,
    ) -> Self {
        let channels = shape.channels;
        let columns = ColumnReduction::new(channels, vector(&[channels]), batch * shape.height * shape.width);
        // Eight bytes are enough for what the kernels call sum_t.
        let mut sums = |times: usize| layout.take(8 * times * channels);
        let [mean, inverse, scale, shift, coefficients] = [1, 1, 1, 1, 3].map(&mut sums);
        CompiledNorm {
            norm,
            tensor,
            kernels,
            columns,
            channels,
            rows_per_image: shape.height * shape.width,
            mean,
            inverse,
            scale,
            shift,
            coefficients,
            partial: layout.take(8 * ColumnReduction::partial_len(channels, 2)),
            counter: layout.take(4 * columns.chunks),
        }
    }

    pub(super) fn statistics(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let rows = l.n * self.rows_per_image;
        let args = Args::default()
            .ptr(l.values(self.tensor))
            .ptrs(&self.forward(l))
            .ptrs(&self.numbers(l))
            .ptr(l.arena.at(self.partial))
            .ptr(l.arena.at(self.counter))
            .int(rows);
        // SAFETY: the arguments are those of `norm_statistics` in norm.cu.
        unsafe { stream.launch(&self.kernels, 0, self.columns.launch_config(rows), &args) }
    }

    pub(super) fn running(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let args = Args::default().ptrs(&self.forward(l)).ptrs(&self.numbers(l));
        // SAFETY: the arguments are those of `norm_running` in norm.cu.
        unsafe { stream.launch(&self.kernels, 1, LaunchConfig::for_items(self.channels), &args) }
    }

    /// The `NormForward` of norm.cuh.
    pub(super) fn forward(&self, l: &BatchContext<'_>) -> [u64; 5] {
        let (eps, momentum) = (u64::from(self.norm.eps.to_bits()), u64::from(self.norm.momentum.to_bits()));
        [
            l.flat.value(self.norm.gamma.start),
            l.flat.value(self.norm.beta.start),
            l.flat.stat(self.norm.running_mean.start),
            l.flat.stat(self.norm.running_variance.start),
            eps | momentum << 32,
        ]
    }

    /// The `NormNumbers` of norm.cuh.
    pub(super) fn numbers(&self, l: &BatchContext<'_>) -> [CUdeviceptr; 4] {
        [self.mean, self.inverse, self.scale, self.shift].map(|place| l.arena.at(place))
    }

    /// The `NormBack` of finish.cu.
    pub(super) fn back(&self, l: &BatchContext<'_>) -> [CUdeviceptr; 6] {
        [
            l.arena.at(self.mean),
            l.arena.at(self.inverse),
            l.flat.value(self.norm.gamma.start),
            l.flat.grad(self.norm.gamma.start),
            l.flat.grad(self.norm.beta.start),
            l.arena.at(self.coefficients),
        ]
    }
}
