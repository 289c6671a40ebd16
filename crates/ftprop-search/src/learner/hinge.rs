//! L2-regularised hinge loss, ½|w|² + C Σ cᵢ max(0, 1 − tᵢ (w · xᵢ + b)), by dual coordinate descent
//! (Hsieh et al. 2008). The bias is an input like the others and regularised with them.

use super::{Learned, Learner, LearnerStop, Task};
use crate::rng::Rng;
use crate::sides::pre_activation;

/// Dual coordinate descent.
#[derive(Clone, Debug)]
pub struct Hinge {
    /// C, what an error costs against the size of the weights.
    pub cost: f64,
    /// Stops when no instance asks for a change of its multiplier's gradient larger than this.
    pub tolerance: f64,
    /// Most passes over the instances.
    pub passes: usize,
}

impl Default for Hinge {
    fn default() -> Self {
        Hinge { cost: 1.0, tolerance: 1e-3, passes: 1000 }
    }
}

impl Learner for Hinge {
    fn learn(&self, task: &Task<'_>) -> Learned {
        let inputs = task.points.inputs();
        let mut weights = vec![0.0; inputs + 1];
        let mut multipliers = vec![0.0; task.points.len()];
        let squares: Vec<f64> = task.points.rows().map(|row| row.iter().map(|x| x * x).sum::<f64>() + 1.0).collect();
        let mut order: Vec<usize> = (0..task.points.len()).collect();
        let mut rng = Rng::new(0);
        let mut updates = 0;
        for _ in 0..self.passes {
            rng.shuffle(&mut order);
            let mut largest = 0.0f64;
            for &instance in &order {
                let row = task.points.row(instance);
                let sign = task.sign(instance);
                let slope = sign * pre_activation(&weights, row) - 1.0;
                let limit = self.cost * task.importance(instance);
                let old = multipliers[instance];
                let wanted = (old - slope / squares[instance]).clamp(0.0, limit);
                if wanted != old {
                    // What remains of the slope at a bound that it points out of is nothing.
                    let blocked = (old == 0.0 && slope > 0.0) || (old == limit && slope < 0.0);
                    largest = largest.max(if blocked { 0.0 } else { slope.abs() });
                    let step = sign * (wanted - old);
                    weights.iter_mut().zip(row).for_each(|(w, x)| *w += step * x);
                    weights[inputs] += step;
                    multipliers[instance] = wanted;
                    updates += 1;
                }
            }
            if task.stopped() {
                break;
            }
            if largest <= self.tolerance {
                return Learned::new(task, weights, LearnerStop::Converged, updates);
            }
        }
        Learned::new(task, weights, LearnerStop::Limit, updates)
    }
}
