//! Everything that can end a command, as one line for the user.

use crate::progress::complain;
use ftprop_cuda::CudaError;
use ftprop_data::DataError;
use ftprop_export::zoo;
use ftprop_lab::plot::PlotError;
use ftprop_nn::{EngineError, NnError};
use ftprop_ranks::RankError;
use ftprop_search::SearchError;
use ftprop_tensor::TensorError;
use ftprop_train::built_in::built_in;
use ftprop_train::config::{ConfigError, Origin};
use ftprop_train::files::FileError;
use ftprop_train::run::RunFolder;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// An error of a command. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", words(.0))]
    Train(ftprop_train::Error),
    #[error("{}", export_words(.0))]
    Export(ftprop_export::Error),
    #[error("{}", lab_words(.0))]
    Lab(ftprop_lab::Error),
    #[error(transparent)]
    Search(SearchError),
    /// A wrong command line.
    #[error("{0}")]
    Usage(String),
    /// Standard output takes no more.
    #[error(transparent)]
    Output(FileError),
    /// Anything else, already in words.
    #[error("{0}")]
    Other(String),
}

impl From<ftprop_train::Error> for Error {
    fn from(error: ftprop_train::Error) -> Self {
        Error::Train(error)
    }
}

/// Wherever it was met, an error of training is one.
impl From<ftprop_export::Error> for Error {
    fn from(error: ftprop_export::Error) -> Self {
        match error {
            ftprop_export::Error::Train(error) => error.into(),
            other => Error::Export(other),
        }
    }
}

impl From<ftprop_lab::Error> for Error {
    fn from(error: ftprop_lab::Error) -> Self {
        use ftprop_lab::Error as Lab;
        match error {
            Lab::Train(error) => error.into(),
            Lab::Axis { .. } | Lab::AxisTwice { .. } => Error::Usage(format!("--grid {error}")),
            other => Error::Lab(other),
        }
    }
}

/// Whichever crate met it, a file that cannot be used is explained in the same words.
impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::File { path, source } => FileError::new("open", path.as_ref(), source).into(),
            other => Error::Search(other),
        }
    }
}

macro_rules! through {
    ($crate_error:ty: $($error:ty),+) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                <$crate_error>::from(error).into()
            }
        }
    )+};
}

through!(ftprop_train::Error: ConfigError, FileError, DataError, NnError, TensorError, CudaError, EngineError, RankError);
through!(ftprop_export::Error: ftprop_runtime::Error);
through!(ftprop_lab::Error: PlotError);

impl Error {
    /// Whether it says that rank 0 is lost, which cannot say so itself.
    pub(crate) fn is_loss_of_the_first(&self) -> bool {
        let lost = match self {
            Error::Train(ftprop_train::Error::Ranks(error)) => Some(error),
            Error::Train(ftprop_train::Error::Engine(EngineError::Ranks(error))) => error.downcast_ref(),
            _ => None,
        };
        matches!(lost, Some(RankError::Lost { who, .. }) if who.starts_with("rank 0 "))
    }

    /// Standard output takes no more.
    pub(crate) fn output(why: std::io::Error) -> Self {
        Error::Output(FileError::new("write to", Path::new("standard output"), why))
    }

    /// Says what it is, and gives the exit code. A reader that has gone away is told nothing, as by other programs.
    pub(crate) fn tell(&self) -> ExitCode {
        if !self.is_closed_pipe() {
            complain(&self.to_string());
        }
        ExitCode::from(self.exit_code())
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Error::Output(why) if why.kind() == ErrorKind::BrokenPipe)
    }

    /// 2 for a wrong command line, 141 for a closed pipe (what a shell shows of a program that it ended), 1 for
    /// everything else.
    fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            _ if self.is_closed_pipe() => 141,
            Error::Train(ftprop_train::Error::Config(e)) if e.argument().is_some() => 2,
            _ => 1,
        }
    }
}

