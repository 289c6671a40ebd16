//! Confirms or refuses the two possible answers about separability (Definition 1), exactly.

use num_bigint::{BigInt, BigUint};
use num_traits::Zero;

use super::accumulator::Accumulator;
use super::dyadic::{Dyadic, decode};
use crate::points::Points;

/// A proof that no weights separate: non-negative whole numbers yᵢ, not all zero, with Σ yᵢ tᵢ (xᵢ, 1) = 0
/// (Gordan). If w separated, 0 = w · Σ yᵢ tᵢ xᵢ = Σ yᵢ (tᵢ w · xᵢ) would be positive. Instances that are not
/// listed have y = 0.
pub type Witness = Vec<(usize, BigUint)>;

/// Why the checker does not confirm something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there are {found} numbers where {expected} belong")]
    Size { found: usize, expected: usize },
    #[error("weight {at} is not a finite number")]
    Weight { at: usize },
    #[error("instance {instance} is on the wrong side of its unit, or on the boundary")]
    WrongSide { instance: usize },
    #[error("the witness names instance {instance}, which does not exist or was named before")]
    Instance { instance: usize },
    #[error("the witness is zero for every instance")]
    Zero,
    #[error("the witness does not add up to zero in input {input} (the last one is the bias)")]
    NotZero { input: usize },
}

/// Exactly t (w · x + b).
fn exact_margin(row: &[f64], weights: &[f64], target: bool) -> Dyadic {
    let mut sum = Accumulator::new();
    row.iter().zip(weights).for_each(|(&x, &w)| sum.add_product(w, x, !target));
    sum.add_product(weights[row.len()], 1.0, !target);
    sum.total()
}

fn check_weights(inputs: usize, weights: &[f64]) -> Result<(), Refusal> {
    if weights.len() != inputs + 1 {
        return Err(Refusal::Size { found: weights.len(), expected: inputs + 1 });
    }
    match weights.iter().position(|w| !w.is_finite()) {
        Some(at) => Err(Refusal::Weight { at: at + 1 }),
        None => Ok(()),
    }
}

/// Confirms that the weights (bias last) put every instance strictly on the side of its target, and returns
/// the smallest tᵢ (w · xᵢ + b), exactly.
pub fn check_separation(points: &Points, targets: &[bool], weights: &[f64]) -> Result<Dyadic, Refusal> {
    check_weights(points.inputs(), weights)?;
    if targets.len() != points.len() {
        return Err(Refusal::Size { found: targets.len(), expected: points.len() });
    }
    let mut smallest: Option<Dyadic> = None;
    for (instance, (row, &target)) in points.rows().zip(targets).enumerate() {
        let margin = exact_margin(row, weights, target);
        if !margin.is_positive() {
            return Err(Refusal::WrongSide { instance: instance + 1 });
        }
        if smallest.as_ref().is_none_or(|least| margin < *least) {
            smallest = Some(margin);
        }
    }
    smallest.ok_or(Refusal::Zero)
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
    for input in 0..=points.inputs() {
        let terms = witness.iter().map(|(instance, y)| {
            let x = points.row(*instance).get(input).copied().unwrap_or(1.0);
            let (mantissa, exponent) = decode(if targets[*instance] { x } else { -x });
            (BigInt::from(y.clone()) * mantissa, exponent)
        });
        let terms: Vec<(BigInt, i32)> = terms.filter(|(term, _)| !term.is_zero()).collect();
        let lowest = terms.iter().map(|&(_, exponent)| exponent).min().unwrap_or(0);
        let sum: BigInt = terms.iter().map(|(term, exponent)| term << (exponent - lowest) as u64).sum();
        if !sum.is_zero() {
            return Err(Refusal::NotZero { input: input + 1 });
        }
    }
    Ok(())
}

/// The exact outputs of one unit: +1 (true) where w · x + b is greater than zero.
pub(crate) fn exact_outputs(points: &Points, weights: &[f64]) -> Result<Vec<bool>, Refusal> {
    check_weights(points.inputs(), weights)?;
    Ok(points.rows().map(|row| exact_margin(row, weights, true).is_positive()).collect())
}

/// For each instance the unit with the exactly largest pre-activation; the first of several equal ones.
pub(crate) fn exact_argmax(points: &Points, units: &[Vec<f64>]) -> Result<Vec<usize>, Refusal> {
    units.iter().try_for_each(|weights| check_weights(points.inputs(), weights))?;
    let argmax = |row: &[f64]| {
        let scores: Vec<Dyadic> = units.iter().map(|weights| exact_margin(row, weights, true)).collect();
        (0..scores.len()).reduce(|best, unit| if scores[unit] > scores[best] { unit } else { best }).unwrap_or(0)
    };
    Ok(points.rows().map(argmax).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(check_separation(&points, &targets, &[1.0, -0.2]).is_ok());
        let on_it = check_separation(&points, &targets, &[1.0, -0.1]);
        assert_eq!(on_it, Err(Refusal::WrongSide { instance: 1 }));
        let wide = check_separation(&points, &targets, &[1.0]);
        assert_eq!(wide, Err(Refusal::Size { found: 1, expected: 2 }));
        let nan = check_separation(&points, &targets, &[f64::NAN, 0.0]);
        assert_eq!(nan, Err(Refusal::Weight { at: 1 }));
    }

    #[test]
    fn rounding_cannot_deceive() {
        // In f64, 0.1 + 0.2 − 0.3 is about 5.6e-17; exactly, the three binary numbers sum to 2.8e-17.
        let points = Points::from_rows(&[vec![0.1, 0.2]]).unwrap();
        let margin = check_separation(&points, &[true], &[1.0, 1.0, -0.3]).unwrap();
        assert_eq!(margin.approximate(), 2f64.powi(-55));
        let outputs = exact_outputs(&points, &[1.0, 1.0, -0.1 - 0.2]).unwrap();
        assert_eq!(outputs, [false], "the rounded sum 0.30000000000000004 is above the exact one");
    }

    #[test]
    fn the_first_of_equal_scores_wins() {
        let points = Points::from_rows(&[vec![1.0], vec![-1.0]]).unwrap();
        let units = [vec![1.0, 0.0], vec![1.0, 0.0], vec![-1.0, 0.0]];
        assert_eq!(exact_argmax(&points, &units).unwrap(), [0, 2]);
    }
}
