//! The program `ftprop` as a library: what its commands are made of.

#![forbid(unsafe_code)]

pub mod config;
pub mod files;
pub mod plot;
pub mod progress;
pub mod tensorboard;
