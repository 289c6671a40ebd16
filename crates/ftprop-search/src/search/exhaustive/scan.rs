//! The scan over sets of first-layer dichotomies, as bits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::output::{TABLE_INPUTS, threshold_functions};
use super::super::{Control, Loss, Setup, Stop};
use super::Best;
use super::upper::{CodeCounts, Upper};
use crate::error::SearchError;
use crate::rng::Rng;

type Bits<const W: usize> = [u64; W];

/// How far the inner levels look beyond the best loss, so that the outer levels can skip: see [`Space::descend`].
const SLACK: usize = 4;
/// Starts of the quick search that provides the first bound.
const STARTS: u64 = 12;

/// All dichotomies, in an order in which neighbours differ little.
pub(super) struct Space<'a, const W: usize> {
    units: Vec<Bits<W>>,
    /// The place of each unit in the list that the caller gave.
    original: Vec<usize>,
    /// Along the order, the number of sides changed since the first unit.
    along: Vec<usize>,
    classes: Vec<Bits<W>>,
    width: usize,
    setup: &'a Setup<'a>,
    upper: &'a Upper<'a>,
    best: Mutex<Best>,
    /// The best loss, rounded up, and the first unit of the best set (0 for the quick search's), in one number.
    bound: AtomicUsize,
    error: Mutex<Option<SearchError>>,
}

fn count<const W: usize>(bits: &Bits<W>) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

fn count_both<const W: usize>(a: &Bits<W>, b: &Bits<W>) -> usize {
    a.iter().zip(b).map(|(a, b)| (a & b).count_ones() as usize).sum()
}

impl<'a, const W: usize> Space<'a, W> {
    pub(super) fn new(setup: &'a Setup<'a>, dichotomies: &[Vec<bool>], upper: &'a Upper<'a>) -> Self {
        let pack = |signs: &mut dyn Iterator<Item = bool>| {
            let mut bits = [0; W];
            signs.enumerate().filter(|(_, sign)| *sign).for_each(|(i, _)| bits[i / 64] |= 1 << (i % 64));
            bits
        };
        let packed: Vec<Bits<W>> = dichotomies.iter().map(|signs| pack(&mut signs.iter().copied())).collect();
        let original = short_tour(&packed);
        let units: Vec<Bits<W>> = original.iter().map(|&at| packed[at]).collect();
        let mut along = vec![0; units.len()];
        for at in 1..units.len() {
            along[at] = along[at - 1] + distance(&units[at - 1], &units[at]);
        }
        let class = |class| pack(&mut setup.data.labels.iter().map(move |&label| label == class));
        Space {
            width: setup.hidden[0].min(units.len()),
            units,
            original,
            along,
            classes: (0..setup.data.classes.len()).map(class).collect(),
            setup,
            upper,
            best: Mutex::new(Best { loss: f64::INFINITY, units: vec![0], above: vec![] }),
            bound: AtomicUsize::new(usize::MAX),
            error: Mutex::new(None),
        }
    }

    /// The best set of dichotomies, and why the search stopped early if it did.
    pub(super) fn search(self, control: &Control<'_>) -> Result<(Best, Option<Stop>), SearchError> {
        self.quick(control);
        let next = AtomicUsize::new(0);
        let finished = AtomicBool::new(true);
        let work = || {
            let mut cells = vec![];
            // Small blocks, so that skipping works within them.
            while let block = next.fetch_add(8, Ordering::Relaxed)
                && block + self.width <= self.units.len()
            {
                let mut first = block;
                while first < block + 8 && first + self.width <= self.units.len() {
                    if self.at_floor() {
                        return;
                    }
                    if control.stop().is_some() || self.error.lock().expect("not poisoned").is_some() {
                        finished.store(false, Ordering::Relaxed);
                        return;
                    }
                    cells.clear();
                    self.refine(std::slice::from_ref(&self.classes), &self.units[first], &mut cells);
                    let low = self.descend(&mut vec![first], &cells, control);
                    if control.stop().is_some() {
                        // The levels below may have been left early.
                        finished.store(false, Ordering::Relaxed);
                        return;
                    }
                    let bound = self.needed(first + 1);
                    let from = first;
                    first += 1;
                    if self.setup.loss == Loss::Hinge {
                        // One move may change the hinge loss by any amount.
                        continue;
                    }
                    while first < self.units.len() && low >= bound.saturating_add(self.along[first] - self.along[from])
                    {
                        first += 1;
                    }
                }
            }
        };
        if self.setup.threads > 1 {
            std::thread::scope(|scope| (0..self.setup.threads).for_each(|_| drop(scope.spawn(work))));
        } else {
            work();
        }
        if let Some(error) = self.error.into_inner().expect("not poisoned") {
            return Err(error);
        }
        let mut best = self.best.into_inner().expect("not poisoned");
        best.units.iter_mut().for_each(|unit| *unit = self.original[*unit]);
        let stop = if finished.into_inner() { None } else { Some(control.stop().unwrap_or(Stop::Interrupted)) };
        Ok((best, stop))
    }

