//! Instructions of a whole warp: lanes that look at each other, and small products of matrices.

use crate::convert::bf16;
use crate::registers::{LANES, Operands, Registers};

/// Which lane another reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What becomes of the lanes' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Add,
    MinSigned,
    MaxSigned,
    MinUnsigned,
    MaxUnsigned,
    And,
    Or,
    Xor,
}

/// What lanes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Only wait for each other.
    Meet,
    Shuffle(Shuffle),
    Ballot,
    Any,
    All,
    Reduce(Reduction),
    /// Which lanes are here.
    Active,
    /// Four 8×8 matrices of 16 bits from shared memory; how many, and whether rows become columns.
    LoadMatrix {
        count: usize,
        transposed: bool,
    },
    /// An 8×8 matrix of 16 bits whose rows become columns.
    TurnMatrix,
    /// 16×8 += 16×16 · 16×8.
    ProductBf16,
    /// 16×8 += 16×8 · 8×8.
    ProductTf32,
    /// 16×8 += 16×32 · 32×8, of signed bytes.
    ProductS8,
}

impl Together {
    /// The lanes that must be here, from the instruction's own operand.
    pub(crate) fn members(self, r: &Registers, i: &Operands, first: usize) -> u32 {
        let at = match self {
            Together::Meet => 0,
            Together::Shuffle(_) => 3,
            Together::Ballot | Together::Any | Together::All => 0,
            Together::Reduce(_) => 1,
            Together::Active => return 0,
            Together::LoadMatrix { .. }
            | Together::TurnMatrix
            | Together::ProductBf16
            | Together::ProductTf32
            | Together::ProductS8 => return !0,
        };
        r.read::<u32>(i.from[at])[first]
    }

    /// Does it, for those lanes; what is wrong where something is. `LoadMatrix` needs memory and is not done here.
    pub(crate) fn run(self, r: &mut Registers, i: &Operands, mask: u32) -> Result<(), String> {
        match self {
            Together::Meet | Together::LoadMatrix { .. } => {}
            Together::Shuffle(how) => return shuffle(how, r, i, mask),
            Together::Ballot => {
                let bits = r.predicate(i.from_predicates[0]) & mask;
                r.write::<u32>(i.to[0], &[bits; LANES], mask);
            }
            Together::Any | Together::All => {
                let bits = r.predicate(i.from_predicates[0]) & mask;
                let truth = if self == Together::Any { bits != 0 } else { bits == mask };
                r.set_predicate(i.to_predicates[0], if truth { !0 } else { 0 }, mask);
            }
            Together::Active => r.write::<u32>(i.to[0], &[mask; LANES], mask),
            Together::Reduce(how) => {
                let values = *r.read::<u32>(i.from[0]);
                let values = (0..LANES).filter(|lane| mask >> lane & 1 != 0).map(|lane| values[lane]);
                let result = values.reduce(|a, b| reduced(how, a, b)).unwrap_or(0);
                r.write::<u32>(i.to[0], &[result; LANES], mask);
            }
            Together::TurnMatrix => {
                let pairs = *r.read::<u32>(i.from[0]);
                let rows = std::array::from_fn(|row| {
                    std::array::from_fn(|column| (pairs[row * 4 + column / 2] >> (16 * (column % 2))) as u16)
                });
                r.write::<u32>(i.to[0], &spread_matrix(&rows, true), mask);
            }
            Together::ProductBf16 => product_bf16(r, i),
            Together::ProductTf32 => product_tf32(r, i),
            Together::ProductS8 => product_s8(r, i),
        }
        Ok(())
    }
}

fn reduced(how: Reduction, a: u32, b: u32) -> u32 {
    match how {
        Reduction::Add => a.wrapping_add(b),
        Reduction::MinSigned => (a as i32).min(b as i32) as u32,
        Reduction::MaxSigned => (a as i32).max(b as i32) as u32,
        Reduction::MinUnsigned => a.min(b),
        Reduction::MaxUnsigned => a.max(b),
        Reduction::And => a & b,
        Reduction::Or => a | b,
        Reduction::Xor => a ^ b,
    }
}

fn shuffle(how: Shuffle, r: &mut Registers, i: &Operands, mask: u32) -> Result<(), String> {
    let [values, by, clamp] = [0, 1, 2].map(|k| *r.read::<u32>(i.from[k]));
    let (mut out, mut inside) = ([0; LANES], 0);
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        let (me, by, segment) = (lane as u32, by[lane] & 31, clamp[lane] >> 8 & 31);
        let last = (me & segment) | (clamp[lane] & 31 & !segment);
        let (other, fits) = match how {
            Shuffle::Up => (me.wrapping_sub(by), me as i32 - by as i32 >= last as i32),
            Shuffle::Down => (me + by, me + by <= last),
            Shuffle::Butterfly => (me ^ by, me ^ by <= last),
            Shuffle::Index => {
                let other = (me & segment) | (by & !segment);
                (other, other <= last)
            }
        };
        let other = if fits { other as usize } else { lane };
        if mask >> other & 1 == 0 {
            return Err(format!("lane {lane} reads lane {other}, which is not here"));
        }
        out[lane] = values[other];
        inside |= u32::from(fits) << lane;
    }
    r.write(i.to[0], &out, mask);
    if i.to_predicates[0] != 0 {
        r.set_predicate(i.to_predicates[0], inside, mask);
    }
    Ok(())
}

