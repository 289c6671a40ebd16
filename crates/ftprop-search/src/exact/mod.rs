//! The checker: exact arithmetic over floating-point data.
//!
//! A finite `f64` is a whole number times a power of two, so sums of products of them can be computed without
//! any rounding. Nothing here is used by the solvers in [`crate::separability`], and nothing of theirs is used
//! here: whatever they do wrong, this module does not repeat.

mod accumulator;
mod checker;
mod dyadic;

pub use checker::{Refusal, Witness, check_separation, check_witness};
pub use dyadic::Dyadic;

pub(crate) use checker::{exact_argmax, exact_outputs};