    fn at_floor(&self) -> bool {
        self.setup.at_floor(self.best.lock().expect("not poisoned").loss)
    }

    /// A loss that a set beginning with `first` must be below to matter. A set that begins later than the best
    /// one must be better; one that begins earlier and is as good replaces it, so that the result does not depend on
    /// which thread was faster.
    fn needed(&self, first: usize) -> usize {
        let bound = self.bound.load(Ordering::Relaxed);
        if bound == usize::MAX {
            return usize::MAX;
        }
        let (loss, best_first) = (bound >> 32, bound & 0xFFFF_FFFF);
        loss + usize::from(first < best_first)
    }

    /// Looks at all sets that continue `path` with later units. Returns a loss that all of them have at least, as
    /// far as it matters: never more than the bound plus this level's slack.
    ///
    /// Whatever a set loses, one that differs in k sides loses at least that minus k. So a unit whose sets all lose
    /// at least the bound plus k lets the loop skip the next units within k sides of it. For that the inner loops
    /// must not stop counting at the bound, but somewhat above it: the slack.
    fn descend(&self, path: &mut Vec<usize>, cells: &[Vec<Bits<W>>], control: &Control<'_>) -> usize {
        let level = path.len();
        if level == self.width {
            return self.leaf(path);
        }
        let from = path[level - 1];
        let slack = if self.setup.loss == Loss::ZeroOne { SLACK * level / (self.width - 1).max(1) } else { 0 };
        let last = level + 1 == self.width;
        let mut lowest = usize::MAX;
        let mut finer = vec![];
        let mut at = from + 1;
        let mut nodes = 0;
        while at + (self.width - level - 1) < self.units.len() {
            let needed = self.needed(path[0]);
            path.push(at);
            let low = if last {
                nodes += 1;
                let lost = self.minority(cells, &self.units[at]);
                if self.scaled(lost) < needed { self.leaf(path).max(lost) } else { lost }
            } else {
                self.refine(cells, &self.units[at], &mut finer);
                self.descend(path, &finer, control)
            };
            path.pop();
            lowest = lowest.min(low);
            if !last && control.stop().is_some() {
                break;
            }
            let limit = self.needed(path[0]).saturating_add(slack);
            let here = at;
            at += 1;
            if self.setup.loss == Loss::ZeroOne {
                while at < self.units.len() && low >= limit.saturating_add(self.along[at] - self.along[here]) {
                    lowest = lowest.min(limit);
                    at += 1;
                }
            }
        }
        control.count(nodes);
        lowest
    }

    /// A loss of the cells' minorities in terms of the loss that is minimised.
    fn scaled(&self, lost: usize) -> usize {
        if self.setup.loss == Loss::Hinge { 2 * lost } else { lost }
    }

    /// The loss of a full set: exact if it is below what is needed, else at least that.
    fn leaf(&self, path: &[usize]) -> usize {
        let needed = self.needed(path[0]);
        if self.setup.loss == Loss::ZeroOne
            && self.setup.hidden.len() == 1
            && self.classes.len() == 2
            && self.width <= TABLE_INPUTS
        {
            let loss = self.table_loss(path);
            if loss < needed {
                self.offer(loss as f64, path, vec![]);
            }
            return loss;
        }
        let bound = if needed == usize::MAX { f64::INFINITY } else { needed as f64 };
        let bound =
            if self.setup.loss == Loss::Hinge { self.best.lock().expect("not poisoned").loss - 1e-9 } else { bound };
        match self.upper.best(1, &self.code_counts(path), bound) {
            Ok(Some((loss, above))) => {
                self.offer(loss, path, above);
                loss as usize
            }
            Ok(None) => needed,
            Err(error) => {
                self.error.lock().expect("not poisoned").get_or_insert(error);
                needed
            }
        }
    }

    fn offer(&self, loss: f64, path: &[usize], above: Vec<Vec<u32>>) {
        let mut best = self.best.lock().expect("not poisoned");
        let order = (loss, path).partial_cmp(&(best.loss, &best.units));
        if loss < best.loss || (self.setup.loss == Loss::ZeroOne && order == Some(std::cmp::Ordering::Less)) {
            *best = Best { loss, units: path.to_vec(), above };
            self.bound.store((loss.ceil() as usize) << 32 | path[0], Ordering::Relaxed);
        }
    }

    /// The least errors of any threshold function of the units' outputs, by the table of all of them.
    fn table_loss(&self, path: &[usize]) -> usize {
        let mut counts = [[0usize; 2]; 1 << TABLE_INPUTS];
        for (class, members) in self.classes.iter().enumerate() {
            let mut parts = vec![*members];
            for &unit in path {
                let unit = &self.units[unit];
                let outside = parts.iter().map(|part| std::array::from_fn(|w| part[w] & !unit[w]));
                let inside = parts.iter().map(|part| std::array::from_fn(|w| part[w] & unit[w]));
                parts = outside.chain(inside).collect();
            }
            // Each unit doubled the list: the part at place c is the cell with code c.
            parts.iter().enumerate().for_each(|(code, part)| counts[code][class] = count(part));
        }
        let codes = 1 << path.len();
        let cost = |function: &u16| -> usize {
            (0..codes).map(|code| counts[code][1 - usize::from(function >> code & 1)]).sum()
        };
        threshold_functions(path.len()).iter().map(cost).min().unwrap_or(usize::MAX)
    }

