//! FTPROP with its feasibility checks relaxed (the paper's Algorithm 2, on small problems as a whole).
//!
//! Where there are more inputs than instances almost any targets are feasible, and which of them generalise is the
//! question. So this search asks for targets that stay realised when the instances are shaken: each step jitters
//! them, sets every hidden target by the gradient-sign rule on the loss of the layer above, weighted by how much it
//! matters, and takes a small step on each layer's soft hinge loss. Pictures are also moved by a pixel, and mixed with
//! another one of their class.

use super::{Control, Found, Search, Setup, Stop, loss_of};
use crate::error::SearchError;
use crate::network::Network;
use crate::points::{Labelled, Points};
use crate::rng::Rng;

/// Relaxed FTPROP from one start.
#[derive(Clone, Debug)]
pub struct Relaxed {
    /// How many steps; the step size falls linearly to zero over them.
    pub steps: usize,
    /// The length of the jitter relative to the instances' mean distance from their centre.
    pub jitter: f64,
    /// The first step size (Adam).
    pub rate: f64,
    /// L2 regularisation of all weights.
    pub decay: f64,
    /// Hidden layers begin this many times as wide as asked for, and lose the unit that matters least again and again
    /// until the middle of the steps.
    pub widen: usize,
}

impl Default for Relaxed {
    fn default() -> Self {
        Relaxed { steps: 3000, jitter: 1.0, rate: 0.01, decay: 1e-3, widen: 4 }
    }
}

/// Most instances in a step.
const BATCH: usize = 100;
/// How often in a run the whole network is looked at.
const LOOKS: usize = 30;

impl Search for Relaxed {
    fn name(&self) -> &'static str {
        "relaxed"
    }

    fn uses_learner(&self) -> bool {
        false
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let frame = Frame::new(&setup.data.points);
        let pictures = setup.picture.and_then(|size| Pictures::new(&frame, setup.data, size));
        let mut rng = Rng::new(setup.seed);
        let mut trainer = Trainer::new(setup, frame.basis.len(), self.widen.max(1), &mut rng);
        let mut order: Vec<usize> = (0..frame.rows.len()).collect();
        let mut best: Option<(f64, Network)> = None;
        for step in 0..=self.steps {
            let stop = control.stop().is_some();
            let widest = self.widen_at(step);
            for (depth, &width) in setup.hidden.iter().enumerate() {
                let width = if stop { width } else { (width as f64 * widest).round() as usize };
                trainer.narrow(depth, width);
            }
            if stop || step == self.steps || step % (self.steps / LOOKS).max(1) == 0 {
                let network = frame.network(&trainer.layers);
                let loss = loss_of(&network, setup.data, setup.loss);
                let wide = network.widths().iter().zip(setup.hidden).any(|(now, wanted)| now > wanted);
                control.count(1);
                if !wide && best.as_ref().is_none_or(|(least, _)| loss < *least) {
                    control.improved(loss, setup.floor());
                }
                // Among equals the later one: its margins are larger.
                if !wide && best.as_ref().is_none_or(|(least, _)| loss <= *least) {
                    best = Some((loss, network));
                }
            }
            if stop || step == self.steps {
                break;
            }
            rng.shuffle(&mut order);
            // At the end the pictures are seen as they are: those are what must be right.
            let share = ((0.95 - step as f64 / self.steps as f64) / 0.2).clamp(0.0, 1.0);
            for &instance in order.iter().take(BATCH) {
                let length = self.jitter / (frame.basis.len() as f64).sqrt();
                let seen = match pictures.as_ref().filter(|_| rng.uniform() < share) {
                    Some(pictures) => pictures.draw(instance, &mut rng),
                    None => frame.rows[instance].clone(),
                };
                let shaken: Vec<f64> = seen.iter().map(|x| x + length * rng.normal()).collect();
                trainer.gather(&shaken, setup.data.labels[instance]);
            }
            let rate = self.rate * (1.0 - step as f64 / self.steps as f64);
            trainer.step(rate, self.decay, order.len().min(BATCH));
        }
        let (loss, network) = best.ok_or(SearchError::ZeroBudget)?;
        Ok(Found::unproved(setup, network, loss, control.stop().unwrap_or(Stop::Ended)))
    }
}

