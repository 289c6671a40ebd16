//! Floating-point numbers, with the roundings that PTX names.

use crate::integer::{compare, one, three, two};
use crate::registers::{Compute, Operands, Registers};

/// What is too small for a normal number becomes a zero of its sign.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

fn single(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn small(bits: u32) -> f32 {
    flushed(f32::from_bits(bits))
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

macro_rules! f1 {
    ($flush:expr, $f:expr) => {
        match $flush {
            true => one!(u32 => u32, |a| flushed($f(small(a))).to_bits()),
            false => one!(u32 => u32, |a| $f(single(a)).to_bits()),
        }
    };
}
macro_rules! f2 {
    ($flush:expr, $f:expr) => {
        match $flush {
            true => two!(u32, u32 => u32, |a, b| flushed($f(small(a), small(b))).to_bits()),
            false => two!(u32, u32 => u32, |a, b| $f(single(a), single(b)).to_bits()),
        }
    };
}
macro_rules! f3 {
    ($flush:expr, $f:expr) => {
        match $flush {
            true => three!(u32, u32, u32 => u32, |a, b, c| flushed($f(small(a), small(b), small(c))).to_bits()),
            false => three!(u32, u32, u32 => u32, |a, b, c| $f(single(a), single(b), single(c)).to_bits()),
        }
    };
}
macro_rules! d1 {
    ($f:expr) => {
        one!(u64 => u64, |a| $f(double(a)).to_bits())
    };
}
macro_rules! d2 {
    ($f:expr) => {
        two!(u64, u64 => u64, |a, b| $f(double(a), double(b)).to_bits())
    };
}

/// The larger, of zeros the positive one; of a number and none the number.
fn larger(a: f32, b: f32) -> f32 {
    if a == b { if a.is_sign_positive() { a } else { b } } else { a.max(b) }
}

fn smaller(a: f32, b: f32) -> f32 {
    if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
}

fn larger_or_none(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { larger(a, b) }
}

fn smaller_or_none(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { smaller(a, b) }
}

/// a·b + c, rounded down.
fn fused_down(a: f32, b: f32, c: f32) -> f32 {
    // The product is exact in f64, and so is what the sum loses.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let back = sum - product;
    let lost = (product - (sum - back)) + (c - back);
    let rounded = sum as f32;
    let above = f64::from(rounded) > sum || (f64::from(rounded) == sum && lost < 0.0);
    if above { rounded.next_down() } else { rounded }
}

#[inline(always)]
fn plain_f32<const FLUSH: bool>(r: &mut Registers, i: &Operands, mask: u32) {
    let z = |bits: u32| if FLUSH { small(bits) } else { single(bits) };
    r.three::<u32, u32, u32, u32>(i, mask, |a, b, c| {
        let value = z(a).mul_add(z(b), z(c));
        if FLUSH { flushed(value).to_bits() } else { value.to_bits() }
    });
}

#[inline(always)]
fn plain_f64(r: &mut Registers, i: &Operands, mask: u32) {
    r.three::<u64, u64, u64, u64>(i, mask, |a, b, c| double(a).mul_add(double(b), double(c)).to_bits());
}

/// a·b + c. Without the CPU's own instruction each lane is a call, and these are most of what kernels do.
fn fused_f32<const FLUSH: bool>(r: &mut Registers, i: &Operands, mask: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn fast<const FLUSH: bool>(r: &mut Registers, i: &Operands, mask: u32) {
            plain_f32::<FLUSH>(r, i, mask);
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has both.
            return unsafe { fast::<FLUSH>(r, i, mask) };
        }
    }
    plain_f32::<FLUSH>(r, i, mask);
}

fn fused_f64(r: &mut Registers, i: &Operands, mask: u32) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn fast(r: &mut Registers, i: &Operands, mask: u32) {
            plain_f64(r, i, mask);
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has both.
            return unsafe { fast(r, i, mask) };
        }
    }
    plain_f64(r, i, mask);
}

