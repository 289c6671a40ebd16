//! Everything that can go wrong while exporting, each as one line.

use ftprop_cuda::CudaError;
use ftprop_data::DataError;
use ftprop_nn::NnError;
use ftprop_train::files::FileError;
use std::path::PathBuf;

/// An error of exporting or of using what was exported. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the trained network.
    #[error(transparent)]
    Train(#[from] ftprop_train::Error),
    /// Of packing, or of a packed model.
    #[error(transparent)]
    Runtime(#[from] ftprop_runtime::Error),
    /// A file that is not what it should be.
    #[error("{path}: {why}")]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Weights of another network.
    #[error("{path} is of another network: {difference}")]
    OtherNetwork {
        /// The file.
        path: PathBuf,
        /// In what they differ.
        difference: String,
    },
    /// Anything else, already in words.
    #[error("{0}")]
    Other(String),
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Error::Train(error.into())
    }
}

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        Error::Train(error.into())
    }
}

impl From<NnError> for Error {
    fn from(error: NnError) -> Self {
        Error::Train(error.into())
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        Error::Train(error.into())
    }
}
