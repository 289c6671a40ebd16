//! Whole numbers, bits and choices.

use crate::registers::{Compute, Operands, Registers};

macro_rules! one {
    ($a:ty => $d:ty, $f:expr) => {
        Some((|r: &mut Registers, i: &Operands, mask: u32| r.one::<$a, $d>(i, mask, $f)) as Compute)
    };
}
macro_rules! two {
    ($a:ty, $b:ty => $d:ty, $f:expr) => {
        Some((|r: &mut Registers, i: &Operands, mask: u32| r.two::<$a, $b, $d>(i, mask, $f)) as Compute)
    };
}
macro_rules! three {
    ($a:ty, $b:ty, $c:ty => $d:ty, $f:expr) => {
        Some((|r: &mut Registers, i: &Operands, mask: u32| r.three::<$a, $b, $c, $d>(i, mask, $f)) as Compute)
    };
}
macro_rules! compare {
    ($a:ty, $f:expr) => {
        Some((|r: &mut Registers, i: &Operands, mask: u32| r.compare::<$a>(i, mask, $f)) as Compute)
    };
}
pub(crate) use {compare, one, three, two};

/// 16 bits of a register, with their sign.
fn short(a: u32) -> u32 {
    a as u16 as i16 as u32
}

/// 16 bits of a register.
fn word(a: u32) -> u32 {
    a & 0xffff
}

