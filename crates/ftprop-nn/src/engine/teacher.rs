//! A trained network that another one learns from.

use super::NetworkState;
use crate::NnError;
use crate::distillation::Distillation;
use crate::graph::{Graph, Op};
use crate::network::Network;
use ftprop_tensor::{Cpu, Shape};
use std::sync::Arc;

/// A trained network, and how much its word counts. An engine that learns from one has it beside its own network and
/// shows it each batch first; a teacher itself learns nothing.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// What the network is.
    pub graph: Arc<Graph>,
    /// Its numbers.
    pub network: NetworkState<'static>,
    /// How its logits enter the loss.
    pub distillation: Distillation,
}

impl Teacher {
    /// Checks that it sees what the pupil sees and tells the same classes apart.
    pub fn check(&self, pupil: &Graph) -> Result<(), NnError> {
        let (own, other) = (&self.graph, pupil);
        if own.input() != other.input() || own.classes() != other.classes() {
            return Err(NnError::Setting(format!(
                "the teacher tells {} classes of {} apart, the network that it teaches {} of {}",
                own.classes(),
                own.input(),
                other.classes(),
                other.input()
            )));
        }
        Ok(())
    }

    /// Its network on the CPU, ready to be shown a pupil's batches.
    pub(crate) fn network_for(&self, pupil: &Graph, cpu: &Arc<Cpu>, batch: usize) -> Result<Network, NnError> {
        self.check(pupil)?;
        let mut network = Network::new(cpu.clone(), self.graph.clone(), batch)?;
        network.values_mut().copy_from_slice(&self.network.values);
        network.stats_mut().copy_from_slice(&self.network.statistics);
        Ok(network)
    }

    /// Which of a teacher's activations each hard layer of a pupil goes by, by the layer's number: that of the same shape,
    /// the first of a shape by the first. Empty where no target rule goes by a teacher.
    pub fn followed(teacher: Option<&Teacher>, pupil: &Graph) -> Result<Vec<Option<usize>>, NnError> {
        let walked = pupil.walk();
        if !walked.iter().any(|node| node.op.target_rule().is_some_and(|rule| rule.follows_teacher())) {
            return Ok(Vec::new());
        }
        let Some(teacher) = teacher else {
            return Err(NnError::Setting("the target rule teacher needs a teacher: none is given".into()));
        };
        let activates = |op: &Op| matches!(op, Op::Hard(..) | Op::Soft(_));
        let shapes: Vec<Shape> =
            teacher.graph.walk().into_iter().filter(|node| activates(&node.op)).map(|node| node.input).collect();
        let own: Vec<_> = walked.iter().filter(|node| activates(&node.op)).collect();
        let mut followed = Vec::new();
        for (i, node) in own.iter().enumerate() {
            let Op::Hard(unit, number) = &node.op else { continue };
            let nth = own[..i].iter().filter(|before| before.input == node.input).count();
            let mut alike = shapes.iter().enumerate().filter(|(_, shape)| **shape == node.input).map(|(at, _)| at);
            let at = alike.nth(nth).filter(|_| unit.rule.follows_teacher());
            followed.resize(followed.len().max(*number as usize + 1), None);
            followed[*number as usize] = at;
        }
        if followed.iter().all(Option::is_none) {
            return Err(NnError::Setting(
                "the target rule teacher goes by a teacher whose activations have the same shapes; this one has none"
                    .into(),
            ));
        }
        Ok(followed)
    }
}
