//! Two units: the least errors of any network of two hidden units and one output.
//!
//! A threshold function of two signs is constant, one of the signs, or says one class exactly where both units have
//! certain signs. So one of the classes, the *inner* one, is the intersection of two half-spaces (of which one may hold
//! everything). The half-spaces that can take part are listed, and grouped in a tree by the points that they share: for
//! two groups, points in no member of one are outside, points in all members of both are inside, and what that costs
//! is a bound for all pairs of members.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::costs::Wish;
use super::hyperplanes::{Bits, Flat, holds, points_of};
use super::list::half_spaces;
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
        let list = half_spaces(flat, &wish, limit, watch)?;
        if let Some((errors, sides)) = Tree::new(list, wish, limit, watch)?.best(watch)? {
            best = Some(Wedge { errors, inner, sides });
        }
    }
    Ok(best)
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
    fn new(members: Vec<Bits>, wish: Wish, limit: usize, watch: &Watch<'_>) -> Result<Self, Stopped> {
        let words = wish.inside.len();
        let mut tree = Tree { wish, limit, words, members, groups: vec![] };
        if !tree.members.is_empty() {
            tree.divide(0, tree.members.len(), watch)?;
        }
        Ok(tree)
    }

    /// Makes the group of a range and all below it; returns its place.
    fn divide(&mut self, from: usize, to: usize, watch: &Watch<'_>) -> Result<usize, Stopped> {
        watch.ask()?;
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
            self.groups[place].parts = Some((self.divide(from, middle, watch)?, self.divide(middle, to, watch)?));
        }
        Ok(place)
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

    /// The best pair below the limit: its errors, and the two sets.
    fn best(&self, watch: &Watch<'_>) -> Result<Option<(usize, [Bits; 2])>, Stopped> {
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
        Ok(best.map(|(regret, _, pair)| (regret + self.wish.floor, pair.map(|at| self.members[at].clone()))))
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
