//! What a run tells whoever watches it.
//!
//! The training loop prints nothing and draws nothing. It tells an [`Observer`] how it goes, and each time the answer
//! says whether to go on: progress bars, pictures, early stopping and Ctrl-C are observers. [`Together`] makes one of
//! several.

use crate::changes::Change;
use crate::checkpoint::{Note, State};
use crate::diagnostics::Record;
use crate::recipe::Recipe;
use crate::run::{EpochMetrics, Summary};
use crate::words::{counted, plain};
use ftprop_data::{Dataset, Source};
use ftprop_nn::engine::{EngineError, NetworkState};
use ftprop_nn::{Engine, Graph};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why an observer cannot go on; it ends the run.
pub type ObserverError = Box<dyn std::error::Error + Send + Sync>;

/// Whether to go on. After `Break` a run saves everything and ends as [`Ending::Interrupted`].
pub type Answer = Result<ControlFlow<()>, ObserverError>;

/// The usual answer.
const GO_ON: Answer = Ok(ControlFlow::Continue(()));

/// What can be seen of a run from outside.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    /// What is trained.
    pub recipe: &'a Recipe,
    /// The run's folder, where it has one.
    pub folder: Option<&'a Path>,
    /// Where training stands.
    pub state: &'a State,
    /// Steps of a whole epoch.
    pub steps_per_epoch: usize,
    /// The epochs so far, also those of earlier processes.
    pub metrics: &'a [EpochMetrics],
    /// What was seen of the hard layers so far; empty unless the recipe asks for it.
    pub diagnostics: &'a [Record],
    /// What was learned so far.
    pub learned: Learned<'a>,
}

/// The network that is being trained, to look at.
#[derive(Clone, Copy)]
pub struct Learned<'a>(pub(crate) &'a dyn Engine);

impl<'a> Learned<'a> {
    /// What the network is: its layers, and where in the flat parameters theirs are.
    pub fn graph(&self) -> &'a Arc<Graph> {
        self.0.graph()
    }

    /// Its parameters and statistics as they are now. On a GPU that waits for the steps under way and copies them, which is
    /// nothing to do after every step.
    pub fn network(&self) -> Result<NetworkState<'a>, EngineError> {
        self.0.network()
    }
}

impl fmt::Debug for Learned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learned").field("parameters", &self.graph().parameter_count()).finish_non_exhaustive()
    }
}

/// How far an epoch, or a look at some data, is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Steps of the epoch that are done.
    pub step: usize,
    /// All steps of the epoch.
    pub steps: usize,
    /// The mean loss of the epoch so far.
    pub loss: f64,
    /// The epoch's top-1 accuracy so far, a fraction of 1.
    pub top1: f64,
    /// Training images a second, of all ranks together.
    pub images_per_s: f64,
    /// How many ranks train together.
    pub ranks: usize,
}

/// Something that a person should hear of, though the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Pictures of this epoch that did not decode were left out.
    PicturesSkipped {
        /// How many.
        count: usize,
        /// What is wrong with the first.
        first: Option<String>,
    },
    /// The checkpoint that the run goes on from is not as it should be.
    Checkpoint(Note),
    /// The data are not as many as the published ones of their name, so that figures are not to be compared with others'.
    OtherNumber {
        /// The data's name.
        source: String,
        /// Examples to learn from and to measure by.
        found: [usize; 2],
        /// Those of the published data.
        published: [usize; 2],
    },
    /// A setting changes nothing.
    NoEffect {
        /// Its full key.
        key: &'static str,
        /// Why it does not.
        why: &'static str,
    },
    /// The run begins with another network's numbers.
    Begun {
        /// Where that network is.
        from: PathBuf,
        /// How many of its parameters were taken.
        taken: usize,
        /// The names of those that begin anew, since it has none of their name and shape.
        new: Vec<String>,
    },
    /// The run goes on with other settings.
    Changed(Vec<Change>),
    /// The last batch of each epoch gives a batch norm a single value a channel.
    LoneExample {
        /// The batch norm.
        layer: String,
        /// Examples of the other batches.
        batch: usize,
        /// Examples of the last one.
        last: usize,
    },
}

