//! Photographs decoded once, in one file. Its layout is described in `docs/prepared-format.md`.
//!
//! `layout` has the bytes, `write` makes a file from a folder of pictures, `read` opens one.

mod layout;
mod read;
mod write;

pub(crate) use read::{is_prepared, open};
pub use write::{PrepareOptions, Prepared, Preparing, prepare};
