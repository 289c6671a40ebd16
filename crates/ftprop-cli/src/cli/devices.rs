//! `ftprop devices`

use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_cuda::{Library, Versions};
use ftprop_tensor::Cpu;
use serde::Serialize;
use std::process::ExitCode;

/// List the CPU and the GPUs that networks can be trained on
#[derive(Args)]
#[command(after_help = "\
Names each device as --device takes it, with its memory, the driver's and the libraries' versions, and says what is
missing where a GPU cannot be used.

Examples:
  ftprop devices
  ftprop devices --json")]
pub(super) struct Devices {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<Row>,
    /// The newest CUDA that the driver can run.
    driver: Option<String>,
    nvrtc: Option<String>,
    cudnn: Option<String>,
    cublas: Option<String>,
    /// What is not there, and where it was looked for.
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    device: String,
    name: String,
    memory_gib: f64,
    memory_free_gib: f64,
    /// Cores, or multiprocessors.
    units: usize,
    /// What stands in the way of using it.
    problem: Option<String>,
}

impl Devices {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let cpu = Cpu::new(0)?;
        let (total, free) = host_memory();
        let mut devices = vec![Row {
            device: "cpu".into(),
            name: format!("{:?} kernels", cpu.isa()),
            memory_gib: total,
            memory_free_gib: free,
            units: cpu.threads(),
            problem: None,
        }];
        let mut missing = Vec::new();
        match ftprop_cuda::devices() {
            Ok(gpus) if gpus.is_empty() => missing.push("the driver shows no GPU".to_string()),
            Ok(gpus) => devices.extend(gpus.into_iter().map(|gpu| Row {
                device: format!("cuda:{}", gpu.ordinal),
                problem: gpu.problem().map(|problem| problem.to_string()),
                name: gpu.name,
                memory_gib: gibibytes(gpu.memory_total),
                memory_free_gib: gibibytes(gpu.memory_free),
                units: gpu.multiprocessors as usize,
            })),
            Err(error) => missing.push(error.to_string()),
        }
        // Without a driver the others do not matter.
        if Library::Driver.load().is_ok() {
            let others = [Library::Nvrtc, Library::Cudnn, Library::Cublas];
            missing.extend(others.into_iter().filter_map(|library| library.load().err()).map(|e| e.to_string()));
        }
        let versions = ftprop_cuda::versions();
        let named = versions.named();
        let Versions { driver, nvrtc, cudnn, cublas } = versions;
        let report = Report { devices, driver, nvrtc, cudnn, cublas, missing };
        if self.json {
            say_json(&report)?;
        } else {
            print(&report, &named)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(report: &Report, versions: &[String]) -> Result<(), Error> {
    for row in &report.devices {
        let units = if row.device == "cpu" { "threads" } else { "multiprocessors" };
        say(&format!(
            "{:<8} {}, {} {units}, {:.1} GiB memory, {:.1} GiB free",
            row.device, row.name, row.units, row.memory_gib, row.memory_free_gib
        ))?;
        if let Some(problem) = &row.problem {
            say(&format!("         cannot be used: {problem}"))?;
        }
    }
    if !versions.is_empty() {
        say(&versions.join(", "))?;
    }
    report.missing.iter().try_for_each(|missing| say(missing))
}

fn gibibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Total and available memory in GiB; 0 where the system does not say.
fn host_memory() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim().trim_end_matches("kB").trim().parse::<f64>().map_or(0.0, |kb| kb / f64::from(1 << 20))
    };
    (of("MemTotal:"), of("MemAvailable:"))
}
