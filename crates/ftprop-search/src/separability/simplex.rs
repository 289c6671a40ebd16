//! Linear programming over whole numbers, for the few cases in which floating point is not enough.
//!
//! Looks for y ≥ 0 with Σ yᵢ aᵢ = 0 and Σ yᵢ |aᵢ| = 1 by the simplex method on a tableau without fractions, with
//! Bland's rule, which cannot cycle. Where there is none, the dual solution is the direction with |wⱼ| ≤ 1 that
//! has the largest margin relative to the lengths |aᵢ| (all norms here are sums of absolute values), and so the
//! one that is most likely to survive rounding. Only a growing part of the instances takes part: either they already carry
//! a witness, or the weights that separate them show which instance to add next.

use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::cone::{Cone, dot};
use super::whole::whole_row;
use super::{Verdict, confirm_separation, confirm_witness};
use crate::points::Points;

/// How many tableau entries may be computed in all before the answer is 'unknown'.
const WORK: usize = 20_000_000;

/// Decides over all instances, starting from a part of them.
pub(super) fn decide(points: &Points, targets: &[bool], cone: &Cone, mut part: Vec<usize>) -> Verdict {
    let mut work = WORK;
    loop {
        // A tableau that could not be pivoted a few times is not worth making.
        let height = points.inputs() + 3;
        if height * (part.len() + 2 * height) > WORK / 20 {
            return too_large();
        }
        let rows: Vec<(Vec<BigInt>, i32)> = part.iter().map(|&i| whole_row(points, targets, i)).collect();
        let columns: Vec<&[BigInt]> = rows.iter().map(|(row, _)| row.as_slice()).collect();
        let Some(answer) = Tableau::new(&columns).solve(&mut work) else {
            return too_large();
        };
        match answer {
            Answer::Vanishing(shares) => {
                let least = rows.iter().map(|(_, power)| *power).min().unwrap_or(0);
                let named = shares.into_iter().map(|(at, y)| (part[at], y << (rows[at].1 - least) as u64)).collect();
                return confirm_witness(points, targets, named)
                    .unwrap_or_else(|| Verdict::Unknown { why: "the checker refused the witness".into() });
            }
            Answer::Separating(weights) => {
                if let Some(verdict) = confirm_separation(points, targets, &weights) {
                    return verdict;
                }
                let Some(next) = worst(points, targets, cone, &weights, &part) else {
                    let why = "weights that separate exist, but none that 64-bit numbers can hold were found";
                    return Verdict::Unknown { why: why.into() };
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
fn worst(points: &Points, targets: &[bool], cone: &Cone, weights: &[f64], part: &[usize]) -> Option<usize> {
    let mut worst = None;
    let mut least = f64::INFINITY;
    for (instance, row) in points.rows().enumerate() {
        if part.contains(&instance) {
            continue;
        }
        let output = dot(row, &weights[..row.len()]) + weights[row.len()];
        let side = if targets[instance] { output } else { -output };
        let length = dot(cone.row(instance), cone.row(instance)).sqrt();
        if side / length < least {
            (worst, least) = (Some(instance), side / length);
        }
    }
    worst
}

enum Answer {
    /// Shares, by position, with which the columns vanish.
    Vanishing(Vec<(usize, BigUint)>),
    /// A direction with a positive product with each column.
    Separating(Vec<f64>),
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
    fn solve(mut self, work: &mut usize) -> Option<Answer> {
        let artificial = self.vectors + self.height - 1;
        let last = artificial + self.height;
        while let Some(entering) = (0..artificial).find(|&at| self.rows[self.height][at].is_negative()) {
            *work = work.checked_sub(self.rows.len() * (last + 1))?;
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
            Answer::Separating(rounded(duals.iter().map(|dual| dual - &self.denominator).collect()))
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

/// The direction in f64, scaled into its range.
fn rounded(direction: Vec<BigInt>) -> Vec<f64> {
    let bits = direction.iter().map(BigInt::bits).max().unwrap_or(0);
    let excess = bits.saturating_sub(1000);
    let values = direction.iter().map(|value| (value >> excess).to_f64().unwrap_or(0.0));
    let scale = 2f64.powi(-(bits.min(1000) as i32));
    values.map(|value| value * scale).collect()
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
            match decide(&points, &targets, &Cone::new(&points, &targets), vec![0]) {
                Verdict::Separable(found) => {
                    assert!(check_separation(&points, &targets, &found.weights).is_ok());
                    yes += 1;
                }
                Verdict::NotSeparable(_) => no += 1,
                Verdict::Unknown { why } => panic!("case {case}: {why}"),
            }
        }
        assert!(yes > 15 && no > 15, "{yes} {no}");
    }
}
