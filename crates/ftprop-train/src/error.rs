//! Everything that can go wrong while training, each as one line.

use crate::config::ConfigError;
use crate::files::FileError;
use ftprop_cuda::CudaError;
use ftprop_data::DataError;
use ftprop_nn::NnError;
use ftprop_tensor::TensorError;
use std::path::PathBuf;

/// An error of training. Its text is one line that says what is wrong and what to do.
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
    /// Whoever watched a run failed.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
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
