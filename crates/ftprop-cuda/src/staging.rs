//! Two slots for batches from the host: one is filled while the other is used.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::device::Device;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::stream::{CudaEvent, CudaStream};

pub(crate) struct StagingBuffers {
    images: DeviceBuffer,
    labels: DeviceBuffer,
    pinned: [(PinnedBuffer<f32>, PinnedBuffer<u32>); 2],
    copies: CudaStream,
    /// The copy into a slot is done, and the step that used it is.
    copied: [CudaEvent; 2],
    used: [CudaEvent; 2],
    /// Numbers of a full batch's images, and its labels.
    slot: (usize, usize),
    /// Batches streamed since the span began, and how many it has.
    done: usize,
    planned: usize,
    first: usize,
}

impl StagingBuffers {
    /// For batches of so many examples of `len` numbers.
    pub(crate) fn new(device: &Device, batch: usize, len: usize) -> Result<Self, CudaError> {
        let what = "batches from the host";
        let pinned =
            || Ok::<_, CudaError>((PinnedBuffer::new(device, batch * len)?, PinnedBuffer::new(device, batch)?));
        Ok(StagingBuffers {
            images: DeviceBuffer::new(device, 2 * 4 * batch * len, what)?,
            labels: DeviceBuffer::new(device, 2 * 4 * batch, what)?,
            pinned: [pinned()?, pinned()?],
            copies: CudaStream::new(device)?,
            copied: [CudaEvent::new(device)?, CudaEvent::new(device)?],
            used: [CudaEvent::new(device)?, CudaEvent::new(device)?],
            slot: (batch * len, batch),
            done: 0,
            planned: 0,
            first: 0,
        })
    }

    pub(crate) fn images(&self) -> DevicePtr {
        self.images.start()
    }

    pub(crate) fn labels(&self) -> DevicePtr {
        self.labels.start()
    }

    /// Puts a batch into the first slot, in order with the stream's work.
    pub(crate) fn put(&self, stream: &CudaStream, images: &[f32], labels: &[u32]) -> Result<(), CudaError> {
        self.images.write(stream, 0, images)?;
        self.labels.write(stream, 0, labels)
    }

    /// Begins a span of steps, the first of which takes batch number `first` of its epoch.
    pub(crate) fn begin(&mut self, first: usize, steps: usize) {
        (self.done, self.planned, self.first) = (0, steps, first);
    }

    /// Copies the span's next batch into its slot and has `stream` wait for it. Returns the slot when the batch has been
    /// copied aside; the copy to the GPU runs beside the step before.
    pub(crate) fn push(&mut self, stream: &CudaStream, images: &[f32], labels: &[u32]) -> Result<usize, CudaError> {
        if self.done >= self.planned {
            return Err(CudaError::NotAnnounced);
        }
        let slot = (self.first + self.done) & 1;
        if self.done >= 2 {
            self.copied[slot].wait()?;
            self.copies.wait_for(&self.used[slot])?;
        }
        let (pinned_images, pinned_labels) = &mut self.pinned[slot];
        pinned_images.as_mut_slice()[..images.len()].copy_from_slice(images);
        pinned_labels.as_mut_slice()[..labels.len()].copy_from_slice(labels);
        let (slot_images, slot_labels) = self.slot;
        // SAFETY: this pinned memory is written again only after `copied` of this slot has happened.
        unsafe {
            self.images.write_pinned(&self.copies, 4 * slot * slot_images, pinned_images, images.len())?;
            self.labels.write_pinned(&self.copies, 4 * slot * slot_labels, pinned_labels, labels.len())?;
        }
        self.copies.record(&self.copied[slot])?;
        self.done += 1;
        stream.wait_for(&self.copied[slot])?;
        Ok(slot)
    }

    /// Says that what is in the stream by now is all that uses the slot.
    pub(crate) fn release(&self, stream: &CudaStream, slot: usize) -> Result<(), CudaError> {
        stream.record(&self.used[slot])
    }
}
