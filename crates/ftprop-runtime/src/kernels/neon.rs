//! NEON: eight byte products an instruction, pairs added into 32-bit sums.

use std::arch::aarch64::*;

use super::{BLOCK, Bits, Bytes, PATTERNS, Reals, Run, Words};

pub(crate) fn bytes(tile: Bytes<'_>) {
    tile.check(4, 4);
    let (width, block_weights) = (tile.blocks * BLOCK, tile.steps() * BLOCK * 4);
    for block in 0..tile.blocks {
        for (p, &at) in tile.positions.iter().enumerate() {
            // SAFETY: `Tile::check`; NEON is part of every 64-bit ARM that these kernels are chosen for.
            unsafe {
                let weights = tile.weights.as_ptr().add(block * block_weights);
                let sums = tile.sums.as_mut_ptr().add(p * width + block * BLOCK);
                bytes_block(tile.inputs.as_ptr().add(at as usize), &tile.path.offsets, weights, sums);
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn bytes_block(inputs: *const u8, path: &[u32], mut weights: *const i8, sums: *mut i32) {
    // A step's 16 channels × 4 inputs are 8 vectors of 2 channels; pairwise sums keep two partial sums a channel.
    let mut total = [vdupq_n_s32(0); 8];
    // SAFETY: the caller has checked runs, weights and sums.
    unsafe {
        for &offset in path {
            let four = (inputs.add(offset as usize) as *const u32).read_unaligned();
            // Levels are at most 127, so they are the same as signed bytes.
            let input = vreinterpret_s8_u32(vdup_n_u32(four));
            for (i, total) in total.iter_mut().enumerate() {
                *total = vpadalq_s16(*total, vmull_s8(input, vld1_s8(weights.add(i * 8))));
            }
            weights = weights.add(64);
        }
        for i in 0..4 {
            vst1q_s32(sums.add(i * 4), vpaddq_s32(total[2 * i], total[2 * i + 1]));
        }
    }
}

pub(crate) fn words(tile: Words<'_>) {
    tile.check(2, 2);
    let (width, block_weights) = (tile.blocks * BLOCK, tile.steps() * BLOCK * 2);
    for block in 0..tile.blocks {
        for (p, &at) in tile.positions.iter().enumerate() {
            // SAFETY: as for `bytes`.
            unsafe {
                let weights = tile.weights.as_ptr().add(block * block_weights);
                let sums = tile.sums.as_mut_ptr().add(p * width + block * BLOCK);
                words_block(tile.inputs.as_ptr().add(at as usize), &tile.path.offsets, weights, sums);
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn words_block(inputs: *const i16, path: &[u32], mut weights: *const i16, sums: *mut i32) {
    // Two partial sums a channel, one for each input of a step.
    let mut total = [vdupq_n_s32(0); 8];
    // SAFETY: the caller has checked runs, weights and sums.
    unsafe {
        for &offset in path {
            let pair = (inputs.add(offset as usize) as *const u32).read_unaligned();
            let input = vreinterpret_s16_u32(vdup_n_u32(pair));
            for (i, total) in total.iter_mut().enumerate() {
                *total = vmlal_s16(*total, input, vld1_s16(weights.add(i * 4)));
            }
            weights = weights.add(32);
        }
        for i in 0..4 {
            vst1q_s32(sums.add(i * 4), vpaddq_s32(total[2 * i], total[2 * i + 1]));
        }
    }
}

pub(crate) fn bits(tile: Bits<'_>) {
    tile.check(1, PATTERNS);
    let width = tile.blocks * BLOCK;
    for (&at, sums) in tile.positions.iter().zip(tile.sums.chunks_exact_mut(width)) {
        for block in 0..tile.blocks {
            // SAFETY: `Tile::check`; patterns are masked to four bits where they are used.
            unsafe {
                let tables = tile.weights.as_ptr().add(block * BLOCK);
                let sums = sums.as_mut_ptr().add(block * BLOCK);
                bits_block(tile.inputs.as_ptr().add(at as usize), tile.path, tables, tile.narrow, width, sums);
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn bits_block(
    inputs: *const u8,
    runs: &[Run],
    mut tables: *const i16,
    together: usize,
    width: usize,
    sums: *mut i32,
) {
    let mut wide = [vdupq_n_s32(0); 4];
    let mut narrow = [vdupq_n_s16(0); 2];
    let mut room = together;
    // SAFETY: the caller has checked runs, tables and sums.
    unsafe {
        for run in runs {
            for step in 0..run.steps {
                let row = tables.add((*inputs.add(run.offset + step) & 15) as usize * width);
                narrow[0] = vaddq_s16(narrow[0], vld1q_s16(row));
                narrow[1] = vaddq_s16(narrow[1], vld1q_s16(row.add(8)));
                tables = tables.add(PATTERNS * width);
                room -= 1;
                if room == 0 {
                    widen(&mut wide, &mut narrow);
                    room = together;
                }
            }
        }
        widen(&mut wide, &mut narrow);
        for (i, &wide) in wide.iter().enumerate() {
            vst1q_s32(sums.add(i * 4), wide);
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn widen(wide: &mut [int32x4_t; 4], narrow: &mut [int16x8_t; 2]) {
    for (i, narrow) in narrow.iter_mut().enumerate() {
        wide[2 * i] = vaddw_s16(wide[2 * i], vget_low_s16(*narrow));
        wide[2 * i + 1] = vaddw_s16(wide[2 * i + 1], vget_high_s16(*narrow));
        *narrow = vdupq_n_s16(0);
    }
}

pub(crate) fn reals(tile: Reals<'_>) {
    tile.check(1, 1);
    let (width, block_weights) = (tile.blocks * BLOCK, tile.steps() * BLOCK);
    for block in 0..tile.blocks {
        for (p, &at) in tile.positions.iter().enumerate() {
            // SAFETY: as for `bytes`.
            unsafe {
                let weights = tile.weights.as_ptr().add(block * block_weights);
                let sums = tile.sums.as_mut_ptr().add(p * width + block * BLOCK);
                reals_block(tile.inputs.as_ptr().add(at as usize), tile.path, weights, sums);
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn reals_block(inputs: *const f32, runs: &[Run], mut weights: *const f32, sums: *mut f32) {
    let mut total = [vdupq_n_f32(0.0); 4];
    // SAFETY: the caller has checked runs, weights and sums.
    unsafe {
        for run in runs {
            for step in 0..run.steps {
                let input = vdupq_n_f32(*inputs.add(run.offset + step));
                for (i, total) in total.iter_mut().enumerate() {
                    *total = vfmaq_f32(*total, input, vld1q_f32(weights.add(i * 4)));
                }
                weights = weights.add(BLOCK);
            }
        }
        for (i, &total) in total.iter().enumerate() {
            vst1q_f32(sums.add(i * 4), total);
        }
    }
}
