//! Beginning with another network's numbers, where they fit.

use super::Trainer;
use crate::checkpoint::shape_of;
use crate::error::Error;
use crate::model::{Model, Which};
use crate::observe::Notice;
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Engine, Network};

impl Trainer {
    /// Has a new run begin with the network that its recipe names, if it names one. That network is not needed any more
    /// once there is a checkpoint.
    pub(super) fn begin_with_another(&mut self) -> Result<(), Error> {
        let Some(from) = self.recipe.train.init_from.clone() else { return Ok(()) };
        let source = Model::load(&from, Which::Best, self.cpu.clone(), 1)?;
        let (taken, new) = take_over(&mut *self.engine, &source.network)?;
        self.model.origin.begun_with = Some(source.mark());
        self.notes.extend(source.notes.into_iter().map(Notice::Checkpoint));
        self.notes.push(Notice::Begun { from, taken, new });
        Ok(())
    }

    /// Begins with these parameters and statistics, and not with random ones. A run that goes on from a checkpoint would
    /// lose what it has learned.
    pub fn set_network(&mut self, network: NetworkState<'_>) -> Result<(), Error> {
        begin_at(&mut *self.engine, network)
    }
}

/// Takes another network's parameters and statistics wherever it has some of the same name and shape; the others stay as they
/// are, such as those of the last layer where there are other classes. Gives how many parameters it took, and the names of
/// those that begin anew.
fn take_over(engine: &mut dyn Engine, source: &Network) -> Result<(usize, Vec<String>), Error> {
    let (graph, from) = (engine.graph().clone(), source.graph());
    let network = engine.network()?;
    let (mut values, mut statistics) = (network.values.into_owned(), network.statistics.into_owned());
    let (mut taken, mut new, mut weights) = (0, Vec::new(), 0);
    for p in graph.parameters() {
        let shape = shape_of(&p.kind, p.range.len());
        let fits = from.parameters().iter().find(|q| q.name == p.name && shape_of(&q.kind, q.range.len()) == shape);
        match fits {
            Some(q) => {
                values[p.range.clone()].copy_from_slice(&source.values()[q.range.clone()]);
                taken += 1;
                weights += usize::from(matches!(p.kind, ParameterKind::Conv { .. } | ParameterKind::Fc { .. }));
            }
            None => new.push(p.name.clone()),
        }
    }
    // Norms of the same width are in many networks, and without the weights below them they say nothing.
    if weights == 0 {
        return Err(Error::NothingFits);
    }
    for s in graph.statistics() {
        let fits = from.statistics().iter().find(|q| q.name == s.name && q.range.len() == s.range.len());
        if let Some(q) = fits {
            statistics[s.range.clone()].copy_from_slice(&source.stats()[q.range.clone()]);
        }
    }
    begin_at(engine, NetworkState { values: values.into(), statistics: statistics.into() })?;
    Ok((taken, new))
}

/// Puts a network where training begins from; a moving average begins there too.
pub(super) fn begin_at(engine: &mut dyn Engine, network: NetworkState<'_>) -> Result<(), Error> {
    let TrainingState { steps, moments, average, .. } = engine.state()?;
    let average = average.map(|_| network.values.clone());
    let moments = moments.into_iter().map(|moment| moment.into_owned().into()).collect();
    Ok(engine.restore(&TrainingState { network, steps, moments, average })?)
}
