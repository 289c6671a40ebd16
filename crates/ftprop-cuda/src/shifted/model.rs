//! What a cut will roughly take, without compiling or running it: enough to tell which few are worth that.

use super::{GROUPS, Shifted};
use crate::gemm::Filters;
use crate::precision::Precision;

/// Multiplications with their additions that the matrix units of a multiprocessor do in a clock, in bf16; in tf32 half as many.
const BF16_PER_CLOCK: usize = 2048;
/// Bytes of shared memory that they read in a clock.
const SHARED_PER_CLOCK: f64 = 128.0;
/// Bytes that a multiprocessor copies to shared memory in a clock.
const BYTES_PER_CLOCK: f64 = 40.0;
/// Clocks of a step beside its products: all warps are waited for, and copies asked for.
const STEP_CLOCKS: f64 = 400.0;
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
    if product.stay() {
        let tiles = product.tiles(n).div_ceil(first * GROUPS).max(1);
        let filters = product.taps() * product.cut.columns * product.depth() * product.bytes();
        return tiles as f64 * tile_clocks(product) + BLOCK_CLOCKS + filters as f64 / BYTES_PER_CLOCK;
    }
    let (blocks, resident) = (first * second * third, product.resident());
    let at_once = blocks.div_ceil(multiprocessors).min(resident) as f64;
    let turns = blocks.div_ceil(multiprocessors * resident) as f64;
    // Blocks beside each other share the units and hide each other's waiting.
    let step = at_once * step_clocks(product) + STEP_CLOCKS;
    let aside = match product.workspace(n) {
        0 => 0.0,
        floats => 2.0 * 4.0 * floats as f64 / ASIDE_PER_CLOCK + LAUNCH_CLOCKS,
    };
    turns * (product.steps_of_block(n) as f64 * step + BLOCK_CLOCKS) + aside
}

/// Shares of a gradient's places for which its steps and the sums that are put aside take least together.
pub(super) fn shares(product: &Shifted, n: usize) -> usize {
    let steps = product.steps_of_gradient(n) as f64 * (step_clocks(product) + STEP_CLOCKS);
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
    let read = match product.cut.filters {
        // A product has as many rows of pixels, which begin anywhere, and nothing else to read.
        Filters::Held => 2 * columns,
        _ => columns + 64,
    };
    let each = (clocks_of_rows(1, columns, 32) as f64).max(read as f64 * 32.0 / SHARED_PER_CLOCK);
    // What is between products that wait for what was read.
    let each = if product.cut.filters == Filters::Held { each } else { 1.2 * each };
    let copies = (GROUPS * product.patch_rows() * product.depth() * product.bytes()) as f64 / BYTES_PER_CLOCK;
    // One group writes while the other multiplies, and where it has one patch only, waits for the next.
    let aside = if product.patches() == 2 { TILE_CLOCKS } else { TILE_CLOCKS.max(copies / GROUPS as f64) };
    (products as f64 * each).max(copies).max(products as f64 * each / GROUPS as f64 + aside)
}

/// Clocks of one step of one block, by what takes longest: products, what they read, copies.
fn step_clocks(product: &Shifted) -> f64 {
    let (columns, apart) = (product.cut.columns, product.gemm.precision != Precision::Bf16);
    // Rows that begin anywhere are read as if they were two; a gradient has its own in registers.
    let read = if product.is_gradient() { 2 * columns } else { columns + 2 * 64 };
    let each = (clocks_of_rows(1, columns, 32) as f64).max(read as f64 * 32.0 / SHARED_PER_CLOCK);
    let times = if product.is_gradient() && apart { APART } else { 1.0 };
    let copies = product.bytes_of_step() as f64 / BYTES_PER_CLOCK;
    (times * product.products_of_step() as f64 * each).max(copies)
}

#[cfg(test)]
mod tests {
    use crate::device::DeviceLimits;
    use crate::gemm::{Cut, Filters, Gemm, Mode};
    use crate::precision::Precision;
    use crate::shifted::Shifted;
    use ftprop_tensor::geometry::ConvGeometry;

    /// The few cuts for 64 channels out.
    fn few(mode: Mode, precision: Precision, (size, in_channels, kernel): (usize, usize, usize), n: usize) -> Vec<Cut> {
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
        let geometry = ConvGeometry {
            height: size,
            width: size,
            in_channels,
            out_channels: 64,
            kernel_h: kernel,
            kernel_w: kernel,
            stride: 1,
            pad: kernel / 2,
            groups: 1,
        };
        let (weight_offset, stored) = (0, in_channels);
        let gemm = Gemm {
            mode,
            geometry,
            precision,
            weight_offset,
            stored,
            f32_output: false,
            bias_offset: None,
            adds: false,
        };
        Shifted::candidates(&gemm, n, limits)
    }

    /// Gradients in bf16 whose best cuts are known from an H200.
    #[test]
    fn what_was_fastest_is_among_the_few() {
        let cases = [
            ((17, 32, 5), 1024, (2, 32)),
            ((16, 48, 3), 1024, (1, 48)),
            ((56, 64, 3), 256, (1, 64)),
            ((32, 64, 3), 256, (1, 64)),
        ];
        for (layer, n, best) in cases {
            let few = few(Mode::Weights, Precision::Bf16, layer, n);
            assert!(few.iter().any(|cut| (cut.down, cut.columns) == best), "{layer:?}: {few:?}");
        }
    }

    #[test]
    fn filters_that_registers_can_hold_are_worth_timing() {
        for mode in [Mode::Forward, Mode::Input] {
            for (layer, n) in [((56, 64, 3), 256), ((32, 64, 3), 256), ((16, 64, 3), 1024)] {
                let held = |precision| few(mode, precision, layer, n).iter().any(|cut| cut.filters == Filters::Held);
                assert!(held(Precision::Bf16), "{layer:?}");
                assert!(!held(Precision::Tf32), "{layer:?}");
            }
        }
        // 25 taps are too many.
        let few = few(Mode::Forward, Precision::Bf16, (17, 32, 5), 1024);
        assert!(few.iter().all(|cut| cut.filters != Filters::Held));
    }
}
