//! A network: layers compiled for one batch size, with all parameters in one flat buffer, all gradients in
//! another, and every buffer of a step allocated once.
//!
//! ```
//! use ftprop_nn::{
//!     Activation, Criterion, Defaults, Graph, LayerLoss, Network, Optimizer, OptimizerSpec, OutputLoss, Shape, Step, presets,
//! };
//! use ftprop_tensor::Cpu;
//! use std::sync::Arc;
//!
//! let input = Shape::vector(4);
//! let layers = presets::layers("mlp", input, &[8]).unwrap();
//! let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
//! let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 2).unwrap());
//! let mut network = Network::new(Arc::new(Cpu::new(1).unwrap()), graph, 3).unwrap();
//! network.initialise(0);
//! let adam = OptimizerSpec::adam(1e-2).unwrap();
//! let mut optimizer = Optimizer::new(&adam, network.values().len()).unwrap();
//! let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
//! let (images, labels) = ([1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.], [0, 1, 0]);
//! let mut losses = Vec::new();
//! for step in 0..50 {
//!     let tally = network.learn(&images, &labels, &criterion, &Step { seed: 0, number: step, progress: 0.0 });
//!     let (cpu, values, gradients) = network.values_and_grads();
//!     optimizer.step(cpu, values, gradients, 1.0, None);
//!     losses.push(tally.loss());
//! }
//! assert!(losses[49] < losses[0]);
//! ```

use crate::NnError;
use crate::distillation::Distillation;
use crate::graph::Graph;
use crate::layers::{Chain, Others, Output, Pass, Slopes, Statistics, Watch};
use crate::lower::lower;
use crate::output_loss::{Criterion, Tally};
use crate::portion::Portion;
use crate::target::Needs;
use crate::timing::Breakdown;
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::{Buffer, Cpu};
use std::sync::Arc;

/// A compiled network.
pub struct Network {
    cpu: Arc<Cpu>,
    graph: Arc<Graph>,
    chain: Chain,
    batch: usize,
    values: Buffer,
    grads: Buffer,
    stats: Buffer,
    scratch: Buffer,
    slopes: Slopes,
    /// The squares of the parameters, where a target rule asks for curvature.
    squared: Buffer,
    /// Whether a target rule asks the layers above.
    asks_above: bool,
    /// Which of a teacher's activations each hard layer goes by; empty where no rule does.
    followed: Vec<Option<usize>>,
    /// The examples of a step that mixes them; taken when one first does.
    mixed: Vec<f32>,
    /// The last batch, for telling what blew up.
    last_n: usize,
    breakdown: Option<Breakdown>,
}

/// What a training step depends on beside its batch.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The run's seed.
    pub seed: u64,
    /// Counted from 0 over the whole run.
    pub number: u64,
    /// The share of training done, 0 to 1.
    pub progress: f32,
}

/// What else a step may be taken with.
#[derive(Default)]
pub(crate) struct Company<'a> {
    /// Where the examples are in a batch that several engines share: what the gradients of all portions add up to is that
    /// of the batch. Without examples all gradients are zero.
    pub(crate) portion: Option<Portion>,
    /// Those who have the other portions, where batch norm is to go by all of them and not by its own.
    pub(crate) others: Option<&'a mut dyn Others>,
    /// A teacher, who sees what the network sees.
    pub(crate) teacher: Option<(&'a Distillation, &'a mut Network)>,
}

impl Network {
    /// Compiles a graph for batches of at most `batch` examples. All parameters are zero until
    /// [`initialise`](Self::initialise) or a checkpoint sets them.
    pub fn new(cpu: Arc<Cpu>, graph: Arc<Graph>, batch: usize) -> Result<Self, NnError> {
        Network::compile(cpu, graph, batch, None)
    }

    /// With a watch, the hard layers report to it what they see.
    pub(crate) fn compile(
        cpu: Arc<Cpu>,
        graph: Arc<Graph>,
        batch: usize,
        watch: Option<&Watch>,
    ) -> Result<Self, NnError> {
        if batch == 0 {
            return Err(NnError::NoBatch);
        }
        let lowered = lower(&graph, &cpu, batch, watch)?;
        let count = graph.parameter_count();
        let needs: Vec<Needs> =
            graph.walk().into_iter().filter_map(|node| Some(node.op.target_rule()?.needs())).collect();
        let mut slopes = Slopes::new(batch * lowered.widest);
        let curved = needs.contains(&Needs::Curvature);
        slopes.curvature = curved.then(|| Box::new(Slopes::new(batch * lowered.widest)));
        let mut network = Network {
            chain: lowered.chain,
            batch,
            values: Buffer::zeros(count),
            grads: Buffer::zeros(count),
            stats: Buffer::zeros(graph.statistic_count()),
            scratch: Buffer::zeros(lowered.scratch),
            slopes,
            squared: Buffer::zeros(if curved { count } else { 0 }),
            asks_above: needs.iter().any(|needs| matches!(needs, Needs::Above { .. })),
            followed: Vec::new(),
            mixed: Vec::new(),
            last_n: 0,
            breakdown: None,
            graph,
            cpu,
        };
        network.stats.copy_from_slice(&network.graph.initial_statistics());
        Ok(network)
    }

