//! The passes of a plan with their kernels and their regions of memory, and how each is put into a stream.
//!
//! | module | subject |
//! | --- | --- |
//! | `product` | convolutions and fully connected layers |
//! | `epilogue`, `epilogue_source`, `norm` | what follows a product, what it is compiled for, and batch norm's numbers |
//! | `threads` | how an epilogue's work is shared by threads |
//! | `windows` | the way back through a max pool by its windows |
//! | `shared_norm` | batch norm over the examples of several GPUs |
//! | `average_pool` | average pooling |
//! | `targets` | hard units whose target rule looks further than at their own numbers |
//! | `carry` | the loss's curvature on its way down |
//! | `context` | what launches on a batch need beside the passes |
//! | `work` | what each has to move and to multiply |
//! | `column_reduction`, `map` | how sums over columns are launched, and passes over whole maps |

mod average_pool;
mod carry;
mod column_reduction;
mod context;
mod epilogue;
mod epilogue_source;
mod map;
mod norm;
mod product;
mod shared_norm;
mod targets;
mod threads;
mod windows;
pub(crate) mod work;

pub(crate) use context::{BatchContext, Further, Statistics, TensorRegions};
pub(crate) use shared_norm::Others;

use crate::CudaError;
use crate::arena::{ArenaLayout, Region};
use crate::compile::Source;
use crate::compiled_gemm::CompiledGemm;
use crate::device::Device;
use crate::environment::tries;
use crate::gemm::{Algorithm, Gemm, Mode};
use crate::libraries::Libraries;
use crate::plan::{Affine, FusedPass, FusionPlan, Norm, PlannedTensor, Product};
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use crate::stream::CudaStream;
use average_pool::CompiledAveragePool;
use column_reduction::ColumnReduction;
use epilogue::CompiledEpilogue;
use product::{BiasGradient, CompiledProduct};
use std::ops::Range;
use targets::CompiledTargets;

/// Every kernel that passes launch.
#[cfg(test)]
pub(crate) const KERNELS: [&[crate::arguments::Signature]; 8] = [
    average_pool::KERNELS,
    carry::KERNELS,
    epilogue::KERNELS,
    norm::KERNELS,
    product::KERNELS,
    shared_norm::KERNELS,
    targets::KERNELS,
    windows::KERNELS,
];

/// What all passes of a network are compiled for.
pub(crate) struct CompileOptions {
    pub(crate) precision: Precision,
    /// A full batch.
    pub(crate) batch: usize,
    /// The batch that the passes' kernels are chosen for: the full one, except in tests of kernels for larger ones.
    pub(crate) rows_for: usize,
    /// Whether the network has the GPU to itself: then there is a side stream for gradients.
    pub(crate) alone: bool,
    /// Whether norms go by the examples of all GPUs that share a batch. Then no blocks may wait for each other.
    pub(crate) sync_norm: bool,
    /// How many blocks may wait for each other.
    pub(crate) cooperative_blocks: usize,
    /// Where kernels find the numbers of a step.
    pub(crate) scalars: ScalarLayout,
}

/// How many channels one thread takes: four where they and every start allow it.
fn vector_width(lengths: &[usize]) -> usize {
    if lengths.iter().all(|l| l % 4 == 0) { 4 } else { 1 }
}

/// The same where a map is read as a whole: as many as 16 bytes hold, where that leaves enough threads.
fn wide_vectors(channels: usize, start: usize, rows: usize, precision: Precision) -> usize {
    const THREADS: usize = 1 << 17;
    let wide = precision == Precision::Bf16 && channels.is_multiple_of(8) && start.is_multiple_of(4);
    if wide && rows * (channels / 8) >= THREADS { 8 } else { vector_width(&[channels, start]) }
}

/// A pass ready to run.
pub(crate) enum CompiledPass {
    Product(Box<CompiledProduct>),
    Epilogue(Box<CompiledEpilogue>),
    AveragePool(CompiledAveragePool),
    Targets(Box<CompiledTargets>),
}

impl CompiledPass {
    /// The last layer in it, as messages name it.
    pub(crate) fn name(&self) -> &str {
        match self {
            CompiledPass::Product(p) => &p.product.name,
            CompiledPass::Epilogue(f) => &f.epilogue.name,
            CompiledPass::AveragePool(a) => &a.average.name,
            CompiledPass::Targets(t) => &t.layer.name,
        }
    }

    /// The tensor that it writes.
    pub(crate) fn output(&self) -> usize {
        match self {
            CompiledPass::Product(p) => p.product.y,
            CompiledPass::Epilogue(f) => f.epilogue.out,
            CompiledPass::AveragePool(a) => a.average.out,
            CompiledPass::Targets(t) => t.layer.out,
        }
    }

