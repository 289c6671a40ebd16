//! From one kind of number to another.

use crate::registers::{LANES, Operands, Registers};

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned(u32),
    Signed(u32),
    F32,
    F64,
    /// As the upper half of an f32.
    Bf16,
    /// An f32 with 10 bits behind the point.
    Tf32,
}

impl Kind {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "u8" => Kind::Unsigned(8),
            "u16" | "b16" => Kind::Unsigned(16),
            "u32" | "b32" => Kind::Unsigned(32),
            "u64" | "b64" => Kind::Unsigned(64),
            "s8" => Kind::Signed(8),
            "s16" => Kind::Signed(16),
            "s32" => Kind::Signed(32),
            "s64" => Kind::Signed(64),
            "f32" => Kind::F32,
            "f64" => Kind::F64,
            "bf16" => Kind::Bf16,
            "tf32" => Kind::Tf32,
            _ => return None,
        })
    }

    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Kind::Unsigned(64) | Kind::Signed(64) | Kind::F64)
    }
}

/// To which whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Nearest,
    Zero,
    Down,
    Up,
}

/// One conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) to: Kind,
    pub(crate) from: Kind,
    whole: Option<Whole>,
    flush: bool,
    clamp: bool,
}

/// A number on its way.
#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Float(f64),
}

impl Conversion {
    /// As an opcode's words say it.
    pub(crate) fn of(words: &[&str]) -> Option<Self> {
        let [modifiers @ .., to, from] = words else { return None };
        let has = |word: &str| modifiers.contains(&word);
        let whole = modifiers.iter().find_map(|word| match *word {
            "rni" => Some(Whole::Nearest),
            "rzi" => Some(Whole::Zero),
            "rmi" => Some(Whole::Down),
            "rpi" => Some(Whole::Up),
            _ => None,
        });
        let known = ["rn", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat"];
        if !modifiers.iter().all(|word| known.contains(word)) {
            return None;
        }
        let (to, from) = (Kind::of(to)?, Kind::of(from)?);
        Some(Conversion { to, from, whole, flush: has("ftz"), clamp: has("sat") })
    }

    /// One number's bits.
    pub(crate) fn apply(&self, bits: u64) -> u64 {
        let number = self.decoded(bits);
        let number = match (self.whole, number) {
            (Some(whole), Number::Float(value)) => Number::Float(match whole {
                Whole::Nearest => value.round_ties_even(),
                Whole::Zero => value.trunc(),
                Whole::Down => value.floor(),
                Whole::Up => value.ceil(),
            }),
            _ => number,
        };
        self.encoded(number)
    }

    fn decoded(&self, bits: u64) -> Number {
        let flushed = |value: f32| if self.flush && value.is_subnormal() { 0f32.copysign(value) } else { value };
        match self.from {
            Kind::Unsigned(size) => Number::Whole(i128::from(bits & (!0 >> (64 - size)))),
            Kind::Signed(size) => Number::Whole(i128::from((bits << (64 - size)) as i64 >> (64 - size))),
            Kind::F32 | Kind::Tf32 => Number::Float(f64::from(flushed(f32::from_bits(bits as u32)))),
            Kind::F64 => Number::Float(f64::from_bits(bits)),
            Kind::Bf16 => Number::Float(f64::from(f32::from_bits((bits as u32) << 16))),
        }
    }

    fn encoded(&self, number: Number) -> u64 {
        let clamped = |value: f64| match self.clamp {
            true if value.is_nan() => 0.0,
            true => value.clamp(0.0, 1.0),
            false => value,
        };
        match (self.to, number) {
            (Kind::Unsigned(size), Number::Whole(value)) => {
                let most = i128::from(u64::MAX >> (64 - size));
                let value = if self.clamp { value.clamp(0, most) } else { value };
                value as u64 & (!0 >> (64 - size))
            }
            (Kind::Signed(size), Number::Whole(value)) => {
                let most = i128::from(i64::MAX >> (64 - size));
                let value = if self.clamp { value.clamp(-most - 1, most) } else { value };
                value as u64
            }
            (Kind::Unsigned(size), Number::Float(value)) => (value as u64).min(!0 >> (64 - size)),
            (Kind::Signed(size), Number::Float(value)) => {
                let most = i64::MAX >> (64 - size);
                (value as i64).clamp(-most - 1, most) as u64
            }
            (Kind::F32, Number::Whole(value)) => u64::from((value as f32).to_bits()),
            (Kind::F64, Number::Whole(value)) => (value as f64).to_bits(),
            (Kind::F32, Number::Float(value)) => {
                let value = clamped(value) as f32;
                let value = if self.flush && value.is_subnormal() { 0f32.copysign(value) } else { value };
                u64::from(value.to_bits())
            }
            (Kind::F64, Number::Float(value)) => clamped(value).to_bits(),
            (Kind::Bf16, Number::Float(value)) => u64::from(bf16(value as f32)),
            (Kind::Bf16, Number::Whole(value)) => u64::from(bf16(value as f32)),
            (Kind::Tf32, Number::Float(value)) => u64::from(tf32(value as f32)),
            (Kind::Tf32, Number::Whole(value)) => u64::from(tf32(value as f32)),
        }
    }

    /// One instruction for a warp.
    pub(crate) fn run(&self, r: &mut Registers, i: &Operands, mask: u32) {
        let from = r.read_any(i.from[0], self.from.is_wide());
        let out: [u64; LANES] = from.map(|bits| self.apply(bits));
        r.write_any(i.to[0], &out, mask);
    }
}

/// The nearest bf16, of two the even one.
pub(crate) fn bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The nearest tf32, of two the one farther from zero.
pub(crate) fn tf32(value: f32) -> u32 {
    if value.is_nan() {
        return 0x7fff_ffff;
    }
    if value.is_infinite() {
        return value.to_bits();
    }
    value.to_bits().wrapping_add(0x1000) & !0x1fff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(words: &str, bits: u64) -> u64 {
        Conversion::of(&words.split('.').collect::<Vec<_>>()).unwrap().apply(bits)
    }

    #[test]
    fn numbers_are_converted_as_ptx_says() {
        let f = |value: f32| u64::from(value.to_bits());
        assert_eq!(converted("u32.u64", 0x1_2345_6789), 0x2345_6789);
        assert_eq!(converted("s64.s32", 0xffff_ffff), u64::MAX);
        assert_eq!(converted("rzi.s32.f32", f(-2.9)) as i32, -2);
        assert_eq!(converted("rzi.s32.f32", f(1e30)) as i32, i32::MAX);
        assert_eq!(converted("rzi.s32.f32", f(f32::NAN)), 0);
        assert_eq!(converted("rn.f32.u64", u64::MAX), f(18446744073709551616.0));
        assert_eq!(converted("sat.f32.f32", f(1.5)), f(1.0));
        assert_eq!(converted("rmi.f64.f64", (-0.5f64).to_bits()), (-1f64).to_bits());
        assert_eq!(converted("u16.u8", 0x1ff), 0xff);
        assert_eq!(converted("rn.bf16.f32", f(1.0 + 2f32.powi(-8))), 0x3f80);
        assert_eq!(converted("rn.bf16.f32", f(1.0 + 3.0 * 2f32.powi(-8))), 0x3f82);
        assert_eq!(converted("rna.tf32.f32", f(1.0 + 2f32.powi(-11))), f(1.0 + 2f32.powi(-10)));
        assert_eq!(converted("ftz.f64.f32", 1), 0);
        assert!(Conversion::of(&["rz", "f32", "f64"]).is_none());
    }
}
