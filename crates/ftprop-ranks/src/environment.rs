//! What launchers tell a process in environment variables: which rank it is, of how many, and where they meet.
//!
//! | launcher | variables |
//! | --- | --- |
//! | `torchrun`, Kubernetes' training operators, by hand | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE` |
//! | MPICH's and Intel's `mpiexec` | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_LOCALID`, `SLURM_STEP_TASKS_PER_NODE` |
//!
//! The ranks meet at `MASTER_ADDR`:`MASTER_PORT`. Where nobody sets them they are found if that can be: on one machine it is
//! the machine itself, under SLURM the step's first host, with a port that follows from the job's number.

use crate::RankError;

/// The port where nobody names one.
const PORT: u16 = 29500;

/// Who started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `torchrun`, which keeps `MASTER_PORT` for itself: the ranks meet at the port after it.
    Torchrun,
    /// Anything that sets `RANK` and `WORLD_SIZE`.
    Variables,
    /// Open MPI.
    OpenMpi,
    /// MPICH, Intel MPI and others with their process manager.
    Pmi,
    /// SLURM.
    Srun,
}

impl Launcher {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Launcher::Torchrun => "torchrun",
            Launcher::Variables => "whoever set RANK and WORLD_SIZE",
            Launcher::OpenMpi => "mpirun",
            Launcher::Pmi => "mpiexec",
            Launcher::Srun => "srun",
        }
    }
}

/// A process's place among those that were started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Who says so.
    pub launcher: Launcher,
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Its number among those of its machine.
    pub local_rank: usize,
    /// How many its machine has; all of them where nobody says otherwise.
    pub local_size: usize,
}