/// An error of training, with what to type where that helps.
pub(crate) fn words(error: &ftprop_train::Error) -> String {
    use ftprop_train::Error as Train;
    match error {
        Train::Config(error) => match error.argument() {
            Some(Origin::Set(setting)) => format!("--set {setting}: {}", error.message()),
            Some(Origin::Grid(setting)) => format!("--grid {setting}: {}", error.message()),
            _ => error.to_string(),
        },
        Train::Data(DataError::BadImages { .. }) => error.to_string().replace(
            "let bad images be skipped (bad_images = \"skip\")",
            "leave them out: --set data.bad_images=skip in training, --bad-images skip in eval and prepare",
        ),
        Train::Data(DataError::PathNeeded { .. }) => format!("{error}, with --data PATH or data.path in a recipe"),
        Train::Data(DataError::MissingValue { .. }) => {
            format!("{error} (data.csv.missing in the recipe, or --set data.csv.missing=mean)")
        }
        Train::NoRecipe { .. } => format!("{error} (ftprop recipes lists them)"),
        Train::NoTeacher { path } => no_teacher(path),
        Train::File(file) if zoo_name(file.path()).is_some() => format!(
            "{} is a model of the zoo, and not what is wanted here; it goes where a trained network does (predict, eval, \
             summary, export, bench infer, robust), with --init-from and as train.teacher",
            zoo_name(file.path()).unwrap_or_default()
        ),
        Train::NoEpoch { path } => format!(
            "{0} has no finished epoch; a run that was ended early goes on by ftprop train --resume {0}, and --checkpoint last, \
             where a command has it, takes what it had learned by then",
            path.display()
        ),
        Train::NoNetwork { path, file } => format!(
            "{} has epochs but {} is gone; --checkpoint chooses the run's other network",
            path.display(),
            file.display()
        ),
        Train::RunExists { path } => run_exists(path),
        Train::Locked { path } => format!(
            "{} is being trained by another process; wait for it, or end it and go on with --resume",
            path.display()
        ),
        Train::RecipeChanged { path, keys } => format!(
            "{}: recipe.toml is not the recipe that the checkpoint was trained by: {keys}; put it back, or begin a new run",
            path.display()
        ),
        Train::Unchangeable { path, keys } => format!(
            "a run under way cannot take another setting here: {keys}; begin a new run, with --init-from {} to keep what \
             was learned",
            path.display()
        ),
        Train::DataChanged { path, difference } => format!(
            "{0}: the data are not those that the run was trained on: {difference}; put them back as they were, or begin a \
             new run, with --init-from {0} to keep what was learned",
            path.display()
        ),
        Train::BeginningChanged { path } => format!(
            "{}: the run began with another network than train.init_from has now; put it back, or choose another --out",
            path.display()
        ),
        Train::EpochsDiffer { path, .. } => format!("{error}: --init-from {}", path.display()),
        Train::NotAsTrained { path, difference } => format!(
            "{} is not as it was in training ({difference}), so which examples the network has not learned from is not \
             known; put it back as it was, or measure other examples alone, as a file or folder of their own, with --data",
            path.display()
        ),
        Train::OtherRecipe { path } => {
            format!("{} holds a run of another recipe; remove it or choose another --out", path.display())
        }
        Train::Miscounted { counted, examples, epoch } => format!(
            "the GPU counted {counted} of {examples} training examples in epoch {epoch}; ftprop selftest --device \
             cuda:0 may tell why"
        ),
        Train::Cuda(error) => gpu_words(error),
        Train::Engine(EngineError::Device(error)) => error.downcast_ref().map_or_else(|| error.to_string(), gpu_words),
        Train::Ranks(error) => rank_words(error),
        Train::Engine(EngineError::Ranks(error)) => error.downcast_ref().map_or_else(|| error.to_string(), rank_words),
        other => other.to_string(),
    }
}

/// The name of a model of the zoo, where a path is one.
fn zoo_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str().filter(|name| name.starts_with(zoo::PREFIX))
}

/// A run that was searched for, or exported to, is no run that training goes on with.
fn run_exists(path: &Path) -> String {
    let there = format!("{} already holds a run; choose another folder", path.display());
    let last = RunFolder::open(path).and_then(|run| run.last());
    match last {
        Ok(Some(checkpoint)) if !checkpoint.can_go_on() => {
            format!("{there}, or begin with its network: --init-from {}", path.display())
        }
        _ => format!("{there}, or go on with it by ftprop train --resume {}", path.display()),
    }
}

/// A teacher that is called as a recipe is, as those of the built-in recipes are, can be trained by it.
fn no_teacher(path: &Path) -> String {
    let recipe = path.file_name().and_then(|name| name.to_str()).filter(|name| built_in(name).is_some());
    let train = recipe.map_or_else(
        || "train it first".into(),
        |name| format!("train it first (ftprop train --recipe {name} --data DATA --out {})", path.display()),
    );
    format!(
        "the recipe has the network taught by another one, and that teacher is not there: {}; {train}, or say where one is: \
         --set train.teacher=RUN (or zoo:NAME)",
        path.display()
    )
}

fn rank_words(error: &RankError) -> String {
    match error {
        RankError::Lost { .. } => format!("{error} (ftprop train --resume)"),
        other => other.to_string(),
    }
}

/// The same for what is exported.
fn export_words(error: &ftprop_export::Error) -> String {
    match error {
        ftprop_export::Error::InZoo { name } => {
            format!(
                "the zoo has a model '{name}' already; choose another --name, or put it in its place with --replace"
            )
        }
        other => other.to_string(),
    }
}

/// The same for studies.
fn lab_words(error: &ftprop_lab::Error) -> String {
    match error {
        ftprop_lab::Error::NotTrained { what, last } => {
            let last = last.as_ref().map_or_else(String::new, |command| format!(", as in: {command}"));
            format!("{what}; a report wants the flags that it was trained with{last}")
        }
        ftprop_lab::Error::OtherStudy { out, run, last } => {
            let last = last.as_ref().map_or_else(String::new, |command| format!("; what trained there was: {command}"));
            format!(
                "{} holds runs of another study or of other settings, such as {}, which the new report would leave out; choose \
                 another --out{last}",
                out.display(),
                run.display()
            )
        }
        other => other.to_string(),
    }
}

fn gpu_words(error: &CudaError) -> String {
    match error {
        CudaError::Lost { .. } => format!("{error} with --resume"),
        CudaError::OldDevice { .. } => format!("{error} (--device cpu)"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_gpu_says_what_to_type() {
        let lost = || CudaError::Lost { reason: "gone".into() };
        for error in [Error::from(lost()), Error::from(EngineError::from(lost()))] {
            assert!(error.to_string().ends_with("start again from it with --resume"), "{error}");
        }
        let old = CudaError::OldDevice { name: "K80".into(), found: (3, 7), needed: (8, 0) };
        assert!(Error::from(old).to_string().ends_with("8.0 is needed; use the CPU (--device cpu)"));
        assert_eq!(Error::from(CudaError::EmptyBatch).to_string(), CudaError::EmptyBatch.to_string());
    }
}
