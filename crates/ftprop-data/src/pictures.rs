//! Pictures of different sizes, in a prepared file or in memory, by number.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ftprop_files::Pages;

use crate::DataError;
use crate::memory::Memory;
use crate::preprocess::Shape;
use crate::sizes::{MOST_PIXELS, cover};

const WANTED: &str = "a sound file of prepared pictures";
/// Bytes of a pixel.
pub(crate) const CHANNELS: usize = 3;

/// A picture of a prepared file, or of those in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where its pixels begin.
    pub(crate) offset: u64,
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) label: u32,
    /// Of its pixels.
    pub(crate) sum: u32,
}

impl Entry {
    /// Bytes of its pixels; `None` if no picture is so large.
    pub(crate) fn checked_len(&self) -> Option<usize> {
        let pixels = (self.height as usize).checked_mul(self.width as usize)?;
        (pixels > 0 && pixels <= MOST_PIXELS).then(|| pixels * CHANNELS)
    }

    /// Bytes of its pixels, once that was checked.
    pub(crate) fn len(&self) -> usize {
        self.height as usize * self.width as usize * CHANNELS
    }
}

/// A prepared file that was opened: its table in memory, its pixels where they are.
#[derive(Debug)]
pub(crate) struct PictureFile {
    store: Store,
    pub(crate) edge: usize,
    entries: Vec<Entry>,
}

/// Where the pixels are.
#[derive(Debug)]
enum Store {
    File { path: PathBuf, pages: Pages },
    Memory(Memory<u8>),
}

impl PictureFile {
    /// Pictures in a file whose table was checked.
    pub(crate) fn in_file(path: &Path, pages: Pages, edge: usize, entries: Vec<Entry>) -> Self {
        PictureFile { store: Store::File { path: path.to_owned(), pages }, edge, entries }
    }

    /// Pictures of these heights and widths in memory, one after the other.
    pub(crate) fn in_memory(sizes: &[(usize, usize)], bytes: Memory<u8>) -> Result<Self, DataError> {
        let mut offset = 0;
        let mut entries = Vec::with_capacity(sizes.len());
        for &(height, width) in sizes {
            let too_large = || DataError::Option(format!("a picture of {height}×{width} pixels cannot be used"));
            let side = |side: usize| u32::try_from(side).map_err(|_| too_large());
            let entry = Entry { offset, height: side(height)?, width: side(width)?, label: 0, sum: 0 };
            offset += entry.checked_len().ok_or_else(too_large)? as u64;
            entries.push(entry);
        }
        if offset != bytes.get().len() as u64 || sizes.is_empty() {
            let why = format!("{} bytes are not {} pictures of {offset} bytes in all", bytes.get().len(), sizes.len());
            return Err(DataError::Option(why));
        }
        let edge = sizes.iter().map(|&(height, width)| height.min(width)).min().unwrap_or(0);
        Ok(PictureFile { store: Store::Memory(bytes), edge, entries })
    }

    pub(crate) fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The pixels of a picture, with `check` compared with their checksum.
    pub(crate) fn pixels<'a>(
        &'a self,
        number: usize,
        check: bool,
        aside: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DataError> {
        let entry = &self.entries[number];
        let (path, pages) = match &self.store {
            Store::File { path, pages } => (path, pages),
            Store::Memory(bytes) => return Ok(&bytes.get()[entry.offset as usize..][..entry.len()]),
        };
        let pixels = pages.get(entry.offset, entry.len(), aside)?;
        if check && crc32fast::hash(pixels) != entry.sum {
            let why = format!("the pixels of picture {number} (counted from 0) are damaged; make it again");
            return Err(damaged(path, &why));
        }
        Ok(pixels)
    }
}

/// Pictures of different sizes, RGB, in a prepared file or in memory, for devices that make batches themselves. Numbers are
/// those of a split's examples, see [`Split`](crate::Split).
#[derive(Clone, Debug)]
pub struct Pictures {
    pub(crate) file: Arc<PictureFile>,
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) resize: Option<usize>,
}

impl Pictures {
    /// How many there are, in the whole part that the split was taken from.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Height and width of a picture.
    pub fn size(&self, number: usize) -> (usize, usize) {
        let entry = self.file.entry(self.first + number);
        (entry.height as usize, entry.width as usize)
    }

    /// Bytes of a picture.
    pub fn bytes(&self, number: usize) -> usize {
        self.file.entry(self.first + number).len()
    }

    /// Height and width of a picture after its shorter edge was resized, if it is, as a window of this shape is cut from it;
    /// `None` where it is too long and thin for that.
    pub fn resized(&self, number: usize, window: Shape) -> Option<(usize, usize)> {
        let (height, width) = self.size(number);
        self.resize.map_or(Some((height, width)), |edge| cover(height, width, window, edge))
    }

    /// What the shorter edge is resized to before a window is cut; `None` where it is left as it is.
    pub fn resize(&self) -> Option<usize> {
        self.resize
    }

    /// The checksum of a picture's pixels, where the file has it.
    pub(crate) fn known_sum(&self, number: usize) -> Option<u32> {
        let entry = self.file.entry(self.first + number);
        matches!(self.file.store, Store::File { .. }).then_some(entry.sum)
    }

    /// The pixels of a picture, RGB; `aside` may hold them. With `check` they are compared with their checksum.
    pub fn pixels<'a>(&'a self, number: usize, check: bool, aside: &'a mut Vec<u8>) -> Result<&'a [u8], DataError> {
        self.file.pixels(self.first + number, check, aside)
    }
}

/// What is wrong with a prepared file.
pub(crate) fn damaged(path: &Path, why: &str) -> DataError {
    DataError::Format { path: path.to_owned(), wanted: WANTED, why: why.to_owned() }
}
