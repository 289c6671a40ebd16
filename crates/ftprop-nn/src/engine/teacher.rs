//! A trained network that another one learns from.

use super::NetworkState;
use crate::NnError;
use crate::distillation::Distillation;
use crate::graph::Graph;
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
}
