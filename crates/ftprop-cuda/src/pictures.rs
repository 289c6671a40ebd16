//! Batches of pictures of different sizes: random parts, windows, sizes and colours, all by one kernel.

use crate::CudaError;
use crate::abi::{DevicePtr, PictureEntry};
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::data::ResidentBuffers;
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::memory::DeviceBuffer;
use crate::module::Module;
use crate::precision::Precision;
use crate::stream::CudaStream;
use crate::streamed::PictureSlots;
use ftprop_data::{Augment, Normalize, Split};
use ftprop_nn::Shape;

const FILE: KernelFile = KernelFile {
    name: "pictures.cu",
    text: concat!(include_str!("../kernels/pictures.cuh"), include_str!("../kernels/pictures.cu")),
};

/// How the arithmetic is rounded on a GPU: never two operations as one.
const ROUNDING: &str = "#define DEVICE __device__ __forceinline__\n\
    #define ROUND_FADD __fadd_rn\n#define ROUND_FMUL __fmul_rn\n\
    #define ROUND_DADD __dadd_rn\n#define ROUND_DMUL __dmul_rn\n";

/// Rows of a window that a block makes.
const BAND: usize = 16;
/// Shared memory that every GPU gives a block.
const MOST_SHARED: usize = 48 << 10;
/// Bytes that are copied to the device at once.
const PIECE: usize = 64 << 20;

pub(crate) fn source(precision: Precision) -> Source {
    Source::new(FILE, precision).functions(ROUNDING)
}

kernels! {
    /// A batch of pictures.
    GatherPicturesArgs = "gather_pictures" in FILE {
        pixels: DevicePtr,
        entries: DevicePtr,
        all_labels: DevicePtr,
        numbers: DevicePtr,
        tables: DevicePtr,
        normalize: DevicePtr,
        images: DevicePtr,
        labels: DevicePtr,
        step: DevicePtr,
        examples: u32,
        batch: u32,
        slots: u32,
        slot_bytes: u64,
        stored: i32,
        window_h: i32,
        window_w: i32,
        band: i32,
        taps: i32,
        shuffle: i32,
        crop: i32,
        flip: i32,
        alternate: i32,
        cutout: i32,
        random_part: i32,
        least: f64,
        most: f64,
        jitter: i32,
        brightness: f64,
        contrast: f64,
        saturation: f64,
    }
}

/// Where pictures lie, by number, and what their batches need beside them.
pub(crate) struct PictureTable {
    entries: DeviceBuffer,
    /// `full`, means, deviations.
    normalize: DeviceBuffer,
    /// The most pixels along an axis that a pixel of the window is made of.
    taps: usize,
}

impl PictureTable {
    /// Of pictures of one shape, one after the other. `None` where they are too large for the kernel.
    pub(crate) fn alike(
        device: &Device,
        split: &Split,
        picture: ftprop_data::Shape,
        normalize: &Normalize,
    ) -> Result<Option<Self>, CudaError> {
        let (height, width) = (picture.height as u32, picture.width as u32);
        let entry = |number: usize| {
            let offset = (number * picture.size()) as u64;
            PictureEntry { offset, height, width, new_height: height, new_width: width }
        };
        let entries: Vec<_> = (0..split.labels().len()).map(entry).collect();
        PictureTable::new(device, &entries, split.shape(), normalize)
    }

