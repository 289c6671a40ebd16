//! `ftprop bench infer MODEL`: a packed model, or the float network of a run.

use super::parts::PartTimes;
use super::{Config, Report, peak_rss_mb};
use crate::cli::eval::WhichArg;
use crate::cli::{check_choice, device, load};
use crate::error::Error;
use clap::Args;
use ftprop_export::zoo;
use ftprop_runtime::{Activation, Element, Engine, EngineOptions, Images, Op, Stage};
use ftprop_tensor::random::Stream;
use ftprop_train::files::{self, is_packed};
use ftprop_train::model::Model;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(super) struct Inference {
    /// A packed model (.ftp), one of the zoo (zoo:NAME), a run folder or a checkpoint file; a preset with random weights if
    /// none is given
    #[arg(conflicts_with_all = ["network", "activation", "layer_loss", "target_rule"])]
    model: Option<PathBuf>,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    #[command(flatten)]
    config: Config,
}

/// Steps before those that count.
const WARM_UP: usize = 3;

impl Inference {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let Some(model) = &self.model else {
            return self.config.run(None);
        };
        let model = &zoo::resolve(model)?;
        let started = Instant::now();
        check_choice(model, self.checkpoint.into())?;
        let report = if is_packed(model) { self.packed(model, started)? } else { self.float(model, started)? };
        self.config.show(&report)
    }

    /// A packed model, on random pictures or rows.
    fn packed(&self, path: &Path, started: Instant) -> Result<Report, Error> {
        let refused =
            |e: ftprop_runtime::Error| ftprop_export::Error::NotAModel { path: path.to_path_buf(), why: e.to_string() };
        let file = files::read(path)?;
        let model = ftprop_runtime::Model::parse(&file).map_err(refused)?;
        let threads = device(&self.config.device, self.config.threads)?.threads();
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let mut engine = Engine::new(&model, &options).map_err(refused)?;
        let batch = self.config.batch;
        let stream = Stream::numbered(1);
        let values = batch.saturating_mul(engine.image_len());
        let (mut bytes, mut reals) = (Vec::new(), Vec::new());
        let room = match model.preprocessing.element {
            Element::Byte => bytes.try_reserve_exact(values),
            Element::Real => reals.try_reserve_exact(values),
        };
        room.map_err(|_| Error::Usage(format!("--batch {batch}: there is not memory enough for so many; give fewer")))?;
        match model.preprocessing.element {
            Element::Byte => bytes.extend((0..values).map(|i| stream.below(i as u64, 256) as u8)),
            Element::Real => reals.extend((0..values).map(|i| 3.4 * stream.uniform(i as u64) - 1.7)),
        }
        let mut logits = vec![0.0; batch * engine.classes()];
        let timed = self.config.timed(started, |_| {
            match model.preprocessing.element {
                Element::Byte => engine.classify(&bytes, &mut logits)?,
                Element::Real => engine.classify_reals(&reals, &mut logits)?,
            }
            Ok(())
        })?;
        let mut breakdown = Vec::new();
        if self.config.breakdown {
            let kinds = model.ops.iter().enumerate().map(|(number, op)| format!("{number} {}", name(op)));
            let (kinds, mut parts) = (kinds.collect::<Vec<_>>(), PartTimes::default());
            for _ in 0..self.config.steps {
                let mut times = vec![Duration::ZERO; model.ops.len()];
                let some = options.images_together * engine.image_len();
                let pieces = bytes.chunks(some).map(Images::Bytes).chain(reals.chunks(some).map(Images::Reals));
                for images in pieces {
                    let operations = engine.time_operations(images)?;
                    times.iter_mut().zip(operations).for_each(|(sum, time)| *sum += time);
                }
                kinds.iter().zip(times).for_each(|(kind, time)| parts.add(kind, time.as_secs_f64()));
            }
            breakdown = parts.medians();
        }
        let hard = model.ops.iter().find_map(hard_activation);
        let activation = hard.map_or("none".into(), |hard| match hard {
            Activation::QRelu(k) => format!("qrelu:{k}"),
            other => format!("{other:?}").to_lowercase(),
        });
        Ok(Report {
            what: "infer",
            network: model.name.clone(),
            activation,
            batch,
            threads,
            isa: engine.kernels().name().into(),
            rows: model.preprocessing.element == Element::Real,
            breakdown,
            ..timed.report(model.macs()?, batch)
        })
    }

    /// A run's network in float, on random normalised pictures.
    fn float(&self, path: &Path, started: Instant) -> Result<Report, Error> {
        let cpu = device(&self.config.device, self.config.threads)?;
        let batch = self.config.batch;
        let Model { mut network, recipe, info, .. } = load(path, self.checkpoint.into(), cpu.clone(), batch)?;
        let stream = Stream::numbered(1);
        let images: Vec<f32> =
            (0..batch * network.graph().input().len()).map(|i| 3.4 * stream.uniform(i as u64) - 1.7).collect();
        let mut parts = PartTimes::default();
        let timed = cpu.enter(|| {
            self.config.timed(started, |counts| {
                if counts && self.config.breakdown {
                    network.measure();
                }
                network.infer(&images);
                let entries = network.breakdown().map(|breakdown| breakdown.entries());
                entries.iter().flatten().for_each(|e| parts.add(&format!("{} forward", e.kind), e.time.as_secs_f64()));
                Ok(())
            })
        })?;
        let breakdown = parts.longest_first();
        let macs: usize = network.graph().walk().iter().map(|node| node.multiply_adds()).sum();
        Ok(Report {
            what: "infer",
            network: recipe.name,
            activation: recipe.activation.to_string(),
            batch,
            threads: cpu.threads(),
            isa: format!("{:?}", cpu.isa()),
            rows: info.preprocess().is_none(),
            breakdown,
            ..timed.report(macs as u64, batch)
        })
    }
}

