//! Linear programming over whole numbers, for the few cases in which floating point is not enough.
//!
//! Looks for y ≥ 0 with Σ yᵢ aᵢ = 0 and Σ yᵢ |aᵢ| = 1 by the simplex method on a tableau without fractions, with
//! Bland's rule, which cannot cycle. Where there is none, the dual solution is the direction with |wⱼ| ≤ 1 that
//! has the largest margin relative to the lengths |aᵢ| (all norms here are sums of absolute values). Only a growing part of the instances takes part: either they already carry
//! a witness, or the weights that separate them show which instance to add next.

use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, Zero};

use super::cone::{Cone, dot};
use super::elimination::whole_row;
use super::{Verdict, confirm_separation, confirm_witness};
use crate::exact::exact_outputs;
use crate::points::Points;
use crate::rational::Rational;

/// How many tableau entries may be computed in all before the answer is 'unknown'.
const WORK: usize = 20_000_000;

/// Decides over all instances, starting from a part of them.
pub(super) fn decide(
    points: &Points,
    targets: &[bool],
    cone: &Cone<'_>,
    mut part: Vec<usize>,
    stop: &dyn Fn() -> bool,
) -> Verdict {
    let mut work = WORK;
    loop {
        // A tableau that could not be pivoted a few times is not worth making.
        let height = points.inputs() + 3;
        if height * (part.len() + 2 * height) > WORK / 20 {
            return too_large();
        }
        let rows: Vec<Vec<BigInt>> = part.iter().map(|&i| whole_row(points, targets, i)).collect();
        let columns: Vec<&[BigInt]> = rows.iter().map(Vec::as_slice).collect();
        let Some(answer) = Tableau::new(&columns).solve(&mut work, stop) else {
            return too_large();
        };
        match answer {
            Answer::Vanishing(shares) => {
                let named = shares.into_iter().map(|(at, y)| (part[at], y)).collect();
                return confirm_witness(points, targets, named)
                    .unwrap_or_else(|| Verdict::Unknown { why: "the checker refused the witness".into() });
            }
            Answer::Separating(weights) => {
                let exact: Vec<Rational> = weights.into_iter().map(Rational::from).collect();
                let inputs = points.inputs();
                let scaled = |(input, weight): (usize, Rational)| match input {
                    _ if input == inputs => weight,
                    _ => Rational::from(weight.numerator() * BigInt::from(points.whole().scale(input).clone())),
                };
                let exact: Vec<Rational> = exact.into_iter().enumerate().map(scaled).collect();
                if let Some(verdict) = confirm_separation(points, targets, &exact) {
                    return verdict;
                }
                let Some(next) = worst(points, targets, cone, &exact, &part) else {
                    return Verdict::Unknown { why: "the checker refused the weights".into() };
                };
                part.push(next);
            }
        }
    }
}

fn too_large() -> Verdict {
    let why = "the classes touch, or nearly so, and the exact linear program is too large to tell";
    Verdict::Unknown { why: why.into() }
}

/// The instance outside the part that lies furthest on the wrong side.
fn worst(points: &Points, targets: &[bool], cone: &Cone<'_>, weights: &[Rational], part: &[usize]) -> Option<usize> {
    let wrong = outputs_differ(points, targets, weights);
    let weights: Vec<f64> = weights.iter().map(Rational::approximate).collect();
    let depth = |instance: usize| {
        let row = points.row(instance);
        let output = dot(row, &weights[..row.len()]) + weights[row.len()];
        let length = dot(cone.row(instance), cone.row(instance)).sqrt();
        if targets[instance] { output / length } else { -output / length }
    };
    wrong.into_iter().filter(|i| !part.contains(i)).min_by(|&a, &b| depth(a).total_cmp(&depth(b)))
}

/// The instances on the wrong side or on the boundary, exactly.
fn outputs_differ(points: &Points, targets: &[bool], weights: &[Rational]) -> Vec<usize> {
    let opposite: Vec<Rational> =
        weights.iter().map(|w| Rational::new(-w.numerator(), w.denominator().clone())).collect();
    let (Ok(above), Ok(below)) = (exact_outputs(points, weights), exact_outputs(points, &opposite)) else {
        return vec![];
    };
    (0..targets.len()).filter(|&i| !if targets[i] { above[i] } else { below[i] }).collect()
}

enum Answer {
    /// Shares, by position, with which the columns vanish.
    Vanishing(Vec<(usize, BigUint)>),
    /// A direction with a positive product with each column.
    Separating(Vec<BigInt>),
}

