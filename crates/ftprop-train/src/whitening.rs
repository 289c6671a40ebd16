//! Puts the filters of a whitened first layer in place: they are made from training pictures.

use crate::error::Error;
use ftprop_data::{Loader, LoaderConfig, Normalize, Split};
use ftprop_nn::Engine;
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_nn::whiten::{whitened_filters, whitened_layer};
use std::borrow::Cow;

/// Pictures that the filters are made from.
const EXAMPLES: usize = 2000;

/// Does nothing where the network's first layer is not whitened.
pub(crate) fn whiten(engine: &mut dyn Engine, train: &Split, normalize: &Normalize, seed: u64) -> Result<(), Error> {
    let Some((range, geometry)) = whitened_layer(engine.graph()) else { return Ok(()) };
    let examples = EXAMPLES.min(train.len());
    let loader = Loader::new(train, LoaderConfig::training(examples, seed, normalize.clone()))?;
    let mut epoch = loader.epoch(0, 0);
    let Some(batch) = epoch.next_batch()? else { return Ok(()) };
    let filters = whitened_filters(&geometry, batch.images);
    let state = engine.state()?;
    let mut values = state.network.values.to_vec();
    values[range].copy_from_slice(&filters);
    let average = state.average.is_some().then(|| Cow::Owned(values.clone()));
    let statistics = Cow::Owned(state.network.statistics.to_vec());
    let moments = state.moments.iter().map(|m| Cow::Owned(m.to_vec())).collect();
    let steps = state.steps;
    drop(state);
    let network = NetworkState { values: Cow::Owned(values), statistics };
    Ok(engine.restore(&TrainingState { network, steps, moments, average })?)
}
