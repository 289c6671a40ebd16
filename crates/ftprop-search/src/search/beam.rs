//! Beam search on single targets. One rule makes hill climbing and exhaustive search its ends: the beam becomes the
//! best so many of itself and all its neighbours, until it no longer changes. With width 1 that is hill climbing, from
//! the same starts; unbounded, the beam grows until it holds every setting of the targets.

use std::collections::HashSet;

use super::hill_climbing::{HillClimbing, begin};
use super::state::{State, evaluate_flip, neighbours};
use super::{Control, Found, Search, Setup, Stop};
use crate::error::SearchError;
use crate::network::LayerTargets;
use crate::rng::Rng;

/// Beam search with restarts.
#[derive(Clone, Debug)]
pub struct Beam {
    /// How many settings are kept; all if none.
    pub width: Option<usize>,
    /// How many starts; none for as many as the budget allows. Unbounded, one start sees everything.
    pub starts: Option<u64>,
}

impl Default for Beam {
    fn default() -> Self {
        Beam { width: Some(10), starts: HillClimbing::default().starts }
    }
}

struct Kept {
    state: State,
    expanded: bool,
}

impl Search for Beam {
    fn name(&self) -> &'static str {
        "beam"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let rng = Rng::new(setup.seed);
        let starts = if self.width.is_none() { Some(1) } else { self.starts };
        let mut best: Option<State> = None;
        for number in 0..starts.unwrap_or(u64::MAX) {
            let state = self.search(setup, control, begin(setup, control, &rng, number));
            if best.as_ref().is_none_or(|best| state.loss < best.loss) {
                control.improved(state.loss, setup.floor());
                best = Some(state);
            }
            let loss = best.as_ref().map_or(f64::INFINITY, |best| best.loss);
            if setup.at_floor(loss) || control.stop().is_some() {
                break;
            }
        }
        let State { network, loss, .. } = best.ok_or(SearchError::ZeroBudget)?;
        let done = if self.width.is_none() { Stop::Exhausted } else { Stop::LocalMinimum };
        Ok(Found::unproved(setup, network, loss, control.stop().unwrap_or(done)))
    }
}

impl Beam {
    /// The best setting of a beam that began with this one.
    fn search(&self, setup: &Setup<'_>, control: &Control<'_>, first: State) -> State {
        let mut seen: HashSet<Vec<LayerTargets>> = HashSet::from([first.targets.clone()]);
        let mut beam = vec![Kept { state: first, expanded: false }];
        let mut stopped = false;
        while !stopped && !setup.at_floor(beam[0].state.loss) {
            let mut fresh = vec![];
            for kept in beam.iter_mut().filter(|kept| !kept.expanded) {
                kept.expanded = true;
                for flip in neighbours(&kept.state) {
                    stopped = control.stop().is_some();
                    if stopped {
                        break;
                    }
                    let (layer, unit, instance) = flip;
                    let mut targets = kept.state.targets.clone();
                    targets[layer][unit][instance] = !targets[layer][unit][instance];
                    if seen.insert(targets) {
                        let state = evaluate_flip(setup, control, &kept.state, flip);
                        fresh.push(Kept { state, expanded: false });
                    }
                }
            }
            beam.extend(fresh);
            // Stable: among equals those stay that were found first, so a plateau does not move the beam for ever.
            beam.sort_by(|a, b| a.state.loss.total_cmp(&b.state.loss));
            beam.truncate(self.width.unwrap_or(usize::MAX));
            if beam.iter().all(|kept| kept.expanded) {
                break;
            }
        }
        beam.swap_remove(0).state
    }
}
