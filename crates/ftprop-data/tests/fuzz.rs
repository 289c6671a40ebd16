//! Mutants of every kind of input are read or refused; nothing panics. `examples/fuzz_data.rs` tries as many as one likes.

mod common;
#[path = "common/mutants.rs"]
mod mutants;

use common::*;
use mutants::{Bench, Kind, Numbers};

#[test]
fn mutants_are_read_or_refused() {
    for kind in Kind::ALL {
        let (bench, mut numbers) = (Bench::new(kind), Numbers(1));
        let count = 600;
        let taken = (0..count).filter(|_| bench.try_one(&mut numbers)).count() as u64;
        // Some are taken, so what lies behind the first check is tried.
        assert!((count / 100..count).contains(&taken), "{kind:?}: {taken} of {count} were taken");
    }
}
