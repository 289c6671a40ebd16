//! Training steps on a GPU.

use super::{Config, Part, PartWork, Report, StartupRow, multiply_adds, peak_rss_mb};
use crate::error::Error;
use ftprop_cuda::{NetworkConfig, Precision, Roof, StartupPart, TimedPiece, Work};
use ftprop_train::device::Gpu;
use std::time::Instant;

/// Times a network's whole steps, replayed as the trainer replays them, on made-up pictures that live on the GPU.
pub(super) fn report(
    gpu: &Gpu,
    bench: &Config,
    (at_once, exchange): (usize, bool),
    network: NetworkConfig,
    started: Instant,
) -> Result<Report, Error> {
    let opened = started.elapsed().as_secs_f64();
    let batch = network.batch;
    let b = ftprop_cuda::bench(&gpu.device, network.clone(), at_once, exchange)?;
    let (mut breakdown, mut startup, mut limit) = (Vec::new(), Vec::new(), None);
    if bench.breakdown {
        let row = |part: StartupPart| StartupRow { what: part.name, times: part.count, seconds: part.seconds };
        startup.extend(b.startup.into_iter().map(row));
        let pieces = ftprop_cuda::profile(&gpu.device, network.clone())?;
        let roof = gpu.device.roof(network.precision)?;
        limit = roof.map(|roof| in_words(&roof, network.precision));
        breakdown.extend(pieces.into_iter().map(|piece| part(piece, roof)));
    }
    Ok(Report {
        what: "train",
        network: bench.network.clone(),
        activation: bench.activation.to_string(),
        batch,
        device: format!("cuda:{}", gpu.device.ordinal()),
        isa: network.precision.to_string(),
        steps: b.steps,
        ms_per_step: b.ms_per_step,
        images_per_s: b.images_per_second,
        gflops: 2.0 * (multiply_adds(&network.graph, true) * batch) as f64 / b.ms_per_step / 1e6,
        peak_rss_mb: peak_rss_mb(),
        first_step_s: opened + b.first_step_seconds,
        breakdown,
        limit,
        startup,
        ..Report::default()
    })
}

/// A piece with what it does beside what the GPU could do meanwhile.
fn part(piece: TimedPiece, roof: Option<Roof>) -> Part {
    let TimedPiece { name, microseconds, work } = piece;
    let share_of_limit = roof.map(|roof| roof.seconds(work) * 1e6 / microseconds);
    let known = work != Work::default();
    let work = known.then_some(PartWork { bytes: work.bytes, operations: work.operations, share_of_limit });
    Part { kind: name, ms_per_step: microseconds / 1e3, work }
}

/// What a GPU can do.
fn in_words(roof: &Roof, precision: Precision) -> String {
    let multiplying = roof.operations.map(|all| format!(", {:.0} TFLOP/s in {precision}", all / 1e12));
    format!("{:.2} TB/s{}", roof.bytes / 1e12, multiplying.unwrap_or_default())
}
