//! Where a step's time goes, by kind of layer.

use std::time::Duration;

/// Time spent in each kind of layer, forward and backward.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    entries: Vec<Entry>,
}

/// One kind of layer in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kind of layer, in a word.
    pub kind: &'static str,
    /// Whether it is the way back.
    pub backward: bool,
    /// The time spent, all such layers together.
    pub time: Duration,
}

impl Breakdown {
    pub(crate) fn add(&mut self, kind: &'static str, backward: bool, time: Duration) {
        match self.entries.iter_mut().find(|e| e.kind == kind && e.backward == backward) {
            Some(entry) => entry.time += time,
            None => self.entries.push(Entry { kind, backward, time }),
        }
    }

    /// What took longest comes first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|e| std::cmp::Reverse(e.time));
        entries
    }
}
