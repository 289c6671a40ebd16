//! Where pictures of different sizes lie on the device, and whether the kernel that shows them has room for their weights.

use crate::CudaError;
use crate::abi::PictureEntry;
use crate::device::Device;
use crate::memory::DeviceBuffer;
use ftprop_data::{Normalize, Split};

/// Rows of a window that a block makes.
pub(crate) const BAND: usize = 16;
/// Shared memory that every GPU gives a block.
const MOST_SHARED: usize = 48 << 10;
/// Bytes that are copied to the device at once.
const PIECE: usize = 64 << 20;

/// Where pictures lie, by number, and what their batches need beside them.
pub(crate) struct PictureTable {
    pub(crate) entries: DeviceBuffer,
    /// `full`, means, deviations.
    pub(crate) normalize: DeviceBuffer,
    /// The most pixels along an axis that a pixel of the window is made of.
    pub(crate) taps: usize,
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
pub(crate) fn shared_bytes(width: usize, taps: usize) -> usize {
    (width + BAND) * (taps + 1) * 4
}
