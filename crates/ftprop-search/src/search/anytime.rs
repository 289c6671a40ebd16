//! Heuristics first, then proof: the best network at any time, and how far from the best possible it can be.
//!
//! What can be listed is listed, in the exact arithmetic of the checker; one unit over more inputs is bounded by
//! witnesses; what is left is small enough for [`Exhaustive`] or stays without a proof.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::witnesses::{self, Hit};
use super::{Bound, Control, Exhaustive, Found, Known, Loss, Proof, Relaxed, Search, Settled, Setup, Stop};
use crate::error::SearchError;
use crate::exact::bound::{self, Bits, Flat, Groups, Watch, holds};
use crate::network::{ExactNetwork, Network};
use crate::points::Labelled;
use crate::rational::Rational;
use crate::separability::{Verdict, separable, separable_until};

/// Heuristics, then the proof that suits the problem.
#[derive(Clone, Debug, Default)]
pub struct Anytime;

impl Search for Anytime {
    fn name(&self) -> &'static str {
        "anytime"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let first = first(setup, control)?;
        control.improved(first.loss, first.bound.at_least);
        if first.proved() || control.stop().is_some() {
            return Ok(first);
        }
        let work = if setup.loss == Loss::ZeroOne { bound::enumeration_work(setup.data, setup.hidden) } else { None };
        if setup.loss == Loss::ZeroOne && setup.data.classes.len() == 2 && setup.hidden == [1] {
            return one_unit(setup, control, first, work);
        }
        let mut first = first;
        // Triples may turn out to be too many to be listed; where there is another way, that begins with listing.
        let triples = setup.hidden == [3];
        if work.is_some() && !(triples && Exhaustive::suits(setup)) {
            first = enumerate(setup, control, first)?;
            if !triples || first.proved() || control.stop().is_some() {
                return Ok(first);
            }
        }
        let more: Box<dyn Search> = if Exhaustive::suits(setup) {
            Box::new(Exhaustive)
        } else {
            Box::new(Settled { skip: STARTS, ..Settled::default() })
        };
        // That the heuristics have come to their end is not why there is no proof.
        let listing = (first.stop == Stop::Memory).then_some(Stop::Memory);
        let second = more.run(setup, control)?;
        let second = match (second.stop, listing) {
            (Stop::Ended, Some(stop)) => Found { stop, ..second },
            _ => second,
        };
        let bound =
            if second.bound.at_least < first.bound.at_least { first.bound.clone() } else { second.bound.clone() };
        let best =
            if second.loss < first.loss || second.proved() { second } else { Found { stop: second.stop, ..first } };
        Ok(Found { bound, ..best })
    }
}

/// Listings up to this size, about a second, are made at once; larger ones only where witnesses do not decide.
const LITTLE_WORK: u64 = 2_000_000_000;

/// Inputs for which it is listings that are made at once.
const FEW_INPUTS: usize = 3;
/// Sides of instances that a listing computes in the time that witnesses take for a node.
const WORK_OF_A_NODE: u64 = 50_000;

/// One unit: what can be listed soon is, else witnesses come first.
fn one_unit(setup: &Setup<'_>, control: &Control<'_>, first: Found, work: Option<u64>) -> Result<Found, SearchError> {
    let Some(work) = work else { return by_witnesses(setup, control, first) };
    if work <= LITTLE_WORK && setup.data.points.inputs() <= FEW_INPUTS {
        return enumerate(setup, control, first);
    }
    // As long as the listing would take, by nodes, so that the same problem is always proved in the same way.
    let half = control.part(2, 1000 + work / WORK_OF_A_NODE);
    let found = by_witnesses(setup, &half, first)?;
    control.count(half.nodes());
    if found.proved() || control.stop().is_some() {
        return Ok(found);
    }
    let bound = found.bound.clone();
    let listed = enumerate(setup, control, found)?;
    // A listing that was not finished proves nothing; the witnesses do.
    Ok(if listed.proved() { listed } else { Found { bound, ..listed } })
}