/// The names of a launcher's variables.
struct Family {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        launcher: Launcher::Variables,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Family {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Family {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Family {
        launcher: Launcher::Srun,
        rank: "SLURM_PROCID",
        // Of the step: a batch script that starts nothing by srun is one process, whatever the job has.
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
    },
];

/// A process's place, if a launcher gave it one.
pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Membership>, RankError> {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let mut found: Vec<(&Family, Membership)> = Vec::new();
    for family in &FAMILIES {
        if let Some(membership) = family.find(&variable)? {
            found.push((family, membership));
        }
    }
    // Those two start their processes inside a step of srun, one of its tasks a machine.
    let inner = |m: &Membership| matches!(m.launcher, Launcher::Torchrun | Launcher::OpenMpi);
    if found.iter().any(|(_, m)| inner(m)) {
        found.retain(|(_, m)| m.launcher != Launcher::Srun);
    }
    for pair in found.windows(2) {
        let [(one, a), (other, b)] = pair else { continue };
        let said = |family: &Family, m: &Membership| format!("{}={} {}={}", family.rank, m.rank, family.size, m.size);
        if (a.rank, a.size) != (b.rank, b.size) {
            return Err(RankError::Contradiction { one: said(one, a), other: said(other, b) });
        }
        if a.local_rank != b.local_rank {
            let local = |family: &Family, m: &Membership| format!("{}={}", family.local_rank, m.local_rank);
            return Err(RankError::Contradiction { one: local(one, a), other: local(other, b) });
        }
    }
    Ok(found.into_iter().next().map(|(_, membership)| membership))
}

impl Family {
    fn find(&self, variable: &impl Fn(&str) -> Option<String>) -> Result<Option<Membership>, RankError> {
        let (rank, size) = match (variable(self.rank), variable(self.size)) {
            (None, None) => return Ok(None),
            // srun's number of the process is there without it, in a batch script.
            (Some(_), None) if self.launcher == Launcher::Srun => return Ok(None),
            (None, Some(size)) => return Err(alone(self.size, &size, self.rank)),
            (Some(rank), None) => return Err(alone(self.rank, &rank, self.size)),
            (Some(rank), Some(size)) => (number(self.rank, &rank)?, number(self.size, &size)?),
        };
        if size == 0 || rank >= size {
            let why = format!("it must be below {}={size}", self.size);
            return Err(RankError::Variable { name: self.rank.into(), value: rank.to_string(), why });
        }
        let given = |name: &str| variable(name).map(|value| number(name, &value)).transpose();
        let local_size = match variable(self.local_size) {
            None => size,
            // "4", or "4(x2),3" where machines differ: none has more than the first.
            Some(value) => number(self.local_size, value.split(['(', ',']).next().unwrap_or_default())?,
        };
        let torchrun = self.launcher == Launcher::Variables && variable("TORCHELASTIC_RUN_ID").is_some();
        Ok(Some(Membership {
            launcher: if torchrun { Launcher::Torchrun } else { self.launcher },
            rank,
            size,
            local_rank: given(self.local_rank)?.unwrap_or(rank),
            local_size: local_size.clamp(1, size),
        }))
    }
}

fn alone(name: &str, value: &str, missing: &str) -> RankError {
    RankError::Variable { name: name.into(), value: value.into(), why: format!("{missing} is not set beside it") }
}

fn number(name: &str, value: &str) -> Result<usize, RankError> {
    let wrong = |_| RankError::Variable { name: name.into(), value: value.into(), why: "it must be a number".into() };
    value.trim().parse().map_err(wrong)
}

impl Membership {
    /// Where the ranks meet: host and port.
    pub fn meeting(&self, variable: impl Fn(&str) -> Option<String>) -> Result<(String, u16), RankError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let host = match variable("MASTER_ADDR") {
            Some(host) => host.trim().to_string(),
            None if self.local_size == self.size => "127.0.0.1".into(),
            None => {
                let hosts = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"));
                let first = hosts.filter(|_| self.launcher == Launcher::Srun).as_deref().and_then(first_host);
                first.ok_or(RankError::NoMeeting { launcher: self.launcher.name() })?
            }
        };
        let port = match variable("MASTER_PORT") {
            Some(value) => {
                let wrong = || RankError::Variable {
                    name: "MASTER_PORT".into(),
                    value: value.clone(),
                    why: "it must be a port".into(),
                };
                let port: u16 = value.trim().parse().ok().filter(|&port| port > 0).ok_or_else(wrong)?;
                if self.launcher == Launcher::Torchrun { port.checked_add(1).ok_or_else(wrong)? } else { port }
            }
            None => {
                let job = ["SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"];
                job.into_iter().find_map(variable).map_or(PORT, |job| port_of(&job))
            }
        };
        Ok((host, port))
    }
}

/// A port that jobs on one machine rarely share, above those that systems give out on their own.
fn port_of(job: &str) -> u16 {
    let sum = job.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    61_000 + (sum % 4_000) as u16
}

/// The first of SLURM's list of hosts, such as `gpu[03-05,9],cpu1`.
fn first_host(list: &str) -> Option<String> {
    let Some((name, rest)) = list.split_once('[').filter(|(name, _)| !name.contains(',')) else {
        return list.split(',').next().map(|host| host.trim().to_string()).filter(|host| !host.is_empty());
    };
    let (numbers, after) = rest.split_once(']')?;
    let first = numbers.split([',', '-']).next()?;
    let suffix = after.split(',').next().unwrap_or_default();
    Some(format!("{name}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
    }

    fn place(variables: &[(&str, &str)]) -> (Launcher, [usize; 4]) {
        let m = find(from(variables)).unwrap().unwrap();
        (m.launcher, [m.rank, m.size, m.local_rank, m.local_size])
    }

    #[test]
    fn each_launchers_variables() {
        assert_eq!(find(from(&[])).unwrap(), None);
        let torchrun = [
            ("RANK", "9"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("TORCHELASTIC_RUN_ID", "none"),
        ];
        assert_eq!(place(&torchrun), (Launcher::Torchrun, [9, 16, 1, 8]));
        // Kubernetes' operators.
        assert_eq!(place(&[("RANK", "1"), ("WORLD_SIZE", "4")]), (Launcher::Variables, [1, 4, 1, 4]));
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(place(&mpirun), (Launcher::OpenMpi, [3, 4, 1, 2]));
        let hydra = [("PMI_RANK", "2"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "1")];
        assert_eq!(place(&hydra), (Launcher::Pmi, [2, 3, 0, 1]));
        let srun = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(place(&srun), (Launcher::Srun, [5, 8, 1, 4]));
        // In a batch script, before srun.
        assert_eq!(find(from(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")])).unwrap(), None);
        // torchrun and mpirun inside srun, one task a machine.
        let outer = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(place(&[&torchrun[..], &outer].concat()).1, [9, 16, 1, 8]);
        assert_eq!(place(&[&mpirun[..], &outer].concat()).1, [3, 4, 1, 2]);
    }

    #[test]
    fn contradictions_show_both() {
        let refused = |variables: &[(&str, &str)]| find(from(variables)).unwrap_err().to_string();
        let two = [("RANK", "0"), ("WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let message = refused(&two);
        for part in ["RANK=0 WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4"] {
            assert!(message.contains(part) && !message.contains('\n'), "{message}");
        }
        let locals = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "1"),
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "0"),
        ];
        let message = refused(&locals);
        assert!(message.contains("LOCAL_RANK=1") && message.contains("MPI_LOCALRANKID=0"), "{message}");
        let srun = [("RANK", "0"), ("WORLD_SIZE", "2"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert!(refused(&srun).contains("SLURM_PROCID=1"));
        assert!(refused(&[("RANK", "0")]).contains("WORLD_SIZE is not set"));
        assert!(refused(&[("WORLD_SIZE", "2")]).contains("RANK is not set"));
        assert!(refused(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("below WORLD_SIZE=2"));
        assert!(refused(&[("RANK", "one"), ("WORLD_SIZE", "2")]).contains("RANK=one"));
    }

    #[test]
    fn where_they_meet() {
        let meeting = |variables: &[(&str, &str)]| {
            let member = find(from(variables)).unwrap().unwrap();
            member.meeting(from(variables)).map_err(|e| e.to_string())
        };
        let ranks = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let at = |more: &[(&str, &str)]| meeting(&[&ranks[..], more].concat());
        assert_eq!(at(&[("MASTER_ADDR", "a"), ("MASTER_PORT", "1234")]), Ok(("a".into(), 1234)));
        // torchrun's own store is at its port.
        let torchrun = [("MASTER_ADDR", "a"), ("MASTER_PORT", "1234"), ("TORCHELASTIC_RUN_ID", "x")];
        assert_eq!(at(&torchrun), Ok(("a".into(), 1235)));
        assert_eq!(at(&[]), Ok(("127.0.0.1".into(), PORT)));
        assert!(at(&[("LOCAL_WORLD_SIZE", "1")]).unwrap_err().contains("MASTER_ADDR"));
        for port in ["0", "70000", "x"] {
            assert!(at(&[("MASTER_ADDR", "a"), ("MASTER_PORT", port)]).unwrap_err().contains("MASTER_PORT"));
        }
        let srun = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
            ("SLURM_STEP_NODELIST", "gpu[03-05,9],cpu1"),
            ("SLURM_JOB_ID", "4711"),
        ];
        let (host, port) = meeting(&srun).unwrap();
        assert_eq!((host.as_str(), port), ("gpu03", port_of("4711")));
        assert!(port >= 61_000);
        assert_eq!(first_host("a1,b[1-2]").as_deref(), Some("a1"));
        assert_eq!(first_host("rack[2,4]n,z").as_deref(), Some("rack2n"));
        assert_eq!(first_host("b[1"), None);
        assert_eq!(first_host(""), None);
    }
}
