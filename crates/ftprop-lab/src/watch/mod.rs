//! A page to look at while runs train: a server of one page, for browsers on the same machine.
//!
//! The server reads run folders and writes nothing. It knows a fixed list of addresses, none of which names a file, so no
//! request can reach another; requests are bounded in size, in time and in number, and those that a page of somebody else
//! has a browser make are refused.
//!
//! | module | subject |
//! | --- | --- |
//! | `http` | requests and answers, as much of them as a page needs |
//! | `find` | the run folders in the folders that are named |
//! | `runs` | what a run folder says, as JSON |
//! | `mistakes` | which classes the kept network takes for which, with examples |

mod find;
mod http;
mod mistakes;
mod runs;

use crate::Error;
use http::{Answer, Request};
use mistakes::Mistakes;
use runs::Runs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Connections that are answered at once; a browser opens six.
const CONNECTIONS: usize = 32;
/// How often the server looks whether it is to stop.
const PAUSE: Duration = Duration::from_millis(20);

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// A server of a page about runs.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    site: Arc<Site>,
}

/// What is served.
struct Site {
    runs: Runs,
    mistakes: Mistakes,
    open: AtomicUsize,
}

impl Server {
    /// Takes an address, with port 0 any free port of it. A path is a run folder, or one with such in it or
    /// in its folders, of which new ones are shown when they come.
    ///
    /// ```no_run
    /// use ftprop_lab::watch::Server;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// let server = Server::bind("127.0.0.1:0".parse().unwrap(), vec!["runs".into()])?;
    /// println!("http://{}/", server.address());
    /// server.serve(&AtomicBool::new(false))?;
    /// # Ok::<(), ftprop_lab::Error>(())
    /// ```
    pub fn bind(address: SocketAddr, paths: Vec<PathBuf>) -> Result<Self, Error> {
        let runs = Runs::new(paths)?;
        let unavailable = |source| Error::Address { address, source };
        let listener = TcpListener::bind(address).map_err(unavailable)?;
        listener.set_nonblocking(true).map_err(unavailable)?;
        let address = listener.local_addr().map_err(unavailable)?;
        let site = Arc::new(Site { runs, mistakes: Mistakes::default(), open: AtomicUsize::new(0) });
        Ok(Server { listener, address, site })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many runs there are by now.
    pub fn runs(&self) -> usize {
        self.site.runs.folders().len()
    }

    /// Answers until `stop` is set.
    pub fn serve(&self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    std::thread::sleep(PAUSE);
                }
                // A caller that has gone again, or no descriptors left for a while.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Answers in a thread of its own, unless there are too many of them already.
    fn take(&self, stream: TcpStream) {
        let site = self.site.clone();
        if site.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            site.open.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let count = Counted(site.clone());
        let spawned = std::thread::Builder::new().name("ftprop-watch".into()).spawn(move || {
            let _count = count;
            // Who does not ask properly, or has gone, is not told.
            let _ = http::exchange(&stream, |request| site.answer(request));
        });
        // Without a thread nobody is answered; the browser asks again.
        drop(spawned);
    }
}

/// One connection less when it ends, however that is.
struct Counted(Arc<Site>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Site {
    fn answer(&self, request: &Request<'_>) -> Answer {
        match request.path {
            "/" => Answer::new("text/html; charset=utf-8", PAGE),
            "/page.js" => Answer::new("text/javascript; charset=utf-8", SCRIPT),
            "/page.css" => Answer::new("text/css; charset=utf-8", STYLE),
            "/runs.json" => Answer::json(self.runs.list()),
            path => match numbered(path) {
                Some((number, "run.json")) => self.runs.one(number).map_or_else(Answer::missing, Answer::json),
                Some((number, "mistakes.json")) => match self.runs.folder(number) {
                    Some(folder) => Answer::json(self.mistakes.of(&folder)),
                    None => Answer::missing(),
                },
                _ => Answer::missing(),
            },
        }
    }
}

/// The parts of `/3/run.json`.
fn numbered(path: &str) -> Option<(usize, &str)> {
    let (number, what) = path.strip_prefix('/')?.split_once('/')?;
    let whole = !number.is_empty() && number.len() <= 5 && number.bytes().all(|b| b.is_ascii_digit());
    Some((number.parse().ok().filter(|_| whole)?, what))
}

#[cfg(test)]
mod tests;