/// Starts of the first heuristics.
const STARTS: u64 = 3;
/// The part of the time that the first heuristics may take.
const SHARE: u32 = 4;

/// What there is before any proof: what was known before, else a network of the first heuristics.
pub(super) fn first(setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
    if let Some(known) = setup.known {
        return again(setup, known);
    }
    if setup.data.points.inputs() > MANY_INPUTS {
        let found = generalising(setup, control)?;
        return if found.proved() { Ok(found) } else { Ok(separated(setup, control)?.unwrap_or(found)) };
    }
    if let Some(found) = separated(setup, control)? {
        return Ok(found);
    }
    heuristics(setup, control)
}

/// With more inputs than this, rather pixels than measurements, almost any targets are feasible, and what counts is which
/// of them generalise.
pub(crate) const MANY_INPUTS: usize = 30;

/// The search that looks for margins, as long as it takes: what it is stopped in has not come to its best.
fn generalising(setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
    let whole = control.part(1, u64::MAX);
    let found = Relaxed::default().run(setup, &whole);
    control.count(whole.nodes());
    let found = found?;
    let stop = if found.proved() { Stop::Floor } else { control.stop().unwrap_or(Stop::Ended) };
    Ok(Found { stop, ..found })
}

/// Two classes that a hyperplane separates need no search.
fn separated(setup: &Setup<'_>, control: &Control<'_>) -> Result<Option<Found>, SearchError> {
    if setup.loss != Loss::ZeroOne || setup.data.classes.len() != 2 || setup.hidden.len() != 1 {
        return Ok(None);
    }
    let quick = control.part(SHARE, u64::MAX);
    let Verdict::Separable(unit) =
        separable_until(&setup.data.points, &setup.data.targets(0), &|| quick.stop().is_some())
    else {
        return Ok(None);
    };
    let mut output = vec![0.0; setup.hidden[0] + 1];
    output[0] = 1.0;
    let output = Rational::from_floats(&output).ok_or(SearchError::Overflow)?;
    let exact = ExactNetwork { layers: vec![vec![unit.exact; setup.hidden[0]], vec![output]] };
    let found = Found::unproved(setup, exact.approximate(), 0.0, Stop::Floor);
    Ok(Some(Found { exact: Some(exact), ..found }))
}

/// What was known before, as something found.
fn again(setup: &Setup<'_>, known: &Known) -> Result<Found, SearchError> {
    let loss = match setup.loss {
        Loss::ZeroOne => known.network.errors(setup.data)? as f64,
        Loss::Hinge => known.network.hinge(setup.data)?.approximate(),
    };
    let found = Found::unproved(setup, known.network.approximate(), loss, Stop::Ended);
    let found = Found { exact: Some(known.network.clone()), bound: known.or_better(found.bound.clone()), ..found };
    // What was proved then was everything that there is to look at.
    let stop = if found.proved() && found.stop != Stop::Floor { Stop::Exhausted } else { found.stop };
    Ok(Found { stop, ..found })
}

/// A good network soon: a few starts of Algorithm 1, which end by themselves.
fn heuristics(setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
    let quick = control.part(SHARE, u64::MAX);
    let found = Settled { starts: Some(STARTS), ..Settled::default() }.run(setup, &quick);
    control.count(quick.nodes());
    let found = found?;
    // That the part of the time is over does not mean that all of it is.
    let stop = if found.proved() { Stop::Floor } else { control.stop().unwrap_or(Stop::Ended) };
    Ok(Found { stop, ..found })
}

