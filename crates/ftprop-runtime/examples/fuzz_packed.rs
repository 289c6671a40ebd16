//! Loads and runs many mutated and truncated models, on all cores.
//!
//! ```text
//! cargo run --release -p ftprop-runtime --example fuzz_packed -- [count=1000000] [seed=1]
//! ```
//!
//! Under AddressSanitizer, with a nightly compiler:
//!
//! ```text
//! RUSTFLAGS=-Zsanitizer=address cargo +nightly run --release -p ftprop-runtime --example fuzz_packed \
//!     --target x86_64-unknown-linux-gnu
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use support::mutants;

/// Mutants of one seed; each share is a run of its own that can be repeated alone.
const SHARE: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut count, mut seed) = (1_000_000, 1);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("count", value)) => count = value.parse()?,
            Some(("seed", value)) => seed = value.parse()?,
            _ => return Err(format!("`{argument}` is not a setting; see the head of the example").into()),
        }
    }
    let shares: u64 = u64::div_ceil(count, SHARE);
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || -> ftprop_runtime::Result<Vec<mutants::Tally>> {
        let mut tallies = Vec::new();
        loop {
            let share = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if share >= shares {
                return Ok(tallies);
            }
            tallies.push(mutants::try_mutants(seed + share, SHARE.min(count - share * SHARE))?);
        }
    };
    let threads = std::thread::available_parallelism()?.get();
    let mut total = mutants::Tally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            for tally in worker.join().map_err(|_| "a mutant caused a panic, see above")?? {
                total.add(&tally);
            }
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    println!("{total:#?}");
    Ok(())
}
