//! A packed model in memory: values, and the operations that make each from earlier ones.
//!
//! Value 0 is the image; operation `i` makes value `i + 1`; the last value is the logits. A value is the image
//! (bytes, or reals for a row of a table), levels of a hard activation (small integers), or real numbers. [`Model::check`], in
//! `check.rs`, decides whether a list of operations makes sense, for the packer and for the reader alike.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::memory;

/// The fixed-point denominator of the image's mean, see [`Scale`].
pub(crate) const PIXEL_UNIT: i64 = 1 << 16;
/// Height, width, channels, kernels, strides and pads are below this.
pub(crate) const MAX_SIDE: usize = 1 << 20;
/// More operations than any network has; with so many an engine is still made in no time.
pub(crate) const MAX_OPS: usize = 1 << 14;
/// The most steps a quantized ReLU may have: a level must fit a signed byte.
pub const MAX_STEPS: u8 = 127;

/// Height, width, channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Channels, which vary fastest.
    pub channels: usize,
}

impl Shape {
    /// How many numbers that is. Model shapes are small enough that this cannot overflow 64 bits.
    pub fn len(&self) -> u64 {
        self.height as u64 * self.width as u64 * self.channels as u64
    }

    /// Whether a side is zero, which no shape of a valid model has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An activation. Zero is on the low side: sign(0) = −1, step(0) = 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// +1 above zero, else −1.
    Sign,
    /// 1 above zero, else 0.
    Step,
    /// The quantized ReLU with k steps at 0, 1/(k−1), …, 1: levels 0 to k, divided by k.
    QRelu(u8),
    /// max(0, z).
    Relu,
    /// min(1, max(0, z)).
    SaturatedRelu,
}

impl Activation {
    /// How many thresholds it has: its highest level. None for real-valued activations.
    pub fn steps(self) -> Option<u8> {
        match self {
            Activation::Sign | Activation::Step => Some(1),
            Activation::QRelu(k) => Some(k),
            Activation::Relu | Activation::SaturatedRelu => None,
        }
    }

    /// The pre-activation above which the level exceeds `i`.
    pub(crate) fn threshold(self, i: u8) -> f64 {
        match self {
            Activation::QRelu(k) => i as f64 / (k as f64 - 1.0),
            _ => 0.0,
        }
    }

    /// The output of a hard activation at a level.
    pub(crate) fn value(self, level: u8) -> f32 {
        match self {
            Activation::Sign => 2.0 * level as f32 - 1.0,
            Activation::QRelu(k) => level as f32 / k as f32,
            _ => level as f32,
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        !matches!(self, Activation::QRelu(k) if !(2..=MAX_STEPS).contains(&k))
    }
}

/// What a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the image.
    Image,
    /// Levels of a hard activation.
    Levels(Activation),
    /// Real numbers.
    Real,
}

/// How stored integers mean real inputs: value ∝ `unit` · stored − offset.
///
/// The sum that a layer's thresholds are compared with is S = Σ q (unit · stored − offset) over the taps inside the
/// image. For a sign the unit is 2 and the offset 1; for the image the unit is 2^16 and the offset the channel's mean
/// in those units; otherwise 1 and 0.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) unit: i64,
    /// One for each channel, or a single one for all.
    pub(crate) offsets: Vec<i64>,
    /// The largest stored integer.
    pub(crate) largest: i64,
}

/// What a model's input is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// Bytes: the pixels of a picture.
    #[default]
    Byte,
    /// Real numbers: the features of a row of a table.
    Real,
}

impl Element {
    /// What the first value of a model with such an input holds.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Element::Byte => Kind::Image,
            Element::Real => Kind::Real,
        }
    }
}

/// What the runtime's caller does to a picture before it hands over the bytes, and what the model then does to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    /// The image the engine takes: rows, columns, channels, with channels varying fastest.
    pub input: Shape,
    /// What it is made of. Below, a real number stands in the place of pixel / 255.
    pub element: Element,
    /// Scale the shorter edge to this many pixels first, if given.
    pub resize_shorter: Option<u32>,
    /// Then cut the centre of the input's size out.
    pub center_crop: bool,
    /// The mean of each channel of pixel / 255, subtracted by the model.
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, divided out by the model.
    pub std: Vec<f32>,
}

/// A sliding window: rows first, then columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its size.
    pub kernel: [usize; 2],
    /// How far it moves.
    pub stride: [usize; 2],
    /// Rows and columns added on each side.
    pub pad: [usize; 2],
}

