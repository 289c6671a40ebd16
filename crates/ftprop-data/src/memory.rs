//! Numbers in memory, whoever they belong to.

use std::fmt;

/// A slice that somebody keeps: a vector, or memory of another language that is held in place.
pub(crate) struct Memory<T>(Box<dyn AsRef<[T]> + Send + Sync>);

impl<T> Memory<T> {
    pub(crate) fn new(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Memory(Box::new(owner))
    }

    pub(crate) fn get(&self) -> &[T] {
        (*self.0).as_ref()
    }
}

impl<T> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.get().len())
    }
}
