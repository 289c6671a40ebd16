//! Does this GPU compute the right thing? The suite that every engine is put through, in each precision within what its
//! rounding allows. Then what only a GPU has: data that lives on the device, is streamed or comes from the CPU's loader
//! must train to the same bits, several networks at once to those of each alone, products in every way that they may be
//! chosen, what does not fit must be refused, and what is no number must be noticed. The suite is run twice, with the
//! kernels for small batches and with those for large ones.

mod learned_products;
mod wide_norms;

use crate::memory::DeviceBuffer;
use crate::network::Paths;
use crate::product_checks::{engines, patches, shifted, tilings};
use crate::{
    CudaError, CudaNetwork, Device, NetworkConfig, Precision, ResidentData, StreamedPictures, StreamedPixels, Tuning,
};
use ftprop_data::{Augment, Jitter, Loader, LoaderConfig, Normalize, Split};
use ftprop_nn::activation::Activation;
use ftprop_nn::engine::suite::{self, Check, Exactness, apart, distance};
use ftprop_nn::engine::{Engine, EngineError, Learning, StepSpan};
use ftprop_nn::optimizer::Setting;
use ftprop_nn::spec::{Defaults, Init, Kernel, LayerSpec};
use ftprop_nn::{Graph, LayerLoss, OptimizerSpec, Shape, Step};
use ftprop_tensor::Share;
use ftprop_tensor::random::Stream;
use learned_products::{learned_above, learned_products};
use std::sync::Arc;
use wide_norms::wide_norms;

/// A part of the self test that can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelftestPart {
    /// Data that is resident, streamed or loaded trains to the same bits, and pictures are the CPU's.
    Batches,
    /// Networks at once, and products as timing chooses them.
    Tuning,
    /// Ways to compute a product, beside f64 or each other.
    Products,
    /// The one way that needs matrix units which read shared memory themselves.
    Shifts,
    /// What is no number is noticed, and what does not fit refused.
    Faults,
    /// The suite that every engine is put through, with the kernels for small batches.
    Networks,
    /// Its networks with the kernels for large batches.
    Large,
    /// Of the suite, the target rules that look further than at their unit.
    Rules,
}

impl SelftestPart {
    /// All of them, with the names that they are asked for by.
    pub const ALL: [(&'static str, SelftestPart); 8] = [
        ("batches", SelftestPart::Batches),
        ("tuning", SelftestPart::Tuning),
        ("products", SelftestPart::Products),
        ("shifts", SelftestPart::Shifts),
        ("faults", SelftestPart::Faults),
        ("networks", SelftestPart::Networks),
        ("large", SelftestPart::Large),
        ("rules", SelftestPart::Rules),
    ];
}

/// Puts this GPU through some parts and reports each check as it is done. An error means that the GPU could not
/// run at all.
pub fn selftest(
    device: &Device,
    parts: &[SelftestPart],
    report: &mut dyn FnMut(&Check),
) -> Result<Vec<Check>, EngineError> {
    let mut checks: Vec<Check> = Vec::new();
    let mut add = |check: Check| {
        report(&check);
        checks.push(check);
    };
    let wanted = |part: SelftestPart| parts.contains(&part);
    if wanted(SelftestPart::Batches) {
        batches(device, &mut add)?;
    }
    if wanted(SelftestPart::Tuning) {
        add(side_by_side(device)?);
        for precision in [Precision::Tf32, Precision::Bf16] {
            for tuning in [Tuning::Alone, Tuning::Shared, Tuning::Libraries] {
                add(tuned(device, precision, tuning)?);
                add(tuned_training(device, precision, tuning)?);
            }
        }
    }
    if wanted(SelftestPart::Products) {
        for precision in [Precision::Tf32, Precision::Bf16] {
            add(engines(device, precision)?);
            add(patches(device, precision)?);
        }
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            add(tilings(device, precision)?);
        }
    }
    if wanted(SelftestPart::Shifts) {
        for precision in [Precision::Tf32, Precision::Bf16] {
            add(shifted(device, precision)?);
        }
    }
    if wanted(SelftestPart::Faults) {
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            add(hidden(device, precision)?);
        }
        add(too_large(device)?);
    }
    if wanted(SelftestPart::Large) {
        add(wide_norms(device)?);
        for precision in [Precision::Tf32, Precision::Bf16] {
            add(learned_products(device, precision)?);
            add(learned_above(device, precision)?);
        }
    }
    networks(device, &wanted, &mut add)?;
    Ok(checks)
}

