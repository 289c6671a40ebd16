//! Without the feature `cuda` there are no GPUs.

use super::Refusal;
use crate::gate::Gate;
use std::sync::Arc;

/// A GPU in use: without the feature `cuda` there is none.
#[derive(Clone)]
pub enum Gpu {}

impl Gpu {
    pub(super) fn open(_ordinal: usize) -> Result<Self, Refusal> {
        Err(Refusal {
            why: "this program was built without CUDA; build it with the feature cuda".into(),
            note: "this program was built without CUDA, so the CPU is used".into(),
        })
    }

    pub(super) fn describe(&self) -> String {
        match *self {}
    }

    /// How runs take turns on it, where several train at the same time.
    pub fn gate(&self) -> Option<&Arc<Gate>> {
        match *self {}
    }

    pub(crate) fn share(&mut self, _gate: Option<Arc<Gate>>) {
        match *self {}
    }

    pub(crate) fn free_memory(&self) -> Option<usize> {
        match *self {}
    }
}

/// The driver's and the libraries' versions: none are used.
pub fn versions() -> Vec<String> {
    Vec::new()
}
