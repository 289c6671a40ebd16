//! Recipes: everything a training run depends on, as one TOML file.
//!
//! A recipe is layered: the program's defaults, a file, `--set KEY=VALUE`, named flags; later layers win.
//! What comes out is written to the run folder before training starts.

mod data;

use crate::built_in::built_in;
use crate::by_name;
use crate::choice::DeviceChoice;
use crate::class_weights::ClassWeights;
use crate::config::Layers;
use crate::error::Error;
use ftprop_data::{Missing, Source};
use ftprop_nn::spec::Init;
use ftprop_nn::target::{QreluForm, TargetRule};
use ftprop_nn::{
    Activation, Criterion, Defaults, Distillation, Graph, GroupSpec, LayerLoss, LayerSpec, Learning, NnError,
    OptimizerSpec, OutputLoss, ParameterGroups, Precision, Schedule, Shape, presets,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A training run, completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What the run is called in folders, plots and reports.
    pub name: String,
    /// What hidden units output.
    pub activation: Activation,
    /// How well a hard unit meets its target.
    pub layer_loss: LayerLoss,
    /// Which target a hard unit gets.
    pub target_rule: TargetRule,
    /// How a qReLU is made of steps.
    pub qrelu_form: QreluForm,
    /// Whether a target's loss is weighted by how much its unit matters.
    pub weighted: bool,
    /// The layers.
    pub network: NetworkRecipe,
    /// The examples.
    pub data: DataRecipe,
    /// How long, and on what.
    pub train: TrainRecipe,
    /// The step along the gradients.
    pub optimizer: OptimizerSpec,
    /// Parameters that are learned otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSpec>,
    /// How the learning rate changes.
    pub schedule: Schedule,
}

/// A preset by name, or layers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRecipe {
    /// One of the paper's networks, `mlp`, or `auto`, which fits itself to the examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The hidden widths of the presets `mlp` and `auto`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub widths: Vec<usize>,
    /// Layers, where there is no preset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerSpec>,
    /// Whether the factors of batch norms start anywhere between 0 and 1, not at 1.
    #[serde(default, skip_serializing_if = "is_false")]
    pub uniform_gamma: bool,
    /// Starts of convolutions that are left out: what would start so starts uniformly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uniform_starts: Vec<Init>,
    /// A learned summand before each activation, and a factor that starts here unless it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affine: Option<f32>,
}

/// Where the examples come from and what is done to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataRecipe {
    /// The kind of data set.
    #[serde(with = "by_name")]
    pub source: Source,
    /// Where its files are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Held out of the training part: a share below 1, or a number of examples; 0 for none.
    pub validation: f64,
    /// Training pictures: pixels added on every side.
    pub pad: usize,
    /// Training pictures: what is added is the picture mirrored at its edge, not black.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reflect: bool,
    /// Training pictures: a random window of the padded picture.
    pub random_crop: bool,
    /// Training pictures: half of them mirrored.
    pub flip: bool,
    /// Training pictures, with `flip`: each mirrored in every other epoch, not at random.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alternate_flips: bool,
    /// Training pictures: the side of a square that is blanked at a random place; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cutout: usize,
    /// Training pictures: a random part of between these shares of the picture's area, at the window's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<[f32; 2]>,
    /// Training pictures: how much brighter or darker they may be.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub brightness: f32,
    /// Training pictures: how much more or less contrast they may have.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub contrast: f32,
    /// Training pictures: how much more or less colourful they may be.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub saturation: f32,
    /// Training pictures: one operation of fourteen, at random (TrivialAugment).
    #[serde(default, skip_serializing_if = "is_false")]
    pub trivial_augment: bool,
    /// The side of the square window that the network sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop: Option<usize>,
    /// Folders: what the shorter edge of a picture is resized to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<usize>,
    /// Photographs in training: the side of the window from an epoch on, `[[1, 128], [60, 192]]`; `crop` is measured at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<(u32, usize)>,
    /// Pictures that do not decode: `stop`, or `skip` and count them.
    pub bad_images: BadImages,
    /// Threads that prepare batches ahead of the trainer.
    pub workers: usize,
    /// On a GPU: keep the examples in its memory where there is room, not on the host.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub on_device: bool,
    /// Tables: how they are read.
    #[serde(default, skip_serializing_if = "CsvRecipe::is_default")]
    pub csv: CsvRecipe,
}

/// What to do about pictures that do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadImages {
    /// End with an error.
    Stop,
    /// Leave them out, and count them.
    Skip,
}

/// How a table is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CsvRecipe {
    /// The label column's name, or its number counted from 0; the last one if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<ColumnRecipe>,
    /// Whether the first line names the columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The share that is held out as the test part, unless there is a test file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_fraction: Option<f64>,
    /// A table of its own for the test part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_file: Option<PathBuf>,
    /// What stands for missing values: nothing (`refuse`), the column's `mean` or `median`, or its mean and a column
    /// more that says where (`indicator`).
    #[serde(skip_serializing_if = "is_refusing")]
    pub missing: Missing,
    /// Columns of numbers that are names all the same, such as a postcode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Columns that are left out, such as the number of a row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_refusing(missing: &Missing) -> bool {
    *missing == Missing::Refuse
}

