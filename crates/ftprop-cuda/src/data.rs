//! A data set that lives on the GPU.

use crate::CudaError;
use crate::device::Device;
use crate::memory::DeviceBuffer;
use crate::picture_table::PictureTable;
use ftprop_data::{Augment, Normalize, Split};
use ftprop_nn::Shape;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Examples as bytes on the device, with how they become batches: the same ones that a
/// [`Loader`](ftprop_data::Loader) delivers.
#[derive(Clone)]
pub struct ResidentData {
    buffers: Arc<ResidentBuffers>,
}

/// What a batch is made from.
pub(crate) struct ResidentBuffers {
    id: u64,
    pub(crate) pixels: DeviceBuffer,
    pub(crate) labels: DeviceBuffer,
    pub(crate) numbers: Option<DeviceBuffer>,
    pub(crate) tables: DeviceBuffer,
    pub(crate) examples: usize,
    pub(crate) largest_label: u32,
    pub(crate) layout: Layout,
    pub(crate) window: Shape,
    pub(crate) augment: Augment,
    pub(crate) shuffle: bool,
}

/// How the pixels lie.
pub(crate) enum Layout {
    /// Pictures of one shape, one after the other.
    Alike(Shape),
    /// Pictures of any size, or those of which parts and colours are drawn.
    Pictures(PictureTable),
}

impl ResidentData {
    /// Copies a split's pictures to the device. `None` where they are not bytes, or what is done to them is done by the
    /// host only: those are streamed. With `shuffle` the order is a new one every epoch.
    pub fn new(
        device: &Device,
        split: &Split,
        normalize: &Normalize,
        augment: Augment,
        shuffle: bool,
    ) -> Result<Option<Self>, CudaError> {
        let window = split.shape();
        let what = "the data set";
        if !can_live_there(split, &augment) {
            return Ok(None);
        }
        if normalize.mean.len() != window.channels || normalize.std.len() != window.channels {
            return Err(CudaError::Normalize { means: normalize.mean.len(), channels: window.channels });
        }
        let shape = |s: ftprop_data::Shape| Shape { height: s.height, width: s.width, channels: s.channels };
        let (pixels, layout) = match split.bytes() {
            Some((bytes, picture)) => {
                let layout = match augment.is_plain() {
                    true => Layout::Alike(shape(picture)),
                    false => {
                        let Some(table) = PictureTable::alike(device, split, picture, normalize)? else {
                            return Ok(None);
                        };
                        Layout::Pictures(table)
                    }
                };
                (DeviceBuffer::of(device, bytes, what)?, layout)
            }
            None => match PictureTable::upload(device, split, normalize)? {
                Some((pixels, table)) => (pixels, Layout::Pictures(table)),
                None => return Ok(None),
            },
        };
        let tables: Vec<f32> = normalize.tables().concat();
        Ok(Some(ResidentData {
            buffers: Arc::new(ResidentBuffers {
                id: next_id(),
                pixels,
                labels: DeviceBuffer::of(device, split.labels(), what)?,
                numbers: split.numbers().map(|n| DeviceBuffer::of(device, n, what)).transpose()?,
                tables: DeviceBuffer::of(device, &tables, what)?,
                examples: split.len(),
                largest_label: split.labels().iter().copied().max().unwrap_or(0),
                layout,
                window: shape(window),
                augment,
                shuffle,
            }),
        }))
    }

    /// Bytes of device memory that a split would take, if it can live there.
    pub fn bytes_needed(split: &Split) -> Option<usize> {
        let labels = 4 * split.labels().len() + 4 * split.len();
        match (split.bytes(), split.pictures()) {
            (Some((bytes, _)), _) => Some(bytes.len() + labels),
            (None, Some(pictures)) => {
                let bytes = (0..split.len()).map(|i| pictures.bytes(split.number(i))).sum::<usize>();
                Some(bytes + labels + size_of::<crate::abi::PictureEntry>() * pictures.len())
            }
            (None, None) => None,
        }
    }

    /// How many examples there are.
    pub fn examples(&self) -> usize {
        self.buffers.examples
    }

    /// Tells it from other data on any device.
    pub(crate) fn id(&self) -> u64 {
        self.buffers.id
    }

    pub(crate) fn buffers(&self) -> &ResidentBuffers {
        &self.buffers
    }
}

/// A number that no other data has.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether the kernels know how to make batches of it.
fn can_live_there(split: &Split, augment: &Augment) -> bool {
    match (split.bytes(), split.pictures()) {
        (Some((_, picture)), _) => augment.is_plain() || (augment.pad == 0 && picture.channels == 3),
        (None, Some(_)) => augment.pad == 0,
        (None, None) => false,
    }
}
