//! Layers: each computes its output, remembers what it must, and on the way back turns the slopes by its
//! output into those by its input and its parameters.
//!
//! A layer is compiled for one batch size; the last batch of an epoch may be smaller. Nothing here
//! allocates after it is built.

mod above;
mod activation;
mod affine;
mod chain;
mod conv;
mod conv_pool;
mod dropout;
mod fc;
mod norm;
mod pool;
mod residual;
mod watch;

pub(crate) use above::{Above, Output};
pub(crate) use activation::{HardLayer, SoftLayer};
pub(crate) use affine::Affine;
pub(crate) use chain::{Chain, Link};
pub(crate) use conv::Conv;
pub(crate) use conv_pool::PooledConv;
pub(crate) use dropout::Dropout;
pub(crate) use fc::Fc;
pub(crate) use norm::Norm;
pub(crate) use pool::Pool;
pub(crate) use residual::Residual;
pub use watch::{FAINT, LayerDiagnosis};
pub(crate) use watch::{Watch, Watched, norm};

use crate::portion::Portion;
use crate::target::Moment;
use crate::timing::Breakdown;
use ftprop_tensor::geometry::PoolGeometry;
use ftprop_tensor::{Buffer, Cpu};

/// What a layer is given on its way through the network.
pub(crate) struct Pass<'a> {
    pub(crate) cpu: &'a Cpu,
    /// Examples in this batch.
    pub(crate) n: usize,
    pub(crate) statistics: Statistics,
    pub(crate) params: &'a [f32],
    /// The squares of the parameters, where curvature is carried down.
    pub(crate) squared: &'a [f32],
    /// A teacher's pre-activations for this batch, by the number of the hard layer that follows them.
    pub(crate) taught: &'a [Option<&'a [f32]>],
    /// Running statistics.
    pub(crate) stats: &'a mut [f32],
    /// Gradients of the parameters, written on the way back.
    pub(crate) grads: &'a mut [f32],
    pub(crate) scratch: &'a mut [f32],
    /// The batch's labels, which target rules may look at; none where nothing is learned.
    pub(crate) labels: &'a [u32],
    /// Where the examples are in a batch that several engines share.
    pub(crate) portion: Option<Portion>,
    /// What dropout masks and target rules depend on.
    pub(crate) seed: u64,
    pub(crate) step: u64,
    /// The share of training done, 0 to 1.
    pub(crate) progress: f32,
    /// Those who have the batch's other examples, where batch norm is to go by all of them.
    pub(crate) others: Option<&'a mut dyn Others>,
    /// Where the time goes, if somebody wants to know.
    pub(crate) breakdown: Option<&'a mut Breakdown>,
}

/// Engines that share a batch, as a layer sees them.
pub(crate) trait Others {
    /// Every number becomes its sum over all of them.
    fn sum(&mut self, numbers: &mut [f64]);
}

/// What batch norm goes by.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Statistics {
    /// The running statistics: the network is used, not taught.
    Running,
    /// The batch's own, which move the running ones: a training step.
    Batch,
    /// The batch's own, which the running ones become the mean of, together with those of `before` batches.
    Mean { before: usize },
    /// Those of the last pass, again: what the step would have seen with other outputs below.
    Again,
}

impl Pass<'_> {
    /// Whether dropout drops.
    pub(crate) fn drops(&self) -> bool {
        matches!(self.statistics, Statistics::Batch | Statistics::Again)
    }

    /// When and for whom a hard layer of so many units sets its targets.
    pub(crate) fn moment(&self, units: usize, layer: u64) -> Moment<'_> {
        let Pass { seed, step, progress, labels, portion, .. } = *self;
        Moment { seed, step, progress, labels, units, layer, portion }
    }
}

/// The slopes on their way back: one buffer holds the current ones, the other takes the next.
pub(crate) struct Slopes {
    current: Buffer,
    spare: Buffer,
    /// The diagonal of the loss's curvature, which goes the same way where a target rule asks for it.
    pub(crate) curvature: Option<Box<Slopes>>,
}

impl Slopes {
    pub(crate) fn new(len: usize) -> Self {
        Slopes { current: Buffer::zeros(len), spare: Buffer::zeros(len), curvature: None }
    }

    pub(crate) fn current(&mut self) -> &mut [f32] {
        &mut self.current
    }

    /// The current slopes and the place for the next; `advance` makes those the current ones.
    pub(crate) fn both(&mut self) -> (&[f32], &mut [f32]) {
        (&self.current, &mut self.spare)
    }

    /// The current slopes, to be changed in place, and the buffer beside them.
    pub(crate) fn in_place(&mut self) -> (&mut [f32], &mut [f32]) {
        (&mut self.current, &mut self.spare)
    }

    /// The current slopes, to be changed, and the curvature, which there must be.
    pub(crate) fn with_curvature(&mut self) -> (&mut [f32], &[f32]) {
        let curvature = self.curvature.as_ref().expect("a rule asks for it, so the network has it");
        (&mut self.current, &curvature.current)
    }

    pub(crate) fn advance(&mut self) {
        std::mem::swap(&mut self.current, &mut self.spare);
    }
}

/// A layer of a compiled network.
pub(crate) trait Layer: Send {
    /// Values of one example that come out.
    fn out_len(&self) -> usize;

    /// x `[n, in]` becomes y `[n, out]`.
    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]);

    /// Takes the slopes by y and leaves those by x, if `needs_input`; writes its parameters' gradients.
    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool);

    /// Takes part in what [others](Pass::others) do on the way forward, or back, where none of the examples are here.
    fn attend(&mut self, _pass: &mut Pass<'_>, _backward: bool) {}

    /// The same where the layers above can be asked what they would make of other outputs.
    fn backward_below(
        &mut self,
        pass: &mut Pass<'_>,
        x: &[f32],
        slopes: &mut Slopes,
        needs_input: bool,
        _above: &mut dyn Above,
    ) {
        self.backward(pass, x, slopes, needs_input);
    }

    /// Takes the curvature by y and leaves that by x, before the slopes go the same way. A hard layer and a layer made of
    /// layers do so on the way back instead.
    fn carry_curvature(&mut self, pass: &mut Pass<'_>, x: &[f32], curvature: &mut Slopes);

    /// Whether it is an activation.
    fn activates(&self) -> bool {
        false
    }

    /// Whether it has parameters.
    fn learns(&self) -> bool {
        false
    }

    /// What it does, if it is a max pooling.
    fn max_pool(&self) -> Option<PoolGeometry> {
        None
    }

    /// This layer and a max pooling of its output as one, where that is faster.
    fn with_max_pool(&self, _pool: PoolGeometry, _batch: usize) -> Option<PooledConv> {
        None
    }

    /// The chains inside it, for looking at their outputs.
    fn inner(&self) -> Vec<&Chain> {
        Vec::new()
    }
}
