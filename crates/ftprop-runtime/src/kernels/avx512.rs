//! AVX-512 with VNNI: 64 byte products, 32 word products or 32 table entries an instruction.
//!
//! `vpdpbusd` adds four byte products to a 32-bit sum and cannot overflow here, so levels need no widening. Both it
//! and `vpdpwssd` take four bytes of input a step, which lets one loop serve bytes and words.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::avx2::pieces;
use super::{BLOCK, Bits, Bytes, PANEL, PATTERNS, Reals, Run, Words};

/// Positions that share a tile of tables.
const SHARED: usize = 256;
/// Bytes of tables that stay in the first cache while positions pass.
const TABLE_BYTES: usize = 24 << 10;

pub(crate) fn bytes(tile: Bytes<'_>) {
    tile.check(4, 4);
    // SAFETY: the check above covers every access, and these kernels are only chosen where AVX-512 VNNI is present.
    unsafe {
        let (inputs, weights) = (tile.inputs.as_ptr(), tile.weights.as_ptr() as *const u8);
        dot::<false>(inputs, tile.positions, tile.runs, weights, tile.blocks, tile.sums.as_mut_ptr());
    }
}

pub(crate) fn words(tile: Words<'_>) {
    tile.check(2, 2);
    // SAFETY: as for `bytes`.
    unsafe {
        let (inputs, weights) = (tile.inputs.as_ptr() as *const u8, tile.weights.as_ptr() as *const u8);
        dot::<true>(inputs, tile.positions, tile.runs, weights, tile.blocks, tile.sums.as_mut_ptr());
    }
}

