//! Searches over the targets of hidden units, one a file, behind one trait.
//!
//! Every search is anytime: it keeps the best network so far and hands it over when its budget ends or somebody
//! asks it to stop, and it says why it stopped and whether its result is proved optimal.

mod anytime;
mod beam;
mod control;
mod dichotomies;
mod exhaustive;
mod ftprop;
mod hill_climbing;
mod madaline;
mod output;
mod relaxed;
mod settled;
mod start;
mod state;
mod witnesses;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::SearchError;
use crate::exact::Witness;
use crate::learner::Learner;
use crate::network::{ExactNetwork, Network};
use crate::points::Labelled;

pub use anytime::Anytime;
pub(crate) use anytime::MANY_INPUTS;
pub use beam::Beam;
pub use control::{Budget, Control, Progress};
pub use dichotomies::dichotomies;
pub use exhaustive::Exhaustive;
pub use ftprop::{Ftprop, TargetRule};
pub use hill_climbing::HillClimbing;
pub use madaline::Madaline;
pub use relaxed::Relaxed;
pub use settled::Settled;

/// What is minimised, summed over the training instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The number of instances in the wrong class.
    ZeroOne,
    /// max(0, 1 − t z) of every output unit.
    Hinge,
}

impl FromStr for Loss {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        match text {
            "zero-one" => Ok(Loss::ZeroOne),
            "hinge" => Ok(Loss::Hinge),
            _ => {
                let name = text.to_string();
                Err(SearchError::UnknownName { what: "loss", name, known: "zero-one and hinge" })
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::ZeroOne => "zero-one",
            Loss::Hinge => "hinge",
        })
    }
}

/// The loss of a network on labelled instances.
pub fn loss_of(network: &Network, data: &Labelled, loss: Loss) -> f64 {
    match loss {
        Loss::ZeroOne => network.errors(data) as f64,
        Loss::Hinge => {
            let targets: Vec<Vec<bool>> = (0..data.outputs()).map(|output| data.targets(output)).collect();
            let scores = network.scores(&data.points);
            let one = |(instance, scores): (usize, &Vec<f64>)| -> f64 {
                let sign = |output: usize| if targets[output][instance] { 1.0 } else { -1.0 };
                scores.iter().enumerate().map(|(output, z)| (1.0 - sign(output) * z).max(0.0)).sum()
            };
            scores.iter().enumerate().map(one).sum()
        }
    }
}

/// A problem as a search sees it.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The training instances.
    pub data: &'a Labelled,
    /// The widths of the hidden layers, at least one.
    pub hidden: &'a [usize],
    /// What to minimise.
    pub loss: Loss,
    /// How units learn their targets.
    pub learner: &'a dyn Learner,
    /// What the random choices depend on.
    pub seed: u64,
    /// How many threads may work.
    pub threads: usize,
    /// What is known from before.
    pub known: Option<&'a Known>,
    /// Rows and columns, where the inputs are a picture's pixels.
    pub picture: Option<[usize; 2]>,
}

/// What an earlier search of the same problem found.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its best network.
    pub network: ExactNetwork,
    /// What it minimised.
    pub loss: Loss,
    /// How low that loss can be, as far as it found out.
    pub bound: Bound,
}

impl Known {
    /// Its bound, if that can be proved again. One that nobody but a search has seen stays on trust: no search goes on
    /// with it, and it proves nothing.
    fn shown(&self) -> Option<&Bound> {
        Some(&self.bound).filter(|bound| bound.proof != Proof::Search)
    }

    /// Its bound, if that is on trust.
    pub(crate) fn on_trust(&self) -> Option<f64> {
        (self.bound.proof == Proof::Search).then_some(self.bound.at_least)
    }

    /// Witnesses of instances of which one at least must be given up by one unit.
    fn witnesses(&self) -> &[Witness] {
        match &self.bound.proof {
            Proof::Witnesses(witnesses) => witnesses,
            _ => &[],
        }
    }

    /// A bound that a search came to, or the one that was known before if that says more, or as much with a better proof.
    pub(crate) fn or_better(&self, found: Bound) -> Bound {
        let searched = found.proof == Proof::Search;
        let says_more =
            |known: &&Bound| known.at_least > found.at_least || (known.at_least == found.at_least && searched);
        self.shown().filter(says_more).cloned().unwrap_or(found)
    }
}

impl Setup<'_> {
    /// A loss below which nothing can be: that of instances which contradict each other.
    pub fn floor(&self) -> f64 {
        match self.loss {
            Loss::ZeroOne => self.data.forced_errors() as f64,
            Loss::Hinge => 2.0 * self.data.forced_errors() as f64,
        }
    }

    /// Whether a loss is as low as it can be, to the precision of the loss.
    fn at_floor(&self, loss: f64) -> bool {
        loss <= self.floor() + 1e-6
    }
}

/// Why a search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// Everything was looked at or excluded by a bound.
    Exhausted,
    /// The loss is as low as the labels allow.
    Floor,
    /// No neighbour is better, from any of the starts asked for.
    LocalMinimum,
    /// All the starts or steps asked for are done.
    Ended,
    /// The time is over.
    Time,
    /// The nodes are used up.
    Nodes,
    /// The memory is used up.
    Memory,
    /// Somebody asked it to stop.
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Exhausted => "every possibility was looked at or excluded",
            Stop::Floor => "the loss is as low as the labels allow",
            Stop::LocalMinimum => "no neighbouring targets are better",
            Stop::Ended => "all starts and steps are done",
            Stop::Time => "the time is over",
            Stop::Nodes => "the nodes are used up",
            Stop::Memory => "the memory is used up",
            Stop::Interrupted => "interrupted",
        })
    }
}

