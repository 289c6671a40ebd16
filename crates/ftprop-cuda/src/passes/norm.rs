//! Batch norm's statistics and coefficients.

use super::{Columns, Launch, vector};
use crate::CudaError;
use crate::arena::{Layout, Place};
use crate::compile::{File, Kernels, Source};
use crate::plan::Norm;
use crate::precision::Precision;
use crate::stream::{Args, Spread, Stream};
use cudarc::driver::sys::CUdeviceptr;
use ftprop_nn::Shape;

/// A norm's numbers on the device.
pub(crate) struct NormState {
    pub(super) norm: Norm,
    pub(super) tensor: usize,
    pub(super) kernels: Kernels,
    pub(super) columns: Columns,
    pub(super) channels: usize,
    pub(super) rows_per_image: usize,
    pub(super) mean: Place,
    pub(super) inverse: Place,
    pub(super) scale: Place,
    pub(super) shift: Place,
    pub(super) coefficients: Place,
    pub(super) partial: Place,
    pub(super) counter: Place,
}

impl NormState {
    /// For sums over so many rows of a full batch.
    pub(super) fn source(channels: usize, rows: usize, precision: Precision) -> Source {
        let vector = vector(&[channels]);
        let across = Columns::new(channels, vector, rows).across;
        Source::new(File::Norm, precision).int("C", channels).int("VEC", vector).int("ACROSS", across)
    }

    pub(super) fn new(
        norm: Norm,
        tensor: usize,
        shape: Shape,
        batch: usize,
        kernels: Kernels,
        layout: &mut Layout,
    ) -> Self {
        let channels = shape.channels;
        let columns = Columns::new(channels, vector(&[channels]), batch * shape.height * shape.width);
        // Eight bytes are enough for what the kernels call sum_t.
        let mut sums = |times: usize| layout.take(8 * times * channels);
        let [mean, inverse, scale, shift, coefficients] = [1, 1, 1, 1, 3].map(&mut sums);
        NormState {
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
            partial: layout.take(8 * Columns::partial_len(channels, 2)),
            counter: layout.take(4 * columns.chunks),
        }
    }

    pub(super) fn statistics(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let rows = l.n * self.rows_per_image;
        let args = Args::default()
            .ptr(l.values(self.tensor))
            .ptrs(&self.forward(l))
            .ptrs(&self.numbers(l))
            .ptr(l.arena.at(self.partial))
            .ptr(l.arena.at(self.counter))
            .int(rows);
        // SAFETY: the arguments are those of `norm_statistics` in norm.cu.
        unsafe { stream.launch(&self.kernels, 0, self.columns.spread(rows), &args) }
    }

    pub(super) fn running(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let args = Args::default().ptrs(&self.forward(l)).ptrs(&self.numbers(l));
        // SAFETY: the arguments are those of `norm_running` in norm.cu.
        unsafe { stream.launch(&self.kernels, 1, Spread::items(self.channels), &args) }
    }

    /// The `NormForward` of norm.cuh.
    pub(super) fn forward(&self, l: &Launch<'_>) -> [u64; 5] {
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
    pub(super) fn numbers(&self, l: &Launch<'_>) -> [CUdeviceptr; 4] {
        [self.mean, self.inverse, self.scale, self.shift].map(|place| l.arena.at(place))
    }

    /// The `NormBack` of finish.cu.
    pub(super) fn back(&self, l: &Launch<'_>) -> [CUdeviceptr; 6] {
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
