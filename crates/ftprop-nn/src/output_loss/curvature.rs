//! How the loss bends: the diagonal of its second derivatives by the logits.

use super::{Criterion, OutputLoss};

impl OutputLoss {
    /// Whether its second derivatives are more than zeros: those of the plain hinges are not.
    pub fn bends(self) -> bool {
        match self {
            OutputLoss::CrossEntropy | OutputLoss::SquaredMultiHinge | OutputLoss::SquaredOneVsRestHinge => true,
            OutputLoss::MultiHinge | OutputLoss::CrammerSinger | OutputLoss::OneVsRestHinge => false,
        }
    }
}

impl Criterion {
    /// Writes the diagonal of the mean loss's second derivatives by the logits, for learning as
    /// [`learn`](Criterion::learn) goes.
    pub(crate) fn curvatures(&self, logits: &[f32], labels: &[u32], (keep, of): (f32, usize), curvature: &mut [f32]) {
        let classes = logits.len() / labels.len().max(1);
        let rows = logits.chunks_exact(classes).zip(curvature.chunks_exact_mut(classes));
        for (i, (z, curvature)) in rows.enumerate() {
            let target = self.learned(labels, keep, i);
            let weight = (target.weights[0] + target.weights[1]) / of as f32;
            match self.loss {
                OutputLoss::CrossEntropy => softmax(z, curvature),
                loss => squared_violations(loss, z, target.labels[0], curvature),
            }
            curvature.iter_mut().for_each(|c| *c *= weight);
        }
    }
}

/// p (1 − p)
fn softmax(z: &[f32], curvature: &mut [f32]) {
    let most = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = z.iter().map(|&v| f64::from((v - most).exp())).sum();
    for (c, &v) in curvature.iter_mut().zip(z) {
        let p = (v - most).exp() / sum as f32;
        *c = p * (1.0 - p);
    }
}

/// 2/K for each violation that a logit takes part in, where violations are squared; the other hinges do not bend.
fn squared_violations(loss: OutputLoss, z: &[f32], y: usize, curvature: &mut [f32]) {
    let each = 2.0 / z.len() as f32;
    match loss {
        OutputLoss::SquaredMultiHinge => {
            let mut all = 0.0;
            for (j, c) in curvature.iter_mut().enumerate() {
                *c = if j != y && 1.0 - z[y] + z[j] > 0.0 { each } else { 0.0 };
                all += *c;
            }
            curvature[y] = all;
        }
        OutputLoss::SquaredOneVsRestHinge => {
            for (j, c) in curvature.iter_mut().enumerate() {
                let t = if j == y { 1.0 } else { -1.0 };
                *c = if 1.0 - t * z[j] > 0.0 { each } else { 0.0 };
            }
        }
        _ => curvature.fill(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    #[test]
    fn it_is_the_slope_of_the_slopes() {
        let (s, classes, labels) = (Stream::numbered(7), 5, [0u32, 3, 3, 1]);
        let z: Vec<f32> = (0..20).map(|i| s.uniform(i) * 3.0 - 1.5).collect();
        for loss in OutputLoss::ALL {
            let smoothing = if loss == OutputLoss::CrossEntropy { 0.1 } else { 0.0 };
            let criterion = Criterion::new(loss, smoothing).unwrap();
            let criterion = criterion.with_class_weights(vec![1.0, 0.5, 1.0, 2.0, 1.0]).unwrap();
            let keep = if loss == OutputLoss::CrossEntropy { 0.7 } else { 1.0 };
            let mut curvature = vec![f32::NAN; z.len()];
            criterion.curvatures(&z, &labels, (keep, 8), &mut curvature);
            assert_eq!(curvature.iter().any(|&c| c != 0.0), loss.bends(), "{loss}");
            for at in 0..z.len() {
                let slope = |by: f32| {
                    let (mut moved, mut slopes) = (z.clone(), vec![0.0; z.len()]);
                    moved[at] += by;
                    criterion.learn(&moved, &labels, classes, (keep, 8), Some(&mut slopes));
                    slopes[at]
                };
                let numerical = (slope(1e-3) - slope(-1e-3)) / 2e-3;
                assert!((numerical - curvature[at]).abs() < 1e-3, "{loss} at {at}: {} for {numerical}", curvature[at]);
            }
        }
    }
}
