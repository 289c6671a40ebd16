//! The passes of a plan with their kernels and their places in memory, and how each is put into a stream.
//!
//! | module | subject |
//! | --- | --- |
//! | `product` | convolutions and fully connected layers, by our kernel, cuDNN or cuBLASLt |
//! | `epilogue`, `norm` | what follows a product, and batch norm's numbers for it |
//! | `average` | average pooling |

mod average_pool;
mod epilogue;
mod norm;
mod product;

pub(crate) use product::CompiledGemm;

use crate::CudaError;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::compile::{Kernels, Source};
use crate::cublas::WORKSPACE;
use crate::gemm::{Algorithm, Gemm, Mode};
use crate::patch::Patch;
use crate::plan::{Affine, FusedPass, FusionPlan};
use crate::precision::Precision;
use crate::stream::{CudaStream, LaunchConfig};
use crate::tuning::Libraries;
use average_pool::CompiledAveragePool;
use cudarc::driver::sys::CUdeviceptr;
use epilogue::CompiledEpilogue;
use norm::CompiledNorm;
use product::CompiledProduct;

/// The flat buffers, by address.
#[derive(Clone, Copy)]
pub(crate) struct FlatBuffers {
    pub(crate) values: CUdeviceptr,
    /// What the matrix units read: the values, or their bf16 copy.
    pub(crate) factors: CUdeviceptr,
    pub(crate) factor_bytes: u64,
    pub(crate) grads: CUdeviceptr,
    pub(crate) stats: CUdeviceptr,
    pub(crate) step: CUdeviceptr,
    pub(crate) scalars: CUdeviceptr,
}

impl FlatBuffers {
    fn value(&self, at: usize) -> CUdeviceptr {
        self.values + 4 * at as u64
    }

    fn grad(&self, at: usize) -> CUdeviceptr {
        self.grads + 4 * at as u64
    }

    fn factor(&self, at: usize) -> CUdeviceptr {
        self.factors + self.factor_bytes * at as u64
    }

    fn stat(&self, at: usize) -> CUdeviceptr {
        self.stats + 4 * at as u64
    }
}

/// Where a tensor's values and the slopes by them are.
#[derive(Clone, Copy)]
pub(crate) struct TensorRegions {
    pub(crate) values: Region,
    pub(crate) slopes: Option<Region>,
}

/// What a launch needs on_side_stream its pass.
pub(crate) struct BatchContext<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) tensors: &'a [TensorRegions],
    pub(crate) flat: FlatBuffers,
    pub(crate) n: usize,
}

impl BatchContext<'_> {
    fn values(&self, tensor: usize) -> CUdeviceptr {
        self.arena.at(self.tensors[tensor].values)
    }

    /// 0, a null pointer, where there are none.
    fn slopes(&self, tensor: usize) -> CUdeviceptr {
        self.tensors[tensor].slopes.map_or(0, |place| self.arena.at(place))
    }
}

/// What all passes of a network have in common.
pub(crate) struct CompileOptions {
    pub(crate) precision: Precision,
    /// A full batch.
    pub(crate) batch: usize,
    /// Whether the network has the GPU to itself: then there is a second queue for gradients.
    pub(crate) alone: bool,
    /// How many blocks may wait for each other.
    pub(crate) cooperative_blocks: usize,
}

/// How sums over a matrix's columns are spread over the device, as norm.cuh has it.
#[derive(Clone, Copy)]
pub(crate) struct ColumnReduction {
    across: usize,
    chunks: usize,
    down: usize,
}

impl ColumnReduction {
    pub(crate) const THREADS: u32 = 512;
    const MOST_BLOCKS: usize = 264;
    /// The most rows that a thread keeps while it waits for others.
    const MOST_KEPT: usize = 8;

    /// For so many rows of a full batch. Few channels a block mean few blocks whose sums have to be added up, many mean
    /// longer reads; where there is little to read, the first counts.
    pub(crate) fn new(channels: usize, vector: usize, rows: usize) -> Self {
        let groups = channels / vector;
        let across = if rows * groups <= 1 << 20 { 16 / vector } else { groups.min(256) };
        ColumnReduction { across, chunks: groups.div_ceil(across), down: ColumnReduction::THREADS as usize / across }
    }

    pub(crate) fn launch_config(&self, rows: usize) -> LaunchConfig {
        let most = (ColumnReduction::MOST_BLOCKS / self.chunks).max(1);
        self.blocks(rows.div_ceil(self.down * 4).clamp(1, most))
    }

