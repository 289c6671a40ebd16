//! A network on the GPU: the CPU's network, parameter for parameter, compiled for one batch size.

use crate::CudaError;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::compile::{File, Kernels, Source};
use crate::device::Device;
use crate::gemm::{Algorithm, Gemm};
use crate::memory::{DeviceBuffer, out_of_memory};
use crate::passes::{self, BatchContext, CompileOptions, CompiledPass, FlatBuffers, TensorRegions};
use crate::plan::{FusedPass, FusionPlan};
use crate::precision::Precision;
use crate::step::{DeviceStep, DeviceTally, StepScalars};
use crate::stream::{Args, CudaStream, LaunchConfig, SideStream};
use crate::training::StagingBuffers;
use crate::tuning::{self, Libraries, Tuning};
use ftprop_nn::parameter::{Parameter, Statistic};
use ftprop_nn::{Defaults, LayerInfo, LayerSpec, Network, OptimizerSpec, OutputLoss, Shape, Tally};
use ftprop_tensor::Cpu;
use std::collections::HashMap;
use std::sync::Arc;

/// Everything that a network on a GPU is compiled for.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub layers: Vec<LayerSpec>,
    pub defaults: Defaults,
    pub input: Shape,
    pub classes: usize,
    /// The most examples a batch may have.
    pub batch: usize,
    pub precision: Precision,
    pub tuning: Tuning,
    pub loss: OutputLoss,
    pub label_smoothing: f32,
    pub optimizer: OptimizerSpec,
    /// The largest norm that the whole gradient may have.
    pub clip: Option<f64>,
}

/// Rows of the table of scalars: a longer span of steps is cut into parts.
pub(crate) const TABLE: usize = 1 << 16;

/// The most blocks that the loss is summed by, and warps of each.
const LOSS_BLOCKS: u32 = 64;
const LOSS_WARPS: u32 = 8;

/// Blocks that the gradient's norm is summed by.
const CLIP_BLOCKS: u32 = 256;

/// A compiled network with its optimizer.
pub struct CudaNetwork {
    pub(crate) device: Device,
    pub(crate) config: NetworkConfig,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) statistics: Vec<Statistic>,
    pub(crate) infos: Vec<LayerInfo>,
    pub(crate) initial: Network,
    pub(crate) runs: Vec<CompiledPass>,
    /// The shape of what each pass gives.
    pub(crate) outputs: Vec<Shape>,
    pub(crate) tensors: Vec<TensorRegions>,
    pub(crate) input: usize,
    /// Channels that a pixel of the input is stored with.
    pub(crate) stored: usize,
    pub(crate) output: usize,
    pub(crate) logits_f32: bool,
    pub(crate) arena: Arena,
    pub(crate) values: DeviceBuffer,
    pub(crate) grads: DeviceBuffer,
    pub(crate) moments: Vec<DeviceBuffer>,
    pub(crate) copy: Option<DeviceBuffer>,
    pub(crate) stats: DeviceBuffer,
    pub(crate) loss: Kernels,
    pub(crate) optimizer: Kernels,
    pub(crate) basic: Kernels,
    pub(crate) step: Region,
    pub(crate) table: Region,
    pub(crate) tally: Region,
    pub(crate) tally_parts: Region,
    pub(crate) tally_counter: Region,
    pub(crate) labels: Region,
    pub(crate) clip: [Region; 4],
    pub(crate) counter: Region,
    pub(crate) main: CudaStream,
    /// For gradients, which the slopes on their way down do not wait for; none where other networks keep the GPU busy.
    side: Option<SideStream>,
    /// Steps that the optimizer has taken.
    pub(crate) steps: u64,
    pub(crate) graphs: HashMap<crate::training::GraphKey, crate::stream::CudaGraph>,
    /// Data that captured graphs read.
    pub(crate) kept: HashMap<u64, crate::data::ResidentData>,
    pub(crate) streaming: Option<StagingBuffers>,
}