/// Where examples come from must not matter, and pictures are the CPU's.
fn batches(device: &Device, add: &mut dyn FnMut(Check)) -> Result<(), EngineError> {
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        add(same_batches(device, precision)?);
    }
    for precision in [Precision::F32, Precision::Bf16] {
        add(pictures(device, precision)?);
    }
    Ok(())
}

/// The engines' suite, with the kernels for small batches and with those for large ones.
fn networks(
    device: &Device,
    wanted: &dyn Fn(SelftestPart) -> bool,
    add: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    for (precision, exactness) in [
        (Precision::F32, Exactness::Float),
        // Units that rounding carries past a kink: emulated on the CPU they make 5e-2 of the residual network's gradients on
        // the suite's examples, and the rest of rounding 1e-3.
        (Precision::Tf32, Exactness::Rounded(1e-1)),
        (Precision::Bf16, Exactness::Rounded(5e-1)),
    ] {
        let config = |case: &suite::Case| {
            let (graph, learning) = (case.graph.clone(), case.learning.clone());
            NetworkConfig { graph, learning, batch: case.batch, precision, tuning: Tuning::Fixed }
        };
        let make = |case: &suite::Case, paths| -> Result<Box<dyn Engine>, EngineError> {
            Ok(Box::new(CudaNetwork::with_paths(device, config(case), paths)?))
        };
        if wanted(SelftestPart::Networks) {
            // The suite has many networks of few kernels each.
            let cases = suite::cases_for(exactness)?.into_iter().chain(suite::further()?).chain(suite::taught()?);
            CudaNetwork::compile_ahead(
                device,
                &cases.map(|case| config(&case)).collect::<Vec<_>>(),
                Paths::Cooperative,
            )?;
        }
        let named = |check: &Check| Check { name: format!("{precision}: {}", check.name), ..check.clone() };
        if wanted(SelftestPart::Networks) {
            suite::run(&mut |case| make(case, Paths::Cooperative), exactness, &mut |check| add(named(check)))?;
        } else if wanted(SelftestPart::Rules) {
            suite::rules_beside(&mut |case| make(case, Paths::Cooperative), exactness, &mut |check| add(named(check)))?;
        }
        // Vectors are as wide as those of f32 or of bf16, and sums are in f64 or f32: the two have both.
        if wanted(SelftestPart::Large) && precision != Precision::Tf32 {
            suite::networks_beside(&mut |case| make(case, Paths::Large), exactness, &mut |check| {
                add(Check { name: format!("{precision}: large batches, {}", check.name), ..check.clone() });
            })?;
        }
    }
    Ok(())
}

fn act() -> LayerSpec {
    LayerSpec::Act { activation: None, layer_loss: None, target_rule: None, qrelu_form: None }
}

fn conv(out: usize, kernel: [usize; 2], stride: usize, pad: usize, groups: usize, bias: Option<bool>) -> LayerSpec {
    LayerSpec::Conv { out, kernel: Kernel::Rectangle(kernel), stride, pad, groups, bias, init: Init::Uniform }
}

fn norm() -> LayerSpec {
    LayerSpec::BatchNorm { eps: 1e-4, momentum: 0.1 }
}

fn fc(out: Option<usize>) -> LayerSpec {
    LayerSpec::Fc { out, bias: None }
}

fn max_pool(kernel: usize, stride: usize, pad: usize) -> LayerSpec {
    LayerSpec::MaxPool { kernel, stride: Some(stride), pad }
}

/// What a network of these layers is compiled for, in f32 and for one example.
fn config(
    layers: &[LayerSpec],
    activation: Activation,
    input: Shape,
    classes: usize,
    optimizer: &OptimizerSpec,
) -> Result<NetworkConfig, EngineError> {
    let defaults = Defaults::new(activation, LayerLoss::soft_hinge());
    let graph = Arc::new(Graph::resolve(layers, &defaults, input, classes)?);
    let learning = Learning::new(&graph, optimizer)?;
    Ok(NetworkConfig { graph, learning, batch: 1, precision: Precision::F32, tuning: Tuning::Fixed })
}

