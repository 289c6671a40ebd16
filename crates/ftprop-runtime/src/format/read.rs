//! Bytes to a [`Model`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::cursor::Cursor;
use super::{HEADER_BYTES, MAGIC, MOST_NOTES, VERSION, code, crc32};
use crate::error::{Error, Result};
use crate::memory;
use crate::model::{Activation, Affine, Codec, Conv, Element, Model, Op, Preprocessing, Shape, Stage, Weights, Window};

impl<'a> Model<'a> {
    /// Reads and checks a packed model. Weights are borrowed from `bytes`, which may be a memory-mapped file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::Magic);
        }
        let mut header = Cursor::new("header", &bytes[..bytes.len().min(HEADER_BYTES)]);
        header.bytes(MAGIC.len() as u64)?;
        let version = header.u32()?;
        if !(1..=VERSION).contains(&version) {
            return Err(Error::Version { found: version, supported: VERSION });
        }
        header.u32()?;
        let (about, operations) = (header.u64()?, header.u64()?);
        let (about_crc, operations_crc, header_crc) = (header.u32()?, header.u32()?, header.u32()?);
        if crc32(&bytes[..HEADER_BYTES - 4]) != header_crc {
            return Err(Error::Checksum { section: "header" });
        }
        let mut body = Cursor::new("file", &bytes[HEADER_BYTES..]);
        let about = body.bytes(about)?;
        let operations = body.bytes(operations)?;
        body.end()?;
        if crc32(about) != about_crc {
            return Err(Error::Checksum { section: "description" });
        }
        if crc32(operations) != operations_crc {
            return Err(Error::Checksum { section: "operations" });
        }
        let (name, preprocessing, classes, notes) = read_about(&mut Cursor::new("description", about), version)?;
        let ops = read_ops(&mut Cursor::new("operations", operations), preprocessing.input.channels)?;
        let model = Model { name, preprocessing, classes, notes, ops };
        model.check()?;
        Ok(model)
    }
}

type About = (String, Preprocessing, Vec<String>, BTreeMap<String, String>);

fn read_about(from: &mut Cursor<'_>, version: u32) -> Result<About> {
    let name = from.string()?;
    let input = Shape { height: from.size()?, width: from.size()?, channels: from.size()? };
    let resize = from.u32()?;
    let center_crop = from.u8()? != 0;
    let element = match version {
        1 | 2 => Element::Byte,
        _ => match from.u8()? {
            1 => Element::Real,
            other => return from.invalid(format!("{other} is no kind of input that this version is for")),
        },
    };
    let mean = from.f32s(input.channels)?;
    let std = from.f32s(input.channels)?;
    let mut classes = Vec::new();
    for _ in 0..from.u32()? {
        memory::push(&mut classes, from.string()?)?;
    }
    let notes = if version >= 2 { read_notes(from, version)? } else { BTreeMap::new() };
    from.end()?;
    let resize_shorter = (resize != 0).then_some(resize);
    Ok((name, Preprocessing { input, element, resize_shorter, center_crop, mean, std }, classes, notes))
}

/// Notes come by name, in order and each once, so that what is read is what was written.
fn read_notes(from: &mut Cursor<'_>, version: u32) -> Result<BTreeMap<String, String>> {
    let mut notes = BTreeMap::new();
    let count = from.u32()?;
    // Without notes a model of version 2 would be one of version 1.
    let least = if version == 2 { 1 } else { 0 };
    if !(least..=MOST_NOTES).contains(&count) {
        return from.invalid(format!("{count} notes where {least} to {MOST_NOTES} may be"));
    }
    for _ in 0..count {
        let (name, text) = (from.string()?, from.string()?);
        if notes.last_key_value().is_some_and(|(last, _)| *last >= name) {
            return from.invalid("notes are not in the order of their names");
        }
        notes.insert(name, text);
    }
    Ok(notes)
}

