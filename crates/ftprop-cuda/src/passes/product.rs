//! Products: a convolution or a fully connected layer.

use super::{BatchContext, ColumnReduction, CompileOptions, norm, wide_vectors};
use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::Source;
use crate::compiled_gemm::CompiledGemm;
use crate::device::Device;
use crate::gemm::Operands;
use crate::kernel::Kernel;
use crate::plan::Product;
use crate::stream::CudaStream;

kernels! {
    /// The sums of a matrix's columns.
    ColumnSumsArgs = "column_sums" in norm::FILE {
        x: DevicePtr,
        out: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        rows: i32,
    }
}

/// A product with its three parts.
pub(crate) struct CompiledProduct {
    pub(super) product: Product,
    pub(super) forward: CompiledGemm,
    /// Where slopes go further down.
    pub(super) input: Option<CompiledGemm>,
    pub(super) weights: CompiledGemm,
    /// Whether the gradients are computed in the side stream.
    pub(super) on_side_stream: bool,
    pub(super) bias_gradient: Option<BiasGradient>,
}

/// The gradient of a bias that no epilogue takes along.
pub(super) struct BiasGradient {
    kernel: Kernel<ColumnSumsArgs>,
    columns: ColumnReduction,
    partial: Region,
    counter: Region,
}

impl BiasGradient {
    /// Rows that it is summed over in a full batch.
    fn rows(product: &Product, n: usize) -> usize {
        n * product.geometry.out_height() * product.geometry.out_width()
    }

    /// `None` where the product has no bias of its own.
    pub(super) fn source(product: &Product, options: &CompileOptions) -> Option<Source> {
        let rows = BiasGradient::rows(product, options.rows_for);
        product.bias.as_ref().map(|_| norm::source(product.geometry.out_channels, rows, options.precision))
    }

    pub(super) fn new(
        device: &Device,
        product: &Product,
        options: &CompileOptions,
        layout: &mut ArenaLayout,
    ) -> Result<Option<Self>, CudaError> {
        let Some(source) = BiasGradient::source(product, options) else { return Ok(None) };
        let (channels, rows) = (product.geometry.out_channels, BiasGradient::rows(product, options.rows_for));
        let columns = ColumnReduction::new(channels, wide_vectors(channels, 0, rows, options.precision), rows);
        Ok(Some(BiasGradient {
            kernel: Kernel::find(&device.module(source)?)?,
            columns,
            partial: layout.take(8 * ColumnReduction::partial_len(channels, 1)),
            counter: layout.take(4 * columns.chunks()),
        }))
    }
}

impl CompiledProduct {
    fn gemms(&self) -> impl Iterator<Item = &CompiledGemm> {
        [Some(&self.forward), self.input.as_ref(), Some(&self.weights)].into_iter().flatten()
    }

    pub(super) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        self.gemms().try_for_each(|gemm| gemm.prepare(n))
    }

    pub(super) fn sources_for(&self, n: usize) -> Vec<Source> {
        self.gemms().filter_map(|gemm| gemm.source_for(n)).collect()
    }

    pub(super) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let p = &self.product;
        let mut operands =
            Operands::new(batch.values(p.x), batch.parameters.operand(p.weight.start), batch.values(p.y));
        if let Some(bias) = &p.bias {
            operands.bias = batch.parameters.value(bias.start);
        }
        self.forward.run(stream, batch.arena, batch.n, operands)
    }

    /// The slopes by x.
    pub(super) fn backward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let Some(input) = &self.input else { return Ok(()) };
        let p = &self.product;
        let dx = batch.slopes(p.x);
        let mut operands = Operands::new(batch.slopes(p.y), batch.parameters.operand(p.weight.start), dx);
        if p.adds {
            operands.addend = dx;
        }
        input.run(stream, batch.arena, batch.n, operands)
    }

    fn gradient_operands(&self, batch: &BatchContext<'_>) -> Operands {
        let p = &self.product;
        Operands::new(batch.slopes(p.y), batch.values(p.x), batch.parameters.grad(p.weight.start))
    }

    /// Whether [`gradients`](Self::gradients) leaves them where only [`end_gradients`](Self::end_gradients) finds them.
    pub(super) fn has_end(&self, n: usize) -> bool {
        self.weights.has_end(n)
    }

    /// Puts the gradients of the weights where they belong; nothing but the optimizer waits for it.
    pub(super) fn end_gradients(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        self.weights.end(stream, batch.arena, batch.n, self.gradient_operands(batch))
    }

    /// The gradients of the parameters.
    pub(super) fn gradients(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        self.weights.begin(stream, batch.arena, batch.n, self.gradient_operands(batch))?;
        self.bias_gradient(batch, stream)
    }

    /// The gradient of the bias, if it is the product's own.
    pub(super) fn bias_gradient(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let p = &self.product;
        let dy = batch.slopes(p.y);
        let (Some(bias), Some(gradient)) = (&p.bias, &self.bias_gradient) else { return Ok(()) };
        let rows = BiasGradient::rows(p, batch.n);
        let args = ColumnSumsArgs {
            x: dy,
            out: batch.parameters.grad(bias.start),
            partial: batch.at(gradient.partial),
            counter: batch.at(gradient.counter),
            rows: rows as i32,
        };
        // SAFETY: the slopes have so many rows; the regions are sized for any number of them.
        unsafe { gradient.kernel.launch(stream, gradient.columns.launch_config(rows), &args) }
    }
}
