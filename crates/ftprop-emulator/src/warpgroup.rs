//! Products of four warps together (`wgmma`), whose operands lie in shared memory. Each warp has sixteen of the 64 rows.
//!
//! Such a product reads memory some time between when it is asked for and when it is waited for; so what it reads counts as
//! read at both.

use crate::registers::{LANES, Register, Registers, Source};
use crate::shared::{SharedMemory, Touch};

/// What its operands are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Bf16,
    Tf32,
}

impl Numbers {
    fn bytes(self) -> usize {
        match self {
            Numbers::Bf16 => 2,
            Numbers::Tf32 => 4,
        }
    }

    /// Numbers of a row of a and a column of b: 32 bytes.
    fn depth(self) -> usize {
        32 / self.bytes()
    }
}

/// Where the first operand is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    Registers([Source; 4]),
    Shared(Source),
}

/// 64×N += 64×K · K×N.
#[derive(Clone, Debug)]
pub(crate) struct GroupProduct {
    pub(crate) numbers: Numbers,
    /// Where the sums are; two numbers of a row of each of four threads, of two rows eight apart, then the next eight columns.
    pub(crate) sums: Box<[Register]>,
    pub(crate) left: Left,
    pub(crate) right: Source,
    /// Whether numbers of a and of b that follow each other in memory have the same depth.
    pub(crate) wide: [bool; 2],
}

/// What a warp's products read: places of 16 bytes in shared memory.
pub(crate) type ReadPlaces = Vec<u64>;

/// A matrix in shared memory in pieces of eight rows of 16 bytes.
struct Pieces {
    start: u64,
    leading: u64,
    stride: u64,
}

impl Pieces {
    fn of(descriptor: u64) -> Result<Self, String> {
        let field = |at: u32| (descriptor >> at & 0x3fff) << 4;
        match descriptor >> 62 {
            0 => Ok(Pieces { start: field(0), leading: field(16), stride: field(32) }),
            _ => Err("a matrix in an order that is not known here".into()),
        }
    }

    /// The 16 bytes that hold a number: of row or column `at`, so deep.
    fn place(&self, at: usize, depth: usize, wide: bool, numbers: Numbers) -> u64 {
        let each = 16 / numbers.bytes();
        let (deep, down, row) = if wide { (depth / 8, at / each, depth % 8) } else { (depth / each, at / 8, at % 8) };
        self.start + deep as u64 * self.leading + down as u64 * self.stride + 16 * row as u64
    }
}

/// Reads numbers of one operand, and notes from where.
struct Reader<'a> {
    shared: &'a mut SharedMemory,
    warp: u32,
    numbers: Numbers,
    places: &'a mut ReadPlaces,
}

impl Reader<'_> {
    /// So many rows or columns, one after another.
    fn matrix(&mut self, descriptor: u64, wide: bool, from: usize, count: usize) -> Result<Vec<f32>, String> {
        let (pieces, depth, each) = (Pieces::of(descriptor)?, self.numbers.depth(), 16 / self.numbers.bytes());
        let mut out = vec![0f32; count * depth];
        for piece in 0..count * depth / each {
            let (at, k) =
                if wide { (piece / depth * each, piece % depth) } else { (piece * each / depth, piece * each % depth) };
            let place = pieces.place(from + at, k, wide, self.numbers);
            let bytes = self.shared.place(place, 16)?;
            self.shared.note(place, 16, self.warp, Touch::Read)?;
            self.places.push(place);
            for inside in 0..each {
                // SAFETY: 16 bytes of shared memory are there, and the number is among them.
                let number = match self.numbers {
                    Numbers::Bf16 => u32::from(unsafe { bytes.cast::<u16>().add(inside).read() }) << 16,
                    // What an f32 has beyond a tf32 is not looked at.
                    Numbers::Tf32 => (unsafe { bytes.cast::<u32>().add(inside).read() }) & !0x1fff,
                };
                let (at, k) = if wide { (at + inside, k) } else { (at, k + inside) };
                out[at * depth + k] = f32::from_bits(number);
            }
        }
        Ok(out)
    }
}

impl GroupProduct {
    /// Adds a warp's rows of the product to its sums. Sums are taken in f64 and rounded once; the hardware's own order and
    /// width are not documented.
    pub(crate) fn run(
        &self,
        r: &mut Registers,
        warp: u32,
        shared: &mut SharedMemory,
        places: &mut ReadPlaces,
    ) -> Result<(), String> {
        let (columns, depth) = (self.sums.len() * 2, self.numbers.depth());
        let mut reader = Reader { shared, warp, numbers: self.numbers, places };
        let uniform = |r: &Registers, source: Source| {
            let all = r.read::<u64>(source);
            all.iter().all(|one| *one == all[0]).then_some(all[0]).ok_or("lanes mean different matrices".to_string())
        };
        let left = match self.left {
            Left::Shared(source) => reader.matrix(uniform(r, source)?, self.wide[0], warp as usize % 4 * 16, 16)?,
            Left::Registers(sources) => {
                let mut left = vec![0f32; 16 * depth];
                for (register, source) in sources.into_iter().enumerate() {
                    for (lane, word) in r.read::<u32>(source).iter().enumerate() {
                        let row = register % 2 * 8 + lane / 4;
                        match self.numbers {
                            Numbers::Bf16 => {
                                let at = row * depth + register / 2 * 8 + lane % 4 * 2;
                                left[at] = f32::from_bits(word << 16);
                                left[at + 1] = f32::from_bits(word & 0xffff_0000);
                            }
                            Numbers::Tf32 => {
                                left[row * depth + register / 2 * 4 + lane % 4] = f32::from_bits(word & !0x1fff);
                            }
                        }
                    }
                }
                left
            }
        };
        let right = reader.matrix(uniform(r, self.right)?, self.wide[1], 0, columns)?;
        for (at, register) in self.sums.iter().enumerate() {
            let (eight, row, column) = (at / 4, at % 4 / 2 * 8, at % 2);
            let sums = *r.read::<u32>(Source::Register(register.line));
            let out: [u32; LANES] = std::array::from_fn(|lane| {
                let (row, column) = (row + lane / 4, eight * 8 + lane % 4 * 2 + column);
                let (a, b) = (&left[row * depth..][..depth], &right[column * depth..][..depth]);
                let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                ((f64::from(f32::from_bits(sums[lane])) + sum) as f32).to_bits()
            });
            r.write(*register, &out, !0);
        }
        Ok(())
    }
}