fn read_ops<'a>(from: &mut Cursor<'a>, image_channels: usize) -> Result<Vec<Op<'a>>> {
    // Channels of each value so far: what follows an operation's head is counted in them.
    let mut channels = vec![image_channels];
    let mut ops = Vec::new();
    for _ in 0..from.u32()? {
        let kind = from.u8()?;
        let input = from.size()?;
        let Some(&input_channels) = channels.get(input) else {
            return from.invalid(format!("an operation reads value {input}, which no earlier one makes"));
        };
        let mut output_channels = input_channels;
        let op = match kind {
            code::CONV => {
                let conv = read_conv(from, input_channels)?;
                output_channels = conv.outputs;
                Op::Conv { input, conv }
            }
            code::MAX_POOL => {
                let window = read_window(from)?;
                let inverted = match from.u8()? {
                    0 => Vec::new(),
                    _ => {
                        let bits = from.bytes((input_channels as u64).div_ceil(8))?;
                        memory::collect((0..input_channels).map(|c| bits[c / 8] >> (c % 8) & 1 == 1))?
                    }
                };
                Op::MaxPool { input, window, inverted }
            }
            code::AVERAGE_POOL => Op::AveragePool { input, window: read_window(from)? },
            code::MAP => Op::Map { input, affine: read_affine(from, input_channels)? },
            code::ADD => Op::Add { inputs: [input, from.size()?], activation: read_activation(from)? },
            other => return from.invalid(format!("{other} is no kind of operation")),
        };
        memory::push(&mut channels, output_channels)?;
        memory::push(&mut ops, op)?;
    }
    from.end()?;
    Ok(ops)
}

fn read_conv<'a>(from: &mut Cursor<'a>, channels: usize) -> Result<Conv<'a>> {
    let outputs = from.size()?;
    let groups = from.size()?;
    let window = read_window(from)?;
    let codec = match from.u8()? {
        code::F32 => Codec::F32,
        code::INT8 => Codec::Int8,
        code::INT4 => Codec::Int4,
        code::INT16 => Codec::Int16,
        other => return from.invalid(format!("{other} is no way to store weights")),
    };
    let inputs = (channels / groups.max(1)) as u128 * window.kernel[0] as u128 * window.kernel[1] as u128;
    let row = u64::try_from(inputs).ok().and_then(|inputs| codec.row_bytes(inputs));
    let Some(size) = row.and_then(|row| row.checked_mul(outputs as u64)) else {
        return from.invalid("its weights are beyond counting");
    };
    let weights = Weights { codec, bytes: Cow::Borrowed(from.bytes(size)?) };
    let stage = match from.u8()? {
        code::THRESHOLDS => {
            let Some(activation) = read_activation(from)? else {
                return from.invalid("thresholds without an activation");
            };
            let steps = activation.steps().unwrap_or(0) as usize;
            Stage::Thresholds { activation, thresholds: from.i64s(steps * outputs)? }
        }
        code::AFFINE => Stage::Affine(read_affine(from, outputs)?),
        other => return from.invalid(format!("{other} is no kind of output stage")),
    };
    Ok(Conv { window, groups, outputs, weights, stage })
}

fn read_window(from: &mut Cursor<'_>) -> Result<Window> {
    Ok(Window { kernel: from.pair()?, stride: from.pair()?, pad: from.pair()? })
}

fn read_affine(from: &mut Cursor<'_>, channels: usize) -> Result<Affine> {
    Ok(Affine { scale: from.f32s(channels)?, bias: from.f32s(channels)?, activation: read_activation(from)? })
}

fn read_activation(from: &mut Cursor<'_>) -> Result<Option<Activation>> {
    let (kind, steps) = (from.u8()?, from.u8()?);
    Ok(match kind {
        code::NONE => None,
        code::SIGN => Some(Activation::Sign),
        code::STEP => Some(Activation::Step),
        code::QRELU => Some(Activation::QRelu(steps)),
        code::RELU => Some(Activation::Relu),
        code::SATURATED_RELU => Some(Activation::SaturatedRelu),
        other => return from.invalid(format!("{other} is no activation")),
    })
}
