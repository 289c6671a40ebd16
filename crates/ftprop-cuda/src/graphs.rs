//! Captured work, kept to be replayed.

use crate::CudaError;
use crate::data::ResidentData;
use crate::executor::Executor;
use crate::stream::CudaGraph;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What a captured graph does, and for how many examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GraphKey {
    /// So many steps on n examples each of batches of resident data, whole or up to the optimizer.
    Train { data: u64, n: usize, full: usize, steps: usize, whole: bool },
    /// An evaluation of a batch of resident data.
    Evaluate { data: u64, n: usize, full: usize },
    /// A step on a streamed batch, whole or up to the optimizer.
    Streamed { n: usize, whole: bool },
    /// The same on a batch of pictures as bytes.
    Pixels { n: usize, whole: bool },
}

impl GraphKey {
    fn examples(&self) -> usize {
        match *self {
            GraphKey::Train { n, .. }
            | GraphKey::Evaluate { n, .. }
            | GraphKey::Streamed { n, .. }
            | GraphKey::Pixels { n, .. } => n,
        }
    }
}

/// A network's graphs.
#[derive(Default)]
pub(crate) struct GraphCache {
    graphs: HashMap<GraphKey, CudaGraph>,
    /// Data that graphs read.
    data: HashMap<u64, ResidentData>,
}

impl GraphCache {
    /// Launches what was captured under a key, after capturing it the first time.
    pub(crate) fn replay(
        &mut self,
        executor: &Executor,
        key: GraphKey,
        work: impl FnOnce(&Executor) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if !executor.can_be_captured() {
            return work(executor);
        }
        let graph = match self.graphs.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(executor.capture(key.examples(), work)?),
        };
        graph.launch(executor.stream())
    }

    /// Keeps data that graphs read as long as them.
    pub(crate) fn keep(&mut self, data: &ResidentData) {
        self.data.entry(data.id()).or_insert_with(|| data.clone());
    }
}
