//! A trained or packed network as exact numbers, for proofs: fully connected layers of sign or step units.
//!
//! Inputs are what the data say before normalising, pixels between 0 and 1. Weights are the fractions that their floats
//! are; normalising and batch norms go into them, a norm's factor and shift as the 32-bit numbers that the CPU computes
//! with. A step unit becomes a sign unit: 1 and 0 are (h + 1) / 2.

use crate::error::Error;
use crate::numbers::Numbers;
use ftprop_data::Normalize;
use ftprop_nn::Activation;
use ftprop_nn::graph::{self, Node, Op, ParameterId};
use ftprop_nn::target::HardUnit;
use ftprop_runtime::{self as packed, Kind, Stage};
use ftprop_search::{ExactNetwork, Rational};
use ftprop_train::model::Model;

/// A unit's weights, the bias last.
type Unit = Vec<Rational>;

/// The network of a run or a checkpoint.
pub fn of_model(model: &Model) -> Result<ExactNetwork, Error> {
    let numbers = Numbers::of(&model.network);
    let mut walk = Walk::new();
    for node in numbers.nodes() {
        walk.node(numbers, node, &model.info.normalize())?;
    }
    walk.end()
}

/// The network of a packed model.
pub fn of_packed(model: &packed::Model<'_>) -> Result<ExactNetwork, Error> {
    let values = model.check()?;
    let mut walk = Walk::new();
    for (number, op) in model.ops.iter().enumerate() {
        let refuse = || Error::NotDecidable { layer: format!("operation {number}"), what: "not a fully connected one" };
        let other_units =
            || Error::NotDecidable { layer: format!("operation {number}"), what: "without sign or step units" };
        let packed::Op::Conv { input, conv } = op else { return Err(refuse()) };
        let packed::Value { shape, kind } = values[*input];
        if *input != number
            || conv.window.kernel != [shape.height, shape.width]
            || conv.window.pad != [0; 2]
            || conv.groups != 1
        {
            return Err(refuse());
        }
        let inputs = conv.inputs(shape.channels);
        let fold = |output: usize| -> Result<Unit, Error> {
            let weights: Vec<f32> = conv.weights.reals(output, inputs).collect();
            if kind == Kind::Image && conv.weights.codec == packed::Codec::F32 {
                let about = &model.preprocessing;
                let mut unit: Unit = weights.iter().chain([&0.0]).map(|&w| exact(w)).collect::<Result<_, _>>()?;
                take_normalising(&mut unit, &Normalize::pixels(&about.mean, &about.std))?;
                return Ok(unit);
            }
            let (unit, offsets) = model.integer_scale(kind).ok_or_else(refuse)?;
            // A pixel is stored as 255 x.
            let unit = Rational::from(if kind == Kind::Image { 255 * unit } else { unit });
            let (mut row, mut bias) = (Vec::with_capacity(inputs + 1), zero());
            for (at, &q) in weights.iter().enumerate() {
                let q = exact(q)?;
                bias = bias - q.clone() * Rational::from(offsets[at % offsets.len()]);
                row.push(q * unit.clone());
            }
            row.push(bias);
            Ok(row)
        };
        let mut units = Vec::with_capacity(conv.outputs);
        for output in 0..conv.outputs {
            let mut unit = fold(output)?;
            match &conv.stage {
                Stage::Thresholds { thresholds, .. } => match thresholds[output] {
                    i64::MIN => unit = constant(inputs, 1),
                    i64::MAX => unit = constant(inputs, -1),
                    threshold => shift(&mut unit, &(zero() - Rational::from(threshold))),
                },
                Stage::Affine(affine) => {
                    let scale = exact(affine.scale[output])?;
                    unit.iter_mut().for_each(|w| *w = w.clone() * scale.clone());
                    shift(&mut unit, &exact(affine.bias[output])?);
                }
            }
            units.push(unit);
        }
        walk.linear(units).map_err(|()| refuse())?;
        match &conv.stage {
            // Levels are read as 0 and 1 whatever the activation: the scale above has turned a sign's into that.
            Stage::Thresholds { activation: packed::Activation::Sign | packed::Activation::Step, .. } => {
                walk.activate(true)
            }
            // Of layers with real weights the levels are counted above zero, and read in the same way.
            Stage::Affine(affine) => match affine.activation {
                None => {}
                Some(packed::Activation::Sign | packed::Activation::Step) => walk.activate(true),
                Some(_) => return Err(other_units()),
            },
            Stage::Thresholds { .. } => return Err(other_units()),
        }
    }
    walk.end()
}

/// Layers so far, and units that no activation has followed yet.
struct Walk {
    layers: Vec<Vec<Unit>>,
    pending: Option<Vec<Unit>>,
    /// Whether the next layer reads 0 and 1 where the last one says −1 and 1.
    steps: bool,
}

impl Walk {
    fn new() -> Self {
        Walk { layers: vec![], pending: None, steps: false }
    }

