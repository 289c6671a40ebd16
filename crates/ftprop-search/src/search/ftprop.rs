//! Feasible target propagation, the paper's Algorithm 1, line by line.
//!
//! Weights start at random and targets as what the hidden units then say. A layer optimises its weights for its
//! targets; where its activations differ from them it sets targets for the layer below, by a heuristic that lowers its
//! own loss, and asks that layer whether they are feasible. Only where they are does it optimise its weights again.

use std::collections::HashSet;
use std::fmt;

use super::{Control, Found, Search, Setup, loss_of, restart, start};
use crate::error::SearchError;
use crate::network::{LayerTargets, Network, as_points};
use crate::points::Points;
use crate::rng::Rng;
use crate::sides::{pre_activation, unit_outputs};

/// How a layer sets the targets of the layer below (line 10), and how often before it gives up (line 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRule {
    /// The gradient-sign heuristic r: each target is the sign of −∂L/∂h, so often.
    Gradient {
        /// The budget of a layer.
        attempts: usize,
    },
    /// Beam search over single targets: the best so many settings by the layer's loss, one after the other.
    Beam {
        /// The width of the beam, which is the budget of a layer.
        width: usize,
    },
}

impl fmt::Display for TargetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetRule::Gradient { attempts } => write!(f, "r:{attempts}"),
            TargetRule::Beam { width } => write!(f, "beam:{width}"),
        }
    }
}

/// Algorithm 1, from random starts.
#[derive(Clone, Debug)]
pub struct Ftprop {
    /// How targets are set.
    pub rule: TargetRule,
    /// How many starts; none for as many as the budget allows.
    pub starts: Option<u64>,
}

impl Default for Ftprop {
    fn default() -> Self {
        Ftprop { rule: TargetRule::Beam { width: 10 }, starts: Some(200) }
    }
}

impl Search for Ftprop {
    fn name(&self) -> &'static str {
        "ftprop"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let rng = Rng::new(setup.seed);
        restart(setup, control, 0..self.starts.unwrap_or(u64::MAX), |number, best| {
            let mut run = Run::new(self.rule, setup, control, &mut rng.fork(number), best);
            run.ftprop(setup.hidden.len());
            run.best
        })
    }
}

/// Weights W and targets T of all layers; layers are counted from 0, the output layer is the last.
struct Run<'a> {
    rule: TargetRule,
    setup: &'a Setup<'a>,
    control: &'a Control<'a>,
    weights: Vec<Vec<Vec<f64>>>,
    targets: Vec<LayerTargets>,
    best: Option<(f64, Network)>,
}

impl<'a> Run<'a> {
    /// Lines 1 to 3.
    fn new(
        rule: TargetRule,
        setup: &'a Setup<'a>,
        control: &'a Control<'a>,
        rng: &mut Rng,
        best: Option<(f64, Network)>,
    ) -> Self {
        let Network { layers: weights } = start::random_network(setup, rng);
        let mut targets = Network { layers: weights.clone() }.hidden(&setup.data.points);
        targets.push((0..setup.data.outputs()).map(|output| setup.data.targets(output)).collect());
        Run { rule, setup, control, weights, targets, best }
    }

    /// T of the layer below: what layer `d` sees.
    fn inputs(&self, d: usize) -> Option<Points> {
        d.checked_sub(1).map(|below| as_points(&self.targets[below]))
    }

    /// The function FTPROP: whether the targets of layer `d` are feasible.
    fn ftprop(&mut self, d: usize) -> bool {
        // Lines 6 to 8.
        if self.optimize(d) {
            return true;
        }
        if d == 0 {
            return false;
        }
        let proposals = match self.rule {
            TargetRule::Beam { width } => self.beam(d, width),
            TargetRule::Gradient { .. } => vec![],
        };
        let budget = match self.rule {
            TargetRule::Beam { .. } => proposals.len(),
            TargetRule::Gradient { attempts } => attempts,
        };
        // Lines 9 to 15.
        for attempt in 0..budget {
            if self.control.stop().is_some() {
                return false;
            }
            self.targets[d - 1] = proposals.get(attempt).cloned().unwrap_or_else(|| self.gradient_signs(d));
            if self.ftprop(d - 1) && self.optimize(d) {
                return true;
            }
        }
        false
    }