impl CudaNetwork {
    /// Compiles a network. All parameters are zero until [`initialise`](Self::initialise) or
    /// [`set_values`](Self::set_values).
    pub fn new(device: &Device, config: NetworkConfig) -> Result<Self, CudaError> {
        let NetworkConfig { input, classes, batch, precision, .. } = config;
        ftprop_nn::Criterion::new(config.loss, config.label_smoothing)?;
        ftprop_nn::Optimizer::new(&config.optimizer, 0)?;
        if batch == 0 {
            return Err(CudaError::Setting("a batch needs at least one example".into()));
        }
        device.check()?;
        // The CPU's network checks the layers and lays out the parameters; one example of it costs little.
        let cpu = Arc::new(Cpu::new(1).map_err(|e| CudaError::Setting(e.to_string()))?);
        let initial = Network::new(cpu, &config.layers, config.defaults, input, classes, 1)?;
        let (parameters, statistics) = (initial.parameters().to_vec(), initial.statistics().to_vec());
        let plan = FusionPlan::new(&config.layers, config.defaults, input, classes, &parameters, &statistics);
        if let Some(t) = plan.tensors.iter().find(|t| batch * t.shape.len() > i32::MAX as usize) {
            return Err(CudaError::Setting(format!(
                "a batch of {batch} examples of {} is too large for one kernel; lower the batch size",
                t.shape
            )));
        }

        let gemms = passes::gemms(&plan, precision);
        let all: Vec<Gemm> = gemms.iter().flatten().flatten().copied().collect();
        let limits = device.limits()?;
        let (chosen, libraries) = match config.tuning {
            Tuning::Fixed => {
                (all.iter().map(|g| Algorithm::Tiled(g.guess(batch, limits))).collect(), Libraries::default())
            }
            Tuning::Libraries => tuning::by_libraries(device, &all, batch)?,
            Tuning::Alone => tuning::fastest(device, &all, batch, 1)?,
            Tuning::Shared => tuning::fastest(device, &all, batch, tuning::SHARED_NETWORKS)?,
        };
        let mut chosen = chosen.into_iter();
        let choices: Vec<_> = gemms
            .into_iter()
            .map(|three| three.map(|g| g.map(|g| (g, chosen.next().expect("a choice for each product")))))
            .collect();

        let logits_f32 = has_wide_logits(&plan, precision);
        let alone = config.tuning != Tuning::Shared;
        let cooperative_blocks = if alone { device.cooperative_blocks()? } else { 0 };
        let options = CompileOptions { precision, batch, alone, cooperative_blocks };
        let mut kernels = device.kernels(&sources(&config, &plan, &choices, &options))?;
        let [loss, optimizer, basic] =
            kernels.split_off(kernels.len() - 3).try_into().unwrap_or_else(|_| unreachable!("three were split off"));

        let side = alone.then(|| SideStream::new(device)).transpose()?;
        let mut layout = ArenaLayout::default();
        let (input_tensor, output) = (plan.input, plan.output);
        let stored = plan.tensors[plan.input].stored;
        let shapes: Vec<Shape> = plan.tensors.iter().map(|t| t.shape).collect();
        let (runs, tensors) = passes::build(plan, &choices, kernels, &libraries, &basic, &options, &mut layout)?;
        let step = layout.take(size_of::<DeviceStep>());
        let table = layout.take(TABLE * size_of::<StepScalars>());
        let tally = layout.take(size_of::<DeviceTally>());
        let tally_parts = layout.take(LOSS_BLOCKS as usize * size_of::<DeviceTally>());
        let tally_counter = layout.take(4);
        let labels = layout.take(4 * batch);
        let clip = [layout.take(8 * CLIP_BLOCKS as usize), layout.take(4), layout.take(4), layout.take(8)];
        let counter = layout.take(4);
        let count = initial.values().len();
        let moments = moment_count(&config.optimizer);
        let (free, _) = device.memory()?;
        let parameter_bytes = (2 + moments) * 4 * count + if precision == Precision::Bf16 { 2 * count } else { 0 };
        if parameter_bytes > free {
            return Err(out_of_memory(device, parameter_bytes, "the parameters"));
        }
        let flat = |what: &str| DeviceBuffer::new(device, 4 * count, what);
        let values = flat("the parameters")?;
        let grads = flat("the gradients")?;
        let moments = (0..moments).map(|_| flat("the optimizer's moments")).collect::<Result<_, _>>()?;
        let copy = (precision == Precision::Bf16)
            .then(|| DeviceBuffer::new(device, 2 * count, "the parameters"))
            .transpose()?;
        let stats = DeviceBuffer::new(device, 4 * initial.stats().len(), "the running statistics")?;
        let arena = layout.build(device, &format!("a batch of {batch}"))?;

        let network = CudaNetwork {
            device: device.clone(),
            infos: initial.layers().to_vec(),
            parameters,
            statistics,
            initial,
            outputs: runs.iter().map(|run| shapes[run.output()]).collect(),
            runs,
            tensors,
            input: input_tensor,
            stored,
            output,
            logits_f32,
            arena,
            values,
            grads,
            moments,
            copy,
            stats,
            loss,
            optimizer,
            basic,
            step,
            table,
            tally,
            tally_parts,
            tally_counter,
            labels,
            clip,
            counter,
            main: CudaStream::new(device)?,
            side,
            steps: 0,
            graphs: HashMap::new(),
            kept: HashMap::new(),
            streaming: None,
            config,
        };
        network.set_stats(network.initial.stats())?;
        Ok(network)
    }