impl Relaxed {
    /// How many times as wide as asked for the hidden layers are at a step: from an eighth of the steps on it falls,
    /// until they have their width at the half.
    fn widen_at(&self, step: usize) -> f64 {
        let done = step as f64 / self.steps as f64;
        let left = ((0.5 - done) / 0.375).clamp(0.0, 1.0);
        (self.widen.max(1) as f64).powf(left)
    }
}

/// Coordinates in which the instances are centred, have mean square length 1, and number no more than there are
/// instances: what is orthogonal to all of them carries no information.
struct Frame {
    centre: Vec<f64>,
    scale: f64,
    basis: Vec<Vec<f64>>,
    rows: Vec<Vec<f64>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

impl Frame {
    fn new(points: &Points) -> Self {
        let count = points.len() as f64;
        let mut centre = vec![0.0; points.inputs()];
        points.rows().for_each(|row| centre.iter_mut().zip(row).for_each(|(c, x)| *c += x / count));
        let centred: Vec<Vec<f64>> =
            points.rows().map(|row| row.iter().zip(&centre).map(|(x, c)| x - c).collect()).collect();
        let scale = (centred.iter().map(|row| dot(row, row)).sum::<f64>() / count).sqrt().max(f64::MIN_POSITIVE);
        let mut basis: Vec<Vec<f64>> = vec![];
        for row in &centred {
            if basis.len() == points.inputs() {
                break;
            }
            let mut rest = row.clone();
            // Twice, because once loses orthogonality to rounding.
            for _ in 0..2 {
                for known in &basis {
                    let part = dot(&rest, known);
                    rest.iter_mut().zip(known).for_each(|(r, k)| *r -= part * k);
                }
            }
            let length = dot(&rest, &rest).sqrt();
            if length > 1e-9 * scale {
                rest.iter_mut().for_each(|r| *r /= length);
                basis.push(rest);
            }
        }
        let rows = centred.iter().map(|row| basis.iter().map(|b| dot(b, row) / scale).collect()).collect();
        Frame { centre, scale, basis, rows }
    }

    /// Where an input lies, as far as the frame can tell.
    fn place(&self, input: &[f64]) -> Vec<f64> {
        let centred: Vec<f64> = input.iter().zip(&self.centre).map(|(x, c)| x - c).collect();
        self.basis.iter().map(|b| dot(b, &centred) / self.scale).collect()
    }

    /// The same network for instances as they were given.
    fn network(&self, layers: &[Vec<Vec<f64>>]) -> Network {
        let mut layers = layers.to_vec();
        for unit in &mut layers[0] {
            let bias = unit.pop().unwrap_or(0.0);
            let mut weights = vec![0.0; self.centre.len()];
            for (along, b) in unit.iter().zip(&self.basis) {
                weights.iter_mut().zip(b).for_each(|(w, b)| *w += along * b / self.scale);
            }
            weights.push(bias - dot(&weights, &self.centre));
            *unit = weights;
        }
        Network { layers }
    }
}

/// Instances that are pictures, each moved by up to a pixel, in the frame's coordinates.
struct Pictures {
    /// By instance, then by move.
    rows: Vec<Vec<Vec<f64>>>,
    of_class: Vec<Vec<usize>>,
    labels: Vec<usize>,
}

/// More numbers than this are not kept for moved pictures.
const MOST_MOVED: usize = 1 << 24;

impl Pictures {
    /// None if they are not of this size, or too many to be kept.
    fn new(frame: &Frame, data: &Labelled, [height, width]: [usize; 2]) -> Option<Self> {
        let kept = 9 * data.labels.len() * frame.basis.len();
        if height * width != data.points.inputs() || kept > MOST_MOVED {
            return None;
        }
        let moved = |row: &[f64], down: isize, right: isize| -> Vec<f64> {
            let from = |at: usize| {
                let y = (at / width).checked_add_signed(-down).filter(|&y| y < height)?;
                let x = (at % width).checked_add_signed(-right).filter(|&x| x < width)?;
                Some(row[y * width + x])
            };
            (0..row.len()).map(|at| from(at).unwrap_or(0.0)).collect()
        };
        let all = |row: &[f64]| {
            let moves = (-1..=1).flat_map(|down| (-1..=1).map(move |right| (down, right)));
            moves.map(|(down, right)| frame.place(&moved(row, down, right))).collect()
        };
        let mut of_class = vec![vec![]; data.classes.len()];
        data.labels.iter().enumerate().for_each(|(instance, &label)| of_class[label].push(instance));
        Some(Pictures { rows: data.points.rows().map(all).collect(), of_class, labels: data.labels.clone() })
    }

