//! Linear separability with proof (Definition 1).
//!
//! Solvers in floating point propose, the checker in [`crate::exact`] disposes: a *yes* comes with weights, a
//! *no* with a witness, and both were confirmed in exact arithmetic. What cannot be confirmed is *unknown*.
//!
//! ```
//! use ftprop_search::{Points, Verdict, separable};
//! let points = Points::from_rows(&[vec![0.0, 0.0], vec![0.0, 1.0], vec![1.0, 0.0], vec![1.0, 1.0]])?;
//! let and = separable(&points, &[false, false, false, true]);
//! assert!(matches!(and, Verdict::Separable(_)));
//! let xor = separable(&points, &[false, true, true, false]);
//! let Verdict::NotSeparable(witness) = xor else { panic!("XOR is not separable") };
//! assert_eq!(witness.len(), 4, "all four points are needed");
//! # Ok::<(), ftprop_search::SearchError>(())
//! ```

mod cone;
mod elimination;
mod program;
mod simplex;

use num_bigint::{BigInt, BigUint};

use self::cone::Cone;
use self::program::Outcome;
use crate::exact::{Witness, check_separation, check_witness};
use crate::points::Points;
use crate::rational::{Rational, scale_by_power};

/// Weights that separate, confirmed exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Separation {
    /// One weight an input, the bias last: the floats nearest to the exact ones.
    pub weights: Vec<f64>,
    /// The weights exactly. Floats wherever floats separate.
    pub exact: Vec<Rational>,
    /// The smallest tᵢ (w · xᵢ + b), exactly; greater than zero.
    pub functional_margin: Rational,
    /// The smallest distance of an instance from the hyperplane, to the precision of f64.
    pub margin: f64,
}

/// The answer to whether a dataset is linearly separable.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Yes: these weights do it.
    Separable(Separation),
    /// No: this witness excludes it.
    NotSeparable(Witness),
    /// Neither could be confirmed exactly.
    Unknown {
        /// What was tried and where it ended.
        why: String,
    },
}

/// How much work the perceptron may do before the exact methods take over, in multiply-adds.
const PERCEPTRON_WORK: usize = 4_000_000_000;
/// Passes of the perceptron on small problems, where the minimum-norm method is quick anyway.
const PERCEPTRON_PASSES: usize = 100;

/// Decides whether weights exist that put every instance strictly on the side of its target (true is +1).
///
/// Panics if there are not as many targets as points.
pub fn separable(points: &Points, targets: &[bool]) -> Verdict {
    separable_until(points, targets, &|| false)
}

/// Like [`separable`], but ends with [`Verdict::Unknown`] soon after `stop` begins to say so.
pub fn separable_until(points: &Points, targets: &[bool], stop: &dyn Fn() -> bool) -> Verdict {
    assert_eq!(points.len(), targets.len(), "each point needs a target");
    match contradiction(points, targets) {
        Some((a, b)) => confirm_witness(points, targets, vec![(a, 1u32.into()), (b, 1u32.into())])
            .unwrap_or_else(|| Verdict::Unknown { why: "equal points were not confirmed as a witness".into() }),
        None => decide(points, targets, PERCEPTRON_PASSES, stop),
    }
}

/// Like [`separable`], for points of which no two are equal; `passes` of the perceptron come first.
pub(crate) fn separable_distinct(points: &Points, targets: &[bool], passes: usize) -> Verdict {
    decide(points, targets, passes, &|| false)
}

