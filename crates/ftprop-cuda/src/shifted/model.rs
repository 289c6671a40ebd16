//! What a cut will roughly take, without compiling or running it: enough to tell which few are worth that.

use super::{Shifted, THREADS};
use crate::precision::Precision;

/// Multiplications with their additions that the matrix units of a multiprocessor do in a clock, in bf16; in tf32 half as many.
const BF16_PER_CLOCK: f64 = 2048.0;
/// Bytes of shared memory that they read in a clock.
const SHARED_PER_CLOCK: f64 = 128.0;
/// Bytes that a multiprocessor copies to shared memory in a clock.
const BYTES_PER_CLOCK: f64 = 40.0;
/// Clocks that a step takes at least: copies are waited for, and all warps.
const LEAST_CLOCKS: f64 = 250.0;
/// Clocks until a block is at work, and has written what it has.
const BLOCK_CLOCKS: f64 = 2500.0;
/// Clocks in which each thread of a block takes eight numbers apart.
const APART_CLOCKS: f64 = 60.0 * THREADS as f64 / 128.0;
/// Bytes that the whole GPU writes and reads back in a clock, for sums and filters that are put aside.
const ASIDE_PER_CLOCK: f64 = 2000.0;
/// Clocks of a second kernel.
const LAUNCH_CLOCKS: f64 = 2000.0;

/// Clocks for a batch of n on a GPU of so many multiprocessors, about.
pub(super) fn clocks(product: &Shifted, n: usize, multiprocessors: usize) -> f64 {
    let (first, second, third) = product.grid(n);
    let (blocks, resident) = (first * second * third, product.resident());
    let at_once = blocks.div_ceil(multiprocessors).min(resident) as f64;
    let turns = blocks.div_ceil(multiprocessors * resident) as f64;
    // Blocks beside each other share the units and hide each other's waiting.
    let step = (at_once * step_clocks(product)).max(LEAST_CLOCKS);
    let aside = match product.workspace(n) {
        0 => 0.0,
        floats => 2.0 * 4.0 * floats as f64 / ASIDE_PER_CLOCK + LAUNCH_CLOCKS,
    };
    turns * (product.steps_of_block(n) as f64 * step + BLOCK_CLOCKS) + aside
}

/// Clocks of one step of one block, by what takes longest: products, what they read, copies, taking numbers apart.
fn step_clocks(product: &Shifted) -> f64 {
    let columns = product.cut.columns as f64;
    let each = (columns * 64.0 * 16.0 / BF16_PER_CLOCK).max((columns + 64.0) * 32.0 / SHARED_PER_CLOCK);
    let copies = product.bytes_of_step() as f64 / BYTES_PER_CLOCK;
    let mut products = product.products_of_step() as f64;
    let mut apart = 0.0;
    if product.is_gradient() && product.gemm.precision != Precision::Bf16 {
        // Two or three of what was taken apart.
        products *= 2.5;
        apart = product.numbers_of_step() as f64 / 8.0 / THREADS as f64 * APART_CLOCKS;
    }
    (products * each).max(copies).max(apart)
}
