//! `ftprop verify`

use super::solve::data;
use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_search::Certificate;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code for a certificate of which not everything can be proved.
const ON_TRUST: u8 = 3;

/// Prove a certificate of `separable` or `solve` again, in exact arithmetic
#[derive(Args)]
#[command(after_help = "\
Exit code 0 if all that the certificate claims was proved, 3 if nothing is wrong but part of it is on trust, 1 if it is
refused.

Examples:
  ftprop verify proof.json points.csv
  ftprop verify xor.json xor
  ftprop verify proof.json mnist --classes 0,1 --data-path mnist/")]
pub(super) struct Verify {
    /// The certificate
    certificate: PathBuf,
    /// The data it is about: as it was given to separable or solve
    data: String,
    /// Only these classes
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    classes: Vec<String>,
    /// Where MNIST is
    #[arg(long, value_name = "PATH")]
    data_path: Option<PathBuf>,
    /// The seed of a built-in problem
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let certificate = Certificate::read(&self.certificate)?;
        let data = data::instances(&self.data, self.data_path.as_deref(), self.seed, &self.classes)?;
        let verification = certificate.verify(&data)?;
        if self.json {
            say_json(&verification)?;
        } else {
            say(&verification.to_string())?;
        }
        Ok(if verification.complete { ExitCode::SUCCESS } else { ExitCode::from(ON_TRUST) })
    }
}