pub(crate) fn bits(tile: Bits<'_>) {
    tile.check(1, PATTERNS);
    // SAFETY: as for `bytes`; patterns are masked to four bits where they are used.
    unsafe {
        match tile.blocks {
            1 => bits_avx512::<0, 1>(tile),
            2 => bits_avx512::<1, 0>(tile),
            3 => bits_avx512::<1, 1>(tile),
            _ => bits_avx512::<2, 0>(tile),
        }
    }
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
    runs: &[Run],
    weights: *const u8,
    blocks: usize,
    mut sums: *mut i32,
) {
    // SAFETY: the caller has checked runs, weights and sums.
    unsafe {
        // As many positions at once as sums fit the registers beside the weights of a step.
        macro_rules! pass {
            ($blocks:literal, $($together:literal),+) => {{$(
                while let Some((now, rest)) = positions.split_first_chunk::<$together>() {
                    dot_block::<WORDS, $blocks, $together>(inputs, now, runs, weights, sums);
                    sums = sums.add($together * $blocks * BLOCK);
                    positions = rest;
                }
            )+}};
        }
        match blocks {
            1 => pass!(1, 12, 4, 1),
            2 => pass!(2, 12, 4, 1),
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
    runs: &[Run],
    weights: *const u8,
    sums: *mut i32,
) {
    let size = if WORDS { 2 } else { 1 };
    let steps: usize = runs.iter().map(|run| run.steps).sum();
    let mut total = [[_mm512_setzero_si512(); B]; P];
    // SAFETY: the caller's runs, weights and sums are in bounds.
    unsafe {
        let mut from_weights: [*const u8; B] = std::array::from_fn(|block| weights.add(block * steps * 64));
        for run in runs {
            let from: [*const u8; P] = std::array::from_fn(|p| inputs.add((positions[p] as usize + run.offset) * size));
            for step in 0..run.steps {
                let weights: [__m512i; B] = std::array::from_fn(|block| {
                    _mm512_loadu_si512(from_weights[block].add(step * 64) as *const __m512i)
                });
                for p in 0..P {
                    let input = _mm512_set1_epi32((from[p].add(step * 4) as *const i32).read_unaligned());
                    for block in 0..B {
                        total[p][block] = match WORDS {
                            true => _mm512_dpwssd_epi32(total[p][block], input, weights[block]),
                            false => _mm512_dpbusd_epi32(total[p][block], input, weights[block]),
                        };
                    }
                }
            }
            for from in &mut from_weights {
                *from = from.add(run.steps * 64);
            }
        }
        for (p, total) in total.iter().enumerate() {
            for (block, &total) in total.iter().enumerate() {
                _mm512_storeu_si512(sums.add((p * B + block) * BLOCK) as *mut __m512i, total);
            }
        }
    }
}

/// `Z` registers of 32 channels and `Y` of 16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
unsafe fn bits_avx512<const Z: usize, const Y: usize>(tile: Bits<'_>) {
    const { assert!(2 * Z + Y <= PANEL) };
    let width = (2 * Z + Y) * BLOCK;
    let most = TABLE_BYTES / (PATTERNS * width * 2);
    let mut narrow = [const { MaybeUninit::<([__m512i; Z], [__m256i; Y])>::uninit() }; SHARED];
    for (positions, sums) in tile.positions.chunks(SHARED).zip(tile.sums.chunks_mut(SHARED * width)) {
        let mut tables = tile.weights.as_ptr() as *const u8;
        for piece in pieces(tile.runs, most) {
            for (i, &at) in positions.iter().enumerate() {
                // SAFETY: `Tile::check` for inputs and tables; a sum is read only after its opening piece wrote it.
                unsafe {
                    let from = tile.inputs.as_ptr().add(at as usize + piece.offset);
                    let (mut wide, mut rest) = match piece.opens {
                        true => ([_mm512_setzero_si512(); Z], [_mm256_setzero_si256(); Y]),
                        false => narrow[i].assume_init(),
                    };
                    let mut table = tables;
                    for step in 0..piece.steps {
                        let row = table.add((*from.add(step) & 15) as usize * (width * 2));
                        for (z, total) in wide.iter_mut().enumerate() {
                            *total = _mm512_add_epi16(*total, _mm512_loadu_si512(row.add(z * 64) as *const __m512i));
                        }
                        for (y, total) in rest.iter_mut().enumerate() {
                            let row = row.add(Z * 64 + y * 32) as *const __m256i;
                            *total = _mm256_add_epi16(*total, _mm256_loadu_si256(row));
                        }
                        table = table.add(PATTERNS * width * 2);
                    }
                    if piece.closes {
                        let sums = sums.as_mut_ptr().add(i * width);
                        for (z, &total) in wide.iter().enumerate() {
                            spill(_mm512_castsi512_si256(total), sums.add(z * 32), piece.starts);
                            spill(_mm512_extracti64x4_epi64::<1>(total), sums.add(z * 32 + 16), piece.starts);
                        }
                        for (y, &total) in rest.iter().enumerate() {
                            spill(total, sums.add(Z * 32 + y * 16), piece.starts);
                        }
                    } else {
                        narrow[i].write((wide, rest));
                    }
                }
            }
            // SAFETY: `Tile::check`: the tables of all runs are there.
            tables = unsafe { tables.add(piece.steps * PATTERNS * width * 2) };
        }
    }
}

/// Adds 16-bit sums to 32-bit ones, or starts those.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn spill(narrow: __m256i, sums: *mut i32, starts: bool) {
    // SAFETY: the caller's sums hold a block.
    unsafe {
        let to = sums as *mut __m512i;
        let before = if starts { _mm512_setzero_si512() } else { _mm512_loadu_si512(to) };
        _mm512_storeu_si512(to, _mm512_add_epi32(before, _mm512_cvtepi16_epi32(narrow)));
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn reals_avx512(tile: Reals<'_>) {
    let width = tile.blocks * BLOCK;
    let block_weights = tile.steps() * BLOCK;
    for block in 0..tile.blocks {
        // SAFETY: `Tile::check`.
        unsafe {
            let weights = tile.weights.as_ptr().add(block * block_weights);
            let mut sums = tile.sums.as_mut_ptr().add(block * BLOCK);
            let mut positions = tile.positions;
            while let Some((twelve, rest)) = positions.split_first_chunk::<12>() {
                reals_block(tile.inputs.as_ptr(), twelve, tile.runs, weights, sums, width);
                sums = sums.add(12 * width);
                positions = rest;
            }
            while let Some((one, rest)) = positions.split_first_chunk::<1>() {
                reals_block(tile.inputs.as_ptr(), one, tile.runs, weights, sums, width);
                sums = sums.add(width);
                positions = rest;
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn reals_block<const P: usize>(
    inputs: *const f32,
    positions: &[u32; P],
    runs: &[Run],
    mut weights: *const f32,
    sums: *mut f32,
    width: usize,
) {
    let mut total = [_mm512_setzero_ps(); P];
    // SAFETY: the caller's runs, weights and sums are in bounds.
    unsafe {
        for run in runs {
            let from: [*const f32; P] = std::array::from_fn(|p| inputs.add(positions[p] as usize + run.offset));
            for step in 0..run.steps {
                let row = _mm512_loadu_ps(weights);
                weights = weights.add(16);
                for p in 0..P {
                    total[p] = _mm512_fmadd_ps(_mm512_set1_ps(*from[p].add(step)), row, total[p]);
                }
            }
        }
        for (p, &total) in total.iter().enumerate() {
            _mm512_storeu_ps(sums.add(p * width), total);
        }
    }
}
