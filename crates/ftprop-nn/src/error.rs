//! What can go wrong when a network is described, built or loaded.

use ftprop_tensor::TensorError;

/// An error of this crate; each names the layer or the key and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    /// A name that stands for nothing.
    #[error("unknown {what} '{name}'; {known}")]
    Name {
        /// What it should be the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are, in words.
        known: String,
    },
    /// A name that cannot be given.
    #[error("the {what} '{name}' cannot be registered: {why}")]
    Register {
        /// What it would be the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A layer that does not fit what comes in.
    #[error("{layer} (input {input}): {source}")]
    Layer {
        /// The layer's path and kind.
        layer: String,
        /// The shape that comes in.
        input: String,
        /// What does not fit.
        source: TensorError,
    },
    /// The two ways through a residual block end in different shapes.
    #[error(
        "{layer}: the main path gives {main} but the shortcut gives {shortcut}; give the shortcut a convolution of the same stride and channels"
    )]
    Residual {
        /// The block's path and kind.
        layer: String,
        /// The shape at the main path's end.
        main: String,
        /// The shape at the shortcut's end.
        shortcut: String,
    },
    /// A last layer that does not give one number a class.
    #[error("{layer}, the last layer, gives {got} but the data has {classes} classes, so {expected} is needed")]
    Output {
        /// The last layer's path and kind.
        layer: String,
        /// The shape that it gives.
        got: String,
        /// The classes to tell apart.
        classes: usize,
        /// The shape that is needed.
        expected: String,
    },
    /// A layer's setting outside its range.
    #[error("{layer}: {what}")]
    Value {
        /// The layer's path and kind.
        layer: String,
        /// What is wrong, in words.
        what: String,
    },
    /// A preset for images of another size.
    #[error(
        "the preset '{preset}' is made for images of {expected}, not {got}; choose another preset or write the layers in the recipe"
    )]
    PresetInput {
        /// The preset's name.
        preset: String,
        /// The shape that it is made for.
        expected: String,
        /// The data's shape.
        got: String,
    },
    /// A list without a layer.
    #[error("the network has no layers; name a preset or write at least one [[network.layers]]")]
    Empty,
    /// An input without numbers, or nothing to tell apart.
    #[error("a network needs an input and a class, of at least 1 each")]
    NoInput,
    /// A batch of nothing.
    #[error("a batch needs at least one example")]
    NoBatch,
    /// Nothing to learn.
    #[error("the network has no parameters to learn; add a conv or fc layer")]
    NoParameters,
    /// A slip, or an attack.
    #[error("the network has more than {most} layers")]
    TooManyLayers {
        /// How many there may be.
        most: usize,
    },
    /// An optimizer of matrices for something else.
    #[error(
        "{parameter} is no matrix, and its optimizer is for matrices; give biases and norms a group with another optimizer"
    )]
    NotAMatrix {
        /// Its name.
        parameter: String,
    },
    /// Moments of another optimizer or another network.
    #[error(
        "the saved optimizer has moments of lengths {got:?}, this one needs {have:?}; it is of another optimizer or network"
    )]
    OtherOptimizer {
        /// The lengths that are needed.
        have: Vec<usize>,
        /// Those that were given.
        got: Vec<usize>,
    },
    /// A setting that an optimizer does not have. In the words that serde has for it, so that whoever explains those
    /// explains this.
    #[error("unknown field `{key}`, expected one of `{known}`")]
    Key {
        /// The setting.
        key: String,
        /// Those that it has.
        known: String,
    },
    /// A setting that an optimizer cannot do without.
    #[error("missing field `{key}`")]
    MissingKey {
        /// The setting.
        key: &'static str,
    },
    /// A setting outside its range, in words.
    #[error("{0}")]
    Setting(String),
}
