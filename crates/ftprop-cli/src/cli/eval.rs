//! `ftprop eval`

use super::{load, say, say_json};
use crate::error::Error;
use crate::progress::Progress;
use clap::{Args, ValueEnum};
use ftprop_data::{Dataset, Normalize, Preprocess, Shape, Source};
use ftprop_export::classifier::Classifier;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::evaluate::{Predictor, check_data, evaluate, evaluation_loader, predictor};
use ftprop_train::files::{self, is_packed};
use ftprop_train::model::Which;
use ftprop_train::recipe::Recipe;
use ftprop_train::run::Scores;
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Measure a trained network on a part of its data
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop eval runs/digits
  ftprop eval runs/c8 --split validation --checkpoint last --json
  ftprop eval best.safetensors --data cifar-10-batches-bin
  ftprop eval c8.ftp --source cifar10 --data cifar-10-batches-bin")]
pub(super) struct Eval {
    /// A run folder, a checkpoint file or a packed model (.ftp)
    model: PathBuf,
    /// Which part of the data
    #[arg(long, value_enum, default_value = "test")]
    split: Part,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// Where the data is, if not where it was in training
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The kind of data, such as cifar10 or folder; for a packed model, which does not say what it was trained on
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Write the normalised examples (rows, columns, channels), labels and logits to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Examples a batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
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

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Train,
    Validation,
    Test,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum WhichArg {
    Best,
    Last,
}

impl From<WhichArg> for Which {
    fn from(arg: WhichArg) -> Self {
        match arg {
            WhichArg::Best => Which::Best,
            WhichArg::Last => Which::Last,
        }
    }
}

#[derive(Serialize)]
struct Report {
    model: String,
    split: Part,
    examples: u64,
    #[serde(flatten)]
    scores: Scores,
    seconds: f64,
    images_per_s: f64,
}

impl Eval {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        if self.batch == 0 {
            return Err(Error::Usage("--batch must be at least 1".into()));
        }
        // A packed model is for CPUs.
        let packed = is_packed(&self.model);
        let device = match self.device.parse()? {
            DeviceChoice::Auto if packed => DeviceChoice::Cpu,
            device => device,
        };
        let place = Place::open(device, self.threads)?;
        let cpu = place.cpu.clone();
        if packed && place.gpu.is_some() {
            return Err(Error::Usage("a packed model runs on the CPU; leave --device out".into()));
        }
        let Subject { mut network, recipe, dataset, path } =
            if packed { self.packed(cpu.threads())? } else { self.trained(&place)? };
        let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        let split = match self.split {
            Part::Train => train,
            Part::Test => dataset.test.clone(),
            Part::Validation => validation.ok_or_else(|| {
                Error::Other(
                    if packed {
                        "a packed model does not say what was held out; evaluate the run instead"
                    } else {
                        "the run held out no validation part (its data.validation is 0)"
                    }
                    .into(),
                )
            })?,
        };
        let loader = evaluation_loader(&split, &recipe, &dataset, self.batch)?;
        let criterion = recipe.criterion()?;
        let mut progress = Progress::of_steps("evaluating", loader.batches_per_epoch(), self.json);
        let mut record = self.save.as_ref().map(|_| Record::default());
        let started = Instant::now();
        let tally = cpu.enter(|| {
            evaluate(&mut *network, &loader, &criterion, &mut |seen| {
                record.iter_mut().for_each(|record| record.add(seen.examples, seen.labels, seen.logits));
                progress.step(&seen.so_far);
            })
        })?;
        drop(progress);
        let seconds = started.elapsed().as_secs_f64();
        if let (Some(record), Some(path)) = (record, &self.save) {
            record.write(path, dataset.shape)?;
        }
        let report = Report {
            model: path.display().to_string(),
            split: self.split,
            examples: tally.examples,
            scores: Scores::from(&tally),
            seconds,
            images_per_s: tally.examples as f64 / seconds,
        };
        if self.json {
            say_json(&report)?;
        } else {
            let Scores { loss, top1, top5 } = report.scores;
            say(&format!(
                "{}: top-1 {:.2} %, top-5 {:.2} %, loss {loss:.4} over {} examples ({:.0} images/s)",
                report.model,
                100.0 * top1,
                100.0 * top5,
                report.examples,
                report.images_per_s
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A network in float and the data it was trained on.
    fn trained(&self, place: &Place) -> Result<Subject, Error> {
        if self.source.is_some() {
            return Err(Error::Usage("--source goes with a packed model; a run knows its data".into()));
        }
        let batch = if place.gpu.is_some() { 1 } else { self.batch };
        let mut model = load(&self.model, self.checkpoint.into(), place.cpu.clone(), batch)?;
        if let Some(data) = &self.data {
            model.recipe.data.path = Some(data.clone());
        }
        let mut dataset = model.recipe.data.open()?;
        check_data(&dataset, model.info.shape(), &model.info.classes)?;
        // Other data must not be normalised by its own mean: the network was trained with this one.
        dataset.normalize = model.info.normalize();
        let (recipe, path) = (model.recipe.clone(), model.path.clone().unwrap_or_else(|| self.model.clone()));
        Ok(Subject { network: predictor(model, place, self.batch)?, recipe, dataset, path })
    }

    /// A packed model and the data that the command line names.
    fn packed(&self, threads: usize) -> Result<Subject, Error> {
        let classifier = Classifier::open(&self.model, threads)?;
        let Preprocess { shape, resize, normalize } = classifier.preprocess();
        let Some(source) = &self.source else {
            return Err(Error::Usage(
                "a packed model does not say what it was trained on; give --source, such as cifar10, and --data".into(),
            ));
        };
        let mut recipe = Recipe::default();
        recipe.data.source = source.parse()?;
        recipe.data.path.clone_from(&self.data);
        if recipe.data.source == Source::Folder {
            recipe.data.resize = Some(resize);
        }
        if recipe.data.source != Source::Csv && shape.height == shape.width {
            recipe.data.crop = Some(shape.height);
        }
        let mut dataset = recipe.data.open()?;
        check_data(&dataset, shape, classifier.classes())?;
        // The model normalises as it was trained; whatever the data would do is undone with the same numbers.
        dataset.normalize = Normalize { full: dataset.normalize.full, ..normalize };
        Ok(Subject { network: Box::new(classifier), recipe, dataset, path: self.model.clone() })
    }
}

/// What is measured, and on what.
struct Subject {
    network: Box<dyn Predictor>,
    recipe: Recipe,
    dataset: Dataset,
    path: PathBuf,
}

/// What went in and came out, for other programs to compare with.
#[derive(Default)]
struct Record {
    images: Vec<u8>,
    labels: Vec<u8>,
    logits: Vec<u8>,
    examples: usize,
}

impl Record {
    fn add(&mut self, images: &[f32], labels: &[u32], logits: &[f32]) {
        self.images.extend(images.iter().flat_map(|v| v.to_le_bytes()));
        self.labels.extend(labels.iter().flat_map(|&label| i64::from(label).to_le_bytes()));
        self.logits.extend(logits.iter().flat_map(|v| v.to_le_bytes()));
        self.examples += labels.len();
    }

    fn write(&self, path: &Path, shape: Shape) -> Result<(), Error> {
        let n = self.examples;
        let classes = self.logits.len() / 4 / n.max(1);
        let views = [
            ("images", Dtype::F32, vec![n, shape.height, shape.width, shape.channels], &self.images),
            ("labels", Dtype::I64, vec![n], &self.labels),
            ("logits", Dtype::F32, vec![n, classes], &self.logits),
        ];
        let views: Result<Vec<_>, _> = views
            .into_iter()
            .map(|(name, dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).map(|view| (name, view)))
            .collect();
        let bytes = views
            .and_then(|views| safetensors::serialize(views, None))
            .map_err(|e| Error::Other(format!("writing {}: {e}", path.display())))?;
        Ok(files::write(path, &bytes)?)
    }
}
