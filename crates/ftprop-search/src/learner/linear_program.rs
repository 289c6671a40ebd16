//! The hinge loss alone, Σ cᵢ max(0, 1 − tᵢ (w · xᵢ + b)), by linear programming.
//!
//! Solved through its dual, max Σ αᵢ with Σ αᵢ tᵢ (xᵢ, 1) = 0 and 0 ≤ αᵢ ≤ cᵢ: as many rows as weights,
//! whatever the number of instances. Primal simplex with bounded variables and an explicit inverse; the weights
//! are its prices. Separable targets end with loss zero, and all others with the least hinge loss there is.

use super::{Learned, Learner, LearnerStop, Task};
use crate::points::Points;

/// The simplex method, with a limit on its pivots.
#[derive(Clone, Debug)]
pub struct LinearProgram {
    /// Most pivots.
    pub pivots: usize,
}

impl Default for LinearProgram {
    fn default() -> Self {
        LinearProgram { pivots: 20_000 }
    }
}

const TOLERANCE: f64 = 1e-9;
/// After so many pivots without progress the rule is Bland's, which cannot cycle.
const STALLED: usize = 50;

impl Learner for LinearProgram {
    fn learn(&self, task: &Task<'_>) -> Learned {
        // More inputs than instances are not all needed, and the inverse has the square of them.
        match (task.points.inputs() > task.points.len()).then(|| independent(task.points)) {
            Some(kept) if kept.len() < task.points.inputs() => self.learn_with(task, &kept),
            _ => self.learn_all(task),
        }
    }
}

impl LinearProgram {
    /// With some of the inputs; the others have no weight.
    fn learn_with(&self, task: &Task<'_>, kept: &[usize]) -> Learned {
        let numbers = task.points.rows().flat_map(|row| kept.iter().map(|&input| row[input])).collect();
        let Ok(points) = Points::new(kept.len(), numbers) else { return self.learn_all(task) };
        let learned = self.learn_all(&Task { points: &points, ..*task });
        let mut weights = vec![0.0; task.points.inputs() + 1];
        kept.iter().zip(&learned.weights).for_each(|(&input, &weight)| weights[input] = weight);
        weights[task.points.inputs()] = learned.weights[kept.len()];
        Learned { weights, ..learned }
    }

    fn learn_all(&self, task: &Task<'_>) -> Learned {
        let scale = Scale::of(task);
        let mut program = Program::new(task, &scale);
        let mut stalled = 0;
        for pivots in 0..self.pivots {
            if pivots % 16 == 15 && task.stopped() {
                break;
            }
            let Some(entering) = program.price(stalled > STALLED) else {
                let learned = Learned::new(task, scale.undo(&program.prices()), LearnerStop::Converged, pivots);
                let stop = if learned.errors == 0.0 { LearnerStop::Separated } else { LearnerStop::Converged };
                return Learned { stop, ..learned };
            };
            stalled = if program.enter(entering) > TOLERANCE { 0 } else { stalled + 1 };
        }
        Learned::new(task, scale.undo(&program.prices()), LearnerStop::Limit, self.pivots)
    }
}

/// Inputs of which all others are combinations, with a constant one; in order. One at least.
fn independent(points: &Points) -> Vec<usize> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let count = points.len();
    let mut basis = vec![vec![(count as f64).sqrt().recip(); count]];
    let mut kept = vec![];
    for input in 0..points.inputs() {
        if basis.len() >= count && !kept.is_empty() {
            break;
        }
        let mut rest: Vec<f64> = points.rows().map(|row| row[input]).collect();
        let length = dot(&rest, &rest).sqrt();
        // Twice, because once loses orthogonality to rounding.
        for known in basis.iter().chain(&basis) {
            let part = dot(&rest, known);
            rest.iter_mut().zip(known).for_each(|(r, k)| *r -= part * k);
        }
        let left = dot(&rest, &rest).sqrt();
        if left > TOLERANCE * length {
            rest.iter_mut().for_each(|r| *r /= left);
            basis.push(rest);
            kept.push(input);
        }
    }
    if kept.is_empty() { vec![0] } else { kept }
}

/// Inputs are divided by their largest size, so that one tolerance suits all.
struct Scale(Vec<f64>);

impl Scale {
    fn of(task: &Task<'_>) -> Self {
        let mut largest = vec![0.0f64; task.points.inputs()];
        for row in task.points.rows() {
            largest.iter_mut().zip(row).for_each(|(l, x)| *l = l.max(x.abs()));
        }
        largest.iter_mut().filter(|l| **l == 0.0).for_each(|l| *l = 1.0);
        largest.push(1.0);
        Scale(largest)
    }

