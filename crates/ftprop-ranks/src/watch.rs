//! Finding out who is gone, silent, or does not go on.
//!
//! Every rank keeps its connection to rank 0, and a thread of its own sends a beat over it: that it lives, and how many
//! exchanges it has begun. Rank 0 knows from that who was killed (the connection closes), who hangs or is cut off (no more
//! beats), and who lives but does not come to an exchange that others are in. It tells all the others, who then give up
//! waiting. Where rank 0 is the one, each of the others finds out by itself.

use crate::error::{RESUME, RankError};
use crate::wire::{self, Kind};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long half a message may take.
const HALF: Duration = Duration::from_secs(10);

/// What a rank's threads share.
pub(crate) struct Shared {
    /// Exchanges begun.
    begun: AtomicU64,
    /// Whether the work is done, so that closed connections mean nothing.
    done: AtomicBool,
    failure: Mutex<Option<RankError>>,
    /// What is done once somebody is lost, so that nobody waits any more.
    then: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Shared {
            begun: AtomicU64::new(0),
            done: AtomicBool::new(false),
            failure: Mutex::new(None),
            then: Mutex::new(Vec::new()),
        })
    }

    /// Has something done when somebody is lost.
    pub(crate) fn on_loss(&self, then: Box<dyn FnOnce() + Send>) {
        lock(&self.then).push(then);
    }

    /// Has a connection closed when somebody is lost.
    pub(crate) fn close_on_failure(&self, stream: TcpStream) {
        self.on_loss(Box::new(move || {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }));
    }

    /// An exchange begins.
    pub(crate) fn begin(&self) -> Result<(), RankError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.failure().map_or(Ok(()), Err)
    }

    /// Who was lost, if anybody was.
    pub(crate) fn failure(&self) -> Option<RankError> {
        lock(&self.failure).clone()
    }

    /// The first loss counts.
    fn fail(&self, error: RankError) {
        if !self.done.load(Ordering::Relaxed) {
            lock(&self.failure).get_or_insert(error);
            let then = std::mem::take(&mut *lock(&self.then));
            then.into_iter().for_each(|then| then());
        }
    }
}

/// Another rank, as this one is connected to it.
pub(crate) struct Peer {
    pub(crate) rank: usize,
    /// Which one, for people.
    pub(crate) name: String,
    pub(crate) stream: TcpStream,
}

/// The threads that watch, which end with it.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    /// Where it is told of a loss: rank 0, or all others.
    told: Vec<Arc<Mutex<TcpStream>>>,
    own: String,
    threads: Vec<JoinHandle<()>>,
}

/// What rank 0 knows of another.
struct Known {
    rank: usize,
    name: String,
    out: Arc<Mutex<TcpStream>>,
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    heard: Instant,
    begun: u64,
    left: bool,
}

impl Watch {
    /// Watches from rank 0, where all others are known, or from another rank, which knows rank 0.
    pub(crate) fn start(own: String, peers: Vec<Peer>, shared: Arc<Shared>, timeout: Duration) -> io::Result<Self> {
        let interval = (timeout / 10).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let mut known = Vec::new();
        for Peer { rank, name, stream } in peers {
            stream.set_read_timeout(Some(interval))?;
            stream.set_write_timeout(Some(timeout))?;
            let out = Arc::new(Mutex::new(stream.try_clone()?));
            let seen = Mutex::new(Seen { heard: Instant::now(), begun: 0, left: false });
            known.push((Arc::new(Known { rank, name, out, seen }), stream));
        }
        let told = known.iter().map(|(peer, _)| peer.out.clone()).collect();
        let all: Arc<Vec<Arc<Known>>> = Arc::new(known.iter().map(|(peer, _)| peer.clone()).collect());
        let mut threads = Vec::new();
        for (peer, stream) in known {
            let (shared, all) = (shared.clone(), all.clone());
            let listens = move || listen(&peer, stream, &all, &shared);
            threads.push(std::thread::Builder::new().name("ftprop-rank-listen".into()).spawn(listens)?);
        }
        let watched = shared.clone();
        let beats = move || beat(&all, &watched, timeout, interval);
        threads.push(std::thread::Builder::new().name("ftprop-rank-beat".into()).spawn(beats)?);
        Ok(Watch { shared, told, own, threads })
    }

