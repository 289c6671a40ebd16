//! Trained networks for other programs.
//!
//! | module | what comes out |
//! | --- | --- |
//! | [`layers`] | a trained network as plain layers with their numbers, which the others start from |
//! | [`packed`] | a packed model (`.ftp`), which `ftprop-runtime` runs |
//! | [`classifier`] | using a packed model |

pub mod classifier;
pub mod layers;
pub mod packed;
