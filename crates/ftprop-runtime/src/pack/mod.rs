//! From a trained network in float to a packed model.
//!
//! A [`FloatNetwork`] is what the trainer (or anybody) has: plain layers with float weights. [`pack`] folds batch norm,
//! bias and scales into thresholds, moves max-pooling behind the hard activation that follows it, quantizes the
//! weights and hands back a [`Model`], ready to be written as a file or run.
//!
//! ```
//! use ftprop_runtime::pack::{Connected, FloatLayer, FloatNetwork, FlattenOrder, PackOptions, pack};
//! use ftprop_runtime::{Activation, Element, Engine, EngineOptions, Preprocessing, Shape};
//!
//! let network = FloatNetwork {
//!     name: "light or dark".into(),
//!     preprocessing: Preprocessing {
//!         input: Shape { height: 1, width: 2, channels: 1 },
//!         element: Element::Byte,
//!         resize_shorter: None,
//!         center_crop: false,
//!         mean: vec![0.5],
//!         std: vec![0.25],
//!     },
//!     classes: vec!["dark".into(), "light".into()],
//!     layers: vec![
//!         FloatLayer::Flatten(FlattenOrder::ChannelsFirst),
//!         FloatLayer::FullyConnected(Connected { outputs: 1, weights: vec![1.0, 1.0], bias: None }),
//!         FloatLayer::Activation(Activation::Sign),
//!         FloatLayer::FullyConnected(Connected { outputs: 2, weights: vec![-1.0, 1.0], bias: None }),
//!     ],
//! };
//! let file = pack(&network, &PackOptions::default())?.to_bytes()?;
//! let mut engine = Engine::load(&file, &EngineOptions::default())?;
//! let mut logits = [0.0; 2];
//! engine.classify(&[250, 130], &mut logits)?;
//! assert!(logits[1] > logits[0]);
//! # Ok::<(), ftprop_runtime::Error>(())
//! ```

mod fold;
mod lower;
mod network;
mod quantize;

pub use network::{BatchNorm, Connected, Convolution, FlattenOrder, FloatLayer, FloatNetwork, WeightLayout};

use crate::error::Result;
use crate::model::Model;

/// How weights are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightFormat {
    /// 8 bits and a scale for each output channel.
    #[default]
    Int8,
    /// 4 bits and a scale for each output channel.
    Int4,
    /// Single precision; every layer then runs in float.
    F32,
}

/// What the packer may choose.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// How weights are stored. Layers on the image have 16 bits instead of 8 or 4: they are small and come first.
    pub weights: WeightFormat,
}

/// Packs a network.
pub fn pack(network: &FloatNetwork, options: &PackOptions) -> Result<Model<'static>> {
    let model = Model {
        name: network.name.clone(),
        preprocessing: network.preprocessing.clone(),
        classes: network.classes.clone(),
        notes: Default::default(),
        ops: lower::lower(network, options)?,
    };
    model.check()?;
    Ok(model)
}
