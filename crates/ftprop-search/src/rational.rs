//! Rational numbers of any size.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Div, Mul, Sub};
use std::str::FromStr;

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fraction in lowest terms, written `numerator/denominator`, or as a whole number if the denominator is 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rational {
    numerator: BigInt,
    denominator: BigUint,
}

/// More digits than any proof needs; reading a number takes time that grows faster than its length.
const MOST_DIGITS: usize = 100_000;

impl Rational {
    /// The fraction in lowest terms.
    ///
    /// Panics if the denominator is zero.
    pub fn new(numerator: BigInt, denominator: BigUint) -> Self {
        assert!(!denominator.is_zero(), "a fraction needs a denominator");
        let common = numerator.magnitude().gcd(&denominator);
        if common.is_one() {
            return Rational { numerator, denominator };
        }
        Rational { numerator: numerator / BigInt::from(common.clone()), denominator: denominator / common }
    }

    /// Exactly the value of a float; none if it is not finite.
    pub fn from_float(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let (mantissa, exponent) = decode(value);
        let whole = BigInt::from(mantissa);
        Some(if exponent >= 0 {
            Rational { numerator: whole << exponent as u64, denominator: BigUint::one() }
        } else {
            Rational { numerator: whole, denominator: BigUint::one() << (-exponent) as u64 }
        })
    }

    /// Exactly the values of floats; none if one is not finite.
    pub fn from_floats(values: &[f64]) -> Option<Vec<Self>> {
        values.iter().map(|&value| Rational::from_float(value)).collect()
    }

    /// What stands above the line.
    pub fn numerator(&self) -> &BigInt {
        &self.numerator
    }

    /// What stands below it; at least 1.
    pub fn denominator(&self) -> &BigUint {
        &self.denominator
    }

    /// Greater than zero.
    pub fn is_positive(&self) -> bool {
        self.numerator.is_positive()
    }

    /// Zero.
    pub fn is_zero(&self) -> bool {
        self.numerator.is_zero()
    }

    /// The nearest `f64`, up to rounding, for people and for arithmetic that need not be exact.
    pub fn approximate(&self) -> f64 {
        let (head, exponent) = self.parts();
        scale_by_power(head, exponent)
    }

    /// Exactly, as a decimal without an exponent; none if it would have no end, as a third has not.
    pub fn to_decimal(&self) -> Option<String> {
        let (mut rest, mut factors) = (self.denominator.clone(), [0usize; 2]);
        for (prime, count) in [2u32, 5].into_iter().zip(&mut factors) {
            while rest.is_multiple_of(&prime.into()) {
                rest /= prime;
                *count += 1;
            }
        }
        if !rest.is_one() {
            return None;
        }
        let places = factors[0].max(factors[1]);
        let times = BigUint::from(10u32).pow(places as u32) / &self.denominator;
        let digits = format!("{:0>1$}", (self.numerator.magnitude() * times).to_string(), places + 1);
        let (before, after) = digits.split_at(digits.len() - places);
        let sign = if self.numerator.is_negative() { "-" } else { "" };
        Some(if places == 0 { format!("{sign}{before}") } else { format!("{sign}{before}.{after}") })
    }

    /// head × 2^exponent, nearly; for numbers outside the range of `f64`.
    pub(crate) fn parts(&self) -> (f64, i64) {
        if self.is_zero() {
            return (0.0, 0);
        }
        // 64 bits of quotient and a sticky bit lose nothing that f64 could show.
        let shift = 66 + self.denominator.bits() as i64 - self.numerator.bits() as i64;
        let top = if shift >= 0 { &self.numerator << shift as u64 } else { &self.numerator >> (-shift) as u64 };
        let quotient = top / BigInt::from_biguint(Sign::Plus, self.denominator.clone());
        (quotient.to_f64().unwrap_or(0.0), -shift)
    }
}

/// head × 2^exponent in steps, since one power of two alone could leave the range of f64 where the result does not.
pub(crate) fn scale_by_power(head: f64, exponent: i64) -> f64 {
    let mut value = head;
    let mut left = exponent.clamp(-5000, 5000);
    while left != 0 {
        let step = left.clamp(-500, 500);
        value *= 2f64.powi(step as i32);
        left -= step;
    }
    value
}

/// Odd mantissa and exponent of a finite number: value = mantissa × 2^exponent; zero is (0, 0).
pub(crate) fn decode(value: f64) -> (i64, i32) {
    if value == 0.0 {
        return (0, 0);
    }
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let zeros = mantissa.trailing_zeros();
    let odd = mantissa >> zeros;
    (if bits >> 63 == 1 { -odd } else { odd }, exponent + zeros as i32)
}

impl From<BigInt> for Rational {
    fn from(numerator: BigInt) -> Self {
        Rational { numerator, denominator: BigUint::one() }
    }
}

