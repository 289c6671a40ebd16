//! Pictures that stay on the host: their bytes go through pinned memory to one of some slots on the device, several batches
//! ahead, and become a batch there.

use crate::CudaError;
use crate::abi::PictureEntry;
use crate::data::next_id;
use crate::device::Device;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::picture_table::{PictureTable, entry_of};
use crate::stream::{CudaEvent, CudaStream};
use ftprop_data::{Augment, DataError, Normalize, Pictures, Split};
use ftprop_nn::Shape;
use ftprop_tensor::random::{Permutation, Purpose, Stream};
use std::ops::Range;

/// Batches that may be on their way.
const SLOTS: usize = 4;
/// Threads that copy a batch, where it is worth several.
const COPIERS: usize = 4;
const WORTH_SEVERAL: usize = 4 << 20;

/// Places on the device that the host brings batches of pictures to.
pub(crate) struct PictureSlots {
    pub(crate) augment: Augment,
    pub(crate) window: Shape,
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

impl PictureSlots {
    /// How many there are, for the kernel.
    pub(crate) const COUNT: u32 = SLOTS as u32;

    /// For batches of pictures as large as these, of at most so many bytes. `None` where they are too large for the kernel.
    fn new(
        device: &Device,
        sizes: &[PictureEntry],
        window: ftprop_data::Shape,
        (normalize, augment): (&Normalize, Augment),
        (batch, bytes): (usize, usize),
    ) -> Result<Option<Self>, CudaError> {
        let what = "pictures on their way";
        let Some(table) = PictureTable::of_slots(device, sizes, window, normalize, SLOTS * batch)? else {
            return Ok(None);
        };
        let (slot_bytes, tables) = (bytes.next_multiple_of(256), normalize.tables().concat());
        Ok(Some(PictureSlots {
            augment,
            window: Shape { height: window.height, width: window.width, channels: window.channels },
            batch,
            slot_bytes,
            table,
            tables: DeviceBuffer::of(device, &tables, what)?,
            pixels: DeviceBuffer::new(device, SLOTS * slot_bytes, what)?,
            labels: DeviceBuffer::new(device, 4 * SLOTS * batch, what)?,
            numbers: DeviceBuffer::new(device, 4 * SLOTS * batch, what)?,
            slots: (0..SLOTS).map(|_| Slot::new(device, batch, slot_bytes)).collect::<Result<_, _>>()?,
            copies: CudaStream::new(device)?,
        }))
    }