    fn blocks(&self, down: usize) -> LaunchConfig {
        LaunchConfig { grid: (down as u32, self.chunks as u32, 1), threads: ColumnReduction::THREADS, shared: 0 }
    }

    /// So many blocks at most, which all run at once, and how many rows each thread then has; `None` where these are too
    /// many.
    fn cooperative(&self, rows: usize, cooperative_blocks: usize) -> Option<(LaunchConfig, usize)> {
        let (turns, most) =
            (rows.div_ceil(self.down), cooperative_blocks.min(ColumnReduction::MOST_BLOCKS) / self.chunks);
        let kept = (most > 0).then(|| turns.div_ceil(most)).filter(|&kept| kept <= ColumnReduction::MOST_KEPT)?;
        Some((self.blocks(turns.div_ceil(kept)), kept))
    }

    /// Numbers that the blocks' own sums need.
    pub(crate) fn partial_len(channels: usize, sums: usize) -> usize {
        ColumnReduction::MOST_BLOCKS * sums * channels
    }
}

/// How many channels one thread takes: four where they and every start allow it.
pub(crate) fn vector(lengths: &[usize]) -> usize {
    if lengths.iter().all(|l| l % 4 == 0) { 4 } else { 1 }
}

/// A pass ready to run.
pub(crate) enum CompiledPass {
    Product(Box<CompiledProduct>),
    Epilogue(Box<CompiledEpilogue>),
    AveragePool(CompiledAveragePool),
}

impl CompiledPass {
    /// The last layer in it, as messages name it.
    pub(crate) fn name(&self) -> &str {
        match self {
            CompiledPass::Product(p) => &p.product.name,
            CompiledPass::Epilogue(f) => &f.epilogue.name,
            CompiledPass::AveragePool(a) => &a.average.name,
        }
    }

    /// The tensor that it writes.
    pub(crate) fn output(&self) -> usize {
        match self {
            CompiledPass::Product(p) => p.product.y,
            CompiledPass::Epilogue(f) => f.epilogue.out,
            CompiledPass::AveragePool(a) => a.average.out,
        }
    }

    /// What it is, for a table of times.
    pub(crate) fn kind(&self) -> String {
        match self {
            CompiledPass::Product(p) => {
                let g = &p.product.geometry;
                let three = [Some(&p.forward), p.input.as_ref(), Some(&p.weights)];
                let tilings = three.map(|r| r.map_or("-".into(), CompiledGemm::describe));
                format!(
                    "product {}x{}x{} to {} ({})",
                    g.height,
                    g.width,
                    g.in_channels,
                    g.out_channels,
                    tilings.join(" ")
                )
            }
            CompiledPass::Epilogue(f) => format!("epilogue {}", f.shape),
            CompiledPass::AveragePool(a) => format!("average {}", a.average.geometry.channels),
        }
    }

    /// What must not be asked while a stream is captured, for batches of n.
    pub(crate) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.prepare(n),
            _ => Ok(()),
        }
    }

    pub(crate) fn forward(&self, l: &BatchContext<'_>, stream: &CudaStream, training: bool) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.forward(l, stream),
            CompiledPass::Epilogue(f) => f.forward(l, stream, training),
            CompiledPass::AveragePool(a) => a.forward(l, stream),
        }
    }

    /// Slopes by what came in, from those by what went out.
    pub(crate) fn back(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.back(l, stream),
            CompiledPass::Epilogue(f) => f.back(l, stream),
            CompiledPass::AveragePool(a) => a.back(l, stream),
        }
    }

    /// The gradients of a product's parameters.
    pub(crate) fn gradients(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.gradients(l, stream),
            _ => Ok(()),
        }
    }

    /// Whether some gradients are still in parts after the way back.
    pub(crate) fn has_partial_bias(&self) -> bool {
        matches!(self, CompiledPass::Epilogue(f) if f.is_biased())
    }

    /// Gradients from the parts that the way back left.
    pub(crate) fn reduce_bias_gradient(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Epilogue(f) => f.reduce_bias_gradient(l, stream),
            _ => Ok(()),
        }
    }

    /// Whether the gradients are computed in a queue of their own.
    pub(crate) fn uses_side_stream(&self) -> bool {
        matches!(self, CompiledPass::Product(p) if p.on_side_stream)
    }

    /// Takes the norms' scale and shift from the running statistics, before an evaluation.
    pub(crate) fn load_running_statistics(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Epilogue(f) => f.norm1.iter().chain(&f.norm2).try_for_each(|norm| norm.running(l, stream)),
            _ => Ok(()),
        }
    }
}

