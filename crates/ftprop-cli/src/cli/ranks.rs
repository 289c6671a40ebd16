//! Several processes that train one network: those that a launcher started, or that this one starts itself.

use crate::error::Error;
use clap::Args;
use ftprop_ranks::environment::{self, Launcher, Membership};
use ftprop_ranks::meeting::{GivenUp, Meeting, Messages};
use ftprop_ranks::{RankError, Token};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::recipe::Recipe;
use ftprop_train::team::{Team, Way};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long all ranks have to come to the meeting point: opening data takes as long as it takes.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long ranks that this process started may take to end after it is done.
const LAST_WORDS: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(super) struct RankArgs {
    /// Train one network on several devices of this machine, a process each: cuda:0,cuda:1, or all for every GPU; with
    /// several recipes, one run on each at a time. Under torchrun, mpirun or srun: what its ranks on a machine take
    #[arg(long, value_name = "LIST", conflicts_with = "device", value_delimiter = ',')]
    devices: Vec<String>,
    /// How gradients are exchanged between GPUs: nccl, host (through the host's memory), or auto (nccl unless ranks share a
    /// GPU). tcp is host, over TCP even where this program was built with MPI and started by mpirun
    #[arg(long, value_name = "WAY", default_value = "auto")]
    exchange: Way,
    /// After how many seconds a rank that is silent, or does not go on, counts as lost and all others stop
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    rank_timeout: u64,
}

/// A place among ranks, before they have met.
pub(super) struct Seat {
    member: Membership,
    host: String,
    port: u16,
    token: Token,
    listener: Option<TcpListener>,
    children: Option<Children>,
    device: Option<DeviceChoice>,
    way: Way,
    timeout: Duration,
    met: bool,
}

/// Ranks that this process started; none outlives it.
#[derive(Clone)]
struct Children(Arc<Mutex<Vec<(usize, Child)>>>);

/// The devices of a list; `all` stands for every GPU.
pub(super) fn named_devices(names: &[String]) -> Result<Vec<DeviceChoice>, Error> {
    if names != ["all"] {
        return names.iter().map(|name| Ok(name.trim().parse()?)).collect();
    }
    let found: Vec<_> = ftprop_cuda::devices()?.iter().map(|info| DeviceChoice::Cuda(info.ordinal)).collect();
    if found.is_empty() { Err(Error::Usage("--devices all: there is no GPU here".into())) } else { Ok(found) }
}

impl RankArgs {
    /// The devices that are named.
    pub(super) fn devices(&self) -> Result<Vec<DeviceChoice>, Error> {
        named_devices(&self.devices)
    }

    /// This process's place, if it is one of several; starts the others where no launcher has.
    pub(super) fn take_seat(&self) -> Result<Option<Seat>, Error> {
        match self.seat_of_a_launcher()? {
            Some(seat) => Ok(Some(seat)),
            None if self.devices.is_empty() => Ok(None),
            None => self.start(&self.devices()?).map(Some),
        }
    }

