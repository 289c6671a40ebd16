//! Batch norm over the examples of all GPUs that share a batch: what each sums, and what follows from the sums of all.

use super::column_reduction::ColumnReduction;
use super::epilogue_source::turned;
use super::norm::CompiledNorm;
use super::{BatchContext, CompileOptions, wide_vectors};
use crate::CudaError;
use crate::abi::{DevicePtr, NormParameters, NormSaved};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_nn::Shape;

const FILE: KernelFile = KernelFile { name: "shared_norm.cu", text: include_str!("../../kernels/shared_norm.cu") };

kernels! {
    /// What a norm sums of the examples that are here.
    NormMomentsArgs = "norm_moments" in FILE {
        y: DevicePtr,
        shared: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        rows: i32,
    }

    /// A norm's statistics from the sums over all GPUs.
    NormAgreedArgs = "norm_agreed" in FILE {
        shared: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
    }

    /// What the way back sums of the examples that are here.
    NormSlopeSumsArgs = "norm_slope_sums" in FILE {
        d_gamma: DevicePtr,
        d_beta: DevicePtr,
        shared: DevicePtr,
    }

    /// The coefficients of the way back from the sums over all GPUs.
    NormAgreedSlopesArgs = "norm_agreed_slopes" in FILE {
        shared: DevicePtr,
        gamma: DevicePtr,
        saved: NormSaved,
        coefficients: DevicePtr,
    }
}

/// Those who have a batch's other examples.
pub(crate) trait Others {
    /// Every one of the first `count` f64 of a region becomes its sum over all, in order with the stream's work.
    fn sum(&self, arena: &Arena, region: Region, count: usize, stream: &CudaStream) -> Result<(), CudaError>;
}

/// The kernels of a norm that goes by the examples of all GPUs, and what is summed.
pub(super) struct SharedNorm {
    moments: Kernel<NormMomentsArgs>,
    agreed: Kernel<NormAgreedArgs>,
    slope_sums: Kernel<NormSlopeSumsArgs>,
    agreed_slopes: Kernel<NormAgreedSlopesArgs>,
    /// Two numbers a channel, then how many rows there are in all.
    sums: Region,
    channels: usize,
}

/// The kernels of shared_norm.cu, for sums over so many rows of a full batch.
pub(super) fn source(channels: usize, rows: usize, precision: Precision) -> Source {
    let width = wide_vectors(channels, 0, rows, precision);
    let threads_x = ColumnReduction::new(channels, width, rows).threads_x();
    let source = Source::new(FILE, precision).int("C", channels).int("VEC", width);
    source.int("THREADS_X", threads_x).int("TURNED", turned())
}

impl SharedNorm {
    pub(super) fn new(
        device: &Device,
        shape: Shape,
        options: &CompileOptions,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let rows = options.rows_for * shape.height * shape.width;
        let module = device.module(source(shape.channels, rows, options.precision))?;
        Ok(SharedNorm {
            moments: Kernel::find(&module)?,
            agreed: Kernel::find(&module)?,
            slope_sums: Kernel::find(&module)?,
            agreed_slopes: Kernel::find(&module)?,
            sums: layout.take(8 * (2 * shape.channels + 1)),
            channels: shape.channels,
        })
    }

    fn threads(&self) -> LaunchConfig {
        // One thread a channel; the kernels do not walk.
        LaunchConfig { grid: (self.channels.div_ceil(256) as u32, 1, 1), threads: 256, shared: 0 }
    }

    /// The statistics of all examples, and scale and shift from them.
    pub(super) fn statistics(
        &self,
        norm: &CompiledNorm,
        batch: &BatchContext<'_>,
        others: &dyn Others,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let shared = batch.at(self.sums);
        if batch.n == 0 {
            batch.arena.clear(stream, self.sums)?;
        } else {
            let (y, partial, counter, rows, config) = norm.column_sums(batch);
            let args = NormMomentsArgs { y, shared, partial, counter, rows };
            // SAFETY: the tensor has so many rows; the regions are sized for any number of them.
            unsafe { self.moments.launch(stream, config, &args)? };
        }
        others.sum(batch.arena, self.sums, 2 * self.channels + 1, stream)?;
        let args = NormAgreedArgs { shared, norm: norm.parameters(batch), saved: norm.saved(batch) };
        // SAFETY: all of them have as many numbers as there are channels.
        unsafe { self.agreed.launch(stream, self.threads(), &args) }
    }

    /// The coefficients of the way back, once the gradients of the examples that are here are there.
    pub(super) fn slopes(
        &self,
        norm: &CompiledNorm,
        batch: &BatchContext<'_>,
        others: &dyn Others,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let (shared, back) = (batch.at(self.sums), norm.backward(batch));
        // Where none are, the gradients have been cleared.
        let args = NormSlopeSumsArgs { d_gamma: back.d_gamma, d_beta: back.d_beta, shared };
        // SAFETY: all of them have as many numbers as there are channels.
        unsafe { self.slope_sums.launch(stream, self.threads(), &args)? };
        others.sum(batch.arena, self.sums, 2 * self.channels, stream)?;
        let (gamma, saved, coefficients) = (back.gamma, norm.saved(batch), back.coefficients);
        let args = NormAgreedSlopesArgs { shared, gamma, saved, coefficients };
        // SAFETY: as above, and three coefficients a channel.
        unsafe { self.agreed_slopes.launch(stream, self.threads(), &args) }
    }
}
