//! Where things lie in one allocation: places are handed out first, then the memory is asked for at once, so
//! that a network that does not fit is refused before anything of it is allocated.

use crate::CudaError;
use crate::device::Device;
use crate::memory::{DeviceBuffer, out_of_memory};
use cudarc::driver::sys::CUdeviceptr;

/// A place in the arena, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region(usize);

/// Hands out places.
#[derive(Clone, Default)]
pub(crate) struct ArenaLayout {
    bytes: usize,
}

impl ArenaLayout {
    pub(crate) fn take(&mut self, bytes: usize) -> Region {
        let place = Region(self.bytes);
        self.bytes += bytes.next_multiple_of(256);
        place
    }

    pub(crate) fn floats(&mut self, count: usize) -> Region {
        self.take(count * 4)
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
    pub(crate) buffer: DeviceBuffer,
}

impl Arena {
    pub(crate) fn at(&self, place: Region) -> CUdeviceptr {
        self.buffer.at(place.0)
    }

    /// The offset of a place, for copies.
    pub(crate) fn offset(&self, place: Region) -> usize {
        place.0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_aligned_and_do_not_overlap() {
        let mut layout = ArenaLayout::default();
        let places = [layout.take(1), layout.floats(65), layout.take(0), layout.take(256)];
        assert_eq!(places, [Region(0), Region(256), Region(768), Region(768)]);
        assert_eq!(layout.bytes, 1024);
    }
}
