//! Reads many mutated and truncated files of every kind, on all cores, and says how long the slowest took and how much
//! memory the greediest.
//!
//! ```text
//! cargo run --release -p ftprop-data --example fuzz_data -- [count=1000000] [seed=1] [kind=Csv]
//! ```

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/mutants.rs"]
mod mutants;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use mutants::{Bench, Kind, Numbers};

/// Counts the bytes that each thread has in use, and the most there ever were.
struct Counting;

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends may free when its counts are gone.
    let _ = USED.try_with(|used| {
        used.set(used.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(used.get())));
    });
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Mutants of one seed; each share is a run of its own that can be repeated alone.
const SHARE: u64 = 10_000;
/// What no mutant may take; most are a few kilobytes long.
const MOST_BYTES: isize = 512 << 20;
const MOST_TIME: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Tally {
    taken: u64,
    slowest: Duration,
    greediest: isize,
}

fn share(kind: Kind, seed: u64, cases: u64) -> Tally {
    let (bench, mut numbers, mut tally) = (Bench::new(kind), Numbers(seed), Tally::default());
    for case in 0..cases {
        let (started, before) = (Instant::now(), USED.get());
        MOST.set(before);
        tally.taken += u64::from(bench.try_one(&mut numbers));
        let (time, bytes) = (started.elapsed(), MOST.get() - before);
        assert!(time < MOST_TIME && bytes < MOST_BYTES, "{kind:?}, seed {seed}, case {case}: {time:?}, {bytes} bytes");
        tally.slowest = tally.slowest.max(time);
        tally.greediest = tally.greediest.max(bytes);
    }
    tally
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let work = || {
            let mut total = Tally::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= shares {
                    return total;
                }
                let tally = share(kind, seed + number, SHARE.min(count - number * SHARE));
                total.taken += tally.taken;
                total.slowest = total.slowest.max(tally.slowest);
                total.greediest = total.greediest.max(tally.greediest);
            }
        };
        let mut total = Tally::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                let tally = worker.join().map_err(|_| "a mutant caused a panic, see above")?;
                total.taken += tally.taken;
                total.slowest = total.slowest.max(tally.slowest);
                total.greediest = total.greediest.max(tally.greediest);
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
        println!(
            "{kind:?}: {count} mutants, {} taken, in {:.0?}; the slowest {:.0?}, the greediest {} kB",
            total.taken,
            started.elapsed(),
            total.slowest,
            total.greediest >> 10
        );
    }
    Ok(())
}
