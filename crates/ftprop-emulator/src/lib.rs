//! A GPU in software, for tests.
//!
//! This library stands in the driver's place: under the name `libcuda.so.1`, in a folder that is looked through first, it
//! offers the functions of the CUDA driver that ftprop calls, and runs on the CPU the PTX that NVRTC, which needs no GPU,
//! compiles the kernels to. Nothing of ftprop is told: its whole GPU engine, with streams, captured steps and
//! cooperative launches, goes its usual way, slowly. `.ci/emulate` does so.
//!
//! It is stricter than a GPU:
//! - every access to memory is looked at, and one outside of an allocation, or of a wrong alignment, ends the program's use
//!   of the GPU with a line that says which kernel, block, lane and instruction it was;
//! - new memory and shared memory hold no numbers (all bits are set), so that what nobody wrote shows;
//! - copies to shared memory arrive when they are waited for, never before;
//! - a warp that touches shared memory which another wrote, or writes what another read, without a barrier between, is told;
//! - what a captured step leaves unordered is run in an order that changes each time;
//! - lanes that wait for others that never come are told.
//!
//! With `FTPROP_EMULATOR_TRACE` in the environment it tells what each captured step consists of.
//!
//! It does not tell how fast anything is, sums of matrix products are rounded once and not as the hardware does, and it has no
//! cuDNN or cuBLASLt. What it does not know, it refuses by name when the kernels are loaded.

mod api;
mod convert;
mod driver;
mod float;
mod grid;
mod integer;
mod limits;
mod lower;
mod memory;
mod program;
mod registers;
mod shared;
mod text;
mod together;
mod warp;
mod warpgroup;

#[cfg(test)]
mod tests;
