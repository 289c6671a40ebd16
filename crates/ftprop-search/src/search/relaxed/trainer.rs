//! Weights, and steps on the layers' losses.

use super::super::Setup;
use super::{Relaxed, dot};
use crate::rng::Rng;

/// Units by layer, each with its bias last.
type Layers = Vec<Vec<Vec<f32>>>;

/// The weights, their gradients and Adam's moments.
pub(super) struct Trainer {
    layers: Layers,
    gradients: Layers,
    first: Layers,
    second: Layers,
    steps: i32,
    steepness: f32,
}

impl Trainer {
    pub(super) fn new(setup: &Setup<'_>, inputs: usize, settings: &Relaxed, rng: &mut Rng) -> Self {
        let widen = settings.widen.max(1);
        let mut layers: Layers = vec![];
        let mut fan_in = inputs;
        for (depth, width) in setup.hidden.iter().map(|width| width * widen).chain([setup.data.outputs()]).enumerate() {
            // The frame's instances have length 1 in all, hidden ones 1 in each coordinate.
            let size = if depth == 0 { 1.0 } else { (fan_in as f64).sqrt().recip() };
            let weight = |w: usize, rng: &mut Rng| if w < fan_in { (size * rng.normal()) as f32 } else { 0.0 };
            let unit = |rng: &mut Rng| (0..=fan_in).map(|w| weight(w, rng)).collect();
            layers.push((0..width).map(|_| unit(rng)).collect());
            fan_in = width;
        }
        let zeros: Layers =
            layers.iter().map(|layer| layer.iter().map(|unit| vec![0.0; unit.len()]).collect()).collect();
        let steepness = settings.steepness as f32;
        Trainer { gradients: zeros.clone(), first: zeros.clone(), second: zeros, layers, steps: 0, steepness }
    }

    /// All weights.
    pub(super) fn weights(&self) -> Vec<Vec<Vec<f64>>> {
        let unit = |unit: &Vec<f32>| unit.iter().map(|&w| f64::from(w)).collect();
        self.layers.iter().map(|layer| layer.iter().map(unit).collect()).collect()
    }

    /// Removes the units of a hidden layer that matter least to the layer above, until it has `width`.
    pub(super) fn narrow(&mut self, depth: usize, width: usize) {
        while self.layers[depth].len() > width {
            let matters = |unit: usize| self.layers[depth + 1].iter().map(|above| above[unit].abs()).sum::<f32>();
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

    /// The class of an instance.
    pub(super) fn class(&self, row: &[f32]) -> usize {
        let (_, outputs) = self.forward(row);
        match outputs.last().map_or(&[][..], Vec::as_slice) {
            [z] => usize::from(*z > 0.0),
            several => (0..several.len()).rev().max_by(|&a, &b| several[a].total_cmp(&several[b])).unwrap_or(0),
        }
    }

    /// What each layer gets, and what its units say before their signs are taken.
    fn forward(&self, row: &[f32]) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let mut inputs = vec![row.to_vec()];
        let mut outputs: Vec<Vec<f32>> = vec![];
        for layer in &self.layers {
            let below = &inputs[inputs.len() - 1];
            let z: Vec<f32> = layer.iter().map(|unit| dot(&unit[..below.len()], below) + unit[below.len()]).collect();
            inputs.push(z.iter().map(|&z| if z > 0.0 { 1.0 } else { -1.0 }).collect());
            outputs.push(z);
        }
        (inputs, outputs)
    }

    /// Adds one instance's gradients of all layer losses.
    pub(super) fn gather(&mut self, row: &[f32], label: usize) {
        let (inputs, outputs) = self.forward(row);
        let last = self.layers.len() - 1;
        let mut slopes = output_slopes(&outputs[last], label);
        for depth in (0..=last).rev() {
            let below = &inputs[depth];
            let mut passed = vec![0.0; if depth > 0 { below.len() } else { 0 }];
            for (unit, &slope) in slopes.iter().enumerate().filter(|(_, slope)| **slope != 0.0) {
                let weights = &self.layers[depth][unit];
                passed.iter_mut().zip(weights).for_each(|(p, w)| *p += slope * w);
                let gradient = &mut self.gradients[depth][unit];
                gradient.iter_mut().zip(below).for_each(|(g, x)| *g += slope * x);
                gradient[below.len()] += slope;
            }
            if depth > 0 {
                let slope = |(&g, &z): (&f32, &f32)| layer_slope(g, z, self.steepness);
                slopes = passed.iter().zip(&outputs[depth - 1]).map(slope).collect();
            }
        }
    }

    /// One step of Adam on the mean gradient.
    pub(super) fn step(&mut self, rate: f64, decay: f64, count: usize) {
        self.steps += 1;
        let (fast, slow) = (0.9f32, 0.999f32);
        let (fast_sum, slow_sum) = (1.0 - fast.powi(self.steps), 1.0 - slow.powi(self.steps));
        let (rate, decay, part) = (rate as f32, decay as f32, 1.0 / count as f32);
        let units = self.layers.iter_mut().flatten().zip(self.gradients.iter_mut().flatten());
        let moments = self.first.iter_mut().flatten().zip(self.second.iter_mut().flatten());
        for ((weights, gradients), (firsts, seconds)) in units.zip(moments) {
            let each = weights.iter_mut().zip(gradients).zip(firsts.iter_mut().zip(seconds));
            for ((weight, gradient), (first, second)) in each {
                let slope = *gradient * part + decay * *weight;
                *gradient = 0.0;
                *first = fast * *first + (1.0 - fast) * slope;
                *second = slow * *second + (1.0 - slow) * slope * slope;
                *weight -= rate * (*first / fast_sum) / ((*second / slow_sum).sqrt() + 1e-8);
            }
        }
    }
}

/// A hidden unit's slope: its target is the sign of −∂L/∂h, its loss the soft hinge 1 − tanh(s t z), weighted by |∂L/∂h|
/// and divided by the steepness s, so that the slope at the boundary is |∂L/∂h|.
fn layer_slope(g: f32, z: f32, steepness: f32) -> f32 {
    let target = if g < 0.0 { 1.0 } else { -1.0 };
    let tanh = (steepness * target * z).tanh();
    -target * (1.0 - tanh * tanh) * g.abs()
}

/// The slopes of the logistic loss of one output unit, or of the cross entropy of several.
fn output_slopes(outputs: &[f32], label: usize) -> Vec<f32> {
    if let [z] = outputs {
        return vec![1.0 / (1.0 + (-z).exp()) - label as f32];
    }
    let largest = outputs.iter().fold(f32::NEG_INFINITY, |m, &z| m.max(z));
    let powers: Vec<f32> = outputs.iter().map(|z| (z - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().enumerate().map(|(unit, p)| p / sum - if unit == label { 1.0 } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_slopes_are_those_of_the_loss() {
        let cross_entropy = |z: &[f64]| z.iter().map(|z| z.exp()).sum::<f64>().ln() - z[1];
        let z = [0.3, -0.7, 1.1];
        let slopes = output_slopes(&z.map(|z| z as f32), 1);
        for unit in 0..3 {
            let mut moved = z;
            moved[unit] += 1e-6;
            let slope = (cross_entropy(&moved) - cross_entropy(&z)) / 1e-6;
            assert!((slope - f64::from(slopes[unit])).abs() < 1e-5);
        }
    }
}
