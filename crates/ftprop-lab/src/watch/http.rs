//! Requests and answers, as much of HTTP/1.1 as one page needs: GET and HEAD, one request a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// The largest head of a request: browsers send less than two thousand bytes.
const MOST_BYTES: usize = 8 << 10;
/// How long a request may take to arrive, and an answer to be taken.
const MOST_TIME: Duration = Duration::from_secs(5);

/// What was asked for.
pub(super) struct Request<'a> {
    /// Without what follows a question mark.
    pub(super) path: &'a str,
    /// Whether only the head of an answer is wanted.
    head_only: bool,
}

/// What is answered.
pub(super) struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    pub(super) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Answer { status: "200 OK", kind, body: body.into() }
    }

    pub(super) fn json(body: String) -> Self {
        Answer::new("application/json", body)
    }

    pub(super) fn missing() -> Self {
        Answer::refused("404 Not Found")
    }

    fn refused(status: &'static str) -> Self {
        Answer { status, kind: "text/plain; charset=utf-8", body: format!("{status}\n").into() }
    }
}

/// Reads a request and answers it.
pub(super) fn exchange(stream: &TcpStream, answer: impl FnOnce(&Request<'_>) -> Answer) -> io::Result<()> {
    let end = Instant::now() + MOST_TIME;
    stream.set_nonblocking(false)?;
    let head = read_head(stream, end)?;
    let (answer, head_only) = match head.as_deref().map(parse) {
        None => (Answer::refused("431 Request Header Fields Too Large"), false),
        Some(Err(status)) => (Answer::refused(status), false),
        Some(Ok(request)) => (answer(&request), request.head_only),
    };
    write(stream, &answer, head_only, Instant::now() + MOST_TIME)
}

/// The head of a request with its last line; none where it is too large.
fn read_head(mut stream: &TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&part[..count]);
        if let Some(at) = head[from..].windows(4).position(|w| w == b"\r\n\r\n") {
            head.truncate(from + at + 2);
            return Ok((head.len() <= MOST_BYTES).then_some(head));
        }
        if head.len() > MOST_BYTES {
            return Ok(None);
        }
    }
}

/// The time until then; an error where it is over.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A request, or the status that it is refused with.
fn parse(head: &[u8]) -> Result<Request<'_>, &'static str> {
    const BAD: &str = "400 Bad Request";
    let text = std::str::from_utf8(head).map_err(|_| BAD)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if words.next().is_some() || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(BAD);
    }
    let mut hosts = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let host = hosts.next().ok_or(BAD)?;
    if hosts.next().is_some() {
        return Err(BAD);
    }
    // Another page's name can be made to lead here, and its script would then read what is answered. It cannot have the
    // name of an address, nor that of this machine.
    if !is_address(host) {
        return Err("403 Forbidden");
    }
    let head_only = match method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err("405 Method Not Allowed"),
    };
    Ok(Request { path: target.split('?').next().unwrap_or_default(), head_only })
}

/// Whether a host, with its port or without, is `localhost` or an address in numbers.
fn is_address(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "?")),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    port && (name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok())
}

fn write(mut stream: &TcpStream, answer: &Answer, head_only: bool, end: Instant) -> io::Result<()> {
    let Answer { status, kind, body } = answer;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\r\n",
        body.len()
    );
    let body: &[u8] = if head_only { &[] } else { body };
    for mut rest in [head.as_bytes(), body] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(end)?))?;
            let count = stream.write(&rest[..rest.len().min(64 << 10)])?;
            rest = &rest[count..];
        }
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_in_numbers_and_this_machine_are_hosts() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8150", "[::1]:8150", "[::1]", "192.168.1.7"] {
            assert!(is_address(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8150",
            "127.0.0.1.evil.example",
            "localhost.evil:1",
            "[::1",
            "::1:x",
            "127.0.0.1:port",
            "127.0.0.1:99999",
            "localhost:",
        ] {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn requests_are_read_or_refused() {
        let asked = |text: &str| parse(text.as_bytes()).map(|r| (r.path.to_string(), r.head_only));
        let host = "Host: localhost:1\r\n";
        assert_eq!(asked(&format!("GET /runs.json?x=1 HTTP/1.1\r\n{host}")), Ok(("/runs.json".into(), false)));
        assert_eq!(asked("HEAD / HTTP/1.0\r\nhost:127.0.0.1\r\n"), Ok(("/".into(), true)));
        for (text, status) in [
            (format!("POST / HTTP/1.1\r\n{host}"), "405 Method Not Allowed"),
            ("GET / HTTP/1.1\r\n".into(), "400 Bad Request"),
            (format!("GET / HTTP/1.1\r\n{host}{host}"), "400 Bad Request"),
            (format!("GET http://localhost/ HTTP/1.1\r\n{host}"), "400 Bad Request"),
            (format!("GET / HTTP/2\r\n{host}"), "400 Bad Request"),
            (format!("GET / x HTTP/1.1\r\n{host}"), "400 Bad Request"),
            ("\u{0}\r\n".into(), "400 Bad Request"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n".into(), "403 Forbidden"),
        ] {
            assert_eq!(asked(&text), Err(status), "{text:?}");
        }
    }
}
