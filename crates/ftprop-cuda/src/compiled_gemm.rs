//! A product with what computes it: our own kernels, cuDNN or cuBLASLt.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::basic;
use crate::compile::Source;
use crate::cublas::{Cublas, WORKSPACE};
use crate::cudnn::Cudnn;
use crate::cudnn_engines::CudnnEngine;
use crate::device::Device;
use crate::gemm::{Algorithm, Gemm, Mode, Operands, Tiling};
use crate::joined::{JoinKernels, Joined};
use crate::kernel::{Kernel, LaunchConfig};
use crate::libraries::Libraries;
use crate::patch::Patch;
use crate::precision::Precision;
use crate::shifted::{Shifted, ShiftedKernels};
use crate::stream::CudaStream;
use std::sync::{Arc, OnceLock};

kernels! {
    /// A tiled product.
    GemmArgs = "gemm" in crate::gemm::FILE {
        left: DevicePtr,
        right: DevicePtr,
        out: DevicePtr,
        bias: DevicePtr,
        addend: DevicePtr,
        workspace: DevicePtr,
        counters: DevicePtr,
        n: i32,
        split_k: i32,
    }

    /// A convolution of pictures.
    PatchForwardArgs = "patch_forward" in crate::patch::FORWARD_FILE {
        x: DevicePtr,
        w: DevicePtr,
        y: DevicePtr,
        n: i32,
    }

    /// The slopes by a convolution's input.
    PatchBackwardArgs = "patch_backward" in crate::patch::BACKWARD_FILE {
        dy: DevicePtr,
        w: DevicePtr,
        dx: DevicePtr,
        accumulate: i32,
    }

    /// Each block's sums of the gradient of filters.
    PatchGradientArgs = "patch_gradient" in crate::patch::GRADIENT_FILE {
        dy: DevicePtr,
        x: DevicePtr,
        sums: DevicePtr,
        n: i32,
    }

    /// Adds up what the blocks of [`PatchGradientArgs`] wrote.
    PatchGradientReduceArgs = "patch_gradient_reduce" in crate::patch::GRADIENT_FILE {
        sums: DevicePtr,
        out: DevicePtr,
        blocks: i32,
    }

    /// From bf16 to f32.
    WidenValuesArgs = "widen_values" in basic::FILE {
        from: DevicePtr,
        to: DevicePtr,
        count: u32,
    }
}

/// A product ready to run on batches of up to a size.
pub(crate) struct CompiledGemm {
    gemm: Gemm,
    backend: Backend,
    workspace: Region,
    /// Libraries give a gradient in the operands' format; where that is bf16 it is widened from here.
    narrow: Option<(Region, Kernel<WidenValuesArgs>)>,
    /// Where a library sees joined pixels: its filters, or their gradients.
    joined: Option<(Joined, Region, JoinKernels)>,
}

enum Backend {
    Tiled {
        tiling: Tiling,
        kernel: Kernel<GemmArgs>,
        counters: Region,
    },
    Patch(PatchKernels),
    Shifted(ShiftedKernels),
    Cudnn {
        number: usize,
        /// Before cuDNN itself, which it must not outlive.
        engine: Option<Arc<CudnnEngine>>,
        cudnn: Cudnn,
        bytes: usize,
        /// What it was chosen for.
        batch: usize,
        /// For batches of other sizes, of which only ours is known to need no more room.
        spare: Spare,
    },
    Cublas {
        cublas: Cublas,
        number: usize,
    },
}

/// Our own kernel for what another computes, compiled when it is first needed.
struct Spare {
    device: Device,
    tiling: Tiling,
    counters: Region,
    kernel: OnceLock<Kernel<GemmArgs>>,
}

enum PatchKernels {
    Forward(Kernel<PatchForwardArgs>),
    Input(Kernel<PatchBackwardArgs>),
    Weights { gradient: Kernel<PatchGradientArgs>, reduce: Kernel<PatchGradientReduceArgs> },
}

impl CompiledGemm {
    /// The source of our own kernels for an algorithm, if it is one of ours.
    pub(crate) fn source(gemm: &Gemm, algorithm: Algorithm) -> Option<Source> {
        match algorithm {
            Algorithm::Tiled(tiling) => Some(gemm.source(tiling.tile)),
            Algorithm::Patch => Some(Patch::of(gemm).source()),
            Algorithm::Shifted(cut) => Some(Shifted::of(gemm, cut).source()),
            Algorithm::Cudnn(_) | Algorithm::Cublas(_) => None,
        }
    }

