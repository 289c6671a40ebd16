//! Everything that can go wrong while training, each as one line.

use crate::built_in::nearest;
use crate::config::ConfigError;
use crate::files::FileError;
use crate::words::counted;
use ftprop_data::DataError;
use ftprop_nn::{EngineError, NnError};
use ftprop_tensor::TensorError;
use std::path::PathBuf;

/// An error of training. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of a recipe's text.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Of a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Of the data.
    #[error(transparent)]
    Data(DataError),
    /// Of the network.
    #[error(transparent)]
    Network(#[from] NnError),
    /// Of shapes and of the CPU.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Of a GPU.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] ftprop_cuda::CudaError),
    /// Of a network's engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Of the other ranks.
    #[error(transparent)]
    Ranks(#[from] ftprop_ranks::RankError),
    /// More ranks than a batch has examples.
    #[error("train.batch = {batch} is for all {ranks} ranks together, so some would have nothing to do; raise it")]
    ManyRanks {
        /// Examples of a batch.
        batch: usize,
        /// How many ranks there are.
        ranks: usize,
    },
    /// Batches of a single value a channel.
    #[error(
        "{layer} would see a single value a channel in batches of {batch}{}, and nothing can be learned behind it: raise \
         train.batch, or use a network without batch norms",
        over(*.ranks)
    )]
    LoneValue {
        /// The batch norm.
        layer: String,
        /// Examples of a batch.
        batch: usize,
        /// How many ranks there are.
        ranks: usize,
    },
    /// Of what the caller brought: an observer, or a network of another kind.
    #[error(transparent)]
    Outside(Box<dyn std::error::Error + Send + Sync>),
    /// A recipe's key has a value that it cannot have.
    #[error("{key} {must}")]
    Setting {
        /// The key's full path.
        key: &'static str,
        /// The rest of the sentence.
        must: &'static str,
    },
    /// No recipe of this name is built in.
    #[error("there is no built-in recipe '{name}', and no such file{}", meant(.nearest))]
    NoRecipe {
        /// As it was asked for.
        name: String,
        /// The recipe that may have been meant.
        nearest: Option<&'static str>,
    },
    /// A device that is not there, or that no machine has.
    #[error("device '{device}': {why}")]
    Device {
        /// As it was asked for.
        device: String,
        /// What is wrong with it.
        why: String,
    },
    /// Data without a choice.
    #[error("the data has a single class, {class}: there is nothing to tell apart")]
    SingleClass {
        /// The class.
        class: String,
    },
    /// Data whose classes are not those that a network tells apart.
    #[error("the data has the classes {data} but the network was trained for {network}")]
    OtherClasses {
        /// The data's first classes.
        data: String,
        /// The network's first classes.
        network: String,
    },
    /// Data whose examples a network cannot take.
    #[error("the data's examples are {data} but the network takes {network} (rows × columns × channels)")]
    OtherShape {
        /// The data's.
        data: String,
        /// The network's.
        network: String,
    },
    /// A network of tables was asked about something else.
    #[error("the network was trained on a table; {path} is none (.csv, .tsv or gzipped)")]
    NoTable {
        /// What it was asked about.
        path: PathBuf,
    },
    /// A network of pictures was asked about a table.
    #[error("the network was trained on pictures; {path} is a table")]
    NoPicture {
        /// What it was asked about.
        path: PathBuf,
    },
    /// A network of normalised examples was handed the bytes of pictures.
    #[error("the network takes normalised examples, not the bytes of pictures")]
    NoPixels,
    /// A network of tables that does not say what its columns are.
    #[error("the network does not say which columns it was trained on, so it cannot take a table; train it again")]
    NoColumns,
    /// A file that is not a checkpoint.
    #[error("{path}: {why}")]
    NotACheckpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint of a version that writes others.
    #[error("{path}: written by another version of ftprop (format {format})")]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A result was to be written over a file of a run.
    #[error("{path} is a file of a run itself; choose another name or folder for what is to be written")]
    RunsOwn {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint that is not as it was written.
    #[error("{path}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A run's recipe is not the one that its checkpoint was trained by.
    #[error(
        "{path}: the recipe is not the one that the checkpoint was trained by: {keys}; put it back, or begin a new run"
    )]
    RecipeChanged {
        /// The run's folder.
        path: PathBuf,
        /// The keys that differ, with both values.
        keys: String,
    },
    /// A run's data are not those that it learned from so far.
    #[error(
        "{path}: the data are not those that the run was trained on: {difference}; put them back as they were, or begin a \
         new run, which may take over this one's network"
    )]
    DataChanged {
        /// The run's folder.
        path: PathBuf,
        /// What is different, in words.
        difference: String,
    },
    /// A run's teacher is not the one that it learned from so far.
    #[error("{path}: the teacher is not the network that the run learned from so far; put it back, or begin a new run")]
    TeacherChanged {
        /// The run's folder.
        path: PathBuf,
    },
    /// A run began with another network than its recipe's path has now.
    #[error(
        "{path}: the run began with another network than the one that is there now (train.init_from); put it back, or begin a \
         new run"
    )]
    BeginningChanged {
        /// The run's folder.
        path: PathBuf,
    },
    /// Data to be divided as in training are not what they were.
    #[error(
        "{path} is not as it was in training ({difference}), so which examples the network has not learned from is not \
         known; put it back as it was, or measure on a file or folder of other examples alone"
    )]
    NotAsTrained {
        /// Where the data are.
        path: PathBuf,
        /// What is different, in words.
        difference: String,
    },
    /// Data with parts of their own were to be measured as one.
    #[error("the data have a training and a test part of their own; choose one of them")]
    InParts,
    /// Pictures of another size than a network was trained on.
    #[error(
        "the data's pictures have {found} pixels along their shorter edge, those that the network was trained on {wanted}"
    )]
    OtherEdge {
        /// The data's.
        found: usize,
        /// The network's.
        wanted: usize,
    },
    /// Settings that a run cannot go on with.
    #[error("a run under way cannot take another {keys}; begin a new one, which may take over this one's network")]
    Unchangeable {
        /// The run's folder.
        path: PathBuf,
        /// The keys, with both values.
        keys: String,
    },
    /// A checkpoint of another network.
    #[error("{path} is of another network: {difference}")]
    OtherNetwork {
        /// The file.
        path: PathBuf,
        /// In what they differ.
        difference: String,
    },
    /// A run was to begin with a network that has nothing in common with its own.
    #[error(
        "no layer's weights of the network to begin with have the name and shape of some of this network's; the recipes differ"
    )]
    NothingFits,
    /// Views of a picture that nobody knows.
    #[error("unknown view of a picture '{name}'; known are flip and shift, each once, such as flip,shift")]
    Views {
        /// What was asked for.
        name: String,
    },
    /// A teacher that is not there.
    #[error(
        "the network is taught by another one, and that teacher is not there: {path}; train it first, or say where it is (train.teacher)"
    )]
    NoTeacher {
        /// Where the run or checkpoint should be.
        path: PathBuf,
    },
    /// A teacher that cannot teach this network.
    #[error("the teacher {path} does not fit: {why}")]
    Teacher {
        /// The run or checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A folder that is not a run's.
    #[error("{path} is not a run folder: {why}")]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A run without a network to use.
    #[error("{path} has no finished epoch; a run that was ended early can go on")]
    NoEpoch {
        /// The run's folder.
        path: PathBuf,
    },
    /// A run whose network was removed.
    #[error("{path} has epochs but {} is gone; use the run's other network, or train it again", .file.display())]
    NoNetwork {
        /// The run's folder.
        path: PathBuf,
        /// The file that is missing.
        file: PathBuf,
    },
    /// A new run was to be made where there is one.
    #[error("{path} already holds a run; choose another folder, or go on with that run")]
    RunExists {
        /// The run's folder.
        path: PathBuf,
    },
    /// Somebody else trains in this folder.
    #[error("{path} is being trained by another process; wait for it, or end it and go on with the run")]
    Locked {
        /// The run's folder.
        path: PathBuf,
    },
    /// A job's folder has another run.
    #[error("{path} holds a run of another recipe; remove it or choose another folder")]
    OtherRecipe {
        /// The run's folder.
        path: PathBuf,
    },
    /// Two jobs have the same folder.
    #[error("{one} and {other} would both be written to {path}; give them different names")]
    SameFolder {
        /// The first run's name.
        one: String,
        /// The second run's name.
        other: String,
        /// The folder.
        path: PathBuf,
    },
    /// A run folder's files contradict each other.
    #[error(
        "{path}: {}, and the checkpoint is in epoch {epoch}; put metrics.jsonl back as it was, or begin a new run with this one's \
         network", epochs_there(*.metrics)
    )]
    EpochsDiffer {
        /// The run's folder.
        path: PathBuf,
        /// Lines of metrics.
        metrics: usize,
        /// Where the checkpoint stands.
        epoch: u32,
    },
    /// A line of a file is not what it should be.
    #[error("{path}:{line}: not {what}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What it should be.
        what: String,
        /// What the reader says.
        why: String,
    },
    /// A run's `summary.json` is not one.
    #[error("{path} is not a run's result: {why}")]
    NotASummary {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        why: String,
    },
    /// Something has no form as text or tensors.
    #[error("{what} cannot be written: {why}")]
    Unwritable {
        /// What was to be written.
        what: String,
        /// What the writer says.
        why: String,
    },
    /// Training blew up.
    #[error(
        "the loss is no longer a number, in epoch {epoch} at step {step}: {culprit} blew up first; {}. \
         A smaller optimizer.lr or train.clip usually helps", kept(.checkpoint.as_ref())
    )]
    Diverged {
        /// Counted from 1.
        epoch: u32,
        /// Counted from 1.
        step: usize,
        /// The first layer or parameter that is no number.
        culprit: String,
        /// The last good checkpoint, if there is one.
        checkpoint: Option<PathBuf>,
    },
    /// A GPU went through another number of examples than there are.
    #[error("the GPU counted {counted} of {examples} training examples in epoch {epoch}; its self test may tell why")]
    Miscounted {
        /// What it counted.
        counted: u64,
        /// What there is.
        examples: usize,
        /// Counted from 1.
        epoch: u32,
    },
    /// Diagnostics of one network were asked about another.
    #[error("the network under training has {network} numbers where its twin has {twin}")]
    NotATwin {
        /// Of the network under training.
        network: usize,
        /// Of its twin.
        twin: usize,
    },
    /// A folder without golden cases.
    #[error("{folder} holds no golden case (*.json)")]
    NoGoldenCase {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is not a golden case.
    #[error("{name} is not a golden case: {why}")]
    NotAGoldenCase {
        /// Its name.
        name: String,
        /// What the reader says.
        why: String,
    },
    /// A golden case that cannot be run.
    #[error("golden case {case}: {why}")]
    GoldenCase {
        /// Its name.
        case: String,
        /// Why not.
        why: String,
    },
    /// What a search found does not fit the network that is to hold it.
    #[error("the searched network does not fit: {why}")]
    Searched {
        /// Why not.
        why: &'static str,
    },
    /// A table that was searched on has a number that no saved network can take.
    #[error(
        "the network could not be saved: row {row}, column {column} is {value}, beyond what 32-bit numbers hold; scale that \
         column"
    )]
    TooLarge {
        /// The row, counted from 1.
        row: usize,
        /// The column, counted from 1.
        column: usize,
        /// The number.
        value: f64,
    },
    /// A folder for a new run holds another file where the run would have its own.
    #[error("{path} is there already, and a run would write over it; choose another folder")]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
}

