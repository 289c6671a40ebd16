//! A network on the GPU: the CPU's network, parameter for parameter, compiled for one batch size.
//!
//! | module | subject |
//! | --- | --- |
//! | `engine` | what is asked of any engine |
//! | `state` | what the network holds: parameters, statistics, moments, outputs |
//! | `training` | spans of captured steps, on data that lives on the GPU or is streamed from the host |

mod engine;
mod state;
mod training;

use crate::CudaError;
use crate::abi::DeviceStep;
use crate::data::ResidentData;
use crate::device::Device;
use crate::executor::{self, Executor, ExecutorConfig, SharedReducer};
use crate::gemm::Gemm;
use crate::graphs::GraphCache;
use crate::libraries::Libraries;
use crate::nccl::Communicator;
use crate::passes::{self, ChosenProducts, CompileOptions, Statistics};
use crate::plan::{FusionPlan, PlannedTensor, Role};
use crate::precision::Precision;
use crate::scalars::{RowStep, ScalarLayout};
use crate::staging::StagingBuffers;
use crate::streamed::{StreamedPictures, StreamedPixels};
use crate::tuning::{self, Tuning};
use ftprop_nn::engine::{EngineError, Learning, Part, Teacher, check_batch};
use ftprop_nn::graph::{Node, Op};
use ftprop_nn::target::TargetRule;
use ftprop_nn::{Graph, OptimizerSpec, Portion, Step, Tally};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// Everything that a network on a GPU is compiled for.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// What the network is.
    pub graph: Arc<Graph>,
    /// How it learns.
    pub learning: Learning,
    /// The most examples a batch may have.
    pub batch: usize,
    /// What the matrix units compute with.
    pub precision: Precision,
    /// How its products are chosen.
    pub tuning: Tuning,
}

/// Kernels count the numbers of a tensor in 32 bits, a whole grid ahead.
const MAX_NUMBERS: usize = i32::MAX as usize - (1 << 22);

/// Which kernels take a network's passes: there are some for small batches and some for large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// Those that suit it.
    Usual,
    /// Those whose blocks wait for each other, wherever they can.
    Cooperative,
    /// Those whose blocks do not.
    Apart,
    /// Those for large batches, whatever its own are.
    Large,
}

/// A compiled network with its optimizer.
pub struct CudaNetwork {
    config: NetworkConfig,
    scalars: ScalarLayout,
    executor: Executor,
    graphs: GraphCache,
    /// Made at first use.
    staging: Option<StagingBuffers>,
    /// Data of each part that lives on the GPU.
    resident: HashMap<Part, ResidentData>,
    /// Pictures of each part that stay on the host and become batches on the GPU.
    streamed: HashMap<Part, StreamedPictures>,
    /// Where batches of pictures as bytes go, if that is how training pictures come.
    pixels: Option<StreamedPixels>,
    reducer: Option<SharedReducer>,
    /// Steps that the optimizer has taken.
    steps: u64,
    /// Examples of the last batch from the host.
    last: usize,
    /// Where the announced examples are in batches that several GPUs share.
    portion: Option<Portion>,
}

impl NetworkConfig {
    fn plan(&self, role: Role<'_>) -> Result<FusionPlan, CudaError> {
        if self.batch == 0 {
            return Err(CudaError::EmptyBatch);
        }
        if let Some(rule) = self.refused_rule().filter(|_| matches!(role, Role::Pupil(_))) {
            return Err(CudaError::FurtherRule { rule: rule.to_string() });
        }
        let plan = FusionPlan::new(&self.graph, role);
        let large = |t: &&PlannedTensor| self.batch * t.shape.height * t.shape.width * t.stored > MAX_NUMBERS;
        match plan.tensors.iter().find(large) {
            Some(tensor) => Err(CudaError::BatchTooLarge { batch: self.batch, shape: tensor.shape }),
            None => Ok(plan),
        }
    }

