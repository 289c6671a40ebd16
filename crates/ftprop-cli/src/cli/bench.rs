//! `ftprop bench`

mod gpu;
pub(super) mod infer;
mod parts;
mod ranks;

use super::ranks::RankArgs;
use super::{MOST_BATCH, counts, device, say, say_json};
use crate::error::Error;
use crate::progress::counted;
use clap::{Args, Subcommand};
use ftprop_cuda::{NetworkConfig, Precision, Tuning};
use ftprop_nn::optimizer::Setting;
use ftprop_nn::target::TargetRule;
use ftprop_nn::{
    Activation, CpuEngine, Defaults, Engine, Graph, LayerLoss, Learning, OptimizerSpec, Shape, Step, presets,
};
use ftprop_tensor::Cpu;
use ftprop_tensor::random::Stream;
use ftprop_train::device::Place;
use parts::PartTimes;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Measure the speed of training or of inference
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop bench train --network convnet8 --activation sign --batch 64 --breakdown
  ftprop bench train --network resnet18 --batch 256 --device cuda:0 --precision bf16
  ftprop bench train --network convnet8 --device cuda:0 --at-once 12
  ftprop bench train --network resnet18 --batch 256 --precision bf16 --devices all
  ftprop bench train --network convnet8 --batch 64 --devices cpu,cpu
  ftprop bench infer --network convnet4 --batch 1 --threads 1 --json
  ftprop bench infer c8.ftp --batch 1 --threads 1 --steps 1000
  ftprop bench infer runs/c8 --batch 64")]
pub(super) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Whole training steps: forward, loss, targets, backward, optimizer; no data loading
    Train(Training),
    /// The forward pass: of a packed model, of a run's float network, or of a preset
    Infer(infer::Inference),
}

#[derive(Args)]
struct Training {
    #[command(flatten)]
    config: Config,
    #[command(flatten)]
    gpu: GpuArgs,
    #[command(flatten)]
    ranks: RankArgs,
}

/// What only a GPU can do.
#[derive(Args)]
struct GpuArgs {
    /// On a GPU: f32, tf32 or bf16
    #[arg(long, default_value_t = Precision::default())]
    precision: Precision,
    /// On a GPU: networks that train at once, each on its own stream; the time is that of a step of one
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// On a GPU: choose products by timing each alone, or beside others (shared), or not at all (fixed), or leave them
    /// to cuDNN and cuBLASLt (libraries); alone, unless several networks train at once
    #[arg(long)]
    tuning: Option<Tuning>,
    /// On a GPU: with gradients that go through NCCL, as a single rank: what that costs before anything is sent
    #[arg(long)]
    nccl: bool,
}

#[derive(Args)]
struct Config {
    /// A preset: convnet4, convnet8, fast, vgg_small, resnet20, bireal18, alexnet, resnet18
    #[arg(long, default_value = "convnet4")]
    network: String,
    #[arg(long, default_value = "sign")]
    activation: Activation,
    #[arg(long, default_value = "soft_hinge")]
    layer_loss: LayerLoss,
    /// How targets are set
    #[arg(long, default_value = "gradient_sign")]
    target_rule: TargetRule,
    #[arg(long, default_value_t = 64, value_parser = counts(MOST_BATCH))]
    batch: usize,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Steps to measure, after three to warm up
    #[arg(long, default_value_t = 20, value_parser = counts(1_000_000))]
    steps: usize,
    /// For training: auto (a GPU if there is one), cpu, or cuda:0 and so on; inference is measured on the CPU
    #[arg(long, default_value = "auto")]
    device: String,
    /// Also the time of each kind of layer; of a packed model, of each operation on one thread
    #[arg(long)]
    breakdown: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Report {
    what: &'static str,
    network: String,
    activation: String,
    batch: usize,
    device: String,
    /// Of the CPU.
    threads: usize,
    /// The CPU's kernels, or a GPU's precision.
    isa: String,
    steps: usize,
    /// The median.
    ms_per_step: f64,
    images_per_s: f64,
    /// Whether these are the rows of a table.
    #[serde(skip)]
    rows: bool,
    gflops: f64,
    peak_rss_mb: f64,
    /// From the start of the program to the end of the first step.
    first_step_s: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    breakdown: Vec<Part>,
    /// What the GPU can do in a second.
    #[serde(skip)]
    limit: Option<String>,
    /// Where the time before the first step went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    startup: Vec<StartupRow>,
}

#[derive(Serialize)]
struct StartupRow {
    what: &'static str,
    times: usize,
    seconds: f64,
}

#[derive(Serialize)]
struct Part {
    kind: String,
    ms_per_step: f64,
    /// What a GPU has to move and to multiply for it, where that is known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    work: Option<PartWork>,
}

#[derive(Serialize)]
struct PartWork {
    bytes: usize,
    operations: usize,
    /// The least time that the GPU could do it in, at its highest clocks, as a share of what it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_limit: Option<f64>,
}

impl Bench {
    /// Whether several networks are to train at the same time.
    pub(super) fn trains_several(&self) -> bool {
        matches!(&self.what, What::Train(training) if training.gpu.at_once > 1)
    }

