//! MADALINE Rule II (Winter and Widrow 1988): a special case in which one instance sets one target at a time.
//!
//! For an instance in the wrong class, the hidden unit least certain of its output is flipped on trial; if the
//! network then errs less on this instance, the flipped output becomes the unit's target and the unit adapts to it
//! with the least change of its weights. If no unit helps, the output units adapt.

use super::{Control, Found, Search, Setup, Stop, loss_of};
use crate::error::SearchError;
use crate::network::Network;
use crate::points::Points;
use crate::rng::Rng;
use crate::sides::{class_of, pre_activation};

/// MADALINE Rule II with restarts.
#[derive(Clone, Debug)]
pub struct Madaline {
    /// Passes over the instances from each start.
    pub passes: usize,
    /// How many starts; none for as many as the budget allows.
    pub starts: Option<u64>,
}

impl Default for Madaline {
    fn default() -> Self {
        Madaline { passes: 100, starts: Some(100) }
    }
}

impl Search for Madaline {
    fn name(&self) -> &'static str {
        "madaline"
    }

    fn uses_learner(&self) -> bool {
        false
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let rng = Rng::new(setup.seed);
        let mut best: Option<(f64, Network)> = None;
        for number in 0..self.starts.unwrap_or(u64::MAX) {
            let mut rng = rng.fork(number);
            let mut network = random_network(setup, &mut rng);
            for _ in 0..self.passes {
                control.count(1);
                let loss = loss_of(&network, setup.data, setup.loss);
                if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                    control.improved(loss, setup.floor());
                    best = Some((loss, network.clone()));
                }
                if setup.at_floor(loss) || control.stop().is_some() {
                    break;
                }
                let mut order: Vec<usize> = (0..setup.data.labels.len()).collect();
                rng.shuffle(&mut order);
                order.into_iter().for_each(|instance| adapt(setup, &mut network, instance));
            }
            let loss = best.as_ref().map_or(f64::INFINITY, |(loss, _)| *loss);
            if setup.at_floor(loss) || control.stop().is_some() {
                break;
            }
        }
        let (loss, network) = best.ok_or(SearchError::ZeroBudget)?;
        Ok(Found::unproved(setup, network, loss, control.stop().unwrap_or(Stop::Ended)))
    }
}

/// Random weights, scaled to the spread of the inputs so that the first hyperplanes cut through the instances.
fn random_network(setup: &Setup<'_>, rng: &mut Rng) -> Network {
    let points = &setup.data.points;
    let (centre, spread) = spread(points);
    let mut layers = vec![];
    let mut fan_in = points.inputs();
    for (depth, width) in setup.hidden.iter().copied().chain([setup.data.outputs()]).enumerate() {
        let unit = |rng: &mut Rng| -> Vec<f64> {
            let mut weights: Vec<f64> = (0..fan_in).map(|_| rng.normal() / (fan_in as f64).sqrt()).collect();
            let mut bias = 0.5 * rng.normal();
            if depth == 0 {
                weights.iter_mut().zip(&spread).for_each(|(w, s)| *w /= s);
                bias -= weights.iter().zip(&centre).map(|(w, c)| w * c).sum::<f64>();
            }
            weights.push(bias);
            weights
        };
        layers.push((0..width).map(|_| unit(rng)).collect::<Vec<_>>());
        fan_in = width;
    }
    Network { layers }
}

fn spread(points: &Points) -> (Vec<f64>, Vec<f64>) {
    let count = points.len() as f64;
    let mut centre = vec![0.0; points.inputs()];
    points.rows().for_each(|row| centre.iter_mut().zip(row).for_each(|(c, x)| *c += x / count));
    let mut variance = vec![0.0; points.inputs()];
    for row in points.rows() {
        variance.iter_mut().zip(row).zip(&centre).for_each(|((v, x), c)| *v += (x - c) * (x - c) / count);
    }
    let spread = variance.iter().map(|v| if *v > 0.0 { v.sqrt() } else { 1.0 }).collect();
    (centre, spread)
}

/// The inputs of every layer for one instance, the outputs of the last layer included.
fn layer_inputs(network: &Network, row: &[f64], flipped: Option<(usize, usize)>) -> Vec<Vec<f64>> {
    let mut inputs = vec![row.to_vec()];
    for (depth, layer) in network.layers.iter().enumerate() {
        let below = &inputs[depth];
        let last = depth + 1 == network.layers.len();
        let output = |(unit, weights): (usize, &Vec<f64>)| {
            let z = pre_activation(weights, below);
            let sign = if z > 0.0 { 1.0 } else { -1.0 };
            if last {
                z
            } else if flipped == Some((depth, unit)) {
                -sign
            } else {
                sign
            }
        };
        inputs.push(layer.iter().enumerate().map(output).collect());
    }
    inputs
}

/// How many output units have the wrong sign, with one more for the wrong class.
fn wrong(setup: &Setup<'_>, outputs: &[f64], instance: usize) -> usize {
    let label = setup.data.labels[instance];
    let wanted = |unit: usize| if outputs.len() == 1 { label == 1 } else { label == unit };
    let signs = (0..outputs.len()).filter(|&unit| (outputs[unit] > 0.0) != wanted(unit)).count();
    signs + usize::from(class_of(outputs) != label)
}

/// Moves a unit's weights just far enough that it says `target` with pre-activation ±`margin` for this input.
fn adapt_unit(weights: &mut [f64], input: &[f64], target: bool, margin: f64) {
    let wanted = if target { margin } else { -margin };
    let length: f64 = input.iter().map(|x| x * x).sum::<f64>() + 1.0;
    let step = (wanted - pre_activation(weights, input)) / length;
    let (bias, linear) = weights.split_last_mut().expect("a unit has a bias");
    linear.iter_mut().zip(input).for_each(|(w, x)| *w += step * x);
    *bias += step;
}

fn adapt(setup: &Setup<'_>, network: &mut Network, instance: usize) {
    let row = setup.data.points.row(instance);
    let hidden = network.layers.len() - 1;
    for depth in 0..hidden {
        let inputs = layer_inputs(network, row, None);
        let errors = wrong(setup, &inputs[hidden + 1], instance);
        if errors == 0 {
            return;
        }
        let certainty = |unit: usize| pre_activation(&network.layers[depth][unit], &inputs[depth]).abs();
        let mut order: Vec<usize> = (0..network.layers[depth].len()).collect();
        order.sort_by(|&a, &b| certainty(a).total_cmp(&certainty(b)));
        for unit in order {
            let trial = layer_inputs(network, row, Some((depth, unit)));
            if wrong(setup, &trial[hidden + 1], instance) < errors {
                let target = trial[depth + 1][unit] > 0.0;
                adapt_unit(&mut network.layers[depth][unit], &inputs[depth], target, 0.1);
                break;
            }
        }
    }
    let inputs = layer_inputs(network, row, None);
    let label = setup.data.labels[instance];
    let outputs = inputs[hidden + 1].clone();
    for (unit, z) in outputs.iter().enumerate() {
        let target = if outputs.len() == 1 { label == 1 } else { label == unit };
        if (*z > 0.0) != target {
            adapt_unit(&mut network.layers[hidden][unit], &inputs[hidden], target, 0.1);
        }
    }
}