impl Notice {
    /// Where data are more or less than the published ones of their name.
    pub(crate) fn of_number(dataset: &Dataset) -> Option<Self> {
        let published = dataset.name.parse::<Source>().ok()?.published()?;
        let (source, found) = (dataset.name.clone(), [dataset.train.len(), dataset.test.len()]);
        (found != published).then_some(Notice::OtherNumber { source, found, published })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::PicturesSkipped { count, first } => {
                write!(f, "{count} pictures were skipped; the first: {}", first.as_deref().unwrap_or_default())
            }
            Notice::Checkpoint(note) => write!(f, "{note}"),
            Notice::OtherNumber { source, found, published } => write!(
                f,
                "these are {} training and {} test examples, not the {} and {} of the whole {source}: figures are not to be \
                 compared with those of others",
                found[0], found[1], published[0], published[1]
            ),
            Notice::NoEffect { key, why } => write!(f, "{key} has no effect: {why}"),
            Notice::Begun { from, taken, new } => {
                write!(f, "{taken} of {} tensors are those of {}", taken + new.len(), from.display())?;
                if new.is_empty() { Ok(()) } else { write!(f, "; anew: {}", new.join(", ")) }
            }
            Notice::Changed(changes) => {
                let changes: Vec<String> =
                    changes.iter().map(|change| plain(&change.to_string()).into_owned()).collect();
                write!(f, "from here on {}", changes.join(", "))
            }
            Notice::LoneExample { layer, batch, last } => write!(
                f,
                "the last batch of each epoch has {} beside batches of {batch}: {layer} sees a single value a channel \
                 there, which makes its statistics worse; another train.batch avoids it",
                counted(*last as u64, "example")
            ),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// All epochs are done.
    Finished(Summary),
    /// Somebody asked it to stop; everything is saved.
    Interrupted {
        /// The epoch under way, counted from 1.
        epoch: u32,
        /// Its steps that are done.
        step: usize,
    },
}

/// Watches a run. Every method has a default that does nothing and goes on.
pub trait Observer: Send {
    /// The run begins, or goes on after a pause.
    fn begin(&mut self, _run: &RunView<'_>) -> Answer {
        GO_ON
    }

    /// Steps are done. On a device that runs ahead this comes about twice a second, else after every step.
    fn step(&mut self, _run: &RunView<'_>, _step: &StepReport) -> Answer {
        GO_ON
    }

    /// An epoch is done: the last of the run's metrics.
    fn epoch(&mut self, _run: &RunView<'_>) -> Answer {
        GO_ON
    }

    /// There is something to say between two steps.
    fn notice(&mut self, _run: &RunView<'_>, _notice: &Notice) {}

    /// The run is over, unless an error ended it.
    fn end(&mut self, _run: &RunView<'_>, _ending: &Ending) -> Result<(), ObserverError> {
        Ok(())
    }
}

/// Nobody watches.
impl Observer for () {}

/// Several observers, told in this order. All are told; the run goes on while all of them want it to.
pub struct Together<'a>(pub Vec<&'a mut dyn Observer>);

impl Together<'_> {
    fn all(&mut self, mut tell: impl FnMut(&mut dyn Observer) -> Answer) -> Answer {
        let mut all = ControlFlow::Continue(());
        for observer in &mut self.0 {
            if tell(*observer)?.is_break() {
                all = ControlFlow::Break(());
            }
        }
        Ok(all)
    }
}

impl Observer for Together<'_> {
    fn begin(&mut self, run: &RunView<'_>) -> Answer {
        self.all(|observer| observer.begin(run))
    }

    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        self.all(|observer| observer.step(run, step))
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        self.all(|observer| observer.epoch(run))
    }

    fn notice(&mut self, run: &RunView<'_>, notice: &Notice) {
        self.0.iter_mut().for_each(|observer| observer.notice(run, notice));
    }

    fn end(&mut self, run: &RunView<'_>, ending: &Ending) -> Result<(), ObserverError> {
        self.0.iter_mut().try_for_each(|observer| observer.end(run, ending))
    }
}

/// Stops a run once a flag is set, as a handler of Ctrl-C or another thread may.
pub struct StopFlag<'a>(pub &'a AtomicBool);

impl StopFlag<'_> {
    fn answer(&self) -> Answer {
        Ok(if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

impl Observer for StopFlag<'_> {
    fn begin(&mut self, _run: &RunView<'_>) -> Answer {
        self.answer()
    }

    fn step(&mut self, _run: &RunView<'_>, _step: &StepReport) -> Answer {
        self.answer()
    }

    fn epoch(&mut self, _run: &RunView<'_>) -> Answer {
        self.answer()
    }
}
