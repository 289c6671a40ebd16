//! Numbers of the form whole × 2^exponent.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A dyadic rational, written `whole*2^exponent`, with an odd whole part (zero is `0*2^0`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dyadic {
    whole: BigInt,
    exponent: i64,
}

impl Dyadic {
    /// whole × 2^exponent in its normal form.
    pub fn new(whole: BigInt, exponent: i64) -> Self {
        match whole.trailing_zeros() {
            None => Dyadic { whole, exponent: 0 },
            Some(zeros) => Dyadic { whole: whole >> zeros, exponent: exponent + zeros as i64 },
        }
    }

    /// Greater than zero.
    pub fn is_positive(&self) -> bool {
        self.whole.is_positive()
    }

    /// The nearest `f64`, up to rounding, for people to read.
    pub fn approximate(&self) -> f64 {
        let excess = (self.whole.bits() as i64 - 60).max(0);
        let head = i64::try_from(&self.whole >> excess as u64).unwrap_or(0) as f64;
        // In two steps: one power of two alone could leave the range of f64 where the result does not.
        let half = (self.exponent + excess) / 2;
        head * 2f64.powi(half as i32) * 2f64.powi((self.exponent + excess - half) as i32)
    }
}

/// mantissa and exponent of a finite number: value = mantissa × 2^exponent.
pub(super) fn decode(value: f64) -> (i64, i32) {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    (if bits >> 63 == 1 { -mantissa } else { mantissa }, exponent)
}

impl PartialOrd for Dyadic {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Dyadic {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.whole.is_zero() || other.whole.is_zero() {
            return self.whole.sign().cmp(&other.whole.sign());
        }
        let base = self.exponent.min(other.exponent);
        let left = &self.whole << (self.exponent - base) as u64;
        let right = &other.whole << (other.exponent - base) as u64;
        left.cmp(&right)
    }
}

impl fmt::Display for Dyadic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*2^{}", self.whole, self.exponent)
    }
}

impl FromStr for Dyadic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not of the form whole*2^exponent");
        let (whole, exponent) = text.split_once("*2^").ok_or_else(wrong)?;
        let exponent: i64 = exponent.parse().map_err(|_| wrong())?;
        if exponent.abs() > 10_000 {
            return Err(format!("the exponent of '{text}' is out of range"));
        }
        Ok(Dyadic::new(whole.parse().map_err(|_| wrong())?, exponent))
    }
}

impl Serialize for Dyadic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Dyadic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64) -> Dyadic {
        let (mantissa, exponent) = decode(value);
        Dyadic::new(mantissa.into(), exponent.into())
    }

    #[test]
    fn floats_survive_decoding() {
        for value in [0.0, 1.0, -1.5, 0.1, 1e300, -1e-300, 5e-324, f64::MAX, f64::MIN_POSITIVE] {
            assert_eq!(of(value).approximate(), value, "{value}");
            assert_eq!(of(value).to_string().parse::<Dyadic>().unwrap(), of(value));
        }
    }

    #[test]
    fn order_is_that_of_the_numbers() {
        let values = [-1e300, -2.0, -1e-9, 0.0, 1e-200, 0.1, 3.0, 1e308];
        for a in values {
            for b in values {
                assert_eq!(of(a).cmp(&of(b)), a.partial_cmp(&b).unwrap(), "{a} {b}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!("3".parse::<Dyadic>().is_err());
        assert!("x*2^3".parse::<Dyadic>().is_err());
        assert!("1*2^99999999".parse::<Dyadic>().is_err());
    }
}
