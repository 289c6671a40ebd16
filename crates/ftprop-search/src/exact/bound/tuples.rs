//! The best tuple of half-spaces: groups of tuples in the order of what they cost at least.
//!
//! A rule makes the inner class of several half-spaces, and is monotone: to enlarge one of them never makes the inner
//! class smaller. So for groups of half-spaces, points that the rule leaves out even with all that some members hold
//! are outside, points that it takes even with what every member holds are inside, and what that costs is a bound
//! for all tuples of members. Tuples of groups wait by their bounds, and those of one bound are looked at before any of
//! the next. When none of a bound is left, everything costs more: that is what can be said when there is no time to end.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::costs::Wish;
use super::tree::{Group, Tree};
use super::{Stopped, Watch};

/// How K half-spaces make the inner class.
pub(super) trait Rule<const K: usize>: Sync {
    /// From this place on half-spaces may change places.
    const ALIKE_FROM: usize;

    /// Which points are inside, 64 at a time; monotone.
    fn inside(words: [u64; K]) -> u64;
}

/// What tuples of one rule share with those of the others.
pub(super) struct Race<'a> {
    watch: &'a Watch<'a>,
    /// The least regret that anyone found, at first the largest that is of interest.
    least: AtomicUsize,
    /// Tuples of groups looked at.
    steps: AtomicU64,
    stopped: OnceLock<Stopped>,
}

/// Tuples of one rule, whatever their number.
pub(super) trait Tuples {
    /// Looks at all groups with this bound.
    fn level(&self, level: usize, race: &Race<'_>) -> Result<(), Stopped>;

    /// The best tuple found: its regret and the places of its half-spaces in the tree.
    fn best(&self) -> Option<(usize, Vec<usize>)>;
}

/// The regret below which tuples are of interest, if they are to make fewer than `below` errors: none if nothing can.
pub(super) fn limit(counts: &[[usize; 2]], below: usize, floor: usize) -> Option<usize> {
    let all: usize = counts.iter().flatten().sum();
    below.min(all + 1).checked_sub(floor).filter(|&limit| limit > 0)
}

/// The best of all tuples with a regret below the limit: which of the hunts found it, its regret and its members. As it
/// goes on, what is proved about errors is told to the watch.
pub(super) fn race(
    hunts: &[Box<dyn Tuples + '_>],
    limit: usize,
    floor: usize,
    watch: &Watch<'_>,
) -> Result<Option<(usize, usize, Vec<usize>)>, Stopped> {
    let least = AtomicUsize::new(limit.saturating_sub(1));
    let race = Race { watch, least, steps: AtomicU64::new(0), stopped: OnceLock::new() };
    for level in 0..limit {
        if level > race.least.load(Ordering::Relaxed) {
            break;
        }
        hunts.iter().try_for_each(|hunt| hunt.level(level, &race))?;
        let found = hunts.iter().filter_map(|hunt| hunt.best()).map(|(regret, _)| regret).min();
        watch.proved.fetch_max(floor + found.unwrap_or(limit).min(level + 1), Ordering::Relaxed);
    }
    let found = hunts.iter().enumerate().filter_map(|(at, hunt)| hunt.best().map(|(regret, of)| (regret, at, of)));
    Ok(found.min().map(|(regret, at, of)| (at, regret, of)))
}

/// Most tuples of groups that wait; what comes on top is looked at when it comes.
const MOST_WAITING: usize = 1 << 22;
/// One part in so many of the memory is for what waits in a hunt: there are up to six, and lists grow by doubling.
const PARTS: usize = 32;
/// Tuples of groups to begin with, so that all threads have work.
const FIRST: usize = 256;

/// Tuples of one rule.
pub(super) struct Hunt<'a, const K: usize, R> {
    tree: &'a Tree,
    wish: &'a Wish,
    /// Tuples of groups by their bound.
    waiting: Vec<Mutex<Vec<[u32; K]>>>,
    held: AtomicUsize,
    best: Mutex<Option<(usize, [usize; K])>>,
    rule: PhantomData<R>,
}

impl<'a, const K: usize, R: Rule<K>> Hunt<'a, K, R> {
    pub(super) fn new(tree: &'a Tree, wish: &'a Wish, limit: usize) -> Self {
        let waiting = (0..limit).map(|_| Mutex::new(vec![])).collect();
        let (held, best) = (AtomicUsize::new(0), Mutex::new(None));
        let hunt = Hunt { tree, wish, waiting, held, best, rule: PhantomData };
        let mut first = if tree.groups.is_empty() { vec![] } else { vec![[0; K]] };
        while first.len() < FIRST && first.iter().any(|node| hunt.widest(node).is_some()) {
            let open = |node: &[u32; K]| hunt.widest(node).map_or(vec![*node], |place| hunt.children(node, place));
            first = first.iter().flat_map(open).collect();
        }
        for node in first {
            let bound = hunt.bound(&node);
            if let Some(waiting) = hunt.waiting.get(bound) {
                waiting.lock().expect("not poisoned").push(node);
            }
        }
        hunt
    }