    /// The parameters whose gradients it takes.
    pub(crate) fn parameters(&self) -> Vec<Range<usize>> {
        let norm = |norm: &Norm| [norm.gamma.clone(), norm.beta.clone()];
        match self {
            CompiledPass::Product(p) => {
                [Some(p.product.weight.clone()), p.product.bias.clone()].into_iter().flatten().collect()
            }
            CompiledPass::Epilogue(f) => {
                let (affine, residual) = (&f.epilogue.affine, &f.epilogue.residual);
                let own: Vec<Range<usize>> = match affine {
                    Affine::Identity => Vec::new(),
                    Affine::Bias(bias) => vec![bias.clone()],
                    Affine::Norm(own) => norm(own).to_vec(),
                };
                let other = residual.as_ref().and_then(|(_, other)| other.as_ref()).map(norm);
                own.into_iter().chain(other.into_iter().flatten()).collect()
            }
            CompiledPass::AveragePool(_) | CompiledPass::Targets(_) => Vec::new(),
        }
    }

    /// What it is, for a table of times.
    pub(crate) fn kind(&self) -> String {
        match self {
            CompiledPass::Product(p) => {
                let g = &p.product.geometry;
                let three = [Some(&p.forward), p.input.as_ref(), Some(&p.weights)];
                let algorithms = three.map(|r| r.map_or("-".into(), CompiledGemm::describe));
                format!(
                    "product {}x{}x{} to {} ({})",
                    g.height,
                    g.width,
                    g.in_channels,
                    g.out_channels,
                    algorithms.join(" ")
                )
            }
            CompiledPass::Epilogue(f) => format!("epilogue {}", f.shape),
            CompiledPass::AveragePool(a) => format!("average {}", a.average.geometry.channels),
            CompiledPass::Targets(t) => format!("targets {}", t.shape),
        }
    }

    /// What has to be compiled before batches of n run, beside what was.
    pub(crate) fn sources_for(&self, n: usize) -> Vec<Source> {
        match self {
            CompiledPass::Product(p) => p.sources_for(n),
            _ => Vec::new(),
        }
    }

    /// What must not be asked while a stream is captured, for batches of n.
    pub(crate) fn prepare(&self, n: usize) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.prepare(n),
            _ => Ok(()),
        }
    }

    pub(crate) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.forward(batch, stream),
            CompiledPass::Epilogue(f) => f.forward(batch, stream),
            CompiledPass::AveragePool(a) => a.forward(batch, stream),
            CompiledPass::Targets(t) => t.forward(batch, stream),
        }
    }

    /// Slopes by what came in, from those by what went out.
    pub(crate) fn backward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.backward(batch, stream),
            CompiledPass::Epilogue(f) => f.backward(batch, stream),
            CompiledPass::AveragePool(a) => a.backward(batch, stream),
            CompiledPass::Targets(t) => t.backward(batch, stream),
        }
    }

    /// The loss's curvature by what came in, from that by what went out, before the slopes go the same way. Hard units carry
    /// it together with their slopes.
    pub(crate) fn carry(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.carry(batch, stream),
            CompiledPass::Epilogue(f) => f.carry(batch, stream),
            CompiledPass::AveragePool(a) => a.carry(batch, stream),
            CompiledPass::Targets(_) => Ok(()),
        }
    }

    /// The gradients of a product's parameters.
    pub(crate) fn gradients(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.gradients(batch, stream),
            _ => Ok(()),
        }
    }

    /// Of these only the bias's.
    pub(crate) fn bias_gradient(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.bias_gradient(batch, stream),
            _ => Ok(()),
        }
    }

    /// Whether a product's gradients are not yet where they belong.
    pub(crate) fn has_unfinished_gradients(&self, n: usize) -> bool {
        matches!(self, CompiledPass::Product(p) if p.has_end(n))
    }

    /// Puts a product's gradients where they belong.
    pub(crate) fn end_gradients(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Product(p) => p.end_gradients(batch, stream),
            _ => Ok(()),
        }
    }

    /// Whether a bias's gradient is still in partial sums after the way back.
    pub(crate) fn has_partial_bias(&self) -> bool {
        matches!(self, CompiledPass::Epilogue(f) if f.is_biased())
    }

    /// A bias's gradient from the partial sums that the way back left.
    pub(crate) fn reduce_bias_gradient(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Epilogue(f) => f.reduce_bias_gradient(batch, stream),
            _ => Ok(()),
        }
    }

    /// Whether its target rule asks what the layers above make of other outputs.
    pub(crate) fn asks_above(&self) -> bool {
        matches!(self, CompiledPass::Targets(t) if t.asks_above())
    }

    /// Puts outputs that are to be tried in the place of its own.
    pub(crate) fn try_outputs(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Targets(t) => t.try_outputs(batch, stream),
            _ => Ok(()),
        }
    }

    /// Whether its target rule needs the batch's examples by class.
    pub(crate) fn goes_by_class(&self) -> bool {
        matches!(self, CompiledPass::Targets(t) if t.goes_by_class())
    }

    /// Puts the batch's examples in order by class, for all passes that go by it.
    pub(crate) fn order_by_class(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        match self {
            CompiledPass::Targets(t) => t.order(batch, stream),
            _ => Ok(()),
        }
    }

    /// Takes part in what other GPUs do forward, or on the way back, with a batch of which no example is here.
    pub(crate) fn attend(
        &self,
        batch: &BatchContext<'_>,
        stream: &CudaStream,
        backward: bool,
    ) -> Result<(), CudaError> {
        match self {
            CompiledPass::Epilogue(f) => f.attend(batch, stream, backward),
            _ => Ok(()),
        }
    }

    /// Whether the gradients are computed in the side stream.
    pub(crate) fn uses_side_stream(&self) -> bool {
        matches!(self, CompiledPass::Product(p) if p.on_side_stream)
    }

    /// Takes the norms' scale and shift from the running statistics, before an evaluation.
    pub(crate) fn load_running_statistics(
        &self,
        batch: &BatchContext<'_>,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        match self {
            CompiledPass::Epilogue(f) => f.norms().try_for_each(|norm| norm.running(batch, stream)),
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
                adds: mode == Mode::Input && p.adds,
            };
            let needs_input = plan.tensors[p.x].needs_slopes;
            [Some(gemm(Mode::Forward)), needs_input.then(|| gemm(Mode::Input)), Some(gemm(Mode::Weights))]
        })
        .collect()
}