    /// Optimises W_d for the layer's loss; whether the activations then equal the targets.
    fn optimize(&mut self, d: usize) -> bool {
        let below = self.inputs(d);
        let inputs = below.as_ref().unwrap_or(&self.setup.data.points);
        let learn = |targets: &Vec<bool>| self.control.learn(self.setup, inputs, targets).weights;
        let units: Vec<Vec<f64>> = self.targets[d].iter().map(learn).collect();
        let equal = units.iter().zip(&self.targets[d]).all(|(unit, targets)| unit_outputs(unit, inputs) == *targets);
        self.weights[d] = units;
        self.control.count(1);
        self.record();
        equal
    }

    /// Remembers the network as it is now if it is the best so far.
    fn record(&mut self) {
        let network = Network { layers: self.weights.clone() };
        let loss = loss_of(&network, self.setup.data, self.setup.loss);
        if self.best.as_ref().is_none_or(|(least, _)| loss < *least) {
            self.control.improved(loss, self.setup.floor());
            self.best = Some((loss, network));
        }
    }

    /// Z_d for one instance.
    fn outputs(&self, d: usize, row: &[f64]) -> Vec<f64> {
        self.weights[d].iter().map(|unit| pre_activation(unit, row)).collect()
    }

    /// The heuristic r for the whole layer below: against the gradient of L_d; without a gradient, as it is.
    fn gradient_signs(&self, d: usize) -> LayerTargets {
        let mut proposal = self.targets[d - 1].clone();
        for (instance, row) in as_points(&self.targets[d - 1]).rows().enumerate() {
            let outputs = self.outputs(d, row);
            let slope = |unit: usize| self.setup.learner.slope(outputs[unit], self.targets[d][unit][instance]);
            for (lower, targets) in proposal.iter_mut().enumerate() {
                let gradient: f64 = (0..outputs.len()).map(|unit| slope(unit) * self.weights[d][unit][lower]).sum();
                if gradient != 0.0 {
                    targets[instance] = gradient < 0.0;
                }
            }
        }
        proposal
    }

    /// The loss of layer `d` on one instance whose inputs are these.
    fn instance_loss(&self, d: usize, instance: usize, row: &[f64]) -> f64 {
        let loss = |(unit, z): (usize, f64)| self.setup.learner.loss(z, self.targets[d][unit][instance]);
        self.outputs(d, row).into_iter().enumerate().map(loss).sum()
    }

    /// The best settings of the targets below layer `d` by its loss, by beam search: each step flips one more target
    /// in every setting of the beam, as long as the loss falls.
    fn beam(&self, d: usize, width: usize) -> Vec<LayerTargets> {
        let start = &self.targets[d - 1];
        let seen = as_points(start);
        // The loss is a sum over instances, so what a flip gains does not depend on the flips of other instances.
        let mut flips: Vec<(f64, usize, usize)> = vec![];
        for (instance, row) in seen.rows().enumerate() {
            let now = self.instance_loss(d, instance, row);
            for lower in 0..row.len() {
                let mut flipped = row.to_vec();
                flipped[lower] = -flipped[lower];
                let gain = now - self.instance_loss(d, instance, &flipped);
                if gain > 0.0 {
                    flips.push((gain, lower, instance));
                }
            }
        }
        flips.sort_by(|a, b| b.0.total_cmp(&a.0));
        // One flip an instance in each setting: the second would be judged by weights that the first made wrong.
        let mut beam: Vec<(f64, Vec<(usize, usize)>)> = vec![(0.0, vec![])];
        let mut done: Vec<(f64, Vec<(usize, usize)>)> = vec![];
        while !beam.is_empty() {
            let mut next = vec![];
            for (gain, taken) in beam {
                let free = flips.iter().filter(|(_, _, instance)| taken.iter().all(|(_, other)| other != instance));
                let longer: Vec<_> = free.take(width).collect();
                if longer.is_empty() {
                    done.push((gain, taken));
                    continue;
                }
                next.extend(longer.into_iter().map(|&(more, lower, instance)| {
                    let mut taken = taken.clone();
                    let at = taken.partition_point(|pair| *pair < (lower, instance));
                    taken.insert(at, (lower, instance));
                    (gain + more, taken)
                }));
            }
            next.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            let mut known = HashSet::new();
            next.retain(|(_, taken)| known.insert(taken.clone()));
            next.truncate(width);
            beam = next;
        }
        done.sort_by(|a, b| b.0.total_cmp(&a.0));
        done.truncate(width);
        let set = |taken: &Vec<(usize, usize)>| {
            let mut targets = start.clone();
            taken.iter().for_each(|&(lower, instance)| targets[lower][instance] = !targets[lower][instance]);
            targets
        };
        done.iter().filter(|(_, taken)| !taken.is_empty()).map(|(_, taken)| set(taken)).collect()
    }
}
