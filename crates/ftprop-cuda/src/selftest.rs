//! Does this GPU compute the right thing? Data that lives on the device, is streamed or comes from the CPU's
//! loader must train to the same bits, several networks at once to those of each alone, and what does not fit
//! must be refused. Then every kernel runs in small networks of odd shapes, in f32, beside the CPU's network on
//! the same numbers; and in tf32 and bf16 within what their rounding allows.

use crate::check::{Check, distance};
use crate::memory::DeviceBuffer;
use crate::product_checks::{engines, patches};
use crate::{CudaError, CudaNetwork, Device, NetworkConfig, Precision, ResidentData, StepSpan, Tuning};
use ftprop_data::{Augment, Loader, LoaderConfig, Normalize, Split};
use ftprop_nn::activation::Activation;
use ftprop_nn::spec::{Init, Kernel};
use ftprop_nn::target::QreluForm;
use ftprop_nn::{
    Criterion, Defaults, LayerLoss, LayerSpec, Network, Optimizer, OptimizerSpec, OutputLoss, Shape, Step,
};
use ftprop_tensor::Cpu;
use ftprop_tensor::random::Stream;
use std::sync::Arc;

/// Compares this GPU with the CPU and reports each check as it is done. An error means that the GPU could not
/// run at all.
pub fn selftest(device: &Device, report: &mut dyn FnMut(&Check)) -> Result<Vec<Check>, CudaError> {
    let mut checks: Vec<Check> = Vec::new();
    let mut add = |check: Check| {
        report(&check);
        checks.push(check);
    };
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        add(same_batches(device, precision)?);
    }
    add(side_by_side(device)?);
    add(whole_steps(device)?);
    for precision in [Precision::Tf32, Precision::Bf16] {
        for tuning in [Tuning::Alone, Tuning::Shared, Tuning::Libraries] {
            add(tuned(device, precision, tuning)?);
            add(tuned_training(device, precision, tuning)?);
        }
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        add(patches(device, precision)?);
        add(engines(device, precision)?);
    }
    add(too_large(device)?);
    for case in cases() {
        // Without weighting, the sign of a gradient that is nearly zero counts as much as any other.
        let allowed = if case.config.defaults.weighted { 2e-4 } else { 3e-2 };
        add(compare(device, &case, Precision::F32, allowed)?);
    }
    for case in cases().into_iter().filter(|c| c.soft) {
        add(compare(device, &case, Precision::Tf32, 1e-1)?);
        add(compare(device, &case, Precision::Bf16, 5e-1)?);
    }
    Ok(checks)
}

