//! Processes that train one network together.
//!
//! A launcher starts the ranks and tells each its number in environment variables ([`environment`]). They meet over TCP at
//! rank 0, where each shows that it knows the job's [`token`] and that it is about to do the same work ([`meeting`]); a
//! heartbeat finds out who is gone or does not go on. What they then do together is asked of a [`Group`]: sums in a
//! fixed order, so that every run gives the same bytes.
//!
//! ```
//! use ftprop_ranks::Group;
//! let mut alone = Group::alone();
//! let mut values = [1.0, 2.0];
//! alone.sum(&mut values)?;
//! assert_eq!((alone.rank(), alone.size(), values), (0, 1, [1.0, 2.0]));
//! # Ok::<(), ftprop_ranks::RankError>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod accept;
#[cfg(feature = "mpi")]
mod by_mpi;
pub mod environment;
mod error;
mod group;
pub mod meeting;
mod ring;
mod threads;
pub mod token;
mod watch;
mod wire;

pub use environment::Membership;
pub use error::RankError;
pub use group::{Group, Transport};
pub use threads::in_one_process;
pub use token::Token;
