//! Confirms or refuses the two possible answers about separability (Definition 1), exactly.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{One, Signed, Zero};

use crate::points::Points;
use crate::rational::Rational;
use crate::whole::{Numbers, Whole};

/// A proof that no weights separate: non-negative whole numbers yᵢ, not all zero, with Σ yᵢ tᵢ (xᵢ, 1) = 0
/// (Gordan). If w separated, 0 = w · Σ yᵢ tᵢ xᵢ = Σ yᵢ (tᵢ w · xᵢ) would be positive. Instances that are not
/// listed have y = 0.
pub type Witness = Vec<(usize, BigUint)>;

/// Why the checker does not confirm something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A list of another length.
    #[error("there are {found} numbers where {expected} belong")]
    Size {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A unit that misses its target.
    #[error("instance {instance} is on the wrong side of its unit, or on the boundary")]
    WrongSide {
        /// Which, counted from 0.
        instance: usize,
    },
    /// A witness of something else.
    #[error("the witness names instance {instance}, which does not exist or was named before")]
    Instance {
        /// Which, counted from 0.
        instance: usize,
    },
    /// A witness of nothing.
    #[error("the witness is zero for every instance")]
    Zero,
    /// A witness that does not add up.
    #[error("the witness does not add up to zero in input {input} (the last one is the bias)")]
    NotZero {
        /// Which, counted from 0.
        input: usize,
    },
}

/// A unit over the instances as whole numbers n: w · x + b = (Σ Wⱼ nⱼ + B) / D.
struct Scaled<'a> {
    whole: &'a Whole,
    /// W, then B.
    weights: Vec<BigInt>,
    denominator: BigUint,
    /// The same in 128 bits, where no sum can leave them.
    small: Option<(&'a [i64], Vec<i128>)>,
}

impl<'a> Scaled<'a> {
    fn new(points: &'a Points, weights: &[Rational]) -> Result<Self, Refusal> {
        let whole = points.whole();
        let inputs = whole.inputs();
        if weights.len() != inputs + 1 {
            return Err(Refusal::Size { found: weights.len(), expected: inputs + 1 });
        }
        let below: Vec<BigUint> = (0..=inputs)
            .map(|input| {
                if input < inputs {
                    weights[input].denominator() * whole.scale(input)
                } else {
                    weights[input].denominator().clone()
                }
            })
            .collect();
        let denominator = below.iter().fold(BigUint::one(), |all, one| all.lcm(one));
        let scaled: Vec<BigInt> =
            weights.iter().zip(&below).map(|(w, d)| w.numerator() * BigInt::from(&denominator / d)).collect();
        let bits = scaled.iter().map(BigInt::bits).max().unwrap_or(0) + whole.bits().max(1);
        let terms = u64::from(usize::BITS - inputs.leading_zeros()) + 1;
        let small = match whole.numbers() {
            Numbers::Small(numbers) if bits + terms < 126 => {
                let weights = scaled.iter().map(|w| i128::try_from(w).unwrap_or(0)).collect();
                Some((numbers.as_slice(), weights))
            }
            _ => None,
        };
        Ok(Scaled { whole, weights: scaled, denominator, small })
    }

    /// (w · x + b) D for one instance.
    fn sum(&self, instance: usize) -> BigInt {
        let inputs = self.whole.inputs();
        if let Some((numbers, weights)) = &self.small {
            let row = &numbers[instance * inputs..][..inputs];
            return (row.iter().zip(weights).map(|(&n, w)| i128::from(n) * w).sum::<i128>() + weights[inputs]).into();
        }
        let at = instance * inputs;
        let sum: BigInt = match self.whole.numbers() {
            Numbers::Small(numbers) => numbers[at..at + inputs].iter().zip(&self.weights).map(|(n, w)| w * n).sum(),
            Numbers::Large(numbers) => numbers[at..at + inputs].iter().zip(&self.weights).map(|(n, w)| w * n).sum(),
        };
        sum + &self.weights[inputs]
    }