    /// Sets every parameter and statistic to where training starts from: the CPU's numbers.
    pub fn initialise(&mut self, seed: u64) -> Result<(), CudaError> {
        self.initial.initialise(seed);
        self.set_values(self.initial.values())?;
        self.set_stats(self.initial.stats())
    }

    /// One step of Algorithm 2 up to the optimizer, on a batch from the host.
    pub fn learn(&mut self, images: &[f32], labels: &[u32], step: &ftprop_nn::Step) -> Result<Tally, CudaError> {
        let n = self.put(images, labels)?;
        let at = DeviceStep::new(step.seed, 0, step.number, 0);
        let scalars = StepScalars::new(&self.config.optimizer, self.steps + 1, 1.0, step.progress);
        self.set_step(at, &[scalars])?;
        self.clear_tally()?;
        self.load_staged(n)?;
        self.forward(n, true)?;
        self.apply_loss(n, true)?;
        self.backward(n)?;
        self.take_tally()
    }

    /// One step along the last gradients, the learning rate scaled by `lr_factor`. Gives the gradient's norm
    /// back where it is clipped.
    pub fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, CudaError> {
        self.wait()?;
        let scalars = StepScalars::new(&self.config.optimizer, self.steps + 1, lr_factor, 0.0);
        self.set_step(DeviceStep::default(), &[scalars])?;
        self.apply_optimizer(false)?;
        self.steps += 1;
        self.main.wait()?;
        let norm = |_| Ok(self.arena.buffer.read::<f64>(&self.main, self.arena.offset(self.clip[3]), 1)?[0]);
        self.config.clip.map(norm).transpose()
    }

    /// The logits of a batch from the host, `[n, classes]`, with running statistics and without dropout.
    pub fn infer(&mut self, images: &[f32]) -> Result<Vec<f32>, CudaError> {
        let n = images.len() / self.config.input.len().max(1);
        self.evaluate(images, &vec![0; n])?;
        self.logits(n)
    }

    /// Tallies a batch from the host without learning from it.
    pub fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, CudaError> {
        let n = self.put(images, labels)?;
        self.set_step(DeviceStep::default(), &[StepScalars::default()])?;
        self.clear_tally()?;
        self.load_staged(n)?;
        self.load_running_statistics()?;
        self.forward(n, false)?;
        self.apply_loss(n, false)?;
        self.take_tally()
    }