    /// The instance, moved and mixed with another one of its class that is moved in the same way.
    fn draw(&self, instance: usize, rng: &mut Rng) -> Vec<f64> {
        let same = &self.of_class[self.labels[instance]];
        let (other, way, share) = (same[rng.below(same.len())], rng.below(9), rng.uniform());
        self.rows[instance][way].iter().zip(&self.rows[other][way]).map(|(a, b)| a + share * (b - a)).collect()
    }
}

/// The weights, their gradients and Adam's moments.
struct Trainer {
    layers: Vec<Vec<Vec<f64>>>,
    gradients: Vec<Vec<Vec<f64>>>,
    first: Vec<Vec<Vec<f64>>>,
    second: Vec<Vec<Vec<f64>>>,
    steps: i32,
}

impl Trainer {
    fn new(setup: &Setup<'_>, inputs: usize, widen: usize, rng: &mut Rng) -> Self {
        let mut layers = vec![];
        let mut fan_in = inputs;
        for (depth, width) in setup.hidden.iter().map(|width| width * widen).chain([setup.data.outputs()]).enumerate() {
            // The frame's instances have length 1 in all, hidden ones 1 in each coordinate.
            let size = if depth == 0 { 1.0 } else { (fan_in as f64).sqrt().recip() };
            let unit =
                |rng: &mut Rng| (0..=fan_in).map(|w| if w < fan_in { size * rng.normal() } else { 0.0 }).collect();
            layers.push((0..width).map(|_| unit(rng)).collect::<Vec<Vec<f64>>>());
            fan_in = width;
        }
        let zeros: Vec<Vec<Vec<f64>>> =
            layers.iter().map(|layer| layer.iter().map(|unit| vec![0.0; unit.len()]).collect()).collect();
        Trainer { gradients: zeros.clone(), first: zeros.clone(), second: zeros, layers, steps: 0 }
    }

    /// Removes the units of a hidden layer that matter least to the layer above, until it has `width`.
    fn narrow(&mut self, depth: usize, width: usize) {
        while self.layers[depth].len() > width {
            let matters = |unit: usize| self.layers[depth + 1].iter().map(|above| above[unit].abs()).sum::<f64>();
            let units = 0..self.layers[depth].len();
            let least = units.min_by(|&a, &b| matters(a).total_cmp(&matters(b))).unwrap_or(0);
            for part in [&mut self.layers, &mut self.gradients, &mut self.first, &mut self.second] {
                part[depth].remove(least);
                for above in &mut part[depth + 1] {
                    above.remove(least);
                }
            }
        }
    }

    /// Adds one instance's gradients of all layer losses.
    fn gather(&mut self, row: &[f64], label: usize) {
        let mut inputs = vec![row.to_vec()];
        let mut outputs: Vec<Vec<f64>> = vec![];
        for layer in &self.layers {
            let below = &inputs[inputs.len() - 1];
            let z: Vec<f64> = layer.iter().map(|unit| dot(unit, below) + unit[below.len()]).collect();
            inputs.push(z.iter().map(|&z| if z > 0.0 { 1.0 } else { -1.0 }).collect());
            outputs.push(z);
        }
        let last = self.layers.len() - 1;
        let mut slopes = output_slopes(&outputs[last], label);
        for depth in (0..=last).rev() {
            let below = &inputs[depth];
            let mut passed = vec![0.0; below.len()];
            for (unit, &slope) in slopes.iter().enumerate().filter(|(_, slope)| **slope != 0.0) {
                let weights = &self.layers[depth][unit];
                passed.iter_mut().zip(weights).for_each(|(p, w)| *p += slope * w);
                let gradient = &mut self.gradients[depth][unit];
                gradient.iter_mut().zip(below).for_each(|(g, x)| *g += slope * x);
                gradient[below.len()] += slope;
            }
            if depth > 0 {
                slopes = passed.iter().zip(&outputs[depth - 1]).map(|(&g, &z)| layer_slope(g, z)).collect();
            }
        }
    }

