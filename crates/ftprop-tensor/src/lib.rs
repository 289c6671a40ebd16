//! Buffers and kernels: numbers only, no layer and no target.

pub mod random;
