//! How fast a loader delivers training pictures of a folder or a prepared file, with nobody learning from them.
//!
//! ```text
//! cargo run --release -p ftprop-data --example throughput -- PATH [workers=1] [resize=256] [crop=224] [area=0.35] [epochs=1]
//! ```
//!
//! `area` cuts random parts of at least that share. Seconds of all cores tell more than the clock on a busy machine.

use ftprop_data::{Augment, Loader, LoaderConfig, Options, Source, open};
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut path, mut options, mut augment) = (None, Options::default(), Augment::PHOTOS);
    let (mut workers, mut epochs) = (1, 1);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("workers", value)) => workers = value.parse()?,
            Some(("epochs", value)) => epochs = value.parse()?,
            Some(("resize", value)) => options.resize = Some(value.parse()?),
            Some(("crop", value)) => options.crop = Some(value.parse()?),
            Some(("area", value)) => augment = Augment { crop: false, area: Some([value.parse()?, 1.0]), ..augment },
            _ => path = Some(PathBuf::from(argument)),
        }
    }
    let path = path.ok_or("say which folder or file")?;
    let data = open(Source::detect(&path)?.source, Some(&path), &options)?;
    let config = LoaderConfig { augment, workers, ..LoaderConfig::training(128, 1, data.normalize.clone()) };
    let loader = Loader::new(&data.train, config)?;
    for epoch in 1..=epochs {
        let (started, before) = (Instant::now(), cpu_seconds());
        let (mut batches, mut count) = (loader.epoch(epoch, 0), 0);
        while let Some(batch) = batches.next_batch()? {
            count += batch.len();
        }
        let (clock, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - before);
        println!(
            "{count} pictures, {:.0} a second by the clock, {:.0} a second of one core",
            count as f64 / clock,
            count as f64 / cpu
        );
    }
    Ok(())
}

/// What the system has counted for this process; 0 where it does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| after.split_whitespace().nth(field).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
