//! What passes' launches on a batch need beside the passes.

use super::Others;
use crate::abi::DevicePtr;
use crate::arena::{Arena, Region};
use crate::curvature::CurvaturePass;
use crate::parameters::ParameterBuffers;

/// Where a tensor's values and the slopes by them are, and the loss's curvature where it comes down.
#[derive(Clone, Copy)]
pub(crate) struct TensorRegions {
    pub(crate) values: Region,
    pub(crate) slopes: Option<Region>,
    pub(crate) curvature: Option<Region>,
}

/// What a pass's launches on a batch need beside the pass.
pub(crate) struct BatchContext<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) tensors: &'a [TensorRegions],
    pub(crate) parameters: &'a ParameterBuffers,
    /// The [`DeviceStep`](crate::abi::DeviceStep).
    pub(crate) step: DevicePtr,
    /// The table of scalars, laid out as [`ScalarLayout`] says.
    pub(crate) scalars: DevicePtr,
    /// The batch's labels.
    pub(crate) labels: DevicePtr,
    /// Where passes say that they met something that is no number.
    pub(crate) not_numbers: DevicePtr,
    /// What target rules look at further than at their units.
    pub(crate) further: Further<'a>,
    /// What norms go by.
    pub(crate) statistics: Statistics,
    /// Those who have the batch's other examples, where norms are to go by all.
    pub(crate) others: Option<&'a dyn Others>,
    /// Examples in the batch.
    pub(crate) n: usize,
}

/// What target rules look at further than at their units' own numbers.
#[derive(Clone, Copy)]
pub(crate) struct Further<'a> {
    /// A teacher's pre-activations.
    pub(crate) taught: &'a [DevicePtr],
    /// The numbers of the batch's examples by class, and where each class begins.
    pub(crate) by_class: [DevicePtr; 2],
    /// Each example's loss, as it was and with what was tried.
    pub(crate) losses: [DevicePtr; 2],
    /// Where the loss's curvature comes from, if it comes down.
    pub(crate) curvature: Option<&'a CurvaturePass>,
}

impl Further<'_> {
    /// The squares of the parameters from number `at` on.
    pub(super) fn squared(&self, at: usize) -> DevicePtr {
        self.curvature.map_or(DevicePtr::NULL, |curvature| curvature.squared(at))
    }
}

/// What norms go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Statistics {
    /// The running statistics, once they were loaded: the network is used, not taught.
    Running,
    /// The batch's own, which move the running ones: a training step.
    Batch,
    /// The batch's own, which the running ones become the mean of, together with those of `before` batches.
    Mean { before: usize },
    /// Those of the last pass, again: what the step would have seen with other outputs below.
    Again,
}

impl BatchContext<'_> {
    pub(super) fn at(&self, region: Region) -> DevicePtr {
        self.arena.at(region)
    }

    pub(crate) fn values(&self, tensor: usize) -> DevicePtr {
        self.at(self.tensors[tensor].values)
    }

    /// Null where there are none.
    pub(crate) fn slopes(&self, tensor: usize) -> DevicePtr {
        self.tensors[tensor].slopes.map_or(DevicePtr::NULL, |region| self.at(region))
    }

    /// Null where there is none.
    pub(crate) fn curvature(&self, tensor: usize) -> DevicePtr {
        self.tensors[tensor].curvature.map_or(DevicePtr::NULL, |region| self.at(region))
    }
}