    /// Sets every parameter to where training starts from, and the running statistics to theirs.
    pub fn initialise(&mut self, seed: u64) {
        self.values.copy_from_slice(&self.graph.initial_values(seed));
        self.stats.copy_from_slice(&self.graph.initial_statistics());
    }

    /// The logits of a batch, `[n, classes]`, with running statistics and without dropout.
    pub fn infer(&mut self, images: &[f32]) -> &[f32] {
        let n = self.examples(images);
        let (chain, mut pass, _) = self.pass(n, false, None, &[]);
        chain.forward(&mut pass, images);
        self.logits()
    }

    /// The logits of the last batch that went through.
    pub fn logits(&self) -> &[f32] {
        self.chain.output(self.last_n).expect("a network has layers")
    }

    /// Tallies a batch without learning from it.
    pub fn evaluate(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion) -> Tally {
        let classes = self.graph.classes();
        criterion.apply(self.infer(images), labels, classes, None)
    }

    /// One step of Algorithm 2 up to the optimizer: forward, loss, then targets and slopes layer by layer.
    /// Afterwards [`grads`](Self::grads) holds every parameter's gradient.
    pub fn learn(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion, step: &Step) -> Tally {
        self.learn_in_company(images, labels, criterion, step, Company::default())
    }

    /// The same on a portion of a batch, or with a teacher.
    pub(crate) fn learn_in_company(
        &mut self,
        images: &[f32],
        labels: &[u32],
        criterion: &Criterion,
        step: &Step,
        company: Company<'_>,
    ) -> Tally {
        let Company { portion, others, teacher: guide } = company;
        if portion.is_some() && images.is_empty() {
            self.grads.fill(0.0);
            self.attend(Statistics::Batch, others, true);
            return Tally::default();
        }
        let n = self.examples(images);
        assert_eq!(n, labels.len(), "as many labels as images");
        self.mixing(images, criterion, step, |network, images, keep| {
            let (classes, of) = (network.graph.classes(), portion.map_or(n, |portion| portion.of));
            let asks_above = network.asks_above;
            let mut taught = Vec::new();
            let guide = guide.map(|(distillation, teacher)| {
                teacher.infer(images);
                taught = teacher.taught(images, &network.followed);
                (distillation, teacher.logits())
            });
            let (chain, mut pass, slopes) = network.pass(n, true, Some(step), labels);
            (pass.portion, pass.taught) = (portion, &taught);
            pass.others = others.map(|others| others as &mut dyn Others);
            let logits = chain.forward(&mut pass, images);
            let by_logits = &mut slopes.current()[..n * classes];
            let tally = criterion.learn(logits, labels, classes, (keep, of), Some(by_logits));
            if let Some((distillation, teacher)) = guide {
                distillation.mix(logits, teacher, classes, of, by_logits);
            }
            if let Some(curvature) = &mut slopes.curvature {
                let curvature = &mut curvature.current()[..n * classes];
                criterion.curvatures(logits, labels, (keep, of), curvature);
                if let Some((distillation, _)) = guide {
                    distillation.mix_curvature(logits, classes, of, curvature);
                }
            }
            if asks_above {
                let kept = logits.to_vec();
                let mut output = Output::new(criterion, labels, keep, guide, &kept);
                chain.backward(&mut pass, images, slopes, false, Some(&mut output));
                // The layers were run again with other outputs below.
                chain.output_mut().expect("a network has layers")[..kept.len()].copy_from_slice(&kept);
            } else {
                chain.backward(&mut pass, images, slopes, false, None);
            }
            tally
        })
    }

    /// The pre-activations of the last batch, for those who learn from them: by their hard layers' numbers.
    fn taught<'a>(&'a self, images: &'a [f32], followed: &[Option<usize>]) -> Vec<Option<&'a [f32]>> {
        if followed.is_empty() {
            return Vec::new();
        }
        let mut all = Vec::new();
        self.chain.pre_activations(self.last_n, images, &mut all);
        followed.iter().map(|at| at.map(|at| all[at])).collect()
    }

    /// Has hard layers go by a teacher's activations: by the layer's number, which of them.
    pub(crate) fn follow(&mut self, followed: Vec<Option<usize>>) {
        self.followed = followed;
    }

    /// Mixes the examples, where the criterion asks for it, and goes on with them and with the share of their labels that
    /// stays their own.
    fn mixing(
        &mut self,
        images: &[f32],
        criterion: &Criterion,
        step: &Step,
        go_on: impl FnOnce(&mut Self, &[f32], f32) -> Tally,
    ) -> Tally {
        let Some(mixing) = criterion.mixing() else { return go_on(self, images, 1.0) };
        let input = self.graph.input();
        let blend = mixing.at(step.seed, step.number, input);
        let mut mixed = std::mem::take(&mut self.mixed);
        mixed.resize(self.batch * input.len(), 0.0);
        blend.apply(images, input, &mut mixed[..images.len()]);
        let tally = go_on(self, &mixed[..images.len()], blend.keep);
        self.mixed = mixed;
        tally
    }

