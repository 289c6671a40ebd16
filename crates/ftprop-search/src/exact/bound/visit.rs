//! All hyperplanes through points, by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::hyperplanes::Flat;
use super::{Stopped, Watch};

/// Up to so many points one thread is enough.
const FEW: usize = 40;

/// Shows every choice of as many points as there are dimensions to `look`, in order within a worker, and returns the
/// workers, one a thread. Who begins with which first point is left to chance: what they find may not depend on it.
pub(super) fn visit<W: Send>(
    flat: &Flat,
    watch: &Watch<'_>,
    worker: impl Fn() -> W + Sync,
    look: impl Fn(&mut W, &[usize]) -> Result<(), Stopped> + Sync,
) -> Result<Vec<W>, Stopped> {
    let next = AtomicUsize::new(0);
    let stopped: OnceLock<Stopped> = OnceLock::new();
    let workers: Mutex<Vec<W>> = Mutex::new(vec![]);
    let work = || {
        let mut worker = worker();
        let mut through = vec![];
        while let first = next.fetch_add(1, Ordering::Relaxed)
            && first + flat.dimension() <= flat.len()
        {
            through.push(first);
            if let Err(why) = descend(flat, watch, &mut through, &mut |through| look(&mut worker, through)) {
                // The first says why.
                let _ = stopped.set(why);
                return;
            }
            through.pop();
        }
        workers.lock().expect("not poisoned").push(worker);
    };
    if watch.threads > 1 && flat.len() > FEW {
        std::thread::scope(|scope| (0..watch.threads).for_each(|_| drop(scope.spawn(work))));
    } else {
        work();
    }
    stopped.into_inner().map_or_else(|| Ok(workers.into_inner().expect("not poisoned")), Err)
}

fn descend(
    flat: &Flat,
    watch: &Watch<'_>,
    through: &mut Vec<usize>,
    look: &mut dyn FnMut(&[usize]) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    if through.len() == flat.dimension() {
        // With one dimension nobody has asked yet.
        if through.len() == 1 {
            watch.ask(1)?;
        }
        return look(through);
    }
    let from = through.last().map_or(0, |last| last + 1);
    if through.len() + 1 == flat.dimension() {
        watch.ask((flat.len() - from) as u64)?;
    }
    for next in from..flat.len() {
        through.push(next);
        descend(flat, watch, through, look)?;
        through.pop();
    }
    Ok(())
}
