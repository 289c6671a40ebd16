//! `ftprop watch`

use super::say;
use crate::error::Error;
use crate::progress::{counted, tell};
use clap::Args;
use ftprop_lab::watch::Server;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Serve a page to look at while runs train: curves, hard layers, mistakes
#[derive(Args)]
#[command(after_help = "\
The page is for a browser on this machine; it fetches nothing from elsewhere, and what is served is only read. From another
machine, go through ssh: ssh -L 8150:127.0.0.1:8150 MACHINE. Mistakes are those of the network that a run keeps, on up to 2,000
examples of its validation part, or of the test part where nothing is held out. Ctrl-C ends it.

Examples:
  ftprop watch runs/digits
  ftprop watch runs
  ftprop watch results/table1
  ftprop watch runs/sign-sste runs/sign-ftpsh --port 0")]
pub(super) struct Watch {
    /// Run folders, or folders of them, such as a sweep's: runs are found at any depth within reason, new ones when they begin
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The port to listen on; 0 for any that is free
    #[arg(long, default_value_t = 8150)]
    port: u16,
    /// The address to listen on; anything but a loopback address lets other machines look
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

impl Watch {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let server = Server::bind(SocketAddr::new(self.address, self.port), self.runs)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        // Without a handler Ctrl-C simply kills, which does no harm here.
        let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
        if !self.address.is_loopback() {
            tell("whoever reaches this address can look at these runs and their data; nothing is encrypted");
        }
        let runs = match server.runs() {
            0 => "no run yet, but those that begin will be shown".into(),
            some => counted(some as u32, "run"),
        };
        say(&format!("{runs} at http://{}/", server.address()))?;
        server.serve(&stop)?;
        Ok(ExitCode::SUCCESS)
    }
}