pub(crate) struct Case {
    name: String,
    pub(crate) config: NetworkConfig,
    n: usize,
    /// Without thresholds, so that rounding moves results a little and never a lot.
    soft: bool,
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

/// Networks that between them use every layer in every place, all geometries odd.
fn networks() -> Vec<(&'static str, Shape, Vec<LayerSpec>)> {
    let image = |height, width, channels| Shape { height, width, channels };
    let average = |kernel, stride| LayerSpec::AvgPool { kernel: Some(kernel), stride: Some(stride), pad: 1 };
    vec![
        ("fc", Shape::vector(37), vec![fc(Some(29)), act(), fc(Some(70)), norm(), act(), fc(None)]),
        (
            "conv, pool",
            image(13, 11, 3),
            vec![
                conv(8, [5, 3], 1, 2, 1, None),
                max_pool(2, 2, 0),
                act(),
                conv(20, [3, 3], 2, 1, 1, None),
                act(),
                fc(None),
            ],
        ),
        (
            "norm, overlapping pool, dropout",
            image(12, 15, 4),
            vec![
                conv(12, [3, 3], 1, 1, 1, None),
                norm(),
                max_pool(3, 2, 1),
                act(),
                LayerSpec::Dropout { p: 0.3 },
                conv(64, [2, 3], 1, 0, 1, Some(true)),
                norm(),
                act(),
                LayerSpec::ChannelDropout { p: 0.5 },
                average(3, 2),
                fc(None),
            ],
        ),
        (
            "groups, odd channels",
            image(9, 9, 6),
            vec![
                conv(9, [3, 3], 1, 1, 3, None),
                act(),
                conv(15, [1, 1], 1, 0, 3, None),
                norm(),
                act(),
                max_pool(3, 2, 0),
                fc(None),
            ],
        ),
        (
            "residual",
            image(8, 8, 8),
            vec![
                conv(16, [3, 3], 1, 1, 1, None),
                norm(),
                act(),
                LayerSpec::Residual {
                    main: vec![conv(16, [3, 3], 1, 1, 1, None), norm(), act(), conv(16, [3, 3], 1, 1, 1, None), norm()],
                    shortcut: vec![],
                },
                act(),
                LayerSpec::Residual {
                    main: vec![conv(24, [3, 3], 2, 1, 1, None), norm(), act(), conv(24, [3, 3], 1, 1, 1, None), norm()],
                    shortcut: vec![conv(24, [1, 1], 2, 0, 1, None), norm()],
                },
                act(),
                LayerSpec::Residual {
                    main: vec![norm(), act(), conv(24, [3, 3], 1, 1, 1, None)],
                    shortcut: vec![LayerSpec::Residual {
                        main: vec![conv(24, [1, 1], 1, 0, 1, None)],
                        shortcut: vec![],
                    }],
                },
                LayerSpec::AvgPool { kernel: None, stride: None, pad: 0 },
                fc(None),
            ],
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let adam = OptimizerSpec::Adam { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 5e-4 };
    let sgd = OptimizerSpec::Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 1e-4 };
    let momentum = OptimizerSpec::Sgd { lr: 0.1, momentum: 0.9, nesterov: false, weight_decay: 1e-4 };
    let nesterov = OptimizerSpec::Sgd { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-4 };
    let adamw = OptimizerSpec::Adamw { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let rms = OptimizerSpec::Rmsprop { lr: 1e-3, alpha: 0.99, momentum: 0.0, eps: 1e-6, weight_decay: 1e-4 };
    let rms_momentum = OptimizerSpec::Rmsprop { lr: 1e-3, alpha: 0.99, momentum: 0.9, eps: 1e-6, weight_decay: 1e-4 };
    let optimizers = [adam, sgd, momentum, nesterov, adamw, rms, rms_momentum];
    let mut cases = Vec::new();
    let mut add = |name: String, layers: &[LayerSpec], input: Shape, defaults: Defaults, loss: OutputLoss| {
        let number = cases.len();
        cases.push(Case {
            name,
            config: NetworkConfig {
                layers: layers.to_vec(),
                defaults,
                input,
                classes: 5 + number % 7,
                batch: 9,
                precision: Precision::F32,
                tuning: Tuning::Fixed,
                loss,
                label_smoothing: if loss == OutputLoss::CrossEntropy && number % 2 == 0 { 0.1 } else { 0.0 },
                optimizer: optimizers[number % optimizers.len()],
                clip: (number % 3 == 0).then_some(0.05),
            },
            n: if number % 2 == 0 { 9 } else { 7 },
            soft: !defaults.activation.is_hard(),
        });
    };
    let networks = networks();
    for (i, (name, input, layers)) in networks.iter().enumerate() {
        for activation in [Activation::Relu, Activation::SaturatedRelu, Activation::Sign] {
            let loss = OutputLoss::ALL[(i + activation.bits() as usize) % OutputLoss::ALL.len()];
            let defaults = Defaults::new(activation, LayerLoss::SoftHinge);
            add(format!("{name}, {activation}, {loss}"), layers, *input, defaults, loss);
        }
    }
    for (i, layer_loss) in LayerLoss::ALL.into_iter().enumerate() {
        let (name, input, layers) = &networks[i % networks.len()];
        for activation in [Activation::Sign, Activation::Step, Activation::Qrelu { k: 2 + i as u32 % 5 }] {
            let form = if i % 2 == 0 { QreluForm::PerStep } else { QreluForm::Single };
            let defaults = Defaults { qrelu_form: form, weighted: i % 3 != 1, ..Defaults::new(activation, layer_loss) };
            add(format!("{name}, {activation}, {layer_loss}"), layers, *input, defaults, OutputLoss::CrossEntropy);
        }
    }
    cases
}

/// Two steps on both devices from the same numbers.
fn compare(device: &Device, case: &Case, precision: Precision, allowed: f64) -> Result<Check, CudaError> {
    let config = NetworkConfig { precision, ..case.config.clone() };
    let cpu = Arc::new(Cpu::new(1)?);
    let mut reference = Network::new(cpu, &config.layers, config.defaults, config.input, config.classes, config.batch)?;
    reference.initialise(17);
    let mut optimizer = Optimizer::new(&config.optimizer, reference.values().len())?;
    let criterion = Criterion::new(config.loss, config.label_smoothing)?;
    let mut network = CudaNetwork::new(device, config.clone())?;
    network.initialise(17)?;
    let random = Stream::numbered(99);
    let images: Vec<f32> = (0..case.n * config.input.len()).map(|i| 3.4 * random.uniform(i as u64) - 1.7).collect();
    let labels: Vec<u32> =
        (0..case.n).map(|i| random.below((1 << 40) + i as u64, config.classes as u64) as u32).collect();
    let mut error = 0.0f64;
    for number in 0..2 {
        let step = Step { seed: 5, number, progress: 0.4 };
        let expected = reference.learn(&images, &labels, &criterion, &step);
        let got = network.learn(&images, &labels, &step)?;
        error = error.max((got.loss() - expected.loss()).abs() / expected.loss().abs().max(1e-6));
        error = error.max(distance(&network.grads()?, reference.grads()));
        error = error.max(distance(&network.stats()?, reference.stats()));
        optimizer.step(&mut reference, 0.5, config.clip);
        network.optimize(0.5)?;
        // Both go on from the CPU's numbers, so that one step's rounding does not grow in the next.
        let moved = distance(&network.values()?, reference.values());
        let (steps, moments) = optimizer.state();
        let moments: Vec<&[f32]> = moments.collect();
        let (got_steps, got_moments) = network.optimizer_state()?;
        error = error.max(if precision == Precision::F32 { moved } else { 0.0 });
        if precision == Precision::F32 {
            for (got, expected) in got_moments.iter().zip(&moments) {
                error = error.max(distance(got, expected));
            }
        }
        if got_steps != steps {
            error = f64::INFINITY;
        }
        network.set_values(reference.values())?;
        network.restore_optimizer(steps, &moments)?;
        network.set_stats(reference.stats())?;
    }
    let expected = reference.infer(&images).to_vec();
    error = error.max(distance(&network.infer(&images)?, &expected));
    Ok(Check { name: format!("{precision}: {}", case.name), error, allowed })
}

/// Pictures, labels and a small network for them.
fn problem(precision: Precision) -> Result<(Split, Normalize, NetworkConfig), CudaError> {
    let random = Stream::numbered(4);
    let count = 61;
    let shape = ftprop_data::Shape::new(10, 12, 3);
    let bytes = (0..count * shape.size()).map(|i| random.below(i as u64, 256) as u8).collect();
    let labels = (0..count).map(|i| random.below((1 << 40) | i as u64, 4) as u32).collect();
    let split = Split::from_pixels(shape, bytes, labels)?;
    let (split, _) = split.hold_out(ftprop_data::HoldOut::Count(11), 1)?;
    let normalize = Normalize::pixels(&[0.4, 0.5, 0.6], &[0.2, 0.25, 0.3]);
    let config = NetworkConfig {
        layers: vec![
            conv(8, [3, 3], 1, 1, 1, None),
            max_pool(2, 2, 0),
            act(),
            LayerSpec::Dropout { p: 0.2 },
            conv(12, [3, 3], 1, 1, 1, None),
            norm(),
            act(),
            fc(None),
        ],
        defaults: Defaults::new(Activation::Sign, LayerLoss::SoftHinge),
        input: Shape { height: 10, width: 12, channels: 3 },
        classes: 4,
        batch: 8,
        precision,
        tuning: Tuning::Fixed,
        loss: OutputLoss::CrossEntropy,
        label_smoothing: 0.0,
        optimizer: OptimizerSpec::adam(1e-3),
        clip: None,
    };
    Ok((split, normalize, config))
}

const AUGMENT: Augment = Augment { pad: 2, crop: true, flip: true };

fn resident(device: &Device, split: &Split, normalize: &Normalize) -> Result<ResidentData, CudaError> {
    ResidentData::new(device, split, normalize, AUGMENT, true)?.ok_or(CudaError::NotBytes)
}

/// How far results are from the first, 0 where all have its bits.
fn largest_difference(results: &[Vec<f32>]) -> f64 {
    let bits = |r: &[f32]| r.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let same = results.iter().all(|r| bits(r) == bits(&results[0]));
    let apart = results.iter().map(|r| distance(r, &results[0])).fold(0.0, f64::max);
    if same { 0.0 } else { apart.max(f64::MIN_POSITIVE) }
}

/// More networks at once than a GPU has queues, each on its own thread and stream, and one alone: all must end up equal
/// and have counted the same.
fn side_by_side(device: &Device) -> Result<Check, CudaError> {
    let (split, normalize, config) = problem(Precision::Tf32)?;
    let train = || {
        let data = resident(device, &split, &normalize)?;
        let mut network = CudaNetwork::new(device, config.clone())?;
        network.initialise(3)?;
        let mut counted = Vec::new();
        for epoch in 0..20 {
            let steps = vec![(1.0, 0.5); data.examples().div_ceil(config.batch)];
            let first_step = epoch * steps.len() as u64;
            network.train(&data, &StepSpan { seed: 1, epoch, first_batch: 0, first_step, steps })?;
            for tally in [network.take_tally()?, network.evaluate_data(&data)?] {
                counted.extend([tally.examples as f32, tally.top1 as f32, tally.loss_sum as f32]);
            }
        }
        counted.extend(network.values()?);
        Ok(counted)
    };
    let mut results = vec![train()?];
    let together: Vec<Result<Vec<f32>, CudaError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(train)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for result in together {
        results.push(result?);
    }
    Ok(Check { name: "tf32: sixteen networks at once".into(), error: largest_difference(&results), allowed: 0.0 })
}

/// Products that were chosen by timing, or are libraries', against those that were not.
fn tuned(device: &Device, precision: Precision, tuning: Tuning) -> Result<Check, CudaError> {
    let (_, _, config) = problem(precision)?;
    let input = Shape { height: 32, width: 32, channels: 3 };
    let layers = ftprop_nn::presets::layers("convnet4", input, &[])?;
    let defaults = Defaults::new(Activation::Relu, LayerLoss::SoftHinge);
    let config = NetworkConfig { layers, defaults, input, classes: 10, batch: 64, ..config };
    let random = Stream::numbered(5);
    let images: Vec<f32> = (0..config.batch * input.len()).map(|i| random.uniform(i as u64) - 0.5).collect();
    let labels: Vec<u32> = (0..config.batch).map(|i| random.below((1 << 40) | i as u64, 10) as u32).collect();
    let grads = |tuning| {
        let mut network = CudaNetwork::new(device, NetworkConfig { tuning, ..config.clone() })?;
        network.initialise(1)?;
        network.learn(&images, &labels, &Step { seed: 1, number: 0, progress: 0.0 })?;
        network.grads()
    };
    let error = distance(&grads(tuning)?, &grads(Tuning::Fixed)?);
    let name = format!("{precision}: products as chosen by tuning {tuning}");
    // Each product is the same to many digits, but a pool takes one or the other of two that are nearly equal.
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 1e-1 } else { 5e-2 } })
}