    fn groups(&self, node: &[u32; K]) -> [&Group; K] {
        node.map(|group| &self.tree.groups[group as usize])
    }

    /// What every tuple of members of these groups costs at least.
    fn bound(&self, node: &[u32; K]) -> usize {
        let groups = self.groups(node);
        let missing = self.wish.missing.sum(|at| !R::inside(groups.map(|group| group.some[at])));
        missing + self.wish.extra.sum(|at| R::inside(groups.map(|group| group.every[at])))
    }

    fn cost(&self, of: &[usize; K]) -> usize {
        let members = of.map(|at| &self.tree.members[at]);
        let missing = self.wish.missing.sum(|at| !R::inside(members.map(|member| member[at])));
        missing + self.wish.extra.sum(|at| R::inside(members.map(|member| member[at])))
    }

    /// The place of the largest group that has parts.
    fn widest(&self, node: &[u32; K]) -> Option<usize> {
        let groups = self.groups(node);
        let open = (0..K).filter(|&place| groups[place].parts.is_some());
        open.max_by_key(|&place| (groups[place].len(), K - place))
    }

    /// The tuples with the group at this place divided. Where it stands in several places that are alike, it is divided
    /// in all of them, without what differs in order only.
    fn children(&self, node: &[u32; K], place: usize) -> Vec<[u32; K]> {
        let Some((x, y)) = self.tree.groups[node[place] as usize].parts else { return vec![*node] };
        let alike = |other: usize| other == place || (other.min(place) >= R::ALIKE_FROM && node[other] == node[place]);
        let places: Vec<usize> = (0..K).filter(|&other| alike(other)).collect();
        let with = |seconds: usize| {
            let mut child = *node;
            for (number, &place) in places.iter().enumerate() {
                child[place] = (if number + seconds < places.len() { x } else { y }) as u32;
            }
            child
        };
        (0..=places.len()).map(with).collect()
    }

    /// All tuples of members of groups without parts.
    fn members(&self, node: &[u32; K], least: &AtomicUsize) {
        let groups = self.groups(node);
        let mut of = groups.map(|group| group.from);
        loop {
            let twice = (R::ALIKE_FROM + 1..K).any(|at| node[at] == node[at - 1] && of[at] < of[at - 1]);
            let regret = if twice { usize::MAX } else { self.cost(&of) };
            if regret <= least.load(Ordering::Relaxed) {
                let mut best = self.best.lock().expect("not poisoned");
                if best.is_none_or(|best| (regret, of) < best) {
                    *best = Some((regret, of));
                    least.fetch_min(regret, Ordering::Relaxed);
                }
            }
            let Some(place) = (0..K).rev().find(|&place| of[place] + 1 < groups[place].to) else { return };
            of[place] += 1;
            (place + 1..K).for_each(|after| of[after] = groups[after].from);
        }
    }

