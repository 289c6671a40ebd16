//! Two units: the least errors of any network of two hidden units and one output.
//!
//! A threshold function of two signs is constant, one of the signs, or says one class exactly where both units have
//! certain signs. So one of the classes, the *inner* one, is the intersection of two half-spaces (of which one may hold
//! everything). The half-spaces that can take part are listed, and grouped in a tree by the points that they share: for
//! two groups, points in no member of one are outside, points in all members of both are inside, and what that costs
//! is a bound for all pairs of members.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::costs::Weights;
use super::hyperplanes::{Bits, Flat, holds, put};
use super::one::{points_of, trim};
use super::{Stopped, Watch};

/// Two half-spaces whose intersection has the inner class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wedge {
    pub(crate) errors: usize,
    pub(crate) inner: usize,
    pub(crate) sides: [Bits; 2],
}

/// The best wedge with fewer than `below` errors; none if there is none.
pub(crate) fn least(
    flat: &Flat,
    counts: &[[usize; 2]],
    below: usize,
    watch: &Watch<'_>,
) -> Result<Option<Wedge>, Stopped> {
    let mut best: Option<Wedge> = None;
    for inner in [0, 1] {
        let below = best.as_ref().map_or(below, |best| best.errors);
        let wish = Wish::new(counts, inner);
        let Some(limit) = below.checked_sub(wish.floor).filter(|&limit| limit > 0) else { continue };
        let mut list = half_spaces(flat, &wish, limit, watch)?;
        list.sort_unstable();
        list.dedup();
        if let Some((regret, sides)) = Tree::new(list, wish, limit).best(watch)? {
            best = Some(Wedge { errors: regret.0 + regret.1, inner, sides });
        }
    }
    Ok(best)
}

/// Which points should be inside, and what it costs more if they are not where they should be.
struct Wish {
    inside: Bits,
    /// Regret of points outside that should be inside.
    missing: Weights,
    /// The same, point by point.
    weights: Vec<i64>,
    /// Regret of points inside that should be outside.
    extra: Weights,
    /// What contradicting labels cost in any case.
    floor: usize,
}

impl Wish {
    fn new(counts: &[[usize; 2]], inner: usize) -> Self {
        let (mut inside, mut missing, mut extra) = (vec![0; counts.len().div_ceil(64)], vec![], vec![]);
        for (at, count) in counts.iter().enumerate() {
            let (gain, loss) = (count[inner], count[1 - inner]);
            missing.push(gain.saturating_sub(loss));
            extra.push(loss.saturating_sub(gain));
            if gain > loss {
                put(&mut inside, at);
            }
        }
        let floor = counts.iter().map(|count| count[0].min(count[1])).sum();
        let weights = missing.iter().map(|&weight| weight as i64).collect();
        Wish { inside, missing: Weights::new(&missing), weights, extra: Weights::new(&extra), floor }
    }

    /// The wish for some of the points.
    fn part(&self, points: &[usize]) -> Wish {
        let mut inside = vec![0; points.len().div_ceil(64)];
        (0..points.len()).filter(|&at| holds(&self.inside, points[at])).for_each(|at| put(&mut inside, at));
        let weights = vec![0; points.len()];
        Wish { inside, missing: Weights::new(&[]), weights, extra: Weights::new(&[]), floor: 0 }
    }
}

