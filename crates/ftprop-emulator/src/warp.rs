//! A warp at work: which lanes are where, and what each instruction does to them.

mod access;

use crate::memory::Places;
use crate::program::{Action, Instruction, Kernel, Special};
use crate::registers::{LANES, Operands, Registers};
use crate::shared::{SharedMemory, Touch};
use crate::together::Together;
use crate::warpgroup::ReadPlaces;
use std::collections::VecDeque;

/// What one launch is.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    /// Bytes of shared memory, all of it.
    pub(crate) shared: usize,
    pub(crate) arguments: &'a [u64],
    pub(crate) places: &'a Places,
}

/// Why a kernel cannot go on, in words.
#[derive(Clone, Debug)]
pub(crate) struct Fault(pub(crate) String);

/// Lanes that stand at the same instruction.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: usize,
    mask: u32,
    /// It waits for other lanes to come to the same place.
    parked: bool,
}

/// A copy under way, a lane's bytes.
struct Copy {
    to: u64,
    bytes: [u8; 16],
    count: usize,
    lane: u32,
}

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Done,
    /// All lanes that are left wait for other threads of the block.
    Barrier,
    /// It looked long enough at memory that others may write.
    Turn,
}

/// How often memory is looked at again before others get their turn.
const POLLS: u32 = 64;
/// How many steps back before others get theirs, whatever happens.
const LOOPS: u32 = 1 << 24;

/// Who meets at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// All threads of the block.
    Block,
    /// So many threads at the barrier of this number.
    Part { barrier: u32, threads: u32 },
}

/// One warp.
pub(crate) struct Warp {
    registers: Registers,
    /// Its number in the block.
    number: u32,
    groups: Vec<Group>,
    /// Those at a barrier, with the place after it.
    held: Vec<Group>,
    /// Which barrier that is.
    meeting: Meeting,
    /// Lanes that have not ended.
    alive: u32,
    /// Copies of the group that is being filled, and of those before it.
    filling: Vec<Copy>,
    copies: VecDeque<Vec<Copy>>,
    /// The same of what products under way read.
    reading: ReadPlaces,
    products: VecDeque<ReadPlaces>,
    local: Vec<u64>,
    /// Whether the turn was taken away from the group that would be next.
    rotate: bool,
    /// Instructions so far.
    steps: u64,
}

impl Warp {
    pub(crate) fn new(launch: &Launch<'_>, number: u32) -> Self {
        let kernel = launch.kernel;
        let mut warp = Warp {
            registers: Registers::new(kernel.lines, kernel.predicates, kernel.constants.clone()),
            number,
            groups: Vec::new(),
            held: Vec::new(),
            meeting: Meeting::Block,
            alive: 0,
            filling: Vec::new(),
            copies: VecDeque::new(),
            reading: ReadPlaces::new(),
            products: VecDeque::new(),
            local: vec![0; LANES * kernel.local / 8],
            rotate: false,
            steps: 0,
        };
        warp.begin(launch);
        warp
    }

    /// Begins anew, for another block.
    pub(crate) fn begin(&mut self, launch: &Launch<'_>) {
        let threads = launch.threads.iter().product::<u32>();
        let lanes = (threads - 32 * self.number).min(32);
        self.alive = if lanes == 32 { !0 } else { (1 << lanes) - 1 };
        self.groups = vec![Group { at: 0, mask: self.alive, parked: false }];
        self.filling.clear();
        self.copies.clear();
        self.reading.clear();
        self.products.clear();
        self.rotate = false;
    }

    /// Where it waits, and how many of its threads do.
    pub(crate) fn waits(&self) -> Option<(Meeting, u32)> {
        let threads = self.held.iter().map(|group| group.mask.count_ones()).sum();
        (threads > 0).then_some((self.meeting, threads))
    }

    /// Lets those that waited at the barrier go on.
    pub(crate) fn release(&mut self) {
        for group in std::mem::take(&mut self.held) {
            self.add(group);
        }
    }

    /// Adds lanes to those at the same place.
    fn add(&mut self, group: Group) {
        if group.mask == 0 {
            return;
        }
        match self.groups.iter_mut().find(|other| other.at == group.at) {
            Some(other) => *other = Group { mask: other.mask | group.mask, parked: false, ..*other },
            None => self.groups.push(group),
        }
    }

