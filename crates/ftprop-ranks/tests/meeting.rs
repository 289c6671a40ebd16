//! Ranks as threads that meet on the loopback device, and strangers who try to.

use ftprop_ranks::meeting::{Meeting, Messages};
use ftprop_ranks::{Group, RankError, Token};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const TOKEN: &str = "a token for tests, of no use elsewhere";

fn meeting(token: &str) -> Meeting {
    Meeting {
        host: "127.0.0.1".into(),
        port: 0,
        token: Token::new(token, "a test").unwrap(),
        claims: vec![("version".into(), "1".into()), ("train.batch".into(), "128".into())],
        patience: Duration::from_secs(20),
        timeout: Duration::from_secs(5),
        given_up: None,
        messages: Messages::Tcp,
    }
}

/// Has so many ranks meet and work; `change` may spoil what one of them says.
fn together<T: Send>(
    size: usize,
    change: impl Fn(usize, &mut Meeting) + Sync,
    work: impl Fn(&mut Group) -> T + Sync,
) -> Vec<Result<T, RankError>> {
    let mut first = meeting(TOKEN);
    let listener = first.open().unwrap();
    let port = first.port;
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let start = |rank: usize| {
            let mut own = Meeting { port, ..meeting(TOKEN) };
            change(rank, &mut own);
            let listener = listener.take().filter(|_| rank == 0);
            let work = &work;
            scope.spawn(move || own.join(rank, size, listener).map(|mut group| work(&mut group)))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_meet_and_sum() {
    for size in [1, 2, 3, 5] {
        // Short messages and long ones, which go through connections in other ways.
        for length in [1, 10, 40_000] {
            let sums = together(
                size,
                |_, _| {},
                |group| {
                    let mut values: Vec<f32> = (0..length).map(|i| (i + group.rank()) as f32).collect();
                    for _ in 0..3 {
                        group.sum(&mut values).unwrap();
                    }
                    assert_eq!(group.gather(&[group.rank() as u8]).unwrap().len(), size);
                    (values, group.share_first(vec![1 + group.rank() as u8; 3]).unwrap())
                },
            );
            let (values, first) = sums[0].as_ref().unwrap();
            assert_eq!(first, &[1; 3]);
            let scale = (size * size) as f32;
            assert_eq!(values[0], scale * (0..size).sum::<usize>() as f32);
            assert!(sums.iter().all(|sum| sum.as_ref().unwrap() == sums[0].as_ref().unwrap()), "{size} ranks");
        }
    }
}

#[test]
fn ranks_that_are_not_of_one_mind_are_refused_with_both_shown() {
    let spoil = |rank: usize, meeting: &mut Meeting| {
        if rank == 1 {
            meeting.claims[1].1 = "64".into();
        }
    };
    for refused in together(3, spoil, |_| ()) {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("train.batch 64") && message.contains("rank 0 has 128"), "{message}");
    }
    // One that knows of a setting that the other does not have.
    let more = |rank: usize, meeting: &mut Meeting| {
        if rank == 1 {
            meeting.claims.push(("train.clip".into(), "2".into()));
        }
    };
    let refused = together(2, more, |_| ());
    assert!(refused[0].as_ref().unwrap_err().to_string().contains("train.clip 2, rank 0 has not set"));
}

#[test]
fn whoever_has_another_token_does_not_come_in() {
    let spoil = |rank: usize, meeting: &mut Meeting| {
        meeting.patience = Duration::from_secs(3);
        if rank == 1 {
            meeting.token = Token::new("another token, as long as that one", "a test").unwrap();
        }
    };
    let refused = together(2, spoil, |_| ());
    let (first, second) = (refused[0].as_ref().unwrap_err(), refused[1].as_ref().unwrap_err());
    assert!(matches!(first, RankError::Absent { missing, refused, .. } if missing == &[1] && *refused > 0), "{first}");
    assert!(second.to_string().contains("token"), "{second}");
}

#[test]
fn one_who_does_not_go_on_stops_the_others_in_time_and_is_named() {
    let began = Instant::now();
    let quick = |_: usize, meeting: &mut Meeting| meeting.timeout = Duration::from_secs(2);
    let outcomes = together(3, quick, |group| {
        if group.rank() == 1 {
            // It lives, and its beats go on.
            std::thread::sleep(Duration::from_secs(4));
            return Ok(());
        }
        group.sum(&mut [1.0; 8])
    });
    for rank in [0, 2] {
        let message = outcomes[rank].as_ref().unwrap().as_ref().unwrap_err().to_string();
        assert!(message.contains("rank 1 (") && message.contains("does not go on"), "{message}");
        assert!(message.contains("checkpoint") && !message.contains('\n'), "{message}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn one_who_ends_with_an_error_says_so() {
    for who in [0, 2] {
        let outcomes = together(
            3,
            |_, _| {},
            |group| {
                if group.rank() == who {
                    group.abandon("its disk is full");
                    return Ok(());
                }
                group.sum(&mut [1.0; 8])
            },
        );
        for rank in (0..3).filter(|rank| *rank != who) {
            let message = outcomes[rank].as_ref().unwrap().as_ref().unwrap_err().to_string();
            assert!(message.contains(&format!("rank {who} (")) && message.contains("disk is full"), "{message}");
        }
    }
}

/// What strangers may send.
fn nonsense(kind: usize, port: u16) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let mut greeting = [0; 40];
    // Whatever becomes of it: the one who is looked at is the door.
    let _ = match kind % 8 {
        0 => Ok(()),
        1 => stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        2 => stream.write_all(&[0xff; 300]),
        3 => stream.read_exact(&mut greeting).and_then(|()| stream.write_all(&greeting)),
        // The right words, and a proof that is none.
        4 => stream
            .read_exact(&mut greeting)
            .and_then(|()| stream.write_all(&[&b"ftprank1\x01\x01\0\0\0"[..], &[7; 64]].concat())),
        5 => stream.write_all(b"ftprank1"),
        6 => stream.shutdown(Shutdown::Write),
        _ => stream.write_all(&[0]).and_then(|()| stream.shutdown(Shutdown::Both)),
    };
}

/// Bytes of memory that the process has.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Strangers come in crowds while rank 0 waits; then the others come and all goes well.
fn crowd(connections: usize) {
    let mut first = meeting(TOKEN);
    let listener: TcpListener = first.open().unwrap();
    let port = first.port;
    first.patience = Duration::from_secs(550);
    let (before, began) = (resident(), Instant::now());
    std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let mut group = first.join(0, 2, Some(listener))?;
            let mut values = [1.0];
            group.sum(&mut values).map(|()| values[0])
        });
        // A few stay and say nothing.
        let silent: Vec<_> = (0..50).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
        let strangers: Vec<_> = (0..2)
            .map(|half| scope.spawn(move || (0..connections / 2).for_each(|i| nonsense(i + half, port))))
            .collect();
        strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
        let grown = resident().zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        println!("{connections} strangers in {:.1} s, {} KiB more", began.elapsed().as_secs_f64(), grown >> 10);
        assert!(grown < 16 << 20, "{grown} bytes more");
        let mut group = Meeting { port, ..meeting(TOKEN) }.join(1, 2, None).unwrap();
        let mut values = [2.0];
        group.sum(&mut values).unwrap();
        assert_eq!((values[0], host.join().unwrap().unwrap()), (3.0, 3.0));
        drop(silent);
    });
}

#[test]
fn a_crowd_of_strangers_is_turned_away() {
    crowd(2_000);
}

#[test]
#[ignore = "the whole campaign, a few minutes: cargo test --release -p ftprop-ranks --test meeting -- --ignored"]
fn a_hundred_thousand_strangers_are_turned_away() {
    crowd(100_000);
}
