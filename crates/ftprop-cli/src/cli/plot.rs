//! `ftprop plot`

use super::{say, say_json};
use crate::error::Error;
use crate::progress::tell;
use clap::Args;
use ftprop_lab::diagnostics::comparison;
use ftprop_lab::pictures::picture;
use ftprop_lab::plot::{Picture, base_path};
use ftprop_train::diagnostics::Records;
use ftprop_train::run::RunFolder;
use ftprop_train::words::plain;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare runs in one picture
#[derive(Args)]
#[command(after_help = "\
Of several runs, those that have nothing to show are named and left out; the exit code is then 1.

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
    /// Print where the pictures are as JSON
    #[arg(long)]
    json: bool,
}

impl Plot {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        // Tried before the work.
        base_path(&self.out)?;
        let (picture, left_out) = if self.diagnostics { (self.diagnostics()?, Vec::new()) } else { self.curves()? };
        let out = picture.save(&self.out)?;
        if self.json {
            let file = |ending: &str| format!("{}.{ending}", out.display());
            say_json(&serde_json::json!({ "svg": file("svg"), "png": file("png"), "left_out": left_out }))?;
        } else {
            say(&format!("{0}.svg and {0}.png", out.display()))?;
        }
        Ok(if left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The picture, and the runs that are not in it.
    fn curves(&self) -> Result<(Picture, Vec<String>), Error> {
        let (mut runs, mut left_out) = (Vec::new(), Vec::new());
        for (path, name) in self.runs.iter().zip(names(&self.runs)) {
            let metrics = RunFolder::open(path).and_then(|folder| folder.metrics()).and_then(|metrics| {
                if metrics.is_empty() { Err(ftprop_train::Error::NoEpoch { path: path.clone() }) } else { Ok(metrics) }
            });
            match metrics {
                Ok(metrics) => runs.push((name, metrics)),
                // Of many, as by runs/*, some may be networks that were never trained here.
                Err(error) if self.runs.len() > 1 => {
                    tell(&format!("left out: {}", plain(&Error::from(error).to_string())));
                    left_out.push(path.display().to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        if runs.is_empty() {
            return Err(Error::Other("none of them has an epoch to show".into()));
        }
        Ok((picture(&runs, &self.title), left_out))
    }

    fn diagnostics(&self) -> Result<Picture, Error> {
        let mut runs = Vec::new();
        for (path, name) in self.runs.iter().zip(names(&self.runs)) {
            let records = Records::read(RunFolder::open(path)?.path())?.into_all();
            if records.iter().all(|r| r.diagnosis.layers.is_empty()) {
                let what = "has no diagnostics of hard layers; train such a network with --diagnostics";
                return Err(Error::Other(format!("{} {what}", path.display())));
            }
            runs.push((name, records));
        }
        Ok(comparison(&runs, &self.title))
    }
}

/// A run is called by its folder, and by as many of those above it as tell it from the others.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let parts = |path: &PathBuf, count: usize| {
        let all: Vec<String> = path.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
        all[all.len().saturating_sub(count)..].join("/")
    };
    let deepest = paths.iter().map(|path| path.components().count()).max().unwrap_or(1);
    let name = |path: &PathBuf| {
        let tells =
            |count: &usize| paths.iter().filter(|other| parts(other, *count) == parts(path, *count)).count() < 2;
        parts(path, (1..=deepest).find(tells).unwrap_or(1))
    };
    paths.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_runs_apart() {
        let called = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(called(&["runs/a", "runs/b/"]), ["a", "b"]);
        assert_eq!(called(&["s/x/seed-1", "s/y/seed-1", "s/y/seed-2"]), ["x/seed-1", "y/seed-1", "seed-2"]);
        assert_eq!(called(&["runs/a", "runs/a"]), ["a", "a"]);
    }
}