    /// Bytes of workspace that an algorithm needs for batches of n.
    pub(crate) fn workspace(
        gemm: &Gemm,
        algorithm: Algorithm,
        libraries: &Libraries,
        n: usize,
    ) -> Result<usize, CudaError> {
        Ok(match algorithm {
            Algorithm::Tiled(tiling) => 4 * gemm.workspace(n, tiling),
            Algorithm::Patch => 4 * Patch::of(gemm).workspace(n),
            Algorithm::Shifted(cut) => 4 * Shifted::of(gemm, cut).workspace(n),
            Algorithm::Cudnn(number) => {
                let cudnn = libraries.cudnn()?;
                let spare = 4 * gemm.workspace(n, gemm.guess(n, cudnn.device().limits()?));
                cudnn.bytes_to_set_aside(gemm, n, number)?.max(spare)
            }
            Algorithm::Cublas(_) => WORKSPACE,
        })
    }

    /// For batches of up to so many examples, with a workspace of [`workspace`](Self::workspace) bytes.
    pub(crate) fn new(
        device: &Device,
        gemm: Gemm,
        algorithm: Algorithm,
        libraries: &Libraries,
        workspace: Region,
        batch: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let backend = match algorithm {
            Algorithm::Tiled(tiling) => Backend::tiled(device, &gemm, tiling, batch, layout)?,
            Algorithm::Patch => Backend::Patch(PatchKernels::new(device, &gemm)?),
            Algorithm::Shifted(cut) => Backend::Shifted(ShiftedKernels::new(device, &gemm, cut)?),
            Algorithm::Cudnn(number) => Backend::cudnn(device, &gemm, libraries.cudnn()?, number, batch, layout)?,
            Algorithm::Cublas(number) => Backend::Cublas { cublas: libraries.cublas()?.clone(), number },
        };
        let library = matches!(algorithm, Algorithm::Cudnn(_) | Algorithm::Cublas(_));
        let joined = gemm.joined().filter(|_| matches!(algorithm, Algorithm::Cudnn(_)));
        let joined = joined.map(|joined| {
            let filters = layout.take(joined.filters_len() * gemm.precision.activation_bytes());
            Ok::<_, CudaError>((joined, filters, JoinKernels::new(device, gemm.precision)?))
        });
        let joined = joined.transpose()?;
        let weights = gemm.mode == Mode::Weights && joined.is_none();
        let narrow = library && weights && gemm.precision == Precision::Bf16;
        let narrow = narrow.then(|| {
            let widen = Kernel::find(&device.module(basic::source(gemm.precision))?)?;
            Ok::<_, CudaError>((layout.take(2 * gemm.geometry.weight_len()), widen))
        });
        Ok(CompiledGemm { gemm, backend, workspace, narrow: narrow.transpose()?, joined })
    }