    /// Copies a split's pictures to the device, and where they lie. `None` where they are too large for the kernel.
    pub(crate) fn upload(
        device: &Device,
        split: &Split,
        normalize: &Normalize,
    ) -> Result<Option<(DeviceBuffer, Self)>, CudaError> {
        let Some(pictures) = split.pictures() else { return Ok(None) };
        let mut entries = Vec::with_capacity(pictures.len());
        for number in 0..pictures.len() {
            entries.push(entry_of(&pictures, number, 0, split.shape())?);
        }
        // Only the split's own pictures take room.
        let mut end = 0;
        for position in 0..split.len() {
            let number = split.number(position);
            entries[number].offset = end;
            end += pictures.bytes(number) as u64;
        }
        let Some(table) = PictureTable::new(device, &entries, split.shape(), normalize)? else { return Ok(None) };
        let pixels = DeviceBuffer::new(device, end as usize, "the data set")?;
        let (mut piece, mut copied, mut aside) = (Vec::with_capacity(PIECE), 0, Vec::new());
        for position in 0..split.len() {
            let bytes = pictures.pixels(split.number(position), true, &mut aside)?;
            if piece.len() + bytes.len() > PIECE {
                pixels.copy_in(copied, &piece)?;
                copied += piece.len();
                piece.clear();
            }
            piece.extend_from_slice(bytes);
        }
        pixels.copy_in(copied, &piece)?;
        Ok(Some((pixels, table)))
    }

    /// Room for so many entries that the host brings, of pictures as large as these. `None` where they are too large for the
    /// kernel.
    pub(crate) fn of_slots(
        device: &Device,
        sizes: &[PictureEntry],
        window: ftprop_data::Shape,
        normalize: &Normalize,
        count: usize,
    ) -> Result<Option<Self>, CudaError> {
        let Some(table) = PictureTable::new(device, &sizes[..1], window, normalize)? else { return Ok(None) };
        let taps = most_taps(sizes, window);
        let entries = DeviceBuffer::new(device, size_of::<PictureEntry>() * count, "pictures on their way")?;
        let fits = shared_bytes(window.width, taps) <= MOST_SHARED;
        Ok(fits.then_some(PictureTable { entries, taps, ..table }))
    }

    /// The entries, to be written.
    pub(crate) fn buffer(&self) -> &DeviceBuffer {
        &self.entries
    }

    fn new(
        device: &Device,
        entries: &[PictureEntry],
        window: ftprop_data::Shape,
        normalize: &Normalize,
    ) -> Result<Option<Self>, CudaError> {
        let taps = most_taps(entries, window);
        if shared_bytes(window.width, taps) > MOST_SHARED {
            return Ok(None);
        }
        let what = "the data set";
        let numbers: Vec<f32> = [normalize.full].iter().chain(&normalize.mean).chain(&normalize.std).copied().collect();
        Ok(Some(PictureTable {
            entries: DeviceBuffer::of(device, entries, what)?,
            normalize: DeviceBuffer::of(device, &numbers, what)?,
            taps,
        }))
    }
}

/// A picture as the kernel knows it.
pub(crate) fn entry_of(
    pictures: &ftprop_data::Pictures,
    number: usize,
    offset: u64,
    window: ftprop_data::Shape,
) -> Result<PictureEntry, CudaError> {
    let (height, width) = pictures.size(number);
    let (new_height, new_width) = pictures
        .resized(number, window)
        .ok_or_else(|| ftprop_data::DataError::Option(format!("picture {number} is too long and thin")))?;
    let [height, width, new_height, new_width] = [height, width, new_height, new_width].map(|side| side as u32);
    Ok(PictureEntry { offset, height, width, new_height, new_width })
}

/// The most pixels along an axis that a pixel of the window is made of, whatever part of a picture is shown.
fn most_taps(entries: &[PictureEntry], window: ftprop_data::Shape) -> usize {
    let taps = |from: u32, to: u32| (2.0 * (f64::from(from) / f64::from(to.max(1))).max(1.0)).ceil() as usize;
    let of_entry = |entry: &PictureEntry| {
        let resized = taps(entry.height, entry.new_height).max(taps(entry.width, entry.new_width));
        let part = taps(entry.height, window.height as u32).max(taps(entry.width, window.width as u32));
        resized.max(part)
    };
    entries.iter().map(of_entry).max().unwrap_or(2)
}

/// Weights and first places of every column and of a band's rows.
fn shared_bytes(width: usize, taps: usize) -> usize {
    (width + BAND) * (taps + 1) * 4
}

/// The kernel.
pub(crate) struct PictureGather {
    kernel: Kernel<GatherPicturesArgs>,
}

impl PictureGather {
    pub(crate) fn new(module: &Module) -> Result<Self, CudaError> {
        Ok(PictureGather { kernel: Kernel::find(module)? })
    }