impl Window {
    /// A square window.
    pub fn square(kernel: usize, stride: usize, pad: usize) -> Self {
        Window { kernel: [kernel; 2], stride: [stride; 2], pad: [pad; 2] }
    }

    /// Output rows and columns for an input of `height` × `width`, or what is wrong.
    pub(crate) fn output(&self, height: usize, width: usize) -> std::result::Result<[usize; 2], String> {
        let mut sizes = [0; 2];
        for (axis, side) in [height, width].into_iter().enumerate() {
            let (kernel, stride, pad) = (self.kernel[axis], self.stride[axis], self.pad[axis]);
            if kernel == 0 || stride == 0 || kernel >= MAX_SIDE || stride >= MAX_SIDE || pad >= MAX_SIDE {
                return Err(format!("kernel {kernel}, stride {stride}, pad {pad} are out of range"));
            }
            if side + 2 * pad < kernel {
                return Err(format!("a kernel of {kernel} does not fit {side} with pad {pad}"));
            }
            sizes[axis] = (side + 2 * pad - kernel) / stride + 1;
        }
        Ok(sizes)
    }
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// IEEE single precision.
    F32,
    /// −127 to 127.
    Int8,
    /// −7 to 7, two to a byte, the first in the low half; an output channel starts on a byte.
    Int4,
    /// −32767 to 32767; used where the input is the image.
    Int16,
}

impl Codec {
    /// Bytes of one output channel with `inputs` weights.
    pub(crate) fn row_bytes(self, inputs: u64) -> Option<u64> {
        match self {
            Codec::F32 => inputs.checked_mul(4),
            Codec::Int8 => Some(inputs),
            Codec::Int4 => Some(inputs.div_ceil(2)),
            Codec::Int16 => inputs.checked_mul(2),
        }
    }
}

/// Weights in the order output channel, kernel row, kernel column, input channel of the group.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights<'a> {
    /// How they are stored.
    pub codec: Codec,
    /// The bytes, little-endian.
    pub bytes: Cow<'a, [u8]>,
}

impl Weights<'_> {
    /// The integers of output channel `row`, each of `inputs` weights.
    pub(crate) fn integers(&self, row: usize, inputs: usize) -> Box<dyn Iterator<Item = i32> + '_> {
        let size = self.codec.row_bytes(inputs as u64).unwrap_or(0) as usize;
        let bytes = &self.bytes[row * size..(row + 1) * size];
        match self.codec {
            Codec::Int8 => Box::new(bytes.iter().map(|&byte| byte as i8 as i32)),
            Codec::Int4 => {
                Box::new((0..inputs).map(move |i| (((bytes[i / 2] >> (4 * (i % 2))) << 4) as i8 >> 4) as i32))
            }
            Codec::Int16 => Box::new(bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]) as i32)),
            Codec::F32 => Box::new(std::iter::empty()),
        }
    }

    /// The least integer of output channel `row`, or 0, and the sum of all their sizes. Plain loops: a model is checked
    /// whenever it is read, and that must not take long.
    pub(crate) fn extent(&self, row: usize, inputs: usize) -> (i32, i64) {
        fn of(integers: impl Iterator<Item = i32>) -> (i32, i64) {
            integers.fold((0, 0), |(least, sum), q| (least.min(q), sum + i64::from(q.unsigned_abs())))
        }
        let size = self.codec.row_bytes(inputs as u64).unwrap_or(0) as usize;
        let bytes = &self.bytes[row * size..(row + 1) * size];
        match self.codec {
            Codec::Int8 => of(bytes.iter().map(|&byte| i32::from(byte as i8))),
            Codec::Int16 => of(bytes.chunks_exact(2).map(|pair| i32::from(i16::from_le_bytes([pair[0], pair[1]])))),
            Codec::Int4 | Codec::F32 => of(self.integers(row, inputs)),
        }
    }

    /// The weights of output channel `row`, each of `inputs` weights, as reals without their scale. Of a checked model
    /// only.
    pub fn reals(&self, row: usize, inputs: usize) -> Box<dyn Iterator<Item = f32> + '_> {
        if self.codec != Codec::F32 {
            return Box::new(self.integers(row, inputs).map(|q| q as f32));
        }
        let bytes = &self.bytes[row * inputs * 4..(row + 1) * inputs * 4];
        Box::new(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
    }
}

/// scale · x + bias for each channel, then the activation.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// A factor for each channel.
    pub scale: Vec<f32>,
    /// A summand for each channel.
    pub bias: Vec<f32>,
    /// What follows.
    pub activation: Option<Activation>,
}