    /// Waits for everything that was asked for.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.main.wait()
    }

    /// A label that is no class would be looked up outside the logits.
    pub(crate) fn check_labels(&self, labels: &[u32]) -> Result<(), CudaError> {
        match labels.iter().find(|&&l| l as usize >= self.config.classes) {
            Some(label) => {
                Err(CudaError::Setting(format!("label {label} is not below {} classes", self.config.classes)))
            }
            None => Ok(()),
        }
    }

    /// Puts a host's batch where `load_staged` takes it from.
    fn put(&mut self, images: &[f32], labels: &[u32]) -> Result<usize, CudaError> {
        let len = self.config.input.len();
        let n = labels.len();
        if n == 0 || n > self.config.batch || images.len() != n * len {
            return Err(CudaError::Setting(format!(
                "{} values and {n} labels are no batch of at most {} examples of {}",
                images.len(),
                self.config.batch,
                self.config.input
            )));
        }
        self.check_labels(labels)?;
        self.wait()?;
        self.staging()?;
        let streaming = self.streaming.as_ref().expect("made above");
        streaming.images.write(&self.main, 0, images)?;
        streaming.labels.write(&self.main, 0, labels)?;
        Ok(n)
    }

    pub(crate) fn set_step(&self, step: DeviceStep, scalars: &[StepScalars]) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: pageable memory is read before the call returns; both places have room.
        unsafe {
            self.main.copy_in(self.arena.at(self.step), &[step])?;
            self.main.copy_in(self.arena.at(self.table), scalars)
        }
    }

    pub(crate) fn clear_tally(&self) -> Result<(), CudaError> {
        self.device.enter()?;
        self.main.clear(self.arena.at(self.tally), size_of::<DeviceTally>())
    }

    pub(crate) fn read_tally(&self) -> Result<DeviceTally, CudaError> {
        Ok(self.arena.buffer.read(&self.main, self.arena.offset(self.tally), 1)?[0])
    }

    pub(crate) fn write_tally(&self, tally: DeviceTally) -> Result<(), CudaError> {
        self.arena.buffer.write(&self.main, self.arena.offset(self.tally), &[tally])
    }

    /// Waits, and takes what was tallied since the last time.
    pub fn take_tally(&mut self) -> Result<Tally, CudaError> {
        let t = self.read_tally()?;
        self.clear_tally()?;
        Ok(Tally { examples: t.examples, loss_sum: t.loss_sum, top1: t.top1, top5: t.top5 })
    }

    pub(crate) fn launch(&self, n: usize) -> BatchContext<'_> {
        let (factors, factor_bytes) = match &self.copy {
            Some(copy) => (copy.at(0), 2),
            None => (self.values.at(0), 4),
        };
        let flat = FlatBuffers {
            values: self.values.at(0),
            factors,
            factor_bytes,
            grads: self.grads.at(0),
            stats: self.stats.at(0),
            step: self.arena.at(self.step),
            scalars: self.arena.at(self.table),
        };
        BatchContext { arena: &self.arena, tensors: &self.tensors, flat, n }
    }

    /// The address of the network's input.
    pub(crate) fn images(&self) -> u64 {
        self.arena.at(self.tensors[self.input].values)
    }

    pub(crate) fn forward(&self, n: usize, training: bool) -> Result<(), CudaError> {
        self.device.enter()?;
        let launch = self.launch(n);
        self.runs.iter().try_for_each(|run| run.forward(&launch, &self.main, training))
    }

    pub(crate) fn load_running_statistics(&self) -> Result<(), CudaError> {
        let launch = self.launch(1);
        self.runs.iter().try_for_each(|run| run.load_running_statistics(&launch, &self.main))
    }

    pub(crate) fn apply_loss(&self, n: usize, learning: bool) -> Result<(), CudaError> {
        let slopes = self.tensors[self.output].slopes.map_or(0, |place| self.arena.at(place));
        let args = Args::default()
            .ptr(self.arena.at(self.tensors[self.output].values))
            .ptr(self.arena.at(self.labels))
            .ptr(slopes)
            .ptr(self.arena.at(self.tally))
            .ptr(self.arena.at(self.tally_parts))
            .ptr(self.arena.at(self.tally_counter))
            .int(n)
            .int(usize::from(learning));
        let blocks = (n as u32).div_ceil(LOSS_WARPS).min(LOSS_BLOCKS);
        let launch_config = LaunchConfig { grid: (blocks, 1, 1), threads: 32 * LOSS_WARPS, shared: 0 };
        // SAFETY: the arguments are those of `output_loss` in output_loss.cu.
        unsafe { self.main.launch(&self.loss, 0, launch_config, &args) }
    }

    /// Targets and slopes, layer by layer, with the gradients of each layer's parameters. Nothing further down waits for
    /// those, so they are computed beside.
    pub(crate) fn backward(&self, n: usize) -> Result<(), CudaError> {
        let launch = self.launch(n);
        for run in self.runs.iter().rev() {
            if run.uses_side_stream() {
                run.gradients(&launch, self.beside()?)?;
            } else {
                run.gradients(&launch, &self.main)?;
            }
            run.back(&launch, &self.main)?;
            if run.has_partial_bias() {
                run.reduce_bias_gradient(&launch, self.beside()?)?;
            }
        }
        self.side.iter().try_for_each(|side| side.lead(&self.main))
    }

    /// The queue for what nothing further down waits for, where what has been put into the first one by now comes first.
    fn beside(&self) -> Result<&CudaStream, CudaError> {
        match &self.side {
            Some(side) => side.follow(&self.main).map(|()| &side.stream),
            None => Ok(&self.main),
        }
    }

    /// The optimizer's pass over the flat buffers.
    pub(crate) fn apply_optimizer(&self, advance: bool) -> Result<(), CudaError> {
        self.device.enter()?;
        let count = self.count();
        let mut scale = 0;
        if let Some(most) = self.config.clip {
            let [partial, counter, clip_scale, norm] = self.clip.map(|p| self.arena.at(p));
            scale = clip_scale;
            let args = Args::default()
                .ptr(self.grads.at(0))
                .ptr(partial)
                .ptr(counter)
                .ptr(scale)
                .ptr(norm)
                .int(count)
                .double(most);
            let launch_config = LaunchConfig { grid: (CLIP_BLOCKS, 1, 1), threads: 256, shared: 0 };
            // SAFETY: the arguments are those of `clip` in basic.cu.
            unsafe { self.main.launch(&self.basic, 4, launch_config, &args)? };
        }
        let moment = |i: usize| self.moments.get(i).map_or(0, |m| m.at(0));
        let args = Args::default()
            .ptr(self.values.at(0))
            .ptr(self.grads.at(0))
            .ptr(moment(0))
            .ptr(moment(1))
            .ptr(self.copy.as_ref().map_or(0, |c| c.at(0)))
            .ptr(scale)
            .ptr(self.arena.at(self.step))
            .ptr(self.arena.at(self.table))
            .ptr(self.arena.at(self.counter))
            .int(count)
            .int(usize::from(advance));
        // SAFETY: the arguments are those of `optimize` in optimizer.cu.
        unsafe { self.main.launch(&self.optimizer, 0, LaunchConfig::for_items(count.div_ceil(4)), &args) }
    }
}