    fn sums(&self) -> impl Iterator<Item = BigInt> + '_ {
        (0..self.whole.len()).map(|instance| self.sum(instance))
    }
}

/// Confirms that the weights (bias last) put every instance strictly on the side of its target, and returns
/// the smallest tᵢ (w · xᵢ + b), exactly.
pub fn check_separation(points: &Points, targets: &[bool], weights: &[Rational]) -> Result<Rational, Refusal> {
    if targets.len() != points.len() {
        return Err(Refusal::Size { found: targets.len(), expected: points.len() });
    }
    let unit = Scaled::new(points, weights)?;
    let mut smallest: Option<BigInt> = None;
    for (instance, (sum, &target)) in unit.sums().zip(targets).enumerate() {
        let margin = if target { sum } else { -sum };
        if !margin.is_positive() {
            return Err(Refusal::WrongSide { instance: instance + 1 });
        }
        if smallest.as_ref().is_none_or(|least| margin < *least) {
            smallest = Some(margin);
        }
    }
    smallest.map(|margin| Rational::new(margin, unit.denominator.clone())).ok_or(Refusal::Zero)
}

/// Confirms a witness: each instance named at most once, not all zero, and the sum exactly zero in every input
/// and in the bias.
pub fn check_witness(points: &Points, targets: &[bool], witness: &Witness) -> Result<(), Refusal> {
    if targets.len() != points.len() {
        return Err(Refusal::Size { found: targets.len(), expected: points.len() });
    }
    let mut named = vec![false; points.len()];
    for (instance, _) in witness {
        if *instance >= points.len() || std::mem::replace(&mut named[*instance], true) {
            return Err(Refusal::Instance { instance: instance + 1 });
        }
    }
    if witness.iter().all(|(_, y)| y.is_zero()) {
        return Err(Refusal::Zero);
    }
    let whole = points.whole();
    for input in 0..=points.inputs() {
        let term = |(instance, y): &(usize, BigUint)| {
            let x = if input < points.inputs() { whole.number(*instance, input) } else { BigInt::one() };
            let term = BigInt::from(y.clone()) * x;
            if targets[*instance] { term } else { -term }
        };
        // The scale of an input divides its whole sum, and so does not matter.
        if !witness.iter().map(term).sum::<BigInt>().is_zero() {
            return Err(Refusal::NotZero { input: input + 1 });
        }
    }
    Ok(())
}

/// The exact outputs of one unit: +1 (true) where w · x + b is greater than zero.
pub(crate) fn exact_outputs(points: &Points, weights: &[Rational]) -> Result<Vec<bool>, Refusal> {
    Ok(Scaled::new(points, weights)?.sums().map(|sum| sum.is_positive()).collect())
}

/// For each instance the unit with the exactly largest pre-activation; the first of several equal ones.
pub(crate) fn exact_argmax(points: &Points, units: &[Vec<Rational>]) -> Result<Vec<usize>, Refusal> {
    let units: Vec<Scaled<'_>> = units.iter().map(|unit| Scaled::new(points, unit)).collect::<Result<_, _>>()?;
    let argmax = |instance: usize| {
        let score = |unit: &Scaled<'_>| Rational::new(unit.sum(instance), unit.denominator.clone());
        let scores: Vec<Rational> = units.iter().map(score).collect();
        (0..scores.len()).reduce(|best, unit| if scores[unit] > scores[best] { unit } else { best }).unwrap_or(0)
    };
    Ok((0..points.len()).map(argmax).collect())
}

