//! A network: layers compiled for one batch size, with all parameters in one flat buffer, all gradients in
//! another, and every buffer of a step allocated once.
//!
//! ```
//! use ftprop_nn::{Activation, Criterion, Defaults, LayerLoss, Network, Optimizer, OptimizerSpec, OutputLoss, Shape, Step, presets};
//! use ftprop_tensor::Cpu;
//! use std::sync::Arc;
//!
//! let input = Shape::vector(4);
//! let layers = presets::layers("mlp", input, &[8]).unwrap();
//! let defaults = Defaults::new(Activation::Sign, LayerLoss::SoftHinge);
//! let mut network = Network::new(Arc::new(Cpu::new(1).unwrap()), &layers, defaults, input, 2, 3).unwrap();
//! network.initialise(0);
//! let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-2), network.values().len()).unwrap();
//! let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
//! let (images, labels) = ([1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.], [0, 1, 0]);
//! let mut losses = Vec::new();
//! for step in 0..50 {
//!     let tally = network.learn(&images, &labels, &criterion, &Step { seed: 0, number: step, progress: 0.0 });
//!     optimizer.step(&mut network, 1.0, None);
//!     losses.push(tally.loss());
//! }
//! assert!(losses[49] < losses[0]);
//! ```

use crate::NnError;
use crate::build::{Builder, LayerInfo};
use crate::layers::{Chain, Pass, Slopes};
use crate::output_loss::{Criterion, Tally};
use crate::parameter::{Parameter, Statistic};
use crate::probe::Watch;
use crate::shape::Shape;
use crate::spec::{Defaults, LayerSpec};
use crate::timing::Breakdown;
use ftprop_tensor::{Buffer, Cpu};
use std::sync::Arc;

/// A compiled network.
pub struct Network {
    cpu: Arc<Cpu>,
    chain: Chain,
    input: Shape,
    classes: usize,
    batch: usize,
    parameters: Vec<Parameter>,
    statistics: Vec<Statistic>,
    infos: Vec<LayerInfo>,
    values: Buffer,
    grads: Buffer,
    stats: Buffer,
    scratch: Buffer,
    slopes: Slopes,
    /// The last batch, for telling what blew up.
    last_n: usize,
    breakdown: Option<Breakdown>,
}

/// What a training step depends on beside its batch.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub seed: u64,
    /// Counted from 0 over the whole run.
    pub number: u64,
    /// The share of training done, 0 to 1.
    pub progress: f32,
}

impl Network {
    /// Compiles the layers for batches of at most `batch` examples. All parameters are zero until
    /// [`initialise`](Self::initialise) or a checkpoint sets them.
    pub fn new(
        cpu: Arc<Cpu>,
        layers: &[LayerSpec],
        defaults: Defaults,
        input: Shape,
        classes: usize,
        batch: usize,
    ) -> Result<Self, NnError> {
        Network::compile(cpu, layers, defaults, input, classes, batch, None)
    }

    /// With a watch, the hard layers report to it what they see.
    pub(crate) fn compile(
        cpu: Arc<Cpu>,
        layers: &[LayerSpec],
        defaults: Defaults,
        input: Shape,
        classes: usize,
        batch: usize,
        watch: Option<Watch>,
    ) -> Result<Self, NnError> {
        if layers.is_empty() {
            return Err(NnError::Empty);
        }
        if input.is_empty() || classes == 0 || batch == 0 {
            return Err(NnError::Setting("a network needs an input, a class and a batch of at least 1".into()));
        }
        let mut builder = Builder::new(&cpu, batch, classes, defaults);
        builder.watch = watch;
        let (chain, output) = builder.chain(layers, input, "")?;
        if output != Shape::vector(classes) {
            return Err(NnError::Output {
                layer: format!("layer {} ({})", layers.len() - 1, layers[layers.len() - 1].kind()),
                got: output.to_string(),
                classes,
                expected: Shape::vector(classes).to_string(),
            });
        }
        let Builder { parameters, statistics, infos, scratch, widest, .. } = builder;
        let count = parameters.last().map_or(0, |p| p.range.end);
        if count == 0 {
            return Err(NnError::Setting("the network has no parameters to learn; add a conv or fc layer".into()));
        }
        let stats_len = statistics.last().map_or(0, |s| s.range.end);
        let mut network = Network {
            chain,
            input,
            classes,
            batch,
            parameters,
            statistics,
            infos,
            values: Buffer::zeros(count),
            grads: Buffer::zeros(count),
            stats: Buffer::zeros(stats_len),
            scratch: Buffer::zeros(scratch),
            slopes: Slopes::new(batch * widest),
            last_n: 0,
            breakdown: None,
            cpu,
        };
        network.reset_statistics();
        Ok(network)
    }

