//! Layer learners: how one unit learns its targets.
//!
//! Each says why it stopped, after how many updates and with what loss. All take instances with importances,
//! because hidden layers see few distinct inputs, each many times.

mod hinge;
mod linear_program;
mod perceptron;

use std::fmt;
use std::str::FromStr;

use crate::error::SearchError;
use crate::points::Points;
use crate::sides::pre_activation;

pub use hinge::Hinge;
pub use linear_program::LinearProgram;
pub use perceptron::Perceptron;

/// What a unit has to learn.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The unit's inputs.
    pub points: &'a Points,
    /// The unit's target for each instance, true for +1.
    pub targets: &'a [bool],
    /// How often each instance counts; all once if none.
    pub importance: Option<&'a [f64]>,
    /// Asked now and then whether to end with what there is.
    pub stop: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = (self.points.len(), self.points.inputs());
        f.debug_struct("Task").field("size", &size).field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl<'a> Task<'a> {
    /// A task in which all instances count once.
    pub fn new(points: &'a Points, targets: &'a [bool]) -> Self {
        Task { points, targets, importance: None, stop: None }
    }

    fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }

    fn importance(&self, instance: usize) -> f64 {
        self.importance.map_or(1.0, |all| all[instance])
    }

    fn sign(&self, instance: usize) -> f64 {
        if self.targets[instance] { 1.0 } else { -1.0 }
    }

    /// t (w · x + b) for each instance.
    fn margins<'w>(&'w self, weights: &'w [f64]) -> impl Iterator<Item = f64> + 'w {
        self.points.rows().enumerate().map(|(i, row)| self.sign(i) * pre_activation(weights, row))
    }
}

/// Why a learner stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnerStop {
    /// Every instance is on the right side.
    Separated,
    /// The learner's loss is as low as it gets, to its tolerance.
    Converged,
    /// The allowed number of updates was used up.
    Limit,
}

/// What a learner found.
#[derive(Clone, Debug)]
pub struct Learned {
    /// One weight an input, the bias last.
    pub weights: Vec<f64>,
    /// Why it stopped.
    pub stop: LearnerStop,
    /// After how many updates.
    pub updates: usize,
    /// Importance of the instances on the wrong side (zero-one loss).
    pub errors: f64,
    /// Σ importance · max(0, 1 − t (w · x + b)).
    pub hinge: f64,
    /// For a perceptron that came to rest: Novikoff's bound (R / γ)² on its updates, with the margin it found.
    pub novikoff: Option<f64>,
}

impl Learned {
    fn new(task: &Task<'_>, weights: Vec<f64>, stop: LearnerStop, updates: usize) -> Self {
        let (mut errors, mut hinge) = (0.0, 0.0);
        for (instance, margin) in task.margins(&weights).enumerate() {
            // On the boundary the unit says −1, which is right for a target of −1.
            let wrong = if task.targets[instance] { margin <= 0.0 } else { margin < 0.0 };
            errors += if wrong { task.importance(instance) } else { 0.0 };
            hinge += task.importance(instance) * (1.0 - margin).max(0.0);
        }
        Learned { weights, stop, updates, errors, hinge, novikoff: None }
    }
}

/// Learns one unit's weights.
pub trait Learner: fmt::Debug + Send + Sync {
    /// Finds weights for the task; always gives some.
    fn learn(&self, task: &Task<'_>) -> Learned;

    /// The layer loss L(z, t) that it lowers, for one pre-activation and target; the hinge loss unless it says otherwise.
    fn loss(&self, z: f64, target: bool) -> f64 {
        (1.0 - if target { z } else { -z }).max(0.0)
    }

    /// ∂L/∂z.
    fn slope(&self, z: f64, target: bool) -> f64 {
        let sign = if target { 1.0 } else { -1.0 };
        if self.loss(z, target) > 0.0 { -sign } else { 0.0 }
    }
}

/// The learners by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearnerKind {
    /// [`Perceptron`]
    Perceptron,
    /// [`Hinge`] with this cost of an error against the size of the weights.
    Hinge {
        /// The cost.
        cost: f64,
    },
    /// [`LinearProgram`]
    LinearProgram,
}

impl LearnerKind {
    /// The learner with its usual limits.
    pub fn learner(self) -> Box<dyn Learner> {
        match self {
            LearnerKind::Perceptron => Box::new(Perceptron::default()),
            LearnerKind::Hinge { cost } => Box::new(Hinge { cost, ..Hinge::default() }),
            LearnerKind::LinearProgram => Box::new(LinearProgram::default()),
        }
    }
}

impl fmt::Display for LearnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LearnerKind::Perceptron => write!(f, "perceptron"),
            LearnerKind::Hinge { cost } => write!(f, "hinge:{cost}"),
            LearnerKind::LinearProgram => write!(f, "lp"),
        }
    }
}

impl FromStr for LearnerKind {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let unknown = || SearchError::UnknownName {
            what: "learner",
            name: text.to_string(),
            known: "perceptron, hinge, hinge:COST (a positive number) and lp",
        };
        match text.split_once(':') {
            None if text == "perceptron" => Ok(LearnerKind::Perceptron),
            None if text == "hinge" => Ok(LearnerKind::Hinge { cost: 1.0 }),
            None if text == "lp" => Ok(LearnerKind::LinearProgram),
            Some(("hinge", cost)) => match cost.parse() {
                Ok(cost) if cost > 0.0 && f64::is_finite(cost) => Ok(LearnerKind::Hinge { cost }),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests;
