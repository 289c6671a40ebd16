//! One unit over many inputs: which instances must be given up so that the rest is separable.
//!
//! Whatever is given up hits every Gordan witness. So the search goes over sets that hit all witnesses known so far,
//! light ones first; where such a set leaves instances that are not separable, these give the next witness. When
//! nothing lighter than the best network's errors hits them all, the witnesses are the proof.

use std::collections::BTreeMap;

use num_bigint::BigUint;
use num_traits::Zero;

use super::{Control, Known, Setup};
use crate::error::SearchError;
use crate::exact::bound::{Bits, holds, kinds, points_of};
use crate::exact::{Refusal, Witness, check_witness, exact_outputs};
use crate::points::Points;
use crate::separability::{Verdict, decide};

/// What was found out.
pub(super) struct Hit {
    /// So many errors one unit makes at least.
    pub(super) at_least: usize,
    /// The proof of that.
    pub(super) witnesses: Vec<Witness>,
    /// Targets that are separable and wrong for fewer instances than was known, if there are some.
    pub(super) targets: Option<Vec<bool>>,
}

/// Gives up as few instances as possible; `best` errors are possible anyway.
pub(super) fn give_up(setup: &Setup<'_>, control: &Control<'_>, best: usize) -> Result<Hit, SearchError> {
    let mut search = GiveUp::new(setup, control, best)?;
    for limit in search.proved + 1..=best {
        // Is there anything of a weight below the limit?
        let nothing = search.nothing.clone();
        match search.descend(&[], 0, &nothing, nothing.clone(), limit - 1) {
            Some(true) => break,
            Some(false) => search.proved = limit,
            None => break,
        }
        control.improved(search.best as f64, search.proved as f64);
        if search.best <= search.proved {
            break;
        }
    }
    let at_least = search.proved.min(search.best);
    let witnesses = search.sets.into_iter().map(|set| set.witness).collect();
    Ok(Hit { at_least, witnesses, targets: search.targets })
}

/// A witness, and the kinds of instances in it.
#[derive(PartialEq)]
struct Set {
    witness: Witness,
    members: Bits,
}

struct GiveUp<'a> {
    control: &'a Control<'a>,
    points: Points,
    targets_of: Vec<bool>,
    /// How many instances of each kind there are. Equal inputs and labels are of one kind, right or wrong together.
    weights: Vec<usize>,
    first_of: Vec<usize>,
    instance_points: &'a Points,
    instance_targets: Vec<bool>,
    sets: Vec<Set>,
    nothing: Bits,
    /// The fewest errors known to be possible.
    best: usize,
    /// Fewer errors than this are excluded.
    proved: usize,
    targets: Option<Vec<bool>>,
}

impl<'a> GiveUp<'a> {
    fn new(setup: &'a Setup<'a>, control: &'a Control<'a>, best: usize) -> Result<Self, SearchError> {
        let (kind_of, weights) = kinds(setup.data);
        let mut first_of = vec![usize::MAX; weights.len()];
        kind_of.iter().enumerate().rev().for_each(|(instance, &kind)| first_of[kind] = instance);
        let instance_targets = setup.data.targets(0);
        let targets_of = first_of.iter().map(|&instance| instance_targets[instance]).collect();
        let nothing = vec![0; weights.len().div_ceil(64)];
        let points = setup.data.points.select(&first_of);
        let mut search = GiveUp {
            control,
            points,
            targets_of,
            weights,
            first_of,
            instance_points: &setup.data.points,
            instance_targets,
            sets: vec![],
            nothing,
            best,
            // What is excluded below a limit does not depend on what was below lower ones.
            proved: setup.known.and_then(Known::shown).map_or(0, |bound| bound.at_least as usize),
            targets: None,
        };
        search.contradictions();
        let known = setup.known.map_or(&[][..], Known::witnesses);
        known.iter().try_for_each(|witness| search.learn_again(witness, &kind_of))?;
        Ok(search)
    }

    /// Equal instances with different labels are the shortest witnesses.
    fn contradictions(&mut self) {
        let (group_of, firsts) = self.points.distinct();
        for (kind, &group) in group_of.iter().enumerate() {
            let other = firsts[group];
            if other != kind {
                self.learn(vec![(other, 1u32.into()), (kind, 1u32.into())]);
            }
        }
    }

    /// Takes in a witness over instances that was found before, such as a contradiction. It comes from outside, and what
    /// is none would hide solutions.
    fn learn_again(&mut self, witness: &Witness, kind_of: &[usize]) -> Result<(), SearchError> {
        let refused = |why: Refusal| SearchError::Refused { why: format!("a witness to go on with: {why}") };
        check_witness(self.instance_points, &self.instance_targets, witness).map_err(refused)?;
        let mut shares: BTreeMap<usize, BigUint> = BTreeMap::new();
        for (instance, y) in witness.iter().filter(|(_, y)| !y.is_zero()) {
            *shares.entry(kind_of[*instance]).or_default() += y;
        }
        self.learn(shares.into_iter().collect());
        let twice = |sets: &[Set]| sets.split_last().is_some_and(|(last, rest)| rest.iter().any(|set| set == last));
        if twice(&self.sets) {
            self.sets.pop();
        }
        Ok(())
    }

