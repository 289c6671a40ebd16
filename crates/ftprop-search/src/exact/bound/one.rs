//! One unit: the least errors of any linear dichotomy.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::costs::Weights;
use super::hyperplanes::{Bits, Flat, holds, points_of, put, trim};
use super::visit::visit;
use super::{Stopped, Watch};

/// The points of the second class by a dichotomy, and its errors.
pub(crate) type Divided = (usize, Bits);

/// The best dichotomy with fewer than `below` errors; none if there is no such dichotomy. The result does not depend on
/// the number of threads: of several the one that comes first.
pub(crate) fn least(
    flat: &Flat,
    counts: &[[usize; 2]],
    below: usize,
    watch: &Watch<'_>,
) -> Result<Option<Divided>, Stopped> {
    let costs = Costs::new(counts);
    if costs.floor >= below {
        return Ok(None);
    }
    if flat.dimension() == 0 {
        return Ok(Some((costs.floor, vec![u64::from(counts[0][1] > counts[0][0])])));
    }
    let shared = AtomicUsize::new(below - 1);
    let scan = || Scan::new(flat, counts, &costs, &shared);
    let scans = visit(flat, watch, scan, |scan, through| scan.look(through, watch))?;
    let found = scans.into_iter().filter_map(|scan| scan.best);
    Ok(found.min_by(|a, b| (a.1.0, &a.0).cmp(&(b.1.0, &b.0))).map(|(_, best)| best))
}

struct Costs {
    classes: [Weights; 2],
    /// The same, point by point.
    each: [Vec<i64>; 2],
    /// What contradicting labels cost in any case.
    floor: usize,
}

impl Costs {
    fn new(counts: &[[usize; 2]]) -> Self {
        let class = |class: usize| Weights::new(&counts.iter().map(|count| count[class]).collect::<Vec<_>>());
        let each = |class: usize| counts.iter().map(|count| count[class] as i64).collect();
        let (classes, each) = ([class(0), class(1)], [each(0), each(1)]);
        Costs { classes, each, floor: counts.iter().map(|count| count[0].min(count[1])).sum() }
    }
}

/// What one worker looks at, and the best it has seen.
struct Scan<'a> {
    flat: &'a Flat,
    counts: &'a [[usize; 2]],
    costs: &'a Costs,
    /// The least errors that anyone found so far.
    shared: &'a AtomicUsize,
    above: Bits,
    on: Bits,
    /// The points through which the best one goes, for the order, and the best one.
    best: Option<(Vec<usize>, Divided)>,
}

impl<'a> Scan<'a> {
    fn new(flat: &'a Flat, counts: &'a [[usize; 2]], costs: &'a Costs, shared: &'a AtomicUsize) -> Self {
        let words = flat.len().div_ceil(64);
        let (above, on) = (vec![0; words], vec![0; words]);
        Scan { flat, counts, costs, shared, above, on, best: None }
    }

    /// Fewer errors than this are of interest: fewer than the best here, no more than the best anywhere.
    fn below(&self) -> usize {
        let here = self.best.as_ref().map_or(usize::MAX, |(_, (errors, _))| *errors);
        here.min(self.shared.load(Ordering::Relaxed) + 1)
    }

    fn look(&mut self, through: &[usize], watch: &Watch<'_>) -> Result<(), Stopped> {
        if let Some(tally) = self.flat.tally(through, [&self.costs.each[0], &self.costs.each[1]]) {
            let [negative, positive] = &self.costs.classes;
            let up = tally.above[0] + positive.total - tally.above[1] - tally.near[1];
            let down = tally.above[1] + negative.total - tally.above[0] - tally.near[0];
            if up.min(down) >= self.below() {
                return Ok(());
            }
        }
        if !self.flat.sides(through, &mut self.above, &mut self.on) {
            return Ok(());
        }
        let touching = points_of(&self.on);
        // A hyperplane through more points than it needs comes up once with its first two, and that is enough.
        if touching.iter().zip(through).take(2).any(|(a, b)| a != b) {
            return Ok(());
        }
        let [negative, positive] = &self.costs.classes;
        let above = |at: usize| self.above[at];
        let on = |at: usize| self.on[at];
        let (n, p) = (negative.sum(above), positive.sum(above));
        let up = n + positive.total - p - positive.sum(on);
        let down = p + negative.total - n - negative.sum(on);
        let floor: usize = touching.iter().map(|&at| self.counts[at][0].min(self.counts[at][1])).sum();
        for (beside, flipped) in [(up, false), (down, true)] {
            let below = self.below();
            if beside + floor >= below {
                continue;
            }
            let inside = if touching.len() == through.len() {
                // Independent points can be divided in every way.
                let mut wanted = vec![0; touching.len().div_ceil(64)];
                let second = |at: &usize| self.counts[touching[*at]][1] > self.counts[touching[*at]][0];
                (0..touching.len()).filter(second).for_each(|at| put(&mut wanted, at));
                Some((floor, wanted))
            } else {
                let counts: Vec<[usize; 2]> = touching.iter().map(|&at| self.counts[at]).collect();
                least(&self.flat.part(&touching), &counts, below - beside, &watch.alone())?
            };
            if let Some((errors, inside)) = inside {
                self.keep(through, (beside + errors, flipped), &touching, &inside);
            }
        }
        Ok(())
    }

    fn keep(&mut self, through: &[usize], (errors, flipped): (usize, bool), touching: &[usize], inside: &Bits) {
        let mut second: Bits = if flipped {
            self.above.iter().zip(&self.on).map(|(above, on)| !above & !on).collect()
        } else {
            self.above.clone()
        };
        trim(&mut second, self.flat.len());
        (0..touching.len()).filter(|&at| holds(inside, at)).for_each(|at| put(&mut second, touching[at]));
        self.best = Some((through.to_vec(), (errors, second)));
        self.shared.fetch_min(errors, Ordering::Relaxed);
    }
}
