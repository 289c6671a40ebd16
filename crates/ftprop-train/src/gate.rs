//! Who may use GPUs that several runs share.
//!
//! A driver does some things only when the whole GPU is idle: it frees memory, and loads a kernel that it has not run
//! before. Where other runs never pause, that moment does not come until they end. So runs take turns: side by side, about
//! half a second each, or as long as an evaluation takes. Who makes another run waits until all turns are over, and has
//! the GPUs alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Runs pass through it together, or somebody alone.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Turns under way.
    inside: usize,
    /// Those who want to be alone; while there are any, no turn begins.
    waiting: usize,
    alone: bool,
}

/// A turn, beside others'. It ends when this is dropped.
#[must_use = "a turn ends when it is dropped"]
pub struct Turn<'a>(&'a Gate);

/// Nobody has a turn until this is dropped.
#[must_use = "others go on when it is dropped"]
pub struct Alone<'a>(&'a Gate);

impl Gate {
    /// Begins a turn once nobody wants to be alone. The GPU must be done with a turn's kernels when it ends.
    pub fn enter(&self) -> Turn<'_> {
        let mut state = self.wait_while(|s| s.alone || s.waiting > 0);
        state.inside += 1;
        Turn(self)
    }

    /// Waits for the turns under way. Whoever has a turn must not ask for this.
    pub fn alone(&self) -> Alone<'_> {
        self.lock().waiting += 1;
        let mut state = self.wait_while(|s| s.alone || s.inside > 0);
        state.waiting -= 1;
        state.alone = true;
        Alone(self)
    }

    fn wait_while(&self, busy: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), |s| busy(s)).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    #[test]
    fn whoever_is_alone_gets_there_though_others_never_pause() {
        let (gate, stop) = (Gate::default(), AtomicBool::new(false));
        let (inside, together, alone) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        let _turn = gate.enter();
                        assert_eq!(alone.load(SeqCst), 0, "a turn beside one who is alone");
                        together.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
            let makers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            let _alone = gate.alone();
                            assert_eq!(alone.fetch_add(1, SeqCst), 0, "two are alone");
                            assert_eq!(inside.load(SeqCst), 0, "alone beside a turn");
                            std::thread::sleep(Duration::from_millis(1));
                            alone.fetch_sub(1, SeqCst);
                        }
                    })
                })
                .collect();
            let started = Instant::now();
            while !makers.iter().all(|m| m.is_finished()) {
                if started.elapsed() > Duration::from_secs(60) {
                    stop.store(true, SeqCst);
                    panic!("nobody came to be alone");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            stop.store(true, SeqCst);
        });
        assert!(together.load(SeqCst) > 1, "turns were one after another");
    }
}