impl Affine {
    /// A copy, if there is memory for it.
    pub(crate) fn copy(&self) -> Result<Affine> {
        let (scale, bias) = (memory::copy(&self.scale)?, memory::copy(&self.bias)?);
        Ok(Affine { scale, bias, activation: self.activation })
    }
}

/// What a layer does with its sums.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// The level is the number of thresholds below the integer sum; `thresholds[i * channels + channel]`.
    Thresholds {
        /// A hard activation.
        activation: Activation,
        /// Norm, bias and scales folded into integers.
        thresholds: Vec<i64>,
    },
    /// Real arithmetic.
    Affine(Affine),
}

/// A convolution; a fully connected layer is one whose kernel is the whole input.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv<'a> {
    /// Kernel, stride and pad. Padded taps count as zero after normalising.
    pub window: Window,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Output channels.
    pub outputs: usize,
    /// The weights.
    pub weights: Weights<'a>,
    /// What becomes of the sums.
    pub stage: Stage,
}

/// One operation; `input` and the like are numbers of earlier values.
#[derive(Clone, Debug, PartialEq)]
pub enum Op<'a> {
    /// A linear layer and its activation.
    Conv {
        /// What it reads.
        input: usize,
        /// The layer.
        conv: Conv<'a>,
    },
    /// The largest value of each window; padding never wins.
    MaxPool {
        /// What it reads.
        input: usize,
        /// The window.
        window: Window,
        /// Channels whose level is then turned round, `steps − level`; empty when there are none.
        inverted: Vec<bool>,
    },
    /// The mean of each window, padding counted as zeros.
    AveragePool {
        /// What it reads.
        input: usize,
        /// The window.
        window: Window,
    },
    /// An affine map for each channel and an activation.
    Map {
        /// What it reads.
        input: usize,
        /// The map.
        affine: Affine,
    },
    /// The sum of two values of one shape, then an activation.
    Add {
        /// What it reads.
        inputs: [usize; 2],
        /// What follows.
        activation: Option<Activation>,
    },
}

impl Op<'_> {
    /// The values it reads.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        let pair = match self {
            Op::Conv { input, .. }
            | Op::MaxPool { input, .. }
            | Op::AveragePool { input, .. }
            | Op::Map { input, .. } => [Some(*input), None],
            Op::Add { inputs, .. } => inputs.map(Some),
        };
        pair.into_iter().flatten()
    }
}

/// A value's shape and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Rows, columns, channels.
    pub shape: Shape,
    /// What it holds.
    pub kind: Kind,
}

/// A packed model. Weights may borrow from the bytes that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Model<'a> {
    /// A name for people.
    pub name: String,
    /// What the image must be.
    pub preprocessing: Preprocessing,
    /// The classes' names in the order of the logits, or none.
    pub classes: Vec<String>,
    /// What else the model's maker wants remembered, see [`note`](crate::note).
    pub notes: BTreeMap<String, String>,
    /// The operations in order.
    pub ops: Vec<Op<'a>>,
}

impl Model<'_> {
    /// With which unit and offsets, one for each channel or one for all, the stored integers of a value enter the sums
    /// of a layer with whole weights: Σ q (unit · stored − offset). None for a value that holds reals.
    pub fn integer_scale(&self, kind: Kind) -> Option<(i64, Vec<i64>)> {
        self.scale_of(kind).map(|scale| (scale.unit, scale.offsets))
    }

    /// How the stored integers of a value mean reals; none for a value that holds reals.
    pub(crate) fn scale_of(&self, kind: Kind) -> Option<Scale> {
        match kind {
            Kind::Image => {
                let fixed = |mean: &f32| (*mean as f64 * 255.0 * PIXEL_UNIT as f64).round() as i64;
                let offsets = self.preprocessing.mean.iter().map(fixed).collect();
                Some(Scale { unit: PIXEL_UNIT, offsets, largest: 255 })
            }
            Kind::Levels(Activation::Sign) => Some(Scale { unit: 2, offsets: vec![1], largest: 1 }),
            Kind::Levels(activation) => {
                Some(Scale { unit: 1, offsets: vec![0], largest: activation.steps().unwrap_or(0) as i64 })
            }
            Kind::Real => None,
        }
    }
}

impl Conv<'_> {
    /// Inputs of one output: kernel rows × columns × channels of a group. Of a checked convolution only.
    pub fn inputs(&self, channels: usize) -> usize {
        self.window.kernel[0] * self.window.kernel[1] * (channels / self.groups)
    }
}
