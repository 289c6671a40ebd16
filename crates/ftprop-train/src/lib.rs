//! Training: recipes, the training loop, several runs at once, and what runs leave behind.
//!
//! | module | subject |
//! | --- | --- |
//! | [`recipe`], [`built_in`], [`config`] | what a run depends on, the recipes carried here, and the layers one is put together from |
//! | [`trainer`], [`observe`] | the training loop, and what it tells whoever watches |
//! | [`fleet`], [`gate`] | several runs at once, and how they share a device |
//! | [`device`], [`engine`] | where networks are computed, and what the loop asks of one there |
//! | [`run`], [`jsonl`], [`tensorboard`] | run folders: metrics, summary, event files |
//! | [`diagnostics`] | how a run's hard layers fare |
//! | [`checkpoint`], [`model`] | networks on disk, and networks ready for use |
//! | [`golden`] | cases with known results |
//! | [`files`], [`words`] | files that are whole or absent; numbers in words |

#![forbid(unsafe_code)]

pub mod built_in;
pub mod checkpoint;
pub mod config;
pub mod device;
pub mod diagnostics;
pub mod engine;
pub mod error;
pub mod files;
pub mod fleet;
pub mod gate;
pub mod golden;
pub mod jsonl;
pub mod model;
pub mod observe;
pub mod recipe;
pub mod run;
pub mod tensorboard;
pub mod trainer;
pub mod words;

pub use error::Error;
