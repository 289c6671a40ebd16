//! Rosenblatt's perceptron with a pocket (Gallant): it keeps the best weights it has seen.

use super::{Learned, Learner, LearnerStop, Task};
use crate::sides::pre_activation;

/// The perceptron; stops when a pass changes nothing or after so many passes.
#[derive(Clone, Debug)]
pub struct Perceptron {
    /// Most passes over the instances.
    pub passes: usize,
}

impl Default for Perceptron {
    fn default() -> Self {
        Perceptron { passes: 1000 }
    }
}

impl Learner for Perceptron {
    /// The perceptron criterion; on the boundary an instance is as wrong as can be seen.
    fn loss(&self, z: f64, target: bool) -> f64 {
        if target == (z > 0.0) { 0.0 } else { z.abs().max(f64::MIN_POSITIVE) }
    }

    fn learn(&self, task: &Task<'_>) -> Learned {
        let inputs = task.points.inputs();
        let mut weights = vec![0.0; inputs + 1];
        let mut pocket = Learned::new(task, weights.clone(), LearnerStop::Limit, 0);
        let mut updates = 0;
        for _ in 0..self.passes {
            if task.stopped() {
                break;
            }
            let before = updates;
            for (instance, row) in task.points.rows().enumerate() {
                let sign = task.sign(instance);
                if sign * pre_activation(&weights, row) <= 0.0 {
                    weights.iter_mut().zip(row).for_each(|(w, x)| *w += sign * x);
                    weights[inputs] += sign;
                    updates += 1;
                }
            }
            let now = Learned::new(task, weights.clone(), LearnerStop::Limit, updates);
            if updates == before {
                return Learned { stop: LearnerStop::Separated, novikoff: Some(novikoff(task, &weights)), ..now };
            }
            if now.errors < pocket.errors {
                pocket = now;
            }
        }
        Learned { updates, ..pocket }
    }
}

/// (R / γ)²: no perceptron makes more updates than this on instances of length at most R (bias included) that
/// some weights separate with margin γ. The margin found is not the largest, so the true bound is lower still.
fn novikoff(task: &Task<'_>, weights: &[f64]) -> f64 {
    let longest = task.points.rows().map(|row| row.iter().map(|x| x * x).sum::<f64>() + 1.0).fold(0.0, f64::max);
    let norm: f64 = weights.iter().map(|w| w * w).sum();
    let margin = task.margins(weights).fold(f64::INFINITY, f64::min);
    longest * norm / (margin * margin)
}
