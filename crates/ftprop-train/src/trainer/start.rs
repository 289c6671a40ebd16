//! Beginning with another network's numbers, where they fit.

use super::Trainer;
use crate::checkpoint::shape_of;
use crate::error::Error;
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Engine, Network};

/// What a run took from another network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many of its parameters.
    pub parameters: usize,
    /// The names of those that begin anew, since the other network has none of their name and shape.
    pub new: Vec<String>,
}

impl Trainer {
    /// Begins with another network's parameters and statistics wherever it has some of the same name and shape; the
    /// others stay as they are, such as those of the last layer where there are other classes. A run in a folder, which
    /// must exist, keeps what it begins with.
    pub fn start_from(&mut self, source: &Network) -> Result<Taken, Error> {
        let (graph, from) = (self.engine.graph().clone(), source.graph());
        let network = self.engine.network()?;
        let (mut values, mut statistics) = (network.values.into_owned(), network.statistics.into_owned());
        let (mut taken, mut weights) = (Taken::default(), 0);
        for p in graph.parameters() {
            let shape = shape_of(&p.kind, p.range.len());
            let fits = from.parameters().iter().find(|q| q.name == p.name && shape_of(&q.kind, q.range.len()) == shape);
            match fits {
                Some(q) => {
                    values[p.range.clone()].copy_from_slice(&source.values()[q.range.clone()]);
                    taken.parameters += 1;
                    weights += usize::from(matches!(p.kind, ParameterKind::Conv { .. } | ParameterKind::Fc { .. }));
                }
                None => taken.new.push(p.name.clone()),
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
        begin_at(&mut *self.engine, NetworkState { values: values.into(), statistics: statistics.into() })?;
        self.save()?;
        Ok(taken)
    }

    /// Begins with these parameters and statistics, and not with random ones. A run that goes on from a checkpoint would
    /// lose what it has learned.
    pub fn set_network(&mut self, network: NetworkState<'_>) -> Result<(), Error> {
        begin_at(&mut *self.engine, network)
    }
}

/// Puts a network where training begins from; a moving average begins there too.
pub(super) fn begin_at(engine: &mut dyn Engine, network: NetworkState<'_>) -> Result<(), Error> {
    let TrainingState { steps, moments, average, .. } = engine.state()?;
    let average = average.map(|_| network.values.clone());
    let moments = moments.into_iter().map(|moment| moment.into_owned().into()).collect();
    Ok(engine.restore(&TrainingState { network, steps, moments, average })?)
}
