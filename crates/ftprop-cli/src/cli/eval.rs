//! `ftprop eval`

mod report;
mod tables;

use crate::cli::data::{check_placed, find, find_others, is_gone, tell_found};
use crate::cli::outputs::{self, Inputs};
use crate::cli::prepare::Bad;
use crate::cli::{MOST_BATCH, check_choice, counts, load, say_json};
use crate::error::Error;
use crate::progress::{Progress, tell};
use clap::{Args, ValueEnum};
use ftprop_data::{Dataset, Found, Known, Normalize, Shape, Source, Split};
use ftprop_export::classifier::Classifier;
use ftprop_export::zoo;
use ftprop_nn::{Criterion, OutputLoss, Tally, engine};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::confusion::Confusion;
use ftprop_train::device::Place;
use ftprop_train::evaluate::{Predictor, evaluate, evaluation_loader, predictor};
use ftprop_train::files::{self, is_packed};
use ftprop_train::measuring::{Asked, DataNote, Measured as Opened, Measuring, WhichData};
use ftprop_train::model::Which;
use ftprop_train::recipe::{BadImages, Recipe};
use ftprop_train::views::Views;
use report::{Measured, Report};
use safetensors::tensor::{Dtype, TensorView};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Measure a trained network on a part of its data, or on other data
#[derive(Args)]
#[command(after_help = "\
Without --data the test part of the data that the network was trained on is measured. Other data that comes in one piece,
a table or class folders, is measured whole: the columns of a table are matched by their names. The network knows its own
data again, also where they have moved, and of these the test part is measured unless --split says otherwise; where they
have changed, that is refused, for nobody knows then which examples were learned from.

Examples:
  ftprop eval runs/digits
  ftprop eval runs/c8 --split validation --checkpoint last --json
  ftprop eval runs/flowers --data new-flowers.csv --confusion
  ftprop eval best.safetensors --data cifar-10-batches-bin
  ftprop eval c8.ftp --data cifar-10-batches-bin")]
