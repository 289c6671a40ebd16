//! Training with more and more ranks: how images a second grow with them.

use super::Config;
use crate::cli::ranks::{RankArgs, Seat};
use crate::cli::{say, say_json};
use crate::error::Error;
use ftprop_cuda::Precision;
use ftprop_data::{Dataset, Normalize, Split};
use ftprop_nn::OptimizerSpec;
use ftprop_tensor::random::Stream;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::recipe::{Recipe, input_shape};
use ftprop_train::team::claims;
use ftprop_train::trainer::Trainer;
use serde::Serialize;
use std::process::ExitCode;

/// Pictures that are made up take at most so many bytes; an epoch then has fewer steps, and there are more epochs.
const ROOM: usize = 128 << 20;

/// What so many ranks gave.
#[derive(Clone, Serialize)]
struct Row {
    ranks: usize,
    /// Of all ranks together.
    batch: usize,
    images_per_s: f64,
    images_per_s_of_a_rank: f64,
    /// Beside as many times what one rank gave.
    efficiency: f64,
    /// The share of time spent exchanging gradients and waiting for each other.
    exchanged: f64,
}

#[derive(Serialize)]
struct Report {
    what: &'static str,
    network: String,
    activation: String,
    device: String,
    /// A rank's.
    threads: usize,
    rows: Vec<Row>,
}

/// The table for one rank up to as many as devices are named; under a launcher, the one row for its ranks.
pub(super) fn run(bench: &Config, precision: Precision, ranks: &RankArgs) -> Result<ExitCode, Error> {
    let devices = ranks.devices()?;
    let threads = match bench.threads {
        0 => (std::thread::available_parallelism().map_or(1, usize::from) / devices.len()).max(1),
        given => given,
    };
    let mut report = Report {
        what: "train",
        network: bench.network.clone(),
        activation: bench.activation.to_string(),
        device: String::new(),
        threads,
        rows: Vec::new(),
    };
    if let Some(mut seat) = ranks.seat_of_a_launcher()? {
        let (row, device) = measure(bench, precision, threads, &mut seat)?;
        if seat.is_first() {
            (report.device, report.rows) = (device, vec![row]);
            show(bench, &report)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for count in 1..=devices.len() {
        let mut seat = ranks.start(&devices[..count])?;
        let (mut row, device) = measure(bench, precision, threads, &mut seat)?;
        let one = report.rows.first().map_or(row.images_per_s, |row| row.images_per_s);
        row.efficiency = row.images_per_s / (one * count as f64);
        report.device = device;
        report.rows.push(row);
    }
    show(bench, &report)?;
    Ok(ExitCode::SUCCESS)
}

/// What the ranks that meet at a seat give, and on which device.
fn measure(bench: &Config, precision: Precision, threads: usize, seat: &mut Seat) -> Result<(Row, String), Error> {
    let ranks = seat.size();
    let (recipe, dataset, first) = work(bench, precision, ranks)?;
    let (device, _) = seat.place(&recipe);
    let mut place = Place::open(device, threads)?;
    let recipe = recipe.checked()?;
    let graph = recipe.graph(input_shape(dataset.shape), dataset.classes.len())?;
    let kind = if place.gpu.is_some() { "cuda" } else { "cpu" };
    // A single rank exchanges nothing: what it gives is what the others are compared with.
    if ranks > 1 {
        place.team = Some(seat.join(claims(&recipe, &dataset, &graph, kind)?)?);
    }
    let mut trainer = Trainer::new(recipe, &dataset, &place)?;
    trainer.run(&mut ())?;
    let measured = &trainer.metrics()[first..];
    let median = |of: &dyn Fn(usize) -> f64| {
        let mut all: Vec<f64> = (0..measured.len()).map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let images_per_s = median(&|i| measured[i].images_per_s);
    let exchanged = median(&|i| measured[i].exchanged.unwrap_or(0.0));
    let images_per_s_of_a_rank = images_per_s / ranks as f64;
    let batch = ranks * bench.batch;
    Ok((Row { ranks, batch, images_per_s, images_per_s_of_a_rank, efficiency: 1.0, exchanged }, place.describe()))
}

/// A recipe and made-up pictures for it, and how many epochs are there to warm up.
fn work(bench: &Config, precision: Precision, ranks: usize) -> Result<(Recipe, Dataset, usize), Error> {
    let (input, classes) = bench.input()?;
    let batch = ranks * bench.batch;
    let per_epoch = bench.steps.min(ROOM / (batch * input.len())).max(2);
    let examples = per_epoch * batch;
    let random = Stream::numbered(1);
    let pixels: Vec<u8> = (0..examples * input.len()).map(|i| random.below(i as u64, 256) as u8).collect();
    let labels: Vec<u32> = (0..examples).map(|i| i as u32 % classes as u32).collect();
    let shape = ftprop_data::Shape::new(input.height, input.width, input.channels);
    let train = Split::from_pixels(shape, pixels, labels)?;
    let dataset = Dataset {
        name: "made up".into(),
        shape,
        classes: (0..classes).map(|class| class.to_string()).collect(),
        normalize: Normalize::imagenet(),
        test: train.select(&(0..batch as u32).collect::<Vec<_>>())?,
        train,
        passed_over: Default::default(),
        table: None,
    };
    let mut recipe = Recipe {
        activation: bench.activation,
        layer_loss: bench.layer_loss,
        target_rule: bench.target_rule,
        ..Recipe::default()
    };
    (recipe.network.preset, recipe.network.layers) = (Some(bench.network.clone()), Vec::new());
    recipe.optimizer = OptimizerSpec::adam(2.5e-4)?;
    (recipe.train.batch, recipe.train.precision) = (batch, precision);
    recipe.train.device = bench.device.parse().unwrap_or(DeviceChoice::Auto);
    recipe.train.epochs = 1 + bench.steps.div_ceil(per_epoch) as u32;
    Ok((recipe, dataset, 1))
}

fn show(bench: &Config, report: &Report) -> Result<(), Error> {
    if bench.json {
        return say_json(report);
    }
    let Report { network, activation, device, .. } = report;
    say(&format!("train {network} {activation}, {} examples a rank, each on {device}", bench.batch))?;
    say("ranks  images/s  a rank  efficiency  exchanging")?;
    for row in &report.rows {
        say(&format!(
            "{:>5}  {:>8.0}  {:>6.0}  {:>9.1} %  {:>8.1} %",
            row.ranks,
            row.images_per_s,
            row.images_per_s_of_a_rank,
            100.0 * row.efficiency,
            100.0 * row.exchanged
        ))?;
    }
    Ok(())
}
