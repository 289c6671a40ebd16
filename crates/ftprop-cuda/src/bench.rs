//! How long a training step takes.

use crate::startup::{self, StartupPart};
use crate::work::Work;
use crate::{Communicator, CudaError, CudaNetwork, Device, NetworkConfig, ResidentData, nccl_id};
use ftprop_data::{Augment, Normalize, Split};
use ftprop_nn::engine::{EngineError, StepSpan};
use ftprop_tensor::random::Stream;
use std::time::Instant;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The median over several rounds of whole steps, the batch's assembly included; of several networks at once, the
    /// time in which all take a step, divided by how many they are.
    pub ms_per_step: f64,
    /// Examples of all networks together.
    pub images_per_second: f64,
    /// From the start of compiling to the end of the first step.
    pub first_step_seconds: f64,
    /// Where that time went.
    pub startup: Vec<StartupPart>,
    /// Steps that were timed.
    pub steps: usize,
}

/// A piece of a training step.
#[derive(Clone, Debug)]
pub struct TimedPiece {
    /// The pass, how it is computed, and whether forward, back, or for its gradients.
    pub name: String,
    /// When it runs alone.
    pub microseconds: f64,
    /// What it has to move and to multiply; nothing where that is not known.
    pub work: Work,
}

/// The pieces of a training step, in order.
pub fn profile(device: &Device, config: NetworkConfig) -> Result<Vec<TimedPiece>, EngineError> {
    let n = config.batch;
    let (len, classes) = (config.graph.input().len(), config.graph.classes());
    let random = Stream::numbered(2);
    let images: Vec<f32> = (0..n * len).map(|i| 3.4 * random.uniform(i as u64) - 1.7).collect();
    let labels: Vec<u32> = (0..n).map(|i| random.below((1 << 40) + i as u64, classes as u64) as u32).collect();
    let mut network = CudaNetwork::new(device, config)?;
    network.initialise(1)?;
    // A real step first, so that every buffer holds real numbers.
    network.learn(&images, &labels, &ftprop_nn::Step { seed: 1, number: 0, progress: 0.5 })?;
    Ok(time_pieces(&network, n)?)
}

/// Each piece of a step, captured many times over and replayed.
fn time_pieces(network: &CudaNetwork, n: usize) -> Result<Vec<TimedPiece>, CudaError> {
    const TIMES: usize = 20;
    let (executor, stream) = (network.executor(), network.executor().stream());
    let mut times = Vec::new();
    executor.visit_pieces(n, &mut |name, work, piece| {
        let graph = stream.capture(|| (0..TIMES).try_for_each(|_| piece()))?;
        let mut least = f32::INFINITY;
        for _ in 0..4 {
            least = least.min(stream.time(|| graph.launch(stream))?);
        }
        let microseconds = f64::from(least) * 1e3 / TIMES as f64;
        times.push(TimedPiece { name, microseconds, work });
        Ok(())
    })?;
    Ok(times)
}

/// Times training steps of so many networks at once, on made-up pictures that live on the device. With `exchange` the
/// first has its gradients go through NCCL, as one rank of one: what that costs before anything is sent.
pub fn bench(device: &Device, config: NetworkConfig, at_once: usize, exchange: bool) -> Result<Bench, EngineError> {
    const ROUNDS: usize = 7;
    let (shape, classes) = (config.graph.input(), config.graph.classes());
    let batch = config.batch;
    // Large pictures take long steps, so fewer of them tell as much.
    let steps = if shape.len() * batch > 8 << 20 { 10 } else { 30 };
    let examples = batch * steps;
    let random = Stream::numbered(1);
    let bytes: Vec<u8> = (0..examples * shape.len()).map(|i| random.u64(i as u64 / 8).to_le_bytes()[i % 8]).collect();
    let labels = (0..examples).map(|i| random.below((1 << 40) + i as u64, classes as u64) as u32).collect();
    let picture = ftprop_data::Shape::new(shape.height, shape.width, shape.channels);
    let split = Split::from_pixels(picture, bytes, labels).map_err(CudaError::from)?;
    let normalize = Normalize::pixels(&vec![0.5; shape.channels], &vec![0.25; shape.channels]);
    let augment = Augment::CIFAR;
    let data = ResidentData::new(device, &split, &normalize, augment, true)?.ok_or(CudaError::NotBytes)?;

    startup::take();
    let start = Instant::now();
    let mut network = startup::during("the network in all", || CudaNetwork::new(device, config))?;
    network.initialise(1)?;
    if exchange {
        network.set_communicator(Communicator::new(device, &nccl_id()?, 0, 1)?)?;
    }
    let span = |epoch: u64, steps: usize| StepSpan {
        seed: 1,
        epoch,
        first_batch: 0,
        first_step: epoch * steps as u64,
        steps: vec![(1.0, 0.5); steps],
        portion: None,
    };
    network.train(&data, &span(0, 1))?;
    network.wait()?;
    let (first_step_seconds, startup) = (start.elapsed().as_secs_f64(), startup::take());
    let mut networks = vec![network];
    for seed in 2..=at_once as u64 {
        let mut another = CudaNetwork::new(device, networks[0].config().clone())?;
        another.initialise(seed)?;
        networks.push(another);
    }
    let mut times = Vec::new();
    // The first round captures what the others replay.
    for round in 0..=ROUNDS {
        let start = Instant::now();
        for network in &mut networks {
            network.train(&data, &span(round as u64, steps))?;
        }
        for network in &networks {
            network.wait()?;
        }
        times.push(start.elapsed().as_secs_f64() / (steps * at_once) as f64);
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    let median = times[ROUNDS / 2];
    Ok(Bench {
        ms_per_step: median * 1e3,
        images_per_second: batch as f64 / median,
        first_step_seconds,
        startup,
        steps: steps * ROUNDS,
    })
}
