//! A ring of TCP connections: each rank sends to the next and hears from the one before.

use crate::error::RankError;
use crate::group::Transport;
use crate::watch::{Shared, Watch, lost};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages of at most so many bytes fit into any connection's buffers: they are sent before anything is received.
/// Of longer ones both directions go at once.
const SMALL: usize = 16 << 10;
/// How long to wait for rank 0's word on who was lost, once a connection broke.
const WORD: Duration = Duration::from_secs(3);

/// The ring, as one rank sees it.
pub(crate) struct Ring {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) next: TcpStream,
    pub(crate) previous: TcpStream,
    pub(crate) shared: Arc<Shared>,
    pub(crate) watch: Watch,
}

impl Ring {
    /// What broke: what the watch knows of it, or else the connection itself.
    fn broken(&self, to: usize, why: &io::Error) -> RankError {
        let until = Instant::now() + WORD;
        while Instant::now() < until {
            if let Some(failure) = self.shared.failure() {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        lost(&format!("rank {to}"), &format!("cannot be reached any more: {why}"))
    }
}

impl Transport for Ring {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn pass(&mut self, out: &[u8], into: &mut [u8]) -> Result<(), RankError> {
        self.shared.begin()?;
        let (next, previous) = (&mut self.next, &mut self.previous);
        let before = (self.rank + self.size - 1) % self.size;
        let (sent, received) = if out.len() <= SMALL {
            (send(next, out), receive(previous, into))
        } else {
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| send(next, out));
                let received = receive(previous, into);
                (sending.join().unwrap_or_else(|_| Err(ErrorKind::Other.into())), received)
            })
        };
        if let Err(why) = sent {
            return Err(self.broken((self.rank + 1) % self.size, &why));
        }
        match received {
            Ok(got) if got == into.len() as u64 => Ok(()),
            Ok(got) => Err(RankError::OutOfStep { rank: before, got, expected: into.len() as u64 }),
            Err(why) => Err(self.broken(before, &why)),
        }
    }

    fn abandon(&mut self, why: &str) {
        self.watch.abandon(why);
    }

    fn on_loss(&mut self, then: Box<dyn FnOnce() + Send>) {
        self.shared.on_loss(then);
    }
}

fn send(next: &mut TcpStream, out: &[u8]) -> io::Result<()> {
    let length = (out.len() as u64).to_le_bytes();
    if out.len() <= SMALL {
        let mut message = Vec::with_capacity(8 + out.len());
        message.extend_from_slice(&length);
        message.extend_from_slice(out);
        return next.write_all(&message);
    }
    next.write_all(&length)?;
    next.write_all(out)
}

/// The length that was announced; the message is received where that is the expected one.
fn receive(previous: &mut TcpStream, into: &mut [u8]) -> io::Result<u64> {
    let mut length = [0; 8];
    previous.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length == into.len() as u64 {
        previous.read_exact(into)?;
    }
    Ok(length)
}
