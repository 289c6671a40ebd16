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
mod min_norm;
mod simplex;
mod whole;

use std::collections::HashMap;

use num_bigint::BigUint;

use self::cone::Cone;
use self::min_norm::Outcome;
use crate::exact::{Dyadic, Witness, check_separation, check_witness};
use crate::points::Points;

/// Weights that separate, confirmed exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Separation {
    /// One weight an input, the bias last.
    pub weights: Vec<f64>,
    /// The smallest tᵢ (w · xᵢ + b), exactly; greater than zero.
    pub functional_margin: Dyadic,
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
    assert_eq!(points.len(), targets.len(), "each point needs a target");
    match contradiction(points, targets) {
        Some((a, b)) => confirm_witness(points, targets, vec![(a, 1u32.into()), (b, 1u32.into())])
            .unwrap_or_else(|| Verdict::Unknown { why: "equal points were not confirmed as a witness".into() }),
        None => separable_distinct(points, targets, PERCEPTRON_PASSES),
    }
}

/// Like [`separable`], for points of which no two are equal; `passes` of the perceptron come first.
pub(crate) fn separable_distinct(points: &Points, targets: &[bool], passes: usize) -> Verdict {
    if let Some(verdict) = constant(points, targets) {
        return verdict;
    }
    let cone = Cone::new(points, targets);
    let passes = passes.min(PERCEPTRON_WORK / (points.len() * (points.inputs() + 1)));
    if let Some(weights) = cone.perceptron(passes)
        && let Some(verdict) = confirm_separation(points, targets, &weights)
    {
        return verdict;
    }
    let confirmed = |direction: &[f64]| confirm_separation(points, targets, &cone.weights(direction));
    let support = match min_norm::solve(&cone, confirmed) {
        Outcome::Separating(verdict) => return verdict,
        Outcome::Origin(support) => support,
    };
    if let Some(witness) = whole::witness(points, targets, &support)
        && let Some(verdict) = confirm_witness(points, targets, witness)
    {
        return verdict;
    }
    simplex::decide(points, targets, &cone, support)
}

/// One class alone is separated by the bias.
fn constant(points: &Points, targets: &[bool]) -> Option<Verdict> {
    if targets.iter().any(|&t| t != targets[0]) {
        return None;
    }
    let mut weights = vec![0.0; points.inputs() + 1];
    weights[points.inputs()] = if targets[0] { 1.0 } else { -1.0 };
    confirm_separation(points, targets, &weights)
}

/// Asks the checker, first with the weights rounded to f32, so that a saved model loses nothing if that will do.
fn confirm_separation(points: &Points, targets: &[bool], weights: &[f64]) -> Option<Verdict> {
    let largest = weights.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return None;
    }
    // A power of two, so that scaling loses nothing: the largest weight comes to lie between 1 and 2.
    let scale = 2f64.powi(-(largest.log2().floor() as i32));
    let scaled: Vec<f64> = weights.iter().map(|w| w * scale).collect();
    let rounded: Vec<f64> = scaled.iter().map(|&w| f64::from(w as f32)).collect();
    [rounded, scaled].into_iter().find_map(|weights| {
        let functional_margin = check_separation(points, targets, &weights).ok()?;
        let norm = weights[..points.inputs()].iter().map(|w| w * w).sum::<f64>().sqrt();
        let margin = functional_margin.approximate() / norm;
        Some(Verdict::Separable(Separation { weights, functional_margin, margin }))
    })
}

fn confirm_witness(points: &Points, targets: &[bool], witness: Vec<(usize, BigUint)>) -> Option<Verdict> {
    check_witness(points, targets, &witness).ok().map(|()| Verdict::NotSeparable(witness))
}

/// Two equal points with different targets.
fn contradiction(points: &Points, targets: &[bool]) -> Option<(usize, usize)> {
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::with_capacity(points.len());
    for (instance, row) in points.rows().enumerate() {
        let key = row.iter().map(|v| (v + 0.0).to_bits()).collect();
        let first = *seen.entry(key).or_insert(instance);
        if targets[first] != targets[instance] {
            return Some((first, instance));
        }
    }
    None
}

#[cfg(test)]
mod tests;
