//! Aligned memory.

use std::ops::{Deref, DerefMut};

/// One cache line, so that a vector load never straddles two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A fixed length of f32, zero at first, aligned to 64 bytes; it derefs to a slice.
///
/// ```
/// let mut b = ftprop_tensor::Buffer::zeros(5);
/// b[3] = 2.0;
/// assert_eq!(&b[..], &[0.0, 0.0, 0.0, 2.0, 0.0]);
/// ```
#[derive(Clone)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// So many zeros.
    pub fn zeros(len: usize) -> Self {
        Buffer { lines: vec![Line([0.0; 16]); len.div_ceil(16)], len }
    }
}

impl From<&[f32]> for Buffer {
    fn from(values: &[f32]) -> Self {
        let mut buffer = Buffer::zeros(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` owns at least `len` initialised floats, contiguous because `Line` has no padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({})", self.len)
    }
}
