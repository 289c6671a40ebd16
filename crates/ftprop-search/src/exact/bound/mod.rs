//! How few errors are possible: bounds that are proved here, not taken from a search.

mod costs;
mod hyperplanes;
pub(crate) mod list;
pub(crate) mod one;
mod rough;
pub(crate) mod two;
mod visit;
pub(crate) mod witnesses;

use std::collections::HashMap;

use self::witnesses::Sets;
use super::{Witness, check_witness};
use crate::points::Labelled;

pub(crate) use costs::Groups;
pub(crate) use hyperplanes::{Bits, Flat, holds, points_of};

/// Why a bound is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a bound of this kind is for two classes and one or two hidden units in one layer")]
    Shape,
    #[error("the possibilities are too many to be listed: {instances} instances that span {dimensions} dimensions")]
    TooMany { instances: usize, dimensions: usize },
    #[error("there is a network of this shape with {errors} errors, and the bound says at least {at_least}")]
    Better { errors: usize, at_least: usize },
    #[error("witness {number}: {why}")]
    Witness { number: usize, why: super::Refusal },
    #[error("fewer than {at_least} instances hit every witness")]
    NotHit { at_least: usize },
    #[error("whether fewer than {at_least} instances hit every witness takes too long to tell")]
    TooLong { at_least: usize },
}

/// There was no time, or no memory, to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// How enumerations work, and what they ask whether to go on.
pub(crate) struct Watch<'a> {
    pub(crate) threads: usize,
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
    /// Most bytes that lists may take.
    pub(crate) memory: usize,
}

impl Watch<'_> {
    fn ask(&self) -> Result<(), Stopped> {
        if (self.stop)() { Err(Stopped) } else { Ok(()) }
    }

    fn room(&self, bytes: usize) -> Result<(), Stopped> {
        if bytes > self.memory { Err(Stopped) } else { Ok(()) }
    }

    /// The same for work within a thread.
    fn alone(&self) -> Watch<'_> {
        Watch { threads: 1, stop: self.stop, memory: self.memory }
    }
}

/// Sides of instances that are computed for a listing, in units of the quick arithmetic: within a minute or so.
const MOST_WORK: u64 = 20_000_000_000;
/// What a side costs where the quick arithmetic is not enough.
const SLOW: u64 = 30;
/// Bytes that the checker takes for lists.
const MEMORY: usize = 4 << 30;

/// How many hyperplanes instances span at most; none if that is beyond counting.
pub(crate) fn hyperplanes(instances: usize, dimensions: usize) -> Option<u64> {
    (0..dimensions as u64)
        .try_fold(1u64, |count, at| (count.checked_mul((instances as u64).saturating_sub(at))?).checked_div(at + 1))
}

/// What [`by_enumeration`] costs for this data and shape: sides of instances to be computed, in units of the quick
/// arithmetic. None if it is for other networks, or takes too long.
pub(crate) fn enumeration_work(data: &Labelled, hidden: &[usize]) -> Option<u64> {
    if data.classes.len() != 2 || !matches!(hidden, [1 | 2]) {
        return None;
    }
    let groups = Groups::new(data);
    work(&Flat::new(data.points.whole(), &groups.firsts), hidden[0])
}

fn work(flat: &Flat, units: usize) -> Option<u64> {
    let each = flat.len() as u64 * units as u64 * if flat.is_quick() { 1 } else { SLOW };
    hyperplanes(flat.len(), flat.dimension())?.checked_mul(each).filter(|&work| work <= MOST_WORK)
}

/// Confirms that no network with these hidden units makes fewer errors, by looking at all of them; returns how many
/// hyperplanes were looked at, in words.
pub(crate) fn by_enumeration(data: &Labelled, hidden: &[usize], at_least: usize) -> Result<String, Refusal> {
    if data.classes.len() != 2 || !matches!(hidden, [1 | 2]) {
        return Err(Refusal::Shape);
    }
    let groups = Groups::new(data);
    let flat = Flat::new(data.points.whole(), &groups.firsts);
    let too_many = Refusal::TooMany { instances: flat.len(), dimensions: flat.dimension() };
    let count = hyperplanes(flat.len(), flat.dimension()).ok_or_else(|| too_many.clone())?;
    work(&flat, hidden[0]).ok_or_else(|| too_many.clone())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let watch = Watch { threads, stop: &|| false, memory: MEMORY };
    let better = if hidden[0] == 1 {
        one::least(&flat, &groups.counts, at_least, &watch).map(|best| best.map(|(errors, _)| errors))
    } else {
        two::least(&flat, &groups.counts, at_least, &watch).map(|best| best.map(|wedge| wedge.errors))
    };
    match better.map_err(|_| too_many)? {
        Some(errors) => Err(Refusal::Better { errors, at_least }),
        None if hidden[0] == 1 => Ok(format!("all {count} hyperplanes through instances were")),
        None => Ok(format!("all pairs of {count} hyperplanes through instances were")),
    }
}

/// Confirms that one hidden unit makes at least so many errors, since so many instances must be given up to hit every
/// witness. Equal instances with the same label are right or wrong together.
pub(crate) fn by_witnesses(
    data: &Labelled,
    hidden: &[usize],
    witnesses: &[Witness],
    at_least: usize,
) -> Result<(), Refusal> {
    if data.classes.len() != 2 || hidden != [1] {
        return Err(Refusal::Shape);
    }
    let targets = data.targets(0);
    for (number, witness) in witnesses.iter().enumerate() {
        let named = |why| Refusal::Witness { number: number + 1, why };
        check_witness(&data.points, &targets, witness).map_err(named)?;
    }
    let (kind_of, weights) = kinds(data);
    let bits = |witness: &Witness| -> Vec<usize> {
        witness.iter().filter(|(_, y)| *y != 0u32.into()).map(|(instance, _)| kind_of[*instance]).collect()
    };
    let sets = Sets::new(&witnesses.iter().map(bits).collect::<Vec<_>>(), weights);
    match sets.hit_below(at_least) {
        Some(false) => Ok(()),
        Some(true) => Err(Refusal::NotHit { at_least }),
        None => Err(Refusal::TooLong { at_least }),
    }
}

/// For each instance its kind, one for all equal instances with the same label; and how many there are of each kind.
pub(crate) fn kinds(data: &Labelled) -> (Vec<usize>, Vec<usize>) {
    let (group_of, _) = data.points.distinct();
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    let mut weights: Vec<usize> = vec![];
    let kind_of = group_of.iter().zip(&data.labels).map(|(&group, &label)| {
        let kind = *known.entry((group, label)).or_insert_with(|| {
            weights.push(0);
            weights.len() - 1
        });
        weights[kind] += 1;
        kind
    });
    (kind_of.collect(), weights)
}

#[cfg(test)]
mod tests;
