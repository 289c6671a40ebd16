//! A network on the GPU: the CPU's network, parameter for parameter, compiled for one batch size.
//!
//! | module | subject |
//! | --- | --- |
//! | `state` | what the network holds: parameters, statistics, moments, outputs |
//! | `training` | spans of captured steps, on data that lives on the GPU or is streamed from the host |

mod state;
mod training;

pub use training::StepSpan;

use crate::CudaError;
use crate::abi::{DeviceStep, StepScalars};
use crate::device::Device;
use crate::executor::{Executor, ExecutorConfig};
use crate::gemm::Gemm;
use crate::graphs::GraphCache;
use crate::passes::{self, CompileOptions};
use crate::plan::FusionPlan;
use crate::precision::Precision;
use crate::staging::StagingBuffers;
use crate::tuning::{self, Tuning};
use ftprop_nn::{Defaults, LayerSpec, Network, OptimizerSpec, OutputLoss, Shape, Tally};
use ftprop_tensor::Cpu;
use std::sync::Arc;

/// Everything that a network on a GPU is compiled for.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Its layers, in order.
    pub layers: Vec<LayerSpec>,
    /// What layers have that do not say otherwise.
    pub defaults: Defaults,
    /// What an example is.
    pub input: Shape,
    /// How many classes there are.
    pub classes: usize,
    /// The most examples a batch may have.
    pub batch: usize,
    /// What the matrix units compute with.
    pub precision: Precision,
    /// How its products are chosen.
    pub tuning: Tuning,
    /// The loss of the whole network.
    pub loss: OutputLoss,
    /// The share of the label's probability that all classes have.
    pub label_smoothing: f32,
    /// What moves the parameters.
    pub optimizer: OptimizerSpec,
    /// The largest norm that the whole gradient may have.
    pub clip: Option<f64>,
}

/// A compiled network with its optimizer.
pub struct CudaNetwork {
    config: NetworkConfig,
    /// The CPU's network, for one example: it laid out the parameters, and knows where training starts from.
    reference: Network,
    executor: Executor,
    graphs: GraphCache,
    /// Made at first use.
    staging: Option<StagingBuffers>,
    /// Steps that the optimizer has taken.
    steps: u64,
}

impl NetworkConfig {
    /// The CPU's network, which checks the layers and lays out the parameters; one example of it costs little.
    fn reference(&self) -> Result<Network, CudaError> {
        ftprop_nn::Criterion::new(self.loss, self.label_smoothing)?;
        ftprop_nn::Optimizer::new(&self.optimizer, 0)?;
        if self.batch == 0 {
            return Err(CudaError::EmptyBatch);
        }
        let cpu = Arc::new(Cpu::new(1)?);
        Ok(Network::new(cpu, &self.layers, self.defaults, self.input, self.classes, 1)?)
    }

    fn plan(&self, reference: &Network) -> Result<FusionPlan, CudaError> {
        let (parameters, statistics) = (reference.parameters(), reference.statistics());
        let plan = FusionPlan::new(&self.layers, self.defaults, self.input, self.classes, parameters, statistics);
        match plan.tensors.iter().find(|t| self.batch * t.shape.len() > i32::MAX as usize) {
            Some(tensor) => Err(CudaError::BatchTooLarge { batch: self.batch, shape: tensor.shape }),
            None => Ok(plan),
        }
    }

    /// With so many blocks that may wait for each other, on a GPU that the network has to itself.
    fn executor_config(&self, cooperative_blocks: usize) -> ExecutorConfig<'_> {
        let alone = self.tuning != Tuning::Shared;
        let cooperative_blocks = if alone { cooperative_blocks } else { 0 };
        let options = CompileOptions { precision: self.precision, batch: self.batch, alone, cooperative_blocks };
        ExecutorConfig {
            options,
            input: self.input,
            classes: self.classes,
            loss: self.loss,
            label_smoothing: self.label_smoothing,
            optimizer: &self.optimizer,
            clip: self.clip,
        }
    }
}

impl CudaNetwork {
    /// Compiles a network. All parameters are zero until [`initialise`](Self::initialise) or
    /// [`set_values`](Self::set_values).
    pub fn new(device: &Device, config: NetworkConfig) -> Result<Self, CudaError> {
        let reference = config.reference()?;
        device.check()?;
        let plan = config.plan(&reference)?;
        let gemms = passes::gemms(&plan, config.precision);
        let all: Vec<Gemm> = gemms.iter().flatten().flatten().copied().collect();
        let (chosen, libraries) = tuning::choose(device, &all, config.batch, config.tuning)?;
        let mut chosen = chosen.into_iter();
        let algorithms: Vec<_> = gemms
            .into_iter()
            .map(|three| three.map(|g| g.map(|g| (g, chosen.next().expect("an algorithm for each product")))))
            .collect();
        let counts = (reference.values().len(), reference.stats().len());
        let executor_config = config.executor_config(device.cooperative_blocks()?);
        let executor = Executor::new(device, plan, &algorithms, &libraries, &executor_config, counts)?;
        let network =
            CudaNetwork { config, reference, executor, graphs: GraphCache::default(), staging: None, steps: 0 };
        network.set_stats(network.reference.stats())?;
        Ok(network)
    }