    /// Takes a batch's statistics into the running ones, which become the mean over this batch and the `before` ones
    /// that were taken in before it.
    pub fn take_statistics(&mut self, images: &[f32], before: usize) {
        self.take_shared_statistics(images, before, None);
    }

    /// The same of a batch that others have parts of; this part may have no example.
    pub(crate) fn take_shared_statistics(&mut self, images: &[f32], before: usize, others: Option<&mut dyn Others>) {
        if others.is_some() && images.is_empty() {
            return self.attend(Statistics::Mean { before }, others, false);
        }
        let n = self.examples(images);
        let (chain, mut pass, _) = self.pass(n, true, None, &[]);
        pass.statistics = Statistics::Mean { before };
        pass.others = others.map(|others| others as &mut dyn Others);
        chain.forward(&mut pass, images);
    }

    /// Takes part in what others do with their portions of a batch of which none is here.
    fn attend(&mut self, statistics: Statistics, others: Option<&mut dyn Others>, and_back: bool) {
        if others.is_some() {
            let (chain, mut pass, _) = self.pass(0, true, None, &[]);
            pass.statistics = statistics;
            pass.others = others.map(|others| others as &mut dyn Others);
            chain.attend(&mut pass, false);
            if and_back {
                chain.attend(&mut pass, true);
            }
        }
    }

    /// The tally of a batch as a training step sees it: the batch's own statistics, and the step's dropout.
    pub(crate) fn rehearse(&mut self, images: &[f32], labels: &[u32], criterion: &Criterion, step: &Step) -> Tally {
        let n = self.examples(images);
        self.mixing(images, criterion, step, |network, images, keep| {
            let classes = network.graph.classes();
            let (chain, mut pass, _) = network.pass(n, true, Some(step), labels);
            criterion.learn(chain.forward(&mut pass, images), labels, classes, (keep, n), None)
        })
    }

    /// The logits of the last batch that [`learn`](Self::learn) or [`infer`](Self::infer) saw came from
    /// this layer first as something that is not a finite number; or a parameter is not finite.
    pub fn first_non_finite(&self) -> Option<String> {
        let parameter =
            self.graph.parameters().iter().find(|p| self.values[p.range.clone()].iter().any(|v| !v.is_finite()));
        match self.chain.first_non_finite(self.last_n) {
            Some(layer) => Some(layer.to_string()),
            None => parameter.map(|p| format!("parameter {}", p.name)),
        }
    }

    fn examples(&self, images: &[f32]) -> usize {
        let input = self.graph.input();
        let n = images.len() / input.len();
        assert!(
            n > 0 && n <= self.batch && n * input.len() == images.len(),
            "a batch of whole examples, at most {} of {input}",
            self.batch
        );
        n
    }

    fn pass<'a>(
        &'a mut self,
        n: usize,
        training: bool,
        step: Option<&Step>,
        labels: &'a [u32],
    ) -> (&'a mut Chain, Pass<'a>, &'a mut Slopes) {
        self.last_n = n;
        if !self.squared.is_empty() && step.is_some() {
            elementwise::map(&self.cpu, &self.values, &mut self.squared, |w| w * w);
        }
        let pass = Pass {
            cpu: &self.cpu,
            n,
            statistics: if training { Statistics::Batch } else { Statistics::Running },
            params: &self.values,
            squared: &self.squared,
            taught: &[],
            stats: &mut self.stats,
            grads: &mut self.grads,
            scratch: &mut self.scratch,
            labels,
            portion: None,
            others: None,
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

    /// The threads and vector units that compute it.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.cpu
    }

    /// What it is.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The most examples a batch may have.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// All parameters.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All parameters, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// All gradients of the last [`learn`](Self::learn).
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }

    /// All gradients, to be changed before an optimizer follows them.
    pub fn grads_mut(&mut self) -> &mut [f32] {
        &mut self.grads
    }

    /// All running statistics.
    pub fn stats(&self) -> &[f32] {
        &self.stats
    }

    /// All running statistics, to be changed.
    pub fn stats_mut(&mut self) -> &mut [f32] {
        &mut self.stats
    }

    /// Gradients and running statistics, to be exchanged with others.
    pub(crate) fn grads_and_stats(&mut self) -> (&mut [f32], &mut [f32]) {
        (&mut self.grads, &mut self.stats)
    }

    /// What an optimizer works on: parameters and their gradients, with the threads to do it.
    pub fn values_and_grads(&mut self) -> (&Cpu, &mut [f32], &[f32]) {
        (&self.cpu, &mut self.values, &self.grads)
    }
}