    /// One step of Adam on the mean gradient.
    fn step(&mut self, rate: f64, decay: f64, count: usize) {
        self.steps += 1;
        let (fast, slow) = (0.9f64, 0.999f64);
        let (fast_sum, slow_sum) = (1.0 - fast.powi(self.steps), 1.0 - slow.powi(self.steps));
        let weights = self.layers.iter_mut().flatten().flatten();
        let gradients = self.gradients.iter_mut().flatten().flatten();
        let moments = self.first.iter_mut().flatten().flatten().zip(self.second.iter_mut().flatten().flatten());
        for ((weight, gradient), (first, second)) in weights.zip(gradients).zip(moments) {
            let slope = *gradient / count as f64 + decay * *weight;
            *gradient = 0.0;
            *first = fast * *first + (1.0 - fast) * slope;
            *second = slow * *second + (1.0 - slow) * slope * slope;
            *weight -= rate * (*first / fast_sum) / ((*second / slow_sum).sqrt() + 1e-8);
        }
    }
}

/// A hidden unit's slope: its target is the sign of −∂L/∂h, its loss the soft hinge 1 − tanh(t z), weighted by |∂L/∂h|.
fn layer_slope(g: f64, z: f64) -> f64 {
    let target = if g < 0.0 { 1.0 } else { -1.0 };
    let tanh = (target * z).tanh();
    -target * (1.0 - tanh * tanh) * g.abs()
}

/// The slopes of the logistic loss of one output unit, or of the cross entropy of several.
fn output_slopes(outputs: &[f64], label: usize) -> Vec<f64> {
    if let [z] = outputs {
        return vec![1.0 / (1.0 + (-z).exp()) - label as f64];
    }
    let largest = outputs.iter().fold(f64::NEG_INFINITY, |m, &z| m.max(z));
    let powers: Vec<f64> = outputs.iter().map(|z| (z - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().enumerate().map(|(unit, p)| p / sum - if unit == label { 1.0 } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame is only another way to write the same instances and weights.
    #[test]
    fn the_frame_changes_no_output() {
        let mut rng = Rng::new(71);
        for (m, n) in [(5, 12), (20, 3), (7, 7)] {
            let points = Points::new(n, (0..m * n).map(|_| 3.0 + rng.normal()).collect()).unwrap();
            let frame = Frame::new(&points);
            assert!(frame.basis.len() <= n.min(m));
            let unit: Vec<f64> = (0..=frame.basis.len()).map(|_| rng.normal()).collect();
            let network = frame.network(&[vec![unit.clone()], vec![vec![1.0, 0.0]]]);
            for (row, coordinates) in points.rows().zip(&frame.rows) {
                let inside = dot(&unit, coordinates) + unit[coordinates.len()];
                let outside = crate::network::pre_activation(&network.layers[0][0], row);
                assert!((inside - outside).abs() < 1e-9, "{inside} {outside}");
            }
        }
    }

    #[test]
    fn pictures_are_moved_and_stay_in_their_class() {
        let rows =
            [vec![0.0, 1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0, 0.0], vec![1.0, 0.0, 0.0, 1.0], vec![1.0, 1.0, 0.0, 1.0]];
        let points = Points::from_rows(&rows).unwrap();
        let data = Labelled::new(points, vec![0, 0, 1, 1], vec!["a".into(), "b".into()]).unwrap();
        let frame = Frame::new(&data.points);
        assert!(Pictures::new(&frame, &data, [3, 2]).is_none());
        let pictures = Pictures::new(&frame, &data, [2, 2]).unwrap();
        assert_eq!(pictures.rows[0][4], frame.place(&rows[0]), "the fifth move is none");
        assert_eq!(pictures.rows[0][3], frame.place(&[1.0, 0.0, 0.0, 0.0]), "one to the left");
        let mut rng = Rng::new(4);
        for _ in 0..50 {
            let drawn = pictures.draw(0, &mut rng);
            let between = |way: usize| {
                let ends = pictures.rows[0][way].iter().zip(&pictures.rows[1][way]);
                drawn.iter().zip(ends).all(|(x, (a, b))| *x >= a.min(*b) - 1e-12 && *x <= a.max(*b) + 1e-12)
            };
            assert!((0..9).any(between));
        }
    }

    #[test]
    fn output_slopes_are_those_of_the_loss() {
        let cross_entropy = |z: &[f64]| z.iter().map(|z| z.exp()).sum::<f64>().ln() - z[1];
        let z = [0.3, -0.7, 1.1];
        let slopes = output_slopes(&z, 1);
        for unit in 0..3 {
            let mut moved = z;
            moved[unit] += 1e-6;
            assert!(((cross_entropy(&moved) - cross_entropy(&z)) / 1e-6 - slopes[unit]).abs() < 1e-5);
        }
    }
}