/// What was measured, whatever the network.
struct Timed {
    steps: usize,
    median: f64,
    first_step_s: f64,
}

impl Timed {
    /// The part of a report that timing decides.
    fn report(&self, macs: u64, batch: usize) -> Report {
        Report {
            device: "cpu".into(),
            steps: self.steps,
            ms_per_step: self.median * 1e3,
            images_per_s: batch as f64 / self.median,
            gflops: 2.0 * macs as f64 * batch as f64 / self.median / 1e9,
            peak_rss_mb: peak_rss_mb(),
            first_step_s: self.first_step_s,
            ..Report::default()
        }
    }
}

impl Config {
    /// Repeats a step and keeps the time of all but the first ones; the step is told whether it counts.
    fn timed(&self, started: Instant, mut step: impl FnMut(bool) -> Result<(), Error>) -> Result<Timed, Error> {
        let mut times = Vec::with_capacity(self.steps);
        let mut first_step_s = 0.0;
        for number in 0..self.steps + WARM_UP {
            let begin = Instant::now();
            step(number >= WARM_UP)?;
            match number {
                0 => first_step_s = started.elapsed().as_secs_f64(),
                1..WARM_UP => (),
                _ => times.push(begin.elapsed().as_secs_f64()),
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Timed { steps: self.steps, median: times[times.len() / 2], first_step_s })
    }
}

/// The hard activation that an operation ends in.
fn hard_activation(op: &Op<'_>) -> Option<Activation> {
    let activation = match op {
        Op::Conv { conv, .. } => match &conv.stage {
            Stage::Thresholds { activation, .. } => Some(*activation),
            Stage::Affine(affine) => affine.activation,
        },
        Op::Map { affine, .. } => affine.activation,
        Op::Add { activation, .. } => *activation,
        Op::MaxPool { .. } | Op::AveragePool { .. } => None,
    };
    activation.filter(|activation| activation.steps().is_some())
}

/// An operation in words.
pub(in crate::cli) fn name(op: &Op<'_>) -> String {
    match op {
        Op::Conv { conv, .. } => {
            format!("conv {}×{} to {}", conv.window.kernel[0], conv.window.kernel[1], conv.outputs)
        }
        Op::MaxPool { window, .. } => format!("max-pool {}×{}", window.kernel[0], window.kernel[1]),
        Op::AveragePool { window, .. } => format!("avg-pool {}×{}", window.kernel[0], window.kernel[1]),
        Op::Map { .. } => "map".into(),
        Op::Add { .. } => "add".into(),
    }
}
