//! Everything that can go wrong with studies, reports and pictures, each as one line.

use crate::plot::PlotError;
use ftprop_train::config::ConfigError;
use ftprop_train::files::FileError;
use std::path::PathBuf;

/// An error of a study, a report or a picture. Its text is one line that says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of training, and of what it leaves behind.
    #[error(transparent)]
    Train(#[from] ftprop_train::Error),
    /// A picture cannot be drawn or kept.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A sweep that is not written down as it must be.
    #[error("the study {name}: {why}")]
    Plan {
        /// Its name or file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// What is not a key and its values.
    #[error("{text}: {why}")]
    Axis {
        /// As it was given.
        text: String,
        /// What was expected.
        why: String,
    },
    /// A grid has an axis twice.
    #[error("{key} is there twice; list all its values in one")]
    AxisTwice {
        /// The recipe key.
        key: String,
    },
    /// A folder to watch has no runs, and other things.
    #[error(
        "{} holds no runs, nor do its folders: watch a run's folder (it has a recipe.toml), one of runs or of a study, or an \
         empty one that runs are to be made in", .path.display()
    )]
    NoRuns {
        /// The folder.
        path: PathBuf,
    },
    /// A page cannot be served where it was to be.
    #[error("cannot listen on {address}: {source}; another port may be free, and port 0 takes any that is")]
    Address {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// A study was to be made where there is another one.
    #[error(
        "{} holds runs of another study or of other settings, such as {}, and its report would be replaced; choose another folder{}",
        .out.display(), .run.display(), last_was(.last.as_ref())
    )]
    OtherStudy {
        /// The study's folder.
        out: PathBuf,
        /// A run that is not of this study.
        run: PathBuf,
        /// The last call that trained there.
        last: Option<String>,
    },
    /// A report was asked for of other runs than were trained: it would replace a good one.
    #[error("{what}; a report wants the settings that it was trained with{}", as_in(.last.as_ref()))]
    NotTrained {
        /// In what they differ.
        what: String,
        /// The last call that trained in the study's folder.
        last: Option<String>,
    },
}

fn as_in(last: Option<&String>) -> String {
    last.map_or_else(String::new, |command| format!(", as in: {command}"))
}

fn last_was(last: Option<&String>) -> String {
    last.map_or_else(String::new, |command| format!(" (there it was: {command})"))
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Error::Train(error.into())
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Error::Train(error.into())
    }
}