    /// Takes the lanes that are farthest behind, so that the others wait for them where paths meet again.
    fn next_group(&mut self) -> Option<Group> {
        let ready = self.groups.iter().enumerate().filter(|(_, group)| !group.parked);
        let next = match std::mem::take(&mut self.rotate) {
            true => ready.max_by_key(|(_, group)| group.at),
            false => ready.min_by_key(|(_, group)| group.at),
        };
        let at = next?.0;
        Some(self.groups.swap_remove(at))
    }

    /// Goes on until all of its lanes are done or wait.
    pub(crate) fn run(
        &mut self,
        launch: &Launch<'_>,
        block: [u32; 3],
        shared: &mut SharedMemory,
    ) -> Result<Pause, Fault> {
        let (mut polls, mut loops) = (0, 0);
        while let Some(Group { mut at, mut mask, .. }) = self.next_group() {
            let mut others = self.groups.iter().map(|group| group.at).min().unwrap_or(usize::MAX);
            // A group that is ahead of others, for a change, goes on for a while.
            if at > others {
                others = usize::MAX;
            }
            loop {
                if at >= others {
                    self.add(Group { at, mask, parked: false });
                    break;
                }
                let i = &launch.kernel.code[at];
                let active = mask & i.guard.map_or(!0, |guard| self.registers.predicate(guard));
                self.steps += 1;
                match i.action {
                    Action::Compute(compute) if active != 0 => compute(&mut self.registers, &i.operands, active),
                    Action::Convert(conversion) if active != 0 => {
                        conversion.run(&mut self.registers, &i.operands, active)
                    }
                    Action::Branch(target) => {
                        let target = target as usize;
                        if active == mask {
                            loops += u32::from(target <= at);
                            at = target;
                            if polls > POLLS || loops > LOOPS {
                                self.rotate = true;
                                self.add(Group { at, mask, parked: false });
                                return Ok(Pause::Turn);
                            }
                        } else if active == 0 {
                            at += 1;
                        } else {
                            self.add(Group { at: target, mask: active, parked: false });
                            self.add(Group { at: at + 1, mask: mask & !active, parked: false });
                            break;
                        }
                        continue;
                    }
                    Action::Exit => {
                        self.alive &= !active;
                        mask &= !active;
                        self.groups.iter_mut().for_each(|group| group.parked = false);
                    }
                    Action::Barrier | Action::PartBarrier(_) => {
                        let meeting = self.meeting_at(i, active);
                        if !self.held.is_empty() && meeting != self.meeting {
                            return Err(self.fault(
                                launch,
                                block,
                                i,
                                active,
                                "others of its lanes wait at another barrier",
                            ));
                        }
                        self.meeting = meeting;
                        self.held.push(Group { at: at + 1, mask: active, parked: false });
                        mask &= !active;
                    }
                    Action::Together(together) if active != 0 => {
                        let first = active.trailing_zeros() as usize;
                        let members = together.members(&self.registers, &i.operands, first) & self.alive;
                        if members & !active != 0 {
                            // The rest of its lanes have to come here first.
                            self.add_parked(Group { at, mask, parked: true });
                            break;
                        }
                        let outcome = self.together(together, &i.operands, active, shared);
                        outcome.map_err(|why| self.fault(launch, block, i, active, &why))?;
                    }
                    _ if active == 0 => {}
                    _ => {
                        polls += u32::from(access::polls(&i.action));
                        let outcome = self.other(i, active, launch, block, shared);
                        outcome.map_err(|why| self.fault(launch, block, i, active, &why))?;
                    }
                }
                if mask == 0 {
                    break;
                }
                at += 1;
            }
        }
        match (self.groups.is_empty(), self.held.is_empty()) {
            (true, true) => Ok(Pause::Done),
            (true, false) => Ok(Pause::Barrier),
            _ => Err(self.stuck(launch, block)),
        }
    }

    /// Which barrier an instruction means.
    fn meeting_at(&self, i: &Instruction, active: u32) -> Meeting {
        match i.action {
            Action::PartBarrier(threads) => {
                let barrier = self.registers.read::<u32>(i.operands.from[0])[active.trailing_zeros() as usize % LANES];
                Meeting::Part { barrier, threads }
            }
            _ => Meeting::Block,
        }
    }

    /// Lanes that wait at an instruction; those that were there already may be what they wait for.
    fn add_parked(&mut self, group: Group) {
        let parked = !self.groups.iter().any(|other| other.at == group.at);
        self.add(Group { parked, ..group });
    }

