//! The slow, obvious kernels.

use super::{BLOCK, Bits, Bytes, Counts, Offsets, PANEL, PATTERNS, Reals, Words};

/// Σ input · weight, four inputs a step.
pub(crate) fn bytes(tile: Bytes<'_>) {
    dot::<4, _, _>(tile, |input, weight| input as i32 * weight as i32);
}

/// Σ input · weight, two inputs a step.
pub(crate) fn words(tile: Words<'_>) {
    dot::<2, _, _>(tile, |input, weight| input as i32 * weight as i32);
}

fn dot<const INPUTS: usize, I: Copy, W: Copy>(
    tile: super::Tile<'_, I, W, i32, Offsets>,
    product: impl Fn(I, W) -> i32,
) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK * INPUTS;
    for (&at, sums) in tile.positions.iter().zip(tile.sums.chunks_exact_mut(width)) {
        for (channel, sum) in sums.iter_mut().enumerate() {
            let (block, lane) = (channel / BLOCK, channel % BLOCK);
            let mut weights = tile.weights[block * block_weights..].chunks_exact(BLOCK * INPUTS);
            *sum = 0;
            for &offset in &tile.path.offsets {
                let start = at as usize + offset as usize;
                let Some(step) = weights.next() else { return };
                for (&input, &weight) in tile.inputs[start..start + INPUTS].iter().zip(&step[lane * INPUTS..]) {
                    *sum += product(input, weight);
                }
            }
        }
    }
}

/// Σ of table rows, picked by four bits of input a step.
pub(crate) fn bits(tile: Bits<'_>) {
    let width = tile.blocks * BLOCK;
    for (&at, sums) in tile.positions.iter().zip(tile.sums.chunks_exact_mut(width)) {
        sums.fill(0);
        let mut tables = tile.weights.chunks_exact(PATTERNS * width);
        for run in tile.path {
            let start = at as usize + run.offset;
            for &pattern in &tile.inputs[start..start + run.steps] {
                let Some(table) = tables.next() else { return };
                for (sum, &part) in sums.iter_mut().zip(&table[pattern as usize * width..]) {
                    *sum += part as i32;
                }
            }
        }
    }
}

/// Σ input · weight in order, each step a fused multiply-add.
pub(crate) fn reals(tile: Reals<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK;
    for (&at, sums) in tile.positions.iter().zip(tile.sums.chunks_exact_mut(width)) {
        for (channel, sum) in sums.iter_mut().enumerate() {
            let (block, lane) = (channel / BLOCK, channel % BLOCK);
            let mut weights = tile.weights[block * block_weights..].chunks_exact(BLOCK);
            *sum = 0.0;
            for run in tile.path {
                let start = at as usize + run.offset;
                for &input in &tile.inputs[start..start + run.steps] {
                    let Some(step) = weights.next() else { return };
                    *sum = input.mul_add(step[lane], *sum);
                }
            }
        }
    }
}

/// How many thresholds each sum exceeds.
///
/// # Safety
/// As [`super::Kernels::count`], after `Counts::check`.
pub(super) unsafe fn count(counts: &Counts<'_>) {
    let Counts { width, .. } = *counts;
    for ((sums, &row), &place) in counts.sums.chunks_exact(width).zip(counts.rows).zip(counts.places) {
        let mut levels = [0u8; PANEL * BLOCK];
        for thresholds in counts.thresholds[row as usize..].chunks_exact(width).take(counts.steps) {
            for ((level, sum), threshold) in levels.iter_mut().zip(sums).zip(thresholds) {
                *level += (sum > threshold) as u8;
            }
        }
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(counts.to.add(place as usize), counts.size()) };
        if counts.bits {
            for (to, four) in to.iter_mut().zip(levels.chunks_exact(4)) {
                *to = four[0] | four[1] << 1 | four[2] << 2 | four[3] << 3;
            }
        } else {
            to.copy_from_slice(&levels[..width]);
        }
    }
}
