//! What a packed model remembers of how it came about: text by name, of no consequence for what it computes.
//!
//! Names that this crate knows are here; others are kept all the same.
//!
//! ```
//! use ftprop_runtime::pack::{Connected, FloatLayer, FloatNetwork, PackOptions, pack};
//! use ftprop_runtime::{Element, Model, Preprocessing, Shape, note};
//!
//! let input = Shape { height: 1, width: 1, channels: 1 };
//! let preprocessing =
//!     Preprocessing { input, element: Element::Byte, resize_shorter: None, center_crop: false, mean: vec![0.5], std: vec![0.25] };
//! let layer = FloatLayer::FullyConnected(Connected { outputs: 2, weights: vec![-1.0, 1.0], bias: None });
//! let network = FloatNetwork { name: "one".into(), preprocessing, classes: Vec::new(), layers: vec![layer] };
//! let mut model = pack(&network, &PackOptions::default())?;
//! model.notes.insert(note::LOSS.into(), "hinge".into());
//! let file = model.to_bytes()?;
//! assert_eq!(Model::parse(&file)?.notes[note::LOSS], "hinge");
//! # Ok::<(), ftprop_runtime::Error>(())
//! ```

/// The data that the model was trained on: the name of a source, such as `cifar10`.
pub const SOURCE: &str = "source";
/// The loss that it was trained with, and that its loss is measured by.
pub const LOSS: &str = "loss";
/// How much of a label goes to all classes alike in that loss, where it is not 0.
pub const LABEL_SMOOTHING: &str = "label_smoothing";
/// The table transformation that rows go through before they are the model's input.
pub const TABLE: &str = "table";
/// By which the data that it was trained on are known again, so that examples that it learned from are not counted in a
/// figure.
pub const DATA: &str = "data";