    fn undo(&self, prices: &[f64]) -> Vec<f64> {
        prices.iter().zip(&self.0).map(|(p, s)| p / s).collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Lower,
    Upper,
    Basic,
}

struct Program {
    dimension: usize,
    /// tᵢ (xᵢ, 1), scaled, row after row.
    columns: Vec<f64>,
    upper: Vec<f64>,
    place: Vec<Place>,
    /// The variable of each row; none while it is still the artificial one, which must stay zero.
    basis: Vec<Option<usize>>,
    values: Vec<f64>,
    inverse: Vec<Vec<f64>>,
}

impl Program {
    fn new(task: &Task<'_>, scale: &Scale) -> Self {
        let dimension = task.points.inputs() + 1;
        let mut columns = Vec::with_capacity(task.points.len() * dimension);
        for (instance, row) in task.points.rows().enumerate() {
            let sign = task.sign(instance);
            columns.extend(row.iter().chain(&[1.0]).zip(&scale.0).map(|(x, s)| sign * x / s));
        }
        let identity = |row: usize| (0..dimension).map(|c| if c == row { 1.0 } else { 0.0 }).collect();
        Program {
            dimension,
            columns,
            upper: (0..task.points.len()).map(|i| task.importance(i)).collect(),
            place: vec![Place::Lower; task.points.len()],
            basis: vec![None; dimension],
            values: vec![0.0; dimension],
            inverse: (0..dimension).map(identity).collect(),
        }
    }

    fn column(&self, variable: usize) -> &[f64] {
        &self.columns[variable * self.dimension..][..self.dimension]
    }

    /// The dual prices, which are the weights.
    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.dimension];
        for (line, _) in self.inverse.iter().zip(&self.basis).filter(|(_, variable)| variable.is_some()) {
            prices.iter_mut().zip(line).for_each(|(p, l)| *p += l);
        }
        prices
    }

    /// The variable that gains most by moving (or the first that gains, by Bland's rule).
    fn price(&self, first: bool) -> Option<usize> {
        let prices = self.prices();
        let mut best = None;
        let mut most = TOLERANCE;
        for (variable, column) in self.columns.chunks_exact(self.dimension).enumerate() {
            let gain = 1.0 - column.iter().zip(&prices).map(|(a, p)| a * p).sum::<f64>();
            let gain = match self.place[variable] {
                Place::Lower => gain,
                Place::Upper => -gain,
                Place::Basic => continue,
            };
            if gain > most {
                (best, most) = (Some(variable), gain);
                if first {
                    break;
                }
            }
        }
        best
    }

    /// Moves a variable off its bound as far as the others allow; returns how far.
    fn enter(&mut self, entering: usize) -> f64 {
        let column = self.column(entering);
        let up = self.place[entering] == Place::Lower;
        let change: Vec<f64> =
            self.inverse.iter().map(|line| line.iter().zip(column).map(|(l, a)| l * a).sum()).collect();
        let (mut step, mut leaving) = (self.upper[entering], None);
        for (row, &change) in change.iter().enumerate() {
            let falls = if up { change } else { -change };
            let room = match self.basis[row] {
                None if falls.abs() > TOLERANCE => 0.0,
                Some(_) if falls > TOLERANCE => self.values[row].max(0.0) / falls,
                Some(variable) if falls < -TOLERANCE => (self.upper[variable] - self.values[row]).max(0.0) / -falls,
                _ => continue,
            };
            // Among equals the steepest row, for the sake of the inverse.
            if room < step || (room == step && leaving.is_none_or(|(_, other): (_, f64)| falls.abs() > other.abs())) {
                step = room;
                leaving = Some((row, falls));
            }
        }
        let signed = if up { step } else { -step };
        self.values.iter_mut().zip(&change).for_each(|(value, change)| *value -= signed * change);
        let Some((row, falls)) = leaving else {
            self.place[entering] = if up { Place::Upper } else { Place::Lower };
            return step;
        };
        if let Some(variable) = self.basis[row] {
            self.place[variable] = if falls > 0.0 { Place::Lower } else { Place::Upper };
        }
        self.basis[row] = Some(entering);
        self.values[row] = if up { step } else { self.upper[entering] - step };
        self.place[entering] = Place::Basic;
        let mut pivot_line = std::mem::take(&mut self.inverse[row]);
        pivot_line.iter_mut().for_each(|l| *l /= change[row]);
        for (line, &factor) in self.inverse.iter_mut().zip(&change) {
            line.iter_mut().zip(&pivot_line).for_each(|(l, p)| *l -= factor * p);
        }
        self.inverse[row] = pivot_line;
        step
    }
}
