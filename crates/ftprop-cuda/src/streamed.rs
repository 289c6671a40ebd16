//! Pictures that stay on the host: their bytes go through pinned memory to one of some slots on the device, several batches
//! ahead, and become a batch there.

use crate::CudaError;
use crate::abi::{DevicePtr, PictureEntry};
use crate::data::next_id;
use crate::device::Device;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::pictures::{PictureTable, entry_of};
use crate::stream::{CudaEvent, CudaStream};
use ftprop_data::{Augment, DataError, Normalize, Pictures, Split};
use ftprop_nn::Shape;
use ftprop_tensor::random::{Permutation, Purpose, Stream};

/// Batches that may be on their way.
const SLOTS: usize = 4;
/// Threads that copy a batch, where it is worth several.
const COPIERS: usize = 4;
const WORTH_SEVERAL: usize = 4 << 20;

/// A split's pictures, copied to the device batch by batch, with how they become the batches that a
/// [`Loader`](ftprop_data::Loader) delivers.
pub struct StreamedPictures {
    id: u64,
    split: Split,
    pub(crate) augment: Augment,
    pub(crate) window: Shape,
    shuffle: bool,
    /// Examples of a full batch.
    batch: usize,
    pub(crate) slot_bytes: usize,
    pub(crate) table: PictureTable,
    pub(crate) tables: DeviceBuffer,
    pub(crate) pixels: DeviceBuffer,
    pub(crate) labels: DeviceBuffer,
    pub(crate) numbers: DeviceBuffer,
    slots: Vec<Slot>,
    copies: CudaStream,
    /// Pictures that were compared with their checksums.
    checked: Vec<bool>,
}

struct Slot {
    pixels: PinnedBuffer<u8>,
    entries: PinnedBuffer<PictureEntry>,
    labels: PinnedBuffer<u32>,
    numbers: PinnedBuffer<u32>,
    /// The copy is done, and the step that used it is.
    copied: CudaEvent,
    used: CudaEvent,
    /// Whether it was ever used.
    begun: bool,
}

impl Slot {
    fn new(device: &Device, batch: usize, bytes: usize) -> Result<Self, CudaError> {
        Ok(Slot {
            pixels: PinnedBuffer::new(device, bytes)?,
            entries: PinnedBuffer::new(device, batch)?,
            labels: PinnedBuffer::new(device, batch)?,
            numbers: PinnedBuffer::new(device, batch)?,
            copied: CudaEvent::new(device)?,
            used: CudaEvent::new(device)?,
            begun: false,
        })
    }
}

impl StreamedPictures {
    /// How many slots there are, for the kernel.
    pub(crate) const SLOTS: u32 = SLOTS as u32;

    /// For batches of so many examples of a split. `None` where it has no pictures of different sizes, or the host has to do
    /// what is done to them.
    pub fn new(
        device: &Device,
        split: &Split,
        normalize: &Normalize,
        augment: Augment,
        shuffle: bool,
        batch: usize,
    ) -> Result<Option<Self>, CudaError> {
        let Some(pictures) = split.pictures().filter(|_| augment.pad == 0) else { return Ok(None) };
        let (what, window) = ("pictures on their way", split.shape());
        let mut sizes = Vec::with_capacity(split.len());
        for position in 0..split.len() {
            sizes.push(entry_of(pictures, split.number(position), 0, window)?);
        }
        let Some(table) = PictureTable::of_slots(device, &sizes, window, normalize, SLOTS * batch)? else {
            return Ok(None);
        };
        // No batch has more than the largest pictures together.
        let mut bytes: Vec<usize> = (0..split.len()).map(|i| pictures.bytes(split.number(i))).collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let slot_bytes = bytes.iter().take(batch).sum::<usize>().next_multiple_of(256);
        let tables: Vec<f32> = normalize.tables().concat();
        Ok(Some(StreamedPictures {
            id: next_id(),
            augment,
            window: Shape { height: window.height, width: window.width, channels: window.channels },
            shuffle,
            batch,
            slot_bytes,
            table,
            tables: DeviceBuffer::of(device, &tables, what)?,
            pixels: DeviceBuffer::new(device, SLOTS * slot_bytes, what)?,
            labels: DeviceBuffer::new(device, 4 * SLOTS * batch, what)?,
            numbers: DeviceBuffer::new(device, 4 * SLOTS * batch, what)?,
            slots: (0..SLOTS).map(|_| Slot::new(device, batch, slot_bytes)).collect::<Result<_, _>>()?,
            copies: CudaStream::new(device)?,
            checked: vec![false; pictures.len()],
            split: split.clone(),
        }))
    }