    /// Makes the batch of n examples that the step names from pictures that live on the device, where full batches have
    /// `batch`.
    pub(crate) fn gather_resident(
        &self,
        stream: &CudaStream,
        step: DevicePtr,
        d: &ResidentBuffers,
        table: &PictureTable,
        (images, labels, stored): (DevicePtr, DevicePtr, usize),
        (n, batch): (usize, usize),
    ) -> Result<(), CudaError> {
        let args = GatherPicturesArgs {
            pixels: d.pixels.start(),
            entries: table.entries.start(),
            all_labels: d.labels.start(),
            numbers: d.numbers.as_ref().map_or(DevicePtr::NULL, |numbers| numbers.start()),
            tables: d.tables.start(),
            normalize: table.normalize.start(),
            images,
            labels,
            step,
            examples: d.examples as u32,
            batch: batch as u32,
            stored: stored as i32,
            taps: table.taps as i32,
            shuffle: i32::from(d.shuffle),
            ..shown(d.window, &d.augment)
        };
        self.launch(stream, &args, n)
    }

    /// Makes the batch of n examples that the host brought into the step's slot.
    pub(crate) fn gather_streamed(
        &self,
        stream: &CudaStream,
        step: DevicePtr,
        d: &PictureSlots,
        (images, labels, stored): (DevicePtr, DevicePtr, usize),
        (n, batch): (usize, usize),
    ) -> Result<(), CudaError> {
        let args = GatherPicturesArgs {
            pixels: d.pixels.start(),
            entries: d.table.entries.start(),
            all_labels: d.labels.start(),
            numbers: d.numbers.start(),
            tables: d.tables.start(),
            normalize: d.table.normalize.start(),
            images,
            labels,
            step,
            examples: n as u32,
            batch: batch as u32,
            slots: PictureSlots::COUNT,
            slot_bytes: d.slot_bytes as u64,
            stored: stored as i32,
            taps: d.table.taps as i32,
            ..shown(d.window, &d.augment)
        };
        self.launch(stream, &args, n)
    }

    fn launch(&self, stream: &CudaStream, args: &GatherPicturesArgs, n: usize) -> Result<(), CudaError> {
        let (height, width) = (args.window_h as usize, args.window_w as usize);
        let config = LaunchConfig {
            grid: (n as u32, height.div_ceil(BAND) as u32, 1),
            threads: 256,
            shared: shared_bytes(width, args.taps as usize) as u32,
        };
        // SAFETY: the entries lie in the pixels, every window in its picture, and the input has room for n of them;
        // the weights that a block keeps have the shared memory that was counted for them.
        unsafe { self.kernel.launch(stream, config, args) }
    }
}

/// What is shown of pictures; where they are is left open.
fn shown(window: Shape, augment: &Augment) -> GatherPicturesArgs {
    let nothing = DevicePtr::NULL;
    let [least, most] = augment.area.unwrap_or_default().map(f64::from);
    let [brightness, contrast, saturation] =
        [augment.jitter.brightness, augment.jitter.contrast, augment.jitter.saturation].map(f64::from);
    GatherPicturesArgs {
        pixels: nothing,
        entries: nothing,
        all_labels: nothing,
        numbers: nothing,
        tables: nothing,
        normalize: nothing,
        images: nothing,
        labels: nothing,
        step: nothing,
        examples: 0,
        batch: 0,
        slots: 0,
        slot_bytes: 0,
        stored: 0,
        window_h: window.height as i32,
        window_w: window.width as i32,
        band: BAND as i32,
        taps: 0,
        shuffle: 0,
        crop: i32::from(augment.crop),
        flip: i32::from(augment.flip),
        alternate: i32::from(augment.alternate),
        cutout: augment.cutout as i32,
        random_part: i32::from(augment.area.is_some()),
        least,
        most,
        jitter: i32::from(!augment.jitter.is_none()),
        brightness,
        contrast,
        saturation,
    }
}

#[cfg(test)]
mod tests;