/// Pictures, labels and a small network for them.
fn problem(precision: Precision) -> Result<(Split, Normalize, NetworkConfig), EngineError> {
    let random = Stream::numbered(4);
    let count = 61;
    let shape = ftprop_data::Shape::new(10, 12, 3);
    let bytes: Vec<u8> = (0..count * shape.size()).map(|i| random.below(i as u64, 256) as u8).collect();
    let labels = (0..count).map(|i| random.below((1 << 40) | i as u64, 4) as u32).collect();
    let split = Split::from_pixels(shape, bytes, labels).map_err(CudaError::from)?;
    let (split, _) = split.hold_out(ftprop_data::HoldOut::Count(11), 1).map_err(CudaError::from)?;
    let normalize = Normalize::pixels(&[0.4, 0.5, 0.6], &[0.2, 0.25, 0.3]);
    let layers = [
        conv(8, [3, 3], 1, 1, 1, None),
        max_pool(2, 2, 0),
        act(),
        LayerSpec::Dropout { p: 0.2 },
        conv(12, [3, 3], 1, 1, 1, None),
        norm(),
        act(),
        fc(None),
    ];
    let input = Shape { height: 10, width: 12, channels: 3 };
    let config = config(&layers, Activation::Sign, input, 4, &OptimizerSpec::adam(1e-3)?)?;
    let config = NetworkConfig { batch: 8, precision, ..config };
    Ok((split, normalize, config))
}

const AUGMENT: Augment = Augment { pad: 2, reflect: true, alternate: true, cutout: 3, ..Augment::CIFAR };

fn resident(device: &Device, split: &Split, normalize: &Normalize) -> Result<ResidentData, CudaError> {
    ResidentData::new(device, split, normalize, AUGMENT, true)?.ok_or(CudaError::NotBytes)
}

/// How far results are from the first, 0 where all have its bits.
fn largest_difference(results: &[Vec<f32>]) -> f64 {
    results.iter().map(|r| apart(r, &results[0])).fold(0.0, f64::max)
}

/// More networks at once than a GPU has queues, each on its own thread and stream, and one alone: all must end up equal
/// and have counted the same.
fn side_by_side(device: &Device) -> Result<Check, EngineError> {
    let (split, normalize, config) = problem(Precision::Tf32)?;
    let train = || {
        let data = resident(device, &split, &normalize)?;
        let mut network = CudaNetwork::new(device, config.clone())?;
        network.initialise(3)?;
        let mut counted = Vec::new();
        for epoch in 0..20 {
            let steps = vec![(1.0, 0.5); data.examples().div_ceil(config.batch)];
            let first_step = epoch * steps.len() as u64;
            network.train(&data, &StepSpan { seed: 1, epoch, first_batch: 0, first_step, steps, portion: None })?;
            for tally in [network.take_tally()?, network.evaluate_data(&data)?] {
                counted.extend([tally.examples as f32, tally.top1 as f32, tally.loss_sum as f32]);
            }
        }
        counted.extend(network.values()?);
        Ok(counted)
    };
    let mut results = vec![train()?];
    let together: Vec<Result<Vec<f32>, EngineError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(train)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for result in together {
        results.push(result?);
    }
    Ok(Check { name: "tf32: sixteen networks at once".into(), error: largest_difference(&results), allowed: 0.0 })
}

/// Products that were chosen by timing, or are libraries', against those that were not.
fn tuned(device: &Device, precision: Precision, tuning: Tuning) -> Result<Check, EngineError> {
    let input = Shape { height: 32, width: 32, channels: 3 };
    let layers = ftprop_nn::presets::layers("convnet4", input, &[])?;
    let config = NetworkConfig {
        batch: 64,
        precision,
        ..config(&layers, Activation::Relu, input, 10, &OptimizerSpec::adam(1e-3)?)?
    };
    let random = Stream::numbered(5);
    let images: Vec<f32> = (0..config.batch * input.len()).map(|i| random.uniform(i as u64) - 0.5).collect();
    let labels: Vec<u32> = (0..config.batch).map(|i| random.below((1 << 40) | i as u64, 10) as u32).collect();
    let grads = |tuning| {
        let mut network = CudaNetwork::new(device, NetworkConfig { tuning, ..config.clone() })?;
        network.initialise(1)?;
        network.learn(&images, &labels, &Step { seed: 1, number: 0, progress: 0.0 })?;
        Ok::<_, EngineError>(network.grads()?)
    };
    let error = distance(&grads(tuning)?, &grads(Tuning::Fixed)?);
    let name = format!("{precision}: products as chosen by tuning {tuning}");
    // Each product is the same to many digits, but a pool takes one or the other of two that are nearly equal.
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 1e-1 } else { 5e-2 } })
}

