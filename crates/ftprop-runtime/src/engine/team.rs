//! Threads that wait between calls and help where they can.
//!
//! Work is claimed unit by unit, so a helper that the system lets wait costs nothing: the others do its share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Looks at a flag this often before going to sleep: waking a sleeping thread takes longer than a small layer.
const SPINS: usize = 4000;

type Job = &'static (dyn Fn(usize) + Sync);

#[derive(Default)]
struct State {
    /// The current job, set for as long as helpers may still begin it.
    job: Option<Job>,
    /// Helpers that have started.
    ready: usize,
    /// Helpers at work on the job.
    working: usize,
    failed: bool,
    stopping: bool,
}

#[derive(Default)]
struct Board {
    state: Mutex<State>,
    /// Counts jobs, so that helpers can see a new one without the lock.
    jobs: AtomicUsize,
    posted: Condvar,
    finished: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calling thread and `size − 1` helpers.
pub(super) struct Team {
    board: Arc<Board>,
    helpers: Vec<JoinHandle<()>>,
}

impl Team {
    pub(super) fn new(size: usize) -> std::io::Result<Self> {
        let mut team = Team { board: Arc::default(), helpers: Vec::new() };
        for member in 1..size {
            let board = team.board.clone();
            let name = format!("ftprop-runtime-{member}");
            team.helpers.push(std::thread::Builder::new().name(name).spawn(move || help(&board, member))?);
        }
        // A thread allocates as it starts; nobody does afterwards.
        let mut state = team.board.lock();
        while state.ready < team.helpers.len() {
            state = team.board.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Ok(team)
    }

    pub(super) fn size(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `job` for member 0, on this thread, and for each helper that is there before that one is done, at most
    /// once each. Returns when all are done.
    pub(super) fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.helpers.is_empty() {
            return job(0);
        }
        // SAFETY: helpers use the job only while they are counted as working, and `Finish` takes it off the board and
        // waits for them, even when `job(0)` panics; so the reference does not outlive what it points to.
        let job_for_helpers = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        self.board.lock().job = Some(job_for_helpers);
        self.board.jobs.fetch_add(1, Ordering::Release);
        self.board.posted.notify_all();
        let finish = Finish(&self.board);
        job(0);
        drop(finish);
        assert!(!self.board.lock().failed, "a thread of the engine panicked");
    }
}

/// Ends a job when dropped.
struct Finish<'a>(&'a Board);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut spins = 0;
        loop {
            let mut state = self.0.lock();
            state.job = None;
            if state.working > 0 && spins >= SPINS {
                state = self.0.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.working == 0 {
                return;
            }
            drop(state);
            (0..50).for_each(|_| std::hint::spin_loop());
            spins += 50;
        }
    }
}

fn help(board: &Board, member: usize) {
    let mut seen = 0;
    board.lock().ready += 1;
    board.finished.notify_all();
    loop {
        let mut spins = 0;
        while board.jobs.load(Ordering::Acquire) == seen && spins < SPINS {
            std::hint::spin_loop();
            spins += 1;
        }
        let mut state = board.lock();
        while board.jobs.load(Ordering::Acquire) == seen && !state.stopping {
            state = board.posted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopping {
            return;
        }
        seen = board.jobs.load(Ordering::Acquire);
        let Some(job) = state.job else { continue };
        state.working += 1;
        drop(state);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(member))).is_ok();
        let mut state = board.lock();
        state.failed |= !done;
        state.working -= 1;
        if state.working == 0 {
            board.finished.notify_all();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.lock().stopping = true;
        self.board.jobs.fetch_add(1, Ordering::Release);
        self.board.posted.notify_all();
        for helper in self.helpers.drain(..) {
            // One that panicked was reported when it happened.
            let _ = helper.join();
        }
    }
}

/// Units of work that members claim one by one.
#[derive(Default)]
pub(super) struct Claims {
    claimed: AtomicUsize,
    done: AtomicUsize,
}

impl Claims {
    /// Begins anew; only while nobody works.
    pub(super) fn reset(&self) {
        self.claimed.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    /// Units of `count` that nobody has claimed yet; each counts as done when the next is asked for.
    pub(super) fn of(&self, count: usize) -> Units<'_> {
        Units { claims: self, count, working: false }
    }

    /// Waits until `count` units are done, by whomever, and makes what they wrote visible.
    pub(super) fn wait(&self, count: usize) {
        let mut spins = 0;
        while self.done.load(Ordering::Acquire) < count {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// See [`Claims::of`].
pub(super) struct Units<'a> {
    claims: &'a Claims,
    count: usize,
    working: bool,
}

impl Iterator for Units<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.working {
            self.claims.done.fetch_add(1, Ordering::AcqRel);
        }
        let unit = self.claims.claimed.fetch_add(1, Ordering::Relaxed);
        self.working = unit < self.count;
        self.working.then_some(unit)
    }
}

impl Drop for Units<'_> {
    fn drop(&mut self) {
        if self.working {
            // A panic in the middle of a unit: nobody shall wait for it. The team reports the panic.
            self.claims.done.store(usize::MAX / 2, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_done_once_a_run() -> std::io::Result<()> {
        for size in 1..5 {
            let mut team = Team::new(size)?;
            let counts: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
            let claims = Claims::default();
            for _ in 0..200 {
                claims.reset();
                team.run(&|_| {
                    for unit in claims.of(40) {
                        counts[unit].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 200));
        }
        Ok(())
    }

    #[test]
    fn nobody_goes_on_before_all_units_are_done() -> std::io::Result<()> {
        let mut team = Team::new(3)?;
        let steps: Vec<Claims> = (0..50).map(|_| Claims::default()).collect();
        let done: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..50 {
            steps.iter().for_each(Claims::reset);
            done.iter().for_each(|done| done.store(0, Ordering::Relaxed));
            team.run(&|_| {
                for (step, done) in steps.iter().zip(&done) {
                    for _ in step.of(7) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    step.wait(7);
                    assert_eq!(done.load(Ordering::Relaxed), 7);
                }
            });
        }
        Ok(())
    }

    #[test]
    fn a_panic_is_reported_and_hangs_nobody() -> std::io::Result<()> {
        let mut team = Team::new(2)?;
        let claims = Claims::default();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.run(&|_| {
                claims.of(3).for_each(|unit| assert_ne!(unit, 1, "on purpose"));
                claims.wait(3);
            });
        }));
        assert!(result.is_err());
        Ok(())
    }
}
