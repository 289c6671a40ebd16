//! How a batch gets to where a network reads it: from data on the device, or from the host.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::basic;
use crate::data::{Layout, ResidentData};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::pictures::{self, PictureGather};
use crate::precision::Precision;
use crate::staging::StagingBuffers;
use crate::stream::CudaStream;
use crate::streamed::PictureSlots;
use ftprop_nn::Shape;
use std::cell::Cell;

kernels! {
    /// A batch of a data set on the device.
    GatherBatchArgs = "gather_batch" in basic::FILE {
        pixels: DevicePtr,
        all_labels: DevicePtr,
        numbers: DevicePtr,
        tables: DevicePtr,
        images: DevicePtr,
        labels: DevicePtr,
        step: DevicePtr,
        ahead: u32,
        examples: u32,
        batch: u32,
        height: i32,
        width: i32,
        channels: i32,
        stored: i32,
        window_h: i32,
        window_w: i32,
        pad: i32,
        shuffle: i32,
        reflect: i32,
        crop: i32,
        flip: i32,
        alternate: i32,
        cutout: i32,
    }

    /// A batch that the host brought.
    LoadStagedArgs = "load_staged" in basic::FILE {
        staged: DevicePtr,
        staged_labels: DevicePtr,
        images: DevicePtr,
        labels: DevicePtr,
        step: DevicePtr,
        slot_len: u32,
        slot_batch: u32,
        len: u32,
        n: u32,
        channels: u32,
        stored: u32,
    }

    /// Mixes the examples of a batch.
    MixBatchArgs = "mix_batch" in basic::FILE {
        images: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        row_width: u32,
        n: u32,
        height: i32,
        width: i32,
        stored: i32,
    }

    /// Moves an evaluation on to its next batch.
    NextBatchArgs = "next_batch" in basic::FILE {
        step: DevicePtr,
    }
}

/// The network's input, its labels, and the kernels that fill them.
pub(crate) struct BatchLoader {
    gather: Kernel<GatherBatchArgs>,
    pictures: PictureGather,
    load_staged: Kernel<LoadStagedArgs>,
    mix: Kernel<MixBatchArgs>,
    next_batch: Kernel<NextBatchArgs>,
    /// The most examples in a batch.
    batch: usize,
    input: Shape,
    /// Channels that a pixel of the input is stored with.
    stored: usize,
    places: Vec<BatchPlace>,
    /// The place that passes read from.
    current: Cell<usize>,
}

/// Where a batch may be: with two such places one is filled while a step learns from the other.
struct BatchPlace {
    images: Region,
    labels: Region,
}

/// Which batch of resident data is made, and where: the one that the step names, where passes read it, or the next one, at the
/// other place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    Next,
}

impl BatchLoader {
    /// For a network whose input of that shape, with pixels of `stored` channels, is at one of `images`, at first the first.
    pub(crate) fn new(
        device: &Device,
        (input, stored, images): (Shape, usize, &[Region]),
        batch: usize,
        precision: Precision,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let module = device.module(basic::source(precision))?;
        Ok(BatchLoader {
            gather: Kernel::find(&module)?,
            pictures: PictureGather::new(&device.module(pictures::source(precision))?)?,
            load_staged: Kernel::find(&module)?,
            mix: Kernel::find(&module)?,
            next_batch: Kernel::find(&module)?,
            batch,
            input,
            stored,
            places: images.iter().map(|&images| BatchPlace { images, labels: layout.take(4 * batch) }).collect(),
            current: Cell::new(0),
        })
    }

    /// Which of the places passes read from.
    pub(crate) fn current(&self) -> usize {
        self.current.get()
    }

    /// Has passes that are launched from now on read from another place.
    pub(crate) fn turn_to(&self, place: usize) {
        assert!(place < self.places.len(), "a batch has no such place");
        self.current.set(place);
    }

    fn place(&self) -> &BatchPlace {
        &self.places[self.current.get()]
    }

    /// Where the examples of the batch are, and with how many channels each pixel of theirs is stored.
    pub(crate) fn images(&self, arena: &Arena) -> (DevicePtr, usize) {
        (arena.at(self.place().images), self.stored)
    }

    /// The shape of an example.
    pub(crate) fn example(&self) -> Shape {
        self.input
    }

    /// Where the labels of the batch are.
    pub(crate) fn labels(&self, arena: &Arena) -> DevicePtr {
        arena.at(self.place().labels)
    }