    fn code_counts(&self, path: &[usize]) -> CodeCounts {
        let mut cells = CodeCounts::new();
        for (instance, &label) in self.setup.data.labels.iter().enumerate() {
            let side = |unit: usize| (self.units[unit][instance / 64] >> (instance % 64) & 1) as u32;
            let code = path.iter().enumerate().fold(0, |code, (bit, &unit)| code | side(unit) << bit);
            cells.entry(code).or_insert_with(|| vec![0; self.classes.len()])[label] += 1;
        }
        cells
    }

    /// Cuts every cell by a unit; cells of one class only are left out, as nothing more is lost in them.
    fn refine(&self, cells: &[Vec<Bits<W>>], unit: &Bits<W>, finer: &mut Vec<Vec<Bits<W>>>) {
        finer.clear();
        for cell in cells {
            for side in [0, u64::MAX] {
                let part: Vec<Bits<W>> =
                    cell.iter().map(|class| std::array::from_fn(|w| class[w] & (unit[w] ^ side))).collect();
                if part.iter().filter(|class| class.iter().any(|&word| word != 0)).count() > 1 {
                    finer.push(part);
                }
            }
        }
    }

    /// What any function of the cells, cut by one more unit, must lose.
    fn minority(&self, cells: &[Vec<Bits<W>>], unit: &Bits<W>) -> usize {
        let mut lost = 0;
        for cell in cells {
            if let [negative, positive] = cell.as_slice() {
                let (n, p) = (count_both(negative, unit), count_both(positive, unit));
                lost += n.min(p) + (count(negative) - n).min(count(positive) - p);
            } else {
                let inside: Vec<usize> = cell.iter().map(|class| count_both(class, unit)).collect();
                let outside = cell.iter().zip(&inside).map(|(class, inside)| count(class) - inside);
                let rest = |counts: Vec<usize>| counts.iter().sum::<usize>() - counts.iter().max().unwrap_or(&0);
                lost += rest(outside.collect()) + rest(inside);
            }
        }
        lost
    }

    /// A first bound: from random sets, exchange one unit after the other for the best, until nothing improves.
    fn quick(&self, control: &Control<'_>) {
        self.leaf(&(0..self.width).collect::<Vec<_>>());
        control.count(1);
        if self.setup.hidden.len() > 1 || self.setup.loss == Loss::Hinge || self.width > TABLE_INPUTS {
            return;
        }
        for start in 0..STARTS {
            let mut rng = Rng::new(self.setup.seed).fork(start);
            let mut path: Vec<usize> = (0..self.width).map(|_| rng.below(self.units.len())).collect();
            let mut loss = usize::MAX;
            let mut unchanged = 0;
            for place in (0..self.width).cycle() {
                if unchanged == self.width || control.stop().is_some() {
                    break;
                }
                unchanged += 1;
                let others = path.iter().enumerate().filter(|(at, _)| *at != place);
                let mut cells = vec![self.classes.clone()];
                let mut finer = vec![];
                for (_, &unit) in others {
                    self.refine(&cells, &self.units[unit], &mut finer);
                    std::mem::swap(&mut cells, &mut finer);
                }
                control.count(self.units.len() as u64);
                for unit in 0..self.units.len() {
                    if self.minority(&cells, &self.units[unit]) >= loss {
                        continue;
                    }
                    let before = std::mem::replace(&mut path[place], unit);
                    let now = if self.classes.len() == 2 { self.table_loss(&path) } else { self.leaf(&path) };
                    if now < loss {
                        (loss, unchanged) = (now, 0);
                    } else {
                        path[place] = before;
                    }
                }
            }
            self.leaf(&path);
        }
        // Sets of the scan have to beat this one, wherever they begin.
        let best = self.best.lock().expect("not poisoned").loss;
        self.bound.store((best.ceil() as usize) << 32, Ordering::Relaxed);
    }
}

fn distance<const W: usize>(a: &Bits<W>, b: &Bits<W>) -> usize {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones() as usize).sum()
}

/// An order in which neighbours differ little: always the nearest that is left, as long as that is affordable.
fn short_tour<const W: usize>(units: &[Bits<W>]) -> Vec<usize> {
    let mut tour: Vec<usize> = (0..units.len()).collect();
    if units.len() > 20_000 {
        tour.sort_by_key(|&at| units[at]);
        return tour;
    }
    for done in 1..tour.len() {
        let here = units[tour[done - 1]];
        let mut nearest = (usize::MAX, done);
        for at in done..tour.len() {
            let apart = distance(&here, &units[tour[at]]);
            if apart < nearest.0 {
                nearest = (apart, at);
                if apart == 1 {
                    break;
                }
            }
        }
        tour.swap(done, nearest.1);
    }
    tour
}
