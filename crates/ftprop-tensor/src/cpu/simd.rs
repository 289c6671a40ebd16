//! The vector units, behind one small trait.
//!
//! A kernel is written once, generic over [`Simd`], as a [`Kernel`]; [`dispatch`] compiles it for each
//! instruction set and picks one at run time. On aarch64 NEON is part of the base instruction set, so plain
//! loops become NEON there by themselves.

use crate::TensorError;
use std::sync::OnceLock;

/// What [`Isa::choose`] chose.
static CHOSEN: OnceLock<Isa> = OnceLock::new();

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain arithmetic.
    Portable,
    /// ARM's vectors of four.
    Neon,
    /// Intel's and AMD's vectors of eight, with FMA.
    Avx2,
    /// Their vectors of sixteen.
    Avx512,
}

impl Isa {
    /// The one that was chosen, or the best one of this machine.
    pub fn detect() -> Self {
        CHOSEN.get().copied().unwrap_or_else(Isa::best)
    }

    /// Has every [`Cpu`](super::Cpu) of this process that does not say otherwise compute with this one, from now on and for
    /// good: to see what another machine computes, or to have its bits.
    pub fn choose(self) -> Result<(), TensorError> {
        let unusable = || TensorError::Isa { isa: self };
        let chosen = *self.available().then(|| CHOSEN.get_or_init(|| self)).ok_or_else(unusable)?;
        if chosen == self { Ok(()) } else { Err(unusable()) }
    }

    fn best() -> Self {
        [Isa::Avx512, Isa::Avx2, Isa::Neon].into_iter().find(|isa| isa.available()).unwrap_or(Isa::Portable)
    }

    /// Whether this machine has it.
    pub fn available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            _ => false,
        }
    }

    /// Every one this machine has, for tests that hold them equal.
    pub fn all_available() -> impl Iterator<Item = Isa> {
        [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.available())
    }

    /// Whether it rounds a product and a sum once. All instruction sets that do give the same bits.
    pub fn fuses(self) -> bool {
        self != Isa::Portable
    }

    /// Floats in one vector.
    pub(crate) fn lanes(self) -> usize {
        match self {
            Isa::Portable => Portable::LANES,
            Isa::Neon => 4,
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
        }
    }

    /// Vectors of output columns that one register tile of the product covers.
    pub(crate) fn tile_vectors(self) -> usize {
        match self {
            Isa::Portable => Portable::TILE_VECTORS,
            Isa::Neon => 4,
            Isa::Avx2 => 2,
            Isa::Avx512 => 4,
        }
    }
}

/// What the register-tiled product needs of a vector unit. Its functions ask that the machine has the unit, and that a
/// pointer is valid for the floats that go through it: one to splat, a vector to load and store.
pub(crate) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;
    /// Columns of a register tile, in vectors.
    const TILE_VECTORS: usize;
    /// Enough registers for tiles of 24 accumulators and more.
    const MANY_REGISTERS: bool;
    unsafe fn zero() -> Self::V;
    unsafe fn splat(x: *const f32) -> Self::V;
    unsafe fn load(x: *const f32) -> Self::V;
    unsafe fn store(x: *mut f32, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
}

/// A piece of work compiled for each instruction set.
pub(crate) trait Kernel {
    type Output;
    /// Implementations are `#[inline(always)]`, so that they are compiled inside [`dispatch`]'s functions.
    ///
    /// # Safety
    /// The machine has the vector unit. All else that a kernel relies on was checked before it was made.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// Runs the kernel with the given instruction set.
#[inline]
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa {
        // SAFETY: the portable lanes need nothing of the machine.
        Isa::Portable => unsafe { kernel.run::<Portable>() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Cpu` holds only instruction sets that the machine has.
        Isa::Avx2 => unsafe { x86::avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 => unsafe { x86::avx512(kernel) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: every machine of this kind has NEON.
        Isa::Neon => unsafe { kernel.run::<arm::Neon>() },
        _ => unreachable!("`Cpu` holds only instruction sets that the machine has"),
    }
}

/// Defines a function of plain loops that is compiled for each instruction set: its first argument picks one.
///
/// The compiler's own vectors do the rest. It never fuses a product and a sum by itself, so all of them give the
/// same bits.
macro_rules! vectorised {
    ($(#[$doc:meta])* $visible:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $visible fn $name(isa: $crate::cpu::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn plain($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                plain($($arg),*);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")]
            fn avx512($($arg: $type),*) {
                plain($($arg),*);
            }

            match isa {
                $crate::cpu::Isa::Portable | $crate::cpu::Isa::Neon => plain($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Cpu` holds only instruction sets that the machine has.
                $crate::cpu::Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::cpu::Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                _ => unreachable!("`Cpu` holds only instruction sets that the machine has"),
            }
        }
    };
}

