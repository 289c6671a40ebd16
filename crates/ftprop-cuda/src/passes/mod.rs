//! The passes of a plan with their kernels and their places in memory, and how each is put into a stream.
//!
//! | module | subject |
//! | --- | --- |
//! | `product` | convolutions and fully connected layers, by our kernel, cuDNN or cuBLASLt |
//! | `finish`, `norm` | what follows a product, and batch norm's numbers for it |
//! | `average` | average pooling |

mod average;
mod finish;
mod norm;
mod product;

pub(crate) use product::GemmRun;

use crate::CudaError;
use crate::arena::{Arena, Layout, Place};
use crate::compile::{Kernels, Source};
use crate::cublas::WORKSPACE;
use crate::gemm::{Choice, Gemm, Mode};
use crate::patch::Patch;
use crate::plan::{First, Pass, Plan};
use crate::precision::Precision;
use crate::stream::{Spread, Stream};
use crate::tuning::Libraries;
use average::AverageRun;
use cudarc::driver::sys::CUdeviceptr;
use finish::FinishRun;
use norm::NormState;
use product::ProductRun;

/// The flat buffers, by address.
#[derive(Clone, Copy)]
pub(crate) struct Flat {
    pub(crate) values: CUdeviceptr,
    /// What the matrix units read: the values, or their bf16 copy.
    pub(crate) factors: CUdeviceptr,
    pub(crate) factor_bytes: u64,
    pub(crate) grads: CUdeviceptr,
    pub(crate) stats: CUdeviceptr,
    pub(crate) step: CUdeviceptr,
    pub(crate) scalars: CUdeviceptr,
}

impl Flat {
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
pub(crate) struct TensorPlace {
    pub(crate) values: Place,
    pub(crate) slopes: Option<Place>,
}

/// What a launch needs beside its pass.
pub(crate) struct Launch<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) tensors: &'a [TensorPlace],
    pub(crate) flat: Flat,
    pub(crate) n: usize,
}

impl Launch<'_> {
    fn values(&self, tensor: usize) -> CUdeviceptr {
        self.arena.at(self.tensors[tensor].values)
    }

    /// 0, a null pointer, where there are none.
    fn slopes(&self, tensor: usize) -> CUdeviceptr {
        self.tensors[tensor].slopes.map_or(0, |place| self.arena.at(place))
    }
}

/// What all passes of a network have in common.
pub(crate) struct Setting {
    pub(crate) precision: Precision,
    /// A full batch.
    pub(crate) batch: usize,
    /// Whether the network has the GPU to itself: then there is a second queue for gradients.
    pub(crate) alone: bool,
    /// How many blocks may wait for each other.
    pub(crate) gang: usize,
}

/// How sums over a matrix's columns are spread over the device, as norm.cuh has it.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    across: usize,
    chunks: usize,
    down: usize,
}

impl Columns {
    pub(crate) const THREADS: u32 = 512;
    const MOST_BLOCKS: usize = 264;
    /// The most rows that a thread keeps while it waits for others.
    const MOST_KEPT: usize = 8;

    /// For so many rows of a full batch. Few channels a block mean few blocks whose sums have to be added up, many mean
    /// longer reads; where there is little to read, the first counts.
    pub(crate) fn new(channels: usize, vector: usize, rows: usize) -> Self {
        let groups = channels / vector;
        let across = if rows * groups <= 1 << 20 { 16 / vector } else { groups.min(256) };
        Columns { across, chunks: groups.div_ceil(across), down: Columns::THREADS as usize / across }
    }

    pub(crate) fn spread(&self, rows: usize) -> Spread {
        let most = (Columns::MOST_BLOCKS / self.chunks).max(1);
        self.blocks(rows.div_ceil(self.down * 4).clamp(1, most))
    }

    fn blocks(&self, down: usize) -> Spread {
        Spread { grid: (down as u32, self.chunks as u32, 1), threads: Columns::THREADS, shared: 0 }
    }

    /// So many blocks at most, which all run at once, and how many rows each thread then has; `None` where these are too
    /// many.
    fn together(&self, rows: usize, gang: usize) -> Option<(Spread, usize)> {
        let (turns, most) = (rows.div_ceil(self.down), gang.min(Columns::MOST_BLOCKS) / self.chunks);
        let kept = (most > 0).then(|| turns.div_ceil(most)).filter(|&kept| kept <= Columns::MOST_KEPT)?;
        Some((self.blocks(turns.div_ceil(kept)), kept))
    }

