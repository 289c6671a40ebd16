//! The memory that the threads of a block share, and who touched what since the last barrier.

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    /// Safe beside other atomics.
    Atomic,
}

/// Who touched four bytes last, and when; readers as bits.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    written: (u32, u32),
    read: (u32, u32),
}

/// A block's shared memory.
pub(crate) struct SharedMemory {
    words: Vec<u64>,
    bytes: usize,
    marks: Vec<Mark>,
    /// How many barriers there have been, of all threads or of a part.
    now: u32,
    /// What was before this is settled for all.
    settled: u32,
    /// The same of what the second warp did for the first, in rows.
    between: Vec<u32>,
    warps: usize,
}

impl SharedMemory {
    pub(crate) fn new(bytes: usize, warps: usize) -> Self {
        // What nobody wrote is no number, as in the rest of the memory.
        let (words, marks) = (vec![u64::MAX; bytes.div_ceil(8)], vec![Mark::default(); bytes.div_ceil(4)]);
        SharedMemory { words, bytes, marks, now: 1, settled: 1, between: vec![0; warps * warps], warps }
    }

    /// As new.
    pub(crate) fn clear(&mut self) {
        self.words.fill(u64::MAX);
        self.settle();
    }

    /// All threads of the block have met: what was touched before is settled.
    pub(crate) fn settle(&mut self) {
        self.now += 1;
        self.settled = self.now;
    }

    /// Some warps have met: what they did before, and what was settled for any of them, is settled for each.
    pub(crate) fn settle_between(&mut self, warps: &[usize]) {
        self.now += 1;
        for other in 0..self.warps {
            let known = warps.iter().map(|&warp| self.between[warp * self.warps + other]).max().unwrap_or(0);
            let known = if warps.contains(&other) { self.now } else { known };
            warps.iter().for_each(|&warp| self.between[warp * self.warps + other] = known);
        }
    }

    /// Whether what another warp did then comes before what this one does now.
    fn is_settled(&self, when: u32, warp: u32, other: u32) -> bool {
        when < self.settled || when < self.between[warp as usize * self.warps + other as usize]
    }

    /// One of some warps, as bits, beside this one whose doing is not settled.
    fn unsettled(&self, (when, who): (u32, u32), warp: u32) -> Option<u32> {
        if when < self.settled || who & !(1 << warp) == 0 {
            return None;
        }
        (0..32).find(|&other| other != warp && who >> other & 1 == 1 && !self.is_settled(when, warp, other))
    }

    /// The host's address of bytes that are there.
    pub(crate) fn place(&mut self, address: u64, bytes: usize) -> Result<*mut u8, String> {
        let inside = address.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes as u64);
        match inside && address.is_multiple_of(bytes as u64) {
            // SAFETY: so many bytes are there, and these are among them.
            true => Ok(unsafe { self.words.as_mut_ptr().cast::<u8>().add(address as usize) }),
            false => Err(format!("{bytes} bytes at {address} of {} shared", self.bytes)),
        }
    }

    /// Notes that a warp touches bytes that are there, and tells where another did so too without a barrier between, one of
    /// them writing.
    pub(crate) fn note(&mut self, address: u64, bytes: usize, warp: u32, touch: Touch) -> Result<(), String> {
        let (now, me) = (self.now, 1u32 << warp);
        let first = address as usize / 4;
        for at in first..first + bytes.div_ceil(4) {
            let mark = self.marks[at];
            let wrote = || self.unsettled(mark.written, warp).map(|who| ("wrote", who));
            let conflict = match touch {
                Touch::Atomic => continue,
                Touch::Read => wrote(),
                Touch::Write => wrote().or_else(|| self.unsettled(mark.read, warp).map(|who| ("read", who))),
            };
            if let Some((what, who)) = conflict {
                let doing = if touch == Touch::Read { "read" } else { "written" };
                return Err(format!(
                    "shared byte {} is {doing}, which warp {who} {what}, and no barrier is between",
                    4 * at
                ));
            }
            // Of several readers the last one's time is kept, which may be too strict and is never too lax.
            let readers = if mark.read.0 >= self.settled { mark.read.1 } else { 0 };
            match touch {
                Touch::Write => self.marks[at].written = (now, me),
                _ => self.marks[at].read = (now, readers | me),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_what_others_touch_needs_a_barrier() {
        let mut shared = SharedMemory::new(64, 4);
        assert!(shared.note(0, 16, 0, Touch::Write).is_ok() && shared.note(4, 4, 0, Touch::Read).is_ok());
        let told = shared.note(12, 4, 1, Touch::Read).unwrap_err();
        assert!(told.contains("byte 12") && told.contains("warp 0 wrote"), "{told}");
        shared.settle();
        assert!(shared.note(0, 4, 1, Touch::Read).is_ok() && shared.note(0, 4, 2, Touch::Read).is_ok());
        assert!(shared.note(0, 4, 1, Touch::Write).unwrap_err().contains("warp 2 read"));
        assert!(shared.note(8, 4, 1, Touch::Atomic).is_ok() && shared.note(8, 4, 2, Touch::Atomic).is_ok());
        assert!(shared.place(60, 4).is_ok() && shared.place(60, 8).is_err() && shared.place(2, 4).is_err());
    }

    #[test]
    fn a_barrier_of_some_warps_settles_what_they_did() {
        let mut shared = SharedMemory::new(64, 4);
        shared.note(0, 4, 0, Touch::Write).unwrap();
        shared.note(8, 4, 2, Touch::Write).unwrap();
        shared.settle_between(&[0, 1]);
        assert!(shared.note(0, 4, 1, Touch::Read).is_ok());
        // Another warp was not there, nor does it know by one that was.
        assert!(shared.note(0, 4, 2, Touch::Read).is_err() && shared.note(8, 4, 1, Touch::Read).is_err());
        shared.settle_between(&[1, 2]);
        assert!(shared.note(0, 4, 2, Touch::Read).is_ok() && shared.note(8, 4, 1, Touch::Read).is_ok());
        // What is done after a barrier is not settled by it.
        shared.note(12, 4, 1, Touch::Write).unwrap();
        assert!(shared.note(12, 4, 2, Touch::Read).is_err());
    }
}