impl From<i64> for Rational {
    fn from(whole: i64) -> Self {
        Rational::from(BigInt::from(whole))
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = &self.numerator * BigInt::from(other.denominator.clone());
        let right = &other.numerator * BigInt::from(self.denominator.clone());
        left.cmp(&right)
    }
}

impl Add for Rational {
    type Output = Rational;

    fn add(self, other: Rational) -> Rational {
        let numerator = self.numerator * BigInt::from(other.denominator.clone())
            + other.numerator * BigInt::from(self.denominator.clone());
        Rational::new(numerator, self.denominator * other.denominator)
    }
}

impl Sub for Rational {
    type Output = Rational;

    fn sub(self, other: Rational) -> Rational {
        self + Rational { numerator: -other.numerator, denominator: other.denominator }
    }
}

impl Mul for Rational {
    type Output = Rational;

    fn mul(self, other: Rational) -> Rational {
        Rational::new(self.numerator * other.numerator, self.denominator * other.denominator)
    }
}

/// Panics when dividing by zero.
impl Div for Rational {
    type Output = Rational;

    fn div(self, other: Rational) -> Rational {
        let (sign, above) = other.numerator.into_parts();
        let numerator = self.numerator * BigInt::from(other.denominator);
        let numerator = if sign == Sign::Minus { -numerator } else { numerator };
        Rational::new(numerator, self.denominator * above)
    }
}

impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator.is_one() {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

impl FromStr for Rational {
    type Err = String;

    /// Only what [`Rational`] itself writes: lowest terms, no spaces, no plus sign, no leading zeros.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MOST_DIGITS {
            return Err(format!("a number of {} digits; no proof needs more than {MOST_DIGITS}", text.len()));
        }
        let wrong = || format!("'{}' is not a fraction in lowest terms", text.escape_debug());
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        let digits = |part: &str| {
            let unsigned = part.strip_prefix('-').unwrap_or(part);
            let plain = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
            plain && (unsigned == "0" || !unsigned.starts_with('0')) && part != "-0"
        };
        if !digits(above) || !digits(below) || below.starts_with('-') || below == "0" || text.ends_with("/1") {
            return Err(wrong());
        }
        let numerator: BigInt = above.parse().map_err(|_| wrong())?;
        let denominator: BigUint = below.parse().map_err(|_| wrong())?;
        if !numerator.magnitude().gcd(&denominator).is_one() {
            return Err(wrong());
        }
        Ok(Rational { numerator, denominator })
    }
}

impl Serialize for Rational {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rational {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_survive_and_are_read_back() {
        for value in [0.0, 1.0, -1.5, 0.1, 1e300, -1e-300, 5e-324, f64::MAX, f64::MIN_POSITIVE] {
            let rational = Rational::from_float(value).unwrap();
            assert_eq!(rational.approximate(), value, "{value}");
            assert_eq!(rational.to_string().parse::<Rational>().unwrap(), rational);
        }
        assert_eq!(Rational::from_float(-0.75).unwrap().to_string(), "-3/4");
        assert!(Rational::from_float(f64::NAN).is_none());
    }

    #[test]
    fn order_and_sum_are_those_of_the_numbers() {
        let values = [-1e300, -2.0, -1e-9, 0.0, 1e-200, 0.1, 3.0, 1e308];
        for a in values {
            for b in values {
                let (x, y) = (Rational::from_float(a).unwrap(), Rational::from_float(b).unwrap());
                assert_eq!(x.cmp(&y), a.partial_cmp(&b).unwrap(), "{a} {b}");
            }
        }
        let third = Rational::new(1.into(), 3u32.into());
        assert_eq!((third.clone() + third).to_string(), "2/3");
    }

    #[test]
    fn decimals_are_exact_or_none() {
        let decimal = |text: &str| text.parse::<Rational>().unwrap().to_decimal();
        for (fraction, text) in
            [("0", "0"), ("-7", "-7"), ("1/10", "0.1"), ("-1/400", "-0.0025"), ("16777217/1000000", "16.777217")]
        {
            assert_eq!(decimal(fraction).as_deref(), Some(text));
        }
        assert_eq!(decimal("1/3"), None);
        assert_eq!(Rational::from_float(0.1).unwrap().to_decimal().unwrap().len(), 57, "all 55 places");
    }

    #[test]
    fn only_one_spelling_is_read() {
        for bad in ["", "x", "1/0", "2/4", "+1", "01", "-0", "1/-2", " 1", "1/1", "1/", "/2", "1e3", "0/2", "1/02"] {
            assert!(bad.parse::<Rational>().is_err(), "{bad}");
        }
        let long = "1".repeat(MOST_DIGITS + 1);
        assert!(long.parse::<Rational>().unwrap_err().contains("digits"));
    }
}
