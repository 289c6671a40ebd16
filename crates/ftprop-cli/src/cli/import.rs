//! `ftprop import`

use super::data::locate;
use super::{device, say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_export::torch;
use ftprop_nn::engine::TrainingState;
use ftprop_nn::{CpuEngine, Engine};
use ftprop_train::checkpoint::{self, Contents, ModelInfo, State};
use ftprop_train::recipe::{Recipe, input_shape};
use ftprop_train::run::RunFolder;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a run folder from PyTorch's weights
#[derive(Args)]
#[command(after_help = "\
The names and shapes in the file must be those that ftprop export --format torch writes for the recipe's network. The
data is opened for its classes and normalising. Training can go on from the weights with ftprop train --resume RUN.

Examples:
  ftprop import c8.safetensors --recipe convnet8-sign-ftpsh --data cifar-10-batches-bin --out runs/c8")]
pub(super) struct Import {
    /// A safetensors file with PyTorch's names
    file: PathBuf,
    /// The recipe of the network, a TOML file
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// The run folder to make
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
    /// Where the data is (recipe key data.path)
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Set a recipe's key, such as activation=qrelu:3; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let mut layers = Recipe::layers_of(&self.recipe)?;
        for setting in &self.set {
            layers = layers.set(setting)?;
        }
        let mut recipe: Recipe = layers.build()?;
        locate(&mut recipe, self.data.as_deref(), self.json)?;
        let recipe = recipe.checked()?;
        let folder = RunFolder::planned(&self.out)?;
        let dataset = recipe.data.open()?;
        let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
        let mut engine = CpuEngine::new(device("cpu", 1)?, graph.clone(), recipe.learning(&graph)?, 1)?;
        torch::read(&self.file, &recipe, engine.cpu_network_mut())?;
        // Training may go on from here, with an average, where there is one, that begins here too.
        let imported = engine.state()?;
        let imported = TrainingState { average: imported.average.map(|_| imported.network.values.clone()), ..imported };
        let info = ModelInfo::of(&dataset);
        let folder = RunFolder::create(folder.path(), &recipe)?;
        let for_use = Contents::for_use(&graph, imported.network.clone());
        checkpoint::save(&folder.best(), &recipe, &info, &State::start(), &for_use)?;
        let for_training = Contents::for_training(&graph, imported, None);
        checkpoint::save(&folder.checkpoint(), &recipe, &info, &State::start(), &for_training)?;
        let (run, parameters, file) = (folder.path().display(), graph.parameter_count(), self.file.display());
        if self.json {
            let (run, file) = (run.to_string(), file.to_string());
            say_json(&serde_json::json!({ "run": run, "parameters": parameters, "file": file }))?;
        } else {
            say(&format!("{run}: {parameters} parameters from {file}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
