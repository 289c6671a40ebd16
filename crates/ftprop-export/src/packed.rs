//! Packing a trained network, and holding the result against it.

use crate::classifier::Classifier;
use crate::error::Error;
use crate::numbers::Numbers;
use ftprop_data::Dataset;
use ftprop_nn::graph::{self, Node, Op, ParameterId};
use ftprop_nn::spec::PoolKind;
use ftprop_nn::target::HardUnit;
use ftprop_nn::{Activation, Tally};
use ftprop_runtime::pack::{
    BatchNorm, Connected, Convolution, FlattenOrder, FloatLayer, FloatNetwork, PackOptions, WeightFormat, WeightLayout,
};
use ftprop_runtime::{Element, MAX_STEPS, Preprocessing, Shape, Window, note};
use ftprop_train::checkpoint::ModelInfo;
use ftprop_train::evaluate::evaluation_loader;
use ftprop_train::model::Model;
use ftprop_train::observe::StepReport;
use ftprop_train::recipe::Recipe;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// The bytes of a packed model.
pub fn pack(model: &Model, weights: WeightFormat) -> Result<Vec<u8>, Error> {
    let mut packed = ftprop_runtime::pack::pack(&float_network(model)?, &PackOptions { weights })?;
    packed.notes = notes(model)?;
    Ok(packed.to_bytes()?)
}

/// What using the model depends on beside its operations.
fn notes(model: &Model) -> Result<BTreeMap<String, String>, Error> {
    let Recipe { data, train, .. } = &model.recipe;
    let mut notes = BTreeMap::from([
        (note::SOURCE.to_string(), data.source.to_string()),
        (note::LOSS.to_string(), train.loss.to_string()),
    ]);
    if train.label_smoothing != 0.0 {
        notes.insert(note::LABEL_SMOOTHING.into(), train.label_smoothing.to_string());
    }
    notes.extend(table_note(&model.info)?.map(|text| (note::TABLE.into(), text)));
    if let Some(data) = &model.info.origin.data {
        let text = serde_json::to_string(&data.brief())
            .map_err(|e| Error::Unwritable { what: "the mark of the data", why: e.to_string() })?;
        notes.insert(note::DATA.into(), text);
    }
    Ok(notes)
}

/// What is done to the rows of a table, as text; none for pictures.
pub(crate) fn table_note(info: &ModelInfo) -> Result<Option<String>, Error> {
    let written = info.table.as_ref().map(serde_json::to_string).transpose();
    written.map_err(|e| Error::Unwritable { what: "the table's transformation", why: e.to_string() })
}

/// The network as the packer takes it.
fn float_network(model: &Model) -> Result<FloatNetwork, Error> {
    let numbers = Numbers::of(&model.network);
    Ok(FloatNetwork {
        name: model.recipe.name.clone(),
        preprocessing: preprocessing(&model.info),
        classes: model.info.classes.clone(),
        layers: float_layers(numbers, numbers.nodes())?,
    })
}

/// A pixel is a byte, 255 meaning 1, also for data whose own values have another range; a table has real numbers.
fn preprocessing(info: &ModelInfo) -> Preprocessing {
    let ftprop_data::Shape { height, width, channels } = info.shape();
    Preprocessing {
        input: Shape { height, width, channels },
        element: if info.resize.is_some() { Element::Byte } else { Element::Real },
        resize_shorter: info.resize.and_then(|resize| u32::try_from(resize).ok()),
        center_crop: info.resize.is_some(),
        mean: info.mean.clone(),
        std: info.std.clone(),
    }
}