/// A plan's products, three each: forward, input (where slopes are needed), weights.
pub(crate) fn gemms(plan: &FusionPlan, precision: Precision) -> Vec<[Option<Gemm>; 3]> {
    let products = plan.passes.iter().filter_map(|pass| match pass {
        FusedPass::Product(p) => Some(p),
        _ => None,
    });
    products
        .map(|p| {
            let gemm = |mode: Mode| Gemm {
                mode,
                geometry: p.geometry,
                precision,
                weight_offset: p.weight.start,
                // A fully connected layer reads a whole picture as one pixel.
                stored: if plan.tensors[p.x].shape.channels == p.geometry.in_channels {
                    plan.tensors[p.x].stored
                } else {
                    p.geometry.in_channels
                },
                f32_output: mode == Mode::Forward && p.y == plan.output,
                bias_offset: p.bias.as_ref().filter(|_| mode == Mode::Forward).map(|bias| bias.start),
            };
            let needs_input = plan.tensors[p.x].needs_slopes;
            [Some(gemm(Mode::Forward)), needs_input.then(|| gemm(Mode::Input)), Some(gemm(Mode::Weights))]
        })
        .collect()
}

/// Who computes each product: forward, input (where slopes are needed), weights.
pub(crate) type Algorithms = [[Option<(Gemm, Algorithm)>; 3]];

/// Every source that a plan's passes need, in the order in which [`build`] takes the kernels.
pub(crate) fn sources(plan: &FusionPlan, choices: &Algorithms, options: &CompileOptions) -> Vec<Source> {
    let precision = options.precision;
    let mut sources = Vec::new();
    let mut choices = choices.iter();
    for pass in &plan.passes {
        match pass {
            FusedPass::Product(p) => {
                let three = choices.next().expect("three choices a product");
                sources.extend(three.iter().flatten().filter_map(|(gemm, algorithm)| match algorithm {
                    Algorithm::Tiled(tiling) => Some(gemm.source(tiling.tile)),
                    Algorithm::Patch => Some(Patch::of(gemm).source()),
                    Algorithm::Cudnn(_) | Algorithm::Cublas(_) => None,
                }));
                if p.bias.is_some() {
                    let rows = options.batch * p.geometry.out_height() * p.geometry.out_width();
                    sources.push(CompiledNorm::source(p.geometry.out_channels, rows, precision));
                }
            }
            FusedPass::Epilogue(f) => {
                let shape = plan.tensors[f.y].shape;
                sources.push(CompiledEpilogue::source(f, shape, options));
                let norms = usize::from(matches!(f.affine, Affine::Norm(_)))
                    + usize::from(matches!(f.residual, Some((_, Some(_)))));
                let rows = options.batch * shape.height * shape.width;
                sources.extend((0..norms).map(|_| CompiledNorm::source(shape.channels, rows, precision)));
            }
            FusedPass::AveragePool(a) => sources.push(CompiledAveragePool::source(a, precision)),
        }
    }
    sources
}

/// Gradients up to this size are computed on_side_stream slopes: they leave a part of the GPU idle. Larger ones and slopes get in
/// each other's way.
const SMALL: usize = 1 << 33;

