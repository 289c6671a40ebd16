//! How few errors are possible: bounds that are proved here, not taken from a search.

mod costs;
mod hyperplanes;
pub(crate) mod list;
pub(crate) mod one;
mod rough;
pub(crate) mod three;
mod tree;
mod tuples;
pub(crate) mod two;
mod visit;
pub(crate) mod witnesses;

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use self::witnesses::Sets;
use super::{Witness, check_witness};
use crate::points::Labelled;

pub(crate) use costs::Groups;
pub(crate) use hyperplanes::{Bits, Flat, holds, points_of};

/// Why a bound is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a bound of this kind is for two classes and one to three hidden units in one layer")]
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

/// Why a listing did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Whoever asked for it wants no more of it.
    Asked,
    /// There was no memory.
    Memory,
    /// More would have to be looked at than may be.
    Steps,
}

/// How enumerations work, and what they ask whether to go on.
pub(crate) struct Watch<'a> {
    pub(crate) threads: usize,
    /// Is told how many more hyperplanes, or tuples of groups, were looked at.
    pub(crate) stop: &'a (dyn Fn(u64) -> bool + Sync),
    /// Most bytes that lists may take.
    pub(crate) memory: usize,
    /// Most tuples of groups of half-spaces to be looked at.
    pub(crate) steps: u64,
    /// Errors that are proved to be made, raised as it goes on.
    pub(crate) proved: &'a AtomicUsize,
}

impl Watch<'_> {
    /// Asks whether to go on, after so many more hyperplanes or tuples.
    fn ask(&self, looked_at: u64) -> Result<(), Stopped> {
        if (self.stop)(looked_at) { Err(Stopped::Asked) } else { Ok(()) }
    }

    fn room(&self, bytes: usize) -> Result<(), Stopped> {
        if bytes > self.memory { Err(Stopped::Memory) } else { Ok(()) }
    }

    /// The same for work within a thread.
    fn alone(&self) -> Watch<'_> {
        Watch { threads: 1, ..*self }
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
/// arithmetic. None if it is for other networks, or takes too long. With three units that is only part of the cost: it
/// may still turn out to take too long.
pub(crate) fn enumeration_work(data: &Labelled, hidden: &[usize]) -> Option<u64> {
    let &[units @ 1..=3] = hidden else { return None };
    if data.classes.len() != 2 {
        return None;
    }
    let groups = Groups::new(data);
    work(&Flat::new(data.points.whole(), &groups.firsts), units)
}

/// Hyperplanes of which triples are looked at.
const MOST_OF_TRIPLES: u64 = 300_000;
/// Triples of groups of half-spaces that are looked at: some seconds.
pub(crate) const MOST_STEPS: u64 = 300_000_000;

fn work(flat: &Flat, units: usize) -> Option<u64> {
    let each = flat.len() as u64 * units as u64 * if flat.is_quick() { 1 } else { SLOW };
    let hyperplanes = hyperplanes(flat.len(), flat.dimension())?;
    if units == 3 && hyperplanes > MOST_OF_TRIPLES {
        return None;
    }
    hyperplanes.checked_mul(each).filter(|&work| work <= MOST_WORK)
}

/// A network of one hidden layer.
pub(crate) struct Listed {
    pub(crate) errors: usize,
    /// The points for which each hidden unit says +1.
    pub(crate) units: Vec<Bits>,
    /// Weights and bias of the output unit.
    pub(crate) output: Vec<f64>,
}

/// The best network of one to three hidden units with fewer than `below` errors; none if there is none.
pub(crate) fn least(
    flat: &Flat,
    counts: &[[usize; 2]],
    units: usize,
    below: usize,
    watch: &Watch<'_>,
) -> Result<Option<Listed>, Stopped> {
    let towards = |inner: usize, output: &[f64]| output.iter().map(|w| if inner == 1 { *w } else { -w }).collect();
    Ok(match units {
        1 => one::least(flat, counts, below, watch)?.map(|(errors, second)| Listed {
            errors,
            units: vec![second],
            output: vec![1.0, 0.0],
        }),
        2 => two::least(flat, counts, below, watch)?.map(|wedge| Listed {
            errors: wedge.errors,
            units: wedge.sides.to_vec(),
            output: towards(wedge.inner, &[1.0, 1.0, -1.0]),
        }),
        _ => three::least(flat, counts, below, watch)?.map(|trio| Listed {
            errors: trio.errors,
            units: trio.sides.to_vec(),
            output: towards(trio.inner, &trio.output),
        }),
    })
}

/// How many hidden units there are, if networks of this kind are listed.
pub(crate) fn listed_units(data: &Labelled, hidden: &[usize]) -> Result<usize, Refusal> {
    match hidden {
        &[units @ 1..=3] if data.classes.len() == 2 => Ok(units),
        _ => Err(Refusal::Shape),
    }
}

/// Confirms that no network with these hidden units makes fewer errors, by looking at all of them; returns how many
/// hyperplanes were looked at, in words.
pub(crate) fn by_enumeration(data: &Labelled, hidden: &[usize], at_least: usize) -> Result<String, Refusal> {
    let units = listed_units(data, hidden)?;
    let groups = Groups::new(data);
    let flat = Flat::new(data.points.whole(), &groups.firsts);
    let too_many = Refusal::TooMany { instances: flat.len(), dimensions: flat.dimension() };
    let count = hyperplanes(flat.len(), flat.dimension()).ok_or_else(|| too_many.clone())?;
    work(&flat, units).ok_or_else(|| too_many.clone())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let steps = if units == 3 { MOST_STEPS } else { u64::MAX };
    let watch = Watch { threads, stop: &|_| false, memory: MEMORY, steps, proved: &AtomicUsize::new(0) };
    let better = least(&flat, &groups.counts, units, at_least, &watch).map_err(|_| too_many)?;
    match better {
        Some(better) => Err(Refusal::Better { errors: better.errors, at_least }),
        None => Ok(match units {
            1 => format!("all {count} hyperplanes through instances were"),
            2 => format!("all pairs of {count} hyperplanes through instances were"),
            _ => format!("all triples of {count} hyperplanes through instances were"),
        }),
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
