//! What target rules look at further than at their units' own numbers, in memory: a teacher's pre-activations, the batch's
//! examples by class, their losses with other outputs, and where the loss's curvature comes from.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::curvature::CurvaturePass;
use crate::passes::{BatchContext, CompiledPass, Further};
use crate::stream::CudaStream;

/// What there is of it for a network.
pub(crate) struct FurtherBuffers {
    taught: Vec<DevicePtr>,
    /// The numbers of the batch's examples by class, and where each class begins.
    by_class: [Region; 2],
    /// Where outputs are tried.
    trial: Option<Trial>,
    curvature: Option<CurvaturePass>,
}

/// Room for what is tried.
struct Trial {
    /// Each example's loss, as it was and with what was tried.
    losses: [Region; 2],
    /// The logits as they were.
    logits: Region,
}

impl FurtherBuffers {
    /// With a teacher's pre-activations, for passes that learn from batches of at most `batch` examples of so many classes.
    pub(crate) fn new(
        taught: Vec<DevicePtr>,
        curvature: Option<CurvaturePass>,
        passes: &[CompiledPass],
        (batch, classes): (usize, usize),
        layout: &mut ArenaLayout,
    ) -> Self {
        let by_class = match passes.iter().any(CompiledPass::goes_by_class) {
            true => [batch, classes + 1].map(|count| layout.take(4 * count)),
            false => [layout.take(0); 2],
        };
        let trial =
            || Trial { losses: [batch; 2].map(|count| layout.take(8 * count)), logits: layout.floats(batch * classes) };
        let trial = passes.iter().any(CompiledPass::asks_above).then(trial);
        FurtherBuffers { taught, by_class, trial, curvature }
    }

    /// Where each example's loss goes, and its loss with what is tried; null where nothing is tried.
    pub(crate) fn losses(&self, arena: &Arena) -> [DevicePtr; 2] {
        self.trial.as_ref().map_or([DevicePtr::NULL; 2], |trial| trial.losses.map(|region| arena.at(region)))
    }

    /// Keeps so many bytes of the logits, or puts them back, where outputs are tried.
    pub(crate) fn keep_logits(
        &self,
        arena: &Arena,
        stream: &CudaStream,
        (logits, bytes): (Region, usize),
        back: bool,
    ) -> Result<(), CudaError> {
        let Some(Trial { logits: kept, .. }) = self.trial else { return Ok(()) };
        let (from, to) = if back { (kept, logits) } else { (logits, kept) };
        arena.copy(stream, from, to, bytes)
    }

    /// Bytes of device memory that it uses outside of the network's arena.
    pub(crate) fn bytes(&self) -> usize {
        self.curvature.as_ref().map_or(0, CurvaturePass::bytes)
    }

    /// As passes see it.
    pub(crate) fn seen(&self, arena: &Arena) -> Further<'_> {
        let by_class = self.by_class.map(|region| arena.at(region));
        Further { taught: &self.taught, by_class, losses: self.losses(arena), curvature: self.curvature.as_ref() }
    }

    /// Has it ready for a batch whose loss is known, with the logits' tensor and the weights of classes.
    pub(crate) fn prepare(
        &self,
        passes: &[CompiledPass],
        batch: &BatchContext<'_>,
        (output, weights): (usize, DevicePtr),
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        if let Some(pass) = passes.iter().find(|pass| pass.goes_by_class()) {
            pass.order_by_class(batch, stream)?;
        }
        let Some(curvature) = &self.curvature else { return Ok(()) };
        let (logits, by_logits) = (batch.values(output), batch.curvature(output));
        let inputs = [logits, batch.labels, by_logits, weights, batch.step, batch.scalars];
        curvature.run(stream, batch.parameters, inputs, batch.n)
    }
}