impl CsvRecipe {
    pub(crate) fn is_default(&self) -> bool {
        *self == CsvRecipe::default()
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a column's name, or its number counted from 0")]
pub enum ColumnRecipe {
    /// By its number, counted from 0.
    Index(usize),
    /// By its name.
    Name(String),
}

/// How long, how large, from which seed, on which device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainRecipe {
    /// How often to go through the training part.
    pub epochs: u32,
    /// Examples of a step.
    pub batch: usize,
    /// What all randomness depends on.
    pub seed: u64,
    /// The loss of the whole network.
    pub loss: OutputLoss,
    /// How much of a label goes to all classes alike.
    pub label_smoothing: f32,
    /// How much an example counts in learning, by its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// Examples of a batch are averaged in pairs: the α of their shares; 0 for none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub mixup: f64,
    /// Examples of a batch get a window of another's: the α of its share; 0 for none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cutmix: f64,
    /// Batches whose gradients make one step of the optimizer.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// With several ranks: batch norm goes by the examples of all of them, and not by a rank's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync_norm: bool,
    /// The largest norm that a step's gradient may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// What a moving average of the weights keeps of itself at each step; the averaged network is the one that is
    /// measured and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<f64>,
    /// A trained run, or a checkpoint, whose numbers the network begins with wherever they have the same name and shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<PathBuf>,
    /// A trained run, or a checkpoint, whose network is learned from beside the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<PathBuf>,
    /// With a teacher: its share of the loss; half of it if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher_weight: Option<f32>,
    /// With a teacher: what logits are divided by before they are compared; 2 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher_temperature: Option<f32>,
    /// Epochs without a better one on the validation part after which training ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// Seconds between checkpoints within an epoch; one is always written at its end.
    pub checkpoint_seconds: f64,
    /// Where the network is computed.
    #[serde(with = "by_name")]
    pub device: DeviceChoice,
    /// On a GPU: what its matrix units compute with. The CPU always computes in f32.
    pub precision: Precision,
    /// On a GPU: the same bytes for the same seed. On the CPU that is always so.
    pub deterministic: bool,
    /// 0 takes one for each core.
    pub threads: usize,
    /// Looks into the hard layers after each epoch; what is trained does not depend on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diagnostics: bool,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            name: "run".into(),
            activation: Activation::Sign,
            layer_loss: LayerLoss::soft_hinge(),
            target_rule: TargetRule::default(),
            qrelu_form: QreluForm::default(),
            weighted: true,
            network: NetworkRecipe::default(),
            data: DataRecipe {
                source: Source::Digits,
                path: None,
                validation: 0.0,
                pad: 0,
                reflect: false,
                random_crop: false,
                flip: false,
                alternate_flips: false,
                cutout: 0,
                area: None,
                brightness: 0.0,
                contrast: 0.0,
                saturation: 0.0,
                trivial_augment: false,
                crop: None,
                resize: None,
                sizes: Vec::new(),
                bad_images: BadImages::Stop,
                workers: 1,
                on_device: true,
                csv: CsvRecipe::default(),
            },
            train: TrainRecipe {
                epochs: 10,
                batch: 64,
                seed: 0,
                loss: OutputLoss::CrossEntropy,
                label_smoothing: 0.0,
                class_weights: None,
                mixup: 0.0,
                cutmix: 0.0,
                accumulate: 1,
                sync_norm: false,
                clip: None,
                ema: None,
                init_from: None,
                teacher: None,
                teacher_weight: None,
                teacher_temperature: None,
                patience: None,
                checkpoint_seconds: 300.0,
                device: DeviceChoice::Auto,
                precision: Precision::default(),
                deterministic: false,
                threads: 0,
                diagnostics: false,
            },
            optimizer: OptimizerSpec::adam(1e-3).expect("a rate above 0 is one that Adam takes"),
            groups: Vec::new(),
            schedule: Schedule::default(),
        }
    }
}

impl Recipe {
    /// The bottom layer of every recipe: the program's defaults.
    pub fn defaults() -> Result<Layers, Error> {
        Ok(Layers::new(&Recipe::default())?.kinds(&["network.preset", "optimizer.name", "schedule.kind"]))
    }

    /// A recipe that is named: a file's, or a built-in one's where there is no such file, over the defaults.
    pub fn layers_of(name: &Path) -> Result<Layers, Error> {
        let defaults = Recipe::defaults()?;
        // A folder of that name, such as a run's, is no recipe.
        match name.to_str().filter(|_| !name.exists() || name.is_dir()).map(|name| (name, built_in(name))) {
            Some((name, Some(text))) => Ok(defaults.text(&format!("the built-in recipe {name}"), text)?),
            // A bare word was meant as a name, not as a path.
            Some((word, None)) if !name.exists() && name.extension().is_none() && !word.contains(['/', '\\']) => {
                Err(Error::no_recipe(word))
            }
            _ => Ok(defaults.file(name)?),
        }
    }

