//! `ftprop selftest`

use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_cuda::SelftestPart;
use ftprop_train::built_in::DIGITS;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::fleet::{Job, train_all};
use ftprop_train::golden;
use ftprop_train::recipe::Recipe;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Check that this machine computes what PyTorch does
#[derive(Args)]
#[command(after_help = "\
Runs the golden cases, a few training steps of the paper's networks with known results, and prints each one's
largest relative error against its tolerance. On a GPU every kernel is compared with the CPU's on random shapes
first, and runs that share it with runs that have it to themselves. Exit code 1 if one fails.

Examples:
  ftprop selftest
  ftprop selftest --device cuda:0
  ftprop selftest --device cuda:0 --part products,large
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
    /// Only this part: goldens, or on a GPU batches, tuning, products, faults, networks, rules (of those, the target
    /// rules), large (kernels for large batches), sharing (runs that share it); several with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    part: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The parts that are not those of [`ftprop_cuda::selftest`].
const OTHER_PARTS: [&str; 2] = ["goldens", "sharing"];

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
        let known: Vec<&str> = SelftestPart::ALL.iter().map(|(name, _)| *name).chain(OTHER_PARTS).collect();
        if let Some(part) = self.part.iter().find(|part| !known.contains(&part.as_str())) {
            return Err(Error::Usage(format!("--part {part}: known are {}", known.join(", "))));
        }
        let place = Place::open(self.device.parse()?, self.threads)?;
        // Nothing checked is nothing passed.
        if let Some(part) = self.part.iter().find(|part| *part != "goldens").filter(|_| place.gpu.is_none()) {
            return Err(Error::Usage(format!(
                "--part {part} is about a GPU, and none is used; name one with --device cuda:0"
            )));
        }
        let cases = match &self.golden {
            _ if !self.wants("goldens") => Vec::new(),
            Some(folder) => golden::in_folder(folder)?,
            None => golden::built_in()?,
        };
        if !self.json {
            say(&format!("on {}", place.describe()))?;
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
            self.show(&row)?;
            rows.push(row);
        }
        let failed = rows.iter().filter(|r| !r.passed).count();
        if self.json {
            say_json(&rows)?;
        } else {
            say(&format!("{} passed, {failed} failed", rows.len() - failed))?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn wants(&self, part: &str) -> bool {
        self.part.is_empty() || self.part.iter().any(|name| name == part)
    }

    /// On a GPU, each kernel against its twin on the CPU.
    fn kernels(&self, place: &Place) -> Result<Vec<Row>, Error> {
        let Some(gpu) = &place.gpu else {
            if !self.json {
                say("the checks of CUDA kernels and of runs that share a GPU are skipped: no GPU is used")?;
            }
            return Ok(Vec::new());
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut started = Instant::now();
        let parts = SelftestPart::ALL.into_iter().filter(|(name, _)| self.wants(name));
        let parts: Vec<SelftestPart> = parts.map(|(_, part)| part).collect();
        ftprop_cuda::selftest(&gpu.device, &parts, &mut |check| {
            let row = Row {
                case: check.name.clone(),
                passed: check.passed(),
                largest_error: check.error.min(f64::MAX),
                tolerance: check.allowed,
                place: "against the CPU".into(),
                seconds: started.elapsed().as_secs_f64(),
            };
            started = Instant::now();
            // Where it cannot be shown, the next line says so.
            let _ = self.show(&row);
            rows.push(row);
        })?;
        if self.wants("sharing") {
            let row = sharing(self.device.parse()?)?;
            self.show(&row)?;
            rows.push(row);
        }
        Ok(rows)
    }

    fn show(&self, row: &Row) -> Result<(), Error> {
        if !self.json {
            say(&format!(
                "{}  {:<28} largest error {:.1e}, tolerance {:.1e}  ({})",
                if row.passed { "ok    " } else { "FAILED" },
                row.case,
                row.largest_error,
                row.tolerance,
                row.place
            ))?;
        }
        Ok(())
    }
}

/// Runs that share a device, where the last are made while others train, against the same runs one after another: every
/// checkpoint must have the same bytes.
fn sharing(device: DeviceChoice) -> Result<Row, Error> {
    let started = Instant::now();
    let folder = std::env::temp_dir().join(format!("ftprop-selftest-{}", std::process::id()));
    // A self test that was killed may have left one.
    let _ = std::fs::remove_dir_all(&folder);
    let checked = checkpoints(device, &folder.join("together"), 2)
        .and_then(|together| Ok((together, checkpoints(device, &folder.join("apart"), 1)?)));
    let _ = std::fs::remove_dir_all(&folder);
    let (together, apart) = checked?;
    let different = together.iter().zip(&apart).filter(|(a, b)| a != b).count();
    Ok(Row {
        case: "runs that share a GPU".into(),
        passed: different == 0,
        largest_error: different as f64,
        tolerance: 0.0,
        place: format!("{different} of {} runs differ from the same run alone", apart.len()),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// The bytes of some runs' last checkpoints. Each has another network, so each has kernels of its own to load.
fn checkpoints(device: DeviceChoice, folder: &Path, at_once: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut jobs = Vec::new();
    for (number, activation) in ["sign", "qrelu:3", "saturated_relu", "qrelu:5", "relu"].into_iter().enumerate() {
        let activation = format!("activation={activation}");
        let mut recipe: Recipe = Recipe::defaults()?.text("digits", DIGITS)?.set(&activation)?.build()?;
        // Of unequal length, so that one ends while the other goes on.
        (recipe.train.epochs, recipe.train.seed) = (2 + number as u32 % 3, number as u64);
        (recipe.train.device, recipe.train.deterministic) = (device, true);
        recipe.name = number.to_string();
        jobs.push(Job { folder: folder.join(&recipe.name), recipe: recipe.checked()? });
    }
    let files: Vec<PathBuf> = jobs.iter().map(|job| job.folder.join("checkpoint.safetensors")).collect();
    for ending in train_all(&jobs, at_once, &())? {
        ending?;
    }
    files.iter().map(|path| Ok(ftprop_train::files::read(path)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_share_a_device_are_what_they_are_alone() {
        let row = sharing(DeviceChoice::Cpu).unwrap();
        assert!(row.passed && row.place.starts_with("0 of 5"), "{}", row.place);
        let temp = std::env::temp_dir().join(format!("ftprop-sharing-{}", std::process::id()));
        let bytes = checkpoints(DeviceChoice::Cpu, &temp, 2).unwrap();
        std::fs::remove_dir_all(&temp).unwrap();
        assert!(bytes.iter().all(|b| b.len() > 1000) && bytes[0] != bytes[1], "these are five different networks");
    }
}
