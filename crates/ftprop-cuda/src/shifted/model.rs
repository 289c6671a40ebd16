//! What a cut will roughly take, without compiling or running it: enough to tell which few are worth that.

use super::{GROUPS, Shifted};
use crate::precision::Precision;

/// Multiplications with their additions that the matrix units of a multiprocessor do in a clock, in bf16; in tf32 half as many.
const BF16_PER_CLOCK: usize = 2048;
/// Bytes of shared memory that they read in a clock.
const SHARED_PER_CLOCK: f64 = 128.0;
/// Bytes that a multiprocessor copies to shared memory in a clock.
const BYTES_PER_CLOCK: f64 = 40.0;
/// Clocks that a step takes at least: copies are waited for, and all warps.
const LEAST_CLOCKS: f64 = 250.0;
/// Clocks until a block is at work, and has written what it has.
const BLOCK_CLOCKS: f64 = 2500.0;
/// Clocks until a group has asked for a patch and written a tile.
const TILE_CLOCKS: f64 = 1500.0;
/// Bytes that the whole GPU writes and reads back in a clock, for sums and filters that are put aside.
const ASIDE_PER_CLOCK: f64 = 2000.0;
/// Clocks of a second kernel.
const LAUNCH_CLOCKS: f64 = 2000.0;
/// Products of what was taken apart that one of tf32 becomes: two or three.
const APART: f64 = 2.5;

/// Clocks for a batch of n on a GPU of so many multiprocessors, about.
pub(super) fn clocks(product: &Shifted, n: usize, multiprocessors: usize) -> f64 {
    let (first, second, third) = product.grid(n, multiprocessors);
    if product.cut.kept {
        let tiles = product.tiles(n).div_ceil(first * GROUPS).max(1);
        let filters = product.taps() * product.cut.columns * product.depth() * product.bytes();
        return tiles as f64 * tile_clocks(product) + BLOCK_CLOCKS + filters as f64 / BYTES_PER_CLOCK;
    }
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

/// Shares of a gradient's places for which its steps and the sums that are put aside take least together.
pub(super) fn shares(product: &Shifted, n: usize) -> usize {
    let steps = product.steps_of_gradient(n) as f64 * step_clocks(product).max(LEAST_CLOCKS);
    let aside = 2.0 * 4.0 * product.gemm.geometry.weight_len() as f64 / ASIDE_PER_CLOCK;
    (steps / aside).sqrt() as usize
}

/// Clocks in which the units multiply so many times 64 rows with these columns, so many bytes deep.
pub(super) fn clocks_of_rows(sixty_fours: usize, columns: usize, bytes: usize) -> usize {
    sixty_fours * 64 * columns * (bytes / 2) / BF16_PER_CLOCK
}

/// Clocks in which all groups of a block whose filters stay do a tile each.
fn tile_clocks(product: &Shifted) -> f64 {
    let depth = product.depth() * product.bytes() / 32;
    let products = GROUPS * product.cut.down * product.taps() * depth;
    let columns = product.cut.columns;
    let each = (clocks_of_rows(1, columns, 32) as f64).max((columns + 64) as f64 * 32.0 / SHARED_PER_CLOCK);
    let copies = (GROUPS * product.patch_rows() * product.depth() * product.bytes()) as f64 / BYTES_PER_CLOCK;
    // One group writes while the other multiplies.
    (products as f64 * each).max(copies).max(products as f64 * each / GROUPS as f64 + TILE_CLOCKS)
}

/// Clocks of one step of one block, by what takes longest: products, what they read, copies.
fn step_clocks(product: &Shifted) -> f64 {
    let (columns, apart) = (product.cut.columns, product.gemm.precision != Precision::Bf16);
    // A gradient has its rows in registers.
    let read = if product.is_gradient() { columns } else { columns + 64 };
    let each = (clocks_of_rows(1, columns, 32) as f64).max(read as f64 * 32.0 / SHARED_PER_CLOCK);
    let times = if product.is_gradient() && apart { APART } else { 1.0 };
    let copies = product.bytes_of_step() as f64 / BYTES_PER_CLOCK;
    (times * product.products_of_step() as f64 * each).max(copies)
}
