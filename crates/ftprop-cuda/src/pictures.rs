//! Batches of pictures of different sizes: random parts, windows, sizes and colours, all by one kernel.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::data::ResidentBuffers;
use crate::kernel::{Kernel, LaunchConfig};
use crate::module::Module;
use crate::picture_table::{BAND, PictureTable, shared_bytes};
use crate::precision::Precision;
use crate::stream::CudaStream;
use crate::streamed::PictureSlots;
use ftprop_data::Augment;
use ftprop_nn::Shape;

const FILE: KernelFile = KernelFile { name: "pictures.cu", text: include_str!("../kernels/pictures.cu") };

/// How the arithmetic is rounded on a GPU: never two operations as one.
const ROUNDING: &str = "#define DEVICE __device__ __forceinline__\n\
    #define ROUND_FADD __fadd_rn\n#define ROUND_FMUL __fmul_rn\n\
    #define ROUND_DADD __dadd_rn\n#define ROUND_DMUL __dmul_rn\n";

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
        ahead: u32,
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

/// The kernel.
pub(crate) struct PictureGather {
    kernel: Kernel<GatherPicturesArgs>,
}

impl PictureGather {
    pub(crate) fn new(module: &Module) -> Result<Self, CudaError> {
        Ok(PictureGather { kernel: Kernel::find(module)? })
    }

    /// Makes the batch of n examples that the step names, or one so many batches ahead of it, from pictures that live on the
    /// device, where full batches have `batch`.
    pub(crate) fn gather_resident(
        &self,
        stream: &CudaStream,
        (step, ahead): (DevicePtr, u32),
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
            ahead,
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
        ahead: 0,
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