    /// Takes in a witness over kinds.
    fn learn(&mut self, witness: Witness) {
        let mut members = self.nothing.clone();
        witness.iter().for_each(|(kind, _)| members[kind / 64] |= 1 << (kind % 64));
        let witness = witness.into_iter().map(|(kind, y)| (self.first_of[kind], y)).collect();
        self.sets.push(Set { witness, members });
    }

    /// Whether what is given up, and more within the room but nothing of what is kept, leaves a separable rest; none
    /// if there was no time to tell. `missed` are the witnesses among the first `known` that are not hit.
    fn descend(&mut self, missed: &[usize], known: usize, given: &Bits, mut kept: Bits, room: usize) -> Option<bool> {
        if self.control.stop().is_some() {
            return None;
        }
        self.control.tell(self.best as f64, self.proved as f64);
        self.control.count(1);
        let mut missed = missed.to_vec();
        self.catch_up(&mut missed, known, given);
        if missed.is_empty() {
            if self.ask(given)? {
                return Some(true);
            }
            missed.push(self.sets.len() - 1);
        }
        let mut known = self.sets.len();
        let Some(chosen) = self.choose(&missed, &kept, room) else { return Some(false) };
        for kind in points_of(&self.sets[chosen].members) {
            if holds(&kept, kind) {
                continue;
            }
            if let Some(left) = room.checked_sub(self.weights[kind]) {
                let mut more = given.clone();
                more[kind / 64] |= 1 << (kind % 64);
                let rest: Vec<usize> =
                    missed.iter().copied().filter(|&set| !holds(&self.sets[set].members, kind)).collect();
                if self.descend(&rest, known, &more, kept.clone(), left)? {
                    return Some(true);
                }
                // What was learned meanwhile may exclude what comes next.
                self.catch_up(&mut missed, known, given);
                known = self.sets.len();
            }
            kept[kind / 64] |= 1 << (kind % 64);
        }
        Some(false)
    }

    /// Takes in the witnesses that were learned since `known` and are not hit.
    fn catch_up(&self, missed: &mut Vec<usize>, known: usize, given: &[u64]) {
        let hit = |set: &Set| set.members.iter().zip(given).any(|(set, given)| set & given != 0);
        missed.extend((known..self.sets.len()).filter(|&at| !hit(&self.sets[at])));
    }

    /// Among witnesses that are not hit the one that leaves the least choice; none if more must be given up than there
    /// is room for.
    fn choose(&self, missed: &[usize], kept: &Bits, room: usize) -> Option<usize> {
        let size = |set: usize, without: &Bits| -> u32 {
            self.sets[set].members.iter().zip(without).map(|(set, without)| (set & !without).count_ones()).sum()
        };
        let mut open: Vec<(u32, usize)> = missed.iter().map(|&set| (size(set, kept), set)).collect();
        open.sort_unstable();
        // Small sets first: more of them share nothing, and each of those needs something given up.
        let (mut packed, mut needed) = (kept.clone(), 0);
        for &(size_now, set) in &open {
            if size(set, &packed) == size_now {
                let free = points_of(&self.sets[set].members).into_iter().filter(|&kind| !holds(kept, kind));
                needed += free.map(|kind| self.weights[kind]).min()?;
                if needed > room {
                    return None;
                }
                packed.iter_mut().zip(&self.sets[set].members).for_each(|(packed, set)| *packed |= set);
            }
        }
        open.first().map(|&(_, set)| set)
    }

    /// Asks whether the rest is separable: if so its weights are a solution, else there is one more witness. None if
    /// that could not be decided.
    fn ask(&mut self, given: &Bits) -> Option<bool> {
        let rest: Vec<usize> = (0..self.weights.len()).filter(|&kind| !holds(given, kind)).collect();
        let points = self.points.select(&rest);
        let targets: Vec<bool> = rest.iter().map(|&kind| self.targets_of[kind]).collect();
        let control = self.control;
        match decide(&points, &targets, 0, &|| control.stop().is_some()) {
            Verdict::Separable(found) => {
                let sides = exact_outputs(self.instance_points, &found.exact).ok()?;
                self.offer(&sides);
                Some(true)
            }
            Verdict::NotSeparable(witness) => {
                self.learn(witness.into_iter().map(|(at, y)| (rest[at], y)).collect());
                Some(false)
            }
            Verdict::Unknown { .. } => None,
        }
    }

    /// Remembers sides of all instances if they are better than what is known.
    fn offer(&mut self, sides: &[bool]) {
        let errors = sides.iter().zip(&self.instance_targets).filter(|(a, b)| a != b).count();
        if errors < self.best {
            self.best = errors;
            self.targets = Some(sides.to_vec());
        }
    }
}
