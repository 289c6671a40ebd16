//! The file: a header with lengths and checksums, the preprocessing and class names, the operations.
//!
//! `docs/packed-format.md` describes every byte. All numbers are little-endian.
//!
//! ```
//! use ftprop_runtime::{Error, Model, format};
//! assert!(matches!(Model::parse(b"something else"), Err(Error::Magic)));
//! assert_eq!(format::crc32(b"123456789"), 0xCBF4_3926);
//! ```

mod checksum;
mod cursor;
mod read;
mod write;

pub use checksum::crc32;

/// The first eight bytes of a packed model.
pub(crate) const MAGIC: [u8; 8] = *b"FTPACKED";
/// The latest version. Version 2 has notes, version 3 an input of reals; a model is written as the first version that has
/// what it needs, which most readers know.
pub const VERSION: u32 = 3;
/// Notes that a file may have.
pub(crate) const MOST_NOTES: u32 = 1000;
/// Bytes before the first section.
pub const HEADER_BYTES: usize = 44;

/// The numbers that stand for things in the file.
pub(crate) mod code {
    pub(crate) const CONV: u8 = 1;
    pub(crate) const MAX_POOL: u8 = 2;
    pub(crate) const AVERAGE_POOL: u8 = 3;
    pub(crate) const MAP: u8 = 4;
    pub(crate) const ADD: u8 = 5;

    pub(crate) const F32: u8 = 0;
    pub(crate) const INT8: u8 = 1;
    pub(crate) const INT4: u8 = 2;
    pub(crate) const INT16: u8 = 3;

    pub(crate) const THRESHOLDS: u8 = 0;
    pub(crate) const AFFINE: u8 = 1;

    pub(crate) const NONE: u8 = 0;
    pub(crate) const SIGN: u8 = 1;
    pub(crate) const STEP: u8 = 2;
    pub(crate) const QRELU: u8 = 3;
    pub(crate) const RELU: u8 = 4;
    pub(crate) const SATURATED_RELU: u8 = 5;
}
