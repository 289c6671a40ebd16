//! Feasible target propagation that settles for what can be had: a variant of the paper's Algorithm 1
//! ([`super::Ftprop`]). A layer sets targets below it so that its loss falls, a group of single flips at a time; where the
//! layers below cannot realise them, what they do instead takes their place, and the search goes on from there.

use super::output::Cells;
use super::{Control, Found, Loss, Search, Setup, loss_of, restart, start};
use crate::error::SearchError;
use crate::network::{LayerTargets, Network, as_points};
use crate::points::Points;
use crate::rng::Rng;
use crate::sides::{pre_activation, unit_outputs};

/// Recursive FTPROP that goes on from what the layers below could do, with restarts.
#[derive(Clone, Debug)]
pub struct Settled {
    /// How many times a layer may set new targets for the layer below before it gives up.
    pub attempts: usize,
    /// How many starts; none for as many as the budget allows.
    pub starts: Option<u64>,
    /// How many starts were made before, and are left out.
    pub skip: u64,
}

impl Default for Settled {
    fn default() -> Self {
        Settled { attempts: 60, starts: Some(200), skip: 0 }
    }
}

impl Search for Settled {
    fn name(&self) -> &'static str {
        "settled"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let rng = Rng::new(setup.seed);
        restart(setup, control, self.skip..self.starts.unwrap_or(u64::MAX), |number, best| {
            let mut run = Run::new(self, setup, control, rng.fork(number), number, best);
            run.feasible(setup.hidden.len());
            run.best
        })
    }
}

/// One start: weights W and targets T of all layers, the output layer's last.
struct Run<'a> {
    search: &'a Settled,
    setup: &'a Setup<'a>,
    control: &'a Control<'a>,
    rng: Rng,
    weights: Vec<Vec<Vec<f64>>>,
    targets: Vec<LayerTargets>,
    best: Option<(f64, Network)>,
}

impl<'a> Run<'a> {
    fn new(
        search: &'a Settled,
        setup: &'a Setup<'a>,
        control: &'a Control<'a>,
        mut rng: Rng,
        number: u64,
        best: Option<(f64, Network)>,
    ) -> Self {
        let slabs = if number == 0 { start::slabs(setup, control, &mut rng) } else { None };
        let hidden = slabs.or_else(|| start::codes(setup, &mut rng));
        let mut targets = hidden.unwrap_or_else(|| start::random(setup, &mut rng));
        targets.push((0..setup.data.outputs()).map(|output| setup.data.targets(output)).collect());
        let weights = vec![vec![]; targets.len()];
        let mut run = Run { search, setup, control, rng, weights, targets, best };
        // Make the start consistent: what the layers say when each is trained on its targets.
        for depth in 0..setup.hidden.len() {
            run.targets[depth] = run.train(depth);
        }
        run
    }

    /// What layer `depth` sees.
    fn inputs(&self, depth: usize) -> Option<Points> {
        depth.checked_sub(1).map(|below| as_points(&self.targets[below]))
    }

    /// Optimises the layer's weights for its targets; returns its activations.
    fn train(&mut self, depth: usize) -> LayerTargets {
        let below = self.inputs(depth);
        let inputs = below.as_ref().unwrap_or(&self.setup.data.points);
        let learn = |targets: &Vec<bool>| self.control.learn(self.setup, inputs, targets).weights;
        let units: Vec<Vec<f64>> = self.targets[depth].iter().map(learn).collect();
        let activations = units.iter().map(|unit| unit_outputs(unit, inputs)).collect();
        self.weights[depth] = units;
        if depth == self.setup.hidden.len() {
            self.record(inputs);
        }
        activations
    }

    /// Remembers the network if it is the best so far. For two classes and few cells the output unit is the best
    /// there is, not only the learner's.
    fn record(&mut self, inputs: &Points) {
        self.control.count(1);
        let mut network = Network { layers: self.weights.clone() };
        let mut loss = loss_of(&network, self.setup.data, self.setup.loss);
        if self.setup.data.classes.len() == 2 && self.setup.loss == Loss::ZeroOne {
            let cells = Cells::new(inputs, &self.setup.data.labels, 2);
            let nodes = if cells.counts.len() <= 16 { 500 } else { 0 };
            let fit = cells.fit(Loss::ZeroOne, self.setup.learner, self.control, nodes);
            if fit.loss < loss {
                *network.layers.last_mut().expect("an output layer") = fit.units;
                loss = fit.loss;
            }
        }
        if self.best.as_ref().is_none_or(|(least, _)| loss < *least) {
            self.control.improved(loss, self.setup.floor());
            self.best = Some((loss, network));
        }
    }

