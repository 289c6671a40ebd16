//! Witnesses that must all be hit.
//!
//! The instances of a Gordan witness cannot all be right for one unit: one at least is given up. So whatever a unit
//! gets wrong hits every witness, and the lightest set that does bounds the errors from below.

use super::hyperplanes::{Bits, points_of, put};

/// Sets of things to give up, of which one at least must be, and the weight of each thing.
pub(crate) struct Sets {
    pub(crate) sets: Vec<Bits>,
    pub(crate) weights: Vec<usize>,
}

/// Steps after which the checker gives up.
const MOST_STEPS: u64 = 200_000_000;

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
        let nothing = vec![0; self.weights.len().div_ceil(64)];
        let mut steps = MOST_STEPS;
        limit.checked_sub(1).map_or(Some(false), |room| self.descend(&nothing, &nothing, room, &mut steps))
    }

    /// Whether giving up more, but nothing of what is kept, and within the room, hits all sets.
    fn descend(&self, given: &Bits, kept: &Bits, room: usize, steps: &mut u64) -> Option<bool> {
        *steps = steps.checked_sub(self.sets.len() as u64 + 1)?;
        let mut chosen: Option<(u32, Bits)> = None;
        let mut packed = kept.clone();
        let mut needed = 0;
        for set in &self.sets {
            if set.iter().zip(given).any(|(set, given)| set & given != 0) {
                continue;
            }
            let free: Bits = set.iter().zip(kept).map(|(set, kept)| set & !kept).collect();
            let size = free.iter().map(|word| word.count_ones()).sum();
            // Sets that share nothing need something each.
            if free.iter().zip(&packed).all(|(free, packed)| free & packed == 0) {
                needed += self.lightest(&free);
                if needed > room {
                    return Some(false);
                }
                packed.iter_mut().zip(&free).for_each(|(packed, free)| *packed |= free);
            }
            if chosen.as_ref().is_none_or(|(least, _)| size < *least) {
                chosen = Some((size, free));
            }
        }
        let Some((_, free)) = chosen else { return Some(true) };
        let mut kept = kept.clone();
        for at in points_of(&free) {
            if let Some(left) = room.checked_sub(self.weights[at]) {
                let mut given = given.clone();
                put(&mut given, at);
                if self.descend(&given, &kept, left, steps)? {
                    return Some(true);
                }
            }
            put(&mut kept, at);
        }
        Some(false)
    }

    fn lightest(&self, set: &Bits) -> usize {
        points_of(set).iter().map(|&at| self.weights[at]).min().unwrap_or(usize::MAX / 2)
    }
}