/// Rows: the coordinates, then the normalisation, then the objective. Columns: the vectors; a negative artificial
/// variable a coordinate; a positive one a row; the right-hand side. Every entry is a whole number over the
/// common denominator.
struct Tableau {
    vectors: usize,
    height: usize,
    rows: Vec<Vec<BigInt>>,
    basis: Vec<usize>,
    denominator: BigInt,
}

impl Tableau {
    fn new(columns: &[&[BigInt]]) -> Self {
        let (vectors, dimension) = (columns.len(), columns[0].len());
        let height = dimension + 1;
        let artificial = vectors + dimension;
        let last = artificial + height;
        let mut rows = vec![vec![BigInt::zero(); last + 1]; height + 1];
        // The objective is the sum of the artificial variables, expressed by those outside the basis.
        for (at, column) in columns.iter().enumerate() {
            for (row, value) in column.iter().enumerate() {
                rows[row][at] = value.clone();
            }
            rows[dimension][at] = column.iter().map(BigInt::abs).sum();
            rows[height][at] = -(0..height).map(|row| &rows[row][at]).sum::<BigInt>();
        }
        for row in 0..dimension {
            rows[row][vectors + row] = -BigInt::one();
            rows[height][vectors + row] = BigInt::from(2);
        }
        for row in 0..height {
            rows[row][artificial + row] = BigInt::one();
        }
        rows[dimension][last] = BigInt::one();
        rows[height][last] = -BigInt::one();
        let basis = (artificial..last).collect();
        Tableau { vectors, height, rows, basis, denominator: BigInt::one() }
    }

    /// None if the work runs out.
    fn solve(mut self, work: &mut usize, stop: &dyn Fn() -> bool) -> Option<Answer> {
        let artificial = self.vectors + self.height - 1;
        let last = artificial + self.height;
        while let Some(entering) = (0..artificial).find(|&at| self.rows[self.height][at].is_negative()) {
            *work = work.checked_sub(self.rows.len() * (last + 1))?;
            if stop() {
                return None;
            }
            let mut leaving: Option<usize> = None;
            for row in 0..self.height {
                if !self.rows[row][entering].is_positive() {
                    continue;
                }
                leaving = Some(leaving.map_or(row, |best| {
                    let here = &self.rows[row][last] * &self.rows[best][entering];
                    let there = &self.rows[best][last] * &self.rows[row][entering];
                    let earlier = self.basis[row] < self.basis[best];
                    if here < there || (here == there && earlier) { row } else { best }
                }));
            }
            // The objective is bounded from below by zero, so some row always leaves.
            self.pivot(leaving?, entering);
        }
        Some(if self.rows[self.height][last].is_zero() {
            let named = (0..self.height).filter(|&row| self.basis[row] < self.vectors);
            let shares = named.map(|row| (self.basis[row], self.rows[row][last].magnitude().clone()));
            Answer::Vanishing(shares.filter(|(_, y)| !y.is_zero()).collect())
        } else {
            let duals = &self.rows[self.height][artificial..last - 1];
            Answer::Separating(duals.iter().map(|dual| dual - &self.denominator).collect())
        })
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let pivot_row = std::mem::take(&mut self.rows[row]);
        let pivot = pivot_row[column].clone();
        for line in self.rows.iter_mut().filter(|line| !line.is_empty()) {
            let factor = line[column].clone();
            for (value, above) in line.iter_mut().zip(&pivot_row) {
                *value = (&*value * &pivot - &factor * above) / &self.denominator;
            }
        }
        self.rows[row] = pivot_row;
        self.basis[row] = column;
        self.denominator = pivot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::check_separation;
    use crate::rng::Rng;

    /// From any starting part the exact program agrees with a separation or a witness that the checker confirms.
    #[test]
    fn decides_small_whole_problems() {
        let mut rng = Rng::new(2);
        let (mut yes, mut no) = (0, 0);
        for case in 0..80 {
            let (m, n) = (3 + case % 9, 1 + case % 3);
            let rows: Vec<Vec<f64>> = (0..m).map(|_| (0..n).map(|_| rng.below(4) as f64).collect()).collect();
            let points = Points::from_rows(&rows).unwrap();
            let targets: Vec<bool> = (0..m).map(|_| rng.coin()).collect();
            match decide(&points, &targets, &Cone::new(&points, &targets), vec![0], &|| false) {
                Verdict::Separable(found) => {
                    assert!(check_separation(&points, &targets, &found.exact).is_ok());
                    yes += 1;
                }
                Verdict::NotSeparable(_) => no += 1,
                Verdict::Unknown { why } => panic!("case {case}: {why}"),
            }
        }
        assert!(yes > 15 && no > 15, "{yes} {no}");
    }
}