/// Whether the logits are f32 whatever the activations are.
fn has_wide_logits(plan: &FusionPlan, precision: Precision) -> bool {
    let last_is_product = matches!(plan.passes.last(), Some(FusedPass::Product(p)) if p.y == plan.output);
    precision != Precision::Bf16 || last_is_product
}

/// All that is compiled for a network: its passes' kernels, then the loss's, the optimizer's and the basic ones.
fn sources(
    config: &NetworkConfig,
    plan: &FusionPlan,
    choices: &passes::Algorithms,
    options: &CompileOptions,
) -> Vec<Source> {
    let precision = config.precision;
    let mut sources = passes::sources(plan, choices, options);
    sources.extend([
        loss_source(config, has_wide_logits(plan, precision)),
        optimizer_source(&config.optimizer, precision),
        Source::new(File::Basic, precision),
    ]);
    sources
}

fn moment_count(spec: &OptimizerSpec) -> usize {
    match spec {
        OptimizerSpec::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
        OptimizerSpec::Rmsprop { momentum, .. } => 1 + usize::from(*momentum != 0.0),
        OptimizerSpec::Adam { .. } | OptimizerSpec::Adamw { .. } => 2,
    }
}

fn loss_source(config: &NetworkConfig, logits_f32: bool) -> Source {
    let loss = match config.loss {
        OutputLoss::CrossEntropy => "OUTPUT_LOSS_CROSS_ENTROPY",
        OutputLoss::MultiHinge => "OUTPUT_LOSS_MULTI_HINGE",
        OutputLoss::SquaredMultiHinge => "OUTPUT_LOSS_SQUARED_MULTI_HINGE",
        OutputLoss::CrammerSinger => "OUTPUT_LOSS_CRAMMER_SINGER",
        OutputLoss::OneVsRestHinge => "OUTPUT_LOSS_ONE_VS_REST_HINGE",
        OutputLoss::SquaredOneVsRestHinge => "OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE",
    };
    Source::new(File::OutputLoss, config.precision)
        .int("CLASSES", config.classes)
        .name("OUTPUT_LOSS", loss)
        .float("SMOOTHING", config.label_smoothing)
        .int("LOGITS_F32", usize::from(logits_f32))
}