    fn together(
        &mut self,
        together: Together,
        i: &Operands,
        mask: u32,
        shared: &mut SharedMemory,
    ) -> Result<(), String> {
        match together {
            Together::LoadMatrix { count, transposed } => {
                access::load_matrices(&mut self.registers, i, (count, transposed), self.number, shared)
            }
            _ => together.run(&mut self.registers, i, mask),
        }
    }

    /// What needs more than registers.
    fn other(
        &mut self,
        i: &Instruction,
        mask: u32,
        launch: &Launch<'_>,
        block: [u32; 3],
        shared: &mut SharedMemory,
    ) -> Result<(), String> {
        let o = &i.operands;
        match i.action {
            Action::Special(special) => {
                let out: [u64; LANES] = std::array::from_fn(|lane| self.special(special, lane as u32, launch, block));
                self.registers.write_any(o.to[0], &out, mask);
                Ok(())
            }
            Action::Trap => Err("the kernel gave up".into()),
            Action::GroupProduct(_) if mask != !0 => Err("not all lanes of a warp are here".into()),
            Action::GroupProduct(number) => {
                let product = &launch.kernel.group_products[number as usize];
                product.run(&mut self.registers, self.number, shared, &mut self.reading)
            }
            Action::CommitProducts => {
                self.products.push_back(std::mem::take(&mut self.reading));
                Ok(())
            }
            Action::AwaitProducts(left) => {
                // Until now they may have been reading.
                while self.products.len() > left {
                    let places = self.products.pop_front().unwrap_or_default();
                    places.into_iter().try_for_each(|place| shared.note(place, 16, self.number, Touch::Read))?;
                }
                Ok(())
            }
            Action::CommitCopies => {
                let filled = std::mem::take(&mut self.filling);
                self.copies.push_back(filled);
                Ok(())
            }
            _ => {
                let mut reach = access::Reach { launch, shared, local: &mut self.local, warp: self.number };
                match i.action {
                    Action::Load(access) => reach.load(&mut self.registers, o, access, mask),
                    Action::Store(access) => reach.store(&self.registers, o, access, mask),
                    Action::Atomic(access, change) => reach.atomic(&mut self.registers, o, access, change, mask),
                    Action::CopyAside { to, from, bytes, some } => {
                        reach.copy_aside(&self.registers, (to, from), bytes, some, mask, &mut self.filling)
                    }
                    Action::AwaitCopies(left) => {
                        // Each lane waits for its own; those of others stay under way.
                        while self.copies.len() > left {
                            let group = self.copies.pop_front().unwrap_or_default();
                            let (mine, others): (Vec<_>, Vec<_>) =
                                group.into_iter().partition(|copy| mask >> copy.lane & 1 != 0);
                            mine.iter().try_for_each(|copy| reach.arrive(copy))?;
                            if !others.is_empty() {
                                return Err("lanes wait for copies one after another, which is not known here".into());
                            }
                        }
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn special(&self, special: Special, lane: u32, launch: &Launch<'_>, block: [u32; 3]) -> u64 {
        let ([x, y, _], thread) = (launch.threads, 32 * self.number + lane);
        u64::from(match special {
            Special::Thread(0) => thread % x,
            Special::Thread(1) => thread / x % y,
            Special::Thread(_) => thread / x / y,
            Special::Threads(axis) => launch.threads[axis],
            Special::Block(axis) => block[axis],
            Special::Blocks(axis) => launch.blocks[axis],
            Special::Lane => lane,
            Special::Warp => self.number,
            Special::Multiprocessor => block[0] % crate::limits::MULTIPROCESSORS,
            Special::Clock => return self.steps,
        })
    }

    fn fault(&self, launch: &Launch<'_>, block: [u32; 3], i: &Instruction, mask: u32, why: &str) -> Fault {
        Fault(format!(
            "{}, block {block:?}, warp {}, lanes {mask:08x}: '{}': {why}",
            launch.kernel.name, self.number, i.text
        ))
    }

    pub(crate) fn stuck(&self, launch: &Launch<'_>, block: [u32; 3]) -> Fault {
        let wait = |group: &Group| format!("{:08x} at '{}'", group.mask, launch.kernel.code[group.at].text);
        let held = self.held.iter().map(|group| Group { at: group.at - 1, ..*group });
        let all: Vec<String> = self.groups.iter().copied().chain(held).map(|group| wait(&group)).collect();
        Fault(format!(
            "{}, block {block:?}, warp {}: lanes wait for others that never come: {}",
            launch.kernel.name,
            self.number,
            all.join(", ")
        ))
    }
}
