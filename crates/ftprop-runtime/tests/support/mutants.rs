//! Damaged models: bytes changed, cut, moved and repeated, mostly with checksums that match again, so that what lies
//! behind the checksums is tried too.

use ftprop_runtime::format::{HEADER_BYTES, crc32};
use ftprop_runtime::pack::{FlattenOrder, FloatNetwork, PackOptions, WeightFormat, WeightLayout, pack};
use ftprop_runtime::{Activation, Element, Engine, EngineOptions, Error, Kernels, Model, Op, Result, Stage, Window};

use super::Numbers;
use super::networks::Builder;

/// Small models that have every operation, stage and way to store weights between them.
pub fn seeds() -> Result<Vec<Vec<u8>>> {
    let (sign, qrelu) = (Activation::Sign, Activation::QRelu(3));
    let plain = |act: Activation, seed: u64| {
        let net = Builder::new(seed, 6, 7, 3).conv(5, 3, 1, 1, true).max_pool(2, 1, 0).norm(1e-3).act(act);
        let net = net.conv(20, 3, 2, 1, false).norm(1e-3).act(act);
        net.flatten(FlattenOrder::ChannelsFirst).connected(4, true)
    };
    let grouped = Builder::new(5, 5, 5, 2)
        .conv_with(6, Window::square(3, 1, 2), 2, WeightLayout::Ohwi, true)
        .act(qrelu)
        .max_pool(3, 2, 1)
        .conv_with(4, Window::square(2, 1, 1), 2, WeightLayout::Oihw, false)
        .act(sign)
        .flatten(FlattenOrder::ChannelsLast)
        .connected(3, true);
    let residual = Builder::new(6, 6, 6, 1)
        .conv(4, 3, 1, 1, false)
        .norm(1e-3)
        .act(sign)
        .residual(|main| main.conv(4, 3, 1, 1, false).norm(1e-3), |shortcut| shortcut)
        .act(sign)
        .residual(|main| main.conv(8, 3, 2, 1, false), |shortcut| shortcut.conv(8, 1, 2, 0, false).norm(1e-3))
        .act(Activation::Relu)
        .average_pool(Window::square(3, 1, 0))
        .connected(3, true);
    let mlp = Builder::new(7, 3, 3, 1).flatten(FlattenOrder::ChannelsFirst).connected(9, true).act(Activation::Step);
    let networks = [
        (plain(sign, 1).build("sign"), WeightFormat::Int8),
        (plain(qrelu, 2).build("qrelu"), WeightFormat::Int4),
        (plain(sign, 3).build("float"), WeightFormat::F32),
        (plain(Activation::SaturatedRelu, 4).build("saturated"), WeightFormat::Int8),
        (grouped.build("grouped"), WeightFormat::Int8),
        (residual.build("residual"), WeightFormat::Int8),
        (mlp.connected(2, true).build("mlp"), WeightFormat::Int4),
        (table(), WeightFormat::Int8),
    ];
    let file = |(network, weights): &(_, _)| {
        let mut model = pack(network, &PackOptions { weights: *weights })?;
        if model.name == "mlp" {
            model.notes = [("loss", "hinge"), ("source", "digits")].map(|(a, b)| (a.into(), b.into())).into();
        }
        model.to_bytes()
    };
    networks.iter().map(file).collect()
}

/// A network of a table's five columns.
fn table() -> FloatNetwork {
    let net = Builder::new(8, 1, 1, 5).connected(7, true).norm(1e-3).act(Activation::QRelu(3));
    let mut network = net.connected(3, true).build("table");
    network.preprocessing.element = Element::Real;
    network
}

/// What became of some mutants.
#[derive(Debug, Default, PartialEq)]
pub struct Tally {
    pub mutants: u64,
    /// Refused by the reader, by kind of error.
    pub magic: u64,
    pub checksum: u64,
    pub truncated: u64,
    pub invalid: u64,
    /// Refused because they would need too much memory.
    pub memory: u64,
    /// Refused because running them would take long.
    pub large: u64,
    /// Loaded and run.
    pub run: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.mutants += other.mutants;
        self.magic += other.magic;
        self.checksum += other.checksum;
        self.truncated += other.truncated;
        self.invalid += other.invalid;
        self.memory += other.memory;
        self.large += other.large;
        self.run += other.run;
    }
}

/// Makes `count` mutants and loads each; runs those that load.
pub fn try_mutants(seed: u64, count: u64) -> Result<Tally> {
    let seeds = seeds()?;
    let kernels = Kernels::all_available();
    let mut numbers = Numbers(seed);
    let mut tally = Tally { mutants: count, ..Tally::default() };
    for round in 0..count {
        let mut file = seeds[numbers.below(seeds.len())].clone();
        mutate(&mut file, &mut numbers);
        if numbers.below(10) > 0 {
            mend(&mut file, numbers.below(3) > 0);
        }
        let options = EngineOptions {
            threads: 1,
            kernels: Some(kernels[round as usize % kernels.len()]),
            tables: [None, Some(true), Some(false)][numbers.below(3)],
            images_together: 2,
            memory_limit: 4 << 20,
            operation_limit: 1 << 23,
        };
        let result = match numbers.below(5) {
            0 => load_and_run_distorted(&seeds[numbers.below(seeds.len())], &mut numbers, &options),
            _ => load_and_run(&file, &options),
        };
        match result {
            Ok(()) => tally.run += 1,
            Err(Error::Work { .. }) => tally.large += 1,
            Err(Error::Magic | Error::Version { .. }) => tally.magic += 1,
            Err(Error::Checksum { .. }) => tally.checksum += 1,
            Err(Error::Truncated { .. }) => tally.truncated += 1,
            Err(Error::Memory { .. }) => tally.memory += 1,
            Err(_) => tally.invalid += 1,
        }
    }
    Ok(tally)
}

