//! `ftprop verify`

use super::eval::WhichArg;
use super::robust::subject::{Place, Subject};
use super::solve::data;
use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_search::{Certificate, Meant, RobustCertificate, SearchError, Verification, read_certificate};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code for a certificate of which not everything can be proved.
const ON_TRUST: u8 = 3;

/// Prove a certificate of `separable`, `solve` or `robust` again, in exact arithmetic
#[derive(Args)]
#[command(after_help = "\
Exit code 0 if all that the certificate claims was proved, 3 if nothing is wrong but part of it is on trust, 1 if it is
refused.

Examples:
  ftprop verify proof.json points.csv
  ftprop verify xor.json xor
  ftprop verify proof.json mnist --classes 0,1 --data-path mnist/
  ftprop verify robust.json --model runs/mnist
  ftprop verify robust.json mnist/ --model mnist.ftp --source mnist

A certificate of robust is about a network: give it by --model, and its data where robust was given some.")]
pub(super) struct Verify {
    /// The certificate
    certificate: PathBuf,
    /// The data it is about: as it was given to separable, solve or robust
    data: Option<String>,
    /// Of robust: the network it is about, a run folder, a checkpoint file or a packed model (.ftp)
    #[arg(long)]
    model: Option<PathBuf>,
    /// Of robust: the kind of data, for a packed model
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Of robust: it is about training examples
    #[arg(long)]
    train: bool,
    /// Of robust: which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
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
        let text = read_certificate(&self.certificate)?;
        let verification = if RobustCertificate::is_meant(&text) { self.robust(&text)? } else { self.searched(&text)? };
        if self.json {
            say_json(&verification)?;
        } else {
            say(&verification.to_string())?;
        }
        Ok(if verification.complete { ExitCode::SUCCESS } else { ExitCode::from(ON_TRUST) })
    }

    /// A certificate of `separable` or `solve`.
    fn searched(&self, text: &str) -> Result<Verification, Error> {
        let of_robust = [("--train", self.train), ("--source", self.source.is_some())];
        if let Some((option, _)) = of_robust.iter().find(|(_, given)| *given) {
            let why = format!("{option} goes with a certificate of robust; this one is about training instances");
            return Err(Error::Usage(why));
        }
        if self.model.is_some() {
            return Err(Error::Usage("--model goes with a certificate of robust; this one holds its network".into()));
        }
        let Some(data) = &self.data else {
            return Err(Error::Usage(
                "give the data that the certificate is about, a file or a built-in problem, as in: ftprop verify proof.json \
                 points.csv, ftprop verify proof.json xor"
                    .into(),
            ));
        };
        let certificate = Certificate::from_json(text).map_err(|why| in_file(&self.certificate, why))?;
        let data = data::instances(data, self.data_path.as_deref(), self.seed, &self.classes)?;
        Ok(certificate.verify(&data)?)
    }

    /// A certificate of `robust`.
    fn robust(&self, text: &str) -> Result<Verification, Error> {
        let certificate = RobustCertificate::from_json(text).map_err(|why| in_file(&self.certificate, why))?;
        let of_others = [("--classes", !self.classes.is_empty()), ("--data-path", self.data_path.is_some())];
        if let Some((option, _)) = of_others.iter().find(|(_, given)| *given) {
            let why = format!("{option} does not go with a certificate of robust; its data are those of --model");
            return Err(Error::Usage(why));
        }
        let Some(model) = &self.model else {
            // Without the network nobody knows what of the data it sees.
            if self.data.is_some() || self.train || self.source.is_some() {
                return Err(Error::Usage(
                    "a certificate of robust is compared with its data by its network: give that too, by --model"
                        .into(),
                ));
            }
            return Ok(certificate.verify(None)?);
        };
        let place = Place {
            data: self.data.as_ref().map(Path::new),
            source: self.source.as_deref(),
            how: "give their path after the certificate",
            train: self.train,
        };
        let subject = Subject::open(model, self.checkpoint.into(), &place)?;
        let meant = Meant { network: &subject.network, data: &subject.points, range: &subject.range };
        Ok(certificate.verify(Some(&meant))?)
    }
}

fn in_file(path: &Path, source: SearchError) -> SearchError {
    SearchError::InFile { path: path.display().to_string(), source: Box::new(source) }
}
