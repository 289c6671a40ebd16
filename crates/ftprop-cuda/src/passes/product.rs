//! Products: a convolution or a fully connected layer, computed by our own kernel, by cuDNN or by cuBLASLt.

use super::{BatchContext, ColumnReduction};
use crate::CudaError;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::compile::Kernels;
use crate::cublas::Cublas;
use crate::cudnn::Cudnn;
use crate::cudnn_engines::CudnnEngine;
use crate::gemm::{Gemm, Mode, Tiling};
use crate::patch::Patch;
use crate::plan::Product;
use crate::precision::Precision;
use crate::stream::{Args, CudaStream, LaunchConfig};
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// A product with who computes it.
pub(crate) struct CompiledGemm {
    gemm: Gemm,
    backend: Backend,
}

enum Backend {
    Own {
        tiling: Tiling,
        kernels: Kernels,
        workspace: Region,
        counters: Region,
    },
    Patch {
        kernels: Kernels,
        workspace: Region,
    },
    Cudnn {
        number: usize,
        /// Before cuDNN itself, which it must not outlive.
        engine: Option<Arc<CudnnEngine>>,
        cudnn: Cudnn,
        workspace: Region,
        bytes: usize,
        /// cuDNN gives a gradient in the operands' format; where that is bf16 it is widened from here.
        narrow: Option<(Region, Kernels)>,
    },
    Cublas {
        cublas: Cublas,
        number: usize,
        workspace: Region,
    },
}

/// What cuDNN may use beyond what a full batch needs, for smaller ones.
const SLACK: usize = 32 << 20;

impl CompiledGemm {
    pub(crate) fn own(
        gemm: Gemm,
        tiling: Tiling,
        kernels: Kernels,
        workspace: Region,
        batch: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        kernels.allow_shared(0, gemm.shared_bytes(tiling.tile))?;
        let (down, across) = gemm.tiles(batch, tiling.tile);
        let counters = layout.take(4 * down * across * gemm.geometry.groups);
        Ok(CompiledGemm { gemm, backend: Backend::Own { tiling, kernels, workspace, counters } })
    }

    pub(crate) fn patch(gemm: Gemm, kernels: Kernels, workspace: Region) -> Result<Self, CudaError> {
        kernels.allow_shared(0, Patch::of(&gemm).shared_bytes())?;
        Ok(CompiledGemm { gemm, backend: Backend::Patch { kernels, workspace } })
    }

    /// `basic` are the kernels of basic.cu.
    pub(crate) fn cudnn(
        gemm: Gemm,
        cudnn: &Cudnn,
        number: usize,
        basic: &Kernels,
        workspace: Region,
        batch: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let engine = cudnn.engine(&gemm, batch, number)?;
        let bytes = CompiledGemm::bytes_of(&gemm, cudnn, engine.as_deref(), batch)?;
        let narrow = (gemm.mode == Mode::Weights && gemm.precision == Precision::Bf16)
            .then(|| (layout.take(2 * gemm.geometry.weight_len()), basic.clone()));
        let cudnn = cudnn.clone();
        Ok(CompiledGemm { gemm, backend: Backend::Cudnn { cudnn, number, engine, workspace, bytes, narrow } })
    }

    /// The workspace has [`WORKSPACE`](crate::cublas::WORKSPACE) bytes.
    pub(crate) fn cublas(gemm: Gemm, cublas: &Cublas, number: usize, workspace: Region) -> Self {
        CompiledGemm { gemm, backend: Backend::Cublas { cublas: cublas.clone(), number, workspace } }
    }

    /// Bytes of workspace to set aside for one of cuDNN's ways.
    pub(crate) fn cudnn_bytes(gemm: &Gemm, cudnn: &Cudnn, number: usize, batch: usize) -> Result<usize, CudaError> {
        CompiledGemm::bytes_of(gemm, cudnn, cudnn.engine(gemm, batch, number)?.as_deref(), batch)
    }

    /// What the engine is not made for is computed in the usual way, so there is room for that too.
    fn bytes_of(gemm: &Gemm, cudnn: &Cudnn, engine: Option<&CudnnEngine>, batch: usize) -> Result<usize, CudaError> {
        Ok(engine.map_or(0, |engine| engine.bytes).max(cudnn.workspace(gemm, batch)? + SLACK))
    }