/// How low the loss can be at all for a shape of network, and how that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// No network has a lower loss.
    pub at_least: f64,
    /// How that is known.
    pub proof: Proof,
}

/// How a bound on the loss is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// Equal instances with different labels force it.
    Labels,
    /// The checker listed all possibilities, and can do so again.
    Enumeration,
    /// One instance at least of each of these witnesses must be given up.
    Witnesses(Vec<Witness>),
    /// The search excluded everything better, which nobody can see from outside.
    Search,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The best network.
    pub network: Network,
    /// The same with exact weights, where floats do not suffice.
    pub exact: Option<ExactNetwork>,
    /// Its loss on the training instances.
    pub loss: f64,
    /// How low the loss can be.
    pub bound: Bound,
    /// Why the search stopped.
    pub stop: Stop,
}

impl Found {
    /// What a search without a proof of its own found: only the labels bound the loss.
    fn unproved(setup: &Setup<'_>, network: Network, loss: f64, stop: Stop) -> Self {
        let bound = Bound { at_least: setup.floor(), proof: Proof::Labels };
        let stop = if setup.at_floor(loss) { Stop::Floor } else { stop };
        Found { network, exact: None, loss, bound, stop }
    }

    /// Whether no network of this shape has a lower loss.
    pub fn proved(&self) -> bool {
        self.loss <= self.bound.at_least + 1e-6
    }
}

/// Starts again and again, from the best network so far and what is then the best, until the loss is as low as the
/// labels allow or the search must stop.
fn restart(
    setup: &Setup<'_>,
    control: &Control<'_>,
    starts: std::ops::Range<u64>,
    mut run: impl FnMut(u64, Option<(f64, Network)>) -> Option<(f64, Network)>,
) -> Result<Found, SearchError> {
    let mut best: Option<(f64, Network)> = None;
    for number in starts {
        best = run(number, best.take());
        let loss = best.as_ref().map_or(f64::INFINITY, |(loss, _)| *loss);
        if setup.at_floor(loss) || control.stop().is_some() {
            break;
        }
    }
    let (loss, network) = best.ok_or(SearchError::ZeroBudget)?;
    Ok(Found::unproved(setup, network, loss, control.stop().unwrap_or(Stop::Ended)))
}

/// A way to look for targets.
pub trait Search: fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether units are trained by the learner; some searches adapt weights in a way of their own.
    fn uses_learner(&self) -> bool {
        true
    }

    /// Looks until it is done or `control` says to stop, and returns the best network found.
    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError>;
}

/// The searches by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchKind {
    /// [`Anytime`]
    Anytime,
    /// [`Exhaustive`]
    Exhaustive,
    /// [`HillClimbing`]
    HillClimbing,
    /// [`Beam`] of this width, unbounded if none.
    Beam {
        /// The width.
        width: Option<usize>,
    },
    /// [`Ftprop`] with this rule.
    Ftprop {
        /// How targets follow.
        rule: TargetRule,
    },
    /// [`Settled`]
    Settled,
    /// [`Madaline`]
    Madaline,
    /// [`Relaxed`]
    Relaxed,
}

impl SearchKind {
    /// The search with its usual settings.
    pub fn search(self) -> Box<dyn Search> {
        match self {
            SearchKind::Anytime => Box::new(Anytime),
            SearchKind::Exhaustive => Box::new(Exhaustive),
            SearchKind::HillClimbing => Box::new(HillClimbing::default()),
            SearchKind::Beam { width } => Box::new(Beam { width, ..Beam::default() }),
            SearchKind::Ftprop { rule } => Box::new(Ftprop { rule, ..Ftprop::default() }),
            SearchKind::Settled => Box::new(Settled::default()),
            SearchKind::Madaline => Box::new(Madaline::default()),
            SearchKind::Relaxed => Box::new(Relaxed::default()),
        }
    }
}

impl FromStr for SearchKind {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let unknown = || SearchError::UnknownName {
            what: "search",
            name: text.to_string(),
            known: "anytime, exhaustive, hill-climbing, beam:WIDTH (or beam:all), ftprop (or ftprop:beam:WIDTH, ftprop:r:ATTEMPTS), \
                    settled, madaline and relaxed",
        };
        match text {
            "anytime" => Ok(SearchKind::Anytime),
            "exhaustive" => Ok(SearchKind::Exhaustive),
            "hill-climbing" => Ok(SearchKind::HillClimbing),
            "settled" => Ok(SearchKind::Settled),
            "madaline" => Ok(SearchKind::Madaline),
            "relaxed" => Ok(SearchKind::Relaxed),
            "beam" => Ok(SearchKind::Beam { width: Some(10) }),
            "beam:all" => Ok(SearchKind::Beam { width: None }),
            "ftprop" => Ok(SearchKind::Ftprop { rule: Ftprop::default().rule }),
            _ => {
                let (name, number) = text.rsplit_once(':').ok_or_else(unknown)?;
                let number = number.parse().ok().filter(|&number| number > 0).ok_or_else(unknown)?;
                match name {
                    "beam" => Ok(SearchKind::Beam { width: Some(number) }),
                    "ftprop:beam" => Ok(SearchKind::Ftprop { rule: TargetRule::Beam { width: number } }),
                    "ftprop:r" => Ok(SearchKind::Ftprop { rule: TargetRule::Gradient { attempts: number } }),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