    /// Puts the product of n examples into a stream.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        n: usize,
        operands: Operands,
    ) -> Result<(), CudaError> {
        self.begin(stream, arena, n, operands)?;
        self.end(stream, arena, n, operands)
    }

    /// The same up to [`end`](Self::end).
    pub(crate) fn begin(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        n: usize,
        operands: Operands,
    ) -> Result<(), CudaError> {
        let workspace = arena.at(self.workspace);
        match &self.backend {
            Backend::Tiled { tiling, kernel, counters } => {
                self.run_tiled(*tiling, kernel, stream, n, operands, (workspace, arena.at(*counters)))
            }
            Backend::Patch(kernels) => kernels.run(&Patch::of(&self.gemm), stream, n, operands, workspace),
            Backend::Shifted(kernels) => kernels.run(stream, n, operands, workspace),
            Backend::Cudnn { batch, spare, .. } if *batch != n => {
                let kernel = spare.kernel(&self.gemm)?;
                self.run_tiled(spare.tiling, kernel, stream, n, operands, (workspace, arena.at(spare.counters)))
            }
            Backend::Cudnn { cudnn, engine, bytes, .. } => {
                let to = self.joined_or(stream, arena, self.narrow_or(arena, operands))?;
                // SAFETY: the operands are this product's, sized for n examples; the workspace has its bytes.
                unsafe { cudnn.run(&self.gemm, engine.as_deref(), n, stream, to, (workspace, *bytes)) }
            }
            Backend::Cublas { cublas, number } => {
                let to = self.narrow_or(arena, operands);
                // SAFETY: the operands are this product's, sized for n examples; the workspace has its bytes.
                unsafe { cublas.run(&self.gemm, *number, n, stream, to, workspace) }
            }
        }
    }

    /// Whether something is left to [`end`](Self::end) for n examples.
    pub(crate) fn has_end(&self, n: usize) -> bool {
        let library = match &self.backend {
            Backend::Tiled { .. } | Backend::Patch(_) | Backend::Shifted(_) => false,
            Backend::Cudnn { batch, .. } => *batch == n,
            Backend::Cublas { .. } => true,
        };
        library && self.gemm.mode == Mode::Weights && (self.narrow.is_some() || self.joined.is_some())
    }

    /// Puts a gradient that a library gave where it belongs, in its format.
    pub(crate) fn end(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        n: usize,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match (&self.joined, &self.narrow) {
            _ if !self.has_end(n) => Ok(()),
            // SAFETY: there are the gradients of all joined filters, and room for those of the product's own.
            (Some((joined, from, kernels)), _) => unsafe {
                kernels.part(&self.gemm.geometry, joined, (arena.at(*from), operands.out), stream)
            },
            (None, Some((from, widen))) => {
                let len = self.gemm.geometry.weight_len();
                let args = WidenValuesArgs { from: arena.at(*from), to: operands.out, count: len as u32 };
                // SAFETY: both have as many numbers as there are weights.
                unsafe { widen.launch(stream, LaunchConfig::for_items(len.div_ceil(4)), &args) }
            }
            (None, None) => Ok(()),
        }
    }

    /// The operands with the place for what a library gives in bf16, where there is one.
    fn narrow_or(&self, arena: &Arena, operands: Operands) -> Operands {
        Operands { out: self.narrow.as_ref().map_or(operands.out, |(region, _)| arena.at(*region)), ..operands }
    }

    /// The operands with filters for joined pixels, or the place for their gradients, where pixels are joined.
    fn joined_or(&self, stream: &CudaStream, arena: &Arena, operands: Operands) -> Result<Operands, CudaError> {
        let Some((joined, region, kernels)) = &self.joined else { return Ok(operands) };
        let filters = arena.at(*region);
        if self.gemm.mode == Mode::Weights {
            return Ok(Operands { out: filters, ..operands });
        }
        // SAFETY: the right operand is this product's filters; the region has room for all joined ones.
        unsafe { kernels.join(&self.gemm.geometry, joined, (operands.right, filters), stream)? };
        Ok(Operands { right: filters, ..operands })
    }

    /// With a tiled kernel, its workspace and its counters.
    fn run_tiled(
        &self,
        tiling: Tiling,
        kernel: &Kernel<GemmArgs>,
        stream: &CudaStream,
        n: usize,
        Operands { left, right, out, bias, addend }: Operands,
        (workspace, counters): (DevicePtr, DevicePtr),
    ) -> Result<(), CudaError> {
        let (down, across) = self.gemm.tiles(n, tiling.tile);
        let config = LaunchConfig {
            grid: (down as u32, across as u32, (self.gemm.geometry.groups * tiling.split_k) as u32),
            threads: tiling.tile.threads(),
            shared: self.gemm.shared_bytes(tiling.tile) as u32,
        };
        let (n, split_k) = (n as i32, tiling.split_k as i32);
        let args = GemmArgs { left, right, out, bias, addend, workspace, counters, n, split_k };
        // SAFETY: the operands are this product's, sized for n examples, as are workspace and counters.
        unsafe { kernel.launch(stream, config, &args) }
    }

    /// What has to be compiled before batches of n run.
    pub(crate) fn source_for(&self, n: usize) -> Option<Source> {
        match &self.backend {
            Backend::Cudnn { batch, spare, .. } if *batch != n => Some(self.gemm.source(spare.tiling.tile)),
            _ => None,
        }
    }

    /// Has a library choose its kernel before a stream is captured.
    pub(crate) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        match &self.backend {
            Backend::Cudnn { batch, spare, .. } if *batch != n => spare.kernel(&self.gemm).map(|_| ()),
            Backend::Cublas { cublas, .. } => cublas.prepare(&self.gemm, n).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// What computes it, in short.
    pub(crate) fn describe(&self) -> String {
        match &self.backend {
            Backend::Tiled { tiling, .. } => format!("{}x{}/{}", tiling.tile.rows, tiling.tile.cols, tiling.split_k),
            Backend::Patch(_) => "patch".into(),
            Backend::Shifted(kernels) => kernels.describe(),
            Backend::Cudnn { number, .. } => format!("cudnn/{number}"),
            Backend::Cublas { number, .. } => format!("cublas/{number}"),
        }
    }
}