/// The same for whole steps as they are captured, in a network whose parameters begin at odd places, with a smaller
/// batch at the end.
fn tuned_training(device: &Device, precision: Precision, tuning: Tuning) -> Result<Check, EngineError> {
    let (split, normalize, problem) = problem(precision)?;
    let data = resident(device, &split, &normalize)?;
    // Linear, and without Adam: either would make much of a small difference.
    let layers = [fc(Some(101)), fc(Some(50)), fc(Some(44)), fc(None)];
    let (input, batch) = (problem.graph.input(), problem.batch);
    let config = config(&layers, Activation::Sign, input, problem.graph.classes(), &OptimizerSpec::sgd(0.05, 0.0)?)?;
    let config = NetworkConfig { batch, precision, ..config };
    let moved = |tuning| {
        let mut network = CudaNetwork::new(device, NetworkConfig { tuning, ..config.clone() })?;
        network.initialise(1)?;
        network.load(&[config.batch, data.examples() % config.batch], &[config.batch, 1])?;
        how_far(&mut network, &data, config.batch)
    };
    let error = distance(&moved(tuning)?, &moved(Tuning::Fixed)?);
    let name = format!("{precision}: captured steps as chosen by tuning {tuning}");
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 2e-1 } else { 2e-2 } })
}

/// How far an epoch moves each parameter.
fn how_far(network: &mut CudaNetwork, data: &ResidentData, batch: usize) -> Result<Vec<f32>, EngineError> {
    let (before, steps) = (network.values()?, vec![(1.0, 0.5); data.examples().div_ceil(batch)]);
    network.train(data, &StepSpan { seed: 1, epoch: 1, first_batch: 0, first_step: 0, steps, portion: None })?;
    Ok(network.values()?.iter().zip(&before).map(|(after, before)| after - before).collect())
}

/// A weight that is no number, which the first threshold would hide, must show in the loss, and its layer must be named.
fn hidden(device: &Device, precision: Precision) -> Result<Check, EngineError> {
    let (split, normalize, config) = problem(precision)?;
    let data = resident(device, &split, &normalize)?;
    let mut network = CudaNetwork::new(device, config)?;
    network.initialise(1)?;
    let mut values = network.values()?;
    values[0] = f32::NAN;
    network.set_values(&values)?;
    network.train(
        &data,
        &StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 0, steps: vec![(1.0, 0.5); 2], portion: None },
    )?;
    let shown = !network.take_tally()?.loss_sum.is_finite();
    let named = network.first_non_finite(1)?.is_some_and(|layer| layer.contains("layer 3"));
    // Other numbers, another verdict.
    network.initialise(1)?;
    let zeros = vec![0.0; values.len()];
    network.restore_optimizer(0, &[&zeros, &zeros])?;
    network.train(
        &data,
        &StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 0, steps: vec![(1.0, 0.5); 2], portion: None },
    )?;
    let forgotten = network.take_tally()?.loss_sum.is_finite() && network.first_non_finite(1)?.is_none();
    let name = format!("{precision}: what thresholds hide is found");
    Ok(Check { name, error: f64::from(u8::from(!(shown && named && forgotten))), allowed: 0.0 })
}

/// More memory than there is must be refused with an error that says so.
fn too_large(device: &Device) -> Result<Check, CudaError> {
    let (_, total) = device.memory()?;
    let refused = matches!(DeviceBuffer::new(device, total + (1 << 30), "a test"), Err(CudaError::Memory { .. }));
    Ok(Check { name: "memory: too much is refused".into(), error: f64::from(u8::from(!refused)), allowed: 0.0 })
}

