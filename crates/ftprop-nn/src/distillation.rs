//! Learning from a teacher's logits beside the labels (Hinton, Vinyals and Dean 2015).

use crate::NnError;

/// How much a teacher's word counts, and how softly it is spoken.
///
/// The loss becomes (1 − w) L + w T² KL(softmax(teacher / T) ‖ softmax(logits / T)): T² keeps the second part's slopes
/// about as large as without a temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distillation {
    temperature: f32,
    weight: f32,
}

impl Distillation {
    /// A temperature above 0, and a weight above 0 up to 1, which leaves nothing to the labels.
    pub fn new(temperature: f32, weight: f32) -> Result<Self, NnError> {
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(NnError::Setting(format!("a teacher's temperature must be above 0, not {temperature}")));
        }
        if !(weight > 0.0 && weight <= 1.0) {
            return Err(NnError::Setting(format!("a teacher's weight must be above 0 and at most 1, not {weight}")));
        }
        Ok(Distillation { temperature, weight })
    }

    /// What logits are divided by.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// The share of the loss that is the teacher's.
    pub fn weight(&self) -> f32 {
        self.weight
    }

    /// Mixes the teacher's slopes into those of the mean loss by the logits. What is tallied stays the loss of the labels,
    /// so that runs with and without a teacher can be compared. The mean is over a batch of `of` examples, of which there may
    /// be more than these.
    pub fn mix(&self, logits: &[f32], teacher: &[f32], classes: usize, of: usize, slopes: &mut [f32]) {
        let share = 1.0 / of as f32;
        let scale = self.weight * self.temperature * share;
        let rows = logits.chunks_exact(classes).zip(teacher.chunks_exact(classes));
        for ((z, t), slopes) in rows.zip(slopes.chunks_exact_mut(classes)) {
            let (own, wanted) = (self.softened(z), self.softened(t));
            for (j, slope) in slopes.iter_mut().enumerate() {
                *slope = (1.0 - self.weight) * *slope + scale * (own(z[j]) - wanted(t[j]));
            }
        }
    }

    /// One example's loss with the teacher's part, given that of its labels.
    pub(crate) fn loss(&self, of_labels: f64, logits: &[f32], teacher: &[f32]) -> f64 {
        let (own, wanted) = (self.softened(logits), self.softened(teacher));
        let apart = |(&z, &t): (&f32, &f32)| {
            let (p, q) = (f64::from(wanted(t)), f64::from(own(z)));
            if p > 0.0 { p * (p.ln() - q.max(f64::MIN_POSITIVE).ln()) } else { 0.0 }
        };
        let divergence: f64 = logits.iter().zip(teacher).map(apart).sum();
        let (weight, temperature) = (f64::from(self.weight), f64::from(self.temperature));
        (1.0 - weight) * of_labels + weight * temperature * temperature * divergence
    }

    /// Mixes the curvature of the teacher's part, p (1 − p) of the softened logits, into that of the mean loss.
    pub(crate) fn mix_curvature(&self, logits: &[f32], classes: usize, of: usize, curvature: &mut [f32]) {
        let share = 1.0 / of as f32;
        for (z, curvature) in logits.chunks_exact(classes).zip(curvature.chunks_exact_mut(classes)) {
            let own = self.softened(z);
            for (c, &z) in curvature.iter_mut().zip(z) {
                *c = (1.0 - self.weight) * *c + self.weight * share * own(z) * (1.0 - own(z));
            }
        }
    }

    /// The softmax of logits / T, as a function of one of them.
    fn softened(&self, z: &[f32]) -> impl Fn(f32) -> f32 {
        let most = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let cold = 1.0 / self.temperature;
        let sum: f64 = z.iter().map(|&v| f64::from(((v - most) * cold).exp())).sum();
        let scale = 1.0 / sum as f32;
        move |v| ((v - most) * cold).exp() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output_loss::{Criterion, OutputLoss};
    use ftprop_tensor::random::Stream;

    /// T² KL(teacher ‖ own), in double precision.
    fn divergence(logits: &[f32], teacher: &[f32], temperature: f64) -> f64 {
        let log_softmax = |z: &[f32]| {
            let z: Vec<f64> = z.iter().map(|&v| f64::from(v) / temperature).collect();
            let sum = z.iter().map(|v| v.exp()).sum::<f64>().ln();
            z.into_iter().map(move |v| v - sum).collect::<Vec<f64>>()
        };
        let (own, wanted) = (log_softmax(logits), log_softmax(teacher));
        let sum: f64 = wanted.iter().zip(&own).map(|(t, o)| t.exp() * (t - o)).sum();
        temperature * temperature * sum
    }

    #[test]
    fn slopes_are_those_of_the_mixed_loss() {
        let (n, classes, s) = (4, 6, Stream::numbered(31));
        let numbers = |from: u64| -> Vec<f32> { (0..24).map(|i| 5.0 * s.uniform(from + i) - 2.5).collect() };
        let (z, teacher, labels) = (numbers(0), numbers(100), [0, 5, 2, 2]);
        let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
        for (temperature, weight) in [(1.0, 0.3), (4.0, 0.9), (0.5, 1.0)] {
            let distillation = Distillation::new(temperature, weight).unwrap();
            let mut slopes = vec![f32::NAN; z.len()];
            criterion.apply(&z, &labels, classes, Some(&mut slopes));
            distillation.mix(&z, &teacher, classes, z.len() / classes, &mut slopes);
            let loss = |z: &[f32]| {
                let rows = z.chunks(classes).zip(teacher.chunks(classes));
                let apart: f64 = rows.map(|(z, t)| divergence(z, t, f64::from(temperature))).sum::<f64>() / n as f64;
                let own = criterion.apply(z, &labels, classes, None).loss();
                f64::from(1.0 - weight) * own + f64::from(weight) * apart
            };
            for i in 0..z.len() {
                let at = |delta: f32| {
                    let mut moved = z.clone();
                    moved[i] += delta;
                    loss(&moved)
                };
                let numerical = (at(1e-2) - at(-1e-2)) / 2e-2;
                assert!((f64::from(slopes[i]) - numerical).abs() < 1e-3, "T = {temperature} w = {weight} at {i}");
            }
        }
    }

    #[test]
    fn a_teacher_that_says_the_same_leaves_the_labels() {
        let z = [1.0f32, -2.0, 0.5];
        let mut slopes = [0.25f32, -0.5, 0.25];
        Distillation::new(3.0, 0.5).unwrap().mix(&z, &z, 3, z.len() / 3, &mut slopes);
        assert_eq!(slopes, [0.125, -0.25, 0.125]);
        for (temperature, weight) in [(0.0, 0.5), (f32::NAN, 0.5), (f32::INFINITY, 0.5), (1.0, 0.0), (1.0, 1.5)] {
            assert!(Distillation::new(temperature, weight).is_err(), "{temperature} {weight}");
        }
    }
}
