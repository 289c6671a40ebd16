//! `ftprop train`

mod begin;

use super::data::{locate, place_networks, recipe_layers};
use super::ranks::{RankArgs, Seat};
use super::{quoted, say, say_json};
use crate::board::Board;
use crate::error::Error;
use crate::progress::{Progress, counted, tell};
use begin::tell_begin;
use clap::Args;
use ftprop_data::Dataset;
use ftprop_lab::pictures::Pictures;
use ftprop_tensor::Share;
use ftprop_train::checked::CheckedRecipe;
use ftprop_train::config::Layers;
use ftprop_train::device::Place;
use ftprop_train::fleet::{self, Job};
use ftprop_train::measuring::open_again;
use ftprop_train::observe::{Ending, StopFlag, Together};
use ftprop_train::recipe::{Recipe, input_shape};
use ftprop_train::run::{RunFolder, Summary, folder_name};
use ftprop_train::team::claims;
use ftprop_train::trainer::Trainer;
use ftprop_train::words::{plain, seconds};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Train a network by mini-batch feasible target propagation
#[derive(Args)]
#[command(after_help = "\
Without a recipe it trains on the built-in digits, or, with --data, a network that fits itself to what is there: pictures
in class folders, a table (.csv), the files of CIFAR or MNIST. Later settings win: defaults, recipe, --set, named flags.
With several recipes a GPU trains them at the same time, a CPU one after another; --out is then the folder that the
run folders are made in, and the same command again goes on with what is not finished.

Examples:
  ftprop train
  ftprop train --data photos
  ftprop train --data flowers.csv --set data.csv.label=species
  ftprop train --recipe convnet8-qrelu-ftpsh --data cifar-10-batches-bin --set train.epochs=10
  ftprop train --recipe my.toml --set activation=qrelu:3 --set optimizer.lr=5e-4 --out runs/trial
  ftprop train --recipe a.toml --recipe b.toml --device cuda:0 --out runs/both
  ftprop train --data my-photos --init-from runs/photos --set optimizer.lr=5e-4
  ftprop train --resume runs/trial
  ftprop train --resume runs/trial --set optimizer.lr=1e-4 --epochs 20")]
pub(super) struct Train {
    /// The recipe, a TOML file; may be repeated to train several
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    recipe: Vec<PathBuf>,
    /// Where the data is: a folder, an archive or a file (recipe key data.path)
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Set a recipe's key, such as train.epochs=10; may be repeated. With --resume only what a run can go on with, such as
    /// optimizer.lr, schedule, augmentation; it is told and recorded in changes.jsonl
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The run folder to make [default: runs/NAME]
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Begin with the network of another run, or one of the zoo (zoo:NAME), wherever layers have the same place and shape,
    /// so with another last layer where there are other classes; groups with lr_factor = 0 freeze what is not to be learned
    /// again (train.init_from)
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    init_from: Option<PathBuf>,
    /// Go on with a run where it stopped
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// auto (a GPU if there is one), cpu, or cuda:0 and so on (train.device)
    #[arg(long)]
    device: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Of several recipes, how many to train at the same time; 0 for as many as pays
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "resume")]
    at_once: usize,
    /// Worker threads, 0 for one a core (train.threads); the result does not depend on it
    #[arg(long)]
    threads: Option<usize>,
    /// What all randomness depends on (train.seed)
    #[arg(long, conflicts_with = "resume")]
    seed: Option<i64>,
    /// How often to go through the training data (train.epochs); the schedule of a new run is scaled to it
    #[arg(long)]
    epochs: Option<u32>,
    /// Look into the hard layers after each epoch (train.diagnostics): diagnostics.jsonl and a picture of it
    #[arg(long)]
    diagnostics: bool,
    /// Train nothing: check everything and print the whole recipe, which can be kept and changed, with data and network
    #[arg(long)]
    dry_run: bool,
    /// Print nothing but errors and the result
    #[arg(long)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result of a run and where it is.
#[derive(Serialize)]
struct Finished {
    run: String,
    #[serde(flatten)]
    summary: Summary,
}