/// Batches of pictures of different sizes, made on the device and by the CPU's loader: random parts and windows, mirrored,
/// blanked and coloured. Both round alike, so nothing differs but the last rounding of the precision.
fn pictures(device: &Device, precision: Precision) -> Result<Check, EngineError> {
    let (_, normalize, config) = problem(precision)?;
    let (random, window, count) = (Stream::numbered(6), ftprop_data::Shape::new(10, 12, 3), 61u64);
    let side = |i: u64, least: usize, room: u64| least + random.below(i, room) as usize;
    let sizes: Vec<(usize, usize)> = (0..count).map(|i| (side(i, 10, 40), side(1000 + i, 12, 50))).collect();
    let total: usize = sizes.iter().map(|(height, width)| height * width * 3).sum();
    let bytes: Vec<u8> = (0..total as u64).map(|i| random.below(i, 256) as u8).collect();
    let labels = (0..count).map(|i| random.below((1 << 40) | i, 4) as u32).collect();
    let split = Split::from_pictures(&sizes, bytes, labels, window).map_err(CudaError::from)?;
    let (split, _) = split.hold_out(ftprop_data::HoldOut::Count(11), 1).map_err(CudaError::from)?;
    let jitter = Jitter { brightness: 0.4, contrast: 0.3, saturation: 0.5 };
    let part = Augment { area: Some([0.1, 1.0]), flip: true, jitter, ..Augment::default() };
    let cut = Augment { cutout: 3, alternate: true, ..Augment::PHOTOS };
    let (mut error, seed, epoch) = (0.0, 3, 2);
    for augment in [part, cut, Augment { jitter: Jitter::NONE, ..part }, Augment { jitter, ..cut }, Augment::default()]
    {
        let data = ResidentData::new(device, &split, &normalize, augment, true)?.ok_or(CudaError::NotBytes)?;
        let mut network = CudaNetwork::new(device, config.clone())?;
        let loader = LoaderConfig { augment, ..LoaderConfig::training(config.batch, seed, normalize.clone()) };
        let loader = Loader::new(&split, loader).map_err(CudaError::from)?;
        let mut batches = loader.epoch(epoch, 0);
        while let Some(batch) = batches.next_batch().map_err(CudaError::from)? {
            let made = network.gathered(&data, seed, epoch, batch.index)?;
            let far = |a: &f32, b: &f32| f64::from((a - b).abs());
            let largest = made.iter().zip(batch.images).map(|(a, b)| far(a, b)).fold(0.0, f64::max);
            error = if made.len() == batch.images.len() { largest.max(error) } else { f64::INFINITY };
        }
    }
    let apart = streamed_pictures(device, &split, &normalize, part, &config)?.max(streamed_pixels(
        device,
        &normalize,
        Augment { cutout: 3, area: None, ..part },
        &config,
    )?);
    let error = if apart == 0.0 { error } else { f64::INFINITY };
    let name = format!("{precision}: pictures of different sizes, parts, windows and colours");
    // Values reach to about 4, of which bf16 keeps eight bits.
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 1.6e-2 } else { 0.0 } })
}

/// How far a network that trained on pictures brought by the host is from one on pictures that live on the device.
fn streamed_pictures(
    device: &Device,
    split: &Split,
    normalize: &Normalize,
    augment: Augment,
    config: &NetworkConfig,
) -> Result<f64, EngineError> {
    let data = ResidentData::new(device, split, normalize, augment, true)?.ok_or(CudaError::NotBytes)?;
    let streamed = StreamedPictures::new(device, split, normalize, augment, true, config.batch)?;
    let mut streamed = streamed.ok_or(CudaError::NotBytes)?;
    let mut results = Vec::new();
    for way in 0..2 {
        let mut network = CudaNetwork::new(device, config.clone())?;
        network.initialise(2)?;
        let mut counted = Vec::new();
        for epoch in 0..3 {
            let steps = vec![(1.0, 0.5); data.examples().div_ceil(config.batch)];
            let first_step = epoch * steps.len() as u64;
            let span = StepSpan { seed: 3, epoch, first_batch: 0, first_step, steps, portion: None };
            let tally = match way {
                0 => {
                    network.train(&data, &span)?;
                    [network.take_tally()?, network.evaluate_data(&data)?]
                }
                _ => {
                    network.train_streamed(&mut streamed, &span)?;
                    [network.take_tally()?, network.evaluate_streamed(&mut streamed, Share::WHOLE, config.batch)?]
                }
            };
            counted.extend(tally.map(|t| t.loss_sum as f32));
        }
        counted.extend(network.values()?);
        results.push(counted);
    }
    Ok(largest_difference(&results))
}

