//! Parameters that are learned before the way back has ended.

use crate::CudaError;
use crate::device::Device;
use crate::exchange::last_parameters;
use crate::passes::CompiledPass;
use crate::stream::SideStream;
use std::ops::Range;

/// The last layers' parameters, where they are so many that it pays to learn them while the first layers are on their way back.
pub(super) struct EarlyUpdate {
    pub(super) range: Range<usize>,
    /// The pass after which their gradients are there and nobody reads them any more.
    pub(super) after: usize,
    pub(super) stream: SideStream,
}

impl EarlyUpdate {
    /// Parameters, at least.
    const LEAST: usize = 1 << 21;
    /// And of all parameters at least so many in ten: with fewer there is little to gain, and to wait for more would leave too
    /// little to do meanwhile.
    const LEAST_TENTHS: usize = 6;

    pub(super) fn new(device: &Device, passes: &[CompiledPass], count: usize) -> Result<Option<Self>, CudaError> {
        let passes: Vec<Vec<Range<usize>>> = passes.iter().map(CompiledPass::parameters).collect();
        let least = EarlyUpdate::LEAST.max(count * EarlyUpdate::LEAST_TENTHS / 10);
        let Some((range, after)) = last_parameters(&passes, count, least) else { return Ok(None) };
        let range = range.start.next_multiple_of(4)..range.end;
        Ok(Some(EarlyUpdate { range, after, stream: SideStream::new(device)? }))
    }
}
