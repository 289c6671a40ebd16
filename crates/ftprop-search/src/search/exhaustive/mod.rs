//! Exhaustive search (Proposition 2) over linear dichotomies.
//!
//! A first-layer unit can realise no targets but the linear dichotomies of the instances, and a unit above none
//! but those of the cells below it. So the search goes over sets of dichotomies, without the symmetries: the order
//! of the units in a layer does not matter, and neither does the negation of a unit, which the weights above undo.
//!
//! Two bounds prune. Where instances fall into the same cell, all but the majority are lost for any function of the
//! cells. And moving one instance to the other side of one unit changes the zero-one loss by at most one: a set of
//! dichotomies that is worse than the best by k excludes all sets that differ from it in fewer than k places.

mod scan;
mod upper;

use self::scan::Space;
use self::upper::Upper;
use super::anytime::{enumerate, first};
use super::output::Cells;
use super::{Bound, Control, Found, Loss, Proof, Search, Setup, Stop, dichotomies};
use crate::error::SearchError;
use crate::exact::bound;
use crate::feasibility::feasibility;
use crate::network::{ExactNetwork, LayerTargets, as_points};
use crate::rational::Rational;
use crate::separability::{Verdict, separable};

/// Exhaustive search.
#[derive(Clone, Debug, Default)]
pub struct Exhaustive;

/// The best setting of targets found: which dichotomies the first layer takes, and for each layer above it the
/// code of every cell of the layer below (in the order of [`Upper::cells_of`]).
#[derive(Clone, Debug, PartialEq)]
struct Best {
    loss: f64,
    units: Vec<usize>,
    above: Vec<Vec<u32>>,
}

/// Instances that the bits of the scan hold.
const MOST_INSTANCES: usize = 1024;

impl Exhaustive {
    /// Whether it is likely to end within a minute.
    pub(super) fn suits(setup: &Setup<'_>) -> bool {
        let (instances, inputs) = (setup.data.points.len(), setup.data.points.inputs());
        let two = setup.data.classes.len() == 2;
        match setup.hidden {
            [1 | 2] => two && ((instances <= 40 && inputs <= 3) || (instances <= 20 && inputs <= 4)),
            [3] => two && instances <= 60 && inputs <= 2,
            _ => setup.hidden.iter().all(|&width| width <= 3) && instances <= 12 && inputs <= 2,
        }
    }
}

impl Search for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        if let Some(width) = setup.hidden.iter().find(|&&width| width > 16) {
            let why = format!("a layer of {width} units has too many settings; at most 16 units a layer");
            return Err(SearchError::Unsupported { search: "exhaustive", why });
        }
        let listed = setup.loss == Loss::ZeroOne && bound::enumeration_work(setup.data, setup.hidden).is_some();
        if !listed && setup.data.labels.len() > MOST_INSTANCES {
            let why = format!("{} instances are too many; at most {MOST_INSTANCES}", setup.data.labels.len());
            return Err(SearchError::Unsupported { search: "exhaustive", why });
        }
        let mut first = first(setup, control)?;
        if first.proved() || control.stop().is_some() {
            return Ok(first);
        }
        if listed {
            first = enumerate(setup, control, first)?;
            // Triples may turn out to be too many to be listed.
            let too_many = setup.data.labels.len() > MOST_INSTANCES;
            if setup.hidden != [3] || first.proved() || control.stop().is_some() || too_many {
                return Ok(first);
            }
        }
        let (group_of, firsts) = setup.data.points.distinct();
        let listed = dichotomies(&setup.data.points.select(&firsts), setup.threads, control)?;
        let Some(listed) = listed else {
            let stop = control.stop().unwrap_or(Stop::Memory);
            return Ok(Found { stop, ..first });
        };
        let expand = |sides: &Vec<bool>| -> Vec<bool> { group_of.iter().map(|&group| sides[group]).collect() };
        let expanded: Vec<Vec<bool>> = listed.iter().map(expand).collect();
        let upper = Upper::new(setup, control);
        let (best, stop) = match setup.data.labels.len() {
            0..=64 => Space::<1>::new(setup, &expanded, &upper).search(control),
            65..=128 => Space::<2>::new(setup, &expanded, &upper).search(control),
            129..=256 => Space::<4>::new(setup, &expanded, &upper).search(control),
            _ => Space::<16>::new(setup, &expanded, &upper).search(control),
        }?;
        let (exact, loss, as_found) = assemble(setup, control, &expanded, &upper, &best)?;
        let found = Found::unproved(setup, exact.approximate(), loss, stop.unwrap_or(Stop::Exhausted));
        let found = Found { exact: Some(exact), ..found };
        if stop.is_some() || !as_found || found.proved() {
            let bound = if found.bound.at_least < first.bound.at_least { &first.bound } else { &found.bound }.clone();
            let best = if found.loss > first.loss { Found { stop: found.stop, ..first } } else { found };
            return Ok(Found { bound, ..best });
        }
        Ok(Found { bound: Bound { at_least: loss, proof: Proof::Search }, ..found })
    }
}

/// Turns the best setting into a network: proved weights for every hidden unit, then the best output layer. Also its
/// loss, and whether that is the one that the search found.
fn assemble(
    setup: &Setup<'_>,
    control: &Control<'_>,
    expanded: &[Vec<bool>],
    upper: &Upper<'_>,
    best: &Best,
) -> Result<(ExactNetwork, f64, bool), SearchError> {
    // Where there are fewer dichotomies than units, the last one is repeated.
    let unit_at = |at: usize| best.units[at.min(best.units.len() - 1)];
    let mut targets: Vec<LayerTargets> = vec![(0..setup.hidden[0]).map(|at| expanded[unit_at(at)].clone()).collect()];
    let first = targets[0].iter().map(|unit| confirmed(separable(&setup.data.points, unit)));
    let mut layers = vec![first.collect::<Result<Vec<_>, _>>()?];
    for (depth, &width) in setup.hidden.iter().enumerate().skip(1) {
        let below = &targets[depth - 1];
        let codes = match best.above.get(depth - 1) {
            Some(codes) => upper.spread(&targets[0], &best.above[..depth - 1], codes),
            None => vec![0; setup.data.labels.len()],
        };
        let layer: LayerTargets =
            (0..width).map(|unit| codes.iter().map(|code| code >> unit & 1 == 1).collect()).collect();
        let report = feasibility(&as_points(below), std::slice::from_ref(&layer));
        let weights = report.units.into_iter().flatten().map(confirmed);
        layers.push(weights.collect::<Result<_, _>>()?);
        targets.push(layer);
    }
    let inputs = as_points(targets.last().expect("there is a hidden layer"));
    let cells = Cells::new(&inputs, &setup.data.labels, setup.data.classes.len());
    let fit = cells.fit(setup.loss, setup.learner, control, usize::MAX);
    let as_found = fit.loss <= best.loss + 1e-6;
    let output = fit.units.iter().map(|unit| Rational::from_floats(unit).ok_or(SearchError::Overflow));
    layers.push(output.collect::<Result<_, _>>()?);
    Ok((ExactNetwork { layers }, fit.loss, as_found))
}

/// The weights of a unit whose targets were listed as separable.
fn confirmed(verdict: Verdict) -> Result<Vec<Rational>, SearchError> {
    match verdict {
        Verdict::Separable(found) => Ok(found.exact),
        _ => Err(SearchError::Unconfirmed),
    }
}
