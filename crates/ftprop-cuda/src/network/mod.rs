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
use crate::nccl::Communicator;
use crate::passes::{self, CompileOptions, Statistics};
use crate::plan::{FusionPlan, PlannedTensor};
use crate::precision::Precision;
use crate::scalars::{RowStep, ScalarLayout};
use crate::staging::StagingBuffers;
use crate::streamed::{StreamedPictures, StreamedPixels};
use crate::tuning::{self, Tuning};
use ftprop_nn::engine::{EngineError, Learning, Part, Teacher, check_batch};
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
    fn plan(&self) -> Result<FusionPlan, CudaError> {
        if self.batch == 0 {
            return Err(CudaError::EmptyBatch);
        }
        let mut rules = self.graph.walk().into_iter().filter_map(|node| node.op.target_rule());
        if let Some(rule) = rules.find(|rule| rule.looks_further()) {
            return Err(CudaError::FurtherRule { rule: rule.to_string() });
        }
        let plan = FusionPlan::new(&self.graph);
        let large = |t: &&PlannedTensor| self.batch * t.shape.height * t.shape.width * t.stored > MAX_NUMBERS;
        match plan.tensors.iter().find(large) {
            Some(tensor) => Err(CudaError::BatchTooLarge { batch: self.batch, shape: tensor.shape }),
            None => Ok(plan),
        }
    }

    /// The network that is learned from, compiled for the same batches.
    fn teacher(&self, device: &Device, teacher: &Teacher) -> Result<Executor, CudaError> {
        teacher.check(&self.graph)?;
        // It learns nothing, so that any optimizer will do: the one without moments.
        let learning = Learning::new(&teacher.graph, &OptimizerSpec::sgd(1.0, 0.0)?)?;
        let network =
            CudaNetwork::new(device, NetworkConfig { graph: teacher.graph.clone(), learning, ..self.clone() })?;
        network.set_values(&teacher.network.values)?;
        network.set_stats(&teacher.network.statistics)?;
        network.executor.load_running_statistics()?;
        network.wait()?;
        Ok(network.executor)
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
        device.check()?;
        let plan = config.plan()?;
        let gemms = passes::gemms(&plan, config.precision);
        let all: Vec<Gemm> = gemms.iter().flatten().flatten().copied().collect();
        let executor_config = config.executor_config(device.cooperative_blocks()?, paths);
        let others = || executor::sources(&plan, &[], &executor_config);
        let (chosen, libraries) = tuning::choose(device, &all, config.batch, config.tuning, others)?;
        let mut chosen = chosen.into_iter();
        let algorithms: Vec<_> = gemms
            .into_iter()
            .map(|three| three.map(|g| g.map(|g| (g, chosen.next().expect("an algorithm for each product")))))
            .collect();
        let teacher = config.learning.teacher.as_ref().map(|teacher| config.teacher(device, teacher)).transpose()?;
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
mod tests {
    use super::*;
    use crate::compile::Source;
    use crate::device::DeviceLimits;
    use crate::gemm::Algorithm;
    use crate::library::Library;
    use crate::patch::Patch;
    use ftprop_nn::engine::suite::{self, Case};
    use ftprop_nn::optimizer::{GroupSpec, ParameterClass, ParameterGroups, Setting};
    use std::collections::BTreeSet;

    /// What would be compiled for a network on such a GPU, had it no libraries.
    fn sources_of(config: &NetworkConfig, limits: DeviceLimits, paths: Paths) -> Vec<Source> {
        let plan = config.plan().unwrap();
        let own = |gemm: Gemm| match Patch::suits(&gemm, limits) {
            true => (gemm, Algorithm::Patch),
            false => (gemm, Algorithm::Tiled(gemm.guess(config.batch, limits))),
        };
        let gemms = passes::gemms(&plan, config.precision);
        let algorithms: Vec<_> = gemms.into_iter().map(|three| three.map(|gemm| gemm.map(own))).collect();
        executor::sources(&plan, &algorithms, &config.executor_config(limits.multiprocessors, paths))
    }

    /// Weights by Muon, the rest by what it was.
    fn muon(graph: &Graph, learning: Learning) -> Learning {
        let spec = OptimizerSpec::new("muon", &[("lr", Setting::Number(0.1))]).unwrap();
        let weights = GroupSpec {
            kind: Some(ParameterClass::Weights),
            pattern: None,
            lr_factor: 1.0,
            weight_decay: None,
            momentum: None,
            optimizer: Some(spec),
        };
        let groups = ParameterGroups::resolve(&OptimizerSpec::adam(1e-3).unwrap(), &[weights], graph).unwrap();
        Learning { groups: Arc::new(groups), ..learning }
    }

    #[test]
    fn what_kernels_cannot_count_is_refused() {
        use ftprop_nn::spec::{Init, Kernel};
        use ftprop_nn::{Activation, Defaults, LayerLoss, LayerSpec, Shape};
        let input = Shape { height: 1024, width: 1024, channels: 3 };
        let (stride, kernel, bias) = (1024, Kernel::Rectangle([1, 1]), None);
        let conv = LayerSpec::Conv { out: 2, kernel, stride, pad: 0, groups: 1, bias, init: Init::Uniform };
        let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
        let graph =
            Arc::new(Graph::resolve(&[conv, LayerSpec::Fc { out: None, bias: None }], &defaults, input, 2).unwrap());
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
        let plan = |batch| {
            let (graph, learning, tuning) = (graph.clone(), learning.clone(), Tuning::Fixed);
            NetworkConfig { graph, learning, batch, precision: Precision::Bf16, tuning }.plan().map(|_| ())
        };
        // Pixels have a fourth number, and the last grid must not count past 32 bits.
        for (batch, fits) in [(1, true), (510, true), (511, false), (512, false), (600, false)] {
            assert_eq!(plan(batch).is_ok(), fits, "{batch}");
        }
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
        let cases = suite::cases().unwrap();
        for (i, case) in cases.iter().enumerate().filter(|(i, _)| i % 4 < 2) {
            let precision = [Precision::Tf32, Precision::Bf16, Precision::F32][i % 3];
            let (graph, mut learning) = (case.graph.clone(), case.learning.clone());
            learning.average = (i % 3 == 0).then_some(0.9);
            let config = NetworkConfig { graph, learning, batch: case.batch, precision, tuning: Tuning::Fixed };
            let paths = [Paths::Cooperative, Paths::Large][i / 2 % 2];
            all.extend(sources_of(&config, limits, paths));
            if i < 6 {
                let learning = muon(&config.graph, config.learning.clone());
                all.extend(sources_of(&NetworkConfig { learning, ..config }, limits, Paths::Usual));
            }
        }
        for (case, precision) in suite::taught().unwrap().into_iter().zip([Precision::Bf16, Precision::Tf32].repeat(2))
        {
            let Case { graph, learning, batch, .. } = case;
            all.extend(sources_of(
                &NetworkConfig { graph, learning, batch, precision, tuning: Tuning::Fixed },
                limits,
                Paths::Usual,
            ));
        }
        let all: Vec<Source> = all.into_iter().collect();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            for worker in 0..threads {
                let part = all.iter().enumerate().skip(worker).step_by(threads);
                scope.spawn(move || {
                    for (i, source) in part {
                        let arch = [(8, 0), (9, 0)][i % 2];
                        let image = source.compile(arch).unwrap_or_else(|error| panic!("{error}"));
                        assert!(image.starts_with(b"\x7fELF"), "{source:?}");
                    }
                });
            }
        });
        println!("{} sources compiled", all.len());
    }
}
