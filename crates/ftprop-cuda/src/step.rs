//! What a step depends on beside its batch, as the kernels see it.

use crate::CudaError;
use crate::abi::{DevicePtr, DeviceStep};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::stream::CudaStream;
use ftprop_nn::Portion;
use ftprop_tensor::random::{Purpose, Stream, mix};

impl DeviceStep {
    pub(crate) fn new(seed: u64, epoch: u64, number: u64, batch: usize) -> Self {
        DeviceStep {
            number,
            dropout_base: mix(mix(seed).wrapping_add(Purpose::Dropout as u64)),
            target_base: mix(mix(seed).wrapping_add(Purpose::Target as u64)),
            shuffle_key: Stream::new(seed, Purpose::Shuffle, epoch).key(),
            augment_key: Stream::new(seed, Purpose::Augment, epoch).key(),
            flip_key: Stream::new(seed, Purpose::Augment, u64::MAX).key(),
            epoch,
            index: 0,
            batch: batch as u32,
            first: 0,
            of: 0,
        }
    }

    /// The same on a portion of a batch that several GPUs share.
    pub(crate) fn within(self, portion: Option<Portion>) -> Self {
        portion.map_or(self, |portion| DeviceStep { first: portion.first as u32, of: portion.of as u32, ..self })
    }
}

/// Rows of the table of scalars: a longer span of steps is cut into parts.
pub(crate) const SCALAR_ROWS: usize = 1 << 16;

/// Where the kernels find the step and the scalars of the steps that follow.
pub(crate) struct StepBuffers {
    step: Region,
    scalars: Region,
}

impl StepBuffers {
    /// With so many scalars a step.
    pub(crate) fn new(width: usize, layout: &mut ArenaLayout) -> Self {
        StepBuffers {
            step: layout.take(size_of::<DeviceStep>()),
            scalars: layout.take(SCALAR_ROWS * width * size_of::<f32>()),
        }
    }

    /// The [`DeviceStep`].
    pub(crate) fn step(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.step)
    }

    /// The table of scalars, a row a step.
    pub(crate) fn scalars(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.scalars)
    }

    /// Sets the next step and the scalars from it on, at most [`SCALAR_ROWS`] rows, in order with the stream's work.
    pub(crate) fn set(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        step: DeviceStep,
        scalars: &[f32],
    ) -> Result<(), CudaError> {
        arena.write(stream, self.step, &[step])?;
        arena.write(stream, self.scalars, scalars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_come_from_the_same_streams_as_on_the_cpu() {
        let step = DeviceStep::new(7, 3, 41, 0);
        assert_eq!(mix(step.dropout_base.wrapping_add(step.number)), Stream::new(7, Purpose::Dropout, 41).key());
        assert_eq!(mix(step.target_base.wrapping_add(step.number)), Stream::new(7, Purpose::Target, 41).key());
    }
}