    /// out = left · right, plus what there is to add; addresses of 0 stand for nothing. What is added to the
    /// slopes of an input are those that are there already.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        n: usize,
        [left, right, out]: [CUdeviceptr; 3],
        bias: CUdeviceptr,
        addend: CUdeviceptr,
    ) -> Result<(), CudaError> {
        match &self.backend {
            Backend::Own { tiling, kernels, workspace, counters } => {
                let (down, across) = self.gemm.tiles(n, tiling.tile);
                let launch_config = LaunchConfig {
                    grid: (down as u32, across as u32, (self.gemm.geometry.groups * tiling.split_k) as u32),
                    threads: tiling.tile.threads(),
                    shared: self.gemm.shared_bytes(tiling.tile) as u32,
                };
                let args = Args::default()
                    .ptr(left)
                    .ptr(right)
                    .ptr(out)
                    .ptr(bias)
                    .ptr(addend)
                    .ptr(arena.at(*workspace))
                    .ptr(arena.at(*counters))
                    .int(n)
                    .int(tiling.split_k);
                // SAFETY: the arguments are those of `gemm` in gemm.cu, sized for this geometry and n examples.
                unsafe { stream.launch(kernels, 0, launch_config, &args) }
            }
            Backend::Patch { kernels, workspace } => {
                let (launch_config, args) =
                    (Patch::of(&self.gemm).launch_config(n), Args::default().ptr(left).ptr(right));
                match self.gemm.mode {
                    Mode::Forward => {
                        let args = args.ptr(out).int(n);
                        // SAFETY: the arguments are those of `patch_forward` in patch.cu, sized for n examples.
                        unsafe { stream.launch(kernels, 0, launch_config, &args) }
                    }
                    Mode::Input => {
                        let args = args.ptr(out).int(usize::from(addend != 0));
                        // SAFETY: the arguments are those of `patch_back` in patch_back.cu, sized for n examples.
                        unsafe { stream.launch(kernels, 0, launch_config, &args) }
                    }
                    Mode::Weights => {
                        let (sums, count) = (arena.at(*workspace), self.gemm.geometry.weight_len());
                        let args = args.ptr(sums).int(n);
                        // SAFETY: the arguments are those of `patch_gradient` in patch_gradient.cu; the workspace has room
                        // for every block's sums.
                        unsafe { stream.launch(kernels, 0, launch_config, &args)? };
                        let args = Args::default().ptr(sums).ptr(out).int(launch_config.grid.0 as usize);
                        let add = LaunchConfig { grid: (count.div_ceil(32) as u32, 1, 1), threads: 256, shared: 0 };
                        // SAFETY: the arguments are those of `patch_sum`, for the blocks that were just launched.
                        unsafe { stream.launch(kernels, 1, add, &args) }
                    }
                }
            }
            Backend::Cudnn { cudnn, engine, workspace, bytes, narrow, .. } => {
                let to = narrow.as_ref().map_or(out, |(place, _)| arena.at(*place));
                let workspace = (arena.at(*workspace), *bytes);
                // SAFETY: the operands are this product's, sized for n examples; the workspace has its bytes.
                unsafe {
                    cudnn.run(&self.gemm, engine.as_deref(), n, stream, [left, right, to], addend != 0, workspace)?
                };
                let Some((_, basic)) = narrow else { return Ok(()) };
                let len = self.gemm.geometry.weight_len();
                let args = Args::default().ptr(to).ptr(out).int(len);
                // SAFETY: the arguments are those of `widen_values` in basic.cu.
                unsafe { stream.launch(basic, 5, LaunchConfig::for_items(len), &args) }
            }
            Backend::Cublas { cublas, number, workspace } => {
                let workspace = arena.at(*workspace);
                // SAFETY: the operands are this product's, sized for n examples; the workspace has its bytes.
                unsafe { cublas.run(&self.gemm, *number, n, stream, [left, right, out], bias, addend != 0, workspace) }
            }
        }
    }

    /// Has a library find its way before a stream is captured.
    fn prepare(&self, n: usize) -> Result<(), CudaError> {
        match &self.backend {
            Backend::Cublas { cublas, .. } => cublas.prepare(&self.gemm, n).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Who computes it, in short.
    pub(super) fn describe(&self) -> String {
        match &self.backend {
            Backend::Own { tiling, .. } => format!("{}x{}/{}", tiling.tile.rows, tiling.tile.cols, tiling.split_k),
            Backend::Patch { .. } => "patch".into(),
            Backend::Cudnn { number, .. } => format!("cudnn/{number}"),
            Backend::Cublas { number, .. } => format!("cublas/{number}"),
        }
    }
}

/// A product with its three parts.
pub(crate) struct CompiledProduct {
    pub(super) product: Product,
    pub(super) forward: CompiledGemm,
    pub(super) input: Option<CompiledGemm>,
    pub(super) weights: CompiledGemm,
    /// Whether the gradients are computed in a queue of their own.
    pub(super) on_side_stream: bool,
    pub(super) bias_sums: Option<(Kernels, ColumnReduction, Region, Region)>,
}

impl CompiledProduct {
    pub(super) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        [Some(&self.forward), self.input.as_ref(), Some(&self.weights)]
            .iter()
            .flatten()
            .try_for_each(|run| run.prepare(n))
    }

    pub(super) fn forward(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let p = &self.product;
        let operands = [l.values(p.x), l.flat.factor(p.weight.start), l.values(p.y)];
        let bias = p.bias.as_ref().map_or(0, |b| l.flat.value(b.start));
        self.forward.run(stream, l.arena, l.n, operands, bias, 0)
    }

    /// The slopes by x.
    pub(super) fn back(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let Some(input) = &self.input else { return Ok(()) };
        let p = &self.product;
        let dx = l.slopes(p.x);
        let operands = [l.slopes(p.y), l.flat.factor(p.weight.start), dx];
        input.run(stream, l.arena, l.n, operands, 0, if p.adds { dx } else { 0 })
    }

    /// The gradients of the parameters.
    pub(super) fn gradients(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let p = &self.product;
        let dy = l.slopes(p.y);
        let operands = [dy, l.values(p.x), l.flat.grad(p.weight.start)];
        self.weights.run(stream, l.arena, l.n, operands, 0, 0)?;
        let (Some(bias), Some((kernels, columns, partial, counter))) = (&p.bias, &self.bias_sums) else {
            return Ok(());
        };
        let rows = l.n * p.geometry.out_height() * p.geometry.out_width();
        let args = Args::default()
            .ptr(dy)
            .ptr(l.flat.grad(bias.start))
            .ptr(l.arena.at(*partial))
            .ptr(l.arena.at(*counter))
            .int(rows);
        // SAFETY: the arguments are those of `column_sums` in norm.cu.
        unsafe { stream.launch(kernels, 2, columns.launch_config(rows), &args) }
    }
}