    pub(super) fn run(self) -> Result<ExitCode, Error> {
        match self.what {
            What::Train(Training { config, gpu, ranks }) if ranks.names_devices() => {
                if gpu.at_once > 1 || gpu.nccl || config.breakdown {
                    return Err(Error::Usage("--at-once, --nccl and --breakdown do not go with --devices".into()));
                }
                ranks::run(&config, gpu.precision, &ranks)
            }
            What::Train(training) => training.config.run(Some(&training.gpu)),
            What::Infer(inference) => inference.run(),
        }
    }
}

impl Config {
    /// Measures a preset: its training steps if there are arguments for them, else its forward pass.
    fn run(&self, gpu_args: Option<&GpuArgs>) -> Result<ExitCode, Error> {
        let started = Instant::now();
        let training = gpu_args.is_some();
        let at_once = gpu_args.map_or(1, |gpu| gpu.at_once);
        if at_once == 0 {
            return Err(Error::Usage("--at-once must be at least 1".into()));
        }
        let place = match training {
            true => Place::open(self.device.parse()?, self.threads)?,
            false => Place { cpu: device(&self.device, self.threads)?, gpu: None, note: None, team: None },
        };
        let (input, classes) = self.input()?;
        let layers = presets::layers(&self.network, input, &[])?;
        let defaults = Defaults { target_rule: self.target_rule, ..Defaults::new(self.activation, self.layer_loss) };
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, classes)?);
        // As the peer's bench has it.
        let adam = OptimizerSpec::adam(2.5e-4)?.with("weight_decay", Setting::Number(5e-4))?;
        let learning = Learning::new(&graph, &adam)?;
        if let (Some(gpu), Some(args)) = (&place.gpu, gpu_args) {
            let tuning = args.tuning.unwrap_or(if at_once > 1 { Tuning::Shared } else { Tuning::Alone });
            let (batch, precision) = (self.batch, args.precision);
            let network = NetworkConfig { graph, learning, batch, precision, tuning };
            return self.show(&gpu::report(gpu, self, (at_once, args.nccl), network, started)?);
        }
        if gpu_args.is_some_and(|args| args.nccl) {
            return Err(Error::Usage("--nccl is for a GPU".into()));
        }
        if at_once > 1 {
            return Err(Error::Usage("--at-once is for a GPU; on the CPU one network uses all cores".into()));
        }
        let mut engine = CpuEngine::new(place.cpu.clone(), graph, learning, self.batch)?;
        engine.initialise(0)?;
        self.show(&self.on_cpu(&place.cpu, &mut engine, training, started)?)
    }

    /// Times whole steps, or forward passes, on the CPU.
    fn on_cpu(&self, cpu: &Cpu, engine: &mut CpuEngine, training: bool, started: Instant) -> Result<Report, Error> {
        let graph = engine.graph().clone();
        let stream = Stream::numbered(1);
        let (len, classes) = (self.batch * graph.input().len(), graph.classes() as u64);
        let images: Vec<f32> = (0..len).map(|i| 3.4 * stream.uniform(i as u64) - 1.7).collect();
        let labels: Vec<u32> = (0..self.batch).map(|i| stream.below(i as u64, classes) as u32).collect();
        let mut parts = PartTimes::default();
        let mut optimizer_times = Vec::new();
        let mut times = Vec::with_capacity(self.steps);
        let mut first_step_s = 0.0;
        cpu.enter(|| {
            for number in 0..self.steps as u64 + 3 {
                if number >= 3 && self.breakdown {
                    engine.cpu_network_mut().measure();
                }
                let step = Instant::now();
                if training {
                    engine.learn(&images, &labels, &Step { seed: 0, number, progress: 0.0 })?;
                    let before = Instant::now();
                    engine.optimize(1.0)?;
                    optimizer_times.push(before.elapsed().as_secs_f64());
                } else {
                    engine.infer(&images)?;
                }
                if number == 0 {
                    first_step_s = started.elapsed().as_secs_f64();
                }
                if number >= 3 {
                    times.push(step.elapsed().as_secs_f64());
                    for e in engine.cpu_network().breakdown().iter().flat_map(|breakdown| breakdown.entries()) {
                        let way = if e.backward { "backward" } else { "forward" };
                        parts.add(&format!("{} {way}", e.kind), e.time.as_secs_f64());
                    }
                }
            }
            Ok::<_, Error>(())
        })?;
        times.sort_by(f64::total_cmp);
        let seconds = times[times.len() / 2];
        let mut breakdown = parts.longest_first();
        if self.breakdown && training {
            let mut optimizer = PartTimes::default();
            optimizer_times.iter().skip(3).for_each(|&time| optimizer.add("optimizer", time));
            breakdown.extend(optimizer.medians());
        }
        Ok(Report {
            what: if training { "train" } else { "infer" },
            network: self.network.clone(),
            activation: self.activation.to_string(),
            batch: self.batch,
            device: "cpu".into(),
            threads: cpu.threads(),
            isa: format!("{:?}", cpu.isa()),
            steps: self.steps,
            ms_per_step: seconds * 1e3,
            rows: false,
            images_per_s: self.batch as f64 / seconds,
            gflops: 2.0 * (multiply_adds(&graph, training) * self.batch) as f64 / seconds / 1e9,
            peak_rss_mb: peak_rss_mb(),
            first_step_s,
            breakdown,
            limit: None,
            startup: Vec::new(),
        })
    }

    /// What the network sees, and how many classes it knows.
    fn input(&self) -> Result<(Shape, usize), Error> {
        let (side, classes) = match self.network.as_str() {
            "convnet4" | "convnet8" | "fast" | "vgg_small" | "resnet20" | "bireal18" => (32, 10),
            "alexnet" | "resnet18" => (224, 1000),
            other => {
                return Err(Error::Usage(format!(
                    "--network {other}: known are convnet4, convnet8, fast, vgg_small, resnet20, bireal18, alexnet and \
                     resnet18"
                )));
            }
        };
        Ok((Shape { height: side, width: side, channels: 3 }, classes))
    }

    fn show(&self, report: &Report) -> Result<ExitCode, Error> {
        if self.json {
            say_json(report)?;
        } else {
            print(report)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Of one example: backward is twice forward, but the first layer's input needs no gradient.
fn multiply_adds(graph: &Graph, training: bool) -> usize {
    let each: Vec<usize> = graph.walk().iter().map(|node| node.multiply_adds()).collect();
    let forward: usize = each.iter().sum();
    let first = each.into_iter().find(|&m| m > 0).unwrap_or(0);
    if training { 3 * forward - first } else { forward }
}

/// The most memory this process has had, in MB; 0 where the system does not say.
fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok()).map_or(0.0, |kb| kb / 1024.0)
}