    /// Sets every parameter and statistic to where training starts from: the CPU's numbers.
    pub fn initialise(&mut self, seed: u64) -> Result<(), CudaError> {
        self.reference.initialise(seed);
        self.set_values(self.reference.values())?;
        self.set_stats(self.reference.stats())
    }

    /// One step of Algorithm 2 up to the optimizer, on a batch from the host.
    pub fn learn(&mut self, images: &[f32], labels: &[u32], step: &ftprop_nn::Step) -> Result<Tally, CudaError> {
        let n = self.stage(images, labels)?;
        let at = DeviceStep::new(step.seed, 0, step.number, 0);
        let scalars = StepScalars::new(&self.config.optimizer, self.steps + 1, 1.0, step.progress);
        self.executor.set_step(at, &[scalars])?;
        self.executor.clear_tally()?;
        self.load_staged(n)?;
        self.executor.forward(n, true)?;
        self.executor.apply_loss(n, true)?;
        self.executor.backward(n)?;
        self.take_tally()
    }

    /// One step along the last gradients, the learning rate scaled by `lr_factor`. Gives the gradient's norm
    /// back where it is clipped.
    pub fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, CudaError> {
        self.wait()?;
        let scalars = StepScalars::new(&self.config.optimizer, self.steps + 1, lr_factor, 0.0);
        self.executor.set_step(DeviceStep::default(), &[scalars])?;
        self.executor.optimize(false)?;
        self.steps += 1;
        self.executor.gradient_norm()
    }

    /// The logits of a batch from the host, `[n, classes]`, with running statistics and without dropout.
    pub fn infer(&mut self, images: &[f32]) -> Result<Vec<f32>, CudaError> {
        let n = images.len() / self.config.input.len().max(1);
        self.evaluate(images, &vec![0; n])?;
        self.logits(n)
    }

    /// Tallies a batch from the host without learning from it.
    pub fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, CudaError> {
        let n = self.stage(images, labels)?;
        self.executor.set_step(DeviceStep::default(), &[StepScalars::default()])?;
        self.executor.clear_tally()?;
        self.load_staged(n)?;
        self.executor.load_running_statistics()?;
        self.executor.evaluate(n)?;
        self.take_tally()
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

    /// Whether these make a batch of this network, and of how many examples. A label that is no class would be looked up
    /// outside the logits.
    fn check_batch(&self, images: &[f32], labels: &[u32]) -> Result<usize, CudaError> {
        let (n, most, input) = (labels.len(), self.config.batch, self.config.input);
        if n == 0 || n > most || images.len() != n * input.len() {
            return Err(CudaError::NoBatch { values: images.len(), labels: n, most, input });
        }
        self.check_labels(labels)?;
        Ok(n)
    }

    fn check_labels(&self, labels: &[u32]) -> Result<(), CudaError> {
        let classes = self.config.classes;
        match labels.iter().find(|&&label| label as usize >= classes) {
            Some(&label) => Err(CudaError::Label { label, classes }),
            None => Ok(()),
        }
    }

    /// Puts a host's batch where [`load_staged`](Self::load_staged) takes it from.
    fn stage(&mut self, images: &[f32], labels: &[u32]) -> Result<usize, CudaError> {
        let n = self.check_batch(images, labels)?;
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
    use crate::executor;
    use crate::gemm::Algorithm;
    use crate::library::Library;
    use crate::patch::Patch;
    use crate::selftest::Case;
    use std::collections::BTreeSet;

    /// What would be compiled for a network on such a GPU, had it no libraries.
    fn sources_of(config: &NetworkConfig, limits: DeviceLimits) -> Vec<Source> {
        let plan = config.plan(&config.reference().unwrap()).unwrap();
        let own = |gemm: Gemm| match Patch::suits(&gemm, limits) {
            true => (gemm, Algorithm::Patch),
            false => (gemm, Algorithm::Tiled(gemm.guess(config.batch, limits))),
        };
        let gemms = passes::gemms(&plan, config.precision);
        let algorithms: Vec<_> = gemms.into_iter().map(|three| three.map(|gemm| gemm.map(own))).collect();
        executor::sources(&plan, &algorithms, &config.executor_config(limits.multiprocessors))
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