/// What each lane gets of 8×8 matrices whose rows these are.
pub(crate) fn spread_matrix(rows: &[[u16; 8]; 8], transposed: bool) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        let (low, high) = match transposed {
            false => (rows[row][column], rows[row][column + 1]),
            true => (rows[column][row], rows[column + 1][row]),
        };
        u32::from(low) | u32::from(high) << 16
    })
}

/// The 16×8 numbers that are added to, where each lane has four.
fn added(r: &Registers, i: &Operands, first: usize) -> [[u32; LANES]; 4] {
    std::array::from_fn(|k| *r.read::<u32>(i.from[first + k]))
}

/// c + a·b for rows of a and columns of b of `K` numbers. Sums are taken in f64 and rounded once; the hardware's own order
/// and width are not documented.
fn product<const K: usize>(r: &mut Registers, i: &Operands, a: &[[f32; K]; 16], b: &[[f32; K]; 8]) {
    let c = added(r, i, 6);
    let mut out = [[0u32; LANES]; 4];
    for (row, a) in a.iter().enumerate() {
        for (column, b) in b.iter().enumerate() {
            let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let (lane, k) = (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
            out[k][lane] = ((f64::from(f32::from_bits(c[k][lane])) + sum) as f32).to_bits();
        }
    }
    for (k, out) in out.iter().enumerate() {
        r.write(i.to[k], out, !0);
    }
}

fn product_bf16(r: &mut Registers, i: &Operands) {
    let half = |word: u32, k: usize| f32::from_bits(if k == 0 { word << 16 } else { word & 0xffff_0000 });
    let (mut a, mut b) = ([[0f32; 16]; 16], [[0f32; 16]; 8]);
    for (register, rows, columns) in [(0, 0, 0), (1, 8, 0), (2, 0, 8), (3, 8, 8)] {
        let words = r.read::<u32>(i.from[register]);
        for (lane, word) in words.iter().enumerate() {
            for k in 0..2 {
                a[rows + lane / 4][columns + lane % 4 * 2 + k] = half(*word, k);
            }
        }
    }
    for register in 0..2 {
        let words = r.read::<u32>(i.from[4 + register]);
        for (lane, word) in words.iter().enumerate() {
            for k in 0..2 {
                b[lane / 4][8 * register + lane % 4 * 2 + k] = half(*word, k);
            }
        }
    }
    product(r, i, &a, &b);
}

fn product_tf32(r: &mut Registers, i: &Operands) {
    // What an f32 has beyond a tf32 is not looked at.
    let number = |word: u32| f32::from_bits(word & !0x1fff);
    let (mut a, mut b) = ([[0f32; 8]; 16], [[0f32; 8]; 8]);
    for (register, rows, columns) in [(0, 0, 0), (1, 8, 0), (2, 0, 4), (3, 8, 4)] {
        for (lane, word) in r.read::<u32>(i.from[register]).iter().enumerate() {
            a[rows + lane / 4][columns + lane % 4] = number(*word);
        }
    }
    for register in 0..2 {
        for (lane, word) in r.read::<u32>(i.from[4 + register]).iter().enumerate() {
            b[lane / 4][4 * register + lane % 4] = number(*word);
        }
    }
    product(r, i, &a, &b);
}

fn product_s8(r: &mut Registers, i: &Operands) {
    let byte = |word: u32, k: usize| i32::from((word >> (8 * k)) as u8 as i8);
    let (mut a, mut b) = ([[0i32; 32]; 16], [[0i32; 32]; 8]);
    for (register, rows, columns) in [(0, 0, 0), (1, 8, 0), (2, 0, 16), (3, 8, 16)] {
        for (lane, word) in r.read::<u32>(i.from[register]).iter().enumerate() {
            for k in 0..4 {
                a[rows + lane / 4][columns + lane % 4 * 4 + k] = byte(*word, k);
            }
        }
    }
    for register in 0..2 {
        for (lane, word) in r.read::<u32>(i.from[4 + register]).iter().enumerate() {
            for k in 0..4 {
                b[lane / 4][16 * register + lane % 4 * 4 + k] = byte(*word, k);
            }
        }
    }
    let c = added(r, i, 6);
    let mut out = [[0u32; LANES]; 4];
    for (row, a) in a.iter().enumerate() {
        for (column, b) in b.iter().enumerate() {
            let sum: i32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            let (lane, k) = (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
            out[k][lane] = (c[k][lane] as i32).wrapping_add(sum) as u32;
        }
    }
    for (k, out) in out.iter().enumerate() {
        r.write(i.to[k], out, !0);
    }
}

/// Two f32 as bf16 in one register, the first in the upper half.
pub(crate) fn pack_bf16(r: &mut Registers, i: &Operands, mask: u32) {
    r.two::<u32, u32, u32>(i, mask, |high, low| {
        u32::from(bf16(f32::from_bits(high))) << 16 | u32::from(bf16(f32::from_bits(low)))
    });
}