impl Train {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        if self.recipe.len() > 1 {
            if self.dry_run {
                return Err(Error::Usage("--dry-run goes with a single recipe".into()));
            }
            return self.run_several();
        }
        let mut seat = if self.dry_run { None } else { self.ranks.take_seat()? };
        let outcome = self.run_one(seat.as_mut());
        match (seat, outcome) {
            // The first has been told, and says it.
            (Some(seat), Err(error)) if seat.has_met() && !seat.is_first() && !error.is_loss_of_the_first() => {
                Ok(ExitCode::FAILURE)
            }
            (_, outcome) => outcome,
        }
    }

    /// One recipe, alone or as one of several ranks.
    fn run_one(&self, mut seat: Option<&mut Seat>) -> Result<ExitCode, Error> {
        let resumed = self.resume.is_some();
        let (recipe, folder) = match &self.resume {
            Some(run) => {
                let folder = RunFolder::open(run)?;
                let set = |layers: Layers, setting: &String| layers.set(setting);
                let mut recipe: Recipe = self.set.iter().try_fold(folder.recipe_layers()?, set)?.build()?;
                self.overrule(&mut recipe)?;
                recipe.train.epochs = self.epochs.unwrap_or(recipe.train.epochs);
                (recipe, Some(folder))
            }
            None => (self.resolve(self.recipe.first().map(PathBuf::as_path))?, None),
        };
        let recipe = recipe.checked()?;
        let folder = match folder {
            Some(folder) => folder,
            None => match &self.out {
                Some(out) if seat.as_ref().is_none_or(|seat| seat.is_first()) => RunFolder::planned(out)?,
                _ => RunFolder::numbered(&Path::new("runs").join(folder_name(&recipe.name))),
            },
        };
        let (device, threads) = match &seat {
            Some(seat) => seat.place(&recipe),
            None => (recipe.train.device, recipe.train.threads),
        };
        let mut place = Place::open(device, threads)?;
        let dataset = match (&self.resume, folder.last()) {
            (Some(_), Ok(Some(saved))) => open_again(&recipe.data, &saved.header.model)?,
            _ => recipe.data.open()?,
        };
        if self.dry_run {
            return dry_run(&recipe, &dataset, self.json);
        }
        if let Some(seat) = &mut seat {
            let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
            let kind = if place.gpu.is_some() { "cuda" } else { "cpu" };
            place.team = Some(seat.join(claims(&recipe, &dataset, &graph, kind)?)?);
            if !seat.is_first() {
                return follow(recipe, &dataset, &place);
            }
        }
        let abandoning = |error: &Error| place.team.iter().for_each(|team| team.abandon(&error.to_string()));
        self.lead(recipe, folder, &dataset, &place, resumed).inspect_err(abandoning)
    }

    /// Trains in a run folder, and says how it goes.
    fn lead(
        &self,
        recipe: CheckedRecipe,
        folder: RunFolder,
        dataset: &Dataset,
        place: &Place,
        resumed: bool,
    ) -> Result<ExitCode, Error> {
        let open = if resumed && !self.set.is_empty() { Trainer::with_changes } else { Trainer::in_folder };
        let mut trainer = open(recipe.clone(), folder.clone(), dataset, place)?;
        let done = trainer.state().epoch - 1;
        if self.epochs.is_some() && done > recipe.train.epochs {
            return Err(Error::Usage(format!(
                "--epochs {}: {} already has {}",
                recipe.train.epochs,
                folder.path().display(),
                counted(done, "epoch")
            )));
        }
        // Everything that can be wrong with the data or the network was found before anything is written, but for
        // pictures, which are decoded when they are needed.
        let existed = self.out.as_ref().is_some_and(|out| out.exists());
        let folder = trainer.claim()?.cloned().unwrap_or(folder);
        let out = folder.path().display().to_string();
        if !self.quiet {
            tell_begin(&trainer, &recipe, dataset, place);
            if resumed {
                tell(&self.going_on(&trainer, &out));
            }
        }
        let stop = stop_on_ctrl_c();
        let (state, steps) = (*trainer.state(), trainer.steps_per_epoch());
        let mut progress = Progress::new(recipe.train.epochs, steps, self.quiet).resumed(state.epoch - 1, state.batch);
        let (mut pictures, mut flag) = (Pictures::default(), StopFlag(&stop));
        let ending = trainer.run(&mut Together(vec![&mut progress, &mut pictures, &mut flag]));
        drop(progress);
        if let (false, Err(ftprop_train::Error::Data(_))) = (resumed, &ending) {
            folder.take_back(existed);
        }
        match ending? {
            Ending::Finished(summary) => {
                if self.json {
                    say_json(&Finished { run: out, summary })?;
                } else {
                    report(&summary, &out, recipe.train.epochs)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Ending::Interrupted { epoch, step } => {
                tell(&format!(
                    "stopped in epoch {epoch} after step {step}, all saved; go on with: ftprop train --resume {}",
                    quoted(&out)
                ));
                Ok(ExitCode::from(130))
            }
        }
    }

    /// Where a run goes on, or that it does not.
    fn going_on(&self, trainer: &Trainer, out: &str) -> String {
        let state = trainer.state();
        let done = counted(state.epoch - 1, "epoch");
        let kept = if self.set.is_empty() { "" } else { "; nothing is trained, so no setting was changed" };
        match trainer.is_over() {
            true if state.epoch > trainer.recipe().train.epochs => {
                format!("{out} has all of its {done}{kept}; add some with --epochs")
            }
            true => format!("{out} was ended after {done} by train.patience{kept}; go on with a larger one"),
            false => format!("going on with {out} in epoch {}, step {}", state.epoch, state.batch + 1),
        }
    }

    /// Whether several networks may train at the same time.
    pub(super) fn trains_several(&self) -> bool {
        self.recipe.len() > 1 && self.at_once != 1
    }

    /// Several recipes, as a fleet.
    fn run_several(&self) -> Result<ExitCode, Error> {
        let parent = self.out.clone().unwrap_or_else(|| PathBuf::from("runs"));
        let job = |file: &PathBuf| {
            let recipe = self.resolve(Some(file))?;
            Ok(Job { folder: parent.join(folder_name(&recipe.name)), recipe: recipe.checked()? })
        };
        let jobs = self.recipe.iter().map(job).collect::<Result<Vec<Job>, Error>>()?;
        let stop = stop_on_ctrl_c();
        let board = Board::new(self.quiet, &stop);
        let folders: Vec<PathBuf> = jobs.iter().map(|j| j.folder.clone()).collect();
        let (mut summaries, mut failed, mut interrupted) = (Vec::new(), 0, 0u32);
        let endings = fleet::train_on(&jobs, &self.ranks.devices()?, self.at_once, &board)?;
        for ((ending, folder), job) in endings.into_iter().zip(&folders).zip(&jobs) {
            match ending {
                Ok(Ending::Finished(summary)) => {
                    if !self.json {
                        say(&format!("{}:", plain(&summary.name)))?;
                        report(&summary, &folder.display().to_string(), job.recipe.train.epochs)?;
                    }
                    summaries.push(Finished { run: folder.display().to_string(), summary });
                }
                Ok(Ending::Interrupted { .. }) => interrupted += 1,
                Err(_) => failed += 1,
            }
        }
        if self.json {
            say_json(&summaries)?;
        }
        if interrupted > 0 {
            tell(&format!("{} not finished, all saved; the same command goes on", counted(interrupted, "run")));
            return Ok(ExitCode::from(130));
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The recipe of a new run.
    fn resolve(&self, file: Option<&Path>) -> Result<Recipe, Error> {
        let mut layers = recipe_layers(file, self.data.as_deref(), &self.set, self.quiet)?;
        for setting in &self.set {
            layers = layers.set(setting)?;
        }
        if let Some(seed) = self.seed {
            layers = layers.flag("--seed", "train.seed", seed)?;
        }
        let mut recipe: Recipe = layers.build()?;
        self.overrule(&mut recipe)?;
        let Some(epochs) = self.epochs else { return Ok(recipe) };
        let scaled = recipe.scaled(epochs);
        let (before, after) = (recipe.data.sizes.len(), scaled.data.sizes.len());
        if after < before {
            tell(&format!(
                "--epochs {epochs} scales data.sizes from {} epochs, which leaves {after} of its {before} sizes; \
                 --set train.epochs={epochs} keeps them as they are",
                recipe.train.epochs
            ));
        }
        Ok(scaled)
    }

    /// The named flags that a resumed run may change, too: none of them changes what a step computes.
    fn overrule(&self, recipe: &mut Recipe) -> Result<(), Error> {
        locate(recipe, self.data.as_deref(), self.quiet)?;
        if let Some(device) = &self.device {
            recipe.train.device = device.parse()?;
        }
        if let Some(threads) = self.threads {
            recipe.train.threads = threads;
        }
        if self.init_from.is_some() {
            recipe.train.init_from.clone_from(&self.init_from);
        }
        place_networks(recipe)?;
        recipe.train.diagnostics |= self.diagnostics;
        Ok(())
    }
}

/// Trains as a rank that is not the first: nothing is written or said here.
fn follow(recipe: CheckedRecipe, dataset: &Dataset, place: &Place) -> Result<ExitCode, Error> {
    let stop = stop_on_signal(|| ());
    let trained = Trainer::new(recipe, dataset, place).and_then(|mut trainer| trainer.run(&mut StopFlag(&stop)));
    if let (Err(error), Some(team)) = (&trained, &place.team) {
        team.abandon(&error.to_string());
    }
    Ok(match trained? {
        Ending::Finished(_) => ExitCode::SUCCESS,
        Ending::Interrupted { .. } => ExitCode::from(130),
    })
}

/// Says what would be trained: the recipe as TOML, with data and network in comments above it.
fn dry_run(recipe: &CheckedRecipe, dataset: &Dataset, json: bool) -> Result<ExitCode, Error> {
    let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
    let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
    recipe.learning(&graph)?;
    if let Some(notice) = recipe.check_batches(&graph, train.len(), Share::WHOLE)? {
        tell(&notice.to_string());
    }
    recipe.idle(&graph).iter().for_each(|notice| tell(&notice.to_string()));
    let network = super::summary::Report::of(&graph);
    let validation = validation.map_or(0, |part| part.len());
    if json {
        say_json(&serde_json::json!({
            "recipe": &**recipe,
            "data": {
                "source": dataset.name,
                "train": train.len(),
                "validation": validation,
                "test": dataset.test.len(),
                "classes": dataset.classes,
                "shape": [dataset.shape.height, dataset.shape.width, dataset.shape.channels],
            },
            "network": network,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "# {}: {} training, {validation} held-out and {} test examples, {} classes",
        dataset.name,
        train.len(),
        dataset.test.len(),
        dataset.classes.len()
    ))?;
    if let Some(table) = &dataset.table {
        say(&format!("# {}", begin::columns(table)))?;
    }
    network.lines(usize::MAX).iter().try_for_each(|line| say(format!("# {line}").trim_end()))?;
    say(&format!("\n{}", recipe.to_toml()?.trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

/// The first Ctrl-C asks for a stop after the step under way, the second ends the program at once.
pub(super) fn stop_on_ctrl_c() -> Arc<AtomicBool> {
    stop_on_signal(|| tell("\nstopping after this step; press Ctrl-C again to end at once"))
}

fn stop_on_signal(say: impl Fn() + Send + 'static) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // Without a handler Ctrl-C simply kills, and --resume still works: no reason to refuse to train.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        say();
    });
    stop
}

fn report(s: &Summary, place: &str, epochs: u32) -> Result<(), Error> {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    say(&format!(
        "test accuracy {} after {}, train {}; {} in all, {:.0} examples/s",
        percent(s.test.top1_last),
        counted(s.epochs, "epoch"),
        percent(s.train.top1_last),
        seconds(s.seconds),
        s.images_per_s
    ))?;
    if s.epochs < epochs {
        say(&format!(
            "ended after epoch {}: {} brought none that was better on the validation part",
            s.epochs,
            counted(s.epochs - s.best_epoch, "epoch")
        ))?;
    }
    // The paper's tables give the best epoch on the test part, so it is given too, and called what it is.
    let paper = format!("the best epoch on the test part, which flatters, had {}", percent(s.test.top1_best));
    say(&match s.validation {
        Some(v) => format!(
            "kept is epoch {}, best on the validation part with {}, where the test accuracy was {}; {paper}",
            s.best_epoch,
            percent(v.top1_best),
            percent(s.test_top1_at_best)
        ),
        None => format!("kept is the last epoch, for nothing was held out to choose by (data.validation); {paper}"),
    })?;
    say(&format!("run folder {place}, curves in {place}/curves.png"))
}