    fn node(&mut self, numbers: Numbers<'_>, node: &Node, normalize: &Normalize) -> Result<(), Error> {
        let refuse = |what| Error::NotDecidable { layer: node.name(), what };
        match &node.op {
            Op::Fc(fc) => {
                let mut units = connected(numbers, fc)?;
                if self.layers.is_empty() {
                    units.iter_mut().try_for_each(|unit| take_normalising(unit, normalize))?;
                }
                self.linear(units).map_err(|()| refuse("without an activation before it"))
            }
            Op::BatchNorm(norm) => match &mut self.pending {
                Some(units) => batch_norm(units, numbers, norm),
                None => Err(refuse("not behind a fully connected layer")),
            },
            Op::Affine(layer) => match &mut self.pending {
                Some(units) => affine(units, numbers, layer),
                None => Err(refuse("not behind a fully connected layer")),
            },
            Op::Hard(HardUnit { activation: activation @ (Activation::Sign | Activation::Step), .. }, _)
                if self.pending.is_some() =>
            {
                self.activate(*activation == Activation::Step);
                Ok(())
            }
            Op::Dropout(_) => Ok(()),
            Op::Hard(..) | Op::Soft(_) => Err(refuse("not a sign or a step behind a fully connected layer")),
            Op::Conv(_) | Op::Pool(..) | Op::Residual { .. } => Err(refuse("not fully connected")),
        }
    }

    /// Takes units that read the last layer; an error if nothing came between.
    fn linear(&mut self, mut units: Vec<Unit>) -> Result<(), ()> {
        if self.pending.is_some() {
            return Err(());
        }
        if std::mem::take(&mut self.steps) {
            let half = Rational::new(1.into(), 2u32.into());
            for unit in &mut units {
                let last = unit.len() - 1;
                unit[..last].iter_mut().for_each(|w| *w = w.clone() * half.clone());
                let sum = unit[..last].iter().fold(zero(), |sum, w| sum + w.clone());
                shift(unit, &sum);
            }
        }
        self.pending = Some(units);
        Ok(())
    }

    fn activate(&mut self, steps: bool) {
        self.layers.extend(self.pending.take());
        self.steps = steps;
    }

    fn end(mut self) -> Result<ExactNetwork, Error> {
        let none = || Error::NotDecidable { layer: "the last layer".into(), what: "not a fully connected one" };
        self.layers.push(self.pending.take().ok_or_else(none)?);
        Ok(ExactNetwork { layers: self.layers })
    }
}

fn zero() -> Rational {
    Rational::from(0)
}

fn exact(value: f32) -> Result<Rational, Error> {
    Rational::from_float(f64::from(value)).ok_or(Error::NotFinite)
}

fn constant(inputs: usize, sign: i64) -> Unit {
    let mut unit = vec![zero(); inputs];
    unit.push(Rational::from(sign));
    unit
}

/// Adds to the bias.
fn shift(unit: &mut Unit, by: &Rational) {
    if let Some(bias) = unit.last_mut() {
        *bias = bias.clone() + by.clone();
    }
}

fn connected(numbers: Numbers<'_>, fc: &graph::Fc) -> Result<Vec<Unit>, Error> {
    let weights = numbers.channels_last(fc.weight);
    let bias = |id: Option<ParameterId>, output: usize| id.map_or(0.0, |id| numbers.channels_last(id)[output]);
    let unit = |(output, row): (usize, &[f32])| row.iter().chain([&bias(fc.bias, output)]).map(|&w| exact(w)).collect();
    weights.chunks_exact(weights.len() / fc.outputs).enumerate().map(unit).collect()
}

/// w · (x − mean) / std + b as weights of x.
fn take_normalising(unit: &mut Unit, normalize: &Normalize) -> Result<(), Error> {
    let channels = normalize.mean.len();
    let mut bias = zero();
    let last = unit.len() - 1;
    for (input, weight) in unit[..last].iter_mut().enumerate() {
        let (mean, std) = (exact(normalize.mean[input % channels])?, exact(normalize.std[input % channels])?);
        *weight = weight.clone() / std;
        bias = bias - weight.clone() * mean;
    }
    shift(unit, &bias);
    Ok(())
}

fn affine(units: &mut [Unit], numbers: Numbers<'_>, layer: &graph::Affine) -> Result<(), Error> {
    let scale = layer.scale.map(|id| numbers.channels_last(id));
    for (at, unit) in units.iter_mut().enumerate() {
        if let Some(scale) = scale {
            let factor = exact(scale[at])?;
            unit.iter_mut().for_each(|w| *w = w.clone() * factor.clone());
        }
        shift(unit, &exact(numbers.channels_last(layer.shift)[at])?);
    }
    Ok(())
}

fn batch_norm(units: &mut [Unit], numbers: Numbers<'_>, norm: &graph::BatchNorm) -> Result<(), Error> {
    let (gamma, beta) = (numbers.channels_last(norm.gamma), numbers.channels_last(norm.beta));
    let (mean, variance) = (numbers.statistic(norm.mean), numbers.statistic(norm.variance));
    for (at, unit) in units.iter_mut().enumerate() {
        // As the CPU's engine computes them.
        let factor = gamma[at] * (1.0 / (variance[at] + norm.eps).sqrt());
        let summand = beta[at] - mean[at] * factor;
        let exact_factor = exact(factor)?;
        unit.iter_mut().for_each(|w| *w = w.clone() * exact_factor.clone());
        shift(unit, &exact(summand)?);
    }
    Ok(())
}
