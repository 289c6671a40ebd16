//! Ranks that are threads of one process: a ring without a network, for tests and for trying things out.

use crate::{Group, RankError, Transport};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Threads {
    rank: usize,
    size: usize,
    next: Sender<Vec<u8>>,
    previous: Receiver<Vec<u8>>,
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn pass(&mut self, out: &[u8], into: &mut [u8]) -> Result<(), RankError> {
        let gone = || RankError::OutOfStep { rank: self.rank, got: 0, expected: into.len() as u64 };
        self.next.send(out.to_vec()).map_err(|_| gone())?;
        into.copy_from_slice(&self.previous.recv().map_err(|_| gone())?);
        Ok(())
    }

    fn abandon(&mut self, _: &str) {}

    fn on_loss(&mut self, _: Box<dyn FnOnce() + Send>) {}
}

/// The groups of so many ranks, one for a thread each, the first rank's first.
pub fn in_one_process(size: usize) -> Vec<Group> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
    let group = |(rank, previous): (usize, Receiver<Vec<u8>>)| {
        let next = senders[(rank + 1) % size].clone();
        Group::new(Box::new(Threads { rank, size, next, previous }))
    };
    receivers.into_iter().enumerate().map(group).collect()
}
