//! The CPU's engine.

use super::{
    Engine, EngineError, Learning, NetworkState, Reducer, StepSpan, Teacher, TrainingState, check_batch, check_length,
};
use crate::NnError;
use crate::graph::Graph;
use crate::layers::Others;
use crate::network::{Company, Network, Step};
use crate::optimizer::{Optimizer, average_rest, moving_average};
use crate::output_loss::Tally;
use crate::portion::Portion;
use crate::target::TargetRule;
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::{Buffer, Cpu};
use std::borrow::Cow;
use std::sync::Arc;

/// A network on the CPU with its optimizer.
pub struct CpuEngine {
    network: Network,
    optimizer: Optimizer,
    learning: Learning,
    average: Option<Buffer>,
    /// The network that is learned from, where there is one.
    teacher: Option<Network>,
    reducer: Option<Box<dyn Reducer>>,
    span: Option<StepSpan>,
    /// Steps of the span that are done.
    done: usize,
    tally: Tally,
}

impl CpuEngine {
    /// Compiles a graph for batches of at most `batch` examples. All parameters are zero until they are set.
    pub fn new(cpu: Arc<Cpu>, graph: Arc<Graph>, learning: Learning, batch: usize) -> Result<Self, NnError> {
        learning.criterion.check_classes(graph.classes())?;
        let teacher = learning.teacher.as_ref().map(|teacher| teacher.network_for(&graph, &cpu, batch)).transpose()?;
        let mut network = Network::new(cpu, graph, batch)?;
        network.follow(Teacher::followed(learning.teacher.as_deref(), network.graph())?);
        let optimizer = Optimizer::for_groups(learning.groups.clone());
        let average = learning.average.map(|_| Buffer::zeros(network.values().len()));
        let tally = Tally::default();
        Ok(CpuEngine { network, optimizer, learning, average, teacher, reducer: None, span: None, done: 0, tally })
    }

    /// The network, for looking at what an engine of any device does not show.
    pub fn cpu_network(&self) -> &Network {
        &self.network
    }

    /// The network, for measuring it.
    pub fn cpu_network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    fn start_average(&mut self) {
        if let Some(average) = &mut self.average {
            average.copy_from_slice(self.network.values());
        }
    }

    /// The step without its checks: what [`Engine::optimize`] and [`Engine::step`] have in common.
    fn step_along(&mut self, lr_factor: f64) -> Option<f64> {
        let (cpu, values, grads) = self.network.values_and_grads();
        let norm = self.optimizer.step(cpu, values, grads, lr_factor, self.learning.clip);
        if let (Some(average), Some(decay)) = (&mut self.average, self.learning.average) {
            let rest = average_rest(decay, self.optimizer.state().0);
            elementwise::update(cpu, average, values, |average, w| moving_average(average, w, rest));
        }
        norm
    }

    fn take_gradients(
        &mut self,
        images: &[f32],
        labels: &[u32],
        step: &Step,
        portion: Option<Portion>,
    ) -> Result<Tally, EngineError> {
        if portion.is_none() || !images.is_empty() || !labels.is_empty() {
            self.check(images, Some(labels))?;
        }
        let Learning { criterion, teacher, sync_norm, .. } = &self.learning;
        let teacher = match (&mut self.teacher, teacher) {
            (Some(network), Some(teacher)) if !images.is_empty() => Some((&teacher.distillation, network)),
            _ => None,
        };
        let mut others = Summed::new(&mut self.reducer, *sync_norm);
        let company = Company { portion, others: others.as_mut().map(|others| others as &mut dyn Others), teacher };
        let tally = self.network.learn_in_company(images, labels, criterion, step, company);
        Summed::outcome(others)?;
        self.reduce()?;
        Ok(tally)
    }

    fn reduce(&mut self) -> Result<(), EngineError> {
        match &mut self.reducer {
            Some(reducer) => {
                let (gradients, statistics) = self.network.grads_and_stats();
                reducer.reduce(gradients, if self.learning.sync_norm { &mut [] } else { statistics })
            }
            None => Ok(()),
        }
    }

    fn check_portion(&self, portion: Option<Portion>) -> Result<(), EngineError> {
        let rule = portion.and_then(|_| rules(self.network.graph()).find(|rule| rule.looks_at_batch()));
        let Some(rule) = rule else { return Ok(()) };
        let what = format!("share batches where the target rule, {rule}, looks at the whole of them");
        Err(EngineError::Unsupported { device: "the CPU", what })
    }

    fn check(&self, images: &[f32], labels: Option<&[u32]>) -> Result<usize, EngineError> {
        check_batch(self.network.graph(), self.network.batch(), images, labels)
    }
}

/// A reducer as the network's norms see it, until it fails.
struct Summed<'a> {
    reducer: &'a mut dyn Reducer,
    failed: Option<EngineError>,
}

impl<'a> Summed<'a> {
    /// Where norms are to be summed and there is somebody to do it.
    fn new(reducer: &'a mut Option<Box<dyn Reducer>>, sync_norm: bool) -> Option<Self> {
        let reducer = reducer.as_deref_mut().filter(|_| sync_norm)?;
        Some(Summed { reducer, failed: None })
    }

    fn outcome(summed: Option<Self>) -> Result<(), EngineError> {
        summed.and_then(|summed| summed.failed).map_or(Ok(()), Err)
    }
}