    /// Tells the others that this rank cannot go on.
    pub(crate) fn abandon(&self, why: &str) {
        if self.shared.failure().is_none() && !self.shared.done.load(Ordering::Relaxed) {
            let what = format!("ended with an error: {why}");
            tell(&self.told, &self.own, &what);
            self.shared.fail(lost(&self.own, &what));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("it panicked");
        }
        self.shared.done.store(true, Ordering::Relaxed);
        for stream in &self.told {
            let mut stream = lock(stream);
            // Who is gone needs no good-bye.
            let _ = wire::send(&mut stream, Kind::Bye, &[]);
            let _ = stream.shutdown(Shutdown::Write);
        }
        for thread in self.threads.drain(..) {
            // Its panic would have nothing to add.
            let _ = thread.join();
        }
    }
}

/// Hears what another rank says, until it leaves.
fn listen(peer: &Known, mut stream: TcpStream, all: &[Arc<Known>], shared: &Shared) {
    loop {
        match wire::receive(&mut stream, HALF) {
            Ok((Kind::Beat, body)) => {
                let begun = body.try_into().map_or(0, u64::from_le_bytes);
                let mut seen = lock(&peer.seen);
                (seen.heard, seen.begun) = (Instant::now(), begun);
            }
            Ok((Kind::Failed, body)) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                let (who, what) = text.split_once('\0').unwrap_or((&peer.name, &text));
                others(all, peer.rank, who, what);
                lock(&peer.seen).left = true;
                return shared.fail(lost(who, what));
            }
            Ok((Kind::Bye, _)) => {
                lock(&peer.seen).left = true;
                return;
            }
            Err(e) if wire::is_timeout(&e) => {
                if shared.done.load(Ordering::Relaxed) || shared.failure().is_some() {
                    return;
                }
            }
            other => {
                let what = match other {
                    Err(e) if e.kind() != io::ErrorKind::InvalidData => "is gone: its connection closed",
                    _ => "sent what is no message of ours",
                };
                lock(&peer.seen).left = true;
                if !shared.done.load(Ordering::Relaxed) && shared.failure().is_none() {
                    others(all, peer.rank, &peer.name, what);
                    shared.fail(lost(&peer.name, what));
                }
                return;
            }
        }
    }
}

/// Sends beats, and looks who has been silent or has not come for too long.
fn beat(all: &[Arc<Known>], shared: &Shared, timeout: Duration, interval: Duration) {
    // The most exchanges that anybody has begun, and since when.
    let (mut most, mut since) = (0, Instant::now());
    let patience = timeout.saturating_sub(interval);
    while !shared.done.load(Ordering::Relaxed) {
        let own = shared.begun.load(Ordering::Relaxed);
        for peer in all.iter().filter(|peer| !lock(&peer.seen).left) {
            // Whoever cannot be written to is found by its silence.
            let _ = wire::send(&mut lock(&peer.out), Kind::Beat, &own.to_le_bytes());
        }
        let seen: Vec<Seen> = all.iter().map(|peer| *lock(&peer.seen)).collect();
        let now = seen.iter().map(|seen| seen.begun).max().unwrap_or(0).max(own);
        if now != most {
            (most, since) = (now, Instant::now());
        }
        for (peer, seen) in all.iter().zip(seen).filter(|(_, seen)| !seen.left) {
            let silent = seen.heard.elapsed() > patience;
            let behind = seen.begun < most && since.elapsed() > patience;
            if (silent || behind) && shared.failure().is_none() {
                let what = if silent {
                    format!("has not been heard of for {} s", timeout.as_secs())
                } else {
                    format!("does not go on: others have waited for it for {} s", timeout.as_secs())
                };
                others(all, peer.rank, &peer.name, &what);
                shared.fail(lost(&peer.name, &what));
            }
        }
        // A short sleep, so that the end is not waited for.
        let next = Instant::now() + interval;
        while Instant::now() < next && !shared.done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20).min(interval));
        }
    }
}

/// Tells all but the one it is about.
fn others(all: &[Arc<Known>], about: usize, who: &str, what: &str) {
    let told: Vec<_> = all.iter().filter(|peer| peer.rank != about).map(|peer| peer.out.clone()).collect();
    tell(&told, who, what);
}

fn tell(told: &[Arc<Mutex<TcpStream>>], who: &str, what: &str) {
    for stream in told {
        // Who is gone cannot be told.
        let _ = wire::send(&mut lock(stream), Kind::Failed, format!("{who}\0{what}").as_bytes());
    }
}

pub(crate) fn lost(who: &str, what: &str) -> RankError {
    RankError::Lost { who: who.into(), what: what.into(), hint: RESUME }
}

/// No invariant spans two locks, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
