//! What ranks do together.

use crate::RankError;
use std::time::{Duration, Instant};

/// How messages get from a rank to the next. The ranks stand in a ring.
pub trait Transport: Send {
    /// This one's number.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;
    /// Sends to the next rank while it receives from the one before, as many bytes as that sends.
    fn pass(&mut self, out: &[u8], into: &mut [u8]) -> Result<(), RankError>;
    /// Tells the others that this rank cannot go on.
    fn abandon(&mut self, why: &str);
    /// Has something done, from any thread, once another rank is lost. Does nothing where that is not found out.
    fn on_loss(&mut self, then: Box<dyn FnOnce() + Send>);
}

/// Ranks that work together. All must ask for the same things in the same order.
pub struct Group {
    transport: Option<Box<dyn Transport>>,
    rank: usize,
    size: usize,
    waited: Duration,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Group {
    /// A group of one.
    pub fn alone() -> Self {
        Group { transport: None, rank: 0, size: 1, waited: Duration::ZERO, out: Vec::new(), into: Vec::new() }
    }

    /// A group whose messages go this way.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        Group { transport: Some(transport), rank, size, ..Group::alone() }
    }

    /// This one's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How long this rank has been exchanging things by now, most of which is waiting for others.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Tells the others that this rank cannot go on.
    pub fn abandon(&mut self, why: &str) {
        if let Some(transport) = &mut self.transport {
            transport.abandon(why);
        }
    }

    /// Has something done, from any thread, once another rank is lost: ending what waits for it elsewhere.
    pub fn on_loss(&mut self, then: Box<dyn FnOnce() + Send>) {
        if let Some(transport) = &mut self.transport {
            transport.on_loss(then);
        }
    }

    /// Every value becomes its sum over all ranks, to the same bytes on each. The order of a sum depends on its place and
    /// on the number of ranks alone.
    pub fn sum(&mut self, values: &mut [f32]) -> Result<(), RankError> {
        let (rank, size, length) = (self.rank, self.size, values.len());
        let chunk = |number: usize| {
            let number = number % size;
            length * number / size..length * (number + 1) / size
        };
        // A chunk goes once around the ring and is added to on its way, then once more to be known to all.
        for step in 0..size - 1 {
            let (mine, theirs) = (chunk(rank + size - step), chunk(rank + 2 * size - step - 1));
            self.pass(&values[mine], theirs.len())?;
            let added = values[theirs].iter_mut().zip(self.into.chunks_exact(4));
            added.for_each(|(value, bytes)| *value += number(bytes));
        }
        for step in 0..size - 1 {
            let (mine, theirs) = (chunk(rank + 1 + size - step), chunk(rank + size - step));
            self.pass(&values[mine], theirs.len())?;
            let taken = values[theirs].iter_mut().zip(self.into.chunks_exact(4));
            taken.for_each(|(value, bytes)| *value = number(bytes));
        }
        Ok(())
    }

    /// What each rank brings, in the order of the ranks; all bring as many bytes.
    pub fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        let mut all = vec![Vec::new(); self.size];
        all[self.rank] = own.to_vec();
        for step in 0..self.size - 1 {
            let (mine, theirs) =
                ((self.rank + self.size - step) % self.size, (self.rank + 2 * self.size - step - 1) % self.size);
            let mut received = vec![0; own.len()];
            let sent = std::mem::take(&mut all[mine]);
            self.pass_bytes(&sent, &mut received)?;
            (all[mine], all[theirs]) = (sent, received);
        }
        Ok(all)
    }

    /// Rank 0's bytes, on every rank; what others bring does not count.
    pub fn share_first(&mut self, own: Vec<u8>) -> Result<Vec<u8>, RankError> {
        let mut length = [(own.len() as u64).to_le_bytes()].concat();
        self.hand_on(&mut length)?;
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
        let mut bytes = own;
        bytes.resize(length, 0);
        self.hand_on(&mut bytes)?;
        Ok(bytes)
    }

    /// From each rank to the next, beginning with the first.
    fn hand_on(&mut self, bytes: &mut Vec<u8>) -> Result<(), RankError> {
        for step in 0..self.size - 1 {
            // Everybody passes something at every step; only what comes from whom it has reached counts.
            let (sends, receives) = (self.rank == step, self.rank == step + 1);
            let mut received = vec![0; if receives { bytes.len() } else { 0 }];
            let sent = if sends { std::mem::take(bytes) } else { Vec::new() };
            self.pass_bytes(&sent, &mut received)?;
            if sends {
                *bytes = sent;
            } else if receives {
                *bytes = received;
            }
        }
        Ok(())
    }

    fn pass(&mut self, values: &[f32], length: usize) -> Result<(), RankError> {
        let (mut out, mut into) = (std::mem::take(&mut self.out), std::mem::take(&mut self.into));
        out.resize(4 * values.len(), 0);
        into.resize(4 * length, 0);
        out.chunks_exact_mut(4).zip(values).for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
        let passed = self.pass_bytes(&out, &mut into);
        (self.out, self.into) = (out, into);
        passed
    }

    fn pass_bytes(&mut self, out: &[u8], into: &mut [u8]) -> Result<(), RankError> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        let began = Instant::now();
        let passed = transport.pass(out, into);
        self.waited += began.elapsed();
        passed
    }
}

fn number(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_one_process;

    /// Runs the same work on so many ranks, and gives what each came to.
    fn together<T: Send>(size: usize, work: impl Fn(&mut Group) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let start = |mut group: Group| {
                let work = &work;
                scope.spawn(move || work(&mut group))
            };
            let threads: Vec<_> = in_one_process(size).into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn values(rank: usize, length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 31 + rank * 17) % 101) as f32 * 0.37 - 11.0).collect()
    }

    #[test]
    fn sums_are_right_and_the_same_bytes_everywhere() {
        for size in 1..=5 {
            for length in [0, 1, 2, 3, 7, 64, 1001] {
                let all = together(size, |group| {
                    let mut own = values(group.rank(), length);
                    group.sum(&mut own).unwrap();
                    own
                });
                for (i, sum) in all[0].iter().enumerate() {
                    let exact: f64 = (0..size).map(|rank| f64::from(values(rank, length)[i])).sum();
                    assert!((f64::from(*sum) - exact).abs() < 1e-4, "{size} ranks, {length} values, at {i}");
                }
                let bits = |v: &Vec<f32>| v.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                assert!(all.iter().all(|v| bits(v) == bits(&all[0])), "{size} ranks, {length} values");
            }
        }
    }

    #[test]
    fn everybody_gets_what_each_and_the_first_bring() {
        for size in 1..=5 {
            let gathered = together(size, |group| group.gather(&[group.rank() as u8, 9]).unwrap());
            let expected: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8, 9]).collect();
            assert!(gathered.iter().all(|all| *all == expected), "{gathered:?}");
            let first = together(size, |group| group.share_first(vec![7; 3 + 10 * group.rank()]).unwrap());
            assert!(first.iter().all(|bytes| *bytes == [7; 3]), "{first:?}");
        }
    }
}
