//! Where a packed model comes from: whether a recipe makes its network, and whether a checkpoint was packed into it.

use crate::error::Error;
use crate::numbers::Numbers;
use crate::packed::{float_layers, pack};
use ftprop_data::Source;
use ftprop_nn::{Network, Shape};
use ftprop_runtime::pack::{FloatNetwork, PackOptions, WeightFormat};
use ftprop_runtime::{Activation, Affine, Codec, Kind, Model as Packed, Op, Stage, Value, Weights, note};
use ftprop_tensor::Cpu;
use ftprop_train::model::Model;
use ftprop_train::recipe::Recipe;
use std::borrow::Cow;
use std::sync::Arc;

/// How weights may have been stored, the usual way first.
const FORMATS: [WeightFormat; 3] = [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::F32];

/// In what a packed model differs from what a recipe makes; none where it is the recipe's network, trained on the recipe's
/// kind of data.
pub fn differs_from_recipe(packed: &Packed<'_>, recipe: &Recipe) -> Result<Option<String>, Error> {
    let source = packed.notes.get(note::SOURCE).and_then(|name| name.parse::<Source>().ok());
    if let Some(source) = source.filter(|source| !same_kind(*source, recipe.data.source)) {
        return Ok(Some(format!("it was trained on {source}, the recipe is for {}", recipe.data.source)));
    }
    let values = packed.check()?;
    let input = packed.preprocessing.input;
    let classes = values.last().map_or(0, |logits| logits.shape.channels);
    let input = Shape { height: input.height, width: input.width, channels: input.channels };
    // A recipe for other pictures may not make a network at all.
    let graph = match recipe.graph(input, classes) {
        Ok(graph) => graph,
        Err(why) => return Ok(Some(format!("the recipe makes no network for its inputs: {why}"))),
    };
    let mut network = Network::new(Arc::new(Cpu::new(1).map_err(ftprop_train::Error::from)?), graph, 1)?;
    network.initialise(1);
    let numbers = Numbers::of(&network);
    let made = FloatNetwork {
        name: recipe.name.clone(),
        preprocessing: packed.preprocessing.clone(),
        classes: packed.classes.clone(),
        layers: float_layers(numbers, numbers.nodes())?,
    };
    // How weights are stored decides how operations are put together.
    let own = outline(packed, &values);
    let mut difference = None;
    for weights in FORMATS {
        let made = ftprop_runtime::pack::pack(&made, &PackOptions { weights })?;
        match difference_of(&own, &outline(&made, &made.check()?)) {
            Some(found) => difference = difference.or(Some(found)),
            None => return Ok(None),
        }
    }
    Ok(difference)
}

fn difference_of(own: &[Outline<'_>], other: &[Outline<'_>]) -> Option<String> {
    if own.len() != other.len() {
        return Some(format!("it has {} operations, the recipe's network {}", own.len(), other.len()));
    }
    let at = own.iter().zip(other).position(|(own, other)| own != other)?;
    Some(format!("its operation {} is {}, the recipe's {}", at + 1, own[at].words(), other[at].words()))
}