    /// Numbers that the blocks' own sums need.
    pub(crate) fn partial_len(channels: usize, sums: usize) -> usize {
        Columns::MOST_BLOCKS * sums * channels
    }
}

/// How many channels one thread takes: four where they and every start allow it.
pub(crate) fn vector(lengths: &[usize]) -> usize {
    if lengths.iter().all(|l| l % 4 == 0) { 4 } else { 1 }
}

/// A pass ready to run.
pub(crate) enum Run {
    Product(Box<ProductRun>),
    Finish(Box<FinishRun>),
    Average(AverageRun),
}

impl Run {
    /// The last layer in it, as messages name it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Run::Product(p) => &p.product.name,
            Run::Finish(f) => &f.finish.name,
            Run::Average(a) => &a.average.name,
        }
    }

    /// The tensor that it writes.
    pub(crate) fn output(&self) -> usize {
        match self {
            Run::Product(p) => p.product.y,
            Run::Finish(f) => f.finish.out,
            Run::Average(a) => a.average.out,
        }
    }

    /// What it is, for a table of times.
    pub(crate) fn kind(&self) -> String {
        match self {
            Run::Product(p) => {
                let g = &p.product.geometry;
                let three = [Some(&p.forward), p.input.as_ref(), Some(&p.weights)];
                let cuts = three.map(|r| r.map_or("-".into(), GemmRun::describe));
                format!("product {}x{}x{} to {} ({})", g.height, g.width, g.in_channels, g.out_channels, cuts.join(" "))
            }
            Run::Finish(f) => format!("finish {}", f.shape),
            Run::Average(a) => format!("average {}", a.average.geometry.channels),
        }
    }

    /// What must not be asked while a stream is captured, for batches of n.
    pub(crate) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.prepare(n),
            _ => Ok(()),
        }
    }

    pub(crate) fn forward(&self, l: &Launch<'_>, stream: &Stream, training: bool) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.forward(l, stream),
            Run::Finish(f) => f.forward(l, stream, training),
            Run::Average(a) => a.forward(l, stream),
        }
    }

    /// Slopes by what came in, from those by what went out.
    pub(crate) fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.back(l, stream),
            Run::Finish(f) => f.back(l, stream),
            Run::Average(a) => a.back(l, stream),
        }
    }

    /// The gradients of a product's parameters.
    pub(crate) fn gradients(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.gradients(l, stream),
            _ => Ok(()),
        }
    }

    /// Whether some gradients are still in parts after the way back.
    pub(crate) fn leaves_parts(&self) -> bool {
        matches!(self, Run::Finish(f) if f.is_biased())
    }

    /// Gradients from the parts that the way back left.
    pub(crate) fn add_parts(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Finish(f) => f.add_parts(l, stream),
            _ => Ok(()),
        }
    }

    /// Whether the gradients are computed in a queue of their own.
    pub(crate) fn gradients_beside(&self) -> bool {
        matches!(self, Run::Product(p) if p.beside)
    }

    /// Takes the norms' scale and shift from the running statistics, before an evaluation.
    pub(crate) fn use_running(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Finish(f) => f.norm1.iter().chain(&f.norm2).try_for_each(|norm| norm.running(l, stream)),
            _ => Ok(()),
        }
    }
}

/// A plan's products, three each: forward, input (where slopes are needed), weights.
pub(crate) fn gemms(plan: &Plan, precision: Precision) -> Vec<[Option<Gemm>; 3]> {
    let products = plan.passes.iter().filter_map(|pass| match pass {
        Pass::Product(p) => Some(p),
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
                wide_output: mode == Mode::Forward && p.y == plan.output,
                bias_offset: p.bias.as_ref().filter(|_| mode == Mode::Forward).map(|bias| bias.start),
            };
            let needs_input = plan.tensors[p.x].needs_slopes;
            [Some(gemm(Mode::Forward)), needs_input.then(|| gemm(Mode::Input)), Some(gemm(Mode::Weights))]
        })
        .collect()
}

/// Who computes each product: forward, input (where slopes are needed), weights.
pub(crate) type Choices = [[Option<(Gemm, Choice)>; 3]];