fn load_and_run(file: &[u8], options: &EngineOptions) -> Result<()> {
    run(&Model::parse(file)?, options)
}

/// Changes the model behind the file: numbers that bytes changed at random rarely hit together.
fn load_and_run_distorted(file: &[u8], numbers: &mut Numbers, options: &EngineOptions) -> Result<()> {
    let mut model = Model::parse(file)?;
    let values = model.check()?;
    let at = numbers.below(model.ops.len());
    let shape = |value: usize| [values[value].shape.height, values[value].shape.width];
    match &mut model.ops[at] {
        Op::Conv { input, conv } => {
            stretch(&mut conv.window, shape(*input), shape(at + 1), numbers);
            if let Stage::Thresholds { thresholds, .. } = &mut conv.stage {
                let extremes = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
                let which = numbers.below(thresholds.len());
                thresholds[which] = extremes[numbers.below(extremes.len())];
            }
        }
        Op::MaxPool { input, window, inverted } => {
            stretch(window, shape(*input), shape(at + 1), numbers);
            *inverted = (0..values[*input].shape.channels).map(|_| numbers.below(2) == 0).collect();
        }
        Op::AveragePool { input, window } => stretch(window, shape(*input), shape(at + 1), numbers),
        Op::Map { affine, .. } => affine.scale[0] = f32::MAX * numbers.real(),
        Op::Add { inputs, .. } => inputs[numbers.below(2)] = numbers.below(at + 2),
    }
    run(&model, options)
}

/// Another pad, with a stride that leaves the output as large as it was where there is one.
fn stretch(window: &mut Window, input: [usize; 2], output: [usize; 2], numbers: &mut Numbers) {
    for axis in 0..2 {
        let pad = [0, 1, 2, 5, 50, 1000, 100_000, (1 << 20) - 1, usize::MAX][numbers.below(9)];
        let room = pad.saturating_mul(2).saturating_add(input[axis]).saturating_sub(window.kernel[axis]);
        window.pad[axis] = pad;
        window.stride[axis] = if output[axis] > 1 { room / (output[axis] - 1) } else { room.saturating_add(1) };
    }
}

fn run(model: &Model<'_>, options: &EngineOptions) -> Result<()> {
    let mut engine = Engine::new(model, options)?;
    let images: Vec<u8> = (0..3 * engine.image_len()).map(|i| (i * 89) as u8).collect();
    let mut logits = vec![0.0; 3 * engine.classes()];
    if model.preprocessing.element == Element::Real {
        let rows: Vec<f32> = images.iter().map(|&byte| f32::from(byte) - 100.0).collect();
        return engine.classify_reals(&rows, &mut logits);
    }
    engine.classify(&images, &mut logits)
}

/// One to four changes.
fn mutate(file: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..1 + numbers.below(4) {
        if file.is_empty() {
            return;
        }
        let at = numbers.below(file.len());
        // Sizes and kinds are near the start of a section, weights everywhere else.
        let at = if numbers.below(2) == 0 { at } else { at.min(HEADER_BYTES + numbers.below(200)) };
        let left = file.len() - at;
        match numbers.below(8) {
            0 => file[at] ^= 1 << numbers.below(8),
            1 => file[at] = numbers.next() as u8,
            2 => file[at] = [0, 1, 2, 3, 4, 5, 127, 128, 255][numbers.below(9)],
            3 if left >= 4 => {
                let extremes =
                    [0, 1, 2, 3, 7, 255, 256, 65535, 65536, (1 << 20) - 1, 1 << 20, i32::MAX as u32, u32::MAX];
                let word = extremes[numbers.below(extremes.len())];
                file[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            4 => file.truncate(at),
            5 => {
                let end = at + numbers.below(left.min(64)) + 1;
                file.drain(at..end);
            }
            6 => {
                let end = at + numbers.below(left.min(64)) + 1;
                let copy = file[at..end].to_vec();
                let to = numbers.below(file.len());
                file.splice(to..to, copy);
            }
            _ => {
                let end = at + numbers.below(left.min(16)) + 1;
                file[at..end].fill(numbers.next() as u8);
            }
        }
    }
}

/// Makes the checksums match again, and with `lengths` also the lengths, by giving the operations what is left.
fn mend(file: &mut [u8], lengths: bool) {
    if file.len() < HEADER_BYTES {
        return;
    }
    let body = file.len() - HEADER_BYTES;
    let number = |file: &[u8], at: usize| {
        file[at..at + 8].iter().rev().fold(0u64, |number, &byte| number << 8 | byte as u64).min(1 << 40) as usize
    };
    let about = number(file, 16).min(body);
    if lengths {
        file[16..24].copy_from_slice(&(about as u64).to_le_bytes());
        file[24..32].copy_from_slice(&((body - about) as u64).to_le_bytes());
    }
    let operations = number(file, 24).min(body - about);
    let sections = &file[HEADER_BYTES..];
    let crcs = [crc32(&sections[..about]), crc32(&sections[about..about + operations])];
    file[32..36].copy_from_slice(&crcs[0].to_le_bytes());
    file[36..40].copy_from_slice(&crcs[1].to_le_bytes());
    let header = crc32(&file[..HEADER_BYTES - 4]);
    file[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
}