/// A name that may have been meant.
fn meant(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// What is left of a run that blew up.
fn kept(checkpoint: Option<&PathBuf>) -> String {
    match checkpoint {
        Some(path) => format!("the last good checkpoint is kept in {}", path.display()),
        None => "there was no checkpoint yet".into(),
    }
}

/// Whichever crate met it, a file that cannot be used is explained in the same words.
impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Read { path, why } => FileError::new("read", &path, why).into(),
            other => Error::Data(other),
        }
    }
}

impl Error {
    /// No recipe of this name is built in; perhaps one of another is meant.
    pub fn no_recipe(name: &str) -> Self {
        Error::NoRecipe { name: name.into(), nearest: nearest(name) }
    }

    /// Whether a GPU has no memory left, so that it may work once others have ended.
    pub(crate) fn is_gpu_memory(&self) -> bool {
        match self {
            #[cfg(feature = "cuda")]
            Error::Cuda(error) => error.is_memory(),
            Error::Engine(EngineError::Memory(_)) => true,
            _ => false,
        }
    }
}

/// Among how many ranks a batch is divided, if it is.
fn epochs_there(metrics: usize) -> String {
    match metrics {
        0 => "metrics.jsonl is gone or holds no epoch".into(),
        some => format!("metrics.jsonl holds {}", counted(some as u64, "whole epoch")),
    }
}

fn over(ranks: usize) -> String {
    if ranks > 1 { format!(" over {ranks} ranks") } else { String::new() }
}
