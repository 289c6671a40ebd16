//! A sum of products of `f64` without any rounding, in a fixed-point number wide enough for all of them
//! (Kulisch's accumulator).

use num_bigint::{BigInt, BigUint, Sign};

use super::dyadic::{Dyadic, decode};

/// The lowest bit a product can have: twice that of the smallest subnormal.
const LOWEST: i32 = -2148;
/// 2^1942 × a product of two 53-bit mantissas reaches bit 4196 above the lowest; the rest is room for carries.
const WORDS: usize = 68;

/// The exact sum. Positive and negative terms are kept apart, so that no carry ever runs through the whole
/// number when the sum changes its sign.
pub(super) struct Accumulator {
    positive: [u64; WORDS],
    negative: [u64; WORDS],
}

impl Accumulator {
    pub(super) fn new() -> Self {
        Accumulator { positive: [0; WORDS], negative: [0; WORDS] }
    }

    /// Adds a × b (or subtracts it).
    pub(super) fn add_product(&mut self, a: f64, b: f64, subtract: bool) {
        if a == 0.0 || b == 0.0 {
            return;
        }
        let ((ma, ea), (mb, eb)) = (decode(a), decode(b));
        let product = i128::from(ma) * i128::from(mb);
        let side = if (product < 0) != subtract { &mut self.negative } else { &mut self.positive };
        let at = (ea + eb - LOWEST) as usize;
        let (word, bit) = (at / 64, at % 64);
        let magnitude = product.unsigned_abs();
        let low = magnitude << bit;
        let high = if bit == 0 { 0 } else { (magnitude >> (128 - bit)) as u64 };
        let mut carry = false;
        for (place, part) in [low as u64, (low >> 64) as u64, high].into_iter().enumerate() {
            let (sum, over) = side[word + place].overflowing_add(part);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            side[word + place] = sum;
            carry = over || over_again;
        }
        let mut place = word + 3;
        while carry {
            (side[place], carry) = side[place].overflowing_add(1);
            place += 1;
        }
    }

    /// The sum as an exact number.
    pub(super) fn total(&self) -> Dyadic {
        let differing = |&place: &usize| self.positive[place] != self.negative[place];
        let (Some(low), Some(high)) = ((0..WORDS).find(differing), (0..WORDS).rev().find(differing)) else {
            return Dyadic::new(BigInt::default(), 0);
        };
        let part = |words: &[u64; WORDS]| {
            let bytes: Vec<u8> = words[low..=high].iter().flat_map(|w| w.to_le_bytes()).collect();
            BigInt::from_biguint(Sign::Plus, BigUint::from_bytes_le(&bytes))
        };
        let difference = part(&self.positive) - part(&self.negative);
        Dyadic::new(difference, i64::from(LOWEST) + 64 * low as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The same sum by whole numbers of any size.
    fn reference(terms: &[(f64, f64, bool)]) -> Dyadic {
        let mut whole = BigInt::default();
        for &(a, b, subtract) in terms {
            let ((ma, ea), (mb, eb)) = (decode(a), decode(b));
            let term = (BigInt::from(ma) * BigInt::from(mb)) << (ea + eb - LOWEST) as u64;
            if subtract { whole -= term } else { whole += term }
        }
        Dyadic::new(whole, LOWEST.into())
    }

    #[test]
    fn equals_whole_number_arithmetic_over_the_full_range() {
        let mut rng = Rng::new(5);
        for case in 0..300 {
            let spread = [1.0, 40.0, 300.0][case % 3];
            let mut draw = || match rng.below(8) {
                0 => 0.0,
                1 => 5e-324,
                2 => f64::MAX,
                _ => rng.normal() * 10f64.powf(spread * (2.0 * rng.uniform() - 1.0)),
            };
            let terms: Vec<_> = (0..1 + case % 17).map(|i| (draw(), draw(), i % 3 == 0)).collect();
            let mut sum = Accumulator::new();
            terms.iter().for_each(|&(a, b, s)| sum.add_product(a, b, s));
            assert_eq!(sum.total(), reference(&terms), "{terms:?}");
        }
    }

    #[test]
    fn cancels_to_exactly_zero() {
        let mut sum = Accumulator::new();
        sum.add_product(1e200, 1e100, false);
        sum.add_product(0.1, 0.3, false);
        sum.add_product(-1e200, 1e100, false);
        sum.add_product(0.1, 0.3, true);
        assert!(!sum.total().is_positive());
        assert_eq!(sum.total().to_string(), "0*2^0");
    }
}
