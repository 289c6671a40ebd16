//! `ftprop plot`

use super::say;
use crate::diagnostics::{Records, comparison};
use crate::error::Error;
use crate::plot::Picture;
use crate::run::{RunFolder, picture};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare runs in one picture
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop plot runs/sign-sste runs/sign-ftpsh
  ftprop plot runs/* --out comparison --title 'convnet8 on CIFAR-10'
  ftprop plot --diagnostics runs/sign-sste runs/sign-ftpsh")]
pub(super) struct Plot {
    /// Run folders
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The picture's path, without the endings .svg and .png that are written
    #[arg(long, short, default_value = "plot")]
    out: PathBuf,
    /// Above the picture
    #[arg(long, default_value = "")]
    title: String,
    /// How the hard layers fared, of runs trained with --diagnostics, instead of accuracies and losses
    #[arg(long)]
    diagnostics: bool,
}

impl Plot {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let out = without_ending(&self.out);
        let picture = if self.diagnostics { self.diagnostics()? } else { self.curves()? };
        picture.save(&out)?;
        say(&format!("{0}.svg and {0}.png", out.display()));
        Ok(ExitCode::SUCCESS)
    }

    fn curves(&self) -> Result<Picture, Error> {
        let mut runs = Vec::new();
        for path in &self.runs {
            let metrics = RunFolder::open(path)?.metrics()?;
            if metrics.is_empty() {
                return Err(Error::NoEpoch { path: path.clone() });
            }
            runs.push((name(path), metrics));
        }
        Ok(picture(&runs, &self.title))
    }

    fn diagnostics(&self) -> Result<Picture, Error> {
        let mut runs = Vec::new();
        for path in &self.runs {
            let records = Records::read(RunFolder::open(path)?.path())?.into_all();
            if records.iter().all(|r| r.diagnosis.layers.is_empty()) {
                let what = "has no diagnostics of hard layers; train such a network with --diagnostics";
                return Err(Error::Other(format!("{} {what}", path.display())));
            }
            runs.push((name(path), records));
        }
        Ok(comparison(&runs, &self.title))
    }
}

/// A run is called by its folder.
fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

fn without_ending(path: &Path) -> PathBuf {
    match path.extension() {
        Some(e) if e == "svg" || e == "png" => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}
