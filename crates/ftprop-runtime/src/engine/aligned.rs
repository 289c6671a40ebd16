//! Vectors that start on a cache line, so that no vector load of a whole block touches two.

use std::ops::{Deref, DerefMut};

use crate::error::Result;
use crate::memory;

const LINE: usize = 64;

/// Zeros to begin with.
pub(super) struct Aligned<T> {
    elements: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// Elements beyond `len` that alignment may cost.
    pub(super) const EXTRA: usize = LINE / size_of::<T>();

    pub(super) fn new(len: usize) -> Result<Self> {
        let elements = memory::filled(T::default(), len + Self::EXTRA)?;
        // The heap does not move with the vector, and this one never grows.
        let start = elements.as_ptr().align_offset(LINE).min(Self::EXTRA);
        Ok(Aligned { elements, start, len })
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_line_and_has_its_length() -> Result<()> {
        for len in [0, 1, 100] {
            let mut reals = Aligned::<f32>::new(len)?;
            reals.iter_mut().for_each(|real| *real = 1.0);
            assert_eq!((reals.as_ptr() as usize % LINE, reals.len()), (0, len));
        }
        Ok(())
    }
}
