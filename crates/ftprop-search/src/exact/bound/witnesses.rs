//! Witnesses that must all be hit.
//!
//! The instances of a Gordan witness cannot all be right for one unit: one at least is given up. So whatever a unit
//! gets wrong hits every witness, and the lightest set that does bounds the errors from below.

use super::hyperplanes::{Bits, holds, points_of, put};

/// Sets of things to give up, of which one at least must be, and the weight of each thing.
pub(crate) struct Sets {
    pub(crate) sets: Vec<Bits>,
    pub(crate) weights: Vec<usize>,
}

/// Sets looked at after which the checker gives up: a minute or so.
const MOST_STEPS: u64 = 5_000_000_000;

impl Sets {
    /// Sets given by their members.
    pub(crate) fn new(members: &[Vec<usize>], weights: Vec<usize>) -> Self {
        let set = |members: &Vec<usize>| {
            let mut bits = vec![0; weights.len().div_ceil(64)];
            members.iter().for_each(|&at| put(&mut bits, at));
            bits
        };
        Sets { sets: members.iter().map(set).collect(), weights }
    }

    /// Whether something lighter than `limit` hits every set; none if that takes too long to tell.
    pub(crate) fn hit_below(&self, limit: usize) -> Option<bool> {
        let Some(room) = limit.checked_sub(1) else { return Some(false) };
        let all: Vec<usize> = (0..self.sets.len()).collect();
        let nothing = vec![0; self.weights.len().div_ceil(64)];
        let mut steps = MOST_STEPS;
        self.descend(&all, nothing, room, &mut steps)
    }

    /// Whether giving up nothing of what is kept, and within the room, hits all of these sets.
    fn descend(&self, missed: &[usize], mut kept: Bits, room: usize, steps: &mut u64) -> Option<bool> {
        *steps = steps.checked_sub(missed.len() as u64 + 1)?;
        let mut open: Vec<(u32, usize)> = missed.iter().map(|&set| (size(&self.sets[set], &kept), set)).collect();
        open.sort_unstable();
        let Some(&(_, chosen)) = open.first() else { return Some(true) };
        // Sets that share nothing need something each; what is kept is of no use to any.
        let (mut packed, mut needed) = (kept.clone(), 0);
        for &(size_now, set) in &open {
            if size(&self.sets[set], &packed) == size_now {
                needed += self.lightest(&self.sets[set], &kept);
                if needed > room {
                    return Some(false);
                }
                packed.iter_mut().zip(&self.sets[set]).for_each(|(packed, set)| *packed |= set);
            }
        }
        for at in points_of(&self.sets[chosen]).into_iter().filter(|&at| !holds(&kept, at)).collect::<Vec<_>>() {
            if let Some(left) = room.checked_sub(self.weights[at]) {
                let rest: Vec<usize> = missed.iter().copied().filter(|&set| !holds(&self.sets[set], at)).collect();
                if self.descend(&rest, kept.clone(), left, steps)? {
                    return Some(true);
                }
            }
            put(&mut kept, at);
        }
        Some(false)
    }

    /// The weight of the lightest member that is not kept; more than any room if all are.
    fn lightest(&self, set: &Bits, kept: &Bits) -> usize {
        let free = points_of(set).into_iter().filter(|&at| !holds(kept, at));
        free.map(|at| self.weights[at]).min().unwrap_or(usize::MAX / 2)
    }
}

/// How many members of a set are not in another.
fn size(set: &Bits, without: &Bits) -> u32 {
    set.iter().zip(without).map(|(set, without)| (set & !without).count_ones()).sum()
}