    /// Sets every parameter to where training starts from, and the running statistics to theirs.
    pub fn initialise(&mut self, seed: u64) {
        for (number, parameter) in self.parameters.iter().enumerate() {
            parameter.initialise(seed, number, &mut self.values[parameter.range.clone()]);
        }
        self.reset_statistics();
    }

    fn reset_statistics(&mut self) {
        for statistic in &self.statistics {
            self.stats[statistic.range.clone()].fill(statistic.initial);
        }
    }

    /// The logits of a batch, `[n, classes]`, with running statistics and without dropout.
    pub fn infer(&mut self, images: &[f32]) -> &[f32] {
        let n = self.examples(images);
        let (chain, mut pass, _) = self.pass(n, false, None);
        chain.forward(&mut pass, images);
        self.logits()
    }

    /// The logits of the last batch that went through.
    pub fn logits(&self) -> &[f32] {
        self.chain.output(self.last_n).expect("a network has layers")
    }

    /// Tallies a batch without learning from it.
    pub fn evaluate(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion) -> Tally {
        let classes = self.classes;
        criterion.apply(self.infer(images), labels, classes, None)
    }

    /// One step of Algorithm 2 up to the optimizer: forward, loss, then targets and slopes layer by layer.
    /// Afterwards [`grads`](Self::grads) holds every parameter's gradient.
    pub fn learn(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion, step: &Step) -> Tally {
        let n = self.examples(images);
        assert_eq!(n, labels.len(), "as many labels as images");
        let classes = self.classes;
        let (chain, mut pass, slopes) = self.pass(n, true, Some(step));
        let logits = chain.forward(&mut pass, images);
        let tally = criterion.apply(logits, labels, classes, Some(&mut slopes.current()[..n * classes]));
        chain.backward(&mut pass, images, slopes, false);
        tally
    }

    /// The tally of a batch as a training step sees it: the batch's own statistics, and the step's dropout.
    pub(crate) fn rehearse(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion, step: &Step) -> Tally {
        let n = self.examples(images);
        let classes = self.classes;
        let (chain, mut pass, _) = self.pass(n, true, Some(step));
        criterion.apply(chain.forward(&mut pass, images), labels, classes, None)
    }

    /// The logits of the last batch that [`learn`](Self::learn) or [`infer`](Self::infer) saw came from
    /// this layer first as something that is not a finite number; or a parameter is not finite.
    pub fn first_non_finite(&self) -> Option<String> {
        let parameter = self.parameters.iter().find(|p| self.values[p.range.clone()].iter().any(|v| !v.is_finite()));
        match self.chain.first_non_finite(self.last_n) {
            Some(layer) => Some(layer.to_string()),
            None => parameter.map(|p| format!("parameter {}", p.name)),
        }
    }

    fn examples(&self, images: &[f32]) -> usize {
        let n = images.len() / self.input.len();
        assert!(
            n > 0 && n <= self.batch && n * self.input.len() == images.len(),
            "a batch of whole examples, at most {} of {}",
            self.batch,
            self.input
        );
        n
    }

    fn pass(&mut self, n: usize, training: bool, step: Option<&Step>) -> (&mut Chain, Pass<'_>, &mut Slopes) {
        self.last_n = n;
        let pass = Pass {
            cpu: &self.cpu,
            n,
            training,
            params: &self.values,
            stats: &mut self.stats,
            grads: &mut self.grads,
            scratch: &mut self.scratch,
            seed: step.map_or(0, |s| s.seed),
            step: step.map_or(0, |s| s.number),
            progress: step.map_or(0.0, |s| s.progress),
            breakdown: self.breakdown.as_mut(),
        };
        (&mut self.chain, pass, &mut self.slopes)
    }

    /// From now on, measures where the time goes.
    pub fn measure(&mut self) {
        self.breakdown = Some(Breakdown::default());
    }

    /// Where the time went since [`measure`](Self::measure).
    pub fn breakdown(&self) -> Option<&Breakdown> {
        self.breakdown.as_ref()
    }

    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.cpu
    }

    pub fn input(&self) -> Shape {
        self.input
    }

    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The most examples a batch may have.
    pub fn batch(&self) -> usize {
        self.batch
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    pub fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    /// Its layers in order, for a summary.
    pub fn layers(&self) -> &[LayerInfo] {
        &self.infos
    }

    /// All parameters.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// All gradients of the last [`learn`](Self::learn).
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }

    /// All running statistics.
    pub fn stats(&self) -> &[f32] {
        &self.stats
    }

    pub fn stats_mut(&mut self) -> &mut [f32] {
        &mut self.stats
    }

    pub(crate) fn values_and_grads(&mut self) -> (&Cpu, &mut [f32], &[f32]) {
        (&self.cpu, &mut self.values, &self.grads)
    }
}
