//! Letting in whoever knows the token, and nobody else.
//!
//! One thread looks after all connections that have not proved themselves. There are at most [`PENDING`] of them, each
//! costs a few hundred bytes and has [`PATIENCE`] to answer; whoever comes when all places are taken has the place of the one
//! that has been silent the longest, and a rank that was turned out so comes again. So strangers cost neither memory nor time
//! that grows with their number.

use crate::RankError;
use crate::token::{PROOF, Token, random};
use crate::wire::{self, ANSWER, Purpose};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that may be on their way to prove themselves.
const PENDING: usize = 256;
/// How long they have.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are accepted before the waiting ones are looked at again.
const AT_ONCE: usize = 64;
/// How long to sleep when there is nothing to do.
const IDLE: Duration = Duration::from_millis(1);

/// A door with a listener behind it.
pub(crate) struct Door {
    listener: TcpListener,
    token: Token,
    pending: VecDeque<Pending>,
    /// Connections that were turned away.
    pub(crate) refused: u64,
}

struct Pending {
    stream: TcpStream,
    since: Instant,
    nonce: [u8; PROOF],
    answer: [u8; ANSWER],
    got: usize,
}

/// Somebody who may come in.
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    pub(crate) purpose: Purpose,
    pub(crate) rank: usize,
}

/// What became of a connection.
enum Fate {
    Waits,
    Refused,
    Comes(Purpose, usize),
}

impl Door {
    pub(crate) fn new(listener: TcpListener, token: Token) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Door { listener, token, pending: VecDeque::new(), refused: 0 })
    }

    /// The next who proves that it may come in; nobody where none does until then.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Option<Guest>, RankError> {
        loop {
            let came = self.accept()?;
            if let Some(guest) = self.look_around() {
                return Ok(Some(guest));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            if !came {
                std::thread::sleep(IDLE);
            }
        }
    }

    /// Takes new connections; whether there were any.
    fn accept(&mut self) -> Result<bool, RankError> {
        for taken in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => self.greet(stream)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(taken > 0),
                // A connection that broke before it was taken, or no more places for open files: strangers' doing at most.
                Err(_) => {
                    self.refused += 1;
                    self.pending.pop_front();
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn greet(&mut self, mut stream: TcpStream) -> Result<(), RankError> {
        let nonce = random()?;
        let greeted = stream.set_nonblocking(true).is_ok()
            && stream.set_nodelay(true).is_ok()
            // A new connection has room for so little; one without is of no use.
            && stream.write(&wire::greeting(&nonce)).is_ok_and(|n| n == wire::GREETING);
        if !greeted {
            self.refused += 1;
            return Ok(());
        }
        if self.pending.len() >= PENDING {
            self.pending.pop_front();
            self.refused += 1;
        }
        self.pending.push_back(Pending { stream, since: Instant::now(), nonce, answer: [0; ANSWER], got: 0 });
        Ok(())
    }

    /// Looks at every waiting connection once, and gives the first that may come in.
    fn look_around(&mut self) -> Option<Guest> {
        for _ in 0..self.pending.len() {
            let mut pending = self.pending.pop_front()?;
            match pending.look(&self.token) {
                Fate::Waits => self.pending.push_back(pending),
                Fate::Refused => self.refused += 1,
                Fate::Comes(purpose, rank) => {
                    if pending.stream.set_nonblocking(false).is_ok() {
                        return Some(Guest { stream: pending.stream, purpose, rank });
                    }
                }
            }
        }
        None
    }
}

impl Pending {
    fn look(&mut self, token: &Token) -> Fate {
        match self.stream.read(&mut self.answer[self.got..]) {
            Ok(0) => return Fate::Refused,
            Ok(n) => self.got += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Fate::Refused,
        }
        if self.got < ANSWER {
            return if self.since.elapsed() > PATIENCE { Fate::Refused } else { Fate::Waits };
        }
        let Some((purpose, rank, proof)) = wire::check_answer(token, &self.nonce, &self.answer) else {
            return Fate::Refused;
        };
        match self.stream.write(&proof) {
            Ok(n) if n == proof.len() => Fate::Comes(purpose, rank),
            _ => Fate::Refused,
        }
    }
}
