//! Puts the filters of a whitened first layer in place: they are made from training pictures.

use super::start::begin_at;
use crate::error::Error;
use ftprop_data::{Loader, LoaderConfig, Normalize, Split};
use ftprop_nn::Engine;
use ftprop_nn::engine::NetworkState;
use ftprop_nn::whiten::{whitened_filters, whitened_layer};

/// Pictures that the filters are made from.
const EXAMPLES: usize = 2000;

/// Does nothing where the network's first layer is not whitened.
pub(super) fn whiten(engine: &mut dyn Engine, train: &Split, normalize: &Normalize, seed: u64) -> Result<(), Error> {
    let Some((range, geometry)) = whitened_layer(engine.graph()) else { return Ok(()) };
    let examples = EXAMPLES.min(train.len());
    let loader = Loader::new(train, LoaderConfig::training(examples, seed, normalize.clone()))?;
    let mut epoch = loader.epoch(0, 0);
    let Some(batch) = epoch.next_batch()? else { return Ok(()) };
    let filters = whitened_filters(&geometry, batch.images);
    let network = engine.network()?;
    let (mut values, statistics) = (network.values.into_owned(), network.statistics.into_owned());
    values[range].copy_from_slice(&filters);
    begin_at(engine, NetworkState { values: values.into(), statistics: statistics.into() })
}
