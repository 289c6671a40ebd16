//! Folding: affine maps compose, and a hard activation after one is a set of thresholds.

use super::network::BatchNorm;
use crate::model::Activation;

/// slope · x + offset, of one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    pub(super) offset: f64,
}

impl Line {
    pub(super) const IDENTITY: Line = Line { slope: 1.0, offset: 0.0 };

    pub(super) fn at(self, x: f64) -> f64 {
        self.slope * x + self.offset
    }

    /// First `self`, then `next`.
    pub(super) fn then(self, next: Line) -> Line {
        Line { slope: self.slope * next.slope, offset: next.at(self.offset) }
    }
}

/// What a batch norm does to each channel.
pub(super) fn lines(norm: &BatchNorm) -> Vec<Line> {
    (0..norm.gamma.len())
        .map(|c| {
            let slope = norm.gamma[c] as f64 / (norm.var[c] as f64 + norm.eps).sqrt();
            Line { slope, offset: norm.beta[c] as f64 - norm.mean[c] as f64 * slope }
        })
        .collect()
}

/// The largest sum that a threshold need tell apart; beyond it lies nothing a layer can reach.
const REACH: i64 = 1 << 50;

/// One channel's activation as thresholds on its integer sum.
pub(super) struct Channel {
    /// The level is the number of these below the sum.
    pub(super) thresholds: Vec<i64>,
    /// Whether the weights, and so the sum, must change their sign first.
    pub(super) negated: bool,
}

/// Thresholds for the level of `activation` at `line(sum)`, or, if `inverted`, for the number of steps it has not
/// taken. A falling count becomes a rising one by changing the sum's sign; without slope the count is constant.
pub(super) fn channel(activation: Activation, line: Line, inverted: bool) -> Channel {
    let steps = activation.steps().unwrap_or(0);
    let negated = (line.slope < 0.0) != inverted && line.slope != 0.0;
    let sign = if negated { -1.0 } else { 1.0 };
    let counts = |i: u8, sum: i64| (line.at(sign * sum as f64) > activation.threshold(i)) != inverted;
    // Inverted steps rise in the opposite order; a count does not care.
    let thresholds = (0..steps).map(|i| last_false(|sum| counts(i, sum))).collect();
    Channel { thresholds, negated }
}

/// The largest sum at which a rising predicate is still false; −∞ and ∞ where it is always or never true.
fn last_false(rises: impl Fn(i64) -> bool) -> i64 {
    if rises(-REACH) {
        return i64::MIN;
    }
    if !rises(REACH) {
        return i64::MAX;
    }
    let (mut is_false, mut is_true) = (-REACH, REACH);
    while is_true - is_false > 1 {
        let middle = is_false + (is_true - is_false) / 2;
        if rises(middle) {
            is_true = middle;
        } else {
            is_false = middle;
        }
    }
    is_false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(channel: &Channel, sum: i64) -> usize {
        let sum = if channel.negated { -sum } else { sum };
        channel.thresholds.iter().filter(|&&threshold| sum > threshold).count()
    }

    #[test]
    fn thresholds_do_what_the_activation_does() {
        for activation in [Activation::Sign, Activation::QRelu(2), Activation::QRelu(3), Activation::QRelu(5)] {
            let steps = activation.steps().unwrap_or(0);
            for slope in [0.25, -0.25, 0.1, -3.0, 0.0, -0.0] {
                for offset in [0.0, 0.5, -0.75, 7.0, -7.0] {
                    let line = Line { slope, offset };
                    for sum in -60..=60 {
                        let z = line.at(sum as f64);
                        let expected = (0..steps).filter(|&i| z > activation.threshold(i)).count();
                        assert_eq!(level(&channel(activation, line, false), sum), expected);
                        assert_eq!(level(&channel(activation, line, true), sum), steps as usize - expected);
                    }
                }
            }
        }
    }

    #[test]
    fn norm_and_bias_compose() {
        let norm = BatchNorm { gamma: vec![-2.0], beta: vec![0.5], mean: vec![3.0], var: vec![3.0], eps: 1.0 };
        let both = Line { slope: 0.5, offset: 1.0 }.then(lines(&norm)[0]);
        assert_eq!(both.at(10.0), -(6.0 - 3.0) + 0.5);
    }
}
