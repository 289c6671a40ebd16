//! `ftprop sweep`

use super::data::{locate, place_networks, recipe_layers};
use super::study::StudyArgs;
use crate::error::Error;
use crate::progress::tell;
use clap::Args;
use ftprop_lab::study;
use ftprop_lab::sweep::plan::Plan;
use ftprop_lab::sweep::report::report;
use ftprop_lab::sweep::{Axis, Base, points};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::config::Origin;
use ftprop_train::fleet::Job;
use ftprop_train::recipe::{Recipe, absolute};
use std::path::PathBuf;
use std::process::ExitCode;

/// Train every combination of a grid over recipe keys, and compare them
#[derive(Args)]
#[command(after_help = "\
Each --grid names a key and its values; all combinations are trained, for every recipe and seed, several at a time on a
GPU. The same command goes on with what is not finished. The report, OUT/report.html and OUT/report.md, has a table and
the learning curves. Without a recipe it sweeps over the built-in digits, or a recipe written for --data. Combinations are
ranked by validation where there is some (--set data.validation=0.1): the test part is not there to choose by.

Examples:
  ftprop sweep --grid layer_loss=soft_hinge,saturated_hinge,approx_sign --grid optimizer.lr=1e-3,5e-4 --out sweep
  ftprop sweep --recipe convnet8-sign-ftpsh --data cifar-10-batches-bin --epochs 100 \\
    --grid layer_loss=soft_hinge,hinge,log --out losses
  ftprop sweep --recipe my.toml --grid 'schedule.decay_at=[20,25],[15,25]' --seeds 3 --out decay
  ftprop sweep --study target-rules-cpu --device cpu --out rules")]
pub(super) struct Sweep {
    /// The recipe, a TOML file; may be repeated
    #[arg(long, value_name = "FILE")]
    recipe: Vec<PathBuf>,
    /// Where the data is (recipe key data.path)
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// A key and its values, such as optimizer.lr=1e-3,5e-4; may be repeated
    #[arg(long, value_name = "KEY=VALUES")]
    grid: Vec<String>,
    /// Seeds 1 to N for each combination; 1 if not given
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// A sweep that is written down, by name or as a TOML file: its recipes, grid, settings, seeds and epochs
    #[arg(long = "study", value_name = "NAME", conflicts_with_all = ["recipe", "grid"])]
    plan: Option<PathBuf>,
    /// The folder for runs and report
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    study: StudyArgs,
}

impl Sweep {
    pub(super) fn run(mut self) -> Result<ExitCode, Error> {
        let mut axes: Vec<Axis> = Vec::new();
        let (mut question, mut written) = (None, Vec::new());
        if let Some(plan) = &self.plan {
            let plan = Plan::find(plan)?;
            written.clone_from(&plan.set);
            if !self.study.quiet {
                tell(&plan.question);
            }
            axes.extend(plan.variant_axis());
            question = Some(plan.question.clone());
            self.follow(plan);
        }
        let seeds = self.seeds.unwrap_or(1);
        if seeds == 0 {
            return Err(Error::Usage("--seeds must be at least 1".into()));
        }
        for text in &self.grid {
            axes.push(text.parse()?);
        }
        if axes.is_empty() && self.recipe.len() < 2 && seeds < 2 {
            let remedy = "nothing to compare; give --grid KEY=VALUE,VALUE, several --recipe, or --seeds";
            return Err(Error::Usage(remedy.into()));
        }
        self.study.refuse_overruled(&[])?;
        if let Some(key) = self.study.set_keys().find(|key| axes.iter().any(|axis| axis.key == *key)) {
            return Err(Error::Usage(format!(
                "--set {key}: the grid gives it a value in every run, so leave one of them out"
            )));
        }
        self.study.refuse_overruled_axes(axes.iter().map(|axis| axis.key.as_str()), self.data.as_deref())?;
        let device = self.study.device.parse()?;
        let bases = self.bases().map_err(|error| self.in_its_file(error, &written))?;
        let points = points(&bases, &axes, seeds, &self.out, |recipe| self.finish(recipe, device))
            .map_err(|error| self.in_its_file(error.into(), &written))?;
        let jobs: Vec<Job> = points.iter().flat_map(|point| point.jobs.clone()).collect();
        study::check_alone(&self.out, &jobs)?;
        let page = || report(question.as_deref(), &points, &axes, &study::history(&self.out)?);
        self.study.run(&self.out, &jobs, &[], page)
    }

    /// Takes what a plan says for what the command line does not; settings of the command line come last.
    fn follow(&mut self, plan: Plan) {
        self.recipe = plan.recipes.into_iter().map(PathBuf::from).collect();
        self.grid = plan.grid;
        self.study.set.splice(..0, plan.set);
        self.seeds = self.seeds.or(Some(plan.seeds));
        self.study.epochs = self.study.epochs.or(plan.epochs);
    }

    /// What is wrong with a setting that a study's file has, and not the command line, is called that; `written` are those
    /// that it has for all runs.
    fn in_its_file(&self, error: Error, written: &[String]) -> Error {
        let (Some(file), Error::Train(ftprop_train::Error::Config(why))) = (&self.plan, &error) else { return error };
        match why.argument() {
            Some(Origin::Set(setting)) if !written.contains(setting) => error,
            Some(Origin::Set(setting) | Origin::Grid(setting)) => {
                let (name, why) = (file.display().to_string(), format!("{setting}: {}", why.message()));
                ftprop_lab::Error::Plan { name, why }.into()
            }
            _ => error,
        }
    }

    fn bases(&self) -> Result<Vec<Base>, Error> {
        let mut bases = Vec::new();
        let files: Vec<Option<&PathBuf>> =
            if self.recipe.is_empty() { vec![None] } else { self.recipe.iter().map(Some).collect() };
        for file in files {
            let mut layers =
                recipe_layers(file.map(PathBuf::as_path), self.data.as_deref(), &self.study.set, self.study.quiet)?;
            for setting in &self.study.set {
                layers = layers.set(setting)?;
            }
            let mut recipe: Recipe = layers.build()?;
            // Says what was found; the recipes of the grid find the same.
            locate(&mut recipe, self.data.as_deref(), self.study.quiet)?;
            bases.push(Base { name: recipe.name, layers });
        }
        Ok(bases)
    }

    fn finish(&self, mut recipe: Recipe, device: DeviceChoice) -> Result<Recipe, ftprop_train::Error> {
        if let Some(data) = &self.data {
            recipe.data.locate(data)?;
        }
        recipe.data.path = recipe.data.path.as_deref().map(absolute);
        recipe.data.csv.test_file = recipe.data.csv.test_file.as_deref().map(absolute);
        place_networks(&mut recipe).map_err(|error| match error {
            ftprop_export::Error::Train(error) => error,
            other => ftprop_train::Error::Outside(Box::new(other)),
        })?;
        recipe.train.device = device;
        recipe.train.threads = self.study.threads;
        recipe.train.diagnostics |= self.study.diagnostics;
        Ok(match self.study.epochs {
            Some(epochs) => recipe.scaled(epochs),
            None => recipe,
        })
    }
}
