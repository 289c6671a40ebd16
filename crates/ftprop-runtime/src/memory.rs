//! Memory that may not be there: what a model makes this crate allocate is asked for, and a refusal is an error.

use crate::error::{Error, Result};

/// An empty vector with room for `len` elements.
pub(crate) fn room<T>(len: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    match elements.try_reserve_exact(len) {
        Ok(()) => Ok(elements),
        Err(_) => Err(Error::Allocation { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) }),
    }
}

/// So many elements of the same value.
pub(crate) fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>> {
    let mut elements = room(len)?;
    elements.resize(len, value);
    Ok(elements)
}

/// What an iterator of known length gives.
pub(crate) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut elements = room(items.len())?;
    elements.extend(items);
    Ok(elements)
}

/// As [`collect`], of what can fail by itself.
pub(crate) fn try_collect<T>(items: impl ExactSizeIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut elements = room(items.len())?;
    for item in items {
        elements.push(item?);
    }
    Ok(elements)
}

/// One element more.
pub(crate) fn push<T>(elements: &mut Vec<T>, element: T) -> Result<()> {
    if elements.len() == elements.capacity() && elements.try_reserve(1).is_err() {
        return Err(Error::Allocation { bytes: (2 * elements.len() * size_of::<T>()) as u64 });
    }
    elements.push(element);
    Ok(())
}

/// A copy.
pub(crate) fn copy<T: Clone>(elements: &[T]) -> Result<Vec<T>> {
    collect(elements.iter().cloned())
}
