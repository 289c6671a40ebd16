//! The output layer for given hidden outputs.
//!
//! Instances with the same hidden outputs form a cell, so there are at most 2^h different inputs, each with a
//! count of every class.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use super::dichotomies::dichotomies;
use super::{Budget, Control, Loss};
use crate::learner::{Learner, LinearProgram, Task};
use crate::points::Points;
use crate::separability::{Verdict, separable_distinct};
use crate::sides::classes;

/// The cells that hidden outputs make.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cells {
    /// The inputs of the output layer, all distinct.
    pub(super) points: Points,
    /// For each cell the number of its instances of each class.
    pub(super) counts: Vec<Vec<usize>>,
}

/// An output layer and its loss; `exact` if no output layer has a lower one.
#[derive(Clone, Debug)]
pub(super) struct OutputFit {
    pub(super) units: Vec<Vec<f64>>,
    pub(super) loss: f64,
    pub(super) exact: bool,
}

impl Cells {
    /// Groups instances by their inputs to the output layer.
    pub(super) fn new(inputs: &Points, labels: &[usize], classes: usize) -> Self {
        let (cell_of, firsts) = inputs.distinct();
        let mut counts = vec![vec![0; classes]; firsts.len()];
        cell_of.iter().zip(labels).for_each(|(&cell, &label)| counts[cell][label] += 1);
        Cells { points: inputs.select(&firsts), counts }
    }

    fn classes(&self) -> usize {
        self.counts[0].len()
    }

    /// What it costs to give a cell a class.
    fn cost(&self, cell: usize, class: usize) -> usize {
        self.counts[cell].iter().sum::<usize>() - self.counts[cell][class]
    }

    /// The class that costs least; the first of several.
    fn majority(&self, cell: usize) -> usize {
        (0..self.classes()).min_by_key(|&class| self.cost(cell, class)).unwrap_or(0)
    }

    /// The errors of the best function of the cells, linear or not.
    fn floor(&self) -> usize {
        (0..self.counts.len()).map(|cell| self.cost(cell, self.majority(cell))).sum()
    }

    fn errors(&self, units: &[Vec<f64>]) -> usize {
        classes(units, &self.points).into_iter().enumerate().map(|(cell, class)| self.cost(cell, class)).sum()
    }

    /// Finds the best output layer for a loss, looking at no more than `nodes` partial assignments where only a
    /// search decides, and at no more once `control` says stop.
    pub(super) fn fit(&self, loss: Loss, learner: &dyn Learner, control: &Control<'_>, nodes: usize) -> OutputFit {
        match loss {
            Loss::Hinge => self.fit_hinge(&LinearProgram::default(), control),
            Loss::ZeroOne => self.fit_zero_one(learner, control, nodes),
        }
    }

    /// One learner a unit, each class against the rest, with cells as often as they have instances.
    fn fit_hinge(&self, learner: &dyn Learner, control: &Control<'_>) -> OutputFit {
        let stop = || control.stop().is_some();
        let outputs = if self.classes() == 2 { 1 } else { self.classes() };
        let mut fit = OutputFit { units: vec![], loss: 0.0, exact: true };
        for output in 0..outputs {
            let class = if self.classes() == 2 { 1 } else { output };
            let (mut rows, mut targets, mut importance) = (vec![], vec![], vec![]);
            for (cell, counts) in self.counts.iter().enumerate() {
                let rest = self.cost(cell, class);
                for (count, target) in [(counts[class], true), (rest, false)] {
                    if count > 0 {
                        rows.push(cell);
                        targets.push(target);
                        importance.push(count as f64);
                    }
                }
            }
            let points = self.points.select(&rows);
            let importance = Some(importance.as_slice());
            let learned = learner.learn(&Task { importance, stop: Some(&stop), ..Task::new(&points, &targets) });
            fit.loss += learned.hinge;
            fit.units.push(learned.weights);
        }
        fit
    }

    fn fit_zero_one(&self, learner: &dyn Learner, control: &Control<'_>, nodes: usize) -> OutputFit {
        let learned = self.fit_hinge(learner, control);
        let errors = self.errors(&learned.units);
        let mut best = OutputFit { loss: errors as f64, exact: errors == self.floor(), ..learned };
        if !best.exact && nodes > 0 {
            let mut search = Assignment::new(self, control, best.loss as usize, nodes);
            let complete = search.descend(0, 0);
            best.exact = complete;
            if let Some((loss, units)) = search.best {
                best = OutputFit { units, loss: loss as f64, exact: complete };
            }
        }
        best
    }
}

