//! Where ranks meet: at rank 0, over TCP.
//!
//! Each of the others connects, proves that it knows the token, and says what it is about to do: its claims, such as its
//! version, recipe and data. Rank 0 compares them with its own and refuses the first that differ, with both. When all are there
//! it tells each where the others are, and they close a ring of connections among them.

use crate::accept::{Door, Guest};
#[cfg(feature = "mpi")]
use crate::by_mpi::MpiRing;
use crate::environment::Launcher;
use crate::error::RankError;
use crate::group::Group;
use crate::ring::Ring;
use crate::token::Token;
use crate::watch::{Peer, Shared, Watch, lost};
use crate::wire::{self, Kind, Purpose};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one connection may take to be made and to prove itself.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long somebody may turn us away before we believe it.
const TURNED_AWAY: Duration = Duration::from_secs(10);
/// How often rank 0 looks whether it waits in vain.
const LOOK: Duration = Duration::from_millis(200);
/// How long those who come late hear why the meeting failed.
const GRACE: Duration = Duration::from_secs(2);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// Says why nobody needs to be waited for any longer, if that is known.
pub type GivenUp = Arc<dyn Fn() -> Option<RankError> + Send + Sync>;

/// What a meeting is to be like.
#[derive(Clone)]
pub struct Meeting {
    /// Rank 0's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What all must know.
    pub token: Token,
    /// What all must agree in: names and values.
    pub claims: Vec<(String, String)>,
    /// How long all have to come.
    pub patience: Duration,
    /// After how long a rank that is silent, or does not go on, counts as lost.
    pub timeout: Duration,
    /// Looked at by rank 0 while it waits.
    pub given_up: Option<GivenUp>,
    /// How messages go, once all have met.
    pub messages: Messages,
}

/// How messages go from a rank to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Over a ring of TCP connections.
    #[default]
    Tcp,
    /// By MPI, whose launcher must have started the ranks.
    #[cfg(feature = "mpi")]
    Mpi,
}

impl Messages {
    /// What suits ranks that were started so: MPI where its launcher did and this was built for it.
    pub fn suiting(_launcher: Launcher) -> Self {
        #[cfg(feature = "mpi")]
        if matches!(_launcher, Launcher::OpenMpi | Launcher::Pmi) {
            return Messages::Mpi;
        }
        Messages::Tcp
    }

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Messages::Tcp => "TCP",
            #[cfg(feature = "mpi")]
            Messages::Mpi => "MPI",
        }
    }
}

/// What a rank says of itself.
#[derive(Serialize, Deserialize)]
struct Hello {
    size: usize,
    name: String,
    /// Where it waits for the one before it in the ring.
    port: u16,
    claims: Vec<(String, String)>,
}

/// A rank that has come.
struct Joined {
    stream: TcpStream,
    hello: Hello,
}

/// All who have come to rank 0, in order, and the ring's connection from the last of them if that was quicker.
type All = (Vec<(usize, Joined)>, Option<TcpStream>);

/// What a rank has once all have come: where the one before it in the ring will come to, where all are, who is watched, and
/// the ring's connection where it is there already.
type Arrived = (Door, Vec<String>, Vec<Peer>, Option<TcpStream>);