    /// Makes the batch that the step names from resident data, or the n examples of it that it names, or of the batch after
    /// it. A full batch has `full` examples.
    pub(crate) fn gather(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        step: DevicePtr,
        data: &ResidentData,
        (n, full, turn): (usize, usize, Turn),
    ) -> Result<(), CudaError> {
        let (d, ahead) = (data.buffers(), u32::from(turn == Turn::Next));
        let place = &self.places[(self.current.get() + ahead as usize) % self.places.len()];
        let (images, labels) = (arena.at(place.images), arena.at(place.labels));
        let picture = match &d.layout {
            Layout::Alike(picture) => *picture,
            Layout::Pictures(pictures) => {
                let to = (images, labels, self.stored);
                return self.pictures.gather_resident(stream, (step, ahead), d, pictures, to, (n, full));
            }
        };
        let args = GatherBatchArgs {
            pixels: d.pixels.start(),
            all_labels: d.labels.start(),
            numbers: d.numbers.as_ref().map_or(DevicePtr::NULL, |numbers| numbers.start()),
            tables: d.tables.start(),
            images,
            labels,
            step,
            ahead,
            examples: d.examples as u32,
            batch: full as u32,
            height: picture.height as i32,
            width: picture.width as i32,
            channels: picture.channels as i32,
            stored: self.stored as i32,
            window_h: d.window.height as i32,
            window_w: d.window.width as i32,
            pad: d.augment.pad as i32,
            shuffle: i32::from(d.shuffle),
            crop: i32::from(d.augment.crop),
            reflect: i32::from(d.augment.reflect),
            flip: i32::from(d.augment.flip),
            alternate: i32::from(d.augment.alternate),
            cutout: d.augment.cutout as i32,
        };
        let per_example = (d.window.height * d.window.width).div_ceil(1024).clamp(1, 64) as u32;
        let config = LaunchConfig { grid: (n as u32, per_example, 1), threads: 256, shared: 0 };
        // SAFETY: the data's buffers have all its examples, of the network's shape; the input has room for n of them.
        unsafe { self.gather.launch(stream, config, &args) }
    }

    /// Makes the batch of n examples that the host brought into the step's slot.
    pub(crate) fn gather_streamed(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        step: DevicePtr,
        data: &PictureSlots,
        n: usize,
    ) -> Result<(), CudaError> {
        let to = (arena.at(self.place().images), arena.at(self.place().labels), self.stored);
        self.pictures.gather_streamed(stream, step, data, to, (n, self.batch))
    }

    /// Waits, and gives the batch of n examples that is in place.
    pub(crate) fn read(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        n: usize,
        precision: Precision,
    ) -> Result<Vec<f32>, CudaError> {
        let len = n * self.input.height * self.input.width * self.stored;
        let values: Vec<f32> = match precision {
            Precision::Bf16 => {
                let halves: Vec<u16> = arena.read(stream, self.place().images, len)?;
                halves.into_iter().map(|h| f32::from_bits(u32::from(h) << 16)).collect()
            }
            _ => arena.read(stream, self.place().images, len)?,
        };
        Ok(values.chunks_exact(self.stored).flat_map(|pixel| &pixel[..self.input.channels]).copied().collect())
    }

    /// Takes the batch of n examples that the host put into the step's slot.
    pub(crate) fn load_staged(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        step: DevicePtr,
        staging: &StagingBuffers,
        n: usize,
    ) -> Result<(), CudaError> {
        let len = self.input.len();
        let args = LoadStagedArgs {
            staged: staging.images(),
            staged_labels: staging.labels(),
            images: arena.at(self.place().images),
            labels: arena.at(self.place().labels),
            step,
            slot_len: (self.batch * len) as u32,
            slot_batch: self.batch as u32,
            len: (n * len) as u32,
            n: n as u32,
            channels: self.input.channels as u32,
            stored: self.stored as u32,
        };
        // SAFETY: both slots and the input have room for a full batch.
        unsafe { self.load_staged.launch(stream, LaunchConfig::for_items(n * len), &args) }
    }

    /// Mixes the examples of the batch of n that is in place. `scalars` is where the mixing's stand in the first row, and
    /// a row has `row_width`.
    pub(crate) fn mix(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        (step, scalars, row_width): (DevicePtr, DevicePtr, usize),
        n: usize,
    ) -> Result<(), CudaError> {
        if n < 2 {
            return Ok(());
        }
        let args = MixBatchArgs {
            images: arena.at(self.place().images),
            step,
            scalars,
            row_width: row_width as u32,
            n: n as u32,
            height: self.input.height as i32,
            width: self.input.width as i32,
            stored: self.stored as i32,
        };
        let per_example = self.input.len().div_ceil(4096).clamp(1, 64) as u32;
        // In an odd number of examples the one in the middle has itself for a partner, and stays.
        let config = LaunchConfig { grid: (n as u32 / 2, per_example, 1), threads: 256, shared: 0 };
        // SAFETY: the input has room for a full batch, and every row of scalars has the mixing's six.
        unsafe { self.mix.launch(stream, config, &args) }
    }

    /// Moves an evaluation on to its next batch.
    pub(crate) fn next_batch(&self, stream: &CudaStream, step: DevicePtr) -> Result<(), CudaError> {
        let one = LaunchConfig { grid: (1, 1, 1), threads: 1, shared: 0 };
        // SAFETY: there is one step.
        unsafe { self.next_batch.launch(stream, one, &NextBatchArgs { step }) }
    }
}
