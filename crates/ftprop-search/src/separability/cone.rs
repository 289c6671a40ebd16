//! The vectors aᵢ = tᵢ (xᵢ, 1) in well-scaled coordinates: a dataset is separable if and only if some w has
//! aᵢ · w > 0 for all of them.

use crate::points::Points;

/// The vectors, row after row, with inputs centred and divided by powers of two. Both change neither whether a
/// separating direction exists nor which combinations of the vectors vanish, but help floating point.
pub(super) struct Cone {
    pub(super) dimension: usize,
    rows: Vec<f64>,
    centre: Vec<f64>,
    scale: Vec<f64>,
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

impl Cone {
    pub(super) fn new(points: &Points, targets: &[bool]) -> Self {
        let inputs = points.inputs();
        let mut low = vec![f64::INFINITY; inputs];
        let mut high = vec![f64::NEG_INFINITY; inputs];
        for row in points.rows() {
            for (input, &x) in row.iter().enumerate() {
                low[input] = low[input].min(x);
                high[input] = high[input].max(x);
            }
        }
        let centre: Vec<f64> = low.iter().zip(&high).map(|(l, h)| l / 2.0 + h / 2.0).collect();
        let power = |half: f64| if half > 0.0 { 2f64.powi(half.log2().ceil() as i32) } else { 1.0 };
        let scale: Vec<f64> = low.iter().zip(&high).map(|(l, h)| power(h / 2.0 - l / 2.0)).collect();
        let mut rows = Vec::with_capacity(points.len() * (inputs + 1));
        for (row, &target) in points.rows().zip(targets) {
            let sign = if target { 1.0 } else { -1.0 };
            rows.extend(row.iter().zip(&centre).zip(&scale).map(|((x, c), s)| sign * ((x - c) / s)));
            rows.push(sign);
        }
        Cone { dimension: inputs + 1, rows, centre, scale }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() / self.dimension
    }

    pub(super) fn row(&self, instance: usize) -> &[f64] {
        &self.rows[instance * self.dimension..][..self.dimension]
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.rows.chunks_exact(self.dimension)
    }

    /// A direction in these coordinates as weights for the points as they were given, the bias last.
    pub(super) fn weights(&self, direction: &[f64]) -> Vec<f64> {
        let (linear, bias) = direction.split_at(self.dimension - 1);
        let mut weights: Vec<f64> = linear.iter().zip(&self.scale).map(|(v, s)| v / s).collect();
        let shift: f64 = weights.iter().zip(&self.centre).map(|(w, c)| w * c).sum();
        weights.push(bias[0] - shift);
        weights
    }

    /// The perceptron on vectors of unit length; weights for the points if it comes to rest within `passes`.
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
                return Some(self.weights(&direction));
            }
        }
        None
    }
}