/// Whether packing this network gives this very file, with weights of one kind or another.
pub fn is_packed_from(file: &[u8], network: &Model) -> Result<bool, Error> {
    for weights in FORMATS {
        if pack(network, weights)? == file {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pictures in folders may have been prepared meanwhile.
fn same_kind(one: Source, other: Source) -> bool {
    let pictures = |source| matches!(source, Source::Folder | Source::Prepared);
    one == other || pictures(one) && pictures(other)
}

/// An operation without its numbers, and what it makes.
#[derive(PartialEq)]
struct Outline<'a> {
    op: Op<'a>,
    made: Value,
}

impl Outline<'_> {
    fn words(&self) -> String {
        let ftprop_runtime::Shape { height, width, channels } = self.made.shape;
        let values = match self.made.kind {
            Kind::Levels(Activation::QRelu(k)) => format!("levels of qrelu:{k}"),
            Kind::Levels(activation) => format!("levels of {activation:?}").to_lowercase(),
            Kind::Image | Kind::Real => "reals".into(),
        };
        let what = match &self.op {
            Op::Conv { conv, .. } => format!("a linear layer of {}×{}", conv.window.kernel[0], conv.window.kernel[1]),
            Op::MaxPool { window, .. } => format!("a max-pool of {}×{}", window.kernel[0], window.kernel[1]),
            _ => "another one".into(),
        };
        format!("{what} that makes {channels}×{height}×{width} {values}")
    }
}

fn outline<'a>(model: &Packed<'a>, values: &[Value]) -> Vec<Outline<'a>> {
    model.ops.iter().zip(&values[1..]).map(|(op, made)| Outline { op: bare(op), made: *made }).collect()
}

/// An operation without what training decides, and without how weights are stored.
fn bare<'a>(op: &Op<'a>) -> Op<'a> {
    let affine = |affine: &Affine| Affine { scale: Vec::new(), bias: Vec::new(), activation: affine.activation };
    let mut op = op.clone();
    match &mut op {
        Op::Conv { conv, .. } => {
            conv.weights = Weights { codec: Codec::F32, bytes: Cow::Borrowed(&[]) };
            conv.stage = match &conv.stage {
                Stage::Thresholds { activation, .. } => {
                    Stage::Thresholds { activation: *activation, thresholds: Vec::new() }
                }
                Stage::Affine(numbers) => Stage::Affine(affine(numbers)),
            };
        }
        Op::MaxPool { inverted, .. } => inverted.clear(),
        Op::Map { affine: numbers, .. } => *numbers = affine(numbers),
        _ => (),
    }
    op
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_runtime::{Preprocessing, Shape as Size};

    /// A recipe's network with numbers of chance, packed.
    fn packed(recipe: &Recipe, input: Size, seed: u64, weights: WeightFormat) -> Packed<'static> {
        let Size { height, width, channels } = input;
        let graph = recipe.graph(Shape { height, width, channels }, 10).unwrap();
        let mut network = Network::new(Arc::new(Cpu::new(1).unwrap()), graph, 1).unwrap();
        network.initialise(seed);
        // Norms whose factors have both signs, as training may make them.
        let stream = ftprop_tensor::random::Stream::numbered(seed);
        let values = network.values_mut().iter_mut().enumerate();
        values.for_each(|(i, value)| *value *= if stream.below(i as u64, 2) == 0 { -1.0 } else { 1.0 });
        let numbers = Numbers::of(&network);
        let (mean, std) = (vec![0.4; channels], vec![0.3; channels]);
        let (element, resize_shorter, center_crop) = (Default::default(), None, true);
        let preprocessing = Preprocessing { input, element, resize_shorter, center_crop, mean, std };
        let layers = float_layers(numbers, numbers.nodes()).unwrap();
        let made = FloatNetwork { name: "any".into(), preprocessing, classes: Vec::new(), layers };
        ftprop_runtime::pack::pack(&made, &PackOptions { weights }).unwrap()
    }

    #[test]
    fn a_packed_model_is_told_by_its_operations_whatever_its_numbers() {
        let recipe = |name: &str| Recipe::built_in(name).unwrap().into_recipe();
        let names = ["resnet20-sign", "resnet20-relu", "fast-sign"];
        let input = Size { height: 32, width: 32, channels: 3 };
        for (name, weights) in names.iter().flat_map(|name| FORMATS.map(|weights| (*name, weights))) {
            let model = packed(&recipe(name), input, 7, weights);
            for other in names {
                let difference = differs_from_recipe(&model, &recipe(other)).unwrap();
                assert_eq!(difference.is_none(), name == other, "{name}, {weights:?} and {other}: {difference:?}");
            }
        }
    }
}
