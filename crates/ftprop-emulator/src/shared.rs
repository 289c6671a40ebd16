//! The memory that the threads of a block share, and who touched what since the last barrier.

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    /// Safe beside other atomics.
    Atomic,
}

/// Who touched four bytes last, and between which barriers; a warp's number is one more than it is, 0 is nobody.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    written: (u32, u16),
    read: (u32, u16),
}

/// Stands for several warps.
const SEVERAL: u16 = u16::MAX;

/// A block's shared memory.
pub(crate) struct SharedMemory {
    words: Vec<u64>,
    bytes: usize,
    marks: Vec<Mark>,
    /// How many barriers there have been.
    barriers: u32,
}

impl SharedMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        // What nobody wrote is no number, as in the rest of the memory.
        let marks = vec![Mark::default(); bytes.div_ceil(4)];
        SharedMemory { words: vec![u64::MAX; bytes.div_ceil(8)], bytes, marks, barriers: 1 }
    }

    /// As new.
    pub(crate) fn clear(&mut self) {
        self.words.fill(u64::MAX);
        self.settle();
    }

    /// All threads of the block have met: what was touched before is settled.
    pub(crate) fn settle(&mut self) {
        self.barriers += 1;
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
        let (now, me) = (self.barriers, warp as u16 + 1);
        let first = address as usize / 4;
        for (at, mark) in self.marks[first..][..bytes.div_ceil(4)].iter_mut().enumerate() {
            let other = |(when, who): (u32, u16)| when == now && who != me;
            let conflict = match touch {
                Touch::Atomic => continue,
                Touch::Read => other(mark.written).then_some(("wrote", mark.written.1)),
                Touch::Write if other(mark.written) => Some(("wrote", mark.written.1)),
                Touch::Write => other(mark.read).then_some(("read", mark.read.1)),
            };
            if let Some((what, who)) = conflict {
                let who = if who == SEVERAL { "other warps".into() } else { format!("warp {}", who - 1) };
                let doing = if touch == Touch::Read { "read" } else { "written" };
                let address = 4 * (first + at);
                return Err(format!("shared byte {address} is {doing}, which {who} {what}, and no barrier is between"));
            }
            match touch {
                Touch::Write => mark.written = (now, me),
                _ if mark.read.0 == now && mark.read.1 != me => mark.read.1 = SEVERAL,
                _ => mark.read = (now, me),
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
        let mut shared = SharedMemory::new(64);
        assert!(shared.note(0, 16, 0, Touch::Write).is_ok() && shared.note(4, 4, 0, Touch::Read).is_ok());
        let told = shared.note(12, 4, 1, Touch::Read).unwrap_err();
        assert!(told.contains("byte 12") && told.contains("warp 0 wrote"), "{told}");
        shared.settle();
        assert!(shared.note(0, 4, 1, Touch::Read).is_ok() && shared.note(0, 4, 2, Touch::Read).is_ok());
        assert!(shared.note(0, 4, 1, Touch::Write).unwrap_err().contains("other warps read"));
        assert!(shared.note(8, 4, 1, Touch::Atomic).is_ok() && shared.note(8, 4, 2, Touch::Atomic).is_ok());
        assert!(shared.place(60, 4).is_ok() && shared.place(60, 8).is_err() && shared.place(2, 4).is_err());
    }
}
