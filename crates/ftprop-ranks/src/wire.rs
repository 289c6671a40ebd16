//! What goes over a connection: first the proof that both ends know the token, then messages of bounded length.

use crate::RankError;
use crate::token::{PROOF, Token, random};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What every connection begins with: whose it is, and how it goes on. Another number here is another protocol.
pub(crate) const MAGIC: [u8; 8] = *b"ftprank1";

/// What an accepting end says first.
pub(crate) const GREETING: usize = MAGIC.len() + PROOF;
/// What a connecting end answers: whose, what for, its rank, its random number, its proof.
pub(crate) const ANSWER: usize = MAGIC.len() + 1 + 4 + PROOF + PROOF;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To join, and for heartbeats.
    Join = 1,
    /// From a rank to the next in the ring.
    Ring = 2,
}

impl Purpose {
    fn of(byte: u8) -> Option<Self> {
        [Purpose::Join, Purpose::Ring].into_iter().find(|purpose| *purpose as u8 == byte)
    }
}

/// The accepting end's greeting, with its random number.
pub(crate) fn greeting(nonce: &[u8; PROOF]) -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    greeting[MAGIC.len()..].copy_from_slice(nonce);
    greeting
}

/// What an answer to a greeting says, if it proves that it may.
pub(crate) fn check_answer(
    token: &Token,
    nonce: &[u8; PROOF],
    answer: &[u8; ANSWER],
) -> Option<(Purpose, usize, [u8; PROOF])> {
    let (said, proof) = answer.split_at(ANSWER - PROOF);
    let expected = token.proof("join", &[nonce, said]);
    // Compared in constant time, before anything in it is believed.
    let proof: [u8; PROOF] = proof.try_into().ok()?;
    if expected != blake3::Hash::from_bytes(proof) || said[..MAGIC.len()] != MAGIC {
        return None;
    }
    let (purpose, rest) = said[MAGIC.len()..].split_first()?;
    let rank = u32::from_le_bytes(rest[..4].try_into().ok()?) as usize;
    let theirs: [u8; PROOF] = rest[4..].try_into().ok()?;
    Some((Purpose::of(*purpose)?, rank, token.proof("accept", &[&theirs, nonce]).into()))
}

/// The connecting end's part: true where the other end knows the token.
pub(crate) fn introduce(
    stream: &mut TcpStream,
    token: &Token,
    purpose: Purpose,
    rank: usize,
    limit: Duration,
) -> Result<bool, RankError> {
    let own = random()?;
    let outcome = (|| -> io::Result<bool> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting)?;
        if greeting[..MAGIC.len()] != MAGIC {
            return Ok(false);
        }
        let nonce = &greeting[MAGIC.len()..];
        let mut answer = Vec::with_capacity(ANSWER);
        answer.extend_from_slice(&MAGIC);
        answer.push(purpose as u8);
        answer.extend_from_slice(&(rank as u32).to_le_bytes());
        answer.extend_from_slice(&own);
        let proof = token.proof("join", &[nonce, &answer]);
        answer.extend_from_slice(proof.as_bytes());
        stream.write_all(&answer)?;
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof)?;
        Ok(blake3::Hash::from_bytes(proof) == token.proof("accept", &[&own, nonce]))
    })();
    // Whoever hangs up in the middle did not want us.
    Ok(outcome.unwrap_or(false))
}

/// The kinds of message after joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What a rank is about to do, and where it can be reached.
    Hello = 1,
    /// All are there; the addresses of the ring.
    Welcome = 2,
    /// Somebody cannot take part; why.
    Refused = 3,
    /// Still alive: how many exchanges were begun.
    Beat = 4,
    /// The work is over because somebody was lost; who and why.
    Failed = 5,
    /// The work is done.
    Bye = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{Beat, Bye, Failed, Hello, Refused, Welcome};
        [Hello, Welcome, Refused, Beat, Failed, Bye].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The most bytes that such a message may have.
    fn most(self) -> usize {
        match self {
            Kind::Hello | Kind::Welcome => 1 << 20,
            Kind::Refused | Kind::Failed => 1 << 14,
            Kind::Beat => 8,
            Kind::Bye => 0,
        }
    }
}

/// Sends a message.
pub(crate) fn send(stream: &mut TcpStream, kind: Kind, body: &[u8]) -> io::Result<()> {
    let body = if matches!(kind, Kind::Refused | Kind::Failed) { &body[..body.len().min(kind.most())] } else { body };
    if body.len() > kind.most() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a message that is too long"));
    }
    let mut message = Vec::with_capacity(5 + body.len());
    message.extend_from_slice(&(body.len() as u32).to_le_bytes());
    message.push(kind as u8);
    message.extend_from_slice(body);
    stream.write_all(&message)
}

/// Receives a message. The stream's read timeout counts for its first byte (`WouldBlock` or `TimedOut` where none came);
/// the rest must follow within `limit`.
pub(crate) fn receive(stream: &mut TcpStream, limit: Duration) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    let first = stream.read(&mut head)?;
    if first == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let until = Instant::now() + limit;
    read_until(stream, &mut head[first..], until)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let kind = Kind::of(head[4]).filter(|kind| length <= kind.most());
    let Some(kind) = kind else { return Err(io::Error::new(ErrorKind::InvalidData, "not a message of ours")) };
    let mut body = vec![0; length];
    read_until(stream, &mut body, until)?;
    Ok((kind, body))
}

/// Reads all of it, over as many timeouts as fit.
fn read_until(stream: &mut TcpStream, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(e) if is_timeout(&e) && Instant::now() < until => {}
            Err(e) if is_timeout(&e) => return Err(io::Error::new(ErrorKind::InvalidData, "half a message")),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether nothing came in time, which differs between systems.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
