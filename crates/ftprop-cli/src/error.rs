//! Everything that can end a command, as one line for the user.

use ftprop_cuda::CudaError;
use ftprop_data::DataError;
use ftprop_lab::plot::PlotError;
use ftprop_nn::NnError;
use ftprop_search::SearchError;
use ftprop_tensor::TensorError;
use ftprop_train::config::ConfigError;
use ftprop_train::files::FileError;

/// An error of a command. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Train(ftprop_train::Error),
    #[error(transparent)]
    Export(ftprop_export::Error),
    #[error(transparent)]
    Lab(ftprop_lab::Error),
    #[error(transparent)]
    Search(SearchError),
    /// A wrong command line.
    #[error("{0}")]
    Usage(String),
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

through!(ftprop_train::Error: ConfigError, FileError, DataError, NnError, TensorError, CudaError);
through!(ftprop_export::Error: ftprop_runtime::Error);
through!(ftprop_lab::Error: PlotError);

impl Error {
    /// 2 for a wrong command line, 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Train(ftprop_train::Error::Config(e)) if e.is_on_command_line() => 2,
            _ => 1,
        }
    }
}
