//! The framework of section 2 of Friesen & Domingos (2018) as a tool of its own: learning small deep hard-threshold
//! networks by searching for feasible targets of their hidden units, and proving what was found.
//!
//! Conventions: instances have real inputs, the bias is a constant input 1, units say +1 for a pre-activation greater
//! than zero and else −1, targets are ±1 (`true` is +1), weights are real. Two classes have one output unit; more have
//! one each, and the one with the largest pre-activation wins.
//!
//! | paper | here |
//! | --- | --- |
//! | Definition 1, linear separability | [`separable`], checked by [`check_separation`] and [`check_witness`] |
//! | layer losses, perceptron learning | [`Learner`]: [`Perceptron`], [`Hinge`], [`LinearProgram`] |
//! | Definition 2 and Proposition 1, feasibility | [`feasibility()`] and [`Feasibility::network`] |
//! | Proposition 2, exhaustive search | [`Exhaustive`] over [`dichotomies`] |
//! | Proposition 3, hill climbing; beam search | [`HillClimbing`], [`Beam`] |
//! | Algorithm 1, recursive FTPROP | [`Ftprop`]; [`Settled`] goes on from what the layers could do |
//! | Algorithm 2, without the checks for feasibility | [`Relaxed`] |
//! | MADALINE Rule II | [`Madaline`] |
//!
//! [`robustness()`] decides whether inputs near an instance have another class.
//!
//! [`solve()`] puts them together, and [`Certificate`] writes down what can be proved again.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use ftprop_search::{Certificate, Problem, SearchKind, SolveConfig, Status, solve};
//! let problem = Problem::generate("xor".parse()?, 1)?;
//! let config = SolveConfig { search: Some(SearchKind::Exhaustive), ..SolveConfig::default() };
//! let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {})?;
//! assert_eq!(solution.status, Status::Optimal);
//! let certificate = Certificate::of_solution(&problem.train, &solution)?;
//! println!("{}", certificate.verify(&problem.train)?);
//! # Ok::<(), ftprop_search::SearchError>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod certificate;
mod error;
mod exact;
mod feasibility;
mod learner;
mod network;
mod points;
mod problem;
mod rational;
mod regions;
mod report;
mod rng;
mod robust;
mod search;
mod separability;
mod sides;
mod solve;
mod table;
mod whole;

pub use certificate::{Certificate, Verification, read_certificate};
pub use error::SearchError;
pub use exact::{Refusal, Witness, check_separation, check_witness};
pub use feasibility::{Feasibility, feasibility};
pub use learner::{Hinge, Learned, Learner, LearnerKind, LearnerStop, LinearProgram, Perceptron, Task};
pub use network::{ExactNetwork, LayerTargets, Network};
pub use points::{Labelled, Points};
pub use problem::{Problem, ProblemName};
pub use rational::Rational;
pub use regions::Regions;
pub use report::{Answer, SeparableReport};
pub use rng::Rng;
pub use robust::{Ball, Decision, Meant, RobustCertificate, RobustConfig, Robustness, robustness};
pub use search::{
    Anytime, Beam, Bound, Budget, Control, Exhaustive, Found, Ftprop, HillClimbing, Known, Loss, Madaline, Progress,
    Proof, Relaxed, Search, SearchKind, Settled, Setup, Stop, TargetRule, dichotomies, loss_of,
};
pub use separability::{Separation, Verdict, separable, separable_until};
pub use solve::{Score, Solution, SolveConfig, Status, parse_hidden, solve};
