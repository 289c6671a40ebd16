//! AVX2: 32 byte products or 16 table entries an instruction.
//!
//! For levels, `vpmaddubsw` multiplies unsigned inputs by signed weights and adds neighbours in 16 bits: with inputs
//! of at most k the pair stays within 2 · 127 · k, so several steps are summed in 16 bits before they are widened. For
//! bits, a table row of 16-bit sums stands for four inputs at once: 64 products for one load and add, which beats
//! the multiplication as long as a tile of the tables stays in the near caches and serves many positions.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::tables::{Piece, SHARED, pieces, pinned, table_rows};
use super::{BLOCK, Bits, Bytes, Counts, PANEL, PATTERNS, Reals, Run, Words};

/// Bytes of tables that positions pass over together. More than the first cache holds measured best: the second one
/// keeps up, and partial sums travel less often.
const TABLE_BYTES: usize = 48 << 10;

pub(crate) fn bytes(tile: Bytes<'_>) {
    tile.check(4, 4);
    // SAFETY: the check above covers every access, and these kernels are only chosen where AVX2 is present.
    unsafe { bytes_avx2(tile) }
}

pub(crate) fn words(tile: Words<'_>) {
    tile.check(2, 2);
    // SAFETY: as for `bytes`.
    unsafe { words_avx2(tile) }
}

pub(crate) fn bits(tile: Bits<'_>) {
    tile.check(1, PATTERNS);
    // SAFETY: as for `bytes`; patterns are masked to four bits where they are used.
    unsafe {
        match tile.blocks {
            1 => bits_avx2::<1>(tile),
            2 => bits_avx2::<2>(tile),
            3 => bits_avx2::<3>(tile),
            _ => bits_avx2::<PANEL>(tile),
        }
    }
}

pub(crate) fn reals(tile: Reals<'_>) {
    tile.check(1, 1);
    // SAFETY: as for `bytes`; FMA is checked together with AVX2.
    unsafe { reals_avx2(tile) }
}

#[target_feature(enable = "avx2")]
unsafe fn bytes_avx2(tile: Bytes<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK * 4;
    let (inputs, path, narrow) = (tile.inputs.as_ptr(), &tile.path.offsets[..], tile.narrow);
    assert!(narrow > 0);
    // Weights that serve one position are only passing through: reading several blocks of them side by side keeps more
    // of the memory's streams busy.
    let at_once = if tile.positions.len() == 1 && tile.blocks == PANEL { PANEL } else { 1 };
    for block in (0..tile.blocks).step_by(at_once) {
        // SAFETY: `Tile::check`.
        unsafe {
            let weights = tile.weights.as_ptr().add(block * block_weights);
            let mut sums = tile.sums.as_mut_ptr().add(block * BLOCK);
            if at_once == PANEL {
                let weights = std::array::from_fn(|block| weights.add(block * block_weights));
                bytes_block::<1, PANEL>(inputs, &[tile.positions[0]], path, weights, narrow, sums, width);
                continue;
            }
            let mut positions = tile.positions;
            macro_rules! pass {
                ($($together:literal),+) => {$(
                    while let Some((now, rest)) = positions.split_first_chunk::<$together>() {
                        bytes_block::<$together, 1>(inputs, now, path, [weights], narrow, sums, width);
                        sums = sums.add($together * width);
                        positions = rest;
                    }
                )+};
            }
            pass!(6, 4, 2, 1);
        }
    }
}

/// How far ahead of their use weights that pass through are asked for, in bytes of each stream.
const AHEAD: usize = 1024;

/// Sums for `P` positions and `B` blocks whose weights start at `weights`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn bytes_block<const P: usize, const B: usize>(
    inputs: *const u8,
    positions: &[u32; P],
    path: &[u32],
    mut weights: [*const i8; B],
    together: usize,
    sums: *mut i32,
    width: usize,
) {
    // SAFETY: the caller's path, weights and sums are in bounds; asking for memory ahead is never an access.
    unsafe {
        let from: [*const u8; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize));
        for (number, path) in path.chunks(together).enumerate() {
            let mut narrow = [[[_mm256_setzero_si256(); 2]; B]; P];
            for &offset in path {
                for block in 0..B {
                    let low = _mm256_loadu_si256(weights[block] as *const __m256i);
                    let high = _mm256_loadu_si256(weights[block].add(32) as *const __m256i);
                    if B > 1 {
                        _mm_prefetch::<_MM_HINT_T0>(weights[block].wrapping_add(AHEAD));
                    }
                    weights[block] = weights[block].add(64);
                    for p in 0..P {
                        let input = (from[p].add(offset as usize) as *const i32).read_unaligned();
                        let (input, narrow) = (_mm256_set1_epi32(input), &mut narrow[p][block]);
                        narrow[0] = _mm256_add_epi16(narrow[0], _mm256_maddubs_epi16(input, low));
                        narrow[1] = _mm256_add_epi16(narrow[1], _mm256_maddubs_epi16(input, high));
                    }
                }
            }
            for (p, narrow) in narrow.iter().enumerate() {
                for (block, narrow) in narrow.iter().enumerate() {
                    widen(narrow, sums.add(p * width + block * BLOCK) as *mut __m256i, number == 0);
                }
            }
        }
    }
}

