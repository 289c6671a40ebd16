//! Where values live while a model runs.

use std::cell::UnsafeCell;
use std::ops::Range;

use super::Budget;
use crate::error::Result;
use crate::memory;
use crate::model::Shape;

/// Elements past the last image, so that a kernel's last step may read over the end of a run.
const SLACK: usize = 64;

/// How a value's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The image, widened to 16 bits.
    Words,
    /// A level a byte.
    Levels,
    /// Four channels of bits a byte.
    Bits,
    /// Reals.
    Reals,
}

impl Format {
    /// Bytes of an element.
    fn size(self) -> usize {
        match self {
            Format::Words => 2,
            Format::Levels | Format::Bits => 1,
            Format::Reals => 4,
        }
    }
}

/// Where each element of a value is: rows of pixels of channels, with a border of zeros that is never written.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) format: Format,
    pub(super) shape: Shape,
    pub(super) pad: [usize; 2],
    /// Elements from a pixel, a row, an image to the next.
    pub(super) pixel: usize,
    pub(super) row: usize,
    pub(super) image: usize,
    /// Elements in all.
    pub(super) len: usize,
}

impl Layout {
    /// A layout for `images` images. Shapes and pads are below 2^20, so 64 bits hold every product but the last.
    pub(super) fn new(
        format: Format,
        shape: Shape,
        pad: [usize; 2],
        images: usize,
        budget: &mut Budget,
    ) -> Result<Self> {
        let pixel = match format {
            Format::Words | Format::Reals => shape.channels,
            Format::Levels => shape.channels.next_multiple_of(4),
            Format::Bits => shape.channels.div_ceil(4),
        };
        let wide = |numbers: [usize; 2]| numbers[0] as u128 * numbers[1] as u128;
        let row = (shape.width + 2 * pad[1]) * pixel;
        let image = wide([shape.height + 2 * pad[0], row]);
        let len = image * images as u128 + SLACK as u128;
        budget.take(len * format.size() as u128)?;
        // The budget is far below 2^64, and now so are these.
        Ok(Layout { format, shape, pad, pixel, row, image: image as usize, len: len as usize })
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> u128 {
        self.len as u128 * self.format.size() as u128
    }

    /// The first element of a pixel.
    pub(super) fn at(&self, image: usize, y: usize, x: usize) -> usize {
        image * self.image + (y + self.pad[0]) * self.row + (x + self.pad[1]) * self.pixel
    }
}

/// Elements that threads may share: many read, or each writes a part of its own.
pub(super) struct Shared<T>(Box<[UnsafeCell<T>]>);

// SAFETY: the methods' contracts forbid reading or writing what another thread writes.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Copy + Default> Shared<T> {
    pub(super) fn new(len: usize) -> Result<Self> {
        let cells = memory::collect((0..len).map(|_| UnsafeCell::new(T::default())))?;
        Ok(Shared(cells.into_boxed_slice()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first element; what may be written through it is the caller's care, as for [`Shared::part`].
    pub(super) fn pointer(&self) -> *mut T {
        self.0.as_ptr() as *mut T
    }

    /// Everything, to read.
    ///
    /// # Safety
    /// Nobody may write while the slice lives.
    pub(super) unsafe fn all(&self) -> &[T] {
        // SAFETY: an `UnsafeCell` has the layout of what it holds; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr() as *const T, self.0.len()) }
    }

    /// A part, to write.
    ///
    /// # Safety
    /// Nobody else may read or write that part while the slice lives.
    #[allow(
        clippy::mut_from_ref,
        reason = "disjoint parts are written by several threads; the caller keeps them apart"
    )]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.0[range];
        // SAFETY: as above, and the caller keeps everybody else off this range.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr() as *mut T, cells.len()) }
    }
}

/// One value's elements.
pub(super) enum Buffer {
    Words(Shared<i16>),
    Bytes(Shared<u8>),
    Reals(Shared<f32>),
}

impl Buffer {
    pub(super) fn new(layout: &Layout) -> Result<Self> {
        Ok(match layout.format {
            Format::Words => Buffer::Words(Shared::new(layout.len)?),
            Format::Levels | Format::Bits => Buffer::Bytes(Shared::new(layout.len)?),
            Format::Reals => Buffer::Reals(Shared::new(layout.len)?),
        })
    }
}