fn optimizer_source(spec: &OptimizerSpec, precision: Precision) -> Source {
    let source = Source::new(File::Optimizer, precision).int("MOMENTS", moment_count(spec));
    match *spec {
        OptimizerSpec::Sgd { momentum, nesterov, weight_decay, .. } => source
            .name("OPTIMIZER", if momentum == 0.0 { "OPTIMIZER_SGD" } else { "OPTIMIZER_SGD_MOMENTUM" })
            .float("DECAY", weight_decay as f32)
            .float("MOMENTUM", momentum as f32)
            .int("NESTEROV", usize::from(nesterov)),
        OptimizerSpec::Adam { beta1, beta2, eps, .. } | OptimizerSpec::Adamw { beta1, beta2, eps, .. } => {
            let decay = if let OptimizerSpec::Adam { weight_decay, .. } = *spec { weight_decay } else { 0.0 };
            source
                .name("OPTIMIZER", "OPTIMIZER_ADAM")
                .float("DECAY", decay as f32)
                .float("BETA1", beta1 as f32)
                .float("BETA2", beta2 as f32)
                .float("REST1", (1.0 - beta1) as f32)
                .float("REST2", (1.0 - beta2) as f32)
                .float("EPS", eps as f32)
        }
        OptimizerSpec::Rmsprop { alpha, momentum, eps, weight_decay, .. } => source
            .name("OPTIMIZER", if momentum == 0.0 { "OPTIMIZER_RMSPROP" } else { "OPTIMIZER_RMSPROP_MOMENTUM" })
            .float("DECAY", weight_decay as f32)
            .float("ALPHA", alpha as f32)
            .float("REST1", (1.0 - alpha) as f32)
            .float("MOMENTUM", momentum as f32)
            .float("EPS", eps as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::DeviceLimits;
    use crate::library::Library;
    use crate::patch::Patch;
    use crate::selftest::Case;
    use std::collections::BTreeSet;

    /// What would be compiled for a network on such a GPU, had it no libraries.
    fn sources_of(config: &NetworkConfig, limits: DeviceLimits) -> Vec<Source> {
        let cpu = Arc::new(Cpu::new(1).unwrap());
        let (input, classes) = (config.input, config.classes);
        let cpu_network = Network::new(cpu, &config.layers, config.defaults, input, classes, 1).unwrap();
        let (parameters, statistics) = (cpu_network.parameters(), cpu_network.statistics());
        let plan = FusionPlan::new(&config.layers, config.defaults, input, classes, parameters, statistics);
        let own = |gemm: Gemm| match Patch::suits(&gemm, limits) {
            true => (gemm, Algorithm::Patch),
            false => (gemm, Algorithm::Tiled(gemm.guess(config.batch, limits))),
        };
        let gemms = passes::gemms(&plan, config.precision);
        let choices: Vec<_> = gemms.into_iter().map(|three| three.map(|gemm| gemm.map(own))).collect();
        let (precision, batch) = (config.precision, config.batch);
        let options = CompileOptions { precision, batch, alone: true, cooperative_blocks: limits.multiprocessors };
        sources(config, &plan, &choices, &options)
    }

    #[test]
    fn every_file_of_kernels_compiles_without_a_gpu() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        let limits = DeviceLimits { multiprocessors: 108, shared: 163 << 10 };
        // Half of the self test's cases, each in one precision; all of its networks are among them.
        let mut all = BTreeSet::new();
        for (i, Case { config, .. }) in crate::selftest::cases().into_iter().enumerate().filter(|(i, _)| i % 4 < 2) {
            let precision = [Precision::Tf32, Precision::Bf16, Precision::F32][i % 3];
            all.extend(sources_of(&NetworkConfig { precision, ..config }, limits));
        }
        let all: Vec<Source> = all.into_iter().collect();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            for worker in 0..threads {
                let part = all.iter().enumerate().skip(worker).step_by(threads);
                scope.spawn(move || {
                    for (i, source) in part {
                        let arch = ["sm_80", "sm_90"][i % 2];
                        let image = source.compile(arch).unwrap_or_else(|error| panic!("{error}"));
                        assert!(image.starts_with(b"\x7fELF"), "{source:?}");
                    }
                });
            }
        });
        println!("{} sources compiled", all.len());
    }
}
