//! What can go wrong when a model is packed, read or run.

/// Everything this crate refuses, each with where and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first bytes are not those of a packed model.
    #[error("not a packed model: the file does not start with `FTPACKED`; export one with `ftprop export`")]
    Magic,
    /// The file was written for another version of the format.
    #[error(
        "packed model version {found} is not one of the versions 1 to {supported} that this program reads; export the model again"
    )]
    Version {
        /// The version in the file.
        found: u32,
        /// The latest version this crate reads.
        supported: u32,
    },
    /// A checksum does not match the bytes it covers.
    #[error("the packed model is damaged: the checksum of its {section} does not fit; copy or export the file again")]
    Checksum {
        /// Which part of the file.
        section: &'static str,
    },
    /// The file ends before what it announces.
    #[error("the packed model ends too early at byte {at} of its {section}; copy or export the file again")]
    Truncated {
        /// Which part of the file.
        section: &'static str,
        /// The offset in that part at which bytes were missing.
        at: usize,
    },
    /// The file is whole but says something that cannot be.
    #[error("packed model, {place}: {what}; export the model again")]
    Invalid {
        /// The operation or field.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The model would need more memory than the caller allows.
    #[error(
        "running this model needs {needed} bytes of memory, more than the limit of {limit}; raise the limit or lower the batch"
    )]
    Memory {
        /// Bytes wanted.
        needed: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The model would take more work than the caller allows.
    #[error(
        "running this model takes {needed} operations for one image, more than the limit of {limit}; raise the limit if you trust the file"
    )]
    Work {
        /// Operations for one image, see [`Model::operations`](crate::Model::operations).
        needed: u64,
        /// Operations allowed.
        limit: u64,
    },
    /// The system gives no more memory.
    #[error("the system has no {bytes} bytes of memory left for this model; free some, or lower threads and batch")]
    Allocation {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A float network cannot be packed as it is described.
    #[error("cannot pack layer {layer}: {what}")]
    Pack {
        /// The layer's number from 0, inner layers of a residual block as in `3.main.0`.
        layer: String,
        /// What is wrong with it.
        what: String,
    },
    /// The buffers given to the engine do not fit the model.
    #[error("{what} holds {found} values where the model wants {expected}")]
    Shape {
        /// Which buffer.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length, or the unit of length, that fits.
        expected: usize,
    },
    /// The engine was given another kind of input than the model takes.
    #[error("the model takes {takes}; give it those")]
    Element {
        /// What it takes.
        takes: &'static str,
    },
    /// The system gives the engine no more threads.
    #[error("cannot start {wanted} threads; ask for fewer")]
    Threads {
        /// How many were asked for.
        wanted: usize,
    },
    /// The kernels asked for do not exist or do not run on this machine.
    #[error("kernels `{name}` are not available on this machine; choose one of: {available}")]
    Kernels {
        /// The name asked for.
        name: String,
        /// The names that would work.
        available: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
