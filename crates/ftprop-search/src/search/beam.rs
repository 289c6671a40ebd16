//! Beam search on single targets. One rule makes hill climbing and exhaustive search its ends: the beam becomes the
//! best so many of itself and all its neighbours, until it no longer changes. With width 1 that is hill climbing;
//! unbounded, the beam grows until it holds every setting of the targets.

use std::collections::HashSet;

use super::hill_climbing::begin;
use super::state::{State, evaluate_flip, neighbours};
use super::{Control, Found, Search, Setup, Stop};
use crate::error::SearchError;
use crate::network::LayerTargets;
use crate::rng::Rng;

/// Beam search from one start.
#[derive(Clone, Debug)]
pub struct Beam {
    /// How many settings are kept; all if none.
    pub width: Option<usize>,
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
        let first = begin(setup, control, &Rng::new(setup.seed), 0);
        let mut seen: HashSet<Vec<LayerTargets>> = HashSet::from([first.targets.clone()]);
        let mut beam = vec![Kept { state: first, expanded: false }];
        let mut stopped = None;
        while stopped.is_none() && !setup.at_floor(beam[0].state.loss) {
            let mut fresh = vec![];
            for kept in beam.iter_mut().filter(|kept| !kept.expanded) {
                kept.expanded = true;
                for flip in neighbours(&kept.state) {
                    stopped = control.stop();
                    if stopped.is_some() {
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
            let best = beam[0].state.loss;
            beam.extend(fresh);
            // Stable: among equals those stay that were found first, so a plateau does not move the beam for ever.
            beam.sort_by(|a, b| a.state.loss.total_cmp(&b.state.loss));
            beam.truncate(self.width.unwrap_or(usize::MAX));
            if beam[0].state.loss < best {
                control.improved(beam[0].state.loss, setup.floor());
            }
            if beam.iter().all(|kept| kept.expanded) {
                break;
            }
        }
        let State { network, loss, .. } = beam.swap_remove(0).state;
        let done = if self.width.is_none() { Stop::Exhausted } else { Stop::LocalMinimum };
        Ok(Found::unproved(setup, network, loss, stopped.unwrap_or(done)))
    }
}
