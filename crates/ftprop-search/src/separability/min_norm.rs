//! The point of smallest norm in the convex hull of the vectors of a [`Cone`] (Wolfe 1976).
//!
//! If that point is not the origin it is a separating direction, the one of largest margin; if it is, the few
//! vectors that carry it, affinely independent and so at most one more than the dimension, are the support of a
//! witness.

use super::cone::{Cone, dot};
use crate::separability::Verdict;

pub(super) enum Outcome {
    /// A direction was found and the checker confirmed it.
    Separating(Verdict),
    /// The origin is in the hull of these vectors, or so near that floating point cannot tell.
    Origin(Vec<usize>),
}

/// A point this much shorter than the longest vector counts as the origin.
const ZERO: f64 = 1e-10;
/// A direction counts as good when its margin is at least this part of the largest possible.
const GOOD: f64 = 0.5;

/// `confirm` asks the checker about a direction.
pub(super) fn solve(cone: &Cone, confirm: impl Fn(&[f64]) -> Option<Verdict>) -> Outcome {
    let norms: Vec<f64> = cone.rows().map(|row| dot(row, row)).collect();
    let longest = norms.iter().fold(0.0f64, |m, &n| m.max(n)).sqrt();
    let start = (0..cone.len()).reduce(|best, i| if norms[i] < norms[best] { i } else { best }).unwrap_or(0);
    let mut corral = Corral::new(cone, start);
    let mut refused_at = f64::INFINITY;
    // Each round lowers the norm; the limit only guards against rounding that makes it go in circles.
    for _ in 0..20 * (cone.len() + cone.dimension) {
        let point = corral.point();
        let norm = dot(&point, &point);
        if norm.sqrt() <= ZERO * longest {
            break;
        }
        let mut nearest = 0;
        let mut least = f64::INFINITY;
        for (instance, row) in cone.rows().enumerate() {
            let product = dot(row, &point);
            if product < least {
                (nearest, least) = (instance, product);
            }
        }
        // Asking again is worth it only after real progress since the last refusal.
        if least > 0.0 && (least >= GOOD * norm || corral.holds(nearest)) && norm < refused_at {
            if let Some(verdict) = confirm(&point) {
                return Outcome::Separating(verdict);
            }
            refused_at = norm * (1.0 - 1e-6);
        }
        if least >= norm * (1.0 - 1e-13) || corral.holds(nearest) || !corral.add(nearest) {
            break;
        }
        corral.descend();
    }
    Outcome::Origin(corral.members)
}

/// The current vectors, their convex combination, and the Cholesky factor L of the matrix (aᵢ · aⱼ + 1), which
/// is positive definite as long as the vectors are affinely independent.
struct Corral<'a> {
    cone: &'a Cone,
    members: Vec<usize>,
    shares: Vec<f64>,
    factor: Vec<Vec<f64>>,
}

impl<'a> Corral<'a> {
    fn new(cone: &'a Cone, first: usize) -> Self {
        let mut corral = Corral { cone, members: vec![], shares: vec![], factor: vec![] };
        corral.add(first);
        corral.shares[0] = 1.0;
        corral
    }

    fn holds(&self, instance: usize) -> bool {
        self.members.contains(&instance)
    }

    fn point(&self) -> Vec<f64> {
        let mut point = vec![0.0; self.cone.dimension];
        for (&member, &share) in self.members.iter().zip(&self.shares) {
            point.iter_mut().zip(self.cone.row(member)).for_each(|(p, a)| *p += share * a);
        }
        point
    }

    /// Takes a vector in with share zero; false if it depends on the others as far as floating point can tell.
    fn add(&mut self, instance: usize) -> bool {
        let row = self.cone.row(instance);
        let mut line: Vec<f64> = self.members.iter().map(|&m| dot(self.cone.row(m), row) + 1.0).collect();
        forward(&self.factor, &mut line);
        let whole = dot(row, row) + 1.0;
        let rest = whole - dot(&line, &line);
        if rest <= 1e-14 * whole {
            return false;
        }
        line.push(rest.sqrt());
        self.factor.push(line);
        self.members.push(instance);
        self.shares.push(0.0);
        true
    }

    /// Moves to the nearest point of the affine hull, leaving out vectors whose share would become negative.
    fn descend(&mut self) {
        loop {
            let wanted = self.affine_shares();
            if wanted.iter().all(|&share| share > 1e-14) {
                self.shares = wanted;
                return;
            }
            // The furthest step that keeps all shares non-negative, and who stops it.
            let (mut step, mut stopper) = (1.0, None);
            for (at, (&now, &then)) in self.shares.iter().zip(&wanted).enumerate() {
                if then <= 1e-14 {
                    let reach = if now > then { (now / (now - then)).max(0.0) } else { 0.0 };
                    if stopper.is_none() || reach < step {
                        (step, stopper) = (reach, Some(at));
                    }
                }
            }
            let Some(stopper) = stopper else { return };
            self.shares.iter_mut().zip(&wanted).for_each(|(now, then)| *now = (*now + step * (then - *now)).max(0.0));
            self.remove(stopper);
            if self.members.len() == 1 {
                self.shares[0] = 1.0;
                return;
            }
        }
    }

    /// Solves (aᵢ · aⱼ + 1) b = 1; the shares of the nearest point are b divided by its sum.
    fn affine_shares(&self) -> Vec<f64> {
        let mut shares = vec![1.0; self.members.len()];
        forward(&self.factor, &mut shares);
        for at in (0..shares.len()).rev() {
            shares[at] /= self.factor[at][at];
            for above in 0..at {
                shares[above] -= self.factor[at][above] * shares[at];
            }
        }
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        shares
    }

    /// Drops a member and makes the factor triangular again by rotations.
    fn remove(&mut self, at: usize) {
        self.members.remove(at);
        self.shares.remove(at);
        self.factor.remove(at);
        for column in at..self.members.len() {
            let (a, b) = (self.factor[column][column], self.factor[column][column + 1]);
            let length = a.hypot(b);
            let (cos, sin) = (a / length, b / length);
            for line in &mut self.factor[column..] {
                let (x, y) = (line[column], line[column + 1]);
                line[column] = cos * x + sin * y;
                line[column + 1] = cos * y - sin * x;
            }
            self.factor[column].truncate(column + 1);
        }
        let sum: f64 = self.shares.iter().sum();
        if sum > 0.0 {
            self.shares.iter_mut().for_each(|share| *share /= sum);
        }
    }
}

/// Solves L y = b in place.
fn forward(factor: &[Vec<f64>], values: &mut [f64]) {
    for (at, line) in factor.iter().enumerate() {
        let known = dot(&line[..at], &values[..at]);
        values[at] = (values[at] - known) / line[at];
    }
}
