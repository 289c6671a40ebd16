//! The inner loops, one file an instruction set, all with the same results to the bit.
//!
//! Every kernel adds products for a tile of output positions and up to [`PANEL`] output channels. Integer kernels
//! are exact, so their order does not matter; the real kernel adds in the order of the weights with fused
//! multiply-adds, in every instruction set. [`scalar`] is the reference that the tests hold the others to.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod tables;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};

/// Output channels that are stored and computed together.
pub(crate) const BLOCK: usize = 16;
/// Blocks that one call may cover.
pub(crate) const PANEL: usize = 4;
/// Lookup tables have one row for each pattern of four bits.
pub(crate) const PATTERNS: usize = 16;

/// Where a kernel finds inputs, in elements after a position's own offset: runs of steps, or each step by itself.
pub(crate) trait Path {
    /// Steps it takes; a step is four bytes, two words, four bits or one real, by the kernel.
    fn steps(&self) -> usize;

    /// Where it ends, if a step has so many elements.
    fn end(&self, elements: usize) -> usize;
}

/// A stretch of inputs that lie side by side for every output position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: usize,
    pub(crate) steps: usize,
}

impl Path for [Run] {
    fn steps(&self) -> usize {
        self.iter().map(|run| run.steps).sum()
    }

    fn end(&self, elements: usize) -> usize {
        self.iter().map(|run| run.offset + run.steps * elements).max().unwrap_or(0)
    }
}

/// Each step by itself. Kernels that multiply have one loop over all steps, as runs may be short and ending a loop
/// costs.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    offsets: Vec<u32>,
    /// The largest, so that a kernel need not look for it.
    last: u32,
}

impl Offsets {
    pub(crate) fn new(offsets: Vec<u32>) -> Self {
        let last = offsets.iter().copied().max().unwrap_or(0);
        Offsets { offsets, last }
    }
}

impl Path for Offsets {
    fn steps(&self) -> usize {
        self.offsets.len()
    }

    fn end(&self, elements: usize) -> usize {
        self.last as usize + elements
    }
}

/// What a kernel reads and writes: `positions.len()` × `blocks · BLOCK` sums.
///
/// Weights of a block follow each other step by step, for each step channel by channel, for each channel input by
/// input. The engine has checked that every position's path lies inside `inputs` and that the rest has the right size.
pub(crate) struct Tile<'a, I, W, O, P: ?Sized> {
    pub(crate) inputs: &'a [I],
    pub(crate) positions: &'a [u32],
    pub(crate) path: &'a P,
    pub(crate) weights: &'a [W],
    pub(crate) blocks: usize,
    /// Steps whose sum fits 16 bits whatever the weights; for tables, all steps if no sum of a whole path leaves
    /// 16 bits in the end, for what overflows on the way comes back.
    pub(crate) narrow: usize,
    pub(crate) sums: &'a mut [O],
}

impl<I, W, O, P: Path + ?Sized> Tile<'_, I, W, O, P> {
    /// Steps of the whole path.
    fn steps(&self) -> usize {
        self.path.steps()
    }

    /// Panics unless every element that a kernel will touch is there; the unsafe kernels call this first.
    fn check(&self, inputs_a_step: usize, weights_a_step: usize) {
        let width = self.blocks * BLOCK;
        let furthest = self.path.end(inputs_a_step);
        let last = self.positions.iter().max().map_or(0, |&at| at as usize);
        assert!(self.blocks <= PANEL && self.sums.len() >= self.positions.len() * width);
        assert!(self.inputs.len() >= last + furthest);
        assert!(self.weights.len() >= self.steps() * weights_a_step * width);
    }
}

/// Steps of [`Bytes`] whose sums fit 16 bits when each channel adds two products a step.
pub(crate) fn narrow_bytes(largest: usize) -> usize {
    i16::MAX as usize / (2 * 127 * largest.max(1))
}

/// Steps of [`Bits`] whose sums fit 16 bits.
pub(crate) const NARROW_BITS: usize = i16::MAX as usize / (4 * 127);

/// Small unsigned inputs (at most 127), 8-bit weights, four inputs a step.
pub(crate) type Bytes<'a> = Tile<'a, u8, i8, i32, Offsets>;
/// 16-bit inputs and weights, two inputs a step.
pub(crate) type Words<'a> = Tile<'a, i16, i16, i32, Offsets>;
/// Real inputs and weights, one input a step.
pub(crate) type Reals<'a> = Tile<'a, f32, f32, f32, [Run]>;
/// Four bits an input byte, and tables of the sums of their weights: for each step a row of `blocks · BLOCK` sums for
/// each of the [`PATTERNS`], all blocks of the panel side by side.
pub(crate) type Bits<'a> = Tile<'a, u8, i16, i32, [Run]>;

/// Sums to levels: each becomes the number of thresholds that it exceeds.
pub(crate) struct Counts<'a> {
    /// `width` sums for each position, `width` a multiple of [`BLOCK`] and at most a panel.
    pub(crate) sums: &'a [i32],
    pub(crate) width: usize,
    /// `steps` rows of `width` thresholds, starting for each position where `rows` says.
    pub(crate) thresholds: &'a [i32],
    pub(crate) steps: usize,
    pub(crate) rows: &'a [u32],
    /// Where each position's levels go, in bytes after `to`: `width` bytes, or with `bits` a quarter of that.
    pub(crate) places: &'a [u32],
    pub(crate) bits: bool,
    pub(crate) to: *mut u8,
    /// Bytes that may be written.
    pub(crate) len: usize,
}

