//! Everything that can go wrong while exporting, each as one line.

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
    /// There is no zoo.
    #[error("there is no zoo here: say where it is by FTPROP_ZOO, or put the folder zoo beside the program")]
    NoZoo,
    /// A model that is not in the zoo.
    #[error("'{name}' is not in the zoo; there are {known}")]
    NotInZoo {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A name that no model can have.
    #[error("'{name}' is no name for a model of a zoo: letters, digits, - and _ make one")]
    NoName {
        /// What was asked for.
        name: String,
    },
    /// A name that is taken.
    #[error("the zoo has a model '{name}' already; choose another name, or say that it is to be replaced")]
    InZoo {
        /// What was asked for.
        name: String,
    },
    /// A model of the zoo that is there as a packed one alone.
    #[error(
        "the zoo has '{name}' as a packed model only, which can neither learn nor teach; train its recipe {recipe} and take \
         that run"
    )]
    NoWeights {
        /// What was asked for.
        name: String,
        /// How it was trained.
        recipe: String,
    },
    /// Weights of another network.
    #[error("{path} is of another network: {difference}")]
    OtherNetwork {
        /// The file.
        path: PathBuf,
        /// In what they differ.
        difference: String,
    },
    /// An activation with more steps than a packed model can have.
    #[error("packed models have at most qrelu:{most}, the network has {activation}")]
    TooManySteps {
        /// The most steps of a packed model.
        most: u8,
        /// The network's activation.
        activation: String,
    },
    /// Recipe and network do not belong together.
    #[error("the recipe has a layer that the network has not: {name}; the run folder was changed by hand")]
    NoSuchLayer {
        /// The layer's path, or its parameter's name.
        name: String,
    },
    /// PyTorch has no such module.
    #[error("PyTorch has no name for {name}")]
    NoTorchName {
        /// The parameter's name here.
        name: String,
    },
    /// A layer about which nothing can be proved.
    #[error("{layer} is {what}; proofs are for fully connected networks of sign or step units")]
    NotDecidable {
        /// The layer.
        layer: String,
        /// What it is.
        what: &'static str,
    },
    /// A network that training has ruined.
    #[error("the network has a weight that is not a finite number; nothing can be proved about it")]
    NotFinite,
    /// A packed model whose integers a float cannot count.
    #[error("a layer of the packed model has sums beyond 2^24, which a float does not hold; export its run instead")]
    SumsTooLarge,
    /// Something has no form as text or tensors.
    #[error("{what} cannot be written: {why}")]
    Unwritable {
        /// What was to be written.
        what: &'static str,
        /// What the writer says.
        why: String,
    },
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