/// The exact hinge loss of one unit, Σ max(0, 1 − tᵢ (w · xᵢ + b)).
pub(crate) fn exact_hinge(points: &Points, targets: &[bool], weights: &[Rational]) -> Result<Rational, Refusal> {
    let unit = Scaled::new(points, weights)?;
    let one = BigInt::from(unit.denominator.clone());
    let losses = unit.sums().zip(targets).map(|(sum, &target)| if target { &one - sum } else { &one + sum });
    Ok(Rational::new(losses.filter(Signed::is_positive).sum(), unit.denominator.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> Vec<Rational> {
        Rational::from_floats(values).unwrap()
    }

    /// Small and large whole numbers give the same sums.
    #[test]
    fn both_ways_to_add_agree() {
        let rows: Vec<Vec<f64>> = (0..40).map(|i| vec![f64::from(i) * 0.375 - 7.0, f64::from(i * i % 17)]).collect();
        let points = Points::from_rows(&rows).unwrap();
        let weights = floats(&[0.25, -1.75, 0.03125]);
        let quick = Scaled::new(&points, &weights).unwrap();
        assert!(quick.small.is_some());
        let slow = Scaled { small: None, ..Scaled::new(&points, &weights).unwrap() };
        assert!(quick.sums().eq(slow.sums()));
        let hinge = exact_hinge(&points, &[true; 40], &weights).unwrap().approximate();
        let expected: f64 = rows.iter().map(|r| (1.0 - (0.25 * r[0] - 1.75 * r[1] + 0.03125)).max(0.0)).sum();
        assert!((hinge - expected).abs() < 1e-9 * expected);
    }

    fn xor() -> (Points, Vec<bool>) {
        let rows = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]].map(Vec::from);
        (Points::from_rows(&rows).unwrap(), vec![false, true, true, false])
    }

    fn witness(numbers: &[(usize, u32)]) -> Witness {
        numbers.iter().map(|&(instance, y)| (instance, y.into())).collect()
    }

    #[test]
    fn xor_has_a_witness_and_every_change_breaks_it() {
        let (points, targets) = xor();
        let good = witness(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(check_witness(&points, &targets, &good), Ok(()));
        for instance in 0..4 {
            let mut bad = good.clone();
            bad[instance].1 += 1u32;
            assert!(matches!(check_witness(&points, &targets, &bad), Err(Refusal::NotZero { .. })));
        }
        assert_eq!(check_witness(&points, &targets, &witness(&[])), Err(Refusal::Zero));
        assert_eq!(check_witness(&points, &targets, &witness(&[(0, 0)])), Err(Refusal::Zero));
        let twice = witness(&[(0, 1), (0, 1)]);
        assert_eq!(check_witness(&points, &targets, &twice), Err(Refusal::Instance { instance: 1 }));
        let outside = witness(&[(4, 1)]);
        assert_eq!(check_witness(&points, &targets, &outside), Err(Refusal::Instance { instance: 5 }));
    }

    #[test]
    fn a_boundary_is_not_a_separation() {
        let points = Points::from_rows(&[vec![0.1], vec![0.3]]).unwrap();
        let targets = [false, true];
        assert!(check_separation(&points, &targets, &floats(&[1.0, -0.2])).is_ok());
        let on_it = check_separation(&points, &targets, &floats(&[1.0, -0.1]));
        assert_eq!(on_it, Err(Refusal::WrongSide { instance: 1 }));
        let wide = check_separation(&points, &targets, &floats(&[1.0]));
        assert_eq!(wide, Err(Refusal::Size { found: 1, expected: 2 }));
    }

    #[test]
    fn rounding_cannot_deceive() {
        // In f64, 0.1 + 0.2 − 0.3 is about 5.6e-17; exactly, the three binary numbers sum to 2.8e-17.
        let points = Points::from_rows(&[vec![0.1, 0.2]]).unwrap();
        let margin = check_separation(&points, &[true], &floats(&[1.0, 1.0, -0.3])).unwrap();
        assert_eq!(margin.approximate(), 2f64.powi(-55));
        let outputs = exact_outputs(&points, &floats(&[1.0, 1.0, -0.1 - 0.2])).unwrap();
        assert_eq!(outputs, [false], "the rounded sum 0.30000000000000004 is above the exact one");
    }

    #[test]
    fn the_first_of_equal_scores_wins() {
        let points = Points::from_rows(&[vec![1.0], vec![-1.0]]).unwrap();
        let units = [floats(&[1.0, 0.0]), floats(&[1.0, 0.0]), floats(&[-1.0, 0.0])];
        assert_eq!(exact_argmax(&points, &units).unwrap(), [0, 2]);
    }
}