fn clamped(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// Its upper half alone, as the hardware's first guess.
fn guess(value: f64) -> f64 {
    f64::from_bits(value.to_bits() & !0xffff_ffff)
}

/// What is done with f32.
pub(crate) fn of_f32(name: &str, modifiers: &[&str]) -> Option<Compute> {
    let has = |word: &str| modifiers.contains(&word);
    let flush = has("ftz");
    // Roundings other than to the nearest are known where they occur.
    let rounding = modifiers.iter().find(|m| ["rz", "rm", "rp"].contains(m)).copied();
    match (name, rounding) {
        ("fma", Some("rm")) => return f3!(flush, fused_down),
        (_, Some(_)) => return None,
        _ => {}
    }
    match name {
        "add" if has("sat") => f2!(flush, |a: f32, b: f32| clamped(a + b)),
        "add" => f2!(flush, |a: f32, b: f32| a + b),
        "sub" => f2!(flush, |a: f32, b: f32| a - b),
        "mul" if has("sat") => f2!(flush, |a: f32, b: f32| clamped(a * b)),
        "mul" => f2!(flush, |a: f32, b: f32| a * b),
        "fma" | "mad" if has("sat") => f3!(flush, |a: f32, b: f32, c: f32| clamped(a.mul_add(b, c))),
        "fma" | "mad" if flush => Some(fused_f32::<true>),
        "fma" | "mad" => Some(fused_f32::<false>),
        "div" => f2!(flush, |a: f32, b: f32| a / b),
        "rcp" => f1!(flush, |a: f32| 1.0 / a),
        "sqrt" => f1!(flush, f32::sqrt),
        "rsqrt" => f1!(flush, |a: f32| (1.0 / f64::from(a).sqrt()) as f32),
        "ex2" => f1!(flush, f32::exp2),
        "lg2" => f1!(flush, f32::log2),
        "sin" => f1!(flush, f32::sin),
        "cos" => f1!(flush, f32::cos),
        "tanh" => f1!(flush, f32::tanh),
        "abs" => f1!(flush, f32::abs),
        "neg" => f1!(flush, |a: f32| -a),
        "max" if has("NaN") => f2!(flush, larger_or_none),
        "min" if has("NaN") => f2!(flush, smaller_or_none),
        "max" => f2!(flush, larger),
        "min" => f2!(flush, smaller),
        "copysign" => f2!(false, |a: f32, b: f32| b.copysign(a)),
        _ => None,
    }
}

/// What is done with f64.
pub(crate) fn of_f64(name: &str, modifiers: &[&str]) -> Option<Compute> {
    if modifiers.iter().any(|m| ["rz", "rm", "rp", "sat"].contains(m)) {
        return None;
    }
    match name {
        "add" => d2!(|a: f64, b: f64| a + b),
        "sub" => d2!(|a: f64, b: f64| a - b),
        "mul" => d2!(|a: f64, b: f64| a * b),
        "fma" | "mad" => Some(fused_f64),
        "div" => d2!(|a: f64, b: f64| a / b),
        "rcp" if modifiers.contains(&"approx") => d1!(|a: f64| guess(1.0 / a)),
        "rcp" => d1!(|a: f64| 1.0 / a),
        "rsqrt" => d1!(|a: f64| guess(1.0 / a.sqrt())),
        "sqrt" => d1!(f64::sqrt),
        "abs" => d1!(f64::abs),
        "neg" => d1!(|a: f64| -a),
        "max" => d2!(|a: f64, b: f64| if a == b { if a.is_sign_positive() { a } else { b } } else { a.max(b) }),
        "min" => d2!(|a: f64, b: f64| if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }),
        "copysign" => d2!(|a: f64, b: f64| b.copysign(a)),
        _ => None,
    }
}

/// Truth of a comparison; those that end in `u` also hold where there is no number.
#[allow(clippy::neg_cmp_op_on_partial_ord)]
pub(crate) fn comparison(how: &str, kind: &str, flush: bool) -> Option<Compute> {
    macro_rules! by {
        ($lane:ty, $read:expr) => {
            match how {
                "eq" => compare!($lane, |a, b| $read(a) == $read(b)),
                "ne" => compare!($lane, |a, b| $read(a) < $read(b) || $read(a) > $read(b)),
                "lt" => compare!($lane, |a, b| $read(a) < $read(b)),
                "le" => compare!($lane, |a, b| $read(a) <= $read(b)),
                "gt" => compare!($lane, |a, b| $read(a) > $read(b)),
                "ge" => compare!($lane, |a, b| $read(a) >= $read(b)),
                "equ" => compare!($lane, |a, b| !($read(a) < $read(b) || $read(a) > $read(b))),
                "neu" => compare!($lane, |a, b| $read(a) != $read(b)),
                "ltu" => compare!($lane, |a, b| !($read(a) >= $read(b))),
                "leu" => compare!($lane, |a, b| !($read(a) > $read(b))),
                "gtu" => compare!($lane, |a, b| !($read(a) <= $read(b))),
                "geu" => compare!($lane, |a, b| !($read(a) < $read(b))),
                "num" => compare!($lane, |a, b| !$read(a).is_nan() && !$read(b).is_nan()),
                "nan" => compare!($lane, |a, b| $read(a).is_nan() || $read(b).is_nan()),
                _ => None,
            }
        };
    }
    match (kind, flush) {
        ("f32", true) => by!(u32, small),
        ("f32", false) => by!(u32, single),
        ("f64", _) => by!(u64, double),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_down_is_never_above() {
        let (tiny, one) = (2f32.powi(-40), 1f32);
        assert_eq!(fused_down(one, one, tiny), one);
        assert_eq!(fused_down(one, one, -tiny), one.next_down());
        assert_eq!(fused_down(2.0, 3.0, 4.0), 10.0);
        // A sum that f64 cannot hold either.
        assert_eq!(fused_down(one, one, -2f32.powi(-100)), one.next_down());
        assert_eq!(fused_down(3.0, -5.0, 2f32.powi(-100)), -15.0);
    }

    #[test]
    fn zeros_have_signs_and_nothing_is_no_number() {
        assert!(larger(-0.0, 0.0).is_sign_positive() && smaller(0.0, -0.0).is_sign_negative());
        assert_eq!(larger(f32::NAN, 2.0), 2.0);
        assert!(larger_or_none(f32::NAN, 2.0).is_nan());
        assert_eq!(flushed(-1e-40).to_bits(), (-0f32).to_bits());
    }
}
