//! numpy's arrays as slices. The package has checked them with words for people; what is checked here keeps it sound.

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An array that is held in place for as long as something looks at it.
///
/// Whoever hands it over must not write to it meanwhile: the docs say so, as they do of every library that takes arrays
/// without copying. What is read is bytes and floats, of which every pattern is a value.
pub(crate) struct Held<T: Element> {
    _array: Py<PyArrayDyn<T>>,
    start: *const T,
    len: usize,
}

// SAFETY: only shared slices are made of it, of plain numbers; a reference to a Python object may be dropped anywhere.
unsafe impl<T: Element + Sync> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Element + Sync> Sync for Held<T> {}

impl<T: Element> AsRef<[T]> for Held<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: `hold` checked that so many values lie there one after another, and the array that owns them, which
        // numpy does not move or shrink while it is referred to, is kept.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Numbers that are bytes or floats.
pub(crate) enum Numbers {
    Bytes(Held<u8>),
    Floats(Held<f32>),
}

impl Numbers {
    /// An array of bytes or of 32-bit floats that lies in one piece.
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = array.cast::<PyArrayDyn<u8>>() {
            return Ok(Numbers::Bytes(hold(bytes)?));
        }
        match array.cast::<PyArrayDyn<f32>>() {
            Ok(floats) => Ok(Numbers::Floats(hold(floats)?)),
            Err(_) => Err(PyValueError::new_err("expected an array of uint8 or float32")),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Numbers::Bytes(bytes) => bytes.as_ref().len(),
            Numbers::Floats(floats) => floats.as_ref().len(),
        }
    }
}

/// Holds an array that lies in one piece.
pub(crate) fn hold<T: Element>(array: &Bound<'_, PyArrayDyn<T>>) -> PyResult<Held<T>> {
    check_lies_right(array)?;
    Ok(Held { start: array.data().cast_const(), len: array.len(), _array: array.clone().unbind() })
}

fn check_lies_right<T: Element>(array: &Bound<'_, PyArrayDyn<T>>) -> PyResult<()> {
    if !array.is_c_contiguous() || !array.data().is_aligned() {
        return Err(PyValueError::new_err("expected a C-contiguous array; pass numpy.ascontiguousarray(array)"));
    }
    Ok(())
}

/// Has `f` fill an array that lies in one piece and may be written to.
pub(crate) fn fill<T: Element, R>(
    array: &Bound<'_, PyArrayDyn<T>>,
    f: impl FnOnce(&mut [T]) -> PyResult<R>,
) -> PyResult<R> {
    check_lies_right(array)?;
    // Refuses an array that is read-only or that another call is filling.
    let mut writable = array.try_readwrite().map_err(|_| {
        PyValueError::new_err("expected an array that can be written to, and that no other call writes to now")
    })?;
    f(writable.as_slice_mut().map_err(|_| PyValueError::new_err("expected a C-contiguous array"))?)
}