impl Counts<'_> {
    /// Bytes written for each position.
    fn size(&self) -> usize {
        if self.bits { self.width / 4 } else { self.width }
    }

    /// Panics unless everything a kernel will touch is there.
    fn check(&self) {
        let last = |starts: &[u32]| starts.iter().max().map_or(0, |&start| start as usize);
        assert!(self.width > 0 && self.width <= PANEL * BLOCK && self.width.is_multiple_of(BLOCK));
        assert!(self.rows.len() == self.places.len() && self.sums.len() >= self.rows.len() * self.width);
        assert!(self.thresholds.len() >= last(self.rows) + self.steps * self.width);
        assert!(self.len >= last(self.places) + self.size());
        assert!(!self.bits || self.steps == 1);
    }
}

/// Which instruction set the kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Plain Rust, the reference.
    Scalar,
    /// AVX2 with FMA and BMI2: lookup tables for bits, byte multiply-adds for levels.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
    /// NEON, on 64-bit ARM.
    Neon,
}

impl Kernels {
    const ALL: [Kernels; 4] = [Kernels::Avx512, Kernels::Avx2, Kernels::Neon, Kernels::Scalar];

    /// The name that `FTPROP_KERNELS` and the C interface know it by.
    pub fn name(self) -> &'static str {
        match self {
            Kernels::Scalar => "scalar",
            Kernels::Avx2 => "avx2",
            Kernels::Avx512 => "avx512",
            Kernels::Neon => "neon",
        }
    }

    /// Whether this machine can run them.
    pub fn available(self) -> bool {
        match self {
            Kernels::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx2 => avx2_is_here(),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512 => avx2_is_here() && avx512_is_here(),
            #[cfg(target_arch = "aarch64")]
            Kernels::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns, reason = "which kernels are left over depends on the machine compiled for")]
            _ => false,
        }
    }

    /// Whether lookup tables beat products for a layer on bits with so many weights and outputs a channel. Tables are
    /// sixteen bytes for two weights, so enough outputs must share the reading of them, more so once they leave the
    /// second cache. With AVX-512 they beat `vpdpbusd` on AMD (measured: Zen 4). On Intel
    /// AVX2's tables lost to it, and those of AVX-512 have not been measured.
    pub(crate) fn prefers_tables(self, weights: usize, outputs: usize) -> bool {
        let small = weights <= 1 << 18;
        let tables = match self {
            Kernels::Avx2 => true,
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512 => made_by_amd(),
            _ => false,
        };
        tables && outputs >= if small { 16 } else { 196 }
    }

    /// The kernels that run here, the fastest first.
    pub fn all_available() -> Vec<Kernels> {
        Kernels::ALL.into_iter().filter(|kernels| kernels.available()).collect()
    }

    /// Those of a name, if they run here.
    pub fn named(name: &str) -> Result<Kernels> {
        let found = Kernels::all_available().into_iter().find(|kernels| kernels.name() == name);
        found.ok_or_else(|| Error::Kernels {
            name: name.to_string(),
            available: Kernels::all_available().iter().map(|kernels| kernels.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The fastest that run here, or those that the environment variable `FTPROP_KERNELS` names.
    pub fn detect() -> Result<Kernels> {
        match std::env::var("FTPROP_KERNELS") {
            Ok(name) if !name.is_empty() => Kernels::named(&name),
            _ => Ok(Kernels::all_available()[0]),
        }
    }
}

/// Calls the named kernel of the chosen instruction set.
macro_rules! dispatch {
    ($kernels:expr, $kernel:ident($($argument:expr),*)) => {
        match $kernels {
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx2 => avx2::$kernel($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Kernels::Avx512 => avx512::$kernel($($argument),*),
            #[cfg(target_arch = "aarch64")]
            Kernels::Neon => neon::$kernel($($argument),*),
            _ => scalar::$kernel($($argument),*),
        }
    };
}

/// The kernels by name; only those that are [`Kernels::available`] may be called.
impl Kernels {
    pub(crate) fn bytes(self, tile: Bytes<'_>) {
        dispatch!(self, bytes(tile));
    }

    pub(crate) fn words(self, tile: Words<'_>) {
        dispatch!(self, words(tile));
    }

    pub(crate) fn bits(self, tile: Bits<'_>) {
        dispatch!(self, bits(tile));
    }

    pub(crate) fn reals(self, tile: Reals<'_>) {
        dispatch!(self, reals(tile));
    }

    /// Writes levels.
    ///
    /// # Safety
    /// `len` bytes at `to` must be there, and nobody else may touch those that the places mean.
    pub(crate) unsafe fn count(self, counts: &Counts<'_>) {
        counts.check();
        // SAFETY: checked, but for what the caller promises.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Kernels::Avx2 => avx2::count(counts),
                #[cfg(target_arch = "x86_64")]
                Kernels::Avx512 => avx512::count(counts),
                _ => scalar::count(counts),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2_is_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2")
}

#[cfg(target_arch = "x86_64")]
fn avx512_is_here() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(target_arch = "x86_64")]
fn made_by_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}
