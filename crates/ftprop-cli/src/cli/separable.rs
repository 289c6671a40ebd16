//! `ftprop separable`

use super::solve::data;
use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_search::{Answer, Certificate, SeparableReport};
use std::path::PathBuf;
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
        let report = SeparableReport::new(&data)?;
        if let Some(file) = &self.certificate
            && let Some(certificate) = Certificate::of_verdict(&self.data, &data, &report.verdict)
        {
            certificate.write(file)?;
        }
        if self.json {
            say_json(&report)?;
        } else {
            say(&report.to_string());
        }
        Ok(if report.status == Answer::Unknown { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
