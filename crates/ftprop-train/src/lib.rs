//! Training: recipes, the training loop, several runs at once, and what runs leave behind.
//!
//! | module | subject |
//! | --- | --- |
//! | [`recipe`], [`checked`] | what a run depends on, as it is written and as it is trained |
//! | `idle` | settings that nothing comes of |
//! | [`batches`] | whether batches are large enough for a network |
//! | [`changes`] | in what a run that goes on differs from what it was |
//! | [`built_in`], [`config`] | the recipes carried here, and the layers one is put together from |
//! | [`own_data`] | a recipe for data that nobody wrote one for |
//! | [`class_weights`], [`learned_loss`] | how much examples count by their class, and the loss as it is learned by |
//! | [`trainer`], [`observe`] | the training loop, and what it tells whoever watches |
//! | [`fleet`], [`gate`] | several runs at once, and how they share a device |
//! | [`team`] | several processes that train one network together |
//! | [`choice`], [`device`], [`engine`] | a device by name, where networks are computed, and what the loop asks of one there |
//! | [`run`], [`jsonl`], [`tensorboard`] | run folders: metrics, summary, event files |
//! | [`diagnostics`] | how a run's hard layers fare |
//! | [`checkpoint`], [`model`], [`evaluate`] | networks on disk, ready for use, and in use |
//! | [`measuring`] | the data that a network may be measured on |
//! | [`views`] | test-time augmentation |
//! | [`confusion`] | which classes a network takes for which |
//! | [`searched`] | networks that a search found |
//! | [`golden`] | cases with known results |
//! | [`files`], [`words`] | files that are whole or absent; numbers in words, and words from files |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod batches;
pub mod built_in;
mod by_name;
pub mod changes;
pub mod checked;
pub mod checkpoint;
pub mod choice;
pub mod class_weights;
pub mod config;
pub mod confusion;
pub mod device;
pub mod diagnostics;
pub mod engine;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod fleet;
pub mod gate;
pub mod golden;
mod idle;
pub mod jsonl;
pub mod learned_loss;
pub mod measuring;
pub mod model;
pub mod observe;
pub mod own_data;
pub mod recipe;
pub mod run;
pub mod searched;
mod storage;
pub mod team;
pub mod tensorboard;
pub mod trainer;
pub mod views;
pub mod words;

pub use error::Error;
