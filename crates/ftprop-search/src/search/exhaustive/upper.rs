//! The layers above the first: the same search over the few cells that the layer below distinguishes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use super::super::output::Cells;
use super::super::{Control, Loss, Setup, dichotomies};
use crate::error::SearchError;
use crate::learner::Learner;
use crate::network::LayerTargets;
use crate::points::Points;

/// The hidden layers after the first, and the output layer.
pub(super) struct Upper<'a> {
    hidden: &'a [usize],
    classes: usize,
    loss: Loss,
    learner: &'a dyn Learner,
    control: &'a Control<'a>,
    /// The dichotomies of a set of codes, by their number of bits and the codes.
    known: Mutex<HashMap<(usize, Vec<u32>), Signs>>,
}

/// The sides of the cells in each dichotomy.
type Signs = Arc<Vec<Vec<bool>>>;
/// A loss, and the codes that each layer gives the cells of the layer below.
type Setting = (f64, Vec<Vec<u32>>);

/// Cells by their code, in the order of the codes, with the count of each class.
pub(super) type CodeCounts = BTreeMap<u32, Vec<usize>>;

impl<'a> Upper<'a> {
    pub(super) fn new(setup: &Setup<'a>, control: &'a Control<'a>) -> Self {
        Upper {
            hidden: setup.hidden,
            classes: setup.data.classes.len(),
            loss: setup.loss,
            learner: setup.learner,
            control,
            known: Mutex::default(),
        }
    }

    /// The lowest loss below `bound` that the layers after the first `depth` hidden ones reach, and the codes that
    /// each of them gives the cells of the layer below. None also if the search must stop.
    pub(super) fn best(
        &self,
        depth: usize,
        cells: &CodeCounts,
        mut bound: f64,
    ) -> Result<Option<Setting>, SearchError> {
        let inputs = self.hidden[depth - 1];
        let codes: Vec<u32> = cells.keys().copied().collect();
        let points = code_points(&codes, inputs);
        let Some(&width) = self.hidden.get(depth) else {
            let counts = cells.values().cloned().collect();
            let fit = Cells { points, counts }.fit(self.loss, self.learner, self.control, usize::MAX);
            return Ok((fit.loss < bound).then_some((fit.loss, vec![])));
        };
        let Some(listed) = self.dichotomies(inputs, codes, &points)? else { return Ok(None) };
        let mut best = None;
        let width = width.min(listed.len());
        let mut chosen: Vec<usize> = (0..width).collect();
        loop {
            if self.control.stop().is_some() {
                return Ok(None);
            }
            let code =
                |cell: usize| (0..width).fold(0, |code, unit| code | u32::from(listed[chosen[unit]][cell]) << unit);
            let above: Vec<u32> = (0..cells.len()).map(code).collect();
            let mut merged = CodeCounts::new();
            for (code, counts) in above.iter().zip(cells.values()) {
                let sums = merged.entry(*code).or_insert_with(|| vec![0; self.classes]);
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            if floor(&merged, self.loss) < bound
                && let Some((loss, mut layers)) = self.best(depth + 1, &merged, bound)?
            {
                bound = loss;
                layers.insert(0, above);
                best = Some((loss, layers));
            }
            if !next_choice(&mut chosen, listed.len()) {
                return Ok(best);
            }
        }
    }

    fn dichotomies(&self, inputs: usize, codes: Vec<u32>, points: &Points) -> Result<Option<Signs>, SearchError> {
        let key = (inputs, codes);
        if let Some(known) = self.known.lock().expect("not poisoned").get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(listed) = dichotomies(points, 1, self.control)? else { return Ok(None) };
        let signs = Arc::new(listed);
        self.known.lock().expect("not poisoned").insert(key, signs.clone());
        Ok(Some(signs))
    }

    /// The code that `codes`, one for each cell of the layer below, gives every instance.
    pub(super) fn spread(&self, first: &LayerTargets, between: &[Vec<u32>], codes: &[u32]) -> Vec<u32> {
        let instances = first[0].len();
        // Only as many units as were chosen carry a code; repeated ones do not matter.
        let code =
            |i: usize| first.iter().enumerate().fold(0, |code, (unit, signs)| code | u32::from(signs[i]) << unit);
        let mut current: Vec<u32> = (0..instances).map(code).collect();
        for layer in between.iter().map(Vec::as_slice).chain([codes]) {
            let mut cells = current.clone();
            cells.sort_unstable();
            cells.dedup();
            let place = |code: &u32| cells.binary_search(code).expect("every code is a cell");
            current = current.iter().map(|code| layer[place(code)]).collect();
        }
        current
    }
}

/// Codes as rows of −1 and +1.
fn code_points(codes: &[u32], inputs: usize) -> Points {
    let rows: Vec<Vec<bool>> = codes.iter().map(|code| (0..inputs).map(|bit| code >> bit & 1 == 1).collect()).collect();
    Points::from_signs(&rows)
}

/// What any function of the cells must lose.
fn floor(cells: &CodeCounts, loss: Loss) -> f64 {
    let lost: usize = cells.values().map(|c| c.iter().sum::<usize>() - c.iter().max().copied().unwrap_or(0)).sum();
    lost as f64 * if loss == Loss::Hinge { 2.0 } else { 1.0 }
}

/// The next increasing choice of numbers below `of`; false after the last.
pub(super) fn next_choice(chosen: &mut [usize], of: usize) -> bool {
    let count = chosen.len();
    for at in (0..count).rev() {
        if chosen[at] + 1 < of - (count - 1 - at) {
            chosen[at] += 1;
            for after in at + 1..count {
                chosen[after] = chosen[after - 1] + 1;
            }
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::next_choice;

    #[test]
    fn choices_are_complete() {
        for (count, of, expected) in [(2, 5, 10), (3, 6, 20), (1, 4, 4), (4, 4, 1)] {
            let mut chosen: Vec<usize> = (0..count).collect();
            let mut seen = vec![chosen.clone()];
            while next_choice(&mut chosen, of) {
                seen.push(chosen.clone());
            }
            assert_eq!(seen.len(), expected);
            assert!(seen.iter().all(|c| c.windows(2).all(|w| w[0] < w[1])));
        }
    }
}
