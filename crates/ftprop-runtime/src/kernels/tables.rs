//! Lookup tables of partial sums, for layers on bits: what the kernels of AVX2 and AVX-512 have in common.

use super::Run;

/// Positions that share a tile of tables.
pub(super) const SHARED: usize = 256;

/// Part of a run whose tables fit the first cache.
pub(super) struct Piece {
    pub(super) offset: usize,
    pub(super) steps: usize,
    /// Whether a 16-bit sum begins or ends here.
    pub(super) opens: bool,
    pub(super) closes: bool,
    /// Whether that 16-bit sum is the first part of the 32-bit one.
    pub(super) starts: bool,
}

/// Cuts runs into even pieces of at most `most` steps and says where 16-bit sums, of `narrow` steps, begin and end.
pub(super) fn pieces(runs: &[Run], most: usize, narrow: usize) -> impl Iterator<Item = Piece> + '_ {
    let cut = move |run: &Run| {
        let (count, offset, steps) = (run.steps.div_ceil(most), run.offset, run.steps);
        (0..count).map(move |i| {
            let (start, end) = (i * steps / count, (i + 1) * steps / count);
            (offset + start, end - start)
        })
    };
    let mut upcoming = runs.iter().flat_map(cut).peekable();
    let mut summed = 0;
    let mut starts = true;
    std::iter::from_fn(move || {
        let (offset, steps) = upcoming.next()?;
        let opens = summed == 0;
        summed += steps;
        let closes = upcoming.peek().is_none_or(|(_, next)| summed + next > narrow);
        let piece = Piece { offset, steps, opens, closes, starts };
        if closes {
            (summed, starts) = (0, false);
        }
        Some(piece)
    })
}

/// The pointer itself, computed once: otherwise each of a row's loads would add its two parts again, and an addition
/// from such an address counts as two operations.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "the pointer passes through, nothing is read")]
pub(super) fn pinned(mut pointer: *const u8) -> *const u8 {
    // SAFETY: no instruction at all.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}

/// Defines `bits_piece`, which adds rows of R registers, each of them as wide as so many blocks. A macro, so that the loop is
/// compiled with the instruction set of the file that it stands in, which also has `spill`.
macro_rules! table_rows {
    ($features:literal, $register:ty, $blocks:literal, $zero:ident, $load:ident, $add:ident) => {
        /// Adds one piece's table rows for some positions.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn bits_piece<const R: usize, const P: usize>(
            inputs: &[u8],
            positions: [u32; P],
            piece: &Piece,
            mut table: *const u8,
            narrow: &mut [MaybeUninit<[$register; R]>],
            sums: *mut i32,
        ) {
            let width = R * $blocks * BLOCK;
            // SAFETY: the caller has checked inputs, tables and sums; a sum is read only after its opening piece wrote it.
            unsafe {
                let from: [*const u8; P] =
                    std::array::from_fn(|p| inputs.as_ptr().add(positions[p] as usize + piece.offset));
                let mut total = [[$zero(); R]; P];
                if !piece.opens {
                    total = std::array::from_fn(|p| narrow[p].assume_init());
                }
                // Adds the rows that patterns pick from the table `ahead` of the current one.
                let add = |total: &mut [[$register; R]; P], table: *const u8, ahead: usize, patterns: [u32; P]| {
                    for p in 0..P {
                        let row = pinned(table.add((patterns[p] & 15) as usize * (width * 2)));
                        let row = row.add(ahead * PATTERNS * width * 2) as *const $register;
                        for (part, total) in total[p].iter_mut().enumerate() {
                            *total = $add(*total, $load(row.add(part)));
                        }
                    }
                };
                // Loads are what limits this loop, so patterns are loaded four at a time.
                for step in (0..piece.steps & !3).step_by(4) {
                    let four: [u32; P] = std::array::from_fn(|p| (from[p].add(step) as *const u32).read_unaligned());
                    for ahead in 0..4 {
                        add(&mut total, table, ahead, four.map(|four| four >> (8 * ahead)));
                    }
                    table = table.add(4 * PATTERNS * width * 2);
                }
                for step in piece.steps & !3..piece.steps {
                    add(&mut total, table, 0, std::array::from_fn(|p| *from[p].add(step) as u32));
                    table = table.add(PATTERNS * width * 2);
                }
                for p in 0..P {
                    if piece.closes {
                        spill(&total[p], sums.add(p * width), piece.starts);
                    } else {
                        narrow[p].write(total[p]);
                    }
                }
            }
        }
    };
}
pub(super) use table_rows;
