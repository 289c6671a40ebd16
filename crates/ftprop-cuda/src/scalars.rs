//! The numbers that a schedule changes from step to step: a row of a table for each step, worked out by the host from the
//! definitions that the CPU goes by too.

use ftprop_nn::graph::{Graph, Op};
use ftprop_nn::mixing::{Blend, Mixing};
use ftprop_nn::optimizer::{ParameterGroups, Span, average_rest};
use ftprop_nn::{LayerLoss, Learning, Shape};
use std::sync::Arc;

/// Numbers that a group of parameters has in a row, and a matrix that is learned as a whole.
const PER_GROUP: usize = 4;

/// What a row holds: four numbers for each group of parameters, what the moving average gives up, one number for each
/// layer loss, four for each size of matrix that a group learns as a whole, and six where examples are mixed.
#[derive(Clone, Debug)]
pub(crate) struct ScalarLayout {
    groups: Arc<ParameterGroups>,
    average: Option<f64>,
    losses: Vec<LayerLoss>,
    /// Groups and sizes.
    matrices: Vec<(usize, [usize; 2])>,
    mixing: Option<Mixing>,
    input: Shape,
}

/// Which step a row is for, beside the optimizer's count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowStep {
    /// The run's seed, and the step's number in the run.
    pub(crate) seed: u64,
    pub(crate) number: u64,
    /// What the learning rate is multiplied by, and the share of training done.
    pub(crate) lr_factor: f64,
    pub(crate) progress: f32,
}

impl ScalarLayout {
    pub(crate) fn new(graph: &Graph, learning: &Learning) -> Self {
        let mut losses: Vec<LayerLoss> = Vec::new();
        for node in graph.walk() {
            if let Op::Hard(unit, _) = &node.op
                && !losses.contains(&unit.layer_loss)
            {
                losses.push(unit.layer_loss);
            }
        }
        let mut matrices = Vec::new();
        for span in learning.groups.spans() {
            let key = (span.group, span.matrix);
            if learning.groups.groups()[span.group].matrix_method().is_some() && !matrices.contains(&key) {
                matrices.push(key);
            }
        }
        ScalarLayout {
            groups: learning.groups.clone(),
            average: learning.average,
            losses,
            matrices,
            mixing: learning.criterion.mixing(),
            input: graph.input(),
        }
    }

    /// Numbers in a row.
    pub(crate) fn width(&self) -> usize {
        self.mixing_at() + if self.mixing.is_some() { Blend::NONE.scalars().len() } else { 0 }
    }

    /// Where those of mixed examples begin, where any are mixed.
    pub(crate) fn mixing_at(&self) -> usize {
        self.matrices_at() + PER_GROUP * self.matrices.len()
    }

    /// Whether examples are mixed.
    pub(crate) fn mixes(&self) -> bool {
        self.mixing.is_some()
    }

    fn matrices_at(&self) -> usize {
        self.average_at() + 1 + self.losses.len()
    }

    /// Where the four of a matrix begin.
    pub(crate) fn matrix_at(&self, span: &Span) -> usize {
        let key = (span.group, span.matrix);
        let number = self.matrices.iter().position(|m| *m == key).expect("every matrix was listed");
        self.matrices_at() + PER_GROUP * number
    }

    /// Where a group's four begin.
    pub(crate) fn group_at(&self, group: usize) -> usize {
        PER_GROUP * group
    }

    /// Where that of the moving average is.
    pub(crate) fn average_at(&self) -> usize {
        PER_GROUP * self.groups.groups().len()
    }

    /// Where a layer loss's is; any place serves where a network has no such loss.
    pub(crate) fn loss_at(&self, loss: Option<LayerLoss>) -> usize {
        let number = loss.and_then(|loss| self.losses.iter().position(|l| *l == loss));
        number.map_or(self.average_at(), |number| self.average_at() + 1 + number)
    }

    /// Adds the row of the optimizer's step number `t`, counted from 1.
    pub(crate) fn push_row(&self, t: u64, step: RowStep, rows: &mut Vec<f32>) {
        let RowStep { seed, number, lr_factor, progress } = step;
        for group in self.groups.groups() {
            rows.extend(group.scalars(t, lr_factor).unwrap_or_default());
        }
        rows.push(self.average.map_or(0.0, |decay| average_rest(decay, t)));
        rows.extend(self.losses.iter().map(|loss| loss.scheduled(progress)));
        for &(group, matrix) in &self.matrices {
            let method = self.groups.groups()[group].matrix_method().expect("only such groups were listed");
            rows.extend(method.scalars(t, lr_factor, matrix));
        }
        rows.extend(self.mixing.iter().flat_map(|mixing| mixing.at(seed, number, self.input).scalars()));
    }

    /// A row for work in which nothing is learned.
    pub(crate) fn idle_row(&self) -> Vec<f32> {
        vec![0.0; self.width()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::optimizer::Setting;
    use ftprop_nn::spec::Defaults;
    use ftprop_nn::{Activation, OptimizerSpec, Shape, presets};

    #[test]
    fn rows_hold_what_each_reader_looks_for() {
        let input = Shape::vector(6);
        let layers = presets::layers("mlp", input, &[5, 4]).unwrap();
        let annealed = "annealed_tanh".parse().unwrap();
        let graph = Graph::resolve(&layers, &Defaults::new(Activation::Sign, annealed), input, 3).unwrap();
        let adam = OptimizerSpec::adam(1e-3).unwrap();
        let layout = ScalarLayout::new(&graph, &Learning::new(&graph, &adam).unwrap());
        let mut rows = Vec::new();
        let step = RowStep { seed: 3, number: 8, lr_factor: 0.5, progress: 0.5 };
        layout.push_row(1, step, &mut rows);
        assert_eq!((rows.len(), layout.width()), (6, 6));
        // Adam's first step has ten times the rate; the slope is 1 halfway.
        assert!((rows[layout.group_at(0)] - 5e-3).abs() < 1e-8);
        assert!((rows[layout.loss_at(Some(annealed))] - 1.0).abs() < 1e-6);
        let adamw =
            OptimizerSpec::new("adamw", &[("lr", Setting::Number(0.1)), ("weight_decay", Setting::Number(0.5))]);
        let learning = Learning { average: Some(0.9), ..Learning::new(&graph, &adamw.unwrap()).unwrap() };
        let layout = ScalarLayout::new(&graph, &learning);
        layout.push_row(1000, RowStep { lr_factor: 1.0, ..step }, &mut rows);
        assert_eq!(rows[6 + layout.group_at(0) + 2], 0.95);
        assert!((rows[6 + layout.average_at()] - 0.1).abs() < 1e-6);
        let mixing = Mixing::new(0.4, 0.0).unwrap();
        let criterion = learning.criterion.clone().with_mixing(mixing).unwrap();
        let layout = ScalarLayout::new(&graph, &Learning { criterion, ..learning });
        rows.clear();
        layout.push_row(1, step, &mut rows);
        assert_eq!(rows.len(), layout.width());
        assert_eq!(rows[layout.mixing_at()..], mixing.unwrap().at(3, 8, input).scalars());
    }
}
