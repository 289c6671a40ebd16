//! Hill climbing on single targets (Proposition 3): from a setting of the hidden targets to the best neighbour, as
//! long as that is better; then again from another start.

use super::state::{State, evaluate, evaluate_flip, neighbours};
use super::{Control, Found, Search, Setup, Stop, start};
use crate::error::SearchError;
use crate::rng::Rng;

/// Hill climbing with restarts.
#[derive(Clone, Debug)]
pub struct HillClimbing {
    /// How many starts; none for as many as the budget allows.
    pub starts: Option<u64>,
}

impl Default for HillClimbing {
    fn default() -> Self {
        HillClimbing { starts: Some(50) }
    }
}

impl Search for HillClimbing {
    fn name(&self) -> &'static str {
        "hill-climbing"
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let rng = Rng::new(setup.seed);
        let mut best: Option<State> = None;
        for number in 0..self.starts.unwrap_or(u64::MAX) {
            let state = climb(setup, control, begin(setup, control, &rng, number));
            if best.as_ref().is_none_or(|best| state.loss < best.loss) {
                control.improved(state.loss, setup.floor());
                best = Some(state);
            }
            let loss = best.as_ref().map_or(f64::INFINITY, |best| best.loss);
            if setup.at_floor(loss) || control.stop().is_some() {
                break;
            }
        }
        let best = best.ok_or(SearchError::ZeroBudget)?;
        Ok(Found::unproved(setup, best.network, best.loss, control.stop().unwrap_or(Stop::LocalMinimum)))
    }
}

/// The `number`-th start: slabs first, where they make sense, then random weights.
pub(super) fn begin(setup: &Setup<'_>, control: &Control<'_>, rng: &Rng, number: u64) -> State {
    let mut rng = rng.fork(number);
    let slabs = if number == 0 { start::slabs(setup, control, &mut rng) } else { None };
    let targets = slabs.unwrap_or_else(|| start::random(setup, &mut rng));
    evaluate(setup, control, targets)
}

/// Climbs to a setting without a better neighbour, unless it has to stop before.
pub(super) fn climb(setup: &Setup<'_>, control: &Control<'_>, mut state: State) -> State {
    while !setup.at_floor(state.loss) {
        let mut best: Option<State> = None;
        for flip in neighbours(&state) {
            if control.stop().is_some() {
                break;
            }
            let next = evaluate_flip(setup, control, &state, flip);
            if next.loss < best.as_ref().map_or(state.loss, |best| best.loss) {
                best = Some(next);
            }
        }
        match best {
            Some(better) => state = better,
            None => break,
        }
    }
    state
}