/// Branch and bound over the classes of the cells: only assignments that an output layer can realise.
struct Assignment<'a> {
    cells: &'a Cells,
    control: &'a Control<'a>,
    order: Vec<usize>,
    /// The least cost of all cells from this one on, in the order.
    rest: Vec<usize>,
    chosen: Vec<usize>,
    bound: usize,
    best: Option<(usize, Vec<Vec<f64>>)>,
    nodes: usize,
}

impl<'a> Assignment<'a> {
    fn new(cells: &'a Cells, control: &'a Control<'a>, bound: usize, nodes: usize) -> Self {
        // Where a wrong choice costs most, first.
        let least = |cell: usize| cells.cost(cell, cells.majority(cell));
        let regret = |cell: usize| {
            let others = (0..cells.classes()).filter(|&class| class != cells.majority(cell));
            others.map(|class| cells.cost(cell, class)).min().unwrap_or(0) - least(cell)
        };
        let mut order: Vec<usize> = (0..cells.counts.len()).filter(|&cell| regret(cell) > 0).collect();
        order.sort_by_key(|&cell| std::cmp::Reverse(regret(cell)));
        // Cells that cost the same either way need no decision for two classes, as some side they always have.
        let free: usize = if cells.classes() == 2 {
            (0..cells.counts.len()).filter(|&cell| regret(cell) == 0).map(least).sum()
        } else {
            order.extend((0..cells.counts.len()).filter(|&cell| regret(cell) == 0));
            0
        };
        let mut rest = vec![free; order.len() + 1];
        for at in (0..order.len()).rev() {
            rest[at] = rest[at + 1] + least(order[at]);
        }
        Assignment { cells, control, order, rest, chosen: vec![], bound, best: None, nodes }
    }

    /// False if the nodes ran out.
    fn descend(&mut self, at: usize, cost: usize) -> bool {
        if cost + self.rest[at] >= self.bound {
            return true;
        }
        let Some(left) = self.nodes.checked_sub(1) else { return false };
        self.nodes = left;
        if left % 64 == 63 && self.control.stop().is_some() {
            return false;
        }
        if at > 0 {
            let Some(units) = self.realise() else { return true };
            let loss = self.cells.errors(&units);
            if loss < self.bound {
                self.bound = loss;
                self.best = Some((loss, units));
            }
        }
        let Some(&cell) = self.order.get(at) else { return true };
        let mut classes: Vec<usize> = (0..self.cells.classes()).collect();
        classes.sort_by_key(|&class| self.cells.cost(cell, class));
        for class in classes {
            self.chosen.push(class);
            let complete = self.descend(at + 1, cost + self.cells.cost(cell, class));
            self.chosen.pop();
            if !complete {
                return false;
            }
        }
        true
    }

    /// Output units that give the chosen cells their classes, if there are any.
    fn realise(&self) -> Option<Vec<Vec<f64>>> {
        let part = self.cells.points.select(&self.order[..self.chosen.len()]);
        if self.cells.classes() == 2 {
            let targets: Vec<bool> = self.chosen.iter().map(|&class| class == 1).collect();
            return match separable_distinct(&part, &targets, 0) {
                Verdict::Separable(found) => Some(vec![found.weights]),
                _ => None,
            };
        }
        realise_classes(&part, &self.chosen, self.cells.classes())
    }
}

/// One unit a class such that each row's class has the largest pre-activation (Kesler's construction: all units'
/// weights are one vector, each pair of a row and a wrong class one constraint on it).
fn realise_classes(points: &Points, chosen: &[usize], classes: usize) -> Option<Vec<Vec<f64>>> {
    let width = points.inputs() + 1;
    let (mut rows, mut targets) = (vec![], vec![]);
    for (row, &class) in points.rows().zip(chosen) {
        for other in (0..classes).filter(|&other| other != class) {
            let mut constraint = vec![0.0; width * classes];
            for (input, &x) in row.iter().chain(&[1.0]).enumerate() {
                constraint[class * width + input] = x;
                constraint[other * width + input] = -x;
            }
            // With its negation beside it the bias of the large vector has nothing to offer.
            rows.push(constraint.iter().map(|x| -x).collect());
            rows.push(constraint);
            targets.extend([false, true]);
        }
    }
    let constraints = Points::from_rows(&rows).ok()?;
    let constraints_distinct = constraints.distinct().1;
    let targets: Vec<bool> = constraints_distinct.iter().map(|&row| targets[row]).collect();
    match separable_distinct(&constraints.select(&constraints_distinct), &targets, 0) {
        Verdict::Separable(found) => {
            Some(found.weights[..width * classes].chunks(width).map(<[f64]>::to_vec).collect())
        }
        _ => None,
    }
}

/// The most inputs for which all threshold functions are listed.
pub(super) const TABLE_INPUTS: usize = 4;