    /// A target rule that no kernel follows.
    fn refused_rule(&self) -> Option<TargetRule> {
        let refused = |node: &Node| match &node.op {
            Op::Hard(unit, _) if unit.device_pieces().is_none() => Some(unit.rule),
            _ => None,
        };
        self.graph.walk().into_iter().find_map(refused)
    }

    /// Which of the teacher's activations hard layers go by.
    fn followed(&self) -> Result<Vec<Option<usize>>, CudaError> {
        Ok(Teacher::followed(self.learning.teacher.as_deref(), &self.graph)?)
    }

    /// The network that is learned from, compiled for the same batches; what its activations are of may be kept.
    fn teacher(&self, device: &Device, teacher: &Teacher, kept: bool) -> Result<Executor, CudaError> {
        teacher.check(&self.graph)?;
        // It learns nothing, so that any optimizer will do: the one without moments.
        let learning = Learning::new(&teacher.graph, &OptimizerSpec::sgd(1.0, 0.0)?)?;
        let config = NetworkConfig { graph: teacher.graph.clone(), learning, ..self.clone() };
        let network = CudaNetwork::in_role(device, config, Paths::Usual, Role::Teacher { kept })?;
        network.set_values(&teacher.network.values)?;
        network.set_stats(&teacher.network.statistics)?;
        network.executor.load_running_statistics()?;
        network.wait()?;
        Ok(network.executor)
    }

    /// What computes each product of a plan.
    fn choose(
        &self,
        device: &Device,
        plan: &FusionPlan,
        executor_config: &ExecutorConfig<'_>,
    ) -> Result<(Vec<ChosenProducts>, Libraries), CudaError> {
        let gemms = passes::gemms(plan, self.precision);
        let all: Vec<Gemm> = gemms.iter().flatten().flatten().copied().collect();
        let others = || executor::sources(plan, &[], executor_config);
        let (chosen, libraries) = tuning::choose(device, &all, self.batch, self.tuning, others)?;
        let mut chosen = chosen.into_iter();
        let mut next = |gemm: Gemm| (gemm, chosen.next().expect("an algorithm for each product"));
        let algorithms = gemms.into_iter().map(|three| three.map(|gemm| gemm.map(&mut next))).collect();
        Ok((algorithms, libraries))
    }

    /// With so many blocks that may wait for each other, on a GPU that the network has to itself.
    fn executor_config(&self, cooperative_blocks: usize, paths: Paths) -> ExecutorConfig<'_> {
        let sync_norm = self.learning.sync_norm;
        let waits = match paths {
            _ if sync_norm => false,
            // What has the same bytes alone and beside others cannot take the whole GPU.
            Paths::Usual => matches!(self.tuning, Tuning::Alone | Tuning::Libraries),
            Paths::Cooperative => true,
            Paths::Apart | Paths::Large => false,
        };
        let options = CompileOptions {
            precision: self.precision,
            batch: self.batch,
            rows_for: if paths == Paths::Large { self.batch << 20 } else { self.batch },
            alone: self.tuning != Tuning::Shared,
            sync_norm,
            cooperative_blocks: if waits { cooperative_blocks } else { 0 },
            scalars: ScalarLayout::new(&self.graph, &self.learning),
        };
        ExecutorConfig { options, graph: &self.graph, learning: &self.learning }
    }
}

impl CudaNetwork {
    /// Compiles a network. All parameters are zero until [`initialise`](Self::initialise) or
    /// [`set_values`](Self::set_values).
    pub fn new(device: &Device, config: NetworkConfig) -> Result<Self, CudaError> {
        CudaNetwork::with_paths(device, config, Paths::Usual)
    }

    /// Compiles a network that takes certain kernels.
    pub(crate) fn with_paths(device: &Device, config: NetworkConfig, paths: Paths) -> Result<Self, CudaError> {
        let followed = config.followed()?;
        CudaNetwork::in_role(device, config, paths, Role::Pupil(&followed))
    }

