//! Once warm, preparing a batch of data in memory takes nothing from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use ftprop_data::{Augment, Loader, LoaderConfig, Options, Source, open};

/// The system's allocator with a count of what was taken.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// The same of one thread: the one that runs tests may take a little at any time.
    static TAKEN_HERE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        TAKEN_HERE.with(|taken| taken.set(taken.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// One test only in this file: the count is the whole process's.
#[test]
fn batches_are_prepared_in_recycled_buffers() {
    let digits = open(Source::Digits, None, &Options::default()).unwrap();
    for workers in [0, 2] {
        let augment = Augment { pad: 1, ..Augment::CIFAR };
        let config = LoaderConfig { workers, augment, ..LoaderConfig::training(8, 1, digits.normalize.clone()) };
        let loader = Loader::new(&digits.train, config).unwrap();
        for number in 0..2 {
            let mut epoch = loader.epoch(number, 0);
            // The buffers get their memory the first time they are used.
            for _ in 0..60 {
                epoch.next_batch().unwrap();
            }
            let (before, before_here) = (TAKEN.load(Ordering::Relaxed), TAKEN_HERE.get());
            let mut batches = 0;
            while epoch.next_batch().unwrap().is_some() {
                batches += 1;
            }
            assert!(batches > 100);
            let here = TAKEN_HERE.get() - before_here;
            assert!(workers > 0 || here == 0, "{here} for {batches} batches without workers");
            // A worker that starts late may still take a little for itself, and so may a last buffer.
            let taken = TAKEN.load(Ordering::Relaxed) - before;
            assert!(taken < 20, "{taken} for {batches} batches, {workers} workers");
        }
    }
}