/// What computes each product: forward, input (where slopes are needed), weights.
pub(crate) type Algorithms = [ChosenProducts];
/// Those of one pass: forward, of slopes, of weights.
pub(crate) type ChosenProducts = [Option<(Gemm, Algorithm)>; 3];

/// Every source that a plan's passes need.
pub(crate) fn sources(plan: &FusionPlan, algorithms: &Algorithms, options: &CompileOptions) -> Vec<Source> {
    let own = |(gemm, algorithm): &(Gemm, Algorithm)| CompiledGemm::source(gemm, *algorithm);
    let mut sources: Vec<Source> = algorithms.iter().flatten().flatten().filter_map(own).collect();
    for pass in &plan.passes {
        match pass {
            FusedPass::Product(product) => sources.extend(BiasGradient::source(product, options)),
            FusedPass::Epilogue(f) => {
                let shape = plan.tensors[f.y].shape;
                sources.push(CompiledEpilogue::source(f, &plan.tensors, options));
                if plan.curved {
                    sources.push(CompiledEpilogue::carry_source(f, &plan.tensors, options).0);
                }
                if matches!(f.affine, Affine::Norm(_)) || matches!(f.residual, Some((_, Some(_)))) {
                    let rows = options.rows_for * shape.height * shape.width;
                    sources.push(norm::source(shape.channels, rows, options.precision));
                    if options.sync_norm {
                        sources.push(shared_norm::source(shape.channels, rows, options.precision));
                    }
                }
            }
            FusedPass::AveragePool(average) => sources.push(CompiledAveragePool::source(average, options.precision)),
            FusedPass::Targets(layer) => sources.push(CompiledTargets::source(layer, plan, options)),
        }
    }
    sources
}

/// Gradients up to this size are computed beside slopes: they leave a part of the GPU idle. Larger ones and slopes get in
/// each other's way.
const SMALL: usize = 1 << 33;

/// Compiles passes and hands out their regions.
struct Compiler<'a> {
    device: &'a Device,
    libraries: &'a Libraries,
    options: &'a CompileOptions,
    layout: &'a mut ArenaLayout,
}

