//! Regions of one allocation: they are handed out first, then the memory is asked for at once, so that a network that
//! does not fit is refused before anything of it is allocated.

use crate::CudaError;
use crate::abi::{DevicePtr, Pod};
use crate::device::Device;
use crate::memory::{DeviceBuffer, out_of_memory};
use crate::stream::CudaStream;

/// A region of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    offset: usize,
    bytes: usize,
}

/// Hands out regions.
#[derive(Clone, Default)]
pub(crate) struct ArenaLayout {
    bytes: usize,
}

impl ArenaLayout {
    pub(crate) fn take(&mut self, bytes: usize) -> Region {
        let region = Region { offset: self.bytes, bytes };
        self.bytes += bytes.next_multiple_of(256);
        region
    }

    pub(crate) fn floats(&mut self, count: usize) -> Region {
        self.take(count * 4)
    }

    /// What was handed out so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Another one of the same size.
    pub(crate) fn take_like(&mut self, region: Region) -> Region {
        self.take(region.bytes)
    }

    pub(crate) fn build(self, device: &Device, what: &str) -> Result<Arena, CudaError> {
        let (free, _) = device.memory()?;
        if self.bytes > free {
            return Err(out_of_memory(device, self.bytes, what));
        }
        Ok(Arena { bytes: self.bytes, buffer: DeviceBuffer::new(device, self.bytes, what)? })
    }
}

/// The allocation.
pub(crate) struct Arena {
    bytes: usize,
    buffer: DeviceBuffer,
}

impl Arena {
    /// The address of a region.
    pub(crate) fn at(&self, region: Region) -> DevicePtr {
        self.buffer.at(region.offset)
    }

    /// The address of a byte of a region.
    pub(crate) fn inside(&self, region: Region, byte: usize) -> DevicePtr {
        assert!(byte <= region.bytes, "an address past the end of a region");
        self.buffer.at(region.offset + byte)
    }

    /// Copies values to the start of a region, in order with the stream's work.
    pub(crate) fn write<T: Pod>(&self, stream: &CudaStream, region: Region, values: &[T]) -> Result<(), CudaError> {
        assert!(size_of_val(values) <= region.bytes, "a copy past the end of a region");
        self.buffer.write(stream, region.offset, values)
    }

    /// Waits for the stream's work and copies values from the start of a region.
    pub(crate) fn read<T: Pod>(&self, stream: &CudaStream, region: Region, len: usize) -> Result<Vec<T>, CudaError> {
        assert!(len * size_of::<T>() <= region.bytes, "a copy past the end of a region");
        self.buffer.read(stream, region.offset, len)
    }

    /// Fills a region with copies of a pattern, in order with the stream's work, and waits for the first.
    pub(crate) fn fill<T: Pod>(&self, stream: &CudaStream, region: Region, pattern: &[T]) -> Result<(), CudaError> {
        let first = (region.bytes / size_of::<T>()).min(pattern.len());
        self.write(stream, region, &pattern[..first])?;
        let mut done = first * size_of::<T>();
        while done > 0 && done < region.bytes {
            let bytes = done.min(region.bytes - done);
            self.buffer.copy_within(stream, region.offset, region.offset + done, bytes)?;
            done += bytes;
        }
        Ok(())
    }

    /// Copies the first bytes of a region to another one, in order with the stream's work.
    pub(crate) fn copy(&self, stream: &CudaStream, from: Region, to: Region, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= from.bytes && bytes <= to.bytes, "a copy past the end of a region");
        self.buffer.copy_within(stream, from.offset, to.offset, bytes)
    }

    /// Clears a region, in order with the stream's work.
    pub(crate) fn clear(&self, stream: &CudaStream, region: Region) -> Result<(), CudaError> {
        self.buffer.clear(stream, region.offset, region.bytes)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_and_do_not_overlap() {
        let mut layout = ArenaLayout::default();
        let regions = [layout.take(1), layout.floats(65), layout.take(0), layout.take(256)];
        assert_eq!(regions.map(|r| (r.offset, r.bytes)), [(0, 1), (256, 260), (768, 0), (768, 256)]);
        assert_eq!(layout.bytes, 1024);
    }
}