/// What a piece moved and multiplied in a second, and how near that is to what can be.
fn rates(work: &PartWork, ms: f64) -> String {
    let a_second = |count: usize| count as f64 / ms / 1e9;
    let moved = format!("  {:>5.2} TB/s", a_second(work.bytes));
    let multiplied = match work.operations {
        0 => " ".repeat(15),
        operations => format!("  {:>5.0} TFLOP/s", a_second(operations)),
    };
    let share = work.share_of_limit.map_or(String::new(), |share| format!("  {:>3.0} % of the limit", 100.0 * share));
    format!("{moved}{multiplied}{share}")
}

fn print(r: &Report) -> Result<(), Error> {
    say(&format!(
        "{} {} {} batch {}, {} ({}): {:.prec$} ms a step, {:.0} {}/s, {:.0} GFLOP/s, peak memory {:.0} MB, first step after {:.2} s",
        r.what,
        r.network,
        r.activation,
        r.batch,
        if r.device.starts_with("cuda") { r.device.clone() } else { counted(r.threads as u64, "thread") },
        r.isa,
        r.ms_per_step,
        r.images_per_s,
        if r.rows { "rows" } else { "images" },
        r.gflops,
        r.peak_rss_mb,
        r.first_step_s,
        prec = match r.ms_per_step {
            ..0.1 => 5,
            ..10.0 => 3,
            _ => 2,
        },
    ))?;
    // Timed one by one, the parts of a step may take longer than the step.
    let whole = r.breakdown.iter().map(|part| part.ms_per_step).sum::<f64>().max(r.ms_per_step);
    let width = r.breakdown.iter().map(|part| part.kind.chars().count()).max().unwrap_or(0);
    let decimals = if whole < 10.0 { 4 } else { 2 };
    for part in &r.breakdown {
        let (kind, ms) = (&part.kind, part.ms_per_step);
        let work = part.work.as_ref().map(|work| rates(work, ms)).unwrap_or_default();
        say(&format!("  {kind:<width$} {ms:>8.decimals$} ms  {:>5.1} %{work}", 100.0 * ms / whole))?;
    }
    if let Some(limit) = &r.limit {
        say(&format!("the GPU's limits, which shares are of: {limit}"))?;
    }
    if !r.startup.is_empty() {
        say("before the first step (parts may run side by side):")?;
    }
    for row in &r.startup {
        say(&format!("  {:<28} {:>6} times {:>8.3} s", row.what, row.times, row.seconds))?;
    }
    Ok(())
}