/// The passes with their kernels and regions, and the regions of the plan's tensors.
pub(crate) fn compile(
    device: &Device,
    plan: FusionPlan,
    algorithms: &Algorithms,
    libraries: &Libraries,
    options: &CompileOptions,
    layout: &mut ArenaLayout,
) -> Result<(Vec<CompiledPass>, Vec<TensorRegions>), CudaError> {
    let mut compiler = Compiler { device, libraries, options, layout };
    let regions = compiler.tensors(&plan);
    let hard = |pass: &FusedPass| match pass {
        FusedPass::Targets(layer) => Some(CompiledTargets::source(layer, &plan, options)),
        _ => None,
    };
    let mut hard = plan.passes.iter().filter_map(hard).collect::<Vec<_>>().into_iter();
    let FusionPlan { tensors, passes, output, curved, .. } = plan;
    let workspaces = compiler.workspaces(algorithms)?;
    let mut algorithms = algorithms.iter();
    let mut compiled = Vec::with_capacity(passes.len());
    for pass in passes {
        compiled.push(match pass {
            FusedPass::Product(product) => {
                let three = algorithms.next().expect("three algorithms a product");
                CompiledPass::Product(Box::new(compiler.product(product, three, workspaces)?))
            }
            FusedPass::Epilogue(epilogue) => {
                let Compiler { device, options, layout, .. } = &mut compiler;
                let numbered = (compiled.len() + 1, *epilogue);
                let epilogue = CompiledEpilogue::new(device, numbered, (&tensors, curved), options, layout)?;
                CompiledPass::Epilogue(Box::new(epilogue))
            }
            FusedPass::AveragePool(average) => {
                CompiledPass::AveragePool(CompiledAveragePool::new(device, average, options.precision)?)
            }
            FusedPass::Targets(layer) => {
                let (source, shapes) = (hard.next().expect("one each"), [layer.z, output].map(|t| tensors[t].shape));
                let numbered = (compiled.len() + 1, layer);
                CompiledPass::Targets(Box::new(CompiledTargets::new(device, numbered, source, shapes)?))
            }
        });
    }
    Ok((compiled, regions))
}

impl Compiler<'_> {
    fn tensors(&mut self, plan: &FusionPlan) -> Vec<TensorRegions> {
        let (output, curved) = (plan.output, plan.curved);
        let (batch, bytes) = (self.options.batch, self.options.precision.activation_bytes());
        let regions = |(i, t): (usize, &PlannedTensor)| {
            // The logits are f32 whatever the activations are; there is little of them.
            let value_bytes = if i == output { 4 } else { bytes };
            let values = self.layout.take(batch * t.shape.height * t.shape.width * t.stored * value_bytes);
            let needed = t.needs_slopes || i == output;
            let mut take = |needed: bool| needed.then(|| self.layout.take(batch * t.shape.len() * bytes));
            let [slopes, curvature] = [needed, needed && curved].map(&mut take);
            TensorRegions { values, slopes, curvature }
        };
        plan.tensors.iter().enumerate().map(regions).collect()
    }

    /// Whether a product's gradients are computed in the side stream. Where no slopes go further down, there is nothing to
    /// be beside.
    fn on_side_stream(&self, [_, input, weights]: &[Option<(Gemm, Algorithm)>; 3]) -> bool {
        let most = if tries("beside") { SMALL << 1 } else { SMALL };
        let small = |(gemm, _): (Gemm, Algorithm)| gemm.multiply_adds(self.options.batch) <= most;
        self.options.alone && input.is_some() && weights.is_some_and(small)
    }

    /// The number of the stream that a product's part runs in: 0 for the main one, 1 for the side stream.
    fn stream(&self, three: &[Option<(Gemm, Algorithm)>; 3], mode: Mode) -> usize {
        usize::from(mode == Mode::Weights && self.on_side_stream(three))
    }

    /// Products of one stream run one after another, so they share a workspace.
    fn workspaces(&mut self, algorithms: &Algorithms) -> Result<[Region; 2], CudaError> {
        let mut most = [0, 0];
        for three in algorithms {
            for (gemm, algorithm) in three.iter().flatten() {
                let bytes = CompiledGemm::workspace(gemm, *algorithm, self.libraries, self.options.batch)?;
                let most = &mut most[self.stream(three, gemm.mode)];
                *most = bytes.max(*most);
            }
        }
        Ok(most.map(|bytes| self.layout.take(bytes)))
    }

    fn product(
        &mut self,
        product: Product,
        three: &[Option<(Gemm, Algorithm)>; 3],
        workspaces: [Region; 2],
    ) -> Result<CompiledProduct, CudaError> {
        let mut gemm = |part: &Option<(Gemm, Algorithm)>| {
            let Some((gemm, algorithm)) = *part else { return Ok(None) };
            let (workspace, batch) = (workspaces[self.stream(three, gemm.mode)], self.options.batch);
            CompiledGemm::new(self.device, gemm, algorithm, self.libraries, workspace, batch, self.layout).map(Some)
        };
        let [forward, input, weights] = three;
        let forward = gemm(forward)?.expect("every product runs forward");
        let input = gemm(input)?;
        let weights = gemm(weights)?.expect("every product has weights");
        let bias_gradient = BiasGradient::new(self.device, &product, self.options, self.layout)?;
        let on_side_stream = self.on_side_stream(three);
        Ok(CompiledProduct { product, forward, input, weights, on_side_stream, bias_gradient })
    }
}

#[cfg(test)]
mod tests;
