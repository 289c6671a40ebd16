//! Learning diagnostics: one training step, watched from within each hard layer.
//!
//! A [`Probe`] is a network of its own whose hard layers report what they see. It is given the state of the
//! network under training and makes the step that is about to be taken: forward, targets, backward,
//! optimizer, and forward once more over the same batch to see which targets came true. Where that step learns
//! from a teacher, the probe has the teacher beside it, too. The network under
//! training is not touched, and has no code for it to pass through.
//!
//! What is counted are *steps*: a unit of `sign` or `step` has one, a unit of `qrelu:k` has k, and each of
//! them is either at its unit's target or not. Every unit counts once for each example; most of them hardly matter
//! to the loss, so the shares are also taken by weight, where each counts for the |g| that weights its target.

use crate::distillation::Distillation;
use crate::engine::Teacher;
use crate::graph::Graph;
use crate::layers::{Watch, norm};
use crate::network::{Company, Network, Step};
use crate::optimizer::Optimizer;
use crate::output_loss::Criterion;
use crate::{NnError, Tally};
use ftprop_tensor::Cpu;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use crate::layers::{FAINT, LayerDiagnosis};

/// What one step looked like from within a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The batch's loss before the step.
    pub loss: f64,
    /// And after it.
    pub loss_after: f64,
    /// The hard layers, in the order of the forward pass.
    pub layers: Vec<LayerDiagnosis>,
}

/// A network that is watched while it makes a step.
pub struct Probe {
    network: Network,
    watch: Watch,
    teacher: Option<(Distillation, Network)>,
}

impl Probe {
    /// The same network as [`Network::new`] would compile.
    pub fn new(cpu: Arc<Cpu>, graph: Arc<Graph>, batch: usize) -> Result<Self, NnError> {
        let watch = Watch::default();
        let network = Network::compile(cpu, graph, batch, Some(&watch))?;
        Ok(Probe { network, watch, teacher: None })
    }

    /// Has it learn from a teacher, as the network under training does.
    pub fn set_teacher(&mut self, teacher: &Teacher) -> Result<(), NnError> {
        let (graph, cpu) = (self.network.graph().clone(), self.network.cpu().clone());
        self.network.follow(Teacher::followed(Some(teacher), &graph)?);
        self.teacher = Some((teacher.distillation, teacher.network_for(&graph, &cpu, self.network.batch())?));
        Ok(())
    }

    /// The network as it is.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// For bringing it to the state from which the step is made.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Makes one step, of which the network and the optimizer keep the outcome. None if a number blew up.
    pub fn step(
        &mut self,
        optimizer: &mut Optimizer,
        (images, labels): (&[f32], &[u32]),
        criterion: &Criterion,
        step: &Step,
        (lr_factor, clip): (f64, Option<f64>),
    ) -> Option<Diagnosis> {
        self.watch.stepped(false);
        let teacher = self.teacher.as_mut().map(|(distillation, network)| (&*distillation, network));
        let company = Company { teacher, ..Company::default() };
        let before = self.network.learn_in_company(images, labels, criterion, step, company);
        let grads = self.network.grads();
        let norms: Vec<f64> = self.watch.parameters().into_iter().map(|range| norm(&grads[range])).collect();
        let (cpu, values, grads) = self.network.values_and_grads();
        optimizer.step(cpu, values, grads, lr_factor, clip);
        self.watch.stepped(true);
        let after = self.network.rehearse(images, labels, criterion, step);
        let layers = self.watch.diagnoses(&norms);
        let sound = |l: &LayerDiagnosis| (l.gradient + l.slope + l.weight_gradient).is_finite();
        let loss = |tally: Tally| Some(tally.loss()).filter(|loss| loss.is_finite());
        let (loss, loss_after) = (loss(before)?, loss(after)?);
        layers.iter().all(sound).then_some(Diagnosis { loss, loss_after, layers })
    }
}

#[cfg(test)]
mod tests;
