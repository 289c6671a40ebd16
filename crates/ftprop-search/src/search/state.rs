//! A setting of the hidden targets, and what it is worth: the loss of the network whose units were trained on it.

use super::output::Cells;
use super::{Control, Setup};
use crate::network::{LayerTargets, Network, as_points};
use crate::sides::unit_outputs;

/// Partial assignments that the output layer's search may look at while a setting is evaluated.
const OUTPUT_NODES: usize = 2000;

/// An evaluated setting of the targets of all hidden layers.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) targets: Vec<LayerTargets>,
    /// What the trained units really say: equal to the targets where those are feasible.
    pub(super) outputs: Vec<LayerTargets>,
    pub(super) network: Network,
    pub(super) loss: f64,
}

/// Trains each unit of each layer on its targets, given what the layer below really says, then the best output layer.
pub(super) fn evaluate(setup: &Setup<'_>, control: &Control<'_>, targets: Vec<LayerTargets>) -> State {
    let layers = vec![vec![]; targets.len()];
    let outputs = vec![vec![]; targets.len()];
    finish(setup, control, State { targets, outputs, network: Network { layers }, loss: f64::INFINITY }, 0)
}

/// The neighbour in which one target is flipped. Only what depends on it is trained again.
pub(super) fn evaluate_flip(
    setup: &Setup<'_>,
    control: &Control<'_>,
    state: &State,
    (layer, unit, instance): (usize, usize, usize),
) -> State {
    let mut next = state.clone();
    let target = &mut next.targets[layer][unit][instance];
    *target = !*target;
    let below = layer.checked_sub(1).map(|below| as_points(&next.outputs[below]));
    let inputs = below.as_ref().unwrap_or(&setup.data.points);
    let learned = control.learn(setup, inputs, &next.targets[layer][unit]);
    let outputs = unit_outputs(&learned.weights, inputs);
    next.network.layers[layer][unit] = learned.weights;
    if outputs == next.outputs[layer][unit] {
        // The layers above see no difference.
        control.count(1);
        return next;
    }
    next.outputs[layer][unit] = outputs;
    next.network.layers.pop();
    finish(setup, control, next, layer + 1)
}

/// Trains the hidden layers from `from` on, and the output layer.
fn finish(setup: &Setup<'_>, control: &Control<'_>, mut state: State, from: usize) -> State {
    for layer in from..state.targets.len() {
        let below = layer.checked_sub(1).map(|below| as_points(&state.outputs[below]));
        let inputs = below.as_ref().unwrap_or(&setup.data.points);
        let learn = |targets: &Vec<bool>| control.learn(setup, inputs, targets).weights;
        let units: Vec<Vec<f64>> = state.targets[layer].iter().map(learn).collect();
        state.outputs[layer] = units.iter().map(|unit| unit_outputs(unit, inputs)).collect();
        state.network.layers[layer] = units;
    }
    let inputs = as_points(state.outputs.last().expect("there is a hidden layer"));
    let cells = Cells::new(&inputs, &setup.data.labels, setup.data.classes.len());
    // For many classes only the learner decides: a search over their assignments would take over.
    let nodes = if setup.data.classes.len() == 2 { OUTPUT_NODES } else { 0 };
    let fit = cells.fit(setup.loss, setup.learner, control, nodes);
    state.network.layers.push(fit.units);
    state.loss = fit.loss;
    control.count(1);
    state
}

/// All single targets of the hidden layers: layer, unit, instance.
pub(super) fn neighbours(state: &State) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    state.targets.iter().enumerate().flat_map(|(layer, units)| {
        units.iter().enumerate().flat_map(move |(unit, targets)| (0..targets.len()).map(move |i| (layer, unit, i)))
    })
}