impl Others for Summed<'_> {
    fn sum(&mut self, numbers: &mut [f64]) {
        // After the first failure nothing that is computed counts.
        if self.failed.is_none() {
            self.failed = self.reducer.sum(numbers).err();
        }
    }
}

/// The rules of a graph's hard layers.
fn rules(graph: &Graph) -> impl Iterator<Item = TargetRule> + '_ {
    graph.walk().into_iter().filter_map(|node| node.op.target_rule())
}

impl Engine for CpuEngine {
    fn graph(&self) -> &Arc<Graph> {
        self.network.graph()
    }

    fn batch(&self) -> usize {
        self.network.batch()
    }

    fn initialise(&mut self, seed: u64) -> Result<(), EngineError> {
        self.network.initialise(seed);
        self.start_average();
        Ok(())
    }

    fn network(&self) -> Result<NetworkState<'_>, EngineError> {
        Ok(NetworkState { values: self.network.values().into(), statistics: self.network.stats().into() })
    }

    fn set_network(&mut self, state: &NetworkState<'_>) -> Result<(), EngineError> {
        check_length("parameters", state.values.len(), self.network.values().len())?;
        check_length("statistics", state.statistics.len(), self.network.stats().len())?;
        self.network.values_mut().copy_from_slice(&state.values);
        self.network.stats_mut().copy_from_slice(&state.statistics);
        Ok(())
    }

    fn state(&self) -> Result<TrainingState<'_>, EngineError> {
        let (steps, moments) = self.optimizer.state();
        let moments = moments.map(Cow::from).collect();
        let average = self.average.as_ref().map(|average| Cow::from(&average[..]));
        Ok(TrainingState { network: self.network()?, steps, moments, average })
    }

    fn restore(&mut self, state: &TrainingState<'_>) -> Result<(), EngineError> {
        self.set_network(&state.network)?;
        let moments: Vec<&[f32]> = state.moments.iter().map(|m| &m[..]).collect();
        self.optimizer.restore(state.steps, &moments)?;
        match (&mut self.average, &state.average) {
            (Some(average), Some(saved)) => {
                check_length("averaged weights", saved.len(), average.len())?;
                average.copy_from_slice(saved);
            }
            _ => self.start_average(),
        }
        Ok(())
    }

    fn learn_portion(
        &mut self,
        images: &[f32],
        labels: &[u32],
        step: &Step,
        portion: Option<Portion>,
    ) -> Result<Tally, EngineError> {
        self.check_portion(portion)?;
        self.take_gradients(images, labels, step, portion)
    }

    fn gradients(&self) -> Result<Cow<'_, [f32]>, EngineError> {
        Ok(self.network.grads().into())
    }

    fn set_gradients(&mut self, gradients: &[f32]) -> Result<(), EngineError> {
        check_length("gradients", gradients.len(), self.network.grads().len())?;
        self.network.grads_mut().copy_from_slice(gradients);
        Ok(())
    }

    fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, EngineError> {
        Ok(self.step_along(lr_factor))
    }

    fn infer(&mut self, images: &[f32]) -> Result<Cow<'_, [f32]>, EngineError> {
        self.check(images, None)?;
        Ok(self.network.infer(images).into())
    }

    fn logits(&self) -> Result<Cow<'_, [f32]>, EngineError> {
        Ok(self.network.logits().into())
    }

    fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, EngineError> {
        self.check(images, Some(labels))?;
        Ok(self.network.evaluate(images, labels, &self.learning.criterion))
    }

    fn take_statistics(&mut self, images: &[f32], before: usize) -> Result<(), EngineError> {
        let mut others = Summed::new(&mut self.reducer, self.learning.sync_norm);
        if others.is_none() || !images.is_empty() {
            check_batch(self.network.graph(), self.network.batch(), images, None)?;
        }
        let all = others.as_mut().map(|others| others as &mut dyn Others);
        self.network.take_shared_statistics(images, before, all);
        Summed::outcome(others)
    }

    fn begin(&mut self, span: StepSpan) -> Result<(), EngineError> {
        self.check_portion(span.portion)?;
        (self.span, self.done) = (Some(span), 0);
        Ok(())
    }

    fn step(&mut self, images: &[f32], labels: &[u32]) -> Result<(), EngineError> {
        let announced = self.span.as_ref().and_then(|s| Some((s, *s.steps.get(self.done)?)));
        let Some((span, (factor, progress))) = announced else { return Err(EngineError::NotAnnounced) };
        let step = Step { seed: span.seed, number: span.first_step + self.done as u64, progress };
        let portion = span.portion;
        let seen = self.take_gradients(images, labels, &step, portion)?;
        self.tally.add(&seen);
        self.done += 1;
        // A loss that is no number would spoil every parameter: the step is not taken, and the tally shows why.
        if seen.loss_sum.is_finite() {
            self.step_along(factor);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Tally, EngineError> {
        Ok(std::mem::take(&mut self.tally))
    }

    fn set_reducer(&mut self, reducer: Box<dyn Reducer>) -> Result<(), EngineError> {
        self.reducer = Some(reducer);
        Ok(())
    }

    fn first_non_finite(&self) -> Option<String> {
        self.network.first_non_finite()
    }
}