/// The passes with their kernels and places.
pub(crate) fn build(
    plan: FusionPlan,
    choices: &Algorithms,
    kernels: Vec<Kernels>,
    libraries: &Libraries,
    basic: &Kernels,
    options: &CompileOptions,
    layout: &mut ArenaLayout,
) -> Result<(Vec<CompiledPass>, Vec<TensorRegions>), CudaError> {
    let &CompileOptions { precision, batch, alone, .. } = options;
    let mut kernels = kernels.into_iter();
    let mut next = || kernels.next().expect("a kernel for each source");
    let bytes = precision.activation_bytes();
    // The logits are f32 whatever the activations are; there is little of them.
    let places: Vec<TensorRegions> = plan
        .tensors
        .iter()
        .enumerate()
        .map(|(i, t)| TensorRegions {
            values: layout
                .take(batch * t.shape.height * t.shape.width * t.stored * if i == plan.output { 4 } else { bytes }),
            slopes: (t.needs_slopes || i == plan.output).then(|| layout.take(batch * t.shape.len() * bytes)),
        })
        .collect();
    // Products of one queue run one after another, so they share a workspace.
    let is_on_side_stream = |[_, input, weights]: &[Option<(Gemm, Algorithm)>; 3]| {
        // Where no slopes go further down, there is nothing to be on_side_stream.
        alone && input.is_some() && weights.is_some_and(|(gemm, _)| gemm.multiply_adds(batch) <= SMALL)
    };
    let queue = |three: &[Option<(Gemm, Algorithm)>; 3], mode: Mode| {
        usize::from(mode == Mode::Weights && is_on_side_stream(three))
    };
    let mut most = [0, 0];
    for three in choices {
        for (gemm, algorithm) in three.iter().flatten() {
            let bytes = match algorithm {
                Algorithm::Tiled(tiling) => 4 * gemm.workspace(batch, *tiling),
                Algorithm::Patch => 4 * Patch::of(gemm).workspace(batch),
                Algorithm::Cudnn(a) => CompiledGemm::cudnn_bytes(gemm, libraries.cudnn()?, *a, batch)?,
                Algorithm::Cublas(_) => WORKSPACE,
            };
            let most = &mut most[queue(three, gemm.mode)];
            *most = bytes.max(*most);
        }
    }
    let workspaces = most.map(|bytes| layout.take(bytes));
    let mut choices = choices.iter();
    let mut runs = Vec::with_capacity(plan.passes.len());
    for pass in plan.passes {
        runs.push(match pass {
            FusedPass::Product(product) => {
                let three = choices.next().expect("three choices a product");
                let mut gemm = |run: &Option<(Gemm, Algorithm)>, layout: &mut ArenaLayout| {
                    let Some((gemm, algorithm)) = *run else { return Ok(None) };
                    let workspace = workspaces[queue(three, gemm.mode)];
                    let run = match algorithm {
                        Algorithm::Tiled(tiling) => CompiledGemm::own(gemm, tiling, next(), workspace, batch, layout),
                        Algorithm::Patch => CompiledGemm::patch(gemm, next(), workspace),
                        Algorithm::Cudnn(a) => {
                            CompiledGemm::cudnn(gemm, libraries.cudnn()?, a, basic, workspace, batch, layout)
                        }
                        Algorithm::Cublas(a) => Ok(CompiledGemm::cublas(gemm, libraries.cublas()?, a, workspace)),
                    };
                    run.map(Some)
                };
                let [forward, input, weights] = three;
                let forward = gemm(forward, layout)?.expect("every product runs forward");
                let input = gemm(input, layout)?;
                let weights = gemm(weights, layout)?.expect("every product has weights");
                let channels = product.geometry.out_channels;
                let bias_sums = product.bias.is_some().then(|| {
                    let rows = batch * product.geometry.out_height() * product.geometry.out_width();
                    let columns = ColumnReduction::new(channels, vector(&[channels]), rows);
                    let partial = layout.take(8 * ColumnReduction::partial_len(channels, 1));
                    (next(), columns, partial, layout.take(4 * columns.chunks))
                });
                let on_side_stream = is_on_side_stream(three);
                CompiledPass::Product(Box::new(CompiledProduct {
                    product,
                    forward,
                    input,
                    weights,
                    on_side_stream,
                    bias_sums,
                }))
            }
            FusedPass::Epilogue(epilogue) => {
                let shape = plan.tensors[epilogue.y].shape;
                let out_len = plan.tensors[epilogue.out].shape.len();
                let own = next();
                let norm1 = match &epilogue.affine {
                    Affine::Norm(norm) => {
                        Some(CompiledNorm::new(norm.clone(), epilogue.y, shape, batch, next(), layout))
                    }
                    _ => None,
                };
                let norm2 = match &epilogue.residual {
                    Some((tensor, Some(norm))) => {
                        Some(CompiledNorm::new(norm.clone(), *tensor, shape, batch, next(), layout))
                    }
                    _ => None,
                };
                let vector = CompiledEpilogue::vector(&epilogue, shape);
                let (columns, cooperative) = CompiledEpilogue::columns(&epilogue, shape, options);
                let normed = norm1.is_some() || norm2.is_some();
                let inputs_need = plan.tensors[epilogue.y].needs_slopes
                    || epilogue.residual.as_ref().is_some_and(|(t, _)| plan.tensors[*t].needs_slopes);
                let on_side_stream = normed
                    && cooperative.is_none()
                    && inputs_need
                    && (epilogue.adds || !plan.tensors[epilogue.y].needs_slopes);
                CompiledPass::Epilogue(Box::new(CompiledEpilogue {
                    dz: on_side_stream.then(|| layout.take(batch * shape.len() * bytes)),
                    argmax: layout.take(if epilogue.pool.is_some() { batch * out_len } else { 0 }),
                    partial: layout.take(8 * ColumnReduction::partial_len(shape.channels, 3)),
                    counter: layout.take(4 * columns.chunks),
                    cooperative: cooperative.map(|(config, _)| (config, layout.take(4 * columns.chunks))),
                    epilogue,
                    shape,
                    out_len,
                    vector,
                    kernels: own,
                    norm1,
                    norm2,
                    columns,
                }))
            }
            FusedPass::AveragePool(average) => {
                let vector = vector(&[average.geometry.channels]);
                CompiledPass::AveragePool(CompiledAveragePool { average, kernels: next(), vector })
            }
        });
    }
    Ok((runs, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::DeviceLimits;
    use crate::library::Library;
    use ftprop_nn::{Activation, Defaults, LayerLoss, Network, Shape, presets};
    use ftprop_tensor::Cpu;
    use std::sync::Arc;

    #[test]
    fn blocks_that_wait_for_each_other_fit_on_the_gpu_and_take_every_row() {
        for (channels, rows) in [(64, 64 * 256), (128, 64 * 36), (512, 64), (10, 7), (48, 64 * 1024), (2112, 3)] {
            let columns = ColumnReduction::new(channels, vector(&[channels]), rows);
            assert!(columns.across * columns.chunks * vector(&[channels]) >= channels);
            for cooperative_blocks in [1000, 132, 60, 8, 0] {
                let Some((launch_config, kept)) = columns.cooperative(rows, cooperative_blocks) else {
                    assert!(
                        columns.chunks > cooperative_blocks.min(264)
                            || rows > 8 * columns.down * cooperative_blocks / columns.chunks
                    );
                    continue;
                };
                let (down, across, _) = launch_config.grid;
                assert!(
                    (down * across) as usize <= cooperative_blocks.min(ColumnReduction::MOST_BLOCKS)
                        && kept <= ColumnReduction::MOST_KEPT
                );
                assert!(down as usize * kept * columns.down >= rows);
            }
        }
        // The largest that waits on a large GPU, and the first that does not.
        assert!(ColumnReduction::new(64, 4, 64 * 256).cooperative(64 * 256, 132).is_some_and(|(_, kept)| kept == 4));
        assert!(ColumnReduction::new(64, 4, 256 * 256).cooperative(256 * 256, 132).is_none());
    }

    /// The compiler needs no GPU, so its word is taken wherever it is installed.
    #[test]
    fn every_kernel_of_a_small_network_compiles() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        let input = Shape { height: 32, width: 32, channels: 3 };
        // The third convolution of convnet8 with what follows it, and its last layer.
        let all = presets::layers("convnet8", input, &[]).unwrap();
        let layers = [&all[6..10], &all[all.len() - 1..]].concat();
        let defaults = Defaults::new(Activation::Sign, LayerLoss::SoftHinge);
        let cpu = Arc::new(Cpu::new(1).unwrap());
        let network = Network::new(cpu, &layers, defaults, input, 10, 1).unwrap();
        let plan = FusionPlan::new(&layers, defaults, input, 10, network.parameters(), network.statistics());
        for (precision, arch) in [(Precision::F32, "sm_80"), (Precision::Tf32, "sm_90"), (Precision::Bf16, "sm_89")] {
            let limits = DeviceLimits { multiprocessors: 100, shared: 99 * 1024 };
            let algorithm = |g: Gemm| (g, Algorithm::Tiled(g.guess(64, limits)));
            let choices: Vec<_> =
                gemms(&plan, precision).into_iter().map(|three| three.map(|g| g.map(algorithm))).collect();
            let options =
                CompileOptions { precision, batch: 64, alone: true, cooperative_blocks: limits.multiprocessors };
            let mut all = sources(&plan, &choices, &options);
            all.sort();
            all.dedup();
            for source in all {
                assert!(!source.compile(arch).unwrap().is_empty());
            }
        }
    }
}