/// Adds neighbours of 16-bit sums to 32-bit ones, or starts those. They live in memory: registers are short, and this is
/// rare.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widen(narrow: &[__m256i; 2], sums: *mut __m256i, starts: bool) {
    for (half, &narrow) in narrow.iter().enumerate() {
        let wide = _mm256_madd_epi16(narrow, _mm256_set1_epi16(1));
        // SAFETY: the caller's sums hold a block.
        unsafe {
            let before = if starts { _mm256_setzero_si256() } else { _mm256_loadu_si256(sums.add(half)) };
            _mm256_storeu_si256(sums.add(half), _mm256_add_epi32(before, wide));
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn words_avx2(tile: Words<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK * 2;
    for block in 0..tile.blocks {
        // SAFETY: `Tile::check`.
        unsafe {
            let weights = tile.weights.as_ptr().add(block * block_weights);
            let mut sums = tile.sums.as_mut_ptr().add(block * BLOCK);
            let mut positions = tile.positions;
            while let Some((six, rest)) = positions.split_first_chunk::<6>() {
                words_block(tile.inputs.as_ptr(), six, &tile.path.offsets, weights, sums, width);
                sums = sums.add(6 * width);
                positions = rest;
            }
            while let Some((two, rest)) = positions.split_first_chunk::<2>() {
                words_block(tile.inputs.as_ptr(), two, &tile.path.offsets, weights, sums, width);
                sums = sums.add(2 * width);
                positions = rest;
            }
            if let Some((one, _)) = positions.split_first_chunk::<1>() {
                words_block(tile.inputs.as_ptr(), one, &tile.path.offsets, weights, sums, width);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words_block<const P: usize>(
    inputs: *const i16,
    positions: &[u32; P],
    path: &[u32],
    mut weights: *const i16,
    sums: *mut i32,
    width: usize,
) {
    let mut total = [[_mm256_setzero_si256(); 2]; P];
    // SAFETY: the caller's runs, weights and sums are in bounds.
    unsafe {
        let from: [*const i16; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize));
        for &offset in path {
            let low = _mm256_loadu_si256(weights as *const __m256i);
            let high = _mm256_loadu_si256(weights.add(16) as *const __m256i);
            weights = weights.add(32);
            for p in 0..P {
                let input = _mm256_set1_epi32((from[p].add(offset as usize) as *const i32).read_unaligned());
                total[p][0] = _mm256_add_epi32(total[p][0], _mm256_madd_epi16(input, low));
                total[p][1] = _mm256_add_epi32(total[p][1], _mm256_madd_epi16(input, high));
            }
        }
        for (p, total) in total.iter().enumerate() {
            let to = sums.add(p * width) as *mut __m256i;
            _mm256_storeu_si256(to, total[0]);
            _mm256_storeu_si256(to.add(1), total[1]);
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn bits_avx2<const B: usize>(tile: Bits<'_>) {
    let width = B * BLOCK;
    let most = (TABLE_BYTES / (PATTERNS * width * 2)).min(tile.narrow);
    let mut narrow = [const { MaybeUninit::<[__m256i; B]>::uninit() }; SHARED];
    for (positions, sums) in tile.positions.chunks(SHARED).zip(tile.sums.chunks_mut(SHARED * width)) {
        let mut tables = tile.weights.as_ptr() as *const u8;
        for piece in pieces(tile.path, most, tile.narrow) {
            // SAFETY: `Tile::check` for inputs, tables and sums; the pieces come in order.
            unsafe {
                let mut i = 0;
                while let Some(&two) = positions[i..].first_chunk::<2>() {
                    bits_piece(tile.inputs, two, &piece, tables, &mut narrow[i..], sums[i * width..].as_mut_ptr());
                    i += 2;
                }
                if let Some(&one) = positions[i..].first_chunk::<1>() {
                    bits_piece(tile.inputs, one, &piece, tables, &mut narrow[i..], sums[i * width..].as_mut_ptr());
                }
                tables = tables.add(piece.steps * PATTERNS * width * 2);
            }
        }
    }
}

table_rows!("avx2", __m256i, 1, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_add_epi16);

/// Adds 16-bit sums to 32-bit ones, or starts those.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn spill<const B: usize>(narrow: &[__m256i; B], sums: *mut i32, starts: bool) {
    for (block, &narrow) in narrow.iter().enumerate() {
        let halves = [
            _mm256_cvtepi16_epi32(_mm256_castsi256_si128(narrow)),
            _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(narrow)),
        ];
        for (half, &wide) in halves.iter().enumerate() {
            // SAFETY: the caller's sums hold B blocks.
            unsafe {
                let to = sums.add(block * BLOCK + half * 8) as *mut __m256i;
                let before = if starts { _mm256_setzero_si256() } else { _mm256_loadu_si256(to) };
                _mm256_storeu_si256(to, _mm256_add_epi32(before, wide));
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn reals_avx2(tile: Reals<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK;
    for block in 0..tile.blocks {
        // SAFETY: `Tile::check`.
        unsafe {
            let weights = tile.weights.as_ptr().add(block * block_weights);
            let mut sums = tile.sums.as_mut_ptr().add(block * BLOCK);
            let mut positions = tile.positions;
            while let Some((six, rest)) = positions.split_first_chunk::<6>() {
                reals_block(tile.inputs.as_ptr(), six, tile.path, weights, sums, width);
                sums = sums.add(6 * width);
                positions = rest;
            }
            while let Some((one, rest)) = positions.split_first_chunk::<1>() {
                reals_block(tile.inputs.as_ptr(), one, tile.path, weights, sums, width);
                sums = sums.add(width);
                positions = rest;
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn reals_block<const P: usize>(
    inputs: *const f32,
    positions: &[u32; P],
    runs: &[Run],
    mut weights: *const f32,
    sums: *mut f32,
    width: usize,
) {
    let mut total = [[_mm256_setzero_ps(); 2]; P];
    // SAFETY: the caller's runs, weights and sums are in bounds.
    unsafe {
        for run in runs {
            let from: [*const f32; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize + run.offset));
            for step in 0..run.steps {
                let (low, high) = (_mm256_loadu_ps(weights), _mm256_loadu_ps(weights.add(8)));
                weights = weights.add(16);
                for p in 0..P {
                    let input = _mm256_set1_ps(*from[p].add(step));
                    total[p][0] = _mm256_fmadd_ps(input, low, total[p][0]);
                    total[p][1] = _mm256_fmadd_ps(input, high, total[p][1]);
                }
            }
        }
        for (p, total) in total.iter().enumerate() {
            _mm256_storeu_ps(sums.add(p * width), total[0]);
            _mm256_storeu_ps(sums.add(p * width + 8), total[1]);
        }
    }
}

/// # Safety
/// As [`super::Kernels::count`], after `Counts::check`, on a machine with AVX2 and BMI2.
#[target_feature(enable = "avx2,bmi2")]
pub(super) unsafe fn count(counts: &Counts<'_>) {
    let Counts { width, steps, .. } = *counts;
    for (i, (&row, &place)) in counts.rows.iter().zip(counts.places).enumerate() {
        for channel in (0..width).step_by(BLOCK) {
            // SAFETY: `Counts::check`, and the caller's promise.
            unsafe {
                let sums = counts.sums.as_ptr().add(i * width + channel) as *const __m256i;
                let sums = [_mm256_loadu_si256(sums), _mm256_loadu_si256(sums.add(1))];
                let mut count = [_mm256_setzero_si256(); 2];
                let mut thresholds = counts.thresholds.as_ptr().add(row as usize + channel);
                for _ in 0..steps {
                    for half in 0..2 {
                        let threshold = _mm256_loadu_si256((thresholds as *const __m256i).add(half));
                        count[half] = _mm256_add_epi32(count[half], _mm256_cmpgt_epi32(sums[half], threshold));
                    }
                    thresholds = thresholds.add(width);
                }
                // Packing works within 128-bit lanes: put the quarters back in order before the last step. The
                // counts are negative so far.
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(count[0], count[1]));
                let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                if counts.bits {
                    let spread = _pdep_u64(_mm_movemask_epi8(bytes) as u64, 0x0F0F_0F0F);
                    (counts.to.add(place as usize + channel / 4) as *mut u32).write_unaligned(spread as u32);
                } else {
                    let levels = _mm_sub_epi8(_mm_setzero_si128(), bytes);
                    _mm_storeu_si128(counts.to.add(place as usize + channel) as *mut __m128i, levels);
                }
            }
        }
    }
}
