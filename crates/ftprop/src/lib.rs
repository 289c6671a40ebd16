//! The program `ftprop` as a library: what its commands are made of.
//!
//! | module | subject |
//! | --- | --- |
//! | [`cli`] | the commands, one file each |
//! | [`recipe`], [`config`] | what a run depends on, and the layers it is put together from |
//! | [`train`], [`fleet`], [`gate`] | the training loop, several runs at once, and how they share a device |
//! | [`device`], [`engine`] | where networks are computed, and what the loop asks of one there |
//! | [`run`] | run folders: metrics, summary, curves |
//! | [`diagnostics`] | how a run's hard layers fare |
//! | [`checkpoint`], [`model`] | networks on disk, and networks ready for use |
//! | [`study`], [`reproduce`], [`sweep`] | many runs compared: the paper's table, grids over recipe keys |
//! | [`report`] | what many runs came to, as pages |
//! | [`export`] | trained networks for other programs |
//! | [`golden`] | cases with known results |
//! | [`plot`], [`progress`], [`tensorboard`], [`files`] | pictures, bars, event files, files |

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod device;
pub mod diagnostics;
pub mod engine;
pub mod error;
pub mod export;
pub mod files;
pub mod fleet;
pub mod gate;
pub mod golden;
mod jsonl;
pub mod model;
pub mod plot;
pub mod progress;
pub mod recipe;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod study;
pub mod sweep;
pub mod tensorboard;
pub mod train;