impl Meeting {
    /// Opens the meeting point, so that it is there before anybody is sent to it. Port 0 takes any that is free; the one
    /// taken is written into the meeting.
    pub fn open(&mut self) -> Result<TcpListener, RankError> {
        let failed = |why: String| RankError::Meeting { what: "open the meeting point", address: self.address(), why };
        let mut resolved = resolve(&self.host, self.port).map_err(&failed)?;
        // A name that leads here from outside, such as a service's, is no address of this machine.
        resolved.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port)));
        let mut listener = TcpListener::bind(resolved[0]);
        if listener.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::AddrNotAvailable) {
            listener = TcpListener::bind(&resolved[1..]);
        }
        let listener = listener.map_err(|e| failed(e.to_string()))?;
        self.port = listener.local_addr().map_err(|e| failed(e.to_string()))?.port();
        Ok(listener)
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Meets the others as one of `size` ranks. Rank 0 may bring the listener that it [opened](Self::open).
    pub fn join(mut self, rank: usize, size: usize, listener: Option<TcpListener>) -> Result<Group, RankError> {
        if size == 1 {
            return Ok(Group::alone());
        }
        self.claims.push(("messages by".into(), self.messages.name().into()));
        let until = Instant::now() + self.patience;
        let (door, addresses, peers, ring_guest) = if rank == 0 {
            let listener = listener.map_or_else(|| self.open(), Ok)?;
            let mut door = Door::new(listener, self.token.clone()).map_err(|e| self.failed("listen at", &e))?;
            let (joined, guest) = self.receive_all(size, &mut door, until)?;
            let (addresses, peers) = self.welcome(joined)?;
            (door, addresses, peers, guest)
        } else {
            self.come(rank, size, until)?
        };
        self.close_ring((rank, size), door, &addresses, peers, ring_guest, until)
    }

    /// Waits at rank 0 until all have come and agree.
    fn receive_all(&self, size: usize, door: &mut Door, until: Instant) -> Result<All, RankError> {
        let mut joined: Vec<Option<Joined>> = (0..size).map(|_| None).collect();
        let mut early = None;
        loop {
            let missing: Vec<usize> = (1..size).filter(|&rank| joined[rank].is_none()).collect();
            if missing.is_empty() {
                let joined = joined.into_iter().enumerate().filter_map(|(rank, j)| Some((rank, j?))).collect();
                return Ok((joined, early));
            }
            let Some(guest) = door.next(until.min(Instant::now() + LOOK))? else {
                let mut error = self.given_up.as_ref().and_then(|given_up| given_up());
                if error.is_none() && Instant::now() >= until {
                    let (waited, refused) = (self.patience, door.refused);
                    error = Some(RankError::Absent { missing, size, address: self.address(), waited, refused });
                }
                let Some(error) = error else { continue };
                refuse(joined.into_iter().flatten(), &error);
                return Err(error);
            };
            let Guest { mut stream, purpose, rank } = guest;
            if purpose == Purpose::Ring {
                early = Some(stream).filter(|_| rank + 1 == size).or(early);
                continue;
            }
            let Some(hello) = receive_hello(&mut stream) else { continue };
            let new = Joined { stream, hello };
            let wrong = match joined.get(rank).map(Option::as_ref) {
                _ if new.hello.size != size => Some(differs(rank, "WORLD_SIZE", new.hello.size, size)),
                None => Some(differs(rank, "the rank", rank, 0)),
                Some(_) if rank == 0 => Some(RankError::Twice { rank }),
                // One that died while it waited may come again.
                Some(Some(before)) if is_there(&before.stream) => Some(RankError::Twice { rank }),
                _ => self.compare(rank, &new.hello.claims),
            };
            if let Some(error) = wrong {
                refuse(joined.into_iter().flatten().chain([new]), &error);
                self.tell_latecomers(door, &error);
                return Err(error);
            }
            joined[rank] = Some(new);
        }
    }

    /// Those who are on their way hear why nothing comes of it, and do not wait for somebody who is gone.
    fn tell_latecomers(&self, door: &mut Door, error: &RankError) {
        let until = Instant::now() + GRACE;
        while let Ok(Some(Guest { mut stream, .. })) = door.next(until) {
            if let Some(hello) = receive_hello(&mut stream) {
                refuse([Joined { stream, hello }].into_iter(), error);
            }
        }
    }

    /// In what a rank's claims differ from ours.
    fn compare(&self, rank: usize, theirs: &[(String, String)]) -> Option<RankError> {
        let value = |claims: &[(String, String)], name: &str| {
            claims.iter().find(|(n, _)| n == name).map_or_else(|| "not set".to_string(), |(_, value)| value.clone())
        };
        let names = self.claims.iter().chain(theirs).map(|(name, _)| name);
        let differing = names.into_iter().find(|name| value(&self.claims, name) != value(theirs, name))?;
        Some(RankError::Differs {
            rank,
            what: differing.clone(),
            theirs: value(theirs, differing),
            ours: value(&self.claims, differing),
        })
    }

    /// Tells everybody where everybody is.
    fn welcome(&self, joined: Vec<(usize, Joined)>) -> Result<(Vec<String>, Vec<Peer>), RankError> {
        let mut addresses = vec![self.address()];
        for (_, Joined { stream, hello }) in &joined {
            let address = stream.peer_addr().map_err(|e| self.failed("look at", &e))?;
            addresses.push(SocketAddr::from((address.ip(), hello.port)).to_string());
        }
        let body = serde_json::to_vec(&addresses).unwrap_or_default();
        let mut peers = Vec::new();
        for (rank, Joined { mut stream, hello }) in joined {
            let name = hello.name;
            wire::send(&mut stream, Kind::Welcome, &body).map_err(|_| lost(&name, "left before all had come"))?;
            peers.push(Peer { rank, name, stream });
        }
        Ok((addresses, peers))
    }

    /// Comes to rank 0 and waits for its word.
    fn come(&self, rank: usize, size: usize, until: Instant) -> Result<Arrived, RankError> {
        let mut stream = connect(&self.address(), &self.token, Purpose::Join, rank, until)?;
        let failed = |e: std::io::Error| self.failed("talk to", &e);
        let own = stream.local_addr().map_err(failed)?.ip();
        let listener = TcpListener::bind((own, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let hello = Hello { size, name: name_of(rank), port, claims: self.claims.clone() };
        let body = serde_json::to_vec(&hello).unwrap_or_default();
        wire::send(&mut stream, Kind::Hello, &body).map_err(failed)?;
        let door = Door::new(listener, self.token.clone()).map_err(failed)?;
        let first = "rank 0";
        loop {
            match wire::receive(&mut stream, CONNECTING) {
                Ok((Kind::Welcome, body)) => {
                    let addresses: Vec<String> = serde_json::from_slice(&body).unwrap_or_default();
                    if addresses.len() != size {
                        return Err(lost(first, "knows of another number of ranks"));
                    }
                    let peer = Peer { rank: 0, name: format!("{first} ({})", self.address()), stream };
                    return Ok((door, addresses, vec![peer], None));
                }
                Ok((Kind::Refused, body)) => {
                    let why = String::from_utf8_lossy(&body).into_owned();
                    return Err(RankError::Meeting { what: "join the ranks at", address: self.address(), why });
                }
                Err(e) if wire::is_timeout(&e) && Instant::now() < until + CONNECTING => {}
                _ => return Err(lost(first, "left before all had come")),
            }
        }
    }

    /// Connects each rank to the next, and begins to watch.
    fn close_ring(
        &self,
        (rank, size): (usize, usize),
        mut door: Door,
        addresses: &[String],
        peers: Vec<Peer>,
        early: Option<TcpStream>,
        until: Instant,
    ) -> Result<Group, RankError> {
        let before = (rank + size - 1) % size;
        let until = until.max(Instant::now() + TURNED_AWAY);
        // Both at once: whoever connects waits for the other end to let it in.
        let (next, previous) = std::thread::scope(|scope| {
            let to = &addresses[(rank + 1) % size];
            let next = scope.spawn(|| connect(to, &self.token, Purpose::Ring, rank, until));
            let mut previous = early;
            while previous.is_none() {
                match door.next(until) {
                    Ok(Some(guest)) if guest.purpose == Purpose::Ring && guest.rank == before => {
                        previous = Some(guest.stream)
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            let joined = next.join().unwrap_or_else(|_| Err(lost("the thread that connects", "panicked")));
            (joined, previous)
        });
        let (next, absent) = (next?, || lost(&format!("rank {before}"), "did not connect to the rank after it"));
        let previous = previous.ok_or_else(absent)?;
        let shared = Shared::new();
        let failed = |e: std::io::Error| self.failed("keep the connections of", &e);
        for stream in [&next, &previous] {
            stream.set_nodelay(true).map_err(failed)?;
            stream.set_read_timeout(None).map_err(failed)?;
            stream.set_write_timeout(None).map_err(failed)?;
            shared.close_on_failure(stream.try_clone().map_err(failed)?);
        }
        let watch = Watch::start(name_of(rank), peers, shared.clone(), self.timeout).map_err(failed)?;
        let ring = Ring { rank, size, next, previous, shared, watch };
        match self.messages {
            Messages::Tcp => Ok(Group::new(Box::new(ring))),
            #[cfg(feature = "mpi")]
            Messages::Mpi => Ok(Group::new(Box::new(MpiRing::new(ring)?))),
        }
    }

    fn failed(&self, what: &'static str, why: &std::io::Error) -> RankError {
        RankError::Meeting { what, address: self.address(), why: why.to_string() }
    }
}

fn differs(rank: usize, what: &str, theirs: usize, ours: usize) -> RankError {
    RankError::Differs { rank, what: what.into(), theirs: theirs.to_string(), ours: ours.to_string() }
}

fn refuse(joined: impl Iterator<Item = Joined>, error: &RankError) {
    for Joined { mut stream, .. } in joined {
        // Who has gone already needs no word.
        let _ = wire::send(&mut stream, Kind::Refused, error.to_string().as_bytes());
    }
}

fn receive_hello(stream: &mut TcpStream) -> Option<Hello> {
    stream.set_read_timeout(Some(CONNECTING)).ok()?;
    stream.set_write_timeout(Some(CONNECTING)).ok()?;
    match wire::receive(stream, CONNECTING) {
        Ok((Kind::Hello, body)) => serde_json::from_slice(&body).ok(),
        _ => None,
    }
}

/// Whether the other end has not closed a connection over which it has nothing to say yet.
fn is_there(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let _ = stream.set_nonblocking(false);
    peeked.is_err_and(|e| wire::is_timeout(&e))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::from((ip, port))],
        Err(_) => (host, port).to_socket_addrs().map_err(|e| e.to_string())?.collect(),
    };
    if found.is_empty() { Err("the name has no address".into()) } else { Ok(found) }
}

/// Connects and proves itself, again and again until then.
fn connect(
    address: &str,
    token: &Token,
    purpose: Purpose,
    rank: usize,
    until: Instant,
) -> Result<TcpStream, RankError> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut turned_away: Option<Instant> = None;
    loop {
        let tried = resolve(host, port.parse().unwrap_or(0)).and_then(|all| {
            let mut last = String::new();
            for one in all {
                match TcpStream::connect_timeout(&one, CONNECTING) {
                    Ok(stream) => return Ok(stream),
                    Err(e) => last = e.to_string(),
                }
            }
            Err(last)
        });
        let why = match tried {
            Ok(mut stream) => {
                if wire::introduce(&mut stream, token, purpose, rank, CONNECTING)? {
                    return Ok(stream);
                }
                let since = *turned_away.get_or_insert_with(Instant::now);
                if since.elapsed() > TURNED_AWAY || Instant::now() >= until {
                    return Err(RankError::Stranger { address: address.into() });
                }
                String::new()
            }
            Err(why) => why,
        };
        if Instant::now() >= until {
            return Err(match turned_away {
                Some(_) => RankError::Stranger { address: address.into() },
                None => RankError::Meeting { what: "reach the ranks at", address: address.into(), why },
            });
        }
        std::thread::sleep(AGAIN);
    }
}

/// Which one, for people.
fn name_of(rank: usize) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("COMPUTERNAME").ok());
    let host = host.map(|host| format!("{}, ", host.trim())).unwrap_or_default();
    format!("rank {rank} ({host}process {})", std::process::id())
}
