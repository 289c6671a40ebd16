//! Whether a model makes sense: shapes, sizes, and that no sum can overflow.

use crate::error::{Error, Result};
use crate::model::{
    Activation, Affine, Codec, Conv, Element, Kind, MAX_OPS, MAX_SIDE, Model, Op, Preprocessing, Shape, Stage, Value,
};

/// How many multiply-adds, which go many at a time, take as long as reading one value by itself.
pub const ONE_BY_ONE: u64 = 16;

impl Model<'_> {
    /// Checks everything and returns the values, the image first, the logits last.
    pub fn check(&self) -> Result<Vec<Value>> {
        self.check_preprocessing()?;
        if self.ops.len() > MAX_OPS {
            let what = format!("{} of them are more than {MAX_OPS}", self.ops.len());
            return Err(Error::Invalid { place: "operations".into(), what });
        }
        let mut values = vec![Value { shape: self.preprocessing.input, kind: self.preprocessing.element.kind() }];
        for (number, op) in self.ops.iter().enumerate() {
            let value = self.check_op(op, &values).and_then(|value| {
                let sides = [value.shape.height, value.shape.width, value.shape.channels];
                if sides.iter().any(|&side| side == 0 || side >= MAX_SIDE) || value.shape.len() >= 1 << 31 {
                    return Err(format!("its output of {sides:?} is out of range"));
                }
                Ok(value)
            });
            values.push(value.map_err(|what| Error::Invalid { place: format!("operation {number}"), what })?);
        }
        let logits = values[values.len() - 1];
        let place = || "logits".to_string();
        if logits.kind != Kind::Real || logits.shape.height != 1 || logits.shape.width != 1 {
            return Err(Error::Invalid {
                place: place(),
                what: "the last operation does not make a row of reals".into(),
            });
        }
        if !self.classes.is_empty() && self.classes.len() != logits.shape.channels {
            let what = format!("{} class names for {} logits", self.classes.len(), logits.shape.channels);
            return Err(Error::Invalid { place: place(), what });
        }
        Ok(values)
    }

    /// Multiply-adds for one image.
    pub fn macs(&self) -> Result<u64> {
        Ok(self.work(&self.check()?).0)
    }

    /// What one image costs: its multiply-adds, and [`ONE_BY_ONE`] for every value that an operation other than a
    /// convolution reads. An engine compares this with
    /// [`EngineOptions::operation_limit`](crate::EngineOptions::operation_limit).
    pub fn operations(&self) -> Result<u64> {
        let (macs, reads) = self.work(&self.check()?);
        Ok(macs.saturating_add(reads.saturating_mul(ONE_BY_ONE)))
    }

    /// Multiply-adds, and values read by operations that have none.
    fn work(&self, values: &[Value]) -> (u64, u64) {
        let (mut macs, mut reads) = (0u64, values[0].shape.len());
        for (op, made) in self.ops.iter().zip(&values[1..]) {
            let outputs = made.shape.len();
            match op {
                Op::Conv { input, conv } => {
                    let inputs = conv.inputs(values[*input].shape.channels) as u64;
                    macs = macs.saturating_add(outputs.saturating_mul(inputs));
                }
                Op::MaxPool { input, window, .. } | Op::AveragePool { input, window } => {
                    // Padding is not read.
                    let from = values[*input].shape;
                    let taps = window.kernel[0].min(from.height) as u64 * window.kernel[1].min(from.width) as u64;
                    reads = reads.saturating_add(outputs.saturating_mul(taps));
                }
                Op::Map { .. } => reads = reads.saturating_add(outputs),
                Op::Add { .. } => reads = reads.saturating_add(outputs.saturating_mul(2)),
            }
        }
        (macs, reads)
    }

    fn check_preprocessing(&self) -> Result<()> {
        let Preprocessing { input, element, mean, std, .. } = &self.preprocessing;
        let fail = |what: String| Err(Error::Invalid { place: "preprocessing".into(), what });
        let sides = [input.height, input.width, input.channels];
        if sides.iter().any(|&side| side == 0 || side >= MAX_SIDE) || input.len() >= 1 << 31 {
            return fail(format!("an image of {sides:?} is out of range"));
        }
        if mean.len() != input.channels || std.len() != input.channels {
            return fail(format!("{} means and {} deviations for {} channels", mean.len(), std.len(), input.channels));
        }
        let counted = |mean: &f32| mean.abs() <= 16.0 || (*element == Element::Real && mean.is_finite());
        if !mean.iter().all(counted) || !std.iter().all(|std| std.is_finite() && *std > 0.0) {
            return fail("a mean beyond 16 or a deviation that is not positive".into());
        }
        Ok(())
    }

    fn check_op(&self, op: &Op<'_>, values: &[Value]) -> std::result::Result<Value, String> {
        if let Some(missing) = op.inputs().find(|&input| input >= values.len()) {
            return Err(format!("it reads value {missing}, which no earlier operation makes"));
        }
        match op {
            Op::Conv { input, conv } => self.check_conv(conv, values[*input]),
            Op::MaxPool { input, window, inverted } => {
                let Value { shape, kind } = values[*input];
                if (0..2).any(|axis| window.pad[axis] >= window.kernel[axis]) {
                    return Err("a pool's pad must be less than its kernel".into());
                }
                if !inverted.is_empty() && (inverted.len() != shape.channels || !matches!(kind, Kind::Levels(_))) {
                    return Err("inverted channels need levels and one flag a channel".into());
                }
                let [height, width] = window.output(shape.height, shape.width)?;
                Ok(Value { shape: Shape { height, width, ..shape }, kind })
            }
            Op::AveragePool { input, window } => {
                let shape = values[*input].shape;
                let [height, width] = window.output(shape.height, shape.width)?;
                Ok(Value { shape: Shape { height, width, ..shape }, kind: Kind::Real })
            }
            Op::Map { input, affine } => {
                let shape = values[*input].shape;
                Ok(Value { shape, kind: affine.check(shape.channels)? })
            }
            Op::Add { inputs: [a, b], activation } => {
                if values[*a].shape != values[*b].shape {
                    return Err(format!("it adds {:?} and {:?}", values[*a].shape, values[*b].shape));
                }
                Ok(Value { shape: values[*a].shape, kind: kind_after(*activation)? })
            }
        }
    }

    fn check_conv(&self, conv: &Conv<'_>, input: Value) -> std::result::Result<Value, String> {
        let Value { shape, kind } = input;
        if conv.groups == 0 || conv.outputs == 0 || conv.outputs >= MAX_SIDE {
            return Err(format!("{} groups and {} output channels are out of range", conv.groups, conv.outputs));
        }
        if shape.channels % conv.groups != 0 || !conv.outputs.is_multiple_of(conv.groups) {
            return Err(format!(
                "{} groups do not divide {} and {} channels",
                conv.groups, shape.channels, conv.outputs
            ));
        }
        let [height, width] = conv.window.output(shape.height, shape.width)?;
        let taps = conv.window.kernel[0] as u64 * conv.window.kernel[1] as u64;
        let inputs = taps * (shape.channels / conv.groups) as u64;
        let wanted = conv.weights.codec.row_bytes(inputs).and_then(|row| row.checked_mul(conv.outputs as u64));
        if wanted != Some(conv.weights.bytes.len() as u64) {
            return Err(format!("{} bytes of weights for {} × {inputs}", conv.weights.bytes.len(), conv.outputs));
        }
        let scale = self.scale_of(kind);
        match conv.weights.codec {
            Codec::F32 => {
                if (0..conv.outputs).any(|row| conv.weights.reals(row, inputs as usize).any(|w| !w.is_finite())) {
                    return Err("a weight is not finite".into());
                }
            }
            Codec::Int16 if kind != Kind::Image => return Err("int16 weights belong to layers on the image".into()),
            Codec::Int8 | Codec::Int4 if kind == Kind::Image => {
                return Err("layers on the image have int16 or f32 weights".into());
            }
            codec => {
                let largest = match codec {
                    Codec::Int8 => 127,
                    Codec::Int4 => 7,
                    _ => i16::MAX as i32,
                };
                let stored = scale.as_ref().map_or(1, |scale| scale.largest);
                for row in 0..conv.outputs {
                    let (least, sum) = conv.weights.extent(row, inputs as usize);
                    if least < -largest {
                        return Err(format!("weight {least} is below −{largest}"));
                    }
                    if sum * stored >= i32::MAX as i64 {
                        return Err(format!("the sums of output channel {row} do not fit 32 bits"));
                    }
                }
            }
        }
        let kind = match &conv.stage {
            Stage::Affine(affine) => affine.check(conv.outputs)?,
            Stage::Thresholds { activation, thresholds } => {
                let Some(steps) = activation.steps().filter(|_| activation.is_valid()) else {
                    return Err("thresholds need a hard activation".into());
                };
                if conv.weights.codec == Codec::F32 || scale.is_none() {
                    return Err("thresholds need integer weights and integer inputs".into());
                }
                if thresholds.len() != steps as usize * conv.outputs {
                    return Err(format!("{} thresholds for {} channels", thresholds.len(), conv.outputs));
                }
                Kind::Levels(*activation)
            }
        };
        Ok(Value { shape: Shape { height, width, channels: conv.outputs }, kind })
    }
}

impl Affine {
    fn check(&self, channels: usize) -> std::result::Result<Kind, String> {
        if self.scale.len() != channels || self.bias.len() != channels {
            return Err(format!("{} scales and {} biases for {channels} channels", self.scale.len(), self.bias.len()));
        }
        if !self.scale.iter().chain(&self.bias).all(|number| number.is_finite()) {
            return Err("a scale or bias is not finite".into());
        }
        kind_after(self.activation)
    }
}

fn kind_after(activation: Option<Activation>) -> std::result::Result<Kind, String> {
    match activation {
        Some(activation) if !activation.is_valid() => Err(format!("{activation:?} is not a valid activation")),
        Some(activation) if activation.steps().is_some() => Ok(Kind::Levels(activation)),
        _ => Ok(Kind::Real),
    }
}
