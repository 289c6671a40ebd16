//! Batch norm's statistics and coefficients.

use super::epilogue_source::turned;
use super::shared_norm::SharedNorm;
use super::{BatchContext, ColumnReduction, CompileOptions, Statistics, wide_vectors};
use crate::CudaError;
use crate::abi::{DevicePtr, NormBackward, NormParameters, NormSaved};
use crate::arena::{ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::plan::Norm;
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_nn::Shape;

/// Also has the sums of columns that a bias's gradient is.
pub(super) const FILE: KernelFile = KernelFile { name: "norm.cu", text: include_str!("../../kernels/norm.cu") };

kernels! {
    /// A norm's statistics over a batch.
    NormStatisticsArgs = "norm_statistics" in FILE {
        y: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
        partial: DevicePtr,
        counter: DevicePtr,
        rows: i32,
    }

    /// Scale and shift from the running statistics.
    NormRunningArgs = "norm_running" in FILE {
        norm: NormParameters,
        saved: NormSaved,
    }

    /// Scale and shift of a norm without statistics.
    NormFixedArgs = "norm_fixed" in FILE {
        norm: NormParameters,
        saved: NormSaved,
    }
}

/// A norm with its kernels and its numbers on the device.
pub(crate) struct CompiledNorm {
    norm: Norm,
    tensor: usize,
    statistics: Kernel<NormStatisticsArgs>,
    running: Kernel<NormRunningArgs>,
    fixed: Kernel<NormFixedArgs>,
    columns: ColumnReduction,
    channels: usize,
    rows_per_image: usize,
    pub(super) mean: Region,
    inverse: Region,
    pub(super) scale: Region,
    pub(super) shift: Region,
    pub(super) coefficients: Region,
    partial: Region,
    counter: Region,
    /// Where it goes by the examples of all GPUs.
    shared: Option<SharedNorm>,
}

/// The kernels of norm.cu, for sums over so many rows of a full batch.
pub(super) fn source(channels: usize, rows: usize, precision: Precision) -> Source {
    let width = wide_vectors(channels, 0, rows, precision);
    let threads_x = ColumnReduction::new(channels, width, rows).threads_x();
    let source = Source::new(FILE, precision).int("C", channels).int("VEC", width);
    source.int("THREADS_X", threads_x).int("TURNED", turned())
}

impl CompiledNorm {
    /// The norm of a tensor of that shape.
    pub(super) fn new(
        device: &Device,
        norm: Norm,
        tensor: usize,
        shape: Shape,
        options: &CompileOptions,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let (channels, rows_per_image) = (shape.channels, shape.height * shape.width);
        let (rows, precision) = (options.rows_for * rows_per_image, options.precision);
        let module = device.module(source(channels, rows, precision))?;
        let columns = ColumnReduction::new(channels, wide_vectors(channels, 0, rows, precision), rows);
        let shared = options.sync_norm && !norm.is_fixed();
        let shared = shared.then(|| SharedNorm::new(device, shape, options, layout)).transpose()?;
        // Eight bytes are enough for what the kernels call sum_t.
        let mut sums = |times: usize| layout.take(8 * times * channels);
        let [mean, inverse, scale, shift, coefficients] = [1, 1, 1, 1, 3].map(&mut sums);
        Ok(CompiledNorm {
            norm,
            tensor,
            statistics: Kernel::find(&module)?,
            running: Kernel::find(&module)?,
            fixed: Kernel::find(&module)?,
            columns,
            channels,
            rows_per_image,
            mean,
            inverse,
            scale,
            shift,
            coefficients,
            partial: layout.take(8 * ColumnReduction::partial_len(channels, 2)),
            counter: layout.take(4 * columns.chunks()),
            shared,
        })
    }

    /// What sums over a batch's columns need: where they are, where blocks put theirs aside, how many rows there are, and how
    /// the kernel is launched.
    pub(super) fn column_sums(&self, batch: &BatchContext<'_>) -> (DevicePtr, DevicePtr, DevicePtr, i32, LaunchConfig) {
        let rows = batch.n * self.rows_per_image;
        let (partial, counter) = (batch.at(self.partial), batch.at(self.counter));
        (batch.values(self.tensor), partial, counter, rows as i32, self.columns.launch_config(rows))
    }

    /// Whether it goes by the examples of all GPUs.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Has the way back go by the examples of all GPUs, where it is to.
    pub(super) fn agree_on_slopes(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match (&self.shared, batch.others) {
            (Some(shared), Some(others)) => shared.slopes(self, batch, others, stream),
            _ => Ok(()),
        }
    }

    /// The batch's statistics, and scale and shift from them.
    pub(super) fn statistics(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        if self.norm.is_fixed() {
            return self.fixed(batch, stream);
        }
        if let (Some(shared), Some(others)) = (&self.shared, batch.others) {
            return shared.statistics(self, batch, others, stream);
        }
        let (y, partial, counter, rows, config) = self.column_sums(batch);
        let (norm, saved) = (self.parameters(batch), self.saved(batch));
        let args = NormStatisticsArgs { y, norm, saved, partial, counter, rows };
        // SAFETY: the tensor has so many rows; the regions are sized for any number of them.
        unsafe { self.statistics.launch(stream, config, &args) }
    }

    /// Scale and shift from the running statistics.
    pub(super) fn running(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        if self.norm.is_fixed() {
            return self.fixed(batch, stream);
        }
        let args = NormRunningArgs { norm: self.parameters(batch), saved: self.saved(batch) };
        // SAFETY: all of them have as many numbers as there are channels.
        unsafe { self.running.launch(stream, LaunchConfig::for_items(self.channels), &args) }
    }

    /// Scale and shift as they are learned, for a norm without statistics.
    fn fixed(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let args = NormFixedArgs { norm: self.parameters(batch), saved: self.saved(batch) };
        // SAFETY: all of them have as many numbers as there are channels; the statistics are not read.
        unsafe { self.fixed.launch(stream, LaunchConfig::for_items(self.channels), &args) }
    }

    pub(super) fn parameters(&self, batch: &BatchContext<'_>) -> NormParameters {
        let running = self.norm.running.as_ref();
        NormParameters {
            gamma: batch.parameters.value(self.norm.gamma.start),
            beta: batch.parameters.value(self.norm.beta.start),
            running_mean: running.map_or(DevicePtr::NULL, |running| batch.parameters.stat(running.mean.start)),
            running_variance: running.map_or(DevicePtr::NULL, |running| batch.parameters.stat(running.variance.start)),
            eps: running.map_or(0.0, |running| running.eps),
            momentum: match batch.statistics {
                Statistics::Mean { before } => 1.0 / (before + 1) as f32,
                Statistics::Running | Statistics::Batch | Statistics::Again => {
                    running.map_or(0.0, |running| running.momentum)
                }
            },
        }
    }

    pub(super) fn saved(&self, batch: &BatchContext<'_>) -> NormSaved {
        let [mean, inverse, scale, shift] =
            [self.mean, self.inverse, self.scale, self.shift].map(|region| batch.at(region));
        NormSaved { mean, inverse, scale, shift }
    }

    pub(super) fn backward(&self, batch: &BatchContext<'_>) -> NormBackward {
        NormBackward {
            mean: batch.at(self.mean),
            inverse: batch.at(self.inverse),
            gamma: batch.parameters.value(self.norm.gamma.start),
            d_gamma: batch.parameters.grad(self.norm.gamma.start),
            d_beta: batch.parameters.grad(self.norm.beta.start),
            coefficients: batch.at(self.coefficients),
        }
    }
}