    /// A recipe from its TOML, over the defaults; `name` is what errors call it.
    pub fn from_toml(name: &str, text: &str) -> Result<Recipe, Error> {
        Ok(Recipe::defaults()?.text(name, text)?.build()?)
    }

    /// The recipe as a file has it.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Unwritable { what: "the recipe".into(), why: e.to_string() })
    }

    /// The recipe without what belongs to one machine: a checkpoint is the same wherever it was trained.
    pub fn portable(&self) -> Recipe {
        let mut recipe = self.clone();
        recipe.place_as(&Recipe::default());
        recipe
    }

    /// Takes over what belongs to one machine, and nothing else.
    pub(crate) fn place_as(&mut self, other: &Recipe) {
        let (data, train) = (&other.data, &other.train);
        self.data.path.clone_from(&data.path);
        self.data.csv.test_file.clone_from(&data.csv.test_file);
        self.data.workers = data.workers;
        self.data.on_device = data.on_device;
        // Where another network lies does not matter, that there is one does.
        let place = |own: &mut Option<PathBuf>, other: &Option<PathBuf>| {
            *own = own.take().map(|own| match other {
                Some(other) => other.clone(),
                None => own.file_name().map_or_else(PathBuf::new, PathBuf::from),
            });
        };
        place(&mut self.train.teacher, &train.teacher);
        place(&mut self.train.init_from, &train.init_from);
        (self.train.device, self.train.threads) = (train.device, train.threads);
        (self.train.diagnostics, self.train.checkpoint_seconds) = (train.diagnostics, train.checkpoint_seconds);
    }

    /// The same recipe for another number of epochs, with its schedule scaled to them.
    pub fn scaled(&self, epochs: u32) -> Recipe {
        let mut recipe = self.clone();
        let before = self.train.epochs.max(1);
        recipe.schedule = self.schedule.scaled(before, epochs);
        for (first, _) in &mut recipe.data.sizes {
            *first = 1 + ((u64::from(*first) - 1) * u64::from(epochs) / u64::from(before)) as u32;
        }
        // Of several that begin together the last counts.
        let begins: Vec<u32> = recipe.data.sizes.iter().map(|&(first, _)| first).collect();
        let mut place = 0;
        recipe.data.sizes.retain(|_| {
            place += 1;
            begins.get(place) != Some(&begins[place - 1])
        });
        recipe.train.epochs = epochs;
        recipe
    }

    /// The loss of the whole network.
    pub fn criterion(&self) -> Result<Criterion, NnError> {
        Criterion::new(self.train.loss, self.train.label_smoothing)
    }

    /// The network for examples of this shape and so many classes.
    pub fn graph(&self, input: Shape, classes: usize) -> Result<Arc<Graph>, NnError> {
        Graph::resolve(&self.layers(input)?, &self.layer_defaults(), input, classes).map(Arc::new)
    }

    /// How a network learns; its teacher, and others that it learns together with, are found where it is trained.
    pub fn learning(&self, graph: &Graph) -> Result<Learning, NnError> {
        Ok(Learning {
            criterion: self.criterion()?,
            groups: Arc::new(ParameterGroups::resolve(&self.optimizer, &self.groups, graph)?),
            clip: self.train.clip,
            average: self.train.ema,
            teacher: None,
            sync_norm: false,
        })
    }

    /// How a teacher's logits enter the loss, where there is a teacher.
    pub fn distillation(&self) -> Result<Option<Distillation>, NnError> {
        let TrainRecipe { teacher, teacher_weight, teacher_temperature, .. } = &self.train;
        let made = || Distillation::new(teacher_temperature.unwrap_or(2.0), teacher_weight.unwrap_or(0.5));
        teacher.as_ref().map(|_| made()).transpose()
    }

    /// The layers for an input of this shape.
    pub fn layers(&self, input: Shape) -> Result<Vec<LayerSpec>, NnError> {
        let layers = presets::with_uniform_starts(self.plain_layers(input)?, &self.network.uniform_starts);
        Ok(match self.network.affine {
            Some(scale) => presets::with_affine(layers, Some(scale).filter(|scale| *scale != 0.0)),
            None => layers,
        })
    }

    /// The same without what is changed in any of them.
    pub(crate) fn plain_layers(&self, input: Shape) -> Result<Vec<LayerSpec>, NnError> {
        match &self.network.preset {
            Some(preset) => presets::layers(preset, input, &self.network.widths),
            None => Ok(self.network.layers.clone()),
        }
    }

    /// What the activations share unless a layer says otherwise.
    pub fn layer_defaults(&self) -> Defaults {
        Defaults {
            activation: self.activation,
            layer_loss: self.layer_loss,
            target_rule: self.target_rule,
            qrelu_form: self.qrelu_form,
            weighted: self.weighted,
            uniform_gamma: self.network.uniform_gamma,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nothing(number: &f32) -> bool {
    *number == 0.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &f64) -> bool {
    *number == 0.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &usize) -> bool {
    *number == 1
}

fn one() -> usize {
    1
}

/// The shape of a data set's examples, as networks count it.
pub fn input_shape(shape: ftprop_data::Shape) -> Shape {
    Shape { height: shape.height, width: shape.width, channels: shape.channels }
}

/// A path that means the same from any folder.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
