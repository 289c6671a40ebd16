//! Batches, prepared ahead of the trainer by worker threads.
//!
//! The order of epoch e is the permutation of `Stream::new(seed, Purpose::Shuffle, e)` over the split's
//! positions: batch b holds the examples at `at(b · batch)`, `at(b · batch + 1)` and so on. A worker takes the
//! next batch nobody has taken, fills a free buffer and puts it where the trainer will look for it; it runs
//! ahead by a bounded number of batches. Since a batch is a pure function of its number, the number of workers
//! changes nothing but the speed, and an epoch can be taken up at any batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::photo::Scratch;
use crate::prepare::{LoaderConfig, Plan, Slot};
use crate::split::Split;
use crate::{DataError, Shape};

/// Makes epochs of batches from a split.
pub struct Loader {
    plan: Arc<Plan>,
    /// Buffers between epochs.
    pool: Arc<Mutex<Vec<Slot>>>,
}

/// One batch; its memory is used again for a later one.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The batch's number in its epoch.
    pub index: usize,
    /// NHWC, normalised; empty where bytes are delivered.
    pub images: &'a [f32],
    /// NHWC, where the loader delivers bytes ([`LoaderConfig::pixels`]).
    pub pixels: &'a [u8],
    /// The examples' classes.
    pub labels: &'a [u32],
    /// The examples' numbers in the data as read, see [`Split`].
    pub numbers: &'a [u32],
}

impl Batch<'_> {
    /// How many examples the batch has: fewer than asked for at the end of an epoch or where some were skipped.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Only true of a batch that several processes share, of which this one has no example.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

impl Loader {
    /// A loader of a split's examples; the configuration is checked here.
    pub fn new(split: &Split, config: LoaderConfig) -> Result<Self, DataError> {
        Ok(Loader { plan: Arc::new(Plan::new(split.clone(), config)?), pool: Arc::default() })
    }

    /// The same, delivering normalised values or, for pictures in files, bytes.
    pub fn delivering(&self, pixels: bool) -> Result<Self, DataError> {
        Loader::new(self.plan.split(), LoaderConfig { pixels, ..self.plan.config().clone() })
    }

    /// How batches are made.
    pub fn config(&self) -> &LoaderConfig {
        self.plan.config()
    }

    /// How many examples an epoch has.
    pub fn examples(&self) -> usize {
        self.plan.split().len()
    }

    /// The shape of one example of a batch.
    pub fn shape(&self) -> Shape {
        self.plan.split().shape()
    }

    /// How many batches an epoch has.
    pub fn batches_per_epoch(&self) -> usize {
        self.plan.batches()
    }

    /// Starts an epoch at a batch: 0, or where an interrupted one stopped.
    ///
    /// The epoch begins to prepare batches at once and ends its threads when it is dropped.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> Epoch {
        Epoch::start(self.plan.clone(), self.pool.clone(), epoch, first_batch)
    }
}

/// One pass over a split.
pub struct Epoch {
    plan: Arc<Plan>,
    pool: Arc<Mutex<Vec<Slot>>>,
    epoch: u64,
    next: usize,
    delivered: bool,
    /// The batch that the trainer is looking at.
    current: Slot,
    maker: Maker,
    waited: Duration,
    skipped: usize,
    first_skipped: Option<DataError>,
}

/// Who prepares the batches.
enum Maker {
    Caller(Box<Scratch>),
    Workers { shared: Arc<Shared>, threads: Vec<JoinHandle<()>> },
}

impl Epoch {
    fn start(plan: Arc<Plan>, pool: Arc<Mutex<Vec<Slot>>>, epoch: u64, first_batch: usize) -> Self {
        let mut slots = std::mem::take(&mut *lock(&pool));
        let current = slots.pop().unwrap_or_default();
        let next = first_batch.min(plan.batches());
        let workers = plan.config().workers.min(plan.batches() - next);
        let shared = Arc::new(Shared::new(next, workers + 1, slots));
        let threads: Vec<_> = (0..workers)
            .map_while(|worker| {
                let (plan, shared) = (plan.clone(), shared.clone());
                let thread = thread::Builder::new().name(format!("ftprop-data-{worker}"));
                // Where the system has no more threads, those already started (or the caller) do the work.
                thread.spawn(move || shared.work(&plan, epoch)).ok()
            })
            .collect();
        let maker = if threads.is_empty() { Maker::Caller(Box::default()) } else { Maker::Workers { shared, threads } };
        Epoch {
            plan,
            pool,
            epoch,
            next,
            // What an interrupted epoch delivered counts.
            delivered: next > 0,
            current,
            maker,
            waited: Duration::ZERO,
            skipped: 0,
            first_skipped: None,
        }
    }

