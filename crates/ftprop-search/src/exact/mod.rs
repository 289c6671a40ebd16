//! The checker: exact arithmetic over the instances as whole numbers.
//!
//! Nothing here is used by the solvers in [`crate::separability`] to find an answer, and nothing of theirs is used
//! here: whatever they do wrong, this module does not repeat. What can be listed is listed by [`bound`] alone: the search
//! asks it, and so does whoever verifies.

pub(crate) mod bound;
mod checker;

pub use checker::{Refusal, Witness, check_separation, check_witness};

pub(crate) use checker::{exact_argmax, exact_hinge, exact_outputs};