    /// Compiles the kernels of many networks side by side, so that these are then made without waiting for the compiler. A kernel takes
    /// one core, and a single network has too few of them for all cores.
    pub(crate) fn compile_ahead(device: &Device, configs: &[NetworkConfig], paths: Paths) -> Result<(), CudaError> {
        let mut sources = Vec::new();
        for config in configs {
            let followed = config.followed()?;
            let plan = config.plan(Role::Pupil(&followed))?;
            let executor_config = config.executor_config(device.cooperative_blocks()?, paths);
            let (algorithms, _) = config.choose(device, &plan, &executor_config)?;
            sources.extend(executor::sources(&plan, &algorithms, &executor_config));
        }
        device.modules(&sources).map(|_| ())
    }

    fn in_role(device: &Device, config: NetworkConfig, paths: Paths, role: Role<'_>) -> Result<Self, CudaError> {
        device.check()?;
        let plan = config.plan(role)?;
        let executor_config = config.executor_config(device.cooperative_blocks()?, paths);
        let (algorithms, libraries) = config.choose(device, &plan, &executor_config)?;
        let kept = matches!(role, Role::Pupil(followed) if !followed.is_empty());
        let teacher = config.learning.teacher.as_ref();
        let teacher = teacher.map(|teacher| config.teacher(device, teacher, kept)).transpose()?;
        let executor = Executor::new(device, plan, &algorithms, &libraries, &executor_config, teacher)?;
        let network = CudaNetwork {
            scalars: executor_config.options.scalars,
            config,
            executor,
            graphs: GraphCache::default(),
            staging: None,
            resident: HashMap::new(),
            streamed: HashMap::new(),
            pixels: None,
            reducer: None,
            steps: 0,
            last: 0,
            portion: None,
        };
        network.set_stats(&network.config.graph.initial_statistics())?;
        Ok(network)
    }

    /// Sets every parameter and statistic to where training starts from: the CPU's numbers.
    pub fn initialise(&mut self, seed: u64) -> Result<(), CudaError> {
        let values = self.config.graph.initial_values(seed);
        self.set_values(&values)?;
        self.set_average(&values)?;
        self.set_stats(&self.config.graph.initial_statistics())
    }

    /// One step of Algorithm 2 up to the optimizer, on a batch from the host.
    pub fn learn(&mut self, images: &[f32], labels: &[u32], step: &Step) -> Result<Tally, EngineError> {
        self.learn_portion(images, labels, step, None)
    }

    /// The same on a portion of a batch that several GPUs share; there may be no example here.
    pub fn learn_portion(
        &mut self,
        images: &[f32],
        labels: &[u32],
        step: &Step,
        portion: Option<Portion>,
    ) -> Result<Tally, EngineError> {
        self.check_portion(portion)?;
        let none = portion.is_some() && images.is_empty() && labels.is_empty();
        let n = if none { 0 } else { self.stage(images, labels)? };
        let at = DeviceStep::new(step.seed, 0, step.number, 0).within(portion);
        self.set_step(step.seed, at, &[(1.0, step.progress)])?;
        self.executor.clear_tally()?;
        self.executor.clear_not_numbers()?;
        if n > 0 {
            self.load_staged(n)?;
        }
        self.executor.take_gradients(n)?;
        self.reduce()?;
        Ok(self.take_tally()?)
    }

    /// One step along the last gradients, the learning rate scaled by `lr_factor`. Gives the gradient's norm
    /// back where it is clipped.
    pub fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, CudaError> {
        self.wait()?;
        self.set_step(0, DeviceStep::default(), &[(lr_factor, 0.0)])?;
        self.executor.optimize(false)?;
        self.steps += 1;
        self.executor.gradient_norm()
    }

    /// The logits of a batch from the host, `[n, classes]`, with running statistics and without dropout.
    pub fn infer(&mut self, images: &[f32]) -> Result<Vec<f32>, EngineError> {
        let n = images.len() / self.config.graph.input().len();
        self.evaluate(images, &vec![0; n])?;
        Ok(self.logits(n)?)
    }

