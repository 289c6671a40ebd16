//! Threads that wait between calls, and a barrier for those that work on one image together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Looks at a flag this often before going to sleep: waking a sleeping thread takes longer than a small layer.
const SPINS: usize = 4000;

type Job = &'static (dyn Fn(usize) + Sync);

#[derive(Default)]
struct State {
    /// The current job, set for as long as a call of [`Team::run`] lasts.
    job: Option<Job>,
    /// Workers that have not finished it.
    working: usize,
    failed: bool,
    stopping: bool,
}

#[derive(Default)]
struct Board {
    state: Mutex<State>,
    /// Counts jobs, so that workers can see a new one without the lock.
    jobs: AtomicUsize,
    posted: Condvar,
    finished: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calling thread and `size − 1` workers.
pub(super) struct Team {
    board: Arc<Board>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    pub(super) fn new(size: usize) -> std::io::Result<Self> {
        let mut team = Team { board: Arc::default(), workers: Vec::new() };
        for member in 1..size {
            let board = team.board.clone();
            let name = format!("ftprop-runtime-{member}");
            team.workers.push(std::thread::Builder::new().name(name).spawn(move || work(&board, member))?);
        }
        Ok(team)
    }

    pub(super) fn size(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` once for each member, 0 on this thread, and returns when all are done.
    pub(super) fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        // SAFETY: workers use the job only until they count themselves off, and `Finish` waits for all of them, even
        // when `job(0)` panics; so the reference does not outlive what it points to.
        let job_for_workers = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        let mut state = self.board.lock();
        state.job = Some(job_for_workers);
        state.working = self.workers.len();
        self.board.jobs.fetch_add(1, Ordering::Release);
        drop(state);
        self.board.posted.notify_all();
        let finish = Finish(&self.board);
        job(0);
        drop(finish);
        assert!(!self.board.lock().failed, "a worker thread of the engine panicked");
    }
}

/// Waits for the workers when dropped.
struct Finish<'a>(&'a Board);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut spins = 0;
        loop {
            let mut state = self.0.lock();
            if state.working > 0 && spins >= SPINS {
                state = self.0.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.working == 0 {
                state.job = None;
                return;
            }
            drop(state);
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            spins += 50;
        }
    }
}

fn work(board: &Board, member: usize) {
    let mut seen = 0;
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
        let job = state.job;
        drop(state);
        let done = job.is_none_or(|job| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(member))).is_ok());
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
        for worker in self.workers.drain(..) {
            // A worker that panicked was reported when it happened.
            let _ = worker.join();
        }
    }
}

/// Holds members of a team until all have arrived.
pub(super) struct Barrier {
    members: usize,
    waiting: AtomicUsize,
    round: AtomicUsize,
}

impl Barrier {
    pub(super) fn new(members: usize) -> Self {
        Barrier { members, waiting: AtomicUsize::new(0), round: AtomicUsize::new(0) }
    }

    pub(super) fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.waiting.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_works_once_a_run() -> std::io::Result<()> {
        for size in 1..5 {
            let mut team = Team::new(size)?;
            let counts: Vec<AtomicUsize> = (0..size).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..200 {
                team.run(&|member| {
                    counts[member].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 200));
        }
        Ok(())
    }

    #[test]
    fn nobody_passes_the_barrier_early() -> std::io::Result<()> {
        let mut team = Team::new(3)?;
        let (barrier, arrived) = (Barrier::new(3), AtomicUsize::new(0));
        team.run(&|_| {
            for round in 1..=100 {
                arrived.fetch_add(1, Ordering::SeqCst);
                barrier.wait();
                assert!(arrived.load(Ordering::SeqCst) >= 3 * round);
                barrier.wait();
            }
        });
        Ok(())
    }
}
