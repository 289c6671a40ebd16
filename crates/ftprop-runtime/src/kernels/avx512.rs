//! AVX-512 with VNNI: 64 byte products or 32 word products an instruction.
//!
//! `vpdpbusd` adds four byte products to a 32-bit sum and cannot overflow here, so levels need no widening. Both it
//! and `vpdpwssd` take four bytes of input a step, which lets one loop serve bytes and words. Lookup tables work as with
//! AVX2, a register for two blocks; whether they beat `vpdpbusd` depends on the CPU, see `Kernels::prefers_tables`.

use std::arch::x86_64::*;

use std::mem::MaybeUninit;

use super::avx2;
use super::tables::{Piece, SHARED, pieces, pinned, table_rows};
use super::{BLOCK, Bits, Bytes, Counts, PANEL, PATTERNS, Reals, Run, Words};

/// Bytes of tables that positions pass over together: partial sums travel less often than with AVX2's, and the second
/// cache keeps up.
const TABLE_BYTES: usize = 128 << 10;

pub(crate) fn bytes(tile: Bytes<'_>) {
    tile.check(4, 4);
    // SAFETY: the check above covers every access, and these kernels are only chosen where AVX-512 VNNI is present.
    unsafe {
        let (inputs, weights) = (tile.inputs.as_ptr(), tile.weights.as_ptr() as *const u8);
        dot::<false>(inputs, tile.positions, &tile.path.offsets, weights, tile.blocks, tile.sums.as_mut_ptr());
    }
}

pub(crate) fn words(tile: Words<'_>) {
    tile.check(2, 2);
    // SAFETY: as for `bytes`.
    unsafe {
        let (inputs, weights) = (tile.inputs.as_ptr() as *const u8, tile.weights.as_ptr() as *const u8);
        dot::<true>(inputs, tile.positions, &tile.path.offsets, weights, tile.blocks, tile.sums.as_mut_ptr());
    }
}

pub(crate) fn bits(tile: Bits<'_>) {
    // A register holds the row of two blocks; odd panels are rare.
    const TWO: usize = PANEL / 2;
    if tile.blocks != TWO && tile.blocks != PANEL {
        return avx2::bits(tile);
    }
    tile.check(1, PATTERNS);
    // SAFETY: as for `bytes`; patterns are masked to four bits where they are used.
    unsafe { if tile.blocks == TWO { bits_avx512::<1>(tile) } else { bits_avx512::<2>(tile) } }
}

pub(crate) fn reals(tile: Reals<'_>) {
    tile.check(1, 1);
    // SAFETY: as for `bytes`.
    unsafe { reals_avx512(tile) }
}