/// Sums, products and quotients.
pub(crate) fn arithmetic(name: &str, kind: &str) -> Option<Compute> {
    match (name, kind) {
        ("add", "s32" | "u32") => two!(u32, u32 => u32, u32::wrapping_add),
        ("add", "s64" | "u64") => two!(u64, u64 => u64, u64::wrapping_add),
        ("add", "s16" | "u16") => two!(u32, u32 => u32, |a, b| word(a.wrapping_add(b))),
        ("sub", "s32" | "u32") => two!(u32, u32 => u32, u32::wrapping_sub),
        ("sub", "s64" | "u64") => two!(u64, u64 => u64, u64::wrapping_sub),
        ("sub", "s16" | "u16") => two!(u32, u32 => u32, |a, b| word(a.wrapping_sub(b))),
        ("mul.lo", "s32" | "u32") => two!(u32, u32 => u32, u32::wrapping_mul),
        ("mul.lo", "s64" | "u64") => two!(u64, u64 => u64, u64::wrapping_mul),
        ("mul.lo", "s16" | "u16") => two!(u32, u32 => u32, |a, b| word(a.wrapping_mul(b))),
        ("mul.hi", "s32") => two!(u32, u32 => u32, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        ("mul.hi", "u32") => two!(u32, u32 => u32, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        ("mul.hi", "s64") => {
            two!(u64, u64 => u64, |a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64)
        }
        ("mul.hi", "u64") => two!(u64, u64 => u64, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        ("mul.wide", "s32") => two!(u32, u32 => u64, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        ("mul.wide", "u32") => two!(u32, u32 => u64, |a, b| u64::from(a) * u64::from(b)),
        ("mul.wide", "s16") => two!(u32, u32 => u32, |a, b| short(a).wrapping_mul(short(b))),
        ("mul.wide", "u16") => two!(u32, u32 => u32, |a, b| word(a) * word(b)),
        ("mad.lo", "s32" | "u32") => three!(u32, u32, u32 => u32, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.lo", "s64" | "u64") => three!(u64, u64, u64 => u64, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.wide", "s32") => three!(u32, u32, u64 => u64, |a, b, c| {
            ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }),
        ("mad.wide", "u32") => {
            three!(u32, u32, u64 => u64, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c))
        }
        // Both halves of the first with the low bytes of the second.
        ("dp2a.lo.u32", "u32") => three!(u32, u32, u32 => u32, |a, b, c| {
            c.wrapping_add(word(a) * (b & 0xff)).wrapping_add((a >> 16) * (b >> 8 & 0xff))
        }),
        ("div", "u32") => two!(u32, u32 => u32, |a, b| a.checked_div(b).unwrap_or(!0)),
        ("div", "s32") => two!(u32, u32 => u32, |a, b| (a as i32).checked_div(b as i32).unwrap_or(-1) as u32),
        ("div", "u64") => two!(u64, u64 => u64, |a, b| a.checked_div(b).unwrap_or(!0)),
        ("div", "s64") => two!(u64, u64 => u64, |a, b| (a as i64).checked_div(b as i64).unwrap_or(-1) as u64),
        ("rem", "u32") => two!(u32, u32 => u32, |a, b| a.checked_rem(b).unwrap_or(!0)),
        ("rem", "s32") => two!(u32, u32 => u32, |a, b| (a as i32).checked_rem(b as i32).unwrap_or(-1) as u32),
        ("rem", "u64") => two!(u64, u64 => u64, |a, b| a.checked_rem(b).unwrap_or(!0)),
        ("rem", "s64") => two!(u64, u64 => u64, |a, b| (a as i64).checked_rem(b as i64).unwrap_or(-1) as u64),
        ("min", "s32") => two!(u32, u32 => u32, |a, b| (a as i32).min(b as i32) as u32),
        ("min", "u32") => two!(u32, u32 => u32, u32::min),
        ("min", "s64") => two!(u64, u64 => u64, |a, b| (a as i64).min(b as i64) as u64),
        ("min", "u64") => two!(u64, u64 => u64, u64::min),
        ("max", "s32") => two!(u32, u32 => u32, |a, b| (a as i32).max(b as i32) as u32),
        ("max", "u32") => two!(u32, u32 => u32, u32::max),
        ("max", "s64") => two!(u64, u64 => u64, |a, b| (a as i64).max(b as i64) as u64),
        ("max", "u64") => two!(u64, u64 => u64, u64::max),
        ("neg", "s32") => one!(u32 => u32, u32::wrapping_neg),
        ("neg", "s64") => one!(u64 => u64, u64::wrapping_neg),
        ("abs", "s32") => one!(u32 => u32, |a| (a as i32).unsigned_abs()),
        ("abs", "s64") => one!(u64 => u64, |a| (a as i64).unsigned_abs()),
        _ => None,
    }
}

/// What looks at bits one by one.
pub(crate) fn bits(name: &str, kind: &str) -> Option<Compute> {
    match (name, kind) {
        ("and", "b32" | "b16") => two!(u32, u32 => u32, |a, b| a & b),
        ("and", "b64") => two!(u64, u64 => u64, |a, b| a & b),
        ("or", "b32" | "b16") => two!(u32, u32 => u32, |a, b| a | b),
        ("or", "b64") => two!(u64, u64 => u64, |a, b| a | b),
        ("xor", "b32" | "b16") => two!(u32, u32 => u32, |a, b| a ^ b),
        ("xor", "b64") => two!(u64, u64 => u64, |a, b| a ^ b),
        ("not", "b32" | "b16") => one!(u32 => u32, |a: u32| !a),
        ("not", "b64") => one!(u64 => u64, |a: u64| !a),
        ("shl", "b32") => two!(u32, u32 => u32, |a, by| a.checked_shl(by).unwrap_or(0)),
        ("shl", "b64") => two!(u64, u32 => u64, |a, by| a.checked_shl(by).unwrap_or(0)),
        ("shl", "b16") => two!(u32, u32 => u32, |a, by| word(word(a).checked_shl(by).unwrap_or(0))),
        ("shr", "u32" | "b32") => two!(u32, u32 => u32, |a, by| a.checked_shr(by).unwrap_or(0)),
        ("shr", "s32") => two!(u32, u32 => u32, |a, by| (a as i32 >> by.min(31)) as u32),
        ("shr", "u64" | "b64") => two!(u64, u32 => u64, |a, by| a.checked_shr(by).unwrap_or(0)),
        ("shr", "s64") => two!(u64, u32 => u64, |a, by| (a as i64 >> by.min(63)) as u64),
        ("shr", "u16" | "b16") => two!(u32, u32 => u32, |a, by| word(a).checked_shr(by).unwrap_or(0)),
        ("shr", "s16") => two!(u32, u32 => u32, |a, by| word((short(a) as i32 >> by.min(15)) as u32)),
        ("shf.l.wrap", "b32") => three!(u32, u32, u32 => u32, |low, high, by| {
            (((u64::from(high) << 32 | u64::from(low)) << (by & 31)) >> 32) as u32
        }),
        ("shf.r.wrap", "b32") => three!(u32, u32, u32 => u32, |low, high, by| {
            ((u64::from(high) << 32 | u64::from(low)) >> (by & 31)) as u32
        }),
        ("popc", "b32") => one!(u32 => u32, u32::count_ones),
        ("popc", "b64") => one!(u64 => u32, u64::count_ones),
        ("clz", "b32") => one!(u32 => u32, u32::leading_zeros),
        ("clz", "b64") => one!(u64 => u32, u64::leading_zeros),
        ("brev", "b32") => one!(u32 => u32, u32::reverse_bits),
        ("brev", "b64") => one!(u64 => u64, u64::reverse_bits),
        ("prmt", "b32") => three!(u32, u32, u32 => u32, permuted),
        _ => None,
    }
}

/// Four of eight bytes, or their signs.
fn permuted(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |out, at| {
        let choice = selector >> (4 * at) & 0xf;
        let byte = (bytes >> (8 * (choice & 7))) as u8;
        let byte = if choice & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        out | u32::from(byte) << (8 * at)
    })
}

/// Puts bits of one number into another.
pub(crate) fn insert_bits(kind: &str) -> Option<Compute> {
    match kind {
        "b32" => Some(|r, i, mask| {
            let [from, into, at, count] = [0, 1, 2, 3].map(|k| *r.read::<u32>(i.from[k]));
            let out = std::array::from_fn(|l| {
                inserted(u64::from(from[l]), u64::from(into[l]), at[l] & 0xff, count[l] & 0xff, 32) as u32
            });
            r.write::<u32>(i.to[0], &out, mask);
        }),
        "b64" => Some(|r, i, mask| {
            let [from, into] = [0, 1].map(|k| *r.read::<u64>(i.from[k]));
            let [at, count] = [2, 3].map(|k| *r.read::<u32>(i.from[k]));
            let out = std::array::from_fn(|l| inserted(from[l], into[l], at[l] & 0xff, count[l] & 0xff, 64));
            r.write::<u64>(i.to[0], &out, mask);
        }),
        _ => None,
    }
}

fn inserted(from: u64, into: u64, at: u32, count: u32, bits: u32) -> u64 {
    let count = count.min(bits.saturating_sub(at));
    if count == 0 {
        return into;
    }
    let field = (!0u64 >> (64 - count)) << at;
    (into & !field) | (from << at & field)
}

/// Takes bits out of a number.
pub(crate) fn extract_bits(kind: &str) -> Option<Compute> {
    match kind {
        "u32" => three!(u32, u32, u32 => u32, |a, at, count| {
            let (at, count) = (at & 0xff, (count & 0xff).min(32));
            let kept = if count == 0 { 0 } else { !0u32 >> (32 - count) };
            a.checked_shr(at).unwrap_or(0) & kept
        }),
        "s32" => three!(u32, u32, u32 => u32, |a, at, count| {
            let (at, count) = (at & 0xff, (count & 0xff).min(32));
            if count == 0 {
                return 0;
            }
            let last = (at + count - 1).min(31);
            let field = ((a as i32 as i64) << (63 - last)) >> (63 - last);
            (field >> at.min(63)) as u32
        }),
        _ => None,
    }
}

/// Truth of a comparison.
pub(crate) fn comparison(how: &str, kind: &str) -> Option<Compute> {
    macro_rules! ordered {
        ($lane:ty, $number:ty, $read:expr) => {
            match how {
                "eq" => compare!($lane, |a, b| $read(a) == $read(b)),
                "ne" => compare!($lane, |a, b| $read(a) != $read(b)),
                "lt" => compare!($lane, |a, b| ($read(a) as $number) < ($read(b) as $number)),
                "le" => compare!($lane, |a, b| ($read(a) as $number) <= ($read(b) as $number)),
                "gt" => compare!($lane, |a, b| ($read(a) as $number) > ($read(b) as $number)),
                "ge" => compare!($lane, |a, b| ($read(a) as $number) >= ($read(b) as $number)),
                "lo" => compare!($lane, |a, b| $read(a) < $read(b)),
                "ls" => compare!($lane, |a, b| $read(a) <= $read(b)),
                "hi" => compare!($lane, |a, b| $read(a) > $read(b)),
                "hs" => compare!($lane, |a, b| $read(a) >= $read(b)),
                _ => None,
            }
        };
    }
    match kind {
        "s32" => ordered!(u32, i32, std::convert::identity),
        "u32" | "b32" => ordered!(u32, u32, std::convert::identity),
        "s64" => ordered!(u64, i64, std::convert::identity),
        "u64" | "b64" => ordered!(u64, u64, std::convert::identity),
        "s16" => ordered!(u32, i32, short),
        "u16" | "b16" => ordered!(u32, u32, word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_chosen_and_bits_put_in() {
        assert_eq!(permuted(0x33221100, 0x77665544, 0x7531), 0x77553311);
        assert_eq!(permuted(0x80, 0, 0x8888), 0xffff_ffff);
        assert_eq!(inserted(0b101, !0, 3, 3, 32), !(0b010 << 3));
        assert_eq!(inserted(5, 9, 3, 0, 32), 9);
        assert_eq!(inserted(0xffff, 0, 24, 32, 32) & 0xffff_ffff, 0xff00_0000);
    }
}
