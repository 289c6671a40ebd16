//! Parameters that are learned before the way back has ended.

use crate::CudaError;
use crate::device::Device;
use crate::environment::tries;
use crate::exchange::last_parameters;
use crate::kernel::Kernel;
use crate::learned::{LearnProductArgs, LearnedProduct};
use crate::passes::{BatchContext, CompileOptions, CompiledPass};
use crate::stream::{CudaStream, SideStream};
use ftprop_nn::Learning;
use std::ops::Range;

/// The last layers' parameters, where they are so many that it pays to learn them while the first layers are on their way back.
pub(super) struct EarlyUpdate {
    pub(super) range: Range<usize>,
    /// The pass after which their gradients are there and nobody reads them any more.
    pub(super) after: usize,
    pub(super) stream: SideStream,
    /// Those of them whose gradients are only there to be learned from.
    learned: Vec<(LearnedProduct, Kernel<LearnProductArgs>)>,
    /// Blocks that these have: one to a multiprocessor, so that the layers below find room beside them.
    blocks: usize,
}

impl EarlyUpdate {
    /// Parameters, at least.
    const LEAST: usize = 1 << 21;
    /// And of all parameters at least so many in ten: with fewer there is little to gain, and to wait for more would leave too
    /// little to do meanwhile.
    const LEAST_TENTHS: usize = 6;

    pub(super) fn new(
        device: &Device,
        passes: &[CompiledPass],
        count: usize,
        learned: &[LearnedProduct],
        (learning, options): (&Learning, &CompileOptions),
    ) -> Result<Option<Self>, CudaError> {
        let passes: Vec<Vec<Range<usize>>> = passes.iter().map(CompiledPass::parameters).collect();
        let least = EarlyUpdate::LEAST.max(count * EarlyUpdate::LEAST_TENTHS / 10);
        let Some((range, after)) = last_parameters(&passes, count, least) else { return Ok(None) };
        let range = range.start.next_multiple_of(4)..range.end;
        let inside = |one: &&LearnedProduct| range.start <= one.weights.start && one.weights.end <= range.end;
        let compiled = |one: &LearnedProduct| Ok((one.clone(), one.compile(device, learning, options)?));
        let learned = learned.iter().filter(inside).map(compiled).collect::<Result<_, CudaError>>()?;
        let blocks = device.limits()?.multiprocessors * if tries("twice") { 2 } else { 1 };
        Ok(Some(EarlyUpdate { range, after, stream: SideStream::new(device)?, learned, blocks }))
    }

    /// Whether a pass's weights are learned with their gradient.
    pub(super) fn learns(&self, pass: usize) -> bool {
        self.learned.iter().any(|(one, _)| one.pass == pass)
    }

    /// Learns what is learned so.
    pub(super) fn learn(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        self.learned.iter().try_for_each(|(one, kernel)| one.run((kernel, self.blocks), batch, stream))
    }

    /// The other parameters.
    pub(super) fn others(&self) -> Vec<Range<usize>> {
        let mut learned: Vec<&Range<usize>> = self.learned.iter().map(|(one, _)| &one.weights).collect();
        learned.sort_by_key(|range| range.start);
        let (mut others, mut from) = (Vec::new(), self.range.start);
        for range in learned {
            others.push(from..range.start);
            from = range.end;
        }
        others.push(from..self.range.end);
        others.retain(|range| !range.is_empty());
        others
    }
}