impl Backend {
    fn tiled(
        device: &Device,
        gemm: &Gemm,
        tiling: Tiling,
        batch: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let kernel = tiled_kernel(device, gemm, tiling)?;
        Ok(Backend::Tiled { tiling, kernel, counters: tile_counters(gemm, tiling, batch, layout) })
    }

    fn cudnn(
        device: &Device,
        gemm: &Gemm,
        cudnn: &Cudnn,
        number: usize,
        batch: usize,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let engine = cudnn.engine(gemm, batch, number)?;
        let bytes = cudnn.bytes_to_set_aside(gemm, batch, number)?;
        let tiling = gemm.guess(batch, device.limits()?);
        let counters = tile_counters(gemm, tiling, batch, layout);
        let spare = Spare { device: device.clone(), tiling, counters, kernel: OnceLock::new() };
        Ok(Backend::Cudnn { cudnn: cudnn.clone(), number, engine, bytes, batch, spare })
    }
}

impl Spare {
    fn kernel(&self, gemm: &Gemm) -> Result<&Kernel<GemmArgs>, CudaError> {
        if self.kernel.get().is_none() {
            let _ = self.kernel.set(tiled_kernel(&self.device, gemm, self.tiling)?);
        }
        Ok(self.kernel.get().expect("set above"))
    }
}

fn tiled_kernel(device: &Device, gemm: &Gemm, tiling: Tiling) -> Result<Kernel<GemmArgs>, CudaError> {
    let kernel = Kernel::find(&device.module(gemm.source(tiling.tile))?)?;
    kernel.allow_shared(gemm.shared_bytes(tiling.tile))?;
    Ok(kernel)
}

fn tile_counters(gemm: &Gemm, tiling: Tiling, batch: usize, layout: &mut ArenaLayout) -> Region {
    let (down, across) = gemm.tiles(batch, tiling.tile);
    layout.take(4 * down * across * gemm.geometry.groups)
}

impl PatchKernels {
    fn new(device: &Device, gemm: &Gemm) -> Result<Self, CudaError> {
        let patch = Patch::of(gemm);
        let (module, shared) = (device.module(patch.source())?, patch.shared_bytes());
        Ok(match gemm.mode {
            Mode::Forward => {
                let forward = Kernel::find(&module)?;
                forward.allow_shared(shared)?;
                PatchKernels::Forward(forward)
            }
            Mode::Input => {
                let input = Kernel::find(&module)?;
                input.allow_shared(shared)?;
                PatchKernels::Input(input)
            }
            Mode::Weights => {
                let gradient = Kernel::find(&module)?;
                gradient.allow_shared(shared)?;
                PatchKernels::Weights { gradient, reduce: Kernel::find(&module)? }
            }
        })
    }

    fn run(
        &self,
        patch: &Patch,
        stream: &CudaStream,
        n: usize,
        Operands { left, right, out, addend, .. }: Operands,
        sums: DevicePtr,
    ) -> Result<(), CudaError> {
        let config = patch.launch_config(n);
        match self {
            PatchKernels::Forward(kernel) => {
                let args = PatchForwardArgs { x: left, w: right, y: out, n: n as i32 };
                // SAFETY: the operands are this product's, sized for n examples.
                unsafe { kernel.launch(stream, config, &args) }
            }
            PatchKernels::Input(kernel) => {
                let args = PatchBackwardArgs { dy: left, w: right, dx: out, accumulate: i32::from(!addend.is_null()) };
                // SAFETY: the operands are this product's, sized for n examples.
                unsafe { kernel.launch(stream, config, &args) }
            }
            PatchKernels::Weights { gradient, reduce } => {
                let args = PatchGradientArgs { dy: left, x: right, sums, n: n as i32 };
                // SAFETY: the operands are this product's; the workspace has room for every block's sums.
                unsafe { gradient.launch(stream, config, &args)? };
                let args = PatchGradientReduceArgs { sums, out, blocks: config.grid.0 as i32 };
                let blocks = patch.weights().div_ceil(32) as u32;
                let config = LaunchConfig { grid: (blocks, 1, 1), threads: 256, shared: 0 };
                // SAFETY: the sums are those of the blocks that were just launched.
                unsafe { reduce.launch(stream, config, &args) }
            }
        }
    }
}