/// Every source that a plan's passes need, in the order in which [`build`] takes the kernels.
pub(crate) fn sources(plan: &Plan, choices: &Choices, setting: &Setting) -> Vec<Source> {
    let precision = setting.precision;
    let mut sources = Vec::new();
    let mut choices = choices.iter();
    for pass in &plan.passes {
        match pass {
            Pass::Product(p) => {
                let three = choices.next().expect("three choices a product");
                sources.extend(three.iter().flatten().filter_map(|(gemm, choice)| match choice {
                    Choice::Own(cut) => Some(gemm.source(cut.tile)),
                    Choice::Patch => Some(Patch::of(gemm).source()),
                    Choice::Cudnn(_) | Choice::Cublas(_) => None,
                }));
                if p.bias.is_some() {
                    let rows = setting.batch * p.geometry.out_height() * p.geometry.out_width();
                    sources.push(NormState::source(p.geometry.out_channels, rows, precision));
                }
            }
            Pass::Finish(f) => {
                let shape = plan.tensors[f.y].shape;
                sources.push(FinishRun::source(f, shape, setting));
                let norms = usize::from(matches!(f.first, First::Norm(_)))
                    + usize::from(matches!(f.second, Some((_, Some(_)))));
                let rows = setting.batch * shape.height * shape.width;
                sources.extend((0..norms).map(|_| NormState::source(shape.channels, rows, precision)));
            }
            Pass::Average(a) => sources.push(AverageRun::source(a, precision)),
        }
    }
    sources
}

/// Gradients up to this size are computed beside slopes: they leave a part of the GPU idle. Larger ones and slopes get in
/// each other's way.
const SMALL: usize = 1 << 33;