    /// Has the host fill the slot of batch number `batch` and `stream` wait for what it brings: `fill` gives the number of
    /// examples and of bytes. Returns the slot and the examples when they lie in pinned memory.
    fn bring(
        &mut self,
        stream: &CudaStream,
        batch: usize,
        fill: impl FnOnce(&mut Slot) -> Result<(usize, usize), CudaError>,
    ) -> Result<(usize, usize), CudaError> {
        let at = batch % SLOTS;
        let slot = &mut self.slots[at];
        if slot.begun {
            slot.copied.wait()?;
            self.copies.wait_for(&slot.used)?;
        }
        let (n, bytes) = fill(slot)?;
        let row = at * self.batch;
        // SAFETY: this pinned memory is written again only after `copied` of this slot has happened.
        unsafe {
            self.pixels.write_pinned(&self.copies, at * self.slot_bytes, &slot.pixels, bytes)?;
            let entries = size_of::<PictureEntry>() * row;
            self.table.entries.write_pinned(&self.copies, entries, &slot.entries, n)?;
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

/// A split's pictures, copied to the device batch by batch, with how they become the batches that a
/// [`Loader`](ftprop_data::Loader) delivers.
pub struct StreamedPictures {
    id: u64,
    split: Split,
    shuffle: bool,
    pub(crate) slots: PictureSlots,
    /// Pictures that were compared with their checksums.
    checked: Vec<bool>,
}

impl StreamedPictures {
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
        let mut sizes = Vec::with_capacity(split.len());
        for position in 0..split.len() {
            sizes.push(entry_of(&pictures, split.number(position), 0, split.shape())?);
        }
        // No batch has more than the largest pictures together.
        let mut bytes: Vec<usize> = (0..split.len()).map(|i| pictures.bytes(split.number(i))).collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let most = bytes.iter().take(batch).sum();
        let slots = PictureSlots::new(device, &sizes, split.shape(), (normalize, augment), (batch, most))?;
        let checked = vec![false; pictures.len()];
        Ok(slots.map(|slots| StreamedPictures { id: next_id(), split: split.clone(), shuffle, slots, checked }))
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

    /// Brings the examples at these places of an epoch's order, which are of batch number `batch`, and has `stream` wait for
    /// them. Returns when they lie in pinned memory; gives their slot.
    pub(crate) fn bring(
        &mut self,
        stream: &CudaStream,
        (seed, epoch): (u64, u64),
        batch: usize,
        own: Range<usize>,
    ) -> Result<usize, CudaError> {
        let (split, checked, shuffle) = (&self.split, &mut self.checked, self.shuffle);
        let (from, n, examples) = (own.start, own.len(), split.len());
        if n > self.slots.batch || own.end > examples {
            return Err(CudaError::BatchSize { n, most: self.slots.batch });
        }
        let pictures = split.pictures().ok_or(CudaError::NotBytes)?;
        let order = Permutation::new(Stream::new(seed, Purpose::Shuffle, epoch), examples);
        let (slot, _) = self.slots.bring(stream, batch, |slot| {
            let mut end = 0;
            for i in 0..n {
                let position = if shuffle { order.at(from + i) } else { from + i };
                let number = split.number(position);
                slot.entries.as_mut_slice()[i] = entry_of(&pictures, number, end as u64, split.shape())?;
                slot.labels.as_mut_slice()[i] = split.label(position);
                slot.numbers.as_mut_slice()[i] = number as u32;
                end += pictures.bytes(number);
            }
            let numbers = &slot.numbers.as_slice()[..n];
            copy(&pictures, numbers, checked, &mut slot.pixels.as_mut_slice()[..end])?;
            numbers.iter().for_each(|&number| checked[number as usize] = true);
            Ok((n, end))
        })?;
        Ok(slot)
    }
}

/// Batches of pictures that the host has cut to the input's size, as bytes.
pub struct StreamedPixels {
    pub(crate) slots: PictureSlots,
    /// Bytes of a picture.
    size: usize,
    /// Batches brought since the span began, how many it has, and the number of its first.
    done: usize,
    planned: usize,
    first: usize,
}

impl StreamedPixels {
    /// For batches of so many pictures of a shape, which are mirrored, blanked, coloured and normalised on the device.
    pub fn new(
        device: &Device,
        window: ftprop_data::Shape,
        normalize: &Normalize,
        augment: Augment,
        batch: usize,
    ) -> Result<Self, CudaError> {
        let (height, width) = (window.height as u32, window.width as u32);
        let size = window.size();
        let entry = |i: usize| {
            let offset = (i * size) as u64;
            PictureEntry { offset, height, width, new_height: height, new_width: width }
        };
        let rest = Augment { area: None, crop: false, ..augment };
        let slots = PictureSlots::new(device, &[entry(0)], window, (normalize, rest), (batch, batch * size))?;
        let mut slots = slots.ok_or(CudaError::NotBytes)?;
        for slot in &mut slots.slots {
            slot.entries.as_mut_slice().iter_mut().enumerate().for_each(|(i, to)| *to = entry(i));
        }
        Ok(StreamedPixels { slots, size, done: 0, planned: 0, first: 0 })
    }

    /// Begins a span of steps, the first of which takes batch number `first` of its epoch.
    pub(crate) fn begin(&mut self, first: usize, steps: usize) {
        (self.done, self.planned, self.first) = (0, steps, first);
    }

    /// Brings the span's next batch and has `stream` wait for it; gives its slot.
    pub(crate) fn push(
        &mut self,
        stream: &CudaStream,
        pixels: &[u8],
        labels: &[u32],
        numbers: &[u32],
    ) -> Result<usize, CudaError> {
        if self.done >= self.planned {
            return Err(CudaError::NotAnnounced);
        }
        let n = labels.len();
        if pixels.len() != n * self.size || numbers.len() != n || n > self.slots.batch {
            return Err(CudaError::Length { what: "pictures", got: pixels.len(), expected: n * self.size });
        }
        let batch = self.first + self.done;
        self.done += 1;
        // Of a batch that several GPUs share there may be nothing here.
        if n == 0 {
            return Ok(batch % SLOTS);
        }
        let (slot, _) = self.slots.bring(stream, batch, |slot| {
            slot.labels.as_mut_slice()[..n].copy_from_slice(labels);
            slot.numbers.as_mut_slice()[..n].copy_from_slice(numbers);
            copy_bytes(pixels, &mut slot.pixels.as_mut_slice()[..pixels.len()]);
            Ok((n, pixels.len()))
        })?;
        Ok(slot)
    }
}

/// Copies bytes, with several threads where they are many.
fn copy_bytes(from: &[u8], to: &mut [u8]) {
    if from.len() < WORTH_SEVERAL {
        to.copy_from_slice(from);
        return;
    }
    let part = from.len().div_ceil(COPIERS);
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
            scope.spawn(move || to.copy_from_slice(from));
        }
    });
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