/// The same for whole steps as they are captured, in a network whose parameters begin at odd places, with a smaller
/// batch at the end.
fn tuned_training(device: &Device, precision: Precision, tuning: Tuning) -> Result<Check, CudaError> {
    let (split, normalize, config) = problem(precision)?;
    let data = resident(device, &split, &normalize)?;
    // Linear, and without Adam: either would make much of a small difference.
    let layers = vec![fc(Some(101)), fc(Some(50)), fc(Some(44)), fc(None)];
    let optimizer = OptimizerSpec::Sgd { lr: 0.05, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let config = NetworkConfig { layers, optimizer, ..config };
    let steps = vec![(1.0, 0.5); data.examples().div_ceil(config.batch)];
    let moved = |tuning| {
        let mut network = CudaNetwork::new(device, NetworkConfig { tuning, ..config.clone() })?;
        network.initialise(1)?;
        network.load(&[config.batch, data.examples() % config.batch], &[config.batch, 1])?;
        let before = network.values()?;
        network.train(&data, &StepSpan { seed: 1, epoch: 1, first_batch: 0, first_step: 0, steps: steps.clone() })?;
        let after = network.values()?;
        Ok::<_, CudaError>(after.iter().zip(&before).map(|(a, b)| a - b).collect::<Vec<f32>>())
    };
    let error = distance(&moved(tuning)?, &moved(Tuning::Fixed)?);
    let name = format!("{precision}: captured steps as chosen by tuning {tuning}");
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 2e-1 } else { 2e-2 } })
}