/// Layers with their numbers, as the packer takes them.
pub(crate) fn float_layers(numbers: Numbers<'_>, nodes: &[Node]) -> Result<Vec<FloatLayer>, Error> {
    let mut floats = Vec::with_capacity(nodes.len());
    for node in nodes {
        let bias = |id: Option<ParameterId>| id.map(|id| numbers.channels_last(id).to_vec());
        let float = match &node.op {
            Op::Conv(graph::Conv { geometry: g, weight, bias: id }) => FloatLayer::Conv(Convolution {
                outputs: g.out_channels,
                window: Window { kernel: [g.kernel_h, g.kernel_w], stride: [g.stride; 2], pad: [g.pad; 2] },
                groups: g.groups,
                weights: numbers.channels_last(*weight).to_vec(),
                layout: WeightLayout::Ohwi,
                bias: bias(*id),
            }),
            Op::Fc(graph::Fc { outputs, weight, bias: id }) => {
                floats.push(FloatLayer::Flatten(FlattenOrder::ChannelsLast));
                FloatLayer::FullyConnected(Connected {
                    outputs: *outputs,
                    weights: numbers.channels_last(*weight).to_vec(),
                    bias: bias(*id),
                })
            }
            Op::Pool(kind, g) => {
                let window = Window::square(g.kernel, g.stride, g.pad);
                match kind {
                    PoolKind::Max => FloatLayer::MaxPool(window),
                    PoolKind::Average => FloatLayer::AveragePool(window),
                }
            }
            Op::BatchNorm(norm) => FloatLayer::BatchNorm(BatchNorm {
                gamma: numbers.channels_last(norm.gamma).to_vec(),
                beta: numbers.channels_last(norm.beta).to_vec(),
                mean: numbers.statistic(norm.mean).to_vec(),
                var: numbers.statistic(norm.variance).to_vec(),
                eps: f64::from(norm.eps),
            }),
            Op::Affine(affine) => {
                // A norm whose statistics change nothing: folded wherever a norm is.
                let all = |value: f32| vec![value; node.input.channels];
                let scale = affine.scale.map(|id| numbers.channels_last(id).to_vec());
                FloatLayer::BatchNorm(BatchNorm {
                    gamma: scale.unwrap_or_else(|| all(1.0)),
                    beta: numbers.channels_last(affine.shift).to_vec(),
                    mean: all(0.0),
                    var: all(1.0),
                    eps: 0.0,
                })
            }
            Op::Hard(HardUnit { activation, .. }, _) | Op::Soft(activation) => {
                FloatLayer::Activation(packed_activation(*activation)?)
            }
            Op::Dropout(_) => continue,
            Op::Residual { main, shortcut } => {
                FloatLayer::Residual { main: float_layers(numbers, main)?, shortcut: float_layers(numbers, shortcut)? }
            }
        };
        floats.push(float);
    }
    Ok(floats)
}

fn packed_activation(activation: Activation) -> Result<ftprop_runtime::Activation, Error> {
    Ok(match activation {
        Activation::Sign => ftprop_runtime::Activation::Sign,
        Activation::Step => ftprop_runtime::Activation::Step,
        Activation::Qrelu { k } => match u8::try_from(k) {
            Ok(k) if k <= MAX_STEPS => ftprop_runtime::Activation::QRelu(k),
            _ => {
                return Err(Error::TooManySteps { most: MAX_STEPS, activation: activation.to_string() });
            }
        },
        Activation::Relu => ftprop_runtime::Activation::Relu,
        Activation::SaturatedRelu => ftprop_runtime::Activation::SaturatedRelu,
    })
}

/// How a packed model compares with the network it came from, over the test part; shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Pictures in all.
    pub examples: u64,
    /// Pictures for which both have the same most likely class.
    pub agreement: f64,
    /// The network's accuracy.
    pub float_top1: f64,
    /// The packed model's accuracy.
    pub packed_top1: f64,
}

/// Classifies the test part with both; `watch` hears after each batch how far the packed model is.
pub fn check(
    model: &mut Model,
    classifier: &mut Classifier,
    dataset: &Dataset,
    watch: &mut (dyn FnMut(&StepReport) + Send),
) -> Result<Agreement, Error> {
    let loader = evaluation_loader(&dataset.test, &model.recipe, dataset, model.network.batch())?;
    let criterion = model.recipe.criterion()?;
    let classes = model.info.classes.len();
    let (mut float, mut packed, mut same) = (Tally::default(), Tally::default(), 0);
    let started = Instant::now();
    let cpu = model.network.cpu().clone();
    let network = &mut model.network;
    cpu.enter(|| -> Result<(), Error> {
        let mut batches = loader.epoch(0, 0);
        while let Some(batch) = batches.next_batch()? {
            float.add(&network.evaluate(batch.images, batch.labels, &criterion));
            let logits = classifier.logits(batch.images)?;
            packed.add(&criterion.apply(logits, batch.labels, classes, None));
            let pairs = network.logits().chunks_exact(classes).zip(logits.chunks_exact(classes));
            same += pairs.filter(|(a, b)| most_likely(a) == most_likely(b)).count();
            watch(&StepReport {
                step: batch.index + 1,
                steps: loader.batches_per_epoch(),
                loss: packed.loss(),
                top1: packed.top1_share(),
                images_per_s: packed.examples as f64 / started.elapsed().as_secs_f64(),
                ranks: 1,
            });
        }
        Ok(())
    })?;
    Ok(Agreement {
        examples: packed.examples,
        agreement: same as f64 / packed.examples as f64,
        float_top1: float.top1_share(),
        packed_top1: packed.top1_share(),
    })
}

/// The first of the largest.
fn most_likely(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}