pub(super) struct Eval {
    /// A run folder, a checkpoint file, a packed model (.ftp) or one of the zoo (zoo:NAME)
    model: PathBuf,
    /// Which part of the data [default: test, or all of other data in one piece]
    #[arg(long, value_enum)]
    split: Option<Part>,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// Where the data is, if not where it was in training
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The kind of data, such as cifar10 or folder; for a packed model, where it cannot be told from what is there
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// What to do with pictures that do not decode, if not what was done in training
    #[arg(long, value_name = "WHAT", value_enum)]
    bad_images: Option<Bad>,
    /// Also show how well each class is told from the others, and which are mistaken for which
    #[arg(long)]
    confusion: bool,
    /// Draw which classes are taken for which, as PATH.svg and PATH.png
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Write the normalised examples (rows, columns, channels), labels and logits to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Test-time augmentation: the mean over views of each picture, flip, shift (by a pixel each way) or flip,shift; said
    /// wherever the figure is
    #[arg(long, value_name = "VIEWS")]
    tta: Option<Views>,
    /// Examples a batch
    #[arg(long, default_value_t = 64, value_parser = counts(MOST_BATCH))]
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Train,
    Validation,
    Test,
    /// All examples of data in one piece, those that were learned from included
    All,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum WhichArg {
    /// That of the epoch that was best on the validation part; without one that of the last epoch
    Best,
    /// That of the last step
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

impl Eval {
    /// Of a packed model, with everything else as it is by default.
    pub(super) fn of_packed(model: &Path, data: Option<PathBuf>) -> Self {
        Eval {
            model: model.to_path_buf(),
            split: None,
            checkpoint: WhichArg::Best,
            data,
            source: None,
            bad_images: None,
            confusion: false,
            plot: None,
            save: None,
            tta: None,
            batch: 64,
            device: "cpu".into(),
            threads: 0,
            json: true,
        }
    }

    /// What a packed model was measured on, and its tally.
    pub(super) fn measure(&self) -> Result<(String, Tally), Error> {
        let cpu = Place::open(DeviceChoice::Cpu, self.threads)?.cpu;
        let mut subject = self.packed(cpu.threads())?;
        let loader = evaluation_loader(&subject.dataset.test, &subject.recipe, &subject.dataset, self.batch)?;
        let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0)?;
        let tally = cpu.enter(|| evaluate(&mut *subject.network, &loader, &criterion, &mut |_| {}))?;
        Ok((subject.recipe.data.source.to_string(), tally))
    }

    pub(super) fn run(mut self) -> Result<ExitCode, Error> {
        self.model = zoo::resolve(&self.model)?;
        // Tried before the work.
        let inputs = Inputs::of([self.data.as_deref()]).and_model(&self.model);
        self.save.as_deref().map_or(Ok(()), |file| outputs::try_file(file, &inputs))?;
        self.plot.as_deref().map_or(Ok(()), |path| outputs::try_picture(path, &inputs))?;
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
        let mut subject = if packed { self.packed(cpu.threads())? } else { self.trained(&place)? };
        if let Some(views) = self.tta {
            subject = subject.through(views)?;
        }
        subject.note.iter().for_each(|note| tell(&note.to_string()));
        let split = self.part(&subject, packed)?;
        let Subject { recipe, dataset, .. } = &subject;
        let loader = evaluation_loader(&split, recipe, dataset, self.batch)?;
        let (criterion, own_loss) = match subject.criterion.clone() {
            Some(criterion) => (criterion, true),
            None => (Criterion::new(OutputLoss::CrossEntropy, 0.0)?, false),
        };
        let mut progress = Progress::of_steps("evaluating", loader.batches_per_epoch(), self.json);
        let mut record = self.save.as_ref().map(|_| Record::default());
        let mut confusion = Confusion::new(dataset.classes.len());
        let started = Instant::now();
        let tally = cpu.enter(|| {
            evaluate(&mut *subject.network, &loader, &criterion, &mut |seen| {
                record.iter_mut().for_each(|record| record.add(seen.examples, seen.labels, seen.logits));
                confusion.add(seen.labels, seen.logits);
                progress.step(&seen.so_far);
            })
        })?;
        drop(progress);
        let seconds = started.elapsed().as_secs_f64();
        if let (Some(record), Some(path)) = (record, &self.save) {
            record.write(path, subject.dataset.shape)?;
        }
        let split = match self.split {
            _ if subject.whole => "all",
            Some(Part::Train) => "train",
            Some(Part::Validation) => "validation",
            Some(Part::Test | Part::All) | None => "test",
        };
        let classes = &subject.dataset.classes;
        let (tta, confusion, note) = (self.tta, &confusion, subject.note.as_ref());
        let measured =
            Measured { model: &subject.path, split, note, tta, tally: &tally, own_loss, seconds, classes, confusion };
        let mut drawn = None;
        if let Some(path) = &self.plot {
            drawn = Some(report::picture(classes, confusion, &measured.title()).save(path)?);
        }
        if self.json {
            say_json(&Report::new(&measured))?;
            return Ok(ExitCode::SUCCESS);
        }
        measured.say(self.confusion)?;
        if let Some(drawn) = drawn {
            tell(&format!("which classes are taken for which in {0}.svg and {0}.png", drawn.display()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The examples to measure.
    fn part(&self, subject: &Subject, packed: bool) -> Result<Split, Error> {
        let Subject { recipe, dataset, .. } = subject;
        let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        match self.split {
            Some(Part::Train) => {
                if packed {
                    tell(
                        "what was held out of training for validation is among these: a packed model does not say what",
                    );
                }
                Ok(train)
            }
            Some(Part::Test | Part::All) | None => Ok(dataset.test.clone()),
            Some(Part::Validation) => validation.ok_or_else(|| {
                let why = match packed {
                    true => "a packed model does not say what was held out; evaluate the run instead",
                    false => "the run held out no validation part (its data.validation is 0)",
                };
                Error::Other(why.into())
            }),
        }
    }

    fn asked(&self) -> Asked {
        match self.split {
            None => Asked::Unseen,
            Some(Part::Train) => Asked::Part(engine::Part::Train),
            Some(Part::Validation) => Asked::Part(engine::Part::Validation),
            Some(Part::Test) => Asked::Part(engine::Part::Test),
            Some(Part::All) => Asked::All,
        }
    }

    fn tell_found(&self, found: Option<&Found>) {
        if let (Some(found), Some(data)) = (found, &self.data) {
            tell_found(data, found, self.json);
        }
    }

    /// A network in float and the data it was trained on.
    fn trained(&self, place: &Place) -> Result<Subject, Error> {
        if self.source.is_some() {
            return Err(Error::Usage("--source goes with a packed model; a run knows its data".into()));
        }
        let batch = if place.gpu.is_some() { 1 } else { self.batch };
        let mut model = load(&self.model, self.checkpoint.into(), place.cpu.clone(), batch)?;
        let which = WhichData::of(self.data.as_deref(), model.recipe.data.path.as_deref());
        let found = find_others(&mut model.recipe, self.data.as_deref())?;
        self.leave_out(&mut model.recipe);
        let Opened { mut dataset, whole, note } =
            Measuring::of(&model.recipe, &model.info, which, self.asked()).open().map_err(|error| self.moved(error))?;
        self.tell_found(found.as_ref());
        // Other data must not be normalised by its own mean: the network was trained with this one.
        dataset.normalize = model.info.normalize();
        let (recipe, path) = (model.recipe.clone(), model.path.clone().unwrap_or_else(|| self.model.clone()));
        let criterion = Some(recipe.criterion()?);
        Ok(Subject { network: predictor(model, place, self.batch)?, recipe, dataset, criterion, path, whole, note })
    }

    /// That a network's own data are not where they were, with what to do.
    fn moved(&self, error: ftprop_train::Error) -> Error {
        match is_gone(&error) && self.data.is_none() {
            true => Error::Other(format!("{error}, or say where the data are now: --data PATH")),
            false => error.into(),
        }
    }

    /// What becomes of bad pictures, where the command line says it.
    fn leave_out(&self, recipe: &mut Recipe) {
        match self.bad_images {
            Some(Bad::Skip) => recipe.data.bad_images = BadImages::Skip,
            Some(Bad::Stop) => recipe.data.bad_images = BadImages::Stop,
            None => (),
        }
    }

    /// A packed model and the data that the command line names.
    fn packed(&self, threads: usize) -> Result<Subject, Error> {
        check_choice(&self.model, self.checkpoint.into())?;
        let classifier = Classifier::open(&self.model, threads)?;
        let mut recipe = Recipe::default();
        recipe.data.source = match (&self.source, classifier.source(), &self.data) {
            (Some(source), ..) => source.parse()?,
            (None, Some(source), _) => source,
            (None, None, Some(data)) => Source::detect(data)?.source,
            (None, None, None) => {
                return Err(Error::Usage(
                    "the packed model does not say what it was trained on; give --data PATH, or --source digits".into(),
                ));
            }
        };
        check_placed(&self.model, recipe.data.source, self.data.as_deref(), "give --data PATH")?;
        let found = match self.source {
            Some(_) => find(&mut recipe, self.data.as_deref())?,
            None => find_others(&mut recipe, self.data.as_deref())?,
        };
        self.leave_out(&mut recipe);
        let shape = classifier.shape();
        let known = Known { classes: classifier.classes().to_vec(), table: classifier.table().cloned() };
        let trained_on = classifier.trained_on();
        let Opened { mut dataset, whole, note } = Measuring {
            data: &recipe.data,
            known,
            shape,
            preprocess: classifier.preprocess(),
            trained_on: trained_on.as_ref(),
            which: WhichData::of(self.data.as_deref(), None),
            asked: self.asked(),
        }
        .open()?;
        self.tell_found(found.as_ref());
        // The model normalises as it was trained; whatever the data would do is undone with the same numbers.
        dataset.normalize = Normalize { full: dataset.normalize.full, ..classifier.normalize() };
        let criterion = classifier.criterion().transpose()?;
        Ok(Subject { network: Box::new(classifier), recipe, dataset, criterion, path: self.model.clone(), whole, note })
    }
}

/// What is measured, and on what.
struct Subject {
    network: Box<dyn Predictor>,
    recipe: Recipe,
    dataset: Dataset,
    /// The loss it was trained with, where that is known.
    criterion: Option<Criterion>,
    path: PathBuf,
    /// Whether the test part is all of the data.
    whole: bool,
    /// What is to be said about it.
    note: Option<DataNote>,
}

impl Subject {
    /// Asked about several views of each picture.
    fn through(self, views: Views) -> Result<Self, Error> {
        let Shape { height, width, .. } = self.dataset.shape;
        if height * width == 1 {
            return Err(Error::Usage("--tta is for pictures; the rows of a table have no views".into()));
        }
        let network = views.through(self.network, self.dataset.shape);
        Ok(Subject { network, ..self })
    }
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
