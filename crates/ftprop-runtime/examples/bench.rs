//! Times packed models of the preset networks with made-up weights.
//!
//! ```text
//! cargo run --release -p ftprop-runtime --example bench -- \
//!     [networks=convnet4,convnet8] [acts=sign,qrelu3] [batches=1,64] [threads=1,2] [kernels=avx2] [tables=on|off]
//!     [weights=int8|int4|f32] [together=16] [seconds=1] [profile=yes] [save=FOLDER]
//! ```
//!
//! A line of JSON for each combination: the median of all calls that fit the time. `save` also writes the models.

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ftprop_runtime::pack::{FloatNetwork, PackOptions, WeightFormat, pack};
use ftprop_runtime::{Activation, Engine, EngineOptions, Images, Kernels};
use support::networks;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let mut settings = HashMap::from(
        [
            ("networks", "convnet4,convnet8"),
            ("acts", "sign,qrelu3"),
            ("batches", "1,64"),
            ("threads", "1,2"),
            ("kernels", ""),
            ("tables", ""),
            ("weights", "int8"),
            ("together", "16"),
            ("seconds", "1"),
            ("profile", "no"),
            ("save", ""),
        ]
        .map(|(key, value)| (key.to_string(), value.to_string())),
    );
    for argument in std::env::args().skip(1) {
        let Some((key, value)) = argument.split_once('=').filter(|(key, _)| settings.contains_key(*key)) else {
            return Err(format!("`{argument}` is not a setting; see the head of the example").into());
        };
        settings.insert(key.into(), value.into());
    }
    let list = |key: &str| settings[key].split(',').map(String::from).collect::<Vec<_>>();
    let weights = match settings["weights"].as_str() {
        "int4" => WeightFormat::Int4,
        "f32" => WeightFormat::F32,
        _ => WeightFormat::Int8,
    };
    let seconds: f64 = settings["seconds"].parse()?;
    for network in list("networks") {
        for act in list("acts") {
            let file = pack(&named(&network, activation(&act)?)?, &PackOptions { weights })?.to_bytes()?;
            if !settings["save"].is_empty() {
                std::fs::write(format!("{}/{network}-{act}.ftp", settings["save"]), &file)?;
            }
            for threads in list("threads") {
                let options = EngineOptions {
                    threads: threads.parse()?,
                    kernels: (!settings["kernels"].is_empty())
                        .then(|| Kernels::named(&settings["kernels"]))
                        .transpose()?,
                    tables: (!settings["tables"].is_empty()).then(|| settings["tables"] == "on"),
                    images_together: settings["together"].parse()?,
                    ..EngineOptions::default()
                };
                let mut engine = Engine::load(&file, &options)?;
                for batch in list("batches") {
                    let batch: usize = batch.parse()?;
                    let images = support::Numbers(1).image(batch * engine.image_len());
                    let [time, best] = time(&mut engine, &images, batch, seconds)?;
                    println!(
                        "{{\"network\": \"{network}\", \"act\": \"{act}\", \"batch\": {batch}, \"threads\": {threads}, \
                         \"kernels\": \"{}\", \"bytes\": {}, \"ms\": {:.3}, \"best_ms\": {:.3}, \
                         \"images_per_s\": {:.0}}}",
                        engine.kernels().name(),
                        file.len(),
                        time * 1e3,
                        best * 1e3,
                        batch as f64 / time
                    );
                    if settings["profile"] == "yes" && threads == "1" {
                        let images = &images[..batch.min(options.images_together) * engine.image_len()];
                        profile(&mut engine, images)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn activation(name: &str) -> Anything<Activation> {
    Ok(match name {
        "sign" => Activation::Sign,
        "step" => Activation::Step,
        "relu" => Activation::Relu,
        "saturated_relu" => Activation::SaturatedRelu,
        _ => Activation::QRelu(name.strip_prefix("qrelu").ok_or("no such activation")?.parse()?),
    })
}

fn named(network: &str, act: Activation) -> Anything<FloatNetwork> {
    Ok(match network {
        "convnet4" => networks::convnet4(act, 1, 1),
        "convnet8" => networks::convnet8(act, 1, 1),
        "alexnet" => networks::alexnet(act, 1, 1, 224),
        "resnet18" => networks::resnet18(act, 1, 1, 224),
        "mlp" => networks::mlp(act, 1, &[1024, 1024]),
        _ => return Err(format!("no network `{network}`").into()),
    })
}

/// The median and the shortest time of a call.
fn time(engine: &mut Engine, images: &[u8], batch: usize, seconds: f64) -> Anything<[f64; 2]> {
    let mut logits = vec![0.0; batch * engine.classes()];
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 7 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        engine.classify(images, &mut logits)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok([times[times.len() / 2], times[0]])
}

/// The shortest time of each operation: other programs only ever add to it.
fn profile(engine: &mut Engine, images: &[u8]) -> Anything<()> {
    let rounds = (0..201).map(|_| engine.time_operations(Images::Bytes(images))).collect::<Result<Vec<_>, _>>()?;
    for operation in 0..rounds[0].len() {
        let shortest = rounds.iter().map(|round| round[operation]).min().unwrap_or(Duration::ZERO);
        println!("    operation {operation}: {:.1} µs", shortest.as_secs_f64() * 1e6);
    }
    Ok(())
}
