//! `ftprop zoo`

use super::eval::Eval;
use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_export::classifier::Classifier;
use ftprop_export::zoo::{Entry, Zoo};
use ftprop_train::files;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// List the packed models that come with the program, or put one in
#[derive(Args)]
#[command(after_help = "\
A model of the zoo goes by its name wherever a packed model does: ftprop predict zoo:NAME IMAGE, ftprop eval zoo:NAME. The
zoo is the folder that the environment's FTPROP_ZOO names, or the folder zoo beside the program or here.

Examples:
  ftprop zoo
  ftprop zoo --report results/zoo.md
  ftprop zoo --add fast.ftp --name cifar10-fast-sign --recipe fast-sign --seed 1 --data cifar-10-batches-bin")]
pub(super) struct Zoos {
    /// Put in this packed model (.ftp), once its accuracy was measured
    #[arg(long, value_name = "FILE", requires_all = ["name", "recipe"])]
    add: Option<PathBuf>,
    /// With --add: also put in the weights that it was packed from, a run folder's checkpoint, to begin training with
    #[arg(long, value_name = "FILE", requires = "add")]
    weights: Option<PathBuf>,
    /// What it is to be called
    #[arg(long)]
    name: Option<String>,
    /// The recipe that it was trained by
    #[arg(long)]
    recipe: Option<String>,
    /// The seed that it was trained with
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the data is that it is measured on
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Also measure how long an image takes, on one thread, and write a table in Markdown
    #[arg(long, value_name = "FILE", conflicts_with = "add")]
    report: Option<PathBuf>,
    /// The folder, where it is not the program's
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A model as it is shown.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// Whether its file is the one that the index means.
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms_per_image: Option<f64>,
}

impl Zoos {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        if let Some(file) = &self.add {
            return self.put_in(file);
        }
        let zoo = self.folder.as_deref().map_or_else(Zoo::find, Zoo::open)?;
        let mut rows = Vec::new();
        for entry in zoo.models() {
            let path = zoo.model(&entry.name);
            let weights = entry.weights.as_ref().map(|_| zoo.weights(&entry.name)).transpose();
            let ms_per_image = match (&path, &self.report) {
                (Ok(path), Some(_)) => Some(latency(path)?),
                _ => None,
            };
            rows.push(Row { entry, sound: path.is_ok() && weights.is_ok(), ms_per_image });
        }
        if let Some(file) = &self.report {
            files::write(file, table(&rows).as_bytes())?;
        }
        if self.json {
            say_json(&rows)?;
        } else {
            rows.iter().try_for_each(|row| say(&line(row)))?;
        }
        Ok(if rows.iter().all(|row| row.sound) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn put_in(&self, file: &Path) -> Result<ExitCode, Error> {
        let folder = self.folder.clone().unwrap_or_else(|| PathBuf::from("zoo"));
        let (data, tally) = Eval::of_packed(file, self.data.clone()).measure()?;
        let entry = Entry {
            name: self.name.clone().unwrap_or_default(),
            sha256: String::new(),
            bytes: 0,
            recipe: self.recipe.clone().unwrap_or_default(),
            seed: self.seed,
            data,
            accuracy: tally.top1_share(),
            weights: None,
        };
        let mut zoo = Zoo::open_or_new(&folder)?;
        let name = entry.name.clone();
        let weights = self.weights.as_deref().map(files::read).transpose()?;
        zoo.add(entry, &files::read(file)?, weights.as_deref())?;
        let added = zoo.models().iter().find(|model| model.name == name);
        added.map_or(Ok(()), |entry| say(&line(&Row { entry, sound: true, ms_per_image: None })))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn line(row: &Row<'_>) -> String {
    let Entry { name, bytes, recipe, seed, data, accuracy, .. } = row.entry;
    let sound = if row.sound { "" } else { "; NOT the file that the index means" };
    let (kb, percent) = (*bytes as f64 / 1e3, 100.0 * accuracy);
    format!("{name}: {percent:.2} % of the test part of {data}, {kb:.0} kB, recipe {recipe}, seed {seed}{sound}")
}

/// Milliseconds of one image on one thread: the least of several rounds.
fn latency(path: &Path) -> Result<f64, Error> {
    let mut classifier = Classifier::open(path, 1)?;
    let shape = classifier.shape();
    let image = vec![0.1; shape.height * shape.width * shape.channels];
    let mut least = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        classifier.logits(&image)?;
        least = least.min(1e3 * started.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn table(rows: &[Row<'_>]) -> String {
    let mut text = String::from(
        "# The zoo\n\nPacked models in the folder `zoo`, made by `ftprop zoo --report results/zoo.md`. Accuracies are those of the \
         packed model on the test\npart, without test-time augmentation; milliseconds are those of one image on one thread of the \
         machine that made this table.\n\n\
         | name | data | recipe, seed | accuracy, % | size, kB | ms an image | SHA-256 |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for Row { entry, ms_per_image, .. } in rows {
        let Entry { name, sha256, bytes, recipe, seed, data, accuracy, .. } = entry;
        let (percent, kb) = (100.0 * accuracy, *bytes as f64 / 1e3);
        let ms = ms_per_image.map_or_else(|| "damaged".to_string(), |ms| format!("{ms:.2}"));
        text += &format!("| `zoo:{name}` | {data} | {recipe}, {seed} | {percent:.2} | {kb:.0} | {ms} | `{sha256}` |\n");
    }
    text
}