pub(crate) use vectorised;

/// Four lanes of plain arithmetic, for machines that have nothing better.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;
    const TILE_VECTORS: usize = 2;
    const MANY_REGISTERS: bool = false;
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        [0.0; 4]
    }
    #[inline(always)]
    unsafe fn splat(x: *const f32) -> Self::V {
        // SAFETY: the caller's pointer is readable.
        [unsafe { *x }; 4]
    }
    #[inline(always)]
    unsafe fn load(x: *const f32) -> Self::V {
        // SAFETY: the caller's pointer is readable for four floats.
        unsafe { x.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(x: *mut f32, v: Self::V) {
        // SAFETY: the caller's pointer is writable for four floats.
        unsafe { x.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Without an FMA unit `mul_add` would be a library call.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, Simd};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features are enabled here.
        unsafe { kernel.run::<Avx2>() }
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features are enabled here.
        unsafe { kernel.run::<Avx512>() }
    }

    macro_rules! vectors {
        ($name:ident, $v:ty, $lanes:literal, $tile:literal, $many:literal, $zero:ident, $set1:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
            #[derive(Clone, Copy)]
            pub(super) struct $name;
            impl Simd for $name {
                type V = $v;
                const LANES: usize = $lanes;
                const TILE_VECTORS: usize = $tile;
                const MANY_REGISTERS: bool = $many;
                #[inline(always)]
                unsafe fn zero() -> $v {
                    // SAFETY: the features are those of the function that `dispatch` inlines this into.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn splat(x: *const f32) -> $v {
                    // SAFETY: the pointer is the caller's promise; the features are those of the function that `dispatch` inlines this into.
                    unsafe { $set1(*x) }
                }
                #[inline(always)]
                unsafe fn load(x: *const f32) -> $v {
                    // SAFETY: the pointer is the caller's promise; the features are those of the function that `dispatch` inlines this into.
                    unsafe { $load(x) }
                }
                #[inline(always)]
                unsafe fn store(x: *mut f32, v: $v) {
                    // SAFETY: the pointer is the caller's promise; the features are those of the function that `dispatch` inlines this into.
                    unsafe { $store(x, v) }
                }
                #[inline(always)]
                unsafe fn add(a: $v, b: $v) -> $v {
                    // SAFETY: the features are those of the function that `dispatch` inlines this into.
                    unsafe { $add(a, b) }
                }
                #[inline(always)]
                unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: the features are those of the function that `dispatch` inlines this into.
                    unsafe { $fma(a, b, c) }
                }
            }
        };
    }
    vectors!(
        Avx2,
        __m256,
        8,
        2,
        false,
        _mm256_setzero_ps,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_fmadd_ps
    );
    vectors!(
        Avx512,
        __m512,
        16,
        4,
        true,
        _mm512_setzero_ps,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps
    );
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::Simd;
    use std::arch::aarch64::*;

    /// Four lanes and 32 registers.
    #[derive(Clone, Copy)]
    pub(super) struct Neon;

    impl Simd for Neon {
        type V = float32x4_t;
        const LANES: usize = 4;
        const TILE_VECTORS: usize = 4;
        const MANY_REGISTERS: bool = true;
        #[inline(always)]
        unsafe fn zero() -> Self::V {
            // SAFETY: NEON is part of the base instruction set.
            unsafe { vdupq_n_f32(0.0) }
        }
        #[inline(always)]
        unsafe fn splat(x: *const f32) -> Self::V {
            // SAFETY: the pointer is the caller's promise; NEON is part of the base instruction set.
            unsafe { vld1q_dup_f32(x) }
        }
        #[inline(always)]
        unsafe fn load(x: *const f32) -> Self::V {
            // SAFETY: the pointer is the caller's promise; NEON is part of the base instruction set.
            unsafe { vld1q_f32(x) }
        }
        #[inline(always)]
        unsafe fn store(x: *mut f32, v: Self::V) {
            // SAFETY: the pointer is the caller's promise; NEON is part of the base instruction set.
            unsafe { vst1q_f32(x, v) }
        }
        #[inline(always)]
        unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: NEON is part of the base instruction set.
            unsafe { vaddq_f32(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: NEON is part of the base instruction set.
            unsafe { vfmaq_f32(c, a, b) }
        }
    }
}
