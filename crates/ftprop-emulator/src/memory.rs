//! Memory of the GPU: the host's, every access to which is looked at.

use std::sync::RwLock;

/// Where shared memory, a thread's own and the arguments are among generic addresses; the host's are below.
pub(crate) const SHARED: u64 = 1 << 60;
pub(crate) const LOCAL: u64 = 1 << 61;
pub(crate) const PARAMETERS: u64 = 1 << 62;

/// What new memory is filled with: no number in any format, so that what nobody wrote is seen.
const UNWRITTEN: u64 = u64::MAX;

/// All of the GPU's memory.
pub(crate) struct Memory {
    /// Sorted by where they begin.
    blocks: RwLock<Vec<Block>>,
    limit: usize,
}

struct Block {
    start: u64,
    bytes: usize,
    /// None where it belongs to a program.
    words: Option<Box<[u64]>>,
}

/// The places that may be touched, as they are while a kernel runs.
pub(crate) struct Places {
    ranges: Vec<(u64, u64)>,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Memory { blocks: RwLock::default(), limit }
    }

    /// Free and total bytes.
    pub(crate) fn room(&self) -> (usize, usize) {
        let used: usize = self.lock().iter().map(|block| block.bytes).sum();
        (self.limit.saturating_sub(used), self.limit)
    }

    fn lock(&self) -> std::sync::RwLockReadGuard<'_, Vec<Block>> {
        self.blocks.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn insert(&self, block: Block) {
        let mut blocks = self.blocks.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = blocks.partition_point(|other| other.start < block.start);
        blocks.insert(at, block);
    }

    /// New memory; nothing where there is not so much.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<u64> {
        if bytes == 0 || bytes > self.room().0 {
            return None;
        }
        // Addresses of allocations are multiples of 256, as the driver's are.
        let words = vec![UNWRITTEN; bytes.div_ceil(8) + 32].into_boxed_slice();
        let start = (words.as_ptr() as u64).next_multiple_of(256);
        self.insert(Block { start, bytes, words: Some(words) });
        Some(start)
    }

    /// Memory that a program brings.
    pub(crate) fn add(&self, start: u64, bytes: usize) {
        self.insert(Block { start, bytes, words: None });
    }

    /// Gives memory back; false where none begins there.
    pub(crate) fn free(&self, start: u64) -> bool {
        let mut blocks = self.blocks.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = blocks.iter().position(|block| block.start == start && block.words.is_some());
        at.map(|at| blocks.remove(at)).is_some()
    }

    pub(crate) fn places(&self) -> Places {
        Places { ranges: self.lock().iter().map(|block| (block.start, block.start + block.bytes as u64)).collect() }
    }
}

impl Places {
    /// Whether all of these bytes may be touched.
    pub(crate) fn hold(&self, first: u64, bytes: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= first);
        after > 0 && first.checked_add(bytes).is_some_and(|end| end <= self.ranges[after - 1].1)
    }

    /// In words, where an address that may not be touched is.
    pub(crate) fn describe(&self, address: u64) -> String {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        match after.checked_sub(1).map(|at| self.ranges[at]) {
            Some((start, end)) if address >= end => {
                format!("{} bytes past the end of {} bytes of memory", address - end, end - start)
            }
            Some((start, end)) => format!("at {} of {} bytes of memory", address - start, end - start),
            None => format!("at {address:#x}, before all memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_allocated_may_be_touched() {
        let memory = Memory::new(1 << 20);
        let (a, b) = (memory.allocate(100).unwrap(), memory.allocate(8).unwrap());
        let places = memory.places();
        assert!(places.hold(a, 100) && places.hold(a + 96, 4) && places.hold(b, 8));
        assert!(!places.hold(a + 97, 4) && !places.hold(b + 8, 1) && !places.hold(0, 4) && !places.hold(u64::MAX, 4));
        assert!(places.describe(a + 100).contains("0 bytes past the end of 100"), "{}", places.describe(a + 100));
        assert!(memory.free(a) && !memory.free(a) && !memory.places().hold(a, 1));
        assert!(memory.allocate(1 << 20).is_none());
        // SAFETY: eight bytes were allocated there.
        assert!(unsafe { *(b as *const f64) }.is_nan());
    }
}
