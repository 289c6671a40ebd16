//! `ftprop separable`

use super::outputs::{self, Inputs};
use super::solve::data;
use super::{say, say_json};
use crate::error::Error;
use crate::progress::tell;
use clap::Args;
use ftprop_search::{Answer, Budget, Certificate, SeparableReport};
use ftprop_train::files;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Decide whether two classes are linearly separable, with proof
#[derive(Args)]
#[command(after_help = "\
The table has numbers and, in its last column, a label. The answer is checked in exact arithmetic: yes comes with
weights, no with instances that cancel each other (Gordan), and what cannot be confirmed is 'unknown', exit code 1.

Examples:
  ftprop separable points.csv
  ftprop separable points.csv --certificate proof.json
  ftprop separable mnist --classes 0,1 --data-path mnist/")]
pub(super) struct Separable {
    /// A CSV file, a built-in problem such as xor, or digits or mnist with --classes
    data: String,
    /// Only these two classes
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    classes: Vec<String>,
    /// Where MNIST is
    #[arg(long, value_name = "PATH")]
    data_path: Option<PathBuf>,
    /// The seed of a built-in problem
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most time, such as 500ms, 60s or 5m; then the answer is 'unknown'
    #[arg(long, default_value = "10m")]
    budget: Budget,
    /// Write the proof to this file, for ftprop verify
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Separable {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let data = data::instances(&self.data, self.data_path.as_deref(), self.seed, &self.classes)?;
        let inputs = Inputs::of([self.data_path.as_deref()]).and_data(&self.data);
        self.certificate.as_deref().map_or(Ok(()), |file| outputs::try_file(file, &inputs))?;
        let report = SeparableReport::new(&data, self.budget)?;
        if self.json {
            say_json(&report)?;
        } else {
            say(&report.to_string())?;
        }
        if let Some(file) = &self.certificate {
            self.write(file, Certificate::of_verdict(&data, &report.verdict))?;
        }
        Ok(if report.status == Answer::Unknown { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Writes the proof, if there is one.
    fn write(&self, file: &Path, proof: Option<Certificate>) -> Result<(), Error> {
        let Some(certificate) = proof else {
            let old = if file.exists() { "; it holds what it held before" } else { "" };
            tell(&format!("there is no proof, so nothing was written to {}{old}", file.display()));
            return Ok(());
        };
        files::write(file, certificate.to_json().as_bytes())?;
        if !self.json {
            tell(&format!("certificate in {}", file.display()));
        }
        Ok(())
    }
}