/// Steps as they are captured against their parts, one by one: the values must end up equal.
fn whole_steps(device: &Device) -> Result<Check, CudaError> {
    let (_, _, config) = problem(Precision::F32)?;
    let random = Stream::numbered(6);
    let mut error = 0.0f64;
    for (_, input, layers) in networks() {
        let config = NetworkConfig { layers, input, ..config.clone() };
        let images: Vec<f32> = (0..config.batch * input.len()).map(|i| random.uniform(i as u64) - 0.5).collect();
        let labels: Vec<u32> = (0..config.batch as u32).map(|i| i % 4).collect();
        let steps = vec![(1.0, 0.5); 5];
        let new = || {
            let mut network = CudaNetwork::new(device, config.clone())?;
            network.initialise(4)?;
            Ok::<_, CudaError>(network)
        };
        let (mut whole, mut parts) = (new()?, new()?);
        whole.begin_streaming(&StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 0, steps })?;
        for number in 0..5 {
            whole.stream_batch(&images, &labels)?;
            parts.learn(&images, &labels, &Step { seed: 1, number, progress: 0.5 })?;
            parts.optimize(1.0)?;
        }
        error = error.max(largest_difference(&[whole.values()?, parts.values()?]));
    }
    Ok(Check { name: "f32: whole steps of every network".into(), error, allowed: 0.0 })
}

/// More memory than there is must be refused with an error that says so.
fn too_large(device: &Device) -> Result<Check, CudaError> {
    let (_, total) = device.memory()?;
    let refused = matches!(DeviceBuffer::new(device, total + (1 << 30), "a test"), Err(CudaError::Memory { .. }));
    Ok(Check { name: "memory: too much is refused".into(), error: f64::from(u8::from(!refused)), allowed: 0.0 })
}

/// Trains on the same data from the loader, streamed, and resident: the values must end up equal.
fn same_batches(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    let (split, normalize, config) = problem(precision)?;
    let (batch, seed, epoch) = (config.batch, 3, 2);
    let data = resident(device, &split, &normalize)?;
    let mut loader_config = LoaderConfig::training(batch, seed, normalize.clone());
    loader_config.augment = AUGMENT;
    let loader = Loader::new(&split, loader_config)?;
    let steps = loader.batches_per_epoch();
    let factors: Vec<f64> = (0..steps).map(|i| 1.0 - 0.05 * i as f64).collect();
    let span =
        StepSpan { seed, epoch, first_batch: 0, first_step: 40, steps: factors.iter().map(|&f| (f, 0.3)).collect() };

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
            while let Some(b) = batches.next_batch()? {
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
