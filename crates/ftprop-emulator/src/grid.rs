//! The blocks of a launch, on as many of the host's threads as there are.

use crate::shared::SharedMemory;
use crate::warp::{Fault, Launch, Meeting, Pause, Warp};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A block that has begun.
struct Block {
    at: [u32; 3],
    warps: Vec<Warp>,
    shared: SharedMemory,
}

impl Block {
    fn new(launch: &Launch<'_>, number: usize) -> Self {
        let warps = launch.threads.iter().product::<u32>().div_ceil(32);
        let shared = SharedMemory::new(launch.shared, warps as usize);
        let warps = (0..warps).map(|number| Warp::new(launch, number)).collect();
        Block { at: place(launch, number), warps, shared }
    }

    /// Another block in the same room.
    fn begin(&mut self, launch: &Launch<'_>, number: usize) {
        self.at = place(launch, number);
        self.warps.iter_mut().for_each(|warp| warp.begin(launch));
        self.shared.clear();
    }

    /// Goes on until it is done (true), or waits for others.
    fn run(&mut self, launch: &Launch<'_>) -> Result<bool, Fault> {
        loop {
            let (mut done, mut turn) = (0, false);
            for warp in &mut self.warps {
                match warp.run(launch, self.at, &mut self.shared)? {
                    Pause::Done => done += 1,
                    Pause::Barrier => {}
                    Pause::Turn => turn = true,
                }
            }
            if turn {
                return Ok(false);
            }
            if done == self.warps.len() {
                return Ok(true);
            }
            if !self.meet() {
                let waiting = self.warps.iter().find(|warp| warp.waits().is_some()).unwrap_or(&self.warps[0]);
                return Err(waiting.stuck(launch, self.at));
            }
        }
    }

    /// Lets those go on who have met at a barrier; whether there are any.
    fn meet(&mut self) -> bool {
        let waiting: Vec<(usize, Meeting, u32)> = self
            .warps
            .iter()
            .enumerate()
            .filter_map(|(number, warp)| warp.waits().map(|(meeting, threads)| (number, meeting, threads)))
            .collect();
        // Who is done does not hold up the others.
        if waiting.iter().all(|(_, meeting, _)| *meeting == Meeting::Block) {
            self.warps.iter_mut().for_each(Warp::release);
            self.shared.settle();
            return true;
        }
        let mut met = false;
        for &(first, meeting, _) in &waiting {
            let Meeting::Part { threads, .. } = meeting else { continue };
            let there = waiting.iter().filter(|(_, other, _)| *other == meeting);
            let warps: Vec<usize> = there.clone().map(|(number, ..)| *number).collect();
            if warps[0] == first && there.map(|(.., threads)| threads).sum::<u32>() == threads {
                warps.iter().for_each(|&number| self.warps[number].release());
                self.shared.settle_between(&warps);
                met = true;
            }
        }
        met
    }
}

fn place(launch: &Launch<'_>, number: usize) -> [u32; 3] {
    let [x, y, _] = launch.blocks.map(|size| size as usize);
    [number % x, number / x % y, number / x / y].map(|at| at as u32)
}

/// Runs all blocks. Those that wait for others make room for them, so that blocks may wait for each other.
pub(crate) fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let total = launch.blocks.iter().map(|size| *size as usize).product::<usize>();
    let (next, ended, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let (waiting, fault) = (Mutex::new(VecDeque::new()), Mutex::new(None));
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut spare: Option<Block> = None;
        while !failed.load(Ordering::Relaxed) && ended.load(Ordering::Relaxed) < total {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let block = match (number < total, spare.take()) {
                (true, Some(mut block)) => {
                    block.begin(launch, number);
                    Some(block)
                }
                (true, None) => Some(Block::new(launch, number)),
                (false, _) => lock().pop_front(),
            };
            let Some(mut block) = block else {
                std::thread::yield_now();
                continue;
            };
            match block.run(launch) {
                Ok(true) => {
                    spare = Some(block);
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                Ok(false) => lock().push_back(block),
                Err(why) => {
                    failed.store(true, Ordering::Relaxed);
                    fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(total);
    if workers == 1 {
        work();
    } else {
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    }
    fault.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
