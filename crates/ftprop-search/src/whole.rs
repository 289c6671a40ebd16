//! Instances as whole numbers: every input of every instance is a whole number divided by its column's scale. Floats
//! and decimals alike are held so, without rounding.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{One, Zero};

use crate::rational::{Rational, decode};

/// The whole numbers, row after row, and the scale of each column: the smallest with which all of it is whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole {
    inputs: usize,
    numbers: Numbers,
    scales: Vec<BigUint>,
    bits: u64,
}

/// Most data fits 64 bits, with room for a difference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Numbers {
    Small(Vec<i64>),
    Large(Vec<BigInt>),
}

/// Bits of numbers that are held small.
const SMALL: u64 = 62;

/// digits × 10^exponent, as a table says it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decimal {
    pub(crate) digits: BigInt,
    pub(crate) exponent: i32,
}

/// More digits, or a larger power of ten, than any measurement has.
const MOST_DIGITS: usize = 400;

impl Decimal {
    /// Reads `-12.5`, `.5`, `1e-3`; none if it is anything else or out of all proportion.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (mantissa, power) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (before, after) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = before.len() + after.len();
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if all == 0 || all > MOST_DIGITS || !digits(before) || !digits(after) {
            return None;
        }
        let text: String = [before, after].concat();
        let kept = text.trim_end_matches('0');
        if kept.is_empty() {
            return Some(Decimal { digits: BigInt::zero(), exponent: 0 });
        }
        let exponent = power.checked_sub(after.len() as i32)?.checked_add((text.len() - kept.len()) as i32)?;
        if exponent.unsigned_abs() as usize > MOST_DIGITS {
            return None;
        }
        let whole: BigInt = kept.parse().ok()?;
        Some(Decimal { digits: if mantissa.starts_with('-') { -whole } else { whole }, exponent })
    }
}

impl Decimal {
    /// As a fraction.
    pub(crate) fn rational(&self) -> Rational {
        let power = BigUint::from(10u32).pow(self.exponent.unsigned_abs());
        if self.exponent < 0 {
            Rational::new(self.digits.clone(), power)
        } else {
            Rational::from(&self.digits * BigInt::from(power))
        }
    }
}

impl Whole {
    /// From finite floats, which are whole numbers times powers of two.
    pub(crate) fn from_floats(inputs: usize, values: &[f64]) -> Self {
        let mut lowest = vec![0i32; inputs];
        let mut highest = vec![0i32; inputs];
        for row in values.chunks_exact(inputs) {
            for (column, &value) in row.iter().enumerate() {
                let (mantissa, exponent) = decode(value);
                if mantissa != 0 {
                    lowest[column] = lowest[column].min(exponent);
                    highest[column] =
                        highest[column].max(exponent + 64 - mantissa.unsigned_abs().leading_zeros() as i32);
                }
            }
        }
        let bits = (0..inputs).map(|column| (highest[column] - lowest[column]) as u64).max().unwrap_or(0);
        let shifted = |at: usize, value: f64| {
            let (mantissa, exponent) = decode(value);
            (mantissa, if mantissa == 0 { 0 } else { (exponent - lowest[at % inputs]) as u64 })
        };
        let parts = values.iter().enumerate().map(|(at, &value)| shifted(at, value));
        let numbers = if bits <= SMALL {
            Numbers::Small(parts.map(|(mantissa, shift)| mantissa << shift).collect())
        } else {
            Numbers::Large(parts.map(|(mantissa, shift)| BigInt::from(mantissa) << shift).collect())
        };
        let scales = lowest.iter().map(|&low| BigUint::one() << (-low) as u64).collect();
        Whole { inputs, numbers, scales, bits }
    }