/// Both integer products: `WORDS` says whether a step is two words or four bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn dot<const WORDS: bool>(
    inputs: *const u8,
    mut positions: &[u32],
    path: &[u32],
    weights: *const u8,
    blocks: usize,
    mut sums: *mut i32,
) {
    // SAFETY: the caller has checked path, weights and sums.
    unsafe {
        // As many positions at once as sums fit the registers beside the weights of a step.
        macro_rules! pass {
            ($blocks:literal, $($together:literal),+) => {{$(
                while let Some((now, rest)) = positions.split_first_chunk::<$together>() {
                    dot_block::<WORDS, $blocks, $together>(inputs, now, path, weights, sums);
                    sums = sums.add($together * $blocks * BLOCK);
                    positions = rest;
                }
            )+}};
        }
        match blocks {
            1 => pass!(1, 12, 4, 1),
            2 => pass!(2, 8, 4, 1),
            3 => pass!(3, 8, 4, 1),
            _ => pass!(4, 6, 2, 1),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn dot_block<const WORDS: bool, const B: usize, const P: usize>(
    inputs: *const u8,
    positions: &[u32; P],
    path: &[u32],
    weights: *const u8,
    sums: *mut i32,
) {
    let size = if WORDS { 2 } else { 1 };
    let mut total = [[_mm512_setzero_si512(); B]; P];
    // SAFETY: the caller's path, weights and sums are in bounds.
    unsafe {
        let from_weights: [*const u8; B] = std::array::from_fn(|block| weights.add(block * path.len() * 64));
        let from: [*const u8; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize * size));
        for (step, &offset) in path.iter().enumerate() {
            let weights: [__m512i; B] =
                std::array::from_fn(|block| _mm512_loadu_si512(from_weights[block].add(step * 64) as *const __m512i));
            for p in 0..P {
                let input = (from[p].add(offset as usize * size) as *const i32).read_unaligned();
                let input = _mm512_set1_epi32(input);
                for block in 0..B {
                    total[p][block] = match WORDS {
                        true => _mm512_dpwssd_epi32(total[p][block], input, weights[block]),
                        false => _mm512_dpbusd_epi32(total[p][block], input, weights[block]),
                    };
                }
            }
        }
        for (p, total) in total.iter().enumerate() {
            for (block, &total) in total.iter().enumerate() {
                _mm512_storeu_si512(sums.add((p * B + block) * BLOCK) as *mut __m512i, total);
            }
        }
    }
}

/// As in AVX2, with rows of `Z` registers.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn bits_avx512<const Z: usize>(tile: Bits<'_>) {
    let width = Z * 2 * BLOCK;
    let most = (TABLE_BYTES / (PATTERNS * width * 2)).min(tile.narrow);
    let mut narrow = [const { MaybeUninit::<[__m512i; Z]>::uninit() }; SHARED];
    for (positions, sums) in tile.positions.chunks(SHARED).zip(tile.sums.chunks_mut(SHARED * width)) {
        let mut tables = tile.weights.as_ptr() as *const u8;
        for piece in pieces(tile.path, most, tile.narrow) {
            // SAFETY: `Tile::check` for inputs, tables and sums; the pieces come in order.
            unsafe {
                let mut i = 0;
                while let Some(&now) = positions[i..].first_chunk::<4>() {
                    bits_piece(tile.inputs, now, &piece, tables, &mut narrow[i..], sums[i * width..].as_mut_ptr());
                    i += 4;
                }
                while let Some(&now) = positions[i..].first_chunk::<1>() {
                    bits_piece(tile.inputs, now, &piece, tables, &mut narrow[i..], sums[i * width..].as_mut_ptr());
                    i += 1;
                }
                tables = tables.add(piece.steps * PATTERNS * width * 2);
            }
        }
    }
}

table_rows!("avx512f,avx512bw", __m512i, 2, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_add_epi16);

/// Adds 16-bit sums to 32-bit ones, or starts those.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn spill<const Z: usize>(narrow: &[__m512i; Z], sums: *mut i32, starts: bool) {
    for (part, &narrow) in narrow.iter().enumerate() {
        let halves = [
            _mm512_cvtepi16_epi32(_mm512_castsi512_si256(narrow)),
            _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64::<1>(narrow)),
        ];
        for (half, &wide) in halves.iter().enumerate() {
            // SAFETY: the caller's sums hold Z registers' worth.
            unsafe {
                let to = sums.add(part * 2 * BLOCK + half * BLOCK) as *mut __m512i;
                let before = if starts { _mm512_setzero_si512() } else { _mm512_loadu_si512(to) };
                _mm512_storeu_si512(to, _mm512_add_epi32(before, wide));
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn reals_avx512(tile: Reals<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK;
    let (inputs, runs) = (tile.inputs.as_ptr(), tile.path);
    let mut block = 0;
    while block < tile.blocks {
        let two = block + 2 <= tile.blocks;
        let mut positions = tile.positions;
        // SAFETY: `Tile::check`.
        unsafe {
            let weights = tile.weights.as_ptr().add(block * block_weights);
            let mut sums = tile.sums.as_mut_ptr().add(block * BLOCK);
            macro_rules! pass {
                ($together:literal) => {
                    while let Some((now, rest)) = positions.split_first_chunk::<$together>() {
                        if two {
                            reals_block::<2, $together>(inputs, now, runs, weights, block_weights, sums, width);
                        } else {
                            reals_block::<1, $together>(inputs, now, runs, weights, block_weights, sums, width);
                        }
                        sums = sums.add($together * width);
                        positions = rest;
                    }
                };
            }
            pass!(12);
            pass!(4);
            pass!(1);
        }
        block += if two { 2 } else { 1 };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn reals_block<const B: usize, const P: usize>(
    inputs: *const f32,
    positions: &[u32; P],
    runs: &[Run],
    mut weights: *const f32,
    block_weights: usize,
    sums: *mut f32,
    width: usize,
) {
    let mut total = [[_mm512_setzero_ps(); B]; P];
    // SAFETY: the caller's runs, weights and sums are in bounds.
    unsafe {
        for run in runs {
            let from: [*const f32; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize + run.offset));
            for step in 0..run.steps {
                let rows: [__m512; B] =
                    std::array::from_fn(|block| _mm512_loadu_ps(weights.add(block * block_weights)));
                weights = weights.add(BLOCK);
                for p in 0..P {
                    let input = _mm512_set1_ps(*from[p].add(step));
                    for block in 0..B {
                        total[p][block] = _mm512_fmadd_ps(input, rows[block], total[p][block]);
                    }
                }
            }
        }
        for (p, total) in total.iter().enumerate() {
            for (block, &total) in total.iter().enumerate() {
                _mm512_storeu_ps(sums.add(p * width + block * BLOCK), total);
            }
        }
    }
}

/// # Safety
/// As [`super::Kernels::count`], after `Counts::check`, on a machine with AVX-512 and BMI2.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
pub(super) unsafe fn count(counts: &Counts<'_>) {
    let Counts { width, steps, .. } = *counts;
    for (i, (&row, &place)) in counts.rows.iter().zip(counts.places).enumerate() {
        for channel in (0..width).step_by(BLOCK) {
            // SAFETY: `Counts::check`, and the caller's promise.
            unsafe {
                let sums = _mm512_loadu_si512(counts.sums.as_ptr().add(i * width + channel) as *const __m512i);
                let mut thresholds = counts.thresholds.as_ptr().add(row as usize + channel);
                if steps == 1 {
                    let above = _mm512_cmpgt_epi32_mask(sums, _mm512_loadu_si512(thresholds as *const __m512i));
                    if counts.bits {
                        let spread = _pdep_u64(above as u64, 0x0F0F_0F0F);
                        (counts.to.add(place as usize + channel / 4) as *mut u32).write_unaligned(spread as u32);
                    } else {
                        let to = counts.to.add(place as usize + channel) as *mut __m128i;
                        _mm_storeu_si128(to, _mm_maskz_set1_epi8(above, 1));
                    }
                    continue;
                }
                let mut count = _mm512_setzero_si512();
                for _ in 0..steps {
                    let above = _mm512_cmpgt_epi32_mask(sums, _mm512_loadu_si512(thresholds as *const __m512i));
                    count = _mm512_mask_add_epi32(count, above, count, _mm512_set1_epi32(1));
                    thresholds = thresholds.add(width);
                }
                let to = counts.to.add(place as usize + channel) as *mut __m128i;
                _mm_storeu_si128(to, _mm512_cvtepi32_epi8(count));
            }
        }
    }
}
