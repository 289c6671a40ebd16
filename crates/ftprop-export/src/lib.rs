//! Trained networks for other programs.
//!
//! | module | what comes out |
//! | --- | --- |
//! | [`numbers`] | a trained network's numbers, found by its graph |
//! | [`onnx`] | ONNX with standard operators |
//! | [`packed`] | a packed model (`.ftp`), which `ftprop-runtime` runs |
//! | [`classifier`] | using a packed model |
//! | [`origin`] | whether a packed model is of a recipe, and of a checkpoint |
//! | [`exact`] | exact numbers, for proofs about it |
//! | [`zoo`] | packed models that come with the program, by name |
//! | [`torch`] | safetensors with PyTorch's names and layouts, and back again |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod classifier;
pub mod error;
pub mod exact;
pub mod numbers;
pub mod onnx;
pub mod origin;
pub mod packed;
mod protobuf;
pub mod torch;
pub mod zoo;

pub use classifier::bytes_given;
pub use error::Error;
