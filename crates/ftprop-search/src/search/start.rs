//! Where searches start.

use super::{Control, Setup};
use crate::network::{LayerTargets, Network, as_points};
use crate::points::{Labelled, Points};
use crate::rng::Rng;

/// The outputs of hidden layers with random weights (Algorithm 1, lines 1 and 2).
pub(super) fn random(setup: &Setup<'_>, rng: &mut Rng) -> Vec<LayerTargets> {
    random_network(setup, rng).hidden(&setup.data.points)
}

/// Random weights for all layers.
pub(super) fn random_network(setup: &Setup<'_>, rng: &mut Rng) -> Network {
    let inputs = setup.data.points.inputs();
    let mut layers = vec![];
    let mut fan_in = inputs;
    let centre = centre(&setup.data.points);
    for (depth, &width) in setup.hidden.iter().chain(&[setup.data.outputs()]).enumerate() {
        let unit = |rng: &mut Rng| -> Vec<f64> {
            let mut weights: Vec<f64> = (0..fan_in).map(|_| rng.normal()).collect();
            // The hyperplanes of the first layer go through the middle of the instances, more or less.
            let spread = (fan_in as f64).sqrt();
            let shift: f64 = if depth == 0 { weights.iter().zip(&centre).map(|(w, c)| w * c).sum() } else { 0.0 };
            weights.push(0.5 * spread * rng.normal() - shift);
            weights
        };
        layers.push((0..width).map(|_| unit(rng)).collect::<Vec<_>>());
        fan_in = width;
    }
    Network { layers }
}

fn centre(points: &Points) -> Vec<f64> {
    let mut sums = vec![0.0; points.inputs()];
    points.rows().for_each(|row| sums.iter_mut().zip(row).for_each(|(s, x)| *s += x));
    sums.iter().map(|s| s / points.len() as f64).collect()
}

/// Directions tried for slabs.
const DIRECTIONS: usize = 48;
/// Beyond this many instances slabs are not tried: the placement is quadratic in them.
const MOST_INSTANCES: usize = 2000;

/// Parallel hyperplanes: along some direction the instances are cut into slabs of one class, as far as the first
/// layer's units reach; such targets are feasible by construction, since the output unit only has to alternate.
/// Only for two classes. The best of several directions.
pub(super) fn slabs(setup: &Setup<'_>, control: &Control<'_>, rng: &mut Rng) -> Option<Vec<LayerTargets>> {
    let data = setup.data;
    if data.classes.len() != 2 || data.labels.len() > MOST_INSTANCES {
        return None;
    }
    let mut best: Option<(usize, Vec<f64>, Vec<f64>)> = None;
    for attempt in 0..DIRECTIONS {
        let inputs = data.points.inputs();
        // Signs suit inputs of equal standing, such as bits; the normal ones suit the rest.
        let sign = |coin: bool| if coin { 1.0 } else { -1.0 };
        let direction: Vec<f64> =
            (0..inputs).map(|_| if attempt % 2 == 0 { sign(rng.coin()) } else { rng.normal() }).collect();
        let along: Vec<f64> =
            data.points.rows().map(|row| row.iter().zip(&direction).map(|(x, d)| x * d).sum()).collect();
        let (errors, cuts) = cut(&along, data, setup.hidden[0]);
        if best.as_ref().is_none_or(|(least, ..)| errors < *least) {
            best = Some((errors, along, cuts));
        }
        if errors == 0 || control.stop().is_some() {
            break;
        }
    }
    let (_, along, cuts) = best?;
    let first: LayerTargets = cuts.iter().map(|cut| along.iter().map(|x| x > cut).collect()).collect();
    Some(carry_up(setup, first))
}

