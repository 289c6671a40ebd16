//! The ring by MPI: the same messages to the same ranks in the same order, so sums have the same bytes as over TCP.
//!
//! MPI belongs to a thread of its own. It waits in calls that nothing can end, and a rank must be able to stop when another is
//! lost: then the thread is left where it is, and the process ends without it. Who is lost is found out over TCP as always.

use crate::error::RankError;
use crate::group::Transport;
use crate::ring::Ring;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::point_to_point::send_receive_into;
use mpi::topology::Communicator;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often somebody who waits looks whether a rank was lost.
const LOOK: Duration = Duration::from_millis(100);

/// What goes out, and room for what comes in.
type Message = (Vec<u8>, Vec<u8>);

/// The ring, with a thread that passes its messages on.
pub(crate) struct MpiRing {
    ring: Ring,
    asks: Option<Sender<Message>>,
    answers: Receiver<Message>,
    thread: Option<JoinHandle<()>>,
    /// The buffers of the last message.
    spare: Message,
}

impl MpiRing {
    /// Takes over from a ring of connections.
    pub(crate) fn new(ring: Ring) -> Result<Self, RankError> {
        let ((asks, asked), (answered, answers)) = (channel::<Message>(), channel());
        let (begun, begins) = channel();
        let (rank, size) = (ring.rank, ring.size);
        let work = move || {
            let universe = match begin(rank, size) {
                Ok(universe) => universe,
                // Whoever waits for it is still there.
                Err(error) => return drop(begun.send(Err(error))),
            };
            let world = universe.world();
            if begun.send(Ok(())).is_err() {
                return;
            }
            let at = |rank: usize| world.process_at_rank((rank % size) as i32);
            let (next, previous) = (at(rank + 1), at(rank + size - 1));
            for (out, mut into) in asked {
                send_receive_into(&out[..], &next, &mut into[..], &previous);
                if answered.send((out, into)).is_err() {
                    // Nobody waits any more because a rank is lost: to end MPI would be to wait for it.
                    return std::mem::forget(universe);
                }
            }
        };
        let failed = |why: String| RankError::Mpi { why };
        let thread = std::thread::Builder::new().name("ftprop-rank-mpi".into()).spawn(work);
        let thread = Some(thread.map_err(|e| failed(e.to_string()))?);
        begins.recv().unwrap_or_else(|_| Err(failed("its thread ended".into())))?;
        Ok(MpiRing { ring, asks: Some(asks), answers, thread, spare: Message::default() })
    }
}

/// Begins with MPI, which must see the same ranks.
fn begin(rank: usize, size: usize) -> Result<Universe, RankError> {
    let begun = mpi::initialize_with_threading(Threading::Funneled);
    let Some((universe, _)) = begun else { return Err(RankError::Mpi { why: "it has begun already".into() }) };
    let world = universe.world();
    let (own, all) = (world.rank() as usize, world.size() as usize);
    if (own, all) == (rank, size) {
        return Ok(universe);
    }
    let (one, other) = (format!("rank {rank} of {size}"), format!("MPI's rank {own} of {all}"));
    Err(RankError::Contradiction { one, other })
}

impl Transport for MpiRing {
    fn rank(&self) -> usize {
        self.ring.rank
    }

    fn size(&self) -> usize {
        self.ring.size
    }

    fn pass(&mut self, out: &[u8], into: &mut [u8]) -> Result<(), RankError> {
        self.ring.shared.begin()?;
        let (mut going, mut coming) = std::mem::take(&mut self.spare);
        going.clear();
        going.extend_from_slice(out);
        coming.resize(into.len(), 0);
        let ended = || RankError::Mpi { why: "its thread ended".into() };
        self.asks.as_ref().ok_or_else(ended)?.send((going, coming)).map_err(|_| ended())?;
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(message) => {
                    into.copy_from_slice(&message.1);
                    self.spare = message;
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => self.ring.shared.failure().map_or(Ok(()), Err)?,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
    }

    fn abandon(&mut self, why: &str) {
        self.ring.abandon(why);
    }

    fn on_loss(&mut self, then: Box<dyn FnOnce() + Send>) {
        self.ring.on_loss(then);
    }
}

impl Drop for MpiRing {
    fn drop(&mut self) {
        self.asks = None;
        // MPI ends when all ranks end it, which they do not where one was lost.
        if let (Some(thread), None) = (self.thread.take(), self.ring.shared.failure()) {
            let _ = thread.join();
        }
    }
}