    /// From decimals.
    pub(crate) fn from_decimals(inputs: usize, values: &[Decimal]) -> Self {
        let mut lowest = vec![0i32; inputs];
        for row in values.chunks_exact(inputs) {
            lowest.iter_mut().zip(row).for_each(|(low, value)| *low = value.exponent.min(*low));
        }
        let ten = BigUint::from(10u32);
        let numbers = values.iter().enumerate().map(|(at, value)| {
            let power = (value.exponent - lowest[at % inputs]) as u32;
            if power == 0 { value.digits.clone() } else { &value.digits * BigInt::from(ten.pow(power)) }
        });
        let scales = lowest.iter().map(|&low| ten.pow(low.unsigned_abs())).collect();
        Whole::normal(inputs, numbers.collect(), scales)
    }

    /// From fractions.
    pub(crate) fn from_rationals(inputs: usize, values: &[Rational]) -> Self {
        let mut scales = vec![BigUint::one(); inputs];
        for row in values.chunks_exact(inputs) {
            scales.iter_mut().zip(row).for_each(|(scale, value)| *scale = scale.lcm(value.denominator()));
        }
        let whole = |(at, value): (usize, &Rational)| {
            value.numerator() * BigInt::from(&scales[at % inputs] / value.denominator())
        };
        let numbers = values.iter().enumerate().map(whole).collect();
        Whole::normal(inputs, numbers, scales)
    }

    /// From whole numbers with one scale for all.
    pub(crate) fn from_ratios(inputs: usize, numbers: Vec<i64>, scale: u32) -> Self {
        let bits = numbers.iter().map(|n| 64 - u64::from(n.unsigned_abs().leading_zeros())).max().unwrap_or(0);
        Whole { inputs, numbers: Numbers::Small(numbers), scales: vec![scale.into(); inputs], bits }
    }

    /// The smallest scales: divided by what all numbers of a column share with its scale.
    fn normal(inputs: usize, mut numbers: Vec<BigInt>, mut scales: Vec<BigUint>) -> Self {
        for (column, scale) in scales.iter_mut().enumerate() {
            let mut common = scale.clone();
            for number in numbers.iter().skip(column).step_by(inputs) {
                if common.is_one() {
                    break;
                }
                common = common.gcd(number.magnitude());
            }
            if !common.is_one() {
                *scale /= &common;
                let common = BigInt::from(common);
                numbers.iter_mut().skip(column).step_by(inputs).for_each(|number| *number /= &common);
            }
        }
        let bits = numbers.iter().map(BigInt::bits).max().unwrap_or(0);
        let numbers = if bits <= SMALL {
            Numbers::Small(numbers.iter().map(|number| i64::try_from(number).unwrap_or(0)).collect())
        } else {
            Numbers::Large(numbers)
        };
        Whole { inputs, numbers, scales, bits }
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn len(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Small(numbers) => numbers.len(),
            Numbers::Large(numbers) => numbers.len(),
        };
        numbers / self.inputs
    }

    /// The most bits that a number has.
    pub(crate) fn bits(&self) -> u64 {
        self.bits
    }

    /// All numbers, row after row.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// One number.
    pub(crate) fn number(&self, instance: usize, input: usize) -> BigInt {
        let at = instance * self.inputs + input;
        match &self.numbers {
            Numbers::Small(numbers) => numbers[at].into(),
            Numbers::Large(numbers) => numbers[at].clone(),
        }
    }

    /// What the numbers of a column are to be divided by.
    pub(crate) fn scale(&self, input: usize) -> &BigUint {
        &self.scales[input]
    }

    /// Some of the instances.
    pub(crate) fn select(&self, instances: &[usize]) -> Self {
        let picked = instances.iter().flat_map(|&i| i * self.inputs..(i + 1) * self.inputs);
        match &self.numbers {
            Numbers::Small(numbers) => {
                let numbers = Numbers::Small(picked.map(|at| numbers[at]).collect());
                Whole { numbers, scales: self.scales.clone(), ..*self }
            }
            Numbers::Large(numbers) => {
                Whole::normal(self.inputs, picked.map(|at| numbers[at].clone()).collect(), self.scales.clone())
            }
        }
    }

