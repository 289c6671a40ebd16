//! One unit over many inputs: which instances must be given up so that the rest is separable.
//!
//! Whatever is given up hits every Gordan witness. So the search goes over sets that hit all witnesses known so far,
//! light ones first; where such a set leaves instances that are not separable, these give the next witness. When
//! nothing lighter than the best network's errors hits them all, the witnesses are the proof.

use super::{Control, Setup};
use crate::error::SearchError;
use crate::exact::bound::{Bits, holds, kinds};
use crate::exact::{Witness, exact_outputs};
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
    let mut search = GiveUp::new(setup, control, best);
    for limit in 1..=best {
        // Is there anything of a weight below the limit?
        match search.descend(&search.nothing.clone(), &search.nothing.clone(), limit - 1) {
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
    fn new(setup: &'a Setup<'a>, control: &'a Control<'a>, best: usize) -> Self {
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
            proved: 0,
            targets: None,
        };
        search.contradictions();
        let known = setup.known.map_or(&[][..], |known| &known.witnesses);
        known.iter().for_each(|witness| search.learn_again(witness, &kind_of));
        search
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

    /// Takes in a witness over instances.
    fn learn_again(&mut self, witness: &Witness, kind_of: &[usize]) {
        self.learn(witness.iter().map(|(instance, y)| (kind_of[*instance], y.clone())).collect());
    }

    /// Takes in a witness over kinds.
    fn learn(&mut self, witness: Witness) {
        let mut members = self.nothing.clone();
        witness.iter().for_each(|(kind, _)| members[kind / 64] |= 1 << (kind % 64));
        let witness = witness.into_iter().map(|(kind, y)| (self.first_of[kind], y)).collect();
        self.sets.push(Set { witness, members });
    }

    /// Whether what is given up, and more within the room but nothing of what is kept, leaves a separable rest; none
    /// if there was no time to tell.
    fn descend(&mut self, given: &Bits, kept: &Bits, room: usize) -> Option<bool> {
        if self.control.stop().is_some() {
            return None;
        }
        self.control.tell(self.best as f64, self.proved as f64);
        self.control.count(1);
        let free = match self.open_set(given, kept, room) {
            Open::Hopeless => return Some(false),
            Open::Set(free) => free,
            Open::None => {
                if self.ask(given)? {
                    return Some(true);
                }
                let last = self.sets.last()?;
                last.members.iter().zip(kept).map(|(set, kept)| set & !kept).collect()
            }
        };
        let mut kept = kept.clone();
        for kind in (0..self.weights.len()).filter(|&kind| holds(&free, kind)) {
            if let Some(left) = room.checked_sub(self.weights[kind]) {
                let mut given = given.clone();
                given[kind / 64] |= 1 << (kind % 64);
                if self.descend(&given, &kept, left)? {
                    return Some(true);
                }
            }
            kept[kind / 64] |= 1 << (kind % 64);
        }
        Some(false)
    }

    /// Among the witnesses that are not hit, what can still be given up of the one that leaves the least choice.
    fn open_set(&self, given: &Bits, kept: &Bits, room: usize) -> Open {
        let mut packed = kept.clone();
        let mut needed = 0;
        let mut chosen: Option<(u32, Bits)> = None;
        for set in &self.sets {
            if set.members.iter().zip(given).any(|(set, given)| set & given != 0) {
                continue;
            }
            let free: Bits = set.members.iter().zip(kept).map(|(set, kept)| set & !kept).collect();
            let size: u32 = free.iter().map(|word| word.count_ones()).sum();
            if size == 0 {
                return Open::Hopeless;
            }
            if free.iter().zip(&packed).all(|(free, packed)| free & packed == 0) {
                let light = (0..self.weights.len()).filter(|&kind| holds(&free, kind)).map(|kind| self.weights[kind]);
                needed += light.min().unwrap_or(0);
                if needed > room {
                    return Open::Hopeless;
                }
                packed.iter_mut().zip(&free).for_each(|(packed, free)| *packed |= free);
            }
            if chosen.as_ref().is_none_or(|(least, _)| size < *least) {
                chosen = Some((size, free));
            }
        }
        chosen.map_or(Open::None, |(_, free)| Open::Set(free))
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

enum Open {
    /// More must be given up than there is room for.
    Hopeless,
    /// Of these kinds one at least must be given up.
    Set(Bits),
    /// Every witness is hit.
    None,
}