    /// How many examples there are.
    pub fn examples(&self) -> usize {
        self.split.len()
    }

    pub(crate) fn largest_label(&self) -> u32 {
        self.split.labels().iter().copied().max().unwrap_or(0)
    }

    /// Tells it from other data on any device.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn entries(&self) -> DevicePtr {
        self.table.entries()
    }

    /// Brings batch number `batch` of an epoch and has `stream` wait for it. Returns when it lies in pinned memory; gives its
    /// slot and how many examples it has.
    pub(crate) fn bring(
        &mut self,
        stream: &CudaStream,
        (seed, epoch): (u64, u64),
        batch: usize,
    ) -> Result<(usize, usize), CudaError> {
        let (from, examples) = (batch * self.batch, self.split.len());
        let n = examples.saturating_sub(from).min(self.batch);
        let at = batch % SLOTS;
        if self.slots[at].begun {
            self.slots[at].copied.wait()?;
            self.copies.wait_for(&self.slots[at].used)?;
        }
        let order = Permutation::new(Stream::new(seed, Purpose::Shuffle, epoch), examples);
        let position = |i: usize| if self.shuffle { order.at(from + i) } else { from + i };
        let slot = &mut self.slots[at];
        let pictures = self.split.pictures().ok_or(CudaError::NotBytes)?;
        let mut end = 0;
        for i in 0..n {
            let (position, window) = (position(i), self.split.shape());
            let number = self.split.number(position);
            slot.entries.as_mut_slice()[i] = entry_of(pictures, number, end as u64, window)?;
            slot.labels.as_mut_slice()[i] = self.split.label(position);
            slot.numbers.as_mut_slice()[i] = number as u32;
            end += pictures.bytes(number);
        }
        let numbers = &slot.numbers.as_slice()[..n];
        copy(pictures, numbers, &self.checked, &mut slot.pixels.as_mut_slice()[..end])?;
        numbers.iter().for_each(|&number| self.checked[number as usize] = true);
        let row = at * self.batch;
        // SAFETY: this pinned memory is written again only after `copied` of this slot has happened.
        unsafe {
            self.pixels.write_pinned(&self.copies, at * self.slot_bytes, &slot.pixels, end)?;
            let entries = size_of::<PictureEntry>() * row;
            self.table.buffer().write_pinned(&self.copies, entries, &slot.entries, n)?;
            self.labels.write_pinned(&self.copies, 4 * row, &slot.labels, n)?;
            self.numbers.write_pinned(&self.copies, 4 * row, &slot.numbers, n)?;
        }
        self.copies.record(&slot.copied)?;
        stream.wait_for(&slot.copied)?;
        slot.begun = true;
        Ok((at, n))
    }

    /// Says that what is in the stream by now is all that uses the slot.
    pub(crate) fn release(&self, stream: &CudaStream, slot: usize) -> Result<(), CudaError> {
        stream.record(&self.slots[slot].used)
    }
}

/// Copies pictures one after the other, with several threads where they are large.
fn copy(pictures: &Pictures, numbers: &[u32], checked: &[bool], mut to: &mut [u8]) -> Result<(), DataError> {
    let some = |numbers: &[u32], mut to: &mut [u8]| {
        let mut aside = Vec::new();
        for &number in numbers {
            let number = number as usize;
            let pixels = pictures.pixels(number, !checked[number], &mut aside)?;
            let (own, rest) = std::mem::take(&mut to).split_at_mut(pixels.len());
            own.copy_from_slice(pixels);
            to = rest;
        }
        Ok(())
    };
    if to.len() < WORTH_SEVERAL {
        return some(numbers, to);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for part in numbers.chunks(numbers.len().div_ceil(COPIERS)) {
            let len = part.iter().map(|&number| pictures.bytes(number as usize)).sum();
            let (own, rest) = std::mem::take(&mut to).split_at_mut(len);
            to = rest;
            threads.push(scope.spawn(move || some(part, own)));
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), DataError>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}