/// The same for pictures that the host has cut to the input's size.
fn streamed_pixels(
    device: &Device,
    normalize: &Normalize,
    augment: Augment,
    config: &NetworkConfig,
) -> Result<f64, EngineError> {
    let (random, window, count) = (Stream::numbered(8), ftprop_data::Shape::new(10, 12, 3), 45);
    let bytes: Vec<u8> = (0..count * window.size()).map(|i| random.below(i as u64, 256) as u8).collect();
    let labels = (0..count).map(|i| random.below((1 << 40) | i as u64, 4) as u32).collect();
    let split = Split::from_pixels(window, bytes.clone(), labels).map_err(CudaError::from)?;
    let data = ResidentData::new(device, &split, normalize, augment, true)?.ok_or(CudaError::NotBytes)?;
    let (seed, epoch) = (3, 2);
    let loader_config = LoaderConfig { augment, ..LoaderConfig::training(config.batch, seed, normalize.clone()) };
    let loader = Loader::new(&split, loader_config).map_err(CudaError::from)?;
    let steps = vec![(1.0, 0.5); loader.batches_per_epoch()];
    let span = StepSpan { seed, epoch, first_batch: 0, first_step: 0, steps, portion: None };
    let mut results = Vec::new();
    for way in 0..2 {
        let mut network = CudaNetwork::new(device, config.clone())?;
        network.initialise(2)?;
        if way == 0 {
            network.train(&data, &span)?;
        } else {
            network.attach_pixels(StreamedPixels::new(device, window, normalize, augment, config.batch)?);
            network.begin_streaming(&span)?;
            let mut batches = loader.epoch(epoch, 0);
            while let Some(batch) = batches.next_batch().map_err(CudaError::from)? {
                let picture = |&number: &u32| &bytes[number as usize * window.size()..][..window.size()];
                let pixels: Vec<u8> = batch.numbers.iter().flat_map(picture).copied().collect();
                network.stream_pixels(&pixels, batch.labels, batch.numbers)?;
            }
        }
        let mut counted = vec![network.take_tally()?.loss_sum as f32];
        counted.extend(network.values()?);
        results.push(counted);
    }
    Ok(largest_difference(&results))
}

/// Trains on the same data from the loader, streamed, and resident: the values must end up equal.
fn same_batches(device: &Device, precision: Precision) -> Result<Check, EngineError> {
    let (split, normalize, config) = problem(precision)?;
    let (batch, seed, epoch) = (config.batch, 3, 2);
    let data = resident(device, &split, &normalize)?;
    let mut loader_config = LoaderConfig::training(batch, seed, normalize.clone());
    loader_config.augment = AUGMENT;
    let loader = Loader::new(&split, loader_config).map_err(CudaError::from)?;
    let steps = loader.batches_per_epoch();
    let factors: Vec<f64> = (0..steps).map(|i| 1.0 - 0.05 * i as f64).collect();
    let span = StepSpan {
        seed,
        epoch,
        first_batch: 0,
        first_step: 40,
        steps: factors.iter().map(|&f| (f, 0.3)).collect(),
        portion: None,
    };

    let mut results = Vec::new();
    for way in 0..3 {
        let mut network = CudaNetwork::new(device, config.clone())?;
        network.initialise(2)?;
        if way == 0 {
            network.load(&[batch, data.examples() % batch], &[batch])?;
            network.train(&data, &span)?;
        } else {
            let mut batches = loader.epoch(epoch, 0);
            if way == 1 {
                network.begin_streaming(&span)?;
            }
            let mut number = 0;
            while let Some(b) = batches.next_batch().map_err(CudaError::from)? {
                if way == 1 {
                    network.stream_batch(b.images, b.labels)?;
                } else {
                    network.learn(b.images, b.labels, &Step { seed, number: 40 + number as u64, progress: 0.3 })?;
                    network.optimize(factors[number])?;
                }
                number += 1;
            }
        }
        results.push(network.values()?);
    }
    let name = format!("{precision}: resident, streamed and loaded batches");
    Ok(Check { name, error: largest_difference(&results), allowed: 0.0 })
}