/// The passes with their kernels and places.
pub(crate) fn build(
    plan: Plan,
    choices: &Choices,
    kernels: Vec<Kernels>,
    libraries: &Libraries,
    basic: &Kernels,
    setting: &Setting,
    layout: &mut Layout,
) -> Result<(Vec<Run>, Vec<TensorPlace>), CudaError> {
    let &Setting { precision, batch, alone, .. } = setting;
    let mut kernels = kernels.into_iter();
    let mut next = || kernels.next().expect("a kernel for each source");
    let bytes = precision.activation_bytes();
    // The logits are f32 whatever the activations are; there is little of them.
    let places: Vec<TensorPlace> = plan
        .tensors
        .iter()
        .enumerate()
        .map(|(i, t)| TensorPlace {
            values: layout
                .take(batch * t.shape.height * t.shape.width * t.stored * if i == plan.output { 4 } else { bytes }),
            slopes: (t.needs_slopes || i == plan.output).then(|| layout.take(batch * t.shape.len() * bytes)),
        })
        .collect();
    // Products of one queue run one after another, so they share a workspace.
    let is_beside = |[_, input, weights]: &[Option<(Gemm, Choice)>; 3]| {
        // Where no slopes go further down, there is nothing to be beside.
        alone && input.is_some() && weights.is_some_and(|(gemm, _)| gemm.multiply_adds(batch) <= SMALL)
    };
    let queue =
        |three: &[Option<(Gemm, Choice)>; 3], mode: Mode| usize::from(mode == Mode::Weights && is_beside(three));
    let mut most = [0, 0];
    for three in choices {
        for (gemm, choice) in three.iter().flatten() {
            let bytes = match choice {
                Choice::Own(cut) => 4 * gemm.workspace(batch, *cut),
                Choice::Patch => 4 * Patch::of(gemm).workspace(batch),
                Choice::Cudnn(a) => GemmRun::cudnn_bytes(gemm, libraries.cudnn()?, *a, batch)?,
                Choice::Cublas(_) => WORKSPACE,
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
            Pass::Product(product) => {
                let three = choices.next().expect("three choices a product");
                let mut gemm = |run: &Option<(Gemm, Choice)>, layout: &mut Layout| {
                    let Some((gemm, choice)) = *run else { return Ok(None) };
                    let workspace = workspaces[queue(three, gemm.mode)];
                    let run = match choice {
                        Choice::Own(cut) => GemmRun::own(gemm, cut, next(), workspace, batch, layout),
                        Choice::Patch => GemmRun::patch(gemm, next(), workspace),
                        Choice::Cudnn(a) => {
                            GemmRun::cudnn(gemm, libraries.cudnn()?, a, basic, workspace, batch, layout)
                        }
                        Choice::Cublas(a) => Ok(GemmRun::cublas(gemm, libraries.cublas()?, a, workspace)),
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
                    let columns = Columns::new(channels, vector(&[channels]), rows);
                    let partial = layout.take(8 * Columns::partial_len(channels, 1));
                    (next(), columns, partial, layout.take(4 * columns.chunks))
                });
                let beside = is_beside(three);
                Run::Product(Box::new(ProductRun { product, forward, input, weights, beside, bias_sums }))
            }
            Pass::Finish(finish) => {
                let shape = plan.tensors[finish.y].shape;
                let out_len = plan.tensors[finish.out].shape.len();
                let own = next();
                let norm1 = match &finish.first {
                    First::Norm(norm) => Some(NormState::new(norm.clone(), finish.y, shape, batch, next(), layout)),
                    _ => None,
                };
                let norm2 = match &finish.second {
                    Some((tensor, Some(norm))) => {
                        Some(NormState::new(norm.clone(), *tensor, shape, batch, next(), layout))
                    }
                    _ => None,
                };
                let vector = FinishRun::vector(&finish, shape);
                let (columns, together) = FinishRun::columns(&finish, shape, setting);
                let normed = norm1.is_some() || norm2.is_some();
                let inputs_need = plan.tensors[finish.y].needs_slopes
                    || finish.second.as_ref().is_some_and(|(t, _)| plan.tensors[*t].needs_slopes);
                let beside = normed
                    && together.is_none()
                    && inputs_need
                    && (finish.adds || !plan.tensors[finish.y].needs_slopes);
                Run::Finish(Box::new(FinishRun {
                    aside: beside.then(|| layout.take(batch * shape.len() * bytes)),
                    choice: layout.take(if finish.pool.is_some() { batch * out_len } else { 0 }),
                    partial: layout.take(8 * Columns::partial_len(shape.channels, 3)),
                    counter: layout.take(4 * columns.chunks),
                    together: together.map(|(spread, _)| (spread, layout.take(4 * columns.chunks))),
                    finish,
                    shape,
                    out_len,
                    vector,
                    kernels: own,
                    norm1,
                    norm2,
                    columns,
                }))
            }
            Pass::Average(average) => {
                let vector = vector(&[average.geometry.channels]);
                Run::Average(AverageRun { average, kernels: next(), vector })
            }
        });
    }
    Ok((runs, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Limits;
    use crate::library::Library;
    use ftprop_nn::{Activation, Defaults, LayerLoss, Network, Shape, presets};
    use ftprop_tensor::Cpu;
    use std::sync::Arc;

    #[test]
    fn blocks_that_wait_for_each_other_fit_on_the_gpu_and_take_every_row() {
        for (channels, rows) in [(64, 64 * 256), (128, 64 * 36), (512, 64), (10, 7), (48, 64 * 1024), (2112, 3)] {
            let columns = Columns::new(channels, vector(&[channels]), rows);
            assert!(columns.across * columns.chunks * vector(&[channels]) >= channels);
            for gang in [1000, 132, 60, 8, 0] {
                let Some((spread, kept)) = columns.together(rows, gang) else {
                    assert!(columns.chunks > gang.min(264) || rows > 8 * columns.down * gang / columns.chunks);
                    continue;
                };
                let (down, across, _) = spread.grid;
                assert!((down * across) as usize <= gang.min(Columns::MOST_BLOCKS) && kept <= Columns::MOST_KEPT);
                assert!(down as usize * kept * columns.down >= rows);
            }
        }
        // The largest that waits on a large GPU, and the first that does not.
        assert!(Columns::new(64, 4, 64 * 256).together(64 * 256, 132).is_some_and(|(_, kept)| kept == 4));
        assert!(Columns::new(64, 4, 256 * 256).together(256 * 256, 132).is_none());
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
        let plan = Plan::new(&layers, defaults, input, 10, network.parameters(), network.statistics());
        for (precision, arch) in [(Precision::F32, "sm_80"), (Precision::Tf32, "sm_90"), (Precision::Bf16, "sm_89")] {
            let limits = Limits { multiprocessors: 100, shared: 99 * 1024 };
            let choice = |g: Gemm| (g, Choice::Own(g.guess(64, limits)));
            let choices: Vec<_> =
                gemms(&plan, precision).into_iter().map(|three| three.map(|g| g.map(choice))).collect();
            let setting = Setting { precision, batch: 64, alone: true, gang: limits.multiprocessors };
            let mut all = sources(&plan, &choices, &setting);
            all.sort();
            all.dedup();
            for source in all {
                assert!(!source.compile(arch).unwrap().is_empty());
            }
        }
    }
}