/// Like [`separable_until`], for points of which no two are equal; `passes` of the perceptron come first.
pub(crate) fn decide(points: &Points, targets: &[bool], passes: usize, stop: &dyn Fn() -> bool) -> Verdict {
    if let Some(verdict) = constant(points, targets) {
        return verdict;
    }
    let cone = Cone::new(points, targets);
    let confirm = |direction: &[f64]| confirm_separation(points, targets, &cone.weights(direction));
    let passes = passes.min(PERCEPTRON_WORK / (points.len() * (points.inputs() + 1)));
    if let Some(direction) = cone.perceptron(passes)
        && let Some(verdict) = confirm(&direction)
    {
        return verdict;
    }
    let all: Vec<usize> = (0..points.len()).collect();
    let support = match program::solve(&cone, &all, stop) {
        Outcome::Direction(direction) => match confirm(&direction) {
            Some(verdict) => return verdict,
            None => vec![],
        },
        Outcome::Support(support, direction) => {
            if let Some(witness) = elimination::witness(points, targets, &support)
                && let Some(verdict) = confirm_witness(points, targets, witness)
            {
                return verdict;
            }
            if let Some(verdict) = confirm(&direction) {
                return verdict;
            }
            support
        }
        Outcome::Stopped => return Verdict::Unknown { why: "there was no time to decide".into() },
    };
    let support = if support.is_empty() { vec![0] } else { support };
    simplex::decide(points, targets, &cone, support, stop)
}

/// One class alone is separated by the bias.
fn constant(points: &Points, targets: &[bool]) -> Option<Verdict> {
    if targets.iter().any(|&t| t != targets[0]) {
        return None;
    }
    let mut weights = vec![Rational::from(BigInt::from(0)); points.inputs()];
    weights.push(Rational::from(BigInt::from(if targets[0] { 1 } else { -1 })));
    confirm_separation(points, targets, &weights)
}

/// Asks the checker about weights: rounded to f32 if that does, then to f64, then as they are.
fn confirm_separation(points: &Points, targets: &[bool], weights: &[Rational]) -> Option<Verdict> {
    let parts: Vec<(f64, i64)> = weights.iter().map(Rational::parts).collect();
    let size = |&(head, exponent): &(f64, i64)| exponent + head.abs().log2().floor() as i64;
    let largest = parts.iter().filter(|part| part.0 != 0.0).map(size).max()?;
    // A power of two, so that scaling loses nothing: the largest weight comes to lie between 1 and 2.
    let scaled: Vec<f64> = parts.iter().map(|&(head, exponent)| scale_by_power(head, exponent - largest)).collect();
    let rounded: Vec<f64> = scaled.iter().map(|&w| f64::from(w as f32)).collect();
    let floats = [&rounded, &scaled].into_iter().filter_map(|floats| Rational::from_floats(floats));
    floats.chain([weights.to_vec()]).find_map(|exact| {
        let functional_margin = check_separation(points, targets, &exact).ok()?;
        let margin = distance(&functional_margin, &exact[..points.inputs()]);
        let weights = exact.iter().map(Rational::approximate).collect();
        Some(Verdict::Separable(Separation { weights, exact, functional_margin, margin }))
    })
}

/// A functional margin divided by the length of the weights without the bias, wherever in the range of f64 they lie.
fn distance(functional_margin: &Rational, weights: &[Rational]) -> f64 {
    let parts: Vec<(f64, i64)> = weights.iter().map(Rational::parts).collect();
    let Some(top) = parts.iter().filter(|part| part.0 != 0.0).map(|part| part.1).max() else { return f64::INFINITY };
    let length: f64 = parts.iter().map(|&(head, e)| scale_by_power(head, e - top).powi(2)).sum::<f64>().sqrt();
    let (head, exponent) = functional_margin.parts();
    scale_by_power(head / length, exponent - top)
}

fn confirm_witness(points: &Points, targets: &[bool], witness: Vec<(usize, BigUint)>) -> Option<Verdict> {
    check_witness(points, targets, &witness).ok().map(|()| Verdict::NotSeparable(witness))
}

/// Two equal points with different targets.
fn contradiction(points: &Points, targets: &[bool]) -> Option<(usize, usize)> {
    let (group_of, firsts) = points.distinct();
    let pairs = group_of.iter().enumerate().map(|(instance, &group)| (firsts[group], instance));
    pairs.into_iter().find(|&(first, instance)| targets[first] != targets[instance])
}

#[cfg(test)]
mod tests;