    /// Whether any device is named.
    pub(super) fn names_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// This process's place among those that a launcher started.
    pub(super) fn seat_of_a_launcher(&self) -> Result<Option<Seat>, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let devices = self.devices()?;
        match environment::find(variable)? {
            Some(member) if member.size > 1 || member.launcher == Launcher::Torchrun => {
                let device = match devices.get(member.local_rank) {
                    None if !devices.is_empty() => {
                        return Err(Error::Usage(format!(
                            "--devices names {} for {} ranks on this machine",
                            devices.len(),
                            member.local_size
                        )));
                    }
                    device => device.copied(),
                };
                let (host, port) = member.meeting(variable)?;
                let token = Token::find(variable)?;
                Ok(Some(self.seat(member, (host, port), token, device)))
            }
            _ => Ok(None),
        }
    }

    fn seat(
        &self,
        member: Membership,
        (host, port): (String, u16),
        token: Token,
        device: Option<DeviceChoice>,
    ) -> Seat {
        let timeout = Duration::from_secs(self.rank_timeout);
        Seat {
            member,
            host,
            port,
            token,
            listener: None,
            children: None,
            device,
            way: self.exchange,
            timeout,
            met: false,
        }
    }

    /// Starts a process for each device but the first, which is this one's.
    pub(super) fn start(&self, devices: &[DeviceChoice]) -> Result<Seat, Error> {
        let characters = Token::random()?;
        let token = Token::new(&characters, "the system")?;
        let size = devices.len();
        let member = Membership { launcher: Launcher::Variables, rank: 0, size, local_rank: 0, local_size: size };
        let mut seat = self.seat(member, ("127.0.0.1".into(), 0), token, devices.first().copied());
        let mut meeting = seat.meeting(Vec::new());
        seat.listener = Some(meeting.open()?);
        seat.port = meeting.port;
        let program = std::env::current_exe().map_err(|e| Error::Other(format!("cannot find this program: {e}")))?;
        let children = Children(Arc::default());
        for rank in 1..size {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).stdin(Stdio::null()).stdout(Stdio::null());
            command.env("FTPROP_TOKEN", &characters).env("MASTER_ADDR", "127.0.0.1");
            command.env("MASTER_PORT", seat.port.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("LOCAL_WORLD_SIZE", size.to_string());
            command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
            let child = command.spawn().map_err(|e| Error::Other(format!("cannot start rank {rank}: {e}")))?;
            children.lock().push((rank, child));
        }
        seat.children = Some(children);
        Ok(seat)
    }
}

impl Seat {
    /// Whether this one writes the run folder, and speaks for all.
    pub(super) fn is_first(&self) -> bool {
        self.member.rank == 0
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> usize {
        self.member.size
    }

    /// Whether it has met the others.
    pub(super) fn has_met(&self) -> bool {
        self.met
    }

    /// This rank's device for a recipe, and its part of the machine's cores.
    pub(super) fn place(&self, recipe: &Recipe) -> (DeviceChoice, usize) {
        let train = &recipe.train;
        let device = match (self.device, train.device) {
            (Some(device), _) => device,
            (None, DeviceChoice::Auto) => match ftprop_cuda::devices().map_or(0, |devices| devices.len()) {
                0 => DeviceChoice::Auto,
                // Some launchers show each rank a GPU of its own, which then is the only one.
                gpus => DeviceChoice::Cuda(self.member.local_rank % gpus),
            },
            (None, device) => device,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if train.threads == 0 { (cores / self.member.local_size).max(1) } else { train.threads };
        (device, threads)
    }

    /// Meets the others, who must claim the same.
    pub(super) fn join(&mut self, claims: Vec<(String, String)>) -> Result<Team, Error> {
        let meeting = self.meeting(claims);
        let group = meeting.join(self.member.rank, self.member.size, self.listener.take())?;
        self.met = true;
        Ok(Team::new(group, self.way))
    }

    fn meeting(&self, claims: Vec<(String, String)>) -> Meeting {
        let given_up = self.children.clone().map(|children| -> GivenUp { Arc::new(move || children.ended()) });
        Meeting {
            host: self.host.clone(),
            port: self.port,
            token: self.token.clone(),
            claims,
            patience: PATIENCE,
            timeout: self.timeout,
            given_up,
            messages: match self.way {
                Way::Tcp => Messages::Tcp,
                _ => Messages::suiting(self.member.launcher),
            },
        }
    }
}

impl Children {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(usize, Child)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first that has ended, if any has.
    fn ended(&self) -> Option<RankError> {
        let mut children = self.lock();
        let ended = |(rank, child): &mut (usize, Child)| Some((*rank, child.try_wait().ok()??));
        let (rank, status) = children.iter_mut().find_map(ended)?;
        Some(RankError::Ended { rank, status: status.to_string() })
    }
}

impl Drop for Seat {
    /// Waits a little for the ranks that this process started, and ends those that stay.
    fn drop(&mut self) {
        let Some(children) = &self.children else { return };
        // Those that are still on their way to a meeting that will not be need not be waited for.
        let until = Instant::now() + if self.met { LAST_WORDS } else { Duration::ZERO };
        for (_, child) in children.lock().iter_mut() {
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            // One that has ended is none to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
