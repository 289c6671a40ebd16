//! Looking for an input with another class by going up: signs are smoothed, steps have the size of the box, and are
//! shortened on the way. What it finds is a proposal; that it finds nothing means nothing.

use num_bigint::BigInt;

use super::bound::{Region, float};
use super::halfspaces::{add, dot};
use super::network::{Layer, Layers};
use crate::rng::Rng;

/// Steps of one attempt.
const STEPS: usize = 60;

/// A network around a box whose inputs run from −1 to 1, hidden units divided by what they can change.
pub(super) fn around(network: &Layers<BigInt>, region: &Region<BigInt>) -> Layers<f64> {
    let ends: Vec<(f64, f64)> = region.low.iter().zip(&region.high).map(|(l, h)| (float(l), float(h))).collect();
    let last = network.0.len() - 1;
    let convert = |(depth, layer): (usize, &Layer<BigInt>)| {
        let mut floats = Layer { inputs: layer.inputs, weights: vec![], biases: vec![] };
        for unit in 0..layer.units() {
            let mut row: Vec<f64> = layer.row(unit).iter().map(float).collect();
            let mut bias = float(&layer.biases[unit]);
            if depth == 0 {
                bias += row.iter().zip(&ends).map(|(w, (l, h))| w * (l + h) / 2.0).sum::<f64>();
                row.iter_mut().zip(&ends).for_each(|(w, (l, h))| *w *= (h - l) / 2.0);
            }
            let reach = row.iter().map(|w| w.abs()).sum::<f64>();
            let scale = if depth < last && reach > 0.0 { reach } else { 1.0 };
            floats.weights.extend(row.iter().map(|w| w / scale));
            floats.biases.push(bias / scale);
        }
        floats
    };
    Layers(network.0.iter().enumerate().map(convert).collect())
}

/// Tries `attempts` times for each class of `others`, and asks `confirm` about what it finds.
pub(super) fn attack(
    network: &Layers<f64>,
    own: usize,
    others: &[usize],
    attempts: usize,
    stop: &dyn Fn() -> bool,
    confirm: &mut dyn FnMut(&[f64]) -> bool,
) -> bool {
    let mut rng = Rng::new(1);
    for attempt in 0..attempts {
        for &other in others {
            if stop() {
                return false;
            }
            let start = |_| if attempt == 0 { 0.0 } else { 2.0 * rng.uniform() - 1.0 };
            let mut input: Vec<f64> = (0..network.0[0].inputs).map(start).collect();
            for step in 0..STEPS {
                let left = 1.0 - step as f64 / STEPS as f64;
                let (slopes, wins) = slopes(network, own, other, &input, 0.05 + 0.6 * left);
                if wins && confirm(&input) {
                    return true;
                }
                let pace = 0.6 * left + 0.03;
                for (x, slope) in input.iter_mut().zip(&slopes) {
                    *x = (*x + pace * slope.signum()).clamp(-1.0, 1.0);
                }
            }
        }
    }
    false
}

/// How the lead of class `other` grows with each input where signs are tanh(z / width), and whether any class wins.
/// Widths are relative to the size that a layer's pre-activations have.
fn slopes(network: &Layers<f64>, own: usize, other: usize, input: &[f64], width: f64) -> (Vec<f64>, bool) {
    let sums = |layer: &Layer<f64>, below: &[f64]| -> Vec<f64> {
        layer.biases.iter().enumerate().map(|(unit, bias)| bias + dot(layer.row(unit), below)).collect()
    };
    let (hidden, outputs) = network.parts();
    let mut slants = vec![];
    let (mut soft, mut hard) = (input.to_vec(), input.to_vec());
    for (depth, layer) in hidden.iter().enumerate() {
        let z = sums(layer, &soft);
        let exact = if depth == 0 { z.clone() } else { sums(layer, &hard) };
        hard = exact.iter().map(|&z| if z > 0.0 { 1.0 } else { -1.0 }).collect();
        let size = z.iter().map(|z| z.abs()).sum::<f64>() / z.len() as f64;
        let width = (width * size).max(1e-300);
        soft = z.iter().map(|z| (z / width).tanh()).collect();
        slants.push(soft.iter().map(|s| (1.0 - s * s) / width).collect::<Vec<f64>>());
    }
    let scores = sums(outputs, &hard);
    let wins = (0..scores.len()).any(|class| class != own && scores[class] >= scores[own]);
    let mut above: Vec<f64> = outputs.row(other).iter().zip(outputs.row(own)).map(|(k, c)| k - c).collect();
    for (layer, slant) in hidden.iter().zip(&slants).rev() {
        let mut below = vec![0.0; layer.inputs];
        for (unit, (a, s)) in above.iter().zip(slant).enumerate() {
            add(&mut below, a * s, layer.row(unit));
        }
        above = below;
    }
    (above, wins)
}
