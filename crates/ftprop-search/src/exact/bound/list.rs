//! Half-spaces, as sets of points: all that there are, or those of which the best intersections are made.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::costs::Wish;
use super::hyperplanes::{Bits, Flat, holds, points_of, put, trim};
use super::{Stopped, Watch};

/// Half-spaces, as sets of points, of which the best intersections are made: to have a point inside that should be, or
/// outside that should be, never makes an intersection worse, so of several ways to divide the points on a hyperplane
/// only the best are listed. Only those with a regret below the limit for what they leave out.
pub(super) fn half_spaces(flat: &Flat, wish: &Wish, limit: usize, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    list(flat, Ways::Best { wish, limit }, watch)
}

/// All half-spaces, as sets of points.
pub(crate) fn dichotomies(flat: &Flat, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    list(flat, Ways::All, watch)
}

/// Which half-spaces are listed.
#[derive(Clone, Copy)]
enum Ways<'a> {
    /// The best ones for a wish with a regret below the limit.
    Best { wish: &'a Wish, limit: usize },
    /// Every one.
    All,
}

/// Half-spaces in order, none of them twice.
fn list(flat: &Flat, ways: Ways<'_>, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let listed: Mutex<Vec<Bits>> = Mutex::new(vec![]);
    if flat.dimension() == 0 {
        return Ok(match ways {
            Ways::Best { wish, .. } => vec![wish.inside.clone()],
            Ways::All => vec![vec![0], vec![1]],
        });
    }
    let work = || {
        let mut list = List { flat, ways, through: vec![], found: vec![] };
        while let first = next.fetch_add(1, Ordering::Relaxed)
            && first + flat.dimension() <= flat.len()
        {
            list.through.clear();
            list.through.push(first);
            if list.descend(watch).is_err() {
                stopped.store(true, Ordering::Relaxed);
                return;
            }
        }
        listed.lock().expect("not poisoned").extend(list.found);
    };
    if watch.threads > 1 && flat.len() > 40 {
        std::thread::scope(|scope| (0..watch.threads).for_each(|_| drop(scope.spawn(work))));
    } else {
        work();
    }
    if stopped.into_inner() {
        return Err(Stopped);
    }
    let mut listed = listed.into_inner().expect("not poisoned");
    listed.sort_unstable();
    listed.dedup();
    Ok(listed)
}

struct List<'a> {
    flat: &'a Flat,
    ways: Ways<'a>,
    through: Vec<usize>,
    found: Vec<Bits>,
}

impl List<'_> {
    fn descend(&mut self, watch: &Watch<'_>) -> Result<(), Stopped> {
        if self.through.len() == self.flat.dimension() {
            return self.look(watch);
        }
        if self.through.len() + 1 == self.flat.dimension() {
            watch.ask()?;
            // Each set as it is listed, and once more in the tree.
            watch.room(self.found.len() * (self.flat.len().div_ceil(64) * 8 + 24) * 2 * watch.threads)?;
        }
        let from = self.through.last().map_or(0, |last| last + 1);
        for next in from..self.flat.len() {
            self.through.push(next);
            self.descend(watch)?;
            self.through.pop();
        }
        Ok(())
    }

    fn look(&mut self, watch: &Watch<'_>) -> Result<(), Stopped> {
        if let Ways::Best { wish, limit } = self.ways
            && let Some(tally) = self.flat.tally(&self.through, [&wish.weights, &wish.weights])
        {
            let (up, down) = (wish.missing.total - tally.above[0] - tally.near[0], tally.above[0]);
            if up.min(down) >= limit {
                return Ok(());
            }
        }
        let words = self.flat.len().div_ceil(64);
        let (mut above, mut on) = (vec![0; words], vec![0; words]);
        if !self.flat.sides(&self.through, &mut above, &mut on) {
            return Ok(());
        }
        let touching = points_of(&on);
        if touching.iter().zip(&self.through).take(2).any(|(a, b)| a != b) {
            return Ok(());
        }
        let mut below: Bits = above.iter().zip(&on).map(|(above, on)| !above & !on).collect();
        trim(&mut below, self.flat.len());
        let mut divided: Option<Vec<Bits>> = None;
        for beside in [above, below] {
            let hopeless = |half: &dyn Fn(usize) -> u64| match self.ways {
                Ways::Best { wish, limit } => wish.missing.sum(|at| !half(at)) >= limit,
                Ways::All => false,
            };
            if hopeless(&|at| beside[at] | on[at]) {
                continue;
            }
            if divided.is_none() {
                divided = Some(self.divide(&touching, watch)?);
            }
            for way in divided.iter().flatten() {
                let mut half = beside.clone();
                (0..touching.len()).filter(|&at| holds(way, at)).for_each(|at| put(&mut half, touching[at]));
                if !hopeless(&|at| half[at]) {
                    self.found.push(half);
                }
            }
        }
        Ok(())
    }

    /// How the points on a hyperplane can be divided.
    fn divide(&self, touching: &[usize], watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
        // As many points as dimensions are independent, and can be divided in every way.
        let independent = touching.len() == self.through.len();
        match self.ways {
            Ways::Best { wish, .. } if independent => Ok(vec![wish.part(touching).inside]),
            Ways::Best { wish, .. } => {
                half_spaces(&self.flat.part(touching), &wish.part(touching), usize::MAX, &watch.alone())
            }
            Ways::All if independent => Ok((0..1u64 << touching.len()).map(|way| vec![way]).collect()),
            Ways::All => dichotomies(&self.flat.part(touching), &watch.alone()),
        }
    }
}
