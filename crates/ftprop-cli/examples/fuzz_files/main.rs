//! Reads many mutants of every kind of file that the libraries behind the program read, but for data and packed models,
//! which have fuzzers of their own. On all cores; says how many were taken and how long the slowest took.
//!
//! ```text
//! cargo run --release -p ftprop-cli --example fuzz_files -- [count=1000000] [seed=1] [kind=Recipe]
//! ```

mod mutate;
mod subject;

use mutate::Numbers;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use subject::{Kind, Subject};

/// Mutants of one seed; each share is a run of its own that can be repeated alone.
const SHARE: u64 = 1000;
/// What no mutant may take.
const MOST_TIME: Duration = Duration::from_secs(20);
/// What all of them together may take of memory, in kB.
const MOST_MEMORY: u64 = 1 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn share(kind: Kind, seed: u64, cases: u64) -> Result<(u64, Duration), Failure> {
    let (mut subject, mut numbers) = (Subject::new(kind)?, Numbers(seed));
    let (mut taken, mut slowest) = (0, Duration::ZERO);
    for case in 0..cases {
        let started = Instant::now();
        taken += u64::from(subject.try_one(&mut numbers)?);
        let time = started.elapsed();
        assert!(time < MOST_TIME, "{kind:?}, seed {seed}, case {case}: {time:?}");
        slowest = slowest.max(time);
    }
    Ok((taken, slowest))
}

/// The most memory that this process had, in kB, where the system tells.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Failure> {
    let (mut count, mut seed, mut kinds) = (1_000_000u64, 1u64, Kind::ALL.to_vec());
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("count", value)) => count = value.parse()?,
            Some(("seed", value)) => seed = value.parse()?,
            Some(("kind", value)) => kinds.retain(|kind| format!("{kind:?}") == value),
            _ => return Err(format!("`{argument}` is not a setting; see the head of the example").into()),
        }
    }
    let threads = std::thread::available_parallelism()?.get();
    for kind in kinds {
        let (started, shares, next) = (Instant::now(), count.div_ceil(SHARE), AtomicU64::new(0));
        let work = || -> Result<(u64, Duration), Failure> {
            let mut total = (0, Duration::ZERO);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= shares {
                    return Ok(total);
                }
                let (taken, slowest) = share(kind, seed + number, SHARE.min(count - number * SHARE))?;
                total = (total.0 + taken, total.1.max(slowest));
            }
        };
        let (mut taken, mut slowest) = (0, Duration::ZERO);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                let (some, time) = worker.join().map_err(|_| "a mutant caused a panic, see above")??;
                (taken, slowest) = (taken + some, slowest.max(time));
            }
            Ok::<_, Failure>(())
        })?;
        let (seconds, memory) = (started.elapsed().as_secs_f64(), peak_memory());
        assert!(memory < MOST_MEMORY, "{kind:?}: {memory} kB");
        println!("{kind:?}: {count} mutants in {seconds:.0} s, {taken} taken, slowest {slowest:?}, {memory} kB so far");
    }
    Ok(())
}