    /// Takes some of what waits at a level.
    fn take(&self, level: usize, threads: usize) -> Vec<[u32; K]> {
        let mut waiting = self.waiting[level].lock().expect("not poisoned");
        let count = (waiting.len() / (8 * threads)).clamp(1, 64).min(waiting.len());
        let from = waiting.len() - count;
        let taken = waiting.split_off(from);
        self.held.fetch_sub(count.min(self.held.load(Ordering::Relaxed)), Ordering::Relaxed);
        taken
    }
}

impl<const K: usize, R: Rule<K>> Tuples for Hunt<'_, K, R> {
    fn level(&self, level: usize, race: &Race<'_>) -> Result<(), Stopped> {
        let work = || {
            let room = MOST_WAITING.min(race.watch.memory / (PARTS * size_of::<[u32; K]>()));
            let mut visit = Visit { hunt: self, race, level, room, steps: 0, later: vec![] };
            while let taken = self.take(level, race.watch.threads)
                && !taken.is_empty()
            {
                if let Err(why) = taken.iter().try_for_each(|node| visit.open(node)).and_then(|()| visit.flush()) {
                    // The first says why.
                    let _ = race.stopped.set(why);
                    return;
                }
            }
        };
        if race.watch.threads > 1 && self.waiting[level].lock().expect("not poisoned").len() > 1 {
            std::thread::scope(|scope| (0..race.watch.threads).for_each(|_| drop(scope.spawn(work))));
        } else {
            work();
        }
        *self.waiting[level].lock().expect("not poisoned") = vec![];
        race.stopped.get().map_or(Ok(()), |&why| Err(why))
    }

    fn best(&self) -> Option<(usize, Vec<usize>)> {
        self.best.lock().expect("not poisoned").map(|(regret, of)| (regret, of.to_vec()))
    }
}

/// What one thread does at a level.
struct Visit<'a, const K: usize, R> {
    hunt: &'a Hunt<'a, K, R>,
    race: &'a Race<'a>,
    level: usize,
    /// Most tuples of groups that may wait.
    room: usize,
    /// Tuples of groups looked at since that was told.
    steps: u64,
    later: Vec<(usize, [u32; K])>,
}

/// Steps after which a thread asks whether to go on.
const ASK: u64 = 256;

impl<const K: usize, R: Rule<K>> Visit<'_, K, R> {
    fn open(&mut self, node: &[u32; K]) -> Result<(), Stopped> {
        let Some(place) = self.hunt.widest(node) else {
            self.hunt.members(node, &self.race.least);
            return Ok(());
        };
        for child in self.hunt.children(node, place) {
            self.steps += 1;
            let bound = self.hunt.bound(&child);
            if bound > self.race.least.load(Ordering::Relaxed) {
                continue;
            }
            if bound <= self.level || self.hunt.held.load(Ordering::Relaxed) + self.later.len() > self.room {
                self.open(&child)?;
            } else {
                self.later.push((bound, child));
            }
        }
        if self.steps >= ASK { self.tell() } else { Ok(()) }
    }

    fn tell(&mut self) -> Result<(), Stopped> {
        let more = std::mem::take(&mut self.steps);
        let steps = self.race.steps.fetch_add(more, Ordering::Relaxed) + more;
        if let Some(&why) = self.race.stopped.get() {
            return Err(why);
        }
        if steps > self.race.watch.steps {
            return Err(Stopped::Steps);
        }
        self.race.watch.ask(more)
    }

    /// Puts what is for later where everybody finds it.
    fn flush(&mut self) -> Result<(), Stopped> {
        self.hunt.held.fetch_add(self.later.len(), Ordering::Relaxed);
        self.later.sort_unstable();
        for same in self.later.chunk_by(|a, b| a.0 == b.0) {
            let mut waiting = self.hunt.waiting[same[0].0].lock().expect("not poisoned");
            waiting.extend(same.iter().map(|(_, node)| *node));
        }
        self.later.clear();
        self.tell()
    }
}
