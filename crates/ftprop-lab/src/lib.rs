//! Many runs compared, and everything that is drawn.
//!
//! | module | subject |
//! | --- | --- |
//! | [`plot`] | charts as SVG and PNG |
//! | [`pictures`], [`diagnostics`] | the pictures of runs: learning curves, hard layers; drawn while they train |
//! | [`report`] | pages of texts, tables and figures |
//! | [`study`] | many runs in one folder |
//! | [`watch`] | a page to look at while runs train |
//! | [`reproduce`], [`sweep`] | the paper's table, grids over recipe keys |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod diagnostics;
pub mod error;
pub mod pictures;
pub mod plot;
pub mod report;
pub mod reproduce;
pub mod study;
pub mod sweep;
pub mod watch;

pub use error::Error;
