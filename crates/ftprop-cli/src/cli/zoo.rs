//! `ftprop zoo`

use super::eval::Eval;
use super::outputs::{Inputs, try_file};
use super::{device, load, quoted, say, say_json};
use crate::error::Error;
use crate::progress::tell;
use clap::Args;
use ftprop_export::classifier::Classifier;
use ftprop_export::origin;
use ftprop_export::zoo::{self, Entry, Zoo};
use ftprop_train::files;
use ftprop_train::model::Which;
use ftprop_train::recipe::Recipe;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// List the packed models that come with the program, or put one in
#[derive(Args)]
#[command(after_help = "\
A model of the zoo goes by its name wherever a trained network does: ftprop predict zoo:NAME IMAGE, eval, summary, export,
bench infer, robust. With its weights it can also teach (train.teacher = \"zoo:NAME\") and be learned further (ftprop train
--init-from zoo:NAME). The zoo is the folder that the environment's FTPROP_ZOO names, or the folder zoo beside the program
or here.

Examples:
  ftprop zoo
  ftprop zoo --report results/zoo.md
  ftprop zoo --add fast.ftp --weights runs/fast/best.safetensors --name cifar10-fast-sign --recipe fast-sign --seed 1 \\
    --data cifar-10-batches-bin")]
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
    /// The recipe that it was trained by: the name of a built-in one, or a TOML file
    #[arg(long)]
    recipe: Option<PathBuf>,
    /// The seed that it was trained with
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// With --add: put it in the place of the model of that name
    #[arg(long, requires = "add")]
    replace: bool,
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
        self.report.as_deref().map_or(Ok(()), |file| try_file(file, &Inputs::default()))?;
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
        let (name, recipe) = (self.name.clone().unwrap_or_default(), self.recipe.clone().unwrap_or_default());
        let folder = self.folder.clone().or_else(|| std::env::var_os(zoo::VARIABLE).map(PathBuf::from));
        let folder = folder.unwrap_or_else(|| PathBuf::from("zoo"));
        let mut zoo = Zoo::open_or_new(&folder)?;
        zoo.check_name(&name, self.replace)?;
        let bytes = files::read(file)?;
        self.check_recipe(file, &bytes, &recipe)?;
        let weights = self.weights.as_deref().map(|weights| self.kept_weights(weights, file, &bytes)).transpose()?;
        let (data, tally) = Eval::of_packed(file, self.data.clone()).measure()?;
        let entry = Entry {
            name: name.clone(),
            sha256: String::new(),
            bytes: 0,
            recipe: recipe.display().to_string(),
            seed: self.seed,
            data,
            accuracy: tally.top1_share(),
            weights: None,
        };
        zoo.add(entry, &bytes, weights.as_deref())?;
        let added = zoo.models().iter().find(|model| model.name == name);
        added.map_or(Ok(()), |entry| say(&line(&Row { entry, sound: true, ms_per_image: None })))?;
        // Where the program has a zoo of its own, that is the one that names are looked up in.
        if Zoo::find().map_or(true, |found| !found.is_in(&folder)) {
            tell(&format!(
                "to use it by its name, say where the zoo is: FTPROP_ZOO={}",
                quoted(&folder.display().to_string())
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A model is listed under the recipe that makes its network, and no other.
    fn check_recipe(&self, file: &Path, bytes: &[u8], recipe: &Path) -> Result<(), Error> {
        let wrong = |why: String| ftprop_export::Error::NotAModel { path: file.to_path_buf(), why };
        let packed = ftprop_runtime::Model::parse(bytes).map_err(|e| wrong(e.to_string()))?;
        let of: Recipe = Recipe::layers_of(recipe)?.build()?;
        match origin::differs_from_recipe(&packed, &of)? {
            None => Ok(()),
            Some(difference) => {
                Err(wrong(format!("it is not the network of the recipe {}: {difference}", recipe.display())).into())
            }
        }
    }

    /// The weights' bytes, once it is clear that the model was packed from them, and with the seed that is said.
    fn kept_weights(&self, weights: &Path, file: &Path, packed: &[u8]) -> Result<Vec<u8>, Error> {
        let wrong = |why: String| ftprop_export::Error::NotAModel { path: weights.to_path_buf(), why };
        // One file is read, so that what is checked is what is kept.
        let bytes = files::read(weights)?;
        let model = load(weights, Which::Best, device("cpu", 1)?, 1)?;
        if !origin::is_packed_from(packed, &model)? {
            return Err(wrong(format!("{} was not packed from these weights", file.display())).into());
        }
        match model.recipe.train.seed {
            seed if seed == self.seed => Ok(bytes),
            seed => Err(wrong(format!("these weights were trained with seed {seed}, not {}", self.seed)).into()),
        }
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