    /// Tallies a batch from the host without learning from it.
    pub fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, EngineError> {
        let n = self.stage(images, labels)?;
        self.executor.set_step(DeviceStep::default(), &self.scalars.idle_row())?;
        self.executor.clear_tally()?;
        self.executor.clear_not_numbers()?;
        self.load_staged(n)?;
        self.executor.load_running_statistics()?;
        self.executor.evaluate(n)?;
        Ok(self.take_tally()?)
    }

    /// Takes a batch's statistics into the running ones.
    fn take_statistics(&mut self, images: &[f32], before: usize) -> Result<(), EngineError> {
        if images.is_empty() && self.config.learning.sync_norm {
            self.executor.attend(Statistics::Mean { before })?;
            return Ok(self.wait()?);
        }
        let n = self.stage(images, &vec![0; images.len() / self.config.graph.input().len()])?;
        self.executor.set_step(DeviceStep::default(), &self.scalars.idle_row())?;
        self.load_staged(n)?;
        self.executor.forward(n, Statistics::Mean { before })?;
        Ok(self.wait()?)
    }

    /// Has the gradients go through the reducer, where there is one: through the host's memory.
    fn reduce(&mut self) -> Result<(), EngineError> {
        let Some(reducer) = &self.reducer else { return Ok(()) };
        let mut reducer = reducer.lock().unwrap_or_else(PoisonError::into_inner);
        let (parameters, stream) = (self.executor.parameters(), self.executor.stream());
        let mut gradients = parameters.read_grads(stream)?;
        if self.config.learning.sync_norm {
            reducer.reduce(&mut gradients, &mut [])?;
        } else {
            let mut statistics = parameters.read_stats(stream)?;
            reducer.reduce(&mut gradients, &mut statistics)?;
            parameters.write_stats(stream, &statistics)?;
        }
        Ok(parameters.write_grads(stream, &gradients)?)
    }

    /// Has gradients and statistics go through other GPUs, beside the backward pass and inside captured steps. Ends what
    /// was captured before.
    pub fn set_communicator(&mut self, communicator: Communicator) -> Result<(), CudaError> {
        self.wait()?;
        self.graphs = GraphCache::default();
        self.executor.set_exchange(communicator)
    }

    /// Sets the next step, and the scalars of as many as are given: what the learning rate is multiplied by, and the
    /// share of training done.
    fn set_step(&self, seed: u64, step: DeviceStep, steps: &[(f64, f32)]) -> Result<(), CudaError> {
        let mut rows = Vec::with_capacity(steps.len() * self.scalars.width());
        for (i, &(lr_factor, progress)) in (0..).zip(steps) {
            let row = RowStep { seed, number: step.number + i, lr_factor, progress };
            self.scalars.push_row(self.steps + 1 + i, row, &mut rows);
        }
        self.executor.set_step(step, &rows)
    }

    /// Waits for everything that was asked for.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.executor.wait()
    }

    /// Waits, and takes what was tallied since the last time.
    pub fn take_tally(&mut self) -> Result<Tally, CudaError> {
        let t = self.executor.read_tally()?;
        self.executor.clear_tally()?;
        Ok(Tally { examples: t.examples, loss_sum: t.loss_sum, top1: t.top1, top5: t.top5 })
    }

    /// The network's kernels, to time them one by one.
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Puts a host's batch where [`load_staged`](Self::load_staged) takes it from.
    fn stage(&mut self, images: &[f32], labels: &[u32]) -> Result<usize, EngineError> {
        let n = check_batch(&self.config.graph, self.config.batch, images, Some(labels))?;
        self.last = n;
        self.wait()?;
        self.reserve_streaming()?;
        let staging = self.staging.as_ref().expect("made above");
        staging.put(self.executor.stream(), images, labels)?;
        Ok(n)
    }

    fn load_staged(&self, n: usize) -> Result<(), CudaError> {
        let staging = self.staging.as_ref().expect("something was put there before it is taken");
        self.executor.load_staged(staging, n)
    }
}

#[cfg(test)]
mod tests;
