//! Where the time before a network's first step goes: each part adds itself up here, and a bench tells.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One kind of work that is done before the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct StartupPart {
    /// What was done.
    pub name: &'static str,
    /// How often.
    pub count: usize,
    /// How long, in all; parts that run side by side are counted each for itself.
    pub seconds: f64,
}

static PARTS: Mutex<Vec<StartupPart>> = Mutex::new(Vec::new());

/// What was done since this was last asked, by every network of the process.
pub(crate) fn take() -> Vec<StartupPart> {
    std::mem::take(&mut PARTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Does something that counts as a part.
pub(crate) fn during<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    match parts.iter_mut().find(|part| part.name == name) {
        Some(part) => (part.count, part.seconds) = (part.count + 1, part.seconds + seconds),
        None => parts.push(StartupPart { name, count: 1, seconds }),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_name_are_added_up_until_somebody_asks() {
        let mine = |parts: Vec<StartupPart>| parts.into_iter().find(|part| part.name == "a test");
        for i in 0..3 {
            assert_eq!(during("a test", || i), i);
        }
        let part = mine(take()).unwrap();
        assert!(part.count == 3 && part.seconds >= 0.0);
        assert_eq!(mine(take()), None);
    }
}
