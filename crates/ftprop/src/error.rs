//! Everything that can end a command, as one line for the user.

use crate::config::ConfigError;
use crate::files::FileError;
use crate::plot::PlotError;
use ftprop_cuda::CudaError;
use ftprop_data::DataError;
use ftprop_nn::NnError;
use ftprop_search::SearchError;
use ftprop_tensor::TensorError;
use std::path::PathBuf;

/// An error of a command. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Data(DataError),
    #[error(transparent)]
    Network(#[from] NnError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("{error}{words}", error = .0, words = words_to_type(.0))]
    Cuda(#[from] CudaError),
    #[error(transparent)]
    Search(SearchError),
    #[error(transparent)]
    Runtime(#[from] ftprop_runtime::Error),
    #[error(transparent)]
    Plot(#[from] PlotError),
    #[error("{path}: {why}")]
    NotACheckpoint { path: PathBuf, why: String },
    #[error("{path} is of another network: {difference}")]
    OtherNetwork { path: PathBuf, difference: String },
    #[error("{path} is not a run folder: {why}")]
    NotARun { path: PathBuf, why: &'static str },
    #[error("{path} has no finished epoch; a run that was ended early goes on by ftprop train --resume {path}")]
    NoEpoch { path: PathBuf },
    #[error("{path} already holds a run; choose another folder, or go on with it by ftprop train --resume {path}")]
    RunExists { path: PathBuf },
    #[error(
        "the loss is no longer a number, in epoch {epoch} at step {step}: {culprit} blew up first; {saved}. \
         A smaller optimizer.lr or train.clip usually helps"
    )]
    Diverged { epoch: u32, step: usize, culprit: String, saved: String },
    #[error("device '{device}': {why}")]
    Device { device: String, why: String },
    /// A wrong command line.
    #[error("{0}")]
    Usage(String),
    /// Anything else, already in words.
    #[error("{0}")]
    Other(String),
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

/// What to type, after what an error of the GPU says to do.
fn words_to_type(error: &CudaError) -> &'static str {
    match error {
        CudaError::Lost { .. } => " with --resume",
        CudaError::OldDevice { .. } => " (--device cpu)",
        _ => "",
    }
}

/// As for data.
impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::File { path, source } => FileError::new("open", path.as_ref(), source).into(),
            other => Error::Search(other),
        }
    }
}

impl Error {
    /// 2 for a wrong command line, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Config(e) if e.is_on_command_line() => 2,
            _ => 1,
        }
    }
}