/// Half-spaces, as sets of points, of which the best intersections are made: to have a point inside that should be, or
/// outside that should be, never makes an intersection worse, so of several ways to divide the points on a hyperplane
/// only the best are listed. Only those with a regret below the limit for what they leave out.
fn half_spaces(flat: &Flat, wish: &Wish, limit: usize, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let listed: Mutex<Vec<Bits>> = Mutex::new(vec![]);
    if flat.dimension() == 0 {
        return Ok(vec![wish.inside.clone()]);
    }
    let work = || {
        let mut list = List { flat, wish, limit, through: vec![], found: vec![] };
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
    if stopped.into_inner() { Err(Stopped) } else { Ok(listed.into_inner().expect("not poisoned")) }
}

struct List<'a> {
    flat: &'a Flat,
    wish: &'a Wish,
    limit: usize,
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
        if let Some(tally) = self.flat.tally(&self.through, [&self.wish.weights, &self.wish.weights]) {
            let (up, down) = (self.wish.missing.total - tally.above[0] - tally.on[0], tally.above[0]);
            if up.min(down) >= self.limit {
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
        let mut ways: Option<Vec<Bits>> = None;
        for beside in [above, below] {
            if self.wish.missing.sum(|at| !(beside[at] | on[at])) >= self.limit {
                continue;
            }
            if touching.len() == self.through.len() {
                self.found.push((0..words).map(|at| beside[at] | (on[at] & self.wish.inside[at])).collect());
                continue;
            }
            if ways.is_none() {
                let wish = self.wish.part(&touching);
                ways = Some(half_spaces(&self.flat.part(&touching), &wish, usize::MAX, &watch.alone())?);
            }
            for way in ways.iter().flatten() {
                let mut half = beside.clone();
                (0..touching.len()).filter(|&at| holds(way, at)).for_each(|at| put(&mut half, touching[at]));
                if self.wish.missing.sum(|at| !half[at]) < self.limit {
                    self.found.push(half);
                }
            }
        }
        Ok(())
    }
}

/// Members of a group that need no further division.
const SMALL_GROUP: usize = 8;
/// Members that are asked which point divides a group best.
const SAMPLE: usize = 48;

/// Half-spaces in groups of groups.
struct Tree {
    wish: Wish,
    limit: usize,
    words: usize,
    members: Vec<Bits>,
    groups: Vec<Group>,
}

/// A range of the members.
struct Group {
    from: usize,
    to: usize,
    /// Points in some member.
    some: Bits,
    /// Points in every member.
    every: Bits,
    parts: Option<(usize, usize)>,
}

impl Tree {
    fn new(members: Vec<Bits>, wish: Wish, limit: usize) -> Self {
        let words = wish.inside.len();
        let mut tree = Tree { wish, limit, words, members, groups: vec![] };
        if !tree.members.is_empty() {
            tree.divide(0, tree.members.len());
        }
        tree
    }

    /// Makes the group of a range and all below it; returns its place.
    fn divide(&mut self, from: usize, to: usize) -> usize {
        let (mut some, mut every) = (vec![0; self.words], vec![u64::MAX; self.words]);
        for member in &self.members[from..to] {
            for at in 0..self.words {
                some[at] |= member[at];
                every[at] &= member[at];
            }
        }
        let place = self.groups.len();
        let split = if to - from > SMALL_GROUP { self.splitting_point(from, to, &some, &every) } else { None };
        self.groups.push(Group { from, to, some, every, parts: None });
        if let Some(point) = split {
            self.members[from..to].sort_by_key(|member| holds(member, point));
            let middle = from + self.members[from..to].partition_point(|member| !holds(member, point));
            self.groups[place].parts = Some((self.divide(from, middle), self.divide(middle, to)));
        }
        place
    }

    /// A point that about half of the members hold, judged by some of them.
    fn splitting_point(&self, from: usize, to: usize, some: &Bits, every: &Bits) -> Option<usize> {
        let step = ((to - from) / SAMPLE).max(1);
        let sample: Vec<&Bits> = self.members[from..to].iter().step_by(step).collect();
        let open: Bits = some.iter().zip(every).map(|(some, every)| some & !every).collect();
        let holders = |point: &usize| sample.iter().filter(|member| holds(member, *point)).count();
        points_of(&open).into_iter().min_by_key(|point| holders(point).abs_diff(sample.len() / 2))
    }

    /// What every pair of members of two groups costs at least.
    fn bound(&self, a: &Group, b: &Group) -> usize {
        let missing = self.wish.missing.sum(|at| !(a.some[at] & b.some[at]));
        missing + self.wish.extra.sum(|at| a.every[at] & b.every[at])
    }

    fn cost(&self, a: &Bits, b: &Bits) -> usize {
        self.wish.missing.sum(|at| !(a[at] & b[at])) + self.wish.extra.sum(|at| a[at] & b[at])
    }

    /// The best pair below the limit: its regret and the floor, and the two sets.
    fn best(&self, watch: &Watch<'_>) -> Result<Option<((usize, usize), [Bits; 2])>, Stopped> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        // Tasks in a fixed order, so that the result does not depend on who works on which.
        let mut tasks = vec![(0, 0)];
        while tasks.len() < 256 && tasks.iter().any(|&(a, b)| self.open(a, b)) {
            tasks = tasks.into_iter().flat_map(|(a, b)| self.children(a, b)).collect();
        }
        let next = AtomicUsize::new(0);
        let shared = AtomicUsize::new(self.limit - 1);
        let stopped = AtomicBool::new(false);
        let found: Mutex<Vec<(usize, usize, [usize; 2])>> = Mutex::new(vec![]);
        let work = || {
            while let task = next.fetch_add(1, Ordering::Relaxed)
                && let Some(&(a, b)) = tasks.get(task)
            {
                let mut visit = Visit { tree: self, shared: &shared, best: None };
                if visit.pair(a, b, watch).is_err() {
                    stopped.store(true, Ordering::Relaxed);
                    return;
                }
                let best = visit.best.map(|(regret, pair)| (regret, task, pair));
                found.lock().expect("not poisoned").extend(best);
            }
        };
        if watch.threads > 1 {
            std::thread::scope(|scope| (0..watch.threads).for_each(|_| drop(scope.spawn(work))));
        } else {
            work();
        }
        if stopped.into_inner() {
            return Err(Stopped);
        }
        let best = found.into_inner().expect("not poisoned").into_iter().min();
        Ok(best.map(|(regret, _, pair)| ((regret, self.wish.floor), pair.map(|at| self.members[at].clone()))))
    }

    fn open(&self, a: usize, b: usize) -> bool {
        self.groups[a].parts.is_some() || self.groups[b].parts.is_some()
    }

    /// The pairs of parts of a pair; the larger group is divided, or both if it is a group with itself.
    fn children(&self, a: usize, b: usize) -> Vec<(usize, usize)> {
        let (first, second) = (&self.groups[a], &self.groups[b]);
        match (first.parts, second.parts) {
            (Some((x, y)), _) if a == b => vec![(x, x), (x, y), (y, y)],
            (Some((x, y)), None) => vec![(x, b), (y, b)],
            (Some((x, y)), Some(_)) if first.to - first.from >= second.to - second.from => vec![(x, b), (y, b)],
            (_, Some((x, y))) => vec![(a, x), (a, y)],
            (None, None) => vec![(a, b)],
        }
    }
}

struct Visit<'a> {
    tree: &'a Tree,
    shared: &'a AtomicUsize,
    best: Option<(usize, [usize; 2])>,
}

impl Visit<'_> {
    fn below(&self) -> usize {
        let here = self.best.as_ref().map_or(usize::MAX, |(regret, _)| *regret);
        here.min(self.shared.load(Ordering::Relaxed) + 1)
    }

    fn pair(&mut self, a: usize, b: usize, watch: &Watch<'_>) -> Result<(), Stopped> {
        let (first, second) = (&self.tree.groups[a], &self.tree.groups[b]);
        if self.tree.bound(first, second) >= self.below() {
            return Ok(());
        }
        if self.tree.open(a, b) {
            watch.ask()?;
            return self.tree.children(a, b).into_iter().try_for_each(|(a, b)| self.pair(a, b, watch));
        }
        for x in first.from..first.to {
            for y in second.from..second.to {
                let regret = self.tree.cost(&self.tree.members[x], &self.tree.members[y]);
                if regret < self.below() {
                    self.best = Some((regret, [x, y]));
                    self.shared.fetch_min(regret, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}
