//! A data set that lives on the GPU.

use crate::CudaError;
use crate::device::Device;
use crate::memory::DeviceBuffer;
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
    pub(crate) picture: Shape,
    pub(crate) window: Shape,
    pub(crate) augment: Augment,
    pub(crate) shuffle: bool,
}

impl ResidentData {
    /// Copies a split's pictures to the device. `None` where they are not bytes in memory: those are streamed.
    /// With `shuffle` the order is a new one every epoch.
    pub fn new(
        device: &Device,
        split: &Split,
        normalize: &Normalize,
        augment: Augment,
        shuffle: bool,
    ) -> Result<Option<Self>, CudaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some((bytes, picture)) = split.bytes() else { return Ok(None) };
        let window = split.shape();
        if normalize.mean.len() != window.channels || normalize.std.len() != window.channels {
            return Err(CudaError::Normalize { means: normalize.mean.len(), channels: window.channels });
        }
        let shape = |s: ftprop_data::Shape| Shape { height: s.height, width: s.width, channels: s.channels };
        let what = "the data set";
        let tables: Vec<f32> = normalize.tables().concat();
        Ok(Some(ResidentData {
            buffers: Arc::new(ResidentBuffers {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                pixels: DeviceBuffer::of(device, bytes, what)?,
                labels: DeviceBuffer::of(device, split.labels(), what)?,
                numbers: split.numbers().map(|n| DeviceBuffer::of(device, n, what)).transpose()?,
                tables: DeviceBuffer::of(device, &tables, what)?,
                examples: split.len(),
                largest_label: split.labels().iter().copied().max().unwrap_or(0),
                picture: shape(picture),
                window: shape(window),
                augment,
                shuffle,
            }),
        }))
    }

    /// Bytes of device memory that a split would take, if it can live there.
    pub fn bytes_needed(split: &Split) -> Option<usize> {
        split.bytes().map(|(bytes, _)| bytes.len() + 4 * split.labels().len() + 4 * split.len())
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