    /// True if the layer and all below it realise its targets.
    fn feasible(&mut self, depth: usize) -> bool {
        let activations = self.train(depth);
        if activations == self.targets[depth] {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let mut loss = self.layer_loss(depth);
        for attempt in 0..self.search.attempts {
            if self.control.stop().is_some() {
                return false;
            }
            let Some(proposal) = self.propose(depth, attempt) else { return false };
            let before = (self.weights.clone(), self.targets.clone());
            self.targets[depth - 1] = proposal;
            if !self.feasible(depth - 1) {
                // What the layers below can realise takes the place of what was asked for.
                self.settle(depth);
            }
            if self.train(depth) == self.targets[depth] {
                return true;
            }
            let now = self.layer_loss(depth);
            // Sideways steps are allowed: the loss has plateaus.
            if now <= loss {
                loss = now;
            } else {
                (self.weights, self.targets) = before;
            }
        }
        false
    }

    /// Replaces the targets below layer `depth` by the activations of the weights there.
    fn settle(&mut self, depth: usize) {
        for below in 0..depth {
            let points = self.inputs(below);
            let inputs = points.as_ref().unwrap_or(&self.setup.data.points);
            self.targets[below] = self.weights[below].iter().map(|unit| unit_outputs(unit, inputs)).collect();
        }
    }

    /// The hinge loss of a layer on its targets.
    fn layer_loss(&self, depth: usize) -> f64 {
        let below = self.inputs(depth);
        let inputs = below.as_ref().unwrap_or(&self.setup.data.points);
        let unit_loss = |(unit, targets): (&Vec<f64>, &Vec<bool>)| -> f64 {
            inputs.rows().zip(targets).map(|(row, &t)| hinge(pre_activation(unit, row), t)).sum()
        };
        self.weights[depth].iter().zip(&self.targets[depth]).map(unit_loss).sum()
    }

    /// New targets for the layer below `depth`. Each instance that the layer does not have right offers the flip
    /// that lowers the layer loss most, among those that the gradient-sign rule asks for, and among equals the one
    /// of the least certain unit; the first attempts take large groups of such flips, the later ones few or one.
    fn propose(&mut self, depth: usize, attempt: usize) -> Option<LayerTargets> {
        let current = &self.targets[depth - 1];
        let seen = as_points(current);
        let below = self.inputs(depth - 1);
        let inputs = below.as_ref().unwrap_or(&self.setup.data.points);
        let (units, targets) = (&self.weights[depth], &self.targets[depth]);
        let mut offers: Vec<(f64, usize, usize)> = vec![];
        for (instance, row) in seen.rows().enumerate() {
            let outputs: Vec<f64> = units.iter().map(|unit| pre_activation(unit, row)).collect();
            let wanted = |unit: usize| targets[unit][instance];
            if (0..units.len()).all(|unit| (outputs[unit] > 0.0) == wanted(unit)) {
                continue;
            }
            let now: f64 = (0..units.len()).map(|unit| hinge(outputs[unit], wanted(unit))).sum();
            let mut flips: Vec<(f64, usize)> = vec![];
            for (lower, &h) in row.iter().enumerate() {
                // ∂L/∂h; the rule sets the target to the sign of its negative.
                let active = (0..units.len()).filter(|&unit| hinge(outputs[unit], wanted(unit)) > 0.0);
                let slope: f64 = active.map(|unit| if wanted(unit) { -1.0 } else { 1.0 } * units[unit][lower]).sum();
                if slope * h <= 0.0 {
                    continue;
                }
                let flipped = |unit: usize| outputs[unit] - 2.0 * h * units[unit][lower];
                let then: f64 = (0..units.len()).map(|unit| hinge(flipped(unit), wanted(unit))).sum();
                let certainty = pre_activation(&self.weights[depth - 1][lower], inputs.row(instance)).abs();
                flips.push(((then - now) / (0.1 + certainty), lower));
            }
            flips.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Mostly the best, sometimes another one: the best may be one that the layer below cannot realise.
            let mut rank = 0;
            while attempt > 0 && rank + 1 < flips.len() && self.rng.below(3) == 0 {
                rank += 1;
            }
            offers.extend(flips.get(rank).map(|&(gain, unit)| (gain, unit, instance)));
        }
        if offers.is_empty() {
            return None;
        }
        offers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let group = (offers.len() >> (attempt % 8)).max(1);
        let skip = if group == 1 { self.rng.below(offers.len()) } else { 0 };
        let mut proposal = current.clone();
        for &(_, unit, instance) in offers.iter().skip(skip).take(group) {
            proposal[unit][instance] = !proposal[unit][instance];
        }
        Some(proposal)
    }
}

fn hinge(output: f64, target: bool) -> f64 {
    (1.0 - if target { output } else { -output }).max(0.0)
}