/// The threshold functions of 1 to 4 inputs in ±1: bit c of a function is its value at the code c, whose bit j
/// says whether input j is +1.
pub(super) fn threshold_functions(inputs: usize) -> &'static [u16] {
    static TABLES: [OnceLock<Vec<u16>>; TABLE_INPUTS + 1] = [const { OnceLock::new() }; TABLE_INPUTS + 1];
    TABLES[inputs].get_or_init(|| list_threshold_functions(inputs))
}

fn list_threshold_functions(inputs: usize) -> Vec<u16> {
    if inputs == 0 {
        return vec![0, 1];
    }
    let codes = 1usize << inputs;
    let cube: Vec<Vec<bool>> = (0..codes).map(|code| (0..inputs).map(|bit| code >> bit & 1 == 1).collect()).collect();
    let interrupt = AtomicBool::new(false);
    let control = Control::new(Budget::default(), &interrupt, &|_| {});
    let half = dichotomies(&Points::from_signs(&cube), 1, &control).ok().flatten().unwrap_or_default();
    let all = ((1u32 << codes) - 1) as u16;
    let masks = half.iter().map(|dichotomy| {
        dichotomy.iter().enumerate().filter(|(_, s)| **s).fold(0u16, |mask, (code, _)| mask | 1 << code)
    });
    masks.flat_map(|mask| [mask, all & !mask]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn fit(cells: &Cells, loss: Loss) -> OutputFit {
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget::default(), &interrupt, &|_| {});
        cells.fit(loss, &LinearProgram::default(), &control, usize::MAX)
    }

    #[test]
    fn threshold_functions_are_as_many_as_known() {
        let counts: Vec<usize> = (0..=4).map(|inputs| threshold_functions(inputs).len()).collect();
        assert_eq!(counts, [2, 4, 14, 104, 1882]);
    }

    /// The best output unit by branch and bound is the best threshold function of the table.
    #[test]
    fn the_zero_one_fit_is_optimal() {
        let mut rng = Rng::new(41);
        for case in 0..40 {
            let inputs = 2 + case % 2;
            let codes: Vec<Vec<bool>> =
                (0..1usize << inputs).map(|code| (0..inputs).map(|bit| code >> bit & 1 == 1).collect()).collect();
            let counts: Vec<Vec<usize>> = codes.iter().map(|_| vec![rng.below(5), rng.below(5)]).collect();
            let cells = Cells { points: Points::from_signs(&codes), counts };
            let fit = fit(&cells, Loss::ZeroOne);
            assert!(fit.exact);
            assert_eq!(cells.errors(&fit.units) as f64, fit.loss);
            let cost = |function: &u16| -> usize {
                (0..codes.len()).map(|code| cells.cost(code, usize::from(function >> code & 1))).sum()
            };
            let least = threshold_functions(inputs).iter().map(cost).min().unwrap();
            assert_eq!(fit.loss, least as f64, "case {case}");
        }
    }

    /// With three classes, branch and bound equals trying every assignment.
    #[test]
    fn the_fit_of_three_classes_is_optimal() {
        let mut rng = Rng::new(42);
        let codes: Vec<Vec<bool>> = (0..4).map(|code| vec![code & 1 == 1, code & 2 == 2]).collect();
        for case in 0..6 {
            let counts: Vec<Vec<usize>> = codes.iter().map(|_| (0..3).map(|_| rng.below(4)).collect()).collect();
            let cells = Cells { points: Points::from_signs(&codes), counts };
            let fit = fit(&cells, Loss::ZeroOne);
            let least = (0..81usize)
                .map(|number| (0..4).map(|cell| number / 3usize.pow(cell) % 3).collect::<Vec<_>>())
                .filter(|chosen| realise_classes(&cells.points, chosen, 3).is_some())
                .map(|chosen| chosen.iter().enumerate().map(|(cell, &class)| cells.cost(cell, class)).sum::<usize>())
                .min()
                .unwrap();
            assert_eq!(fit.loss, least as f64, "case {case}");
            assert!(fit.exact);
        }
    }

    /// Hinge: XOR from its own inputs costs four times 1.
    #[test]
    fn the_hinge_fit_is_the_least() {
        let codes: Vec<Vec<bool>> = (0..4).map(|code| vec![code & 1 == 1, code & 2 == 2]).collect();
        let counts = vec![vec![1, 0], vec![0, 1], vec![0, 1], vec![1, 0]];
        let cells = Cells { points: Points::from_signs(&codes), counts };
        let fit = fit(&cells, Loss::Hinge);
        assert!((fit.loss - 4.0).abs() < 1e-9, "{}", fit.loss);
    }
}
