//! A [`Model`] to bytes.

use super::{MAGIC, VERSION, code, crc32};
use crate::error::Result;
use crate::model::{Activation, Affine, Codec, Conv, Element, Model, Op, Stage, Window};

impl Model<'_> {
    /// Checks the model and writes it as the bytes of a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        let about = self.about();
        let operations = self.operation_bytes();
        let mut file = Vec::with_capacity(super::HEADER_BYTES + about.len() + operations.len());
        file.extend(MAGIC);
        file.u32(self.version());
        file.u32(0);
        file.extend((about.len() as u64).to_le_bytes());
        file.extend((operations.len() as u64).to_le_bytes());
        file.u32(crc32(&about));
        file.u32(crc32(&operations));
        let crc = crc32(&file);
        file.u32(crc);
        file.extend(about);
        file.extend(operations);
        Ok(file)
    }

    /// The first version that has what the model needs.
    fn version(&self) -> u32 {
        match (self.preprocessing.element, self.notes.is_empty()) {
            (Element::Real, _) => VERSION,
            (Element::Byte, false) => 2,
            (Element::Byte, true) => 1,
        }
    }

    fn about(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let about = &self.preprocessing;
        to.string(&self.name);
        to.sizes(&[about.input.height, about.input.width, about.input.channels]);
        to.u32(about.resize_shorter.unwrap_or(0));
        to.push(about.center_crop as u8);
        if about.element == Element::Real {
            to.push(1);
        }
        to.f32s(&about.mean);
        to.f32s(&about.std);
        to.u32(self.classes.len() as u32);
        for class in &self.classes {
            to.string(class);
        }
        if self.version() > 1 {
            to.u32(self.notes.len() as u32);
            for (name, text) in &self.notes {
                to.string(name);
                to.string(text);
            }
        }
        to
    }

    fn operation_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.u32(self.ops.len() as u32);
        for op in &self.ops {
            match op {
                Op::Conv { input, conv } => {
                    to.head(code::CONV, *input);
                    to.conv(conv);
                }
                Op::MaxPool { input, window, inverted } => {
                    to.head(code::MAX_POOL, *input);
                    to.window(window);
                    to.push(!inverted.is_empty() as u8);
                    to.extend(inverted.chunks(8).map(|eight| {
                        eight.iter().enumerate().fold(0, |byte, (bit, &inverted)| byte | (inverted as u8) << bit)
                    }));
                }
                Op::AveragePool { input, window } => {
                    to.head(code::AVERAGE_POOL, *input);
                    to.window(window);
                }
                Op::Map { input, affine } => {
                    to.head(code::MAP, *input);
                    to.affine(affine);
                }
                Op::Add { inputs: [a, b], activation } => {
                    to.head(code::ADD, *a);
                    to.u32(*b as u32);
                    to.activation(*activation);
                }
            }
        }
        to
    }
}

/// Appending the format's pieces to a file. Sizes fit 32 bits once the model is checked.
trait Append {
    fn u32(&mut self, number: u32);
    fn f32s(&mut self, numbers: &[f32]);
    fn sizes(&mut self, sizes: &[usize]);
    fn string(&mut self, text: &str);
    fn head(&mut self, kind: u8, input: usize);
    fn window(&mut self, window: &Window);
    fn conv(&mut self, conv: &Conv<'_>);
    fn affine(&mut self, affine: &Affine);
    fn activation(&mut self, activation: Option<Activation>);
}

impl Append for Vec<u8> {
    fn u32(&mut self, number: u32) {
        self.extend(number.to_le_bytes());
    }

    fn f32s(&mut self, numbers: &[f32]) {
        self.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    fn sizes(&mut self, sizes: &[usize]) {
        sizes.iter().for_each(|&size| self.u32(size as u32));
    }

    fn string(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.extend(text.as_bytes());
    }

    fn head(&mut self, kind: u8, input: usize) {
        self.push(kind);
        self.u32(input as u32);
    }

    fn window(&mut self, window: &Window) {
        self.sizes(&window.kernel);
        self.sizes(&window.stride);
        self.sizes(&window.pad);
    }

    fn conv(&mut self, conv: &Conv<'_>) {
        self.sizes(&[conv.outputs, conv.groups]);
        self.window(&conv.window);
        self.push(match conv.weights.codec {
            Codec::F32 => code::F32,
            Codec::Int8 => code::INT8,
            Codec::Int4 => code::INT4,
            Codec::Int16 => code::INT16,
        });
        self.extend(conv.weights.bytes.iter());
        match &conv.stage {
            Stage::Thresholds { activation, thresholds } => {
                self.push(code::THRESHOLDS);
                self.activation(Some(*activation));
                self.extend(thresholds.iter().flat_map(|threshold| threshold.to_le_bytes()));
            }
            Stage::Affine(affine) => {
                self.push(code::AFFINE);
                self.affine(affine);
            }
        }
    }

    fn affine(&mut self, affine: &Affine) {
        self.f32s(&affine.scale);
        self.f32s(&affine.bias);
        self.activation(affine.activation);
    }

    fn activation(&mut self, activation: Option<Activation>) {
        self.extend(match activation {
            None => [code::NONE, 0],
            Some(Activation::Sign) => [code::SIGN, 1],
            Some(Activation::Step) => [code::STEP, 1],
            Some(Activation::QRelu(k)) => [code::QRELU, k],
            Some(Activation::Relu) => [code::RELU, 0],
            Some(Activation::SaturatedRelu) => [code::SATURATED_RELU, 0],
        });
    }
}
