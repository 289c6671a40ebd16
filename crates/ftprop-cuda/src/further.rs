//! What target rules look at further than at their units' own numbers, in memory: a teacher's pre-activations, the batch's
//! examples by class, and where the loss's curvature comes from.

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
    curvature: Option<CurvaturePass>,
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
        FurtherBuffers { taught, by_class, curvature }
    }

    /// Bytes of device memory that it uses outside of the network's arena.
    pub(crate) fn bytes(&self) -> usize {
        self.curvature.as_ref().map_or(0, CurvaturePass::bytes)
    }

    /// As passes see it.
    pub(crate) fn seen(&self, arena: &Arena) -> Further<'_> {
        let by_class = self.by_class.map(|region| arena.at(region));
        Further { taught: &self.taught, by_class, curvature: self.curvature.as_ref() }
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
