//! Buffers and kernels: numbers only, no layer and no target.
//!
//! | module | subject |
//! | --- | --- |
//! | [`random`] | counter-based random numbers, the same on every device |
//! | [`buffer`] | aligned memory for activations, parameters and scratch |
//! | [`shape`] | the shape of one example |
//! | [`share`] | how several processes divide examples among them |
//! | [`geometry`] | the shapes of convolutions and poolings |
//! | [`cpu`] | the CPU: its threads, its vector units and every kernel, a slow reference beside each fast one |
//!
//! Images are NHWC everywhere, numbers are f32, and every sum is taken in an order that depends on the
//! shapes alone: the same inputs give the same bits for any number of threads.

#![deny(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod buffer;
pub mod bytes;
pub mod cpu;
pub mod error;
pub mod geometry;
pub mod random;
pub mod shape;
pub mod share;

pub use buffer::Buffer;
pub use cpu::Cpu;
pub use error::TensorError;
pub use shape::Shape;
pub use share::Share;
