//! `ftprop selftest`

use super::{say, say_json};
use crate::device::Place;
use crate::error::Error;
use crate::golden;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Check that this machine computes what PyTorch does
#[derive(Args)]
#[command(after_help = "\
Runs the golden cases, a few training steps of the paper's networks with known results, and prints each one's
largest relative error against its tolerance. On a GPU every kernel is compared with the CPU's on random shapes
first. Exit code 1 if one fails.

Examples:
  ftprop selftest
  ftprop selftest --device cuda:0
  ftprop selftest --golden DIR --json")]
pub(super) struct Selftest {
    /// A folder of cases to run instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    golden: Option<PathBuf>,
    /// auto (a GPU if there is one), cpu, or cuda:0 and so on
    #[arg(long, default_value = "auto")]
    device: String,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    case: String,
    passed: bool,
    largest_error: f64,
    tolerance: f64,
    place: String,
    seconds: f64,
}

impl Selftest {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let place = Place::open(&self.device, self.threads)?;
        let cases = match &self.golden {
            Some(folder) => golden::in_folder(folder)?,
            None => golden::built_in()?,
        };
        if !self.json {
            say(&format!("on {}", place.describe()));
        }
        let mut rows = self.kernels(&place)?;
        for case in &cases {
            let started = Instant::now();
            let outcome = place.cpu.enter(|| case.run(&place))?;
            let row = Row {
                case: case.name.clone(),
                passed: outcome.largest_error <= case.tolerance,
                // JSON has no infinity.
                largest_error: outcome.largest_error.min(f64::MAX),
                tolerance: case.tolerance,
                place: outcome.place,
                seconds: started.elapsed().as_secs_f64(),
            };
            self.show(&row);
            rows.push(row);
        }
        let failed = rows.iter().filter(|r| !r.passed).count();
        if self.json {
            say_json(&rows)?;
        } else {
            say(&format!("{} passed, {failed} failed", rows.len() - failed));
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// On a GPU, each kernel against its twin on the CPU.
    fn kernels(&self, place: &Place) -> Result<Vec<Row>, Error> {
        let Some(gpu) = &place.gpu else {
            if !self.json {
                say("the comparison of CUDA kernels with the CPU's is skipped: no GPU is used");
            }
            return Ok(Vec::new());
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut started = Instant::now();
        ftprop_cuda::selftest(&gpu.device, &mut |check| {
            let row = Row {
                case: check.name.clone(),
                passed: check.passed(),
                largest_error: check.error.min(f64::MAX),
                tolerance: check.allowed,
                place: "against the CPU".into(),
                seconds: started.elapsed().as_secs_f64(),
            };
            started = Instant::now();
            self.show(&row);
            rows.push(row);
        })?;
        Ok(rows)
    }

    fn show(&self, row: &Row) {
        if !self.json {
            say(&format!(
                "{}  {:<28} largest error {:.1e}, tolerance {:.1e}  ({})",
                if row.passed { "ok    " } else { "FAILED" },
                row.case,
                row.largest_error,
                row.tolerance,
                row.place
            ));
        }
    }
}
