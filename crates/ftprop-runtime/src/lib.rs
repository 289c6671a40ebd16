//! Packed low-bit models of hard-threshold networks, and the kernels that run them.
//!
//! A packed model (`.ftp`) is one file: small integer weights, thresholds instead of norms and biases, class names and
//! preprocessing. This crate writes it from a network in float ([`pack`]), reads it without trusting it
//! ([`Model::parse`]) and runs it ([`Engine`]), on one thread or several, without allocating once it is loaded. It
//! depends on nothing of the trainer. The format is described in `docs/packed-format.md`.
//!
//! ```no_run
//! use ftprop_runtime::{Engine, EngineOptions};
//!
//! let file = std::fs::read("model.ftp")?;
//! let mut engine = Engine::load(&file, &EngineOptions { threads: 2, ..EngineOptions::default() })?;
//! let image = vec![0u8; engine.image_len()]; // rows of pixels of channels
//! let mut logits = vec![0.0; engine.classes()];
//! engine.classify(&image, &mut logits)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod capi;
mod check;
mod engine;
mod error;
pub mod format;
mod kernels;
mod memory;
mod model;
pub mod note;
pub mod pack;

pub use check::ONE_BY_ONE;
pub use engine::{Engine, EngineOptions, Images};
pub use error::{Error, Result};
pub use kernels::Kernels;
pub use model::{
    Activation, Affine, Codec, Conv, Element, Kind, MAX_STEPS, Model, Op, Preprocessing, Shape, Stage, Value, Weights,
    Window,
};