/// The places along a line that `most` cuts should take, with the errors that remain (dynamic programming).
fn cut(along: &[f64], data: &Labelled, most: usize) -> (usize, Vec<f64>) {
    let mut order: Vec<usize> = (0..along.len()).collect();
    order.sort_by(|&a, &b| along[a].total_cmp(&along[b]));
    // Runs of equal projections cannot be cut; neighbouring pure runs of one class need not be.
    let mut runs: Vec<(f64, f64, [usize; 2])> = vec![];
    for &instance in &order {
        let mut counts = [0; 2];
        counts[data.labels[instance]] = 1;
        let scale = along[instance].abs().max(1.0);
        match runs.last_mut() {
            Some((_, end, sums)) if along[instance] - *end <= 1e-9 * scale => {
                sums[data.labels[instance]] += 1;
                *end = along[instance];
            }
            _ => runs.push((along[instance], along[instance], counts)),
        }
    }
    runs.dedup_by(|next, kept| {
        let same = (0..2).any(|class| next.2[class] == 0 && kept.2[class] == 0);
        if same {
            (0..2).for_each(|class| kept.2[class] += next.2[class]);
            kept.1 = next.1;
        }
        same
    });
    // least[cuts][class][run]: errors up to and including this run, which has this class.
    let mut least = vec![[vec![usize::MAX; runs.len()], vec![usize::MAX; runs.len()]]; most + 1];
    for (at, run) in runs.iter().enumerate() {
        for used in 0..=most {
            for class in 0..2 {
                let before = match at {
                    0 if used == 0 => 0,
                    0 => usize::MAX,
                    _ => {
                        let changed = if used > 0 { least[used - 1][1 - class][at - 1] } else { usize::MAX };
                        least[used][class][at - 1].min(changed)
                    }
                };
                least[used][class][at] = before.saturating_add(run.2[1 - class]);
            }
        }
    }
    let last = runs.len() - 1;
    let ends = (0..=most).flat_map(|used| [(used, 0), (used, 1)]);
    let (mut used, mut class) = ends.min_by_key(|&(used, class)| least[used][class][last]).unwrap_or((0, 0));
    let errors = least[used][class][last];
    let mut cuts = vec![];
    for at in (1..runs.len()).rev() {
        if used > 0 && least[used - 1][1 - class][at - 1] < least[used][class][at - 1] {
            cuts.push(runs[at - 1].1 / 2.0 + runs[at].0 / 2.0);
            (used, class) = (used - 1, 1 - class);
        }
    }
    // Units that are not needed say −1 always.
    cuts.resize(most, f64::INFINITY);
    (errors, cuts)
}

/// Targets for the layers above: each copies as many units of the layer below as it can hold, the last unit says
/// the class that the instances of its cell mostly have.
fn carry_up(setup: &Setup<'_>, first: LayerTargets) -> Vec<LayerTargets> {
    let mut layers = vec![first];
    for &width in &setup.hidden[1..] {
        let below = layers.last().expect("there is a first layer");
        let (cell_of, firsts) = as_points(below).distinct();
        let mut balance = vec![0i64; firsts.len()];
        cell_of.iter().zip(&setup.data.labels).for_each(|(&cell, &label)| balance[cell] += 2 * label as i64 - 1);
        let class: Vec<bool> = cell_of.iter().map(|&cell| balance[cell] > 0).collect();
        let mut layer: LayerTargets = below.iter().cycle().take(width - 1).cloned().collect();
        layer.push(class);
        layers.push(layer);
    }
    layers
}

/// For many classes: each first-layer unit is given half of the classes at random, and copies above.
pub(super) fn codes(setup: &Setup<'_>, rng: &mut Rng) -> Option<Vec<LayerTargets>> {
    let classes = setup.data.classes.len();
    if classes == 2 {
        return None;
    }
    let mut layers: Vec<LayerTargets> = vec![];
    for &width in setup.hidden {
        let unit = |rng: &mut Rng| -> Vec<bool> {
            let mut order: Vec<usize> = (0..classes).collect();
            rng.shuffle(&mut order);
            setup.data.labels.iter().map(|&label| order[label] < classes / 2).collect()
        };
        let layer = match layers.last() {
            None => (0..width).map(|_| unit(rng)).collect(),
            Some(below) => below.iter().cycle().take(width).cloned().collect(),
        };
        layers.push(layer);
    }
    Some(layers)
}