/// Lists everything that one to three units can do.
pub(super) fn enumerate(setup: &Setup<'_>, control: &Control<'_>, first: Found) -> Result<Found, SearchError> {
    let groups = Groups::new(setup.data);
    let flat = Flat::new(setup.data.points.whole(), &groups.firsts);
    let proved = AtomicUsize::new(first.bound.at_least as usize);
    let stop = |looked_at| {
        control.count(looked_at);
        control.tell(first.loss, proved.load(Ordering::Relaxed) as f64);
        control.stop().is_some()
    };
    let steps = if setup.hidden == [3] { bound::MOST_STEPS } else { u64::MAX };
    let watch = Watch { threads: setup.threads, stop: &stop, memory: control.memory(), steps, proved: &proved };
    let listed = bound::least(&flat, &groups.counts, setup.hidden[0], first.loss as usize, &watch);
    let better = match listed {
        Ok(better) => better,
        Err(why) => {
            let stop = match why {
                bound::Stopped::Asked => control.stop().unwrap_or(Stop::Ended),
                bound::Stopped::Memory => Stop::Memory,
                bound::Stopped::Steps => Stop::Ended,
            };
            return Ok(Found { stop, ..unfinished(first, proved.load(Ordering::Relaxed)) });
        }
    };
    let Some(better) = better else {
        let bound = Bound { at_least: first.loss, proof: Proof::Enumeration };
        return Ok(Found { bound, stop: Stop::Exhausted, ..first });
    };
    let exact = assemble(setup.data, &groups, &better.units, &better.output)?;
    let loss = better.errors as f64;
    control.improved(loss, loss);
    let bound = Bound { at_least: loss, proof: Proof::Enumeration };
    Ok(Found { network: exact.approximate(), exact: Some(exact), loss, bound, stop: Stop::Exhausted })
}

/// What there was before a listing that did not end, with what that proved.
fn unfinished(first: Found, proved: usize) -> Found {
    let bound = Bound { at_least: proved as f64, proof: Proof::Enumeration };
    let bound = if bound.at_least > first.bound.at_least { bound } else { first.bound.clone() };
    Found { bound, ..first }
}

/// A network of hidden units with these sides, one bit a distinct point, and an output unit.
fn assemble(data: &Labelled, groups: &Groups, units: &[Bits], output: &[f64]) -> Result<ExactNetwork, SearchError> {
    let unit = |sides: &Bits| {
        let targets: Vec<bool> = groups.group_of.iter().map(|&group| holds(sides, group)).collect();
        realise(data, &targets)
    };
    let hidden = units.iter().map(unit).collect::<Result<Vec<_>, _>>()?;
    let output = Rational::from_floats(output).ok_or(SearchError::Overflow)?;
    Ok(ExactNetwork { layers: vec![hidden, vec![output]] })
}

/// Exact weights of a unit with these targets.
fn realise(data: &Labelled, targets: &[bool]) -> Result<Vec<Rational>, SearchError> {
    match separable(&data.points, targets) {
        Verdict::Separable(found) => Ok(found.exact),
        _ => Err(SearchError::Unconfirmed),
    }
}

/// One unit, by instances that must be given up.
fn by_witnesses(setup: &Setup<'_>, control: &Control<'_>, first: Found) -> Result<Found, SearchError> {
    let hit: Hit = witnesses::give_up(setup, control, first.loss as usize)?;
    let bound = Bound { at_least: hit.at_least as f64, proof: Proof::Witnesses(hit.witnesses) };
    let bound = match (&bound.proof, &first.bound.proof) {
        _ if bound.at_least > first.bound.at_least => bound,
        // Those from before are among them, and the others save looking for them again.
        (Proof::Witnesses(_), Proof::Witnesses(_)) => Bound { at_least: first.bound.at_least, ..bound },
        _ => first.bound.clone(),
    };
    let found = match hit.targets {
        Some(targets) => {
            let errors = targets.iter().zip(setup.data.targets(0)).filter(|(a, b)| **a != *b).count();
            let hidden = vec![realise(setup.data, &targets)?];
            let output = Rational::from_floats(&[1.0, 0.0]).ok_or(SearchError::Overflow)?;
            let exact = ExactNetwork { layers: vec![hidden, vec![output]] };
            let network: Network = exact.approximate();
            Found { network, exact: Some(exact), loss: errors as f64, bound, stop: Stop::Exhausted }
        }
        None => Found { bound, stop: Stop::Exhausted, ..first },
    };
    let stop = if found.proved() { Stop::Exhausted } else { control.stop().unwrap_or(Stop::Ended) };
    Ok(Found { stop, ..found })
}