    /// The next batch, or `None` after the last. After an error the epoch is over.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, DataError> {
        while self.next < self.plan.batches() {
            let index = self.next;
            self.next += 1;
            let start = Instant::now();
            let outcome = match &mut self.maker {
                Maker::Caller(scratch) => {
                    self.plan.fill(self.epoch, index, &mut self.current, scratch, &AtomicBool::new(false))
                }
                Maker::Workers { shared, .. } => shared.take(index, &mut self.current),
            };
            self.waited += start.elapsed();
            if let Err(error) = outcome {
                self.next = self.plan.batches();
                self.delivered = true;
                return Err(match error {
                    // Whoever mends one wants to know of the others.
                    DataError::Image { .. } | DataError::Read { .. } => self.plan.bad_images(error),
                    other => other,
                });
            }
            self.skipped += self.current.skipped;
            if let Some(first) = self.current.first_skipped.take() {
                self.first_skipped.get_or_insert(first);
            }
            let some = !self.current.labels.is_empty();
            if some || !self.plan.config().share.is_whole() {
                self.delivered |= some;
                let Slot { images, pixels, labels, numbers, .. } = &self.current;
                return Ok(Some(Batch { index, images, pixels, labels, numbers }));
            }
        }
        match self.first_skipped.take() {
            Some(first) if !self.delivered => {
                self.delivered = true;
                Err(DataError::AllSkipped { count: self.skipped, first: Box::new(first) })
            }
            first => {
                self.first_skipped = first;
                Ok(None)
            }
        }
    }

    /// The number of the batch that comes next: where to take the epoch up again.
    pub fn next_index(&self) -> usize {
        self.next
    }

    /// How many images were left out of the batches so far.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Why the first of them was.
    pub fn first_skipped(&self) -> Option<&DataError> {
        self.first_skipped.as_ref()
    }

    /// How long the caller has waited for batches so far; without workers, all the time they took to prepare.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        let mut slots = vec![std::mem::take(&mut self.current)];
        if let Maker::Workers { shared, threads } = &mut self.maker {
            shared.end();
            for thread in threads.drain(..) {
                // A worker catches its own panics; there is nothing to learn from the result.
                let _ = thread.join();
            }
            slots.extend(shared.buffers());
        }
        lock(&self.pool).append(&mut slots);
    }
}

/// What the workers and the trainer share.
struct Shared {
    state: Mutex<State>,
    /// A worker may go on: the trainer took a batch.
    room: Condvar,
    /// The trainer may look: a batch is done.
    done: Condvar,
    stop: AtomicBool,
}

struct State {
    /// The next batch for a worker to prepare.
    unclaimed: usize,
    /// The next batch for the trainer.
    wanted: usize,
    /// Finished batches: batch b at b modulo the length, which bounds how far the workers run ahead.
    finished: Vec<Option<(Slot, Result<(), DataError>)>>,
    free: Vec<Slot>,
}

impl Shared {
    fn new(first: usize, ahead: usize, free: Vec<Slot>) -> Self {
        let finished = (0..ahead).map(|_| None).collect();
        Shared {
            state: Mutex::new(State { unclaimed: first, wanted: first, finished, free }),
            room: Condvar::new(),
            done: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// A worker's life.
    fn work(&self, plan: &Plan, epoch: u64) {
        let mut scratch = Scratch::default();
        while let Some((batch, mut slot)) = self.claim(plan.batches()) {
            let fill = AssertUnwindSafe(|| plan.fill(epoch, batch, &mut slot, &mut scratch, &self.stop));
            let outcome = catch_unwind(fill).unwrap_or(Err(DataError::Worker { batch }));
            let mut state = lock(&self.state);
            let place = batch % state.finished.len();
            state.finished[place] = Some((slot, outcome));
            self.done.notify_one();
        }
    }

    /// The next batch to prepare and a buffer for it; `None` when there is nothing left to do.
    fn claim(&self, batches: usize) -> Option<(usize, Slot)> {
        let mut state = lock(&self.state);
        loop {
            if self.stop.load(Ordering::Relaxed) || state.unclaimed >= batches {
                return None;
            }
            if state.unclaimed < state.wanted + state.finished.len() {
                let batch = state.unclaimed;
                state.unclaimed += 1;
                return Some((batch, state.free.pop().unwrap_or_default()));
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a batch and exchanges the trainer's buffer for it.
    fn take(&self, batch: usize, current: &mut Slot) -> Result<(), DataError> {
        let mut state = lock(&self.state);
        let place = batch % state.finished.len();
        loop {
            if let Some((slot, outcome)) = state.finished[place].take() {
                state.free.push(std::mem::replace(current, slot));
                state.wanted = batch + 1;
                self.room.notify_one();
                return outcome;
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells the workers to end, in the middle of a batch if need be.
    fn end(&self) {
        // Under the lock, so that no worker is between looking at the flag and going to sleep.
        let _state = lock(&self.state);
        self.stop.store(true, Ordering::Relaxed);
        self.room.notify_all();
    }

    /// All buffers, once the workers have ended.
    fn buffers(&self) -> Vec<Slot> {
        let mut state = lock(&self.state);
        let finished = std::mem::take(&mut state.finished).into_iter().flatten().map(|(slot, _)| slot);
        finished.chain(std::mem::take(&mut state.free)).collect()
    }
}

/// No invariant spans two locks, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
