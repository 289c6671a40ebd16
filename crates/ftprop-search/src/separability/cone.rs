//! The vectors aᵢ = tᵢ (xᵢ, 1) in well-scaled coordinates: a dataset is separable if and only if some w has
//! aᵢ · w > 0 for all of them.

use num_bigint::{BigInt, BigUint};
use num_traits::{One, ToPrimitive, Zero};

use crate::points::Points;
use crate::rational::{Rational, decode};
use crate::whole::{Numbers, Whole};

/// The vectors, row after row. Each input n, a whole number, becomes (n − centre) / 2^power. That changes neither
/// whether a separating direction exists nor which combinations of the vectors vanish, but helps floating point; and
/// it is exact up to the last rounding, however close two large numbers are.
pub(super) struct Cone<'a> {
    pub(super) dimension: usize,
    rows: Vec<f64>,
    whole: &'a Whole,
    centre: Vec<BigInt>,
    power: Vec<u64>,
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight running sums, so that the compiler may use vector instructions.
    let (mut sums, whole) = ([0.0; 8], a.len() / 8 * 8);
    for (x, y) in a[..whole].chunks_exact(8).zip(b[..whole].chunks_exact(8)) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let tail: f64 = a[whole..].iter().zip(&b[whole..]).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + tail
}

impl<'a> Cone<'a> {
    pub(super) fn new(points: &'a Points, targets: &[bool]) -> Self {
        let whole = points.whole();
        let inputs = whole.inputs();
        let mut rows = vec![0.0; whole.len() * (inputs + 1)];
        let (centre, power) = match whole.numbers() {
            Numbers::Small(numbers) => small_rows(numbers, inputs, &mut rows),
            Numbers::Large(numbers) => large_rows(numbers, inputs, &mut rows),
        };
        for (row, &target) in rows.chunks_exact_mut(inputs + 1).zip(targets) {
            row[inputs] = 1.0;
            if !target {
                row.iter_mut().for_each(|x| *x = -*x);
            }
        }
        Cone { dimension: inputs + 1, rows, whole, centre, power }
    }

    pub(super) fn row(&self, instance: usize) -> &[f64] {
        &self.rows[instance * self.dimension..][..self.dimension]
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.rows.chunks_exact(self.dimension)
    }

    /// A direction in these coordinates as weights for the points as they were given, the bias last, exactly.
    pub(super) fn weights(&self, direction: &[f64]) -> Vec<Rational> {
        let parts: Vec<(i64, i32)> = direction.iter().map(|&d| decode(d)).collect();
        let last = self.dimension - 1;
        let exponent = |at: usize| i64::from(parts[at].1) - self.power.get(at).map_or(0, |&p| p as i64);
        let lowest = (0..=last).map(exponent).min().unwrap_or(0).min(0);
        let scaled = |at: usize| BigInt::from(parts[at].0) << (exponent(at) - lowest) as u64;
        let below = BigUint::one() << (-lowest) as u64;
        let mut bias = scaled(last);
        let mut weights = Vec::with_capacity(self.dimension);
        for input in 0..last {
            let weight = scaled(input);
            bias -= &weight * &self.centre[input];
            weights.push(Rational::new(weight * BigInt::from(self.whole.scale(input).clone()), below.clone()));
        }
        weights.push(Rational::new(bias, below));
        weights
    }

    /// The perceptron on vectors of unit length; a direction if it comes to rest within `passes`.
    pub(super) fn perceptron(&self, passes: usize) -> Option<Vec<f64>> {
        let mut direction = vec![0.0; self.dimension];
        let lengths: Vec<f64> = self.rows().map(|row| dot(row, row).sqrt()).collect();
        for _ in 0..passes {
            let mut updates = 0;
            for (row, length) in self.rows().zip(&lengths) {
                // A little more than the right side, so that rounding does not undo it.
                if dot(row, &direction) <= 1e-9 * length {
                    direction.iter_mut().zip(row).for_each(|(d, a)| *d += a / length);
                    updates += 1;
                }
            }
            if updates == 0 {
                return Some(direction);
            }
        }
        None
    }
}

/// Fills in the inputs of each row, the bias left out; returns each input's centre and power.
fn small_rows(numbers: &[i64], inputs: usize, rows: &mut [f64]) -> (Vec<BigInt>, Vec<u64>) {
    let (mut low, mut high) = (vec![i64::MAX; inputs], vec![i64::MIN; inputs]);
    for row in numbers.chunks_exact(inputs) {
        for (input, &n) in row.iter().enumerate() {
            low[input] = low[input].min(n);
            high[input] = high[input].max(n);
        }
    }
    let centre: Vec<i64> = low.iter().zip(&high).map(|(l, h)| l + (h - l) / 2).collect();
    let half = |(c, h): (&i64, &i64)| u64::from(64 - (h - c).unsigned_abs().leading_zeros());
    let power: Vec<u64> = centre.iter().zip(&high).map(half).collect();
    let scale: Vec<f64> = power.iter().map(|&p| 2f64.powi(-(p as i32))).collect();
    for (row, to) in numbers.chunks_exact(inputs).zip(rows.chunks_exact_mut(inputs + 1)) {
        for input in 0..inputs {
            to[input] = (row[input] - centre[input]) as f64 * scale[input];
        }
    }
    (centre.into_iter().map(BigInt::from).collect(), power)
}

fn large_rows(numbers: &[BigInt], inputs: usize, rows: &mut [f64]) -> (Vec<BigInt>, Vec<u64>) {
    let (mut centre, mut power) = (vec![], vec![]);
    for input in 0..inputs {
        let column = || numbers.iter().skip(input).step_by(inputs);
        let (low, high) = (column().min(), column().max());
        let (low, high) = (low.cloned().unwrap_or_default(), high.cloned().unwrap_or_default());
        let middle: BigInt = &low + (&high - &low) / 2;
        let bits = (&high - &middle).bits();
        // A number of f64 has 1,023 bits at most; what is cut off below is far beyond its precision.
        let cut = bits.saturating_sub(1000);
        let scale = 2f64.powi(-((bits - cut) as i32));
        for (number, row) in column().zip(rows.chunks_exact_mut(inputs + 1)) {
            let offset: BigInt = number - &middle;
            row[input] = if offset.is_zero() { 0.0 } else { (offset >> cut).to_f64().unwrap_or(0.0) * scale };
        }
        centre.push(middle);
        power.push(bits);
    }
    (centre, power)
}