    /// Says the scales, then the numbers, with the smallest scales that there are, each followed by a comma: the same
    /// for the same instances, however they were given.
    pub(crate) fn canonical(&self, mut say: impl FnMut(&[u8])) {
        use std::io::Write;
        let smallest = match &self.numbers {
            Numbers::Small(numbers) if self.scales.iter().any(|scale| !scale.is_one()) => {
                Whole::normal(self.inputs, numbers.iter().map(|&n| n.into()).collect(), self.scales.clone())
            }
            _ => self.clone(),
        };
        let mut text = Vec::with_capacity(32);
        let mut word = |number: &dyn std::fmt::Display| {
            text.clear();
            // Writing to memory does not fail.
            let _ = write!(text, "{number},");
            say(&text);
        };
        smallest.scales.iter().for_each(|scale| word(scale));
        match &smallest.numbers {
            Numbers::Small(numbers) => numbers.iter().for_each(|number| word(number)),
            Numbers::Large(numbers) => numbers.iter().for_each(|number| word(number)),
        }
    }

    /// For each instance the number of its group of equal ones, and each group's first instance.
    pub(crate) fn distinct(&self) -> (Vec<usize>, Vec<usize>) {
        match &self.numbers {
            Numbers::Small(numbers) => groups(numbers, self.inputs),
            Numbers::Large(numbers) => groups(numbers, self.inputs),
        }
    }
}

fn groups<T: Eq + std::hash::Hash>(numbers: &[T], inputs: usize) -> (Vec<usize>, Vec<usize>) {
    let mut firsts = Vec::new();
    let mut known: std::collections::HashMap<&[T], usize> = std::collections::HashMap::new();
    let group_of = numbers.chunks_exact(inputs).enumerate().map(|(instance, row)| {
        *known.entry(row).or_insert_with(|| {
            firsts.push(instance);
            firsts.len() - 1
        })
    });
    (group_of.collect(), firsts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_as_they_are_written() {
        let read = |text: &str| Decimal::parse(text).map(|d| (d.digits.to_string(), d.exponent));
        assert_eq!(read("-12.50"), Some(("-125".into(), -1)));
        assert_eq!(read("+.5"), Some(("5".into(), -1)));
        assert_eq!(read("1200"), Some(("12".into(), 2)));
        assert_eq!(read("1e-309"), Some(("1".into(), -309)));
        assert_eq!(read("9007199254740993"), Some(("9007199254740993".into(), 0)));
        assert_eq!(read("0.000"), Some(("0".into(), 0)));
        for bad in ["", ".", "-", "1e", "0x1", "1.2.3", "1e999999", "inf", "NaN", "1 2", "--1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn columns_have_the_smallest_scale() {
        let decimals: Vec<Decimal> = ["0.5", "10", "1.5", "20.25"].map(|t| Decimal::parse(t).unwrap()).to_vec();
        let whole = Whole::from_decimals(2, &decimals);
        assert_eq!((whole.scale(0), whole.scale(1)), (&2u32.into(), &4u32.into()));
        assert_eq!(whole.numbers(), &Numbers::Small(vec![1, 40, 3, 81]));
        assert_eq!(whole, Whole::from_floats(2, &[0.5, 10.0, 1.5, 20.25]));
    }

    #[test]
    fn large_numbers_are_kept_whole() {
        let decimals: Vec<Decimal> = ["1e30", "1", "-1e30"].map(|t| Decimal::parse(t).unwrap()).to_vec();
        let whole = Whole::from_decimals(1, &decimals);
        assert!(matches!(whole.numbers(), Numbers::Large(_)));
        assert_eq!(whole.number(2, 0), -BigInt::from(10).pow(30));
        let floats = Whole::from_floats(1, &[1e300, 5e-324]);
        assert_eq!(floats.number(1, 0), 1.into());
        assert_eq!(floats.scale(0), &(BigUint::one() << 1074u32));
        assert_eq!(whole.select(&[1]).number(0, 0), 1.into());
    }
}
