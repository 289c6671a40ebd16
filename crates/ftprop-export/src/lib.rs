//! Trained networks for other programs.
//!
//! | module | what comes out |
//! | --- | --- |
//! | [`layers`] | a trained network as plain layers with their numbers, which the others start from |
//! | [`onnx`] | ONNX with standard operators |
//! | [`packed`] | a packed model (`.ftp`), which `ftprop-runtime` runs |
//! | [`classifier`] | using a packed model |
//! | [`torch`] | safetensors with PyTorch's names and layouts, and back again |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod classifier;
pub mod error;
pub mod layers;
pub mod onnx;
pub mod packed;
mod protobuf;
pub mod torch;

pub use error::Error;
