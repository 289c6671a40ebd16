//! What this GPU has, which is what an H200 has.

/// How many multiprocessors.
pub(crate) const MULTIPROCESSORS: u32 = 132;
/// Bytes of shared memory that a block can have if it asks.
pub(crate) const SHARED_LIMIT: usize = 227 << 10;
/// The same without asking.
pub(crate) const SHARED_UNASKED: usize = 48 << 10;
/// Bytes of all memory; less than there, as it is the host's.
pub(crate) const MEMORY: usize = 16 << 30;
