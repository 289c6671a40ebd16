//! What a tiling will roughly take, without compiling or running it: enough to tell which few are worth that.

use crate::device::DeviceLimits;
use crate::gemm::{Gemm, Mode, Tile, Tiling};
use crate::precision::Precision;

/// Multiplications with their additions that a multiprocessor does in a clock by `mma.sync`, about what the kernel reaches.
const BF16_PER_CLOCK: f64 = 600.0;
/// Bytes that a multiprocessor gathers in a clock, windows' addresses included.
const BYTES_PER_CLOCK: f64 = 40.0;
/// Bytes that its warps read of shared memory in a clock.
const SHARED_PER_CLOCK: f64 = 128.0;
/// Clocks that a tile of the depth takes at least: copies are waited for, and all warps.
const LEAST_CLOCKS: f64 = 250.0;
/// Clocks until a block is at work, and has written what it has.
const BLOCK_CLOCKS: f64 = 1500.0;
/// Bytes that the whole GPU writes and reads back in a clock, for sums that are split over blocks.
const SUMS_PER_CLOCK: f64 = 2000.0;

/// Tiles whose best split is among the `keep` best by estimate, with all of their splits, and the first tiling that is given.
pub(crate) fn worth_timing(
    gemm: &Gemm,
    n: usize,
    limits: DeviceLimits,
    tilings: Vec<Tiling>,
    keep: usize,
) -> Vec<Tiling> {
    let mut ranked: Vec<(f64, Tile)> = tilings.iter().map(|t| (clocks(gemm, n, limits, *t), t.tile)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut tiles: Vec<Tile> = Vec::new();
    for (_, tile) in ranked {
        if tiles.len() < keep && !tiles.contains(&tile) {
            tiles.push(tile);
        }
    }
    tilings.into_iter().filter(|tiling| tiles.contains(&tiling.tile)).collect()
}

/// What the matrix units do in a clock by `mma.sync` where nothing holds them up, as few kernels get near to, and the clocks of
/// a GPU at its fastest.
const BF16_PEAK: f64 = 768.0;
const CLOCKS_PER_MS: f64 = 1.8e6;

/// Milliseconds below which our own kernels do not compute a product, whatever their tiles are.
pub(crate) fn least_ms(gemm: &Gemm, n: usize, limits: DeviceLimits) -> f64 {
    let per_clock = if gemm.precision == Precision::Bf16 { BF16_PEAK } else { BF16_PEAK / 2.0 };
    gemm.multiply_adds(n) as f64 / (per_clock * limits.multiprocessors as f64 * CLOCKS_PER_MS)
}

/// Clocks that a product takes, about.
fn clocks(gemm: &Gemm, n: usize, limits: DeviceLimits, Tiling { tile, split_k }: Tiling) -> f64 {
    let (down, across) = gemm.tiles(n, tile);
    let (_, _, depth) = gemm.size(n);
    let blocks = down * across * gemm.geometry.groups * split_k;
    let bytes = gemm.precision.activation_bytes() as f64;
    let per_clock = if gemm.precision == Precision::Bf16 { BF16_PER_CLOCK } else { BF16_PER_CLOCK / 2.0 };
    let (rows, cols) = (tile.rows as f64, tile.cols as f64);
    let multiply = rows * cols * 32.0 / per_clock;
    let gather = (rows + cols) * 32.0 * bytes / BYTES_PER_CLOCK;
    let (warp_rows, warp_cols) = tile.warp();
    let warps = f64::from(tile.threads() / 32);
    let read = warps * (warp_rows + warp_cols) as f64 * 32.0 * bytes / SHARED_PER_CLOCK;
    // By shared memory, and by registers, of which sums take most.
    let by_memory = limits.shared / (gemm.shared_bytes(tile) + 1024);
    let registers = (tile.rows * tile.cols / tile.threads() as usize + 72) * tile.threads() as usize;
    let resident = by_memory.min(65536 / registers).clamp(1, 8);
    let at_once = blocks.div_ceil(limits.multiprocessors).min(resident) as f64;
    let turns = blocks.div_ceil(limits.multiprocessors * resident) as f64;
    // Blocks beside each other share the units and hide each other's waiting.
    let each = (at_once * multiply.max(gather + read)).max(LEAST_CLOCKS);
    let deep = depth.div_ceil(32).div_ceil(split_k) as f64;
    let sums = match split_k {
        1 => 0.0,
        _ => 2.0 * 4.0 * blocks as f64 * rows * cols / SUMS_PER_CLOCK + 2000.0,
    };
    let wasted = if gemm.mode == Mode::Input && gemm.geometry.stride > 1 { 1.1 } else { 1.0 };
    turns * (deep * each * wasted + BLOCK_CLOCKS) + sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::geometry::ConvGeometry;

    fn gemm(mode: Mode, size: usize, channels: [usize; 2], kernel: usize, stride: usize, precision: Precision) -> Gemm {
        let geometry = ConvGeometry {
            height: size,
            width: size,
            in_channels: channels[0],
            out_channels: channels[1],
            kernel_h: kernel,
            kernel_w: kernel,
            stride,
            pad: kernel / 2,
            groups: 1,
        };
        let (weight_offset, stored) = (64, channels[0]);
        Gemm { mode, geometry, precision, weight_offset, stored, f32_output: false, bias_offset: None, adds: false }
    }

    /// Tilings that timing chose on an H200.
    #[test]
    fn what_timing_chose_is_among_the_few() {
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
        let weights =
            |size, channels, kernel, stride| gemm(Mode::Weights, size, channels, kernel, stride, Precision::Bf16);
        let cases = [
            (weights(56, [64, 64], 3, 1), 256, (64, 128)),
            (weights(56, [64, 128], 3, 2), 256, (128, 128)),
            (weights(28, [128, 128], 3, 1), 256, (128, 128)),
            (weights(28, [128, 256], 3, 2), 256, (128, 128)),
            (weights(14, [256, 256], 3, 1), 256, (128, 128)),
            (weights(16, [48, 64], 3, 1), 1024, (64, 128)),
            (weights(16, [64, 64], 3, 1), 1024, (64, 128)),
            (weights(6, [128, 128], 3, 1), 1024, (128, 128)),
        ];
        for (gemm, n, chosen) in cases {
            let all = gemm.candidates(n, limits, false);
            let few = worth_timing(&gemm, n, limits, all.clone(), 3);
            let tiles: Vec<(usize, usize)> = few.iter().map(|t| (t.tile.rows, t.tile.cols)).collect();
            assert!(tiles.contains(&chosen), "{gemm:?}: {tiles:?}");
            assert!(few.len() < all.len());
        }
    }

    /// What our kernels took on an H200.
    #[test]
    fn nothing_of_ours_was_faster_than_it_can_be() {
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
        let stem = gemm(Mode::Forward, 32, [3, 64], 3, 1, Precision::Bf16);
        assert!(least_ms(&stem, 256, limits) < 0.0307);
        let large = gemm(Mode::Forward, 32, [64, 64], 3, 1, Precision::Bf16);
        assert!((0.04..0.06).contains(&least_ms(&large, 256, limits)));
    }
}
