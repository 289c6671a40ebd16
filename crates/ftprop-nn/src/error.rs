//! What can go wrong when a network is described, built or loaded.

use ftprop_tensor::TensorError;

/// An error of this crate; each names the layer or the key and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    #[error("unknown {what} '{name}'; {known}")]
    Name { what: &'static str, name: String, known: String },
    #[error("{layer} (input {input}): {source}")]
    Layer { layer: String, input: String, source: TensorError },
    #[error(
        "{layer}: the main path gives {main} but the shortcut gives {shortcut}; give the shortcut a convolution of the same stride and channels"
    )]
    Residual { layer: String, main: String, shortcut: String },
    #[error("{layer}, the last layer, gives {got} but the data has {classes} classes, so {expected} is needed")]
    Output { layer: String, got: String, classes: usize, expected: String },
    #[error("{layer}: {what}")]
    Value { layer: String, what: String },
    #[error(
        "the preset '{preset}' is made for images of {expected}, not {got}; choose another preset or write the layers in the recipe"
    )]
    PresetInput { preset: String, expected: String, got: String },
    #[error("the network has no layers; name a preset or write at least one [[network.layers]]")]
    Empty,
    #[error("{0}")]
    Setting(String),
}
