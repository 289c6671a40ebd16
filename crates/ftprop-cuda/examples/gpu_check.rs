//! Checks and times a GPU: `gpu_check selftest`, `gpu_check golden FOLDER`, `gpu_check bench [FILTER]`,
//! `gpu_check cifar FOLDER EPOCHS`, any of them one after another.

use ftprop_cuda::{
    CudaError, CudaNetwork, Device, NetworkConfig, Precision, ResidentData, Stretch, bench, profile, selftest,
};
use ftprop_data::{Augment, Options, Source, open};
use ftprop_nn::activation::Activation;
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Defaults, LayerLoss, LayerSpec, OptimizerSpec, OutputLoss, Shape, Step, presets};
use ftprop_tensor::random::Stream;
use serde_json::Value;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let start = Instant::now();
    println!("{:?}", ftprop_cuda::versions());
    for d in ftprop_cuda::devices()? {
        println!("{d:?}");
    }
    let device = Device::open(0)?;
    println!("open after {:.2} s", start.elapsed().as_secs_f64());
    let mut good = true;
    while let Some(command) = args.next() {
        let start = Instant::now();
        match command.as_str() {
            "selftest" => good &= run_selftest(&device)?,
            "golden" => good &= run_goldens(&device, Path::new(&args.next().ok_or("golden needs a folder")?))?,
            "bench" => run_bench(&device, &args.next().unwrap_or_default())?,
            "profile" => run_profile(&device, &args.next().ok_or("profile needs net:batch:precision")?)?,
            "cifar" => {
                let folder = PathBuf::from(args.next().ok_or("cifar needs a folder")?);
                run_cifar(&device, &folder, args.next().ok_or("cifar needs a number of epochs")?.parse()?)?;
            }
            other => return Err(format!("unknown command '{other}'").into()),
        }
        println!("{command}: {:.1} s", start.elapsed().as_secs_f64());
    }
    if good { Ok(()) } else { Err("something is wrong, see above".into()) }
}

fn run_selftest(device: &Device) -> Result<bool, CudaError> {
    let checks = selftest(device, &mut |c| {
        let verdict = if c.passed() { "ok   " } else { "WRONG" };
        println!("{verdict} {}: {:.2e}, allowed {:.2e}", c.name, c.error, c.allowed);
    })?;
    let bad = checks.iter().filter(|c| !c.passed()).count();
    for prefix in ["f32", "tf32", "bf16"] {
        let worst = checks.iter().filter(|c| c.name.starts_with(prefix)).map(|c| c.error).fold(0.0, f64::max);
        println!("{prefix}: worst {worst:.2e}");
    }
    println!("{} passed, {bad} failed", checks.len() - bad);
    Ok(bad == 0)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().map(|a| a.iter().map(number).collect()).unwrap_or_default()
}

fn run_goldens(device: &Device, folder: &Path) -> Result<bool, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    let mut good = true;
    for file in files {
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let start = Instant::now();
        let worst = golden(device, &case)?;
        let tolerance = number(&case["tolerance"]);
        good &= worst.0 <= tolerance;
        println!(
            "{} {}: {:.2e} of {tolerance:.1e} ({}) {:.1} s",
            if worst.0 <= tolerance { "ok   " } else { "WRONG" },
            case["name"].as_str().unwrap_or("?"),
            worst.0,
            worst.1,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(good)
}

/// The largest relative error of a golden case, and where it was.
fn golden(device: &Device, case: &Value) -> Result<(f64, String), Box<dyn Error>> {
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let (net, activation) = (text("net"), text("activation").replace("qrelu", "qrelu:"));
    let (input, classes) = match net {
        "mlp" => (Shape::vector(20), 5),
        "convnet4" | "convnet8" => (Shape { height: 32, width: 32, channels: 3 }, 10),
        _ => (Shape { height: 224, width: 224, channels: 3 }, 1000),
    };
    let mut layers = presets::layers(net, input, &[16, 12])?;
    for layer in &mut layers {
        if let LayerSpec::ChannelDropout { p } = layer {
            *p = 0.0;
        }
    }
    let layer_loss = if text("layer_loss").is_empty() { LayerLoss::SoftHinge } else { text("layer_loss").parse()? };
    let o = &case["optimizer"];
    let (lr, weight_decay) = (number(&o["lr"]), number(&o["weight_decay"]));
    let optimizer = match o["name"].as_str() {
        Some("adam") => OptimizerSpec::Adam { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay },
        _ => OptimizerSpec::Sgd { lr, momentum: number(&o["momentum"]), nesterov: false, weight_decay },
    };
    let batch = number(&case["batch"]) as usize;
    let config = NetworkConfig {
        layers,
        defaults: Defaults::new(activation.parse::<Activation>()?, layer_loss),
        input,
        classes,
        batch,
        precision: Precision::F32,
        deterministic: true,
        loss: OutputLoss::CrossEntropy,
        label_smoothing: 0.0,
        optimizer,
        clip: None,
    };
    let mut network = CudaNetwork::new(device, config)?;
    let s = 1000 * number(&case["seed"]) as u64;
    let parameters = network.parameters().to_vec();
    let mut values = vec![0.0f32; parameters.last().map_or(0, |p| p.range.end)];
    for (j, p) in parameters.iter().enumerate() {
        let stream = Stream::numbered(s + j as u64);
        for i in 0..p.range.len() {
            let u = f64::from(stream.uniform(p.torch_index(i) as u64));
            values[p.range.start + i] = match &p.kind {
                ParameterKind::Conv { geometry, .. } => (2.0 * u - 1.0) / (geometry.fan_in() as f64).sqrt(),
                ParameterKind::Fc { input, .. } => (2.0 * u - 1.0) / (input.len() as f64).sqrt(),
                ParameterKind::Bias { fan_in } => (2.0 * u - 1.0) / (*fan_in as f64).sqrt(),
                ParameterKind::Gamma => 0.5 + u,
                ParameterKind::Beta => u - 0.5,
            } as f32;
        }
    }
    network.set_values(&values)?;
    let stream = Stream::numbered(s + 999);
    let (pixels, channels) = (input.height * input.width, input.channels);
    let images: Vec<f32> = (0..batch * input.len())
        .map(|i| {
            let (example, place) = (i / input.len(), i % input.len());
            let at = example * input.len() + place % channels * pixels + place / channels;
            (1.7 * (2.0 * f64::from(stream.uniform(at as u64)) - 1.0)) as f32
        })
        .collect();
    let stream = Stream::numbered(s + 998);
    let labels: Vec<u32> = (0..batch).map(|i| (f64::from(stream.uniform(i as u64)) * classes as f64) as u32).collect();

    let mut worst = (0.0f64, String::new());
    let mut note = |error: f64, place: String| {
        if error > worst.0 || error.is_nan() {
            worst = (if error.is_nan() { f64::INFINITY } else { error }, place);
        }
    };
    for (number_of_step, expect) in case["expect"].as_array().into_iter().flatten().enumerate() {
        let tally = network.learn(&images, &labels, &Step { seed: 0, number: number_of_step as u64, progress: 0.0 })?;
        let loss = number(&expect["loss"]);
        note((tally.loss() - loss).abs() / loss.abs(), format!("step {number_of_step} loss"));
        let logits = network.logits(batch)?;
        let rows: Vec<Vec<f64>> = expect["logits"].as_array().into_iter().flatten().map(numbers).collect();
        let most = rows.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
        for (i, row) in rows.iter().enumerate() {
            for (j, v) in row.iter().enumerate() {
                let error = (f64::from(logits[i * classes + j]) - v).abs() / most;
                note(error, format!("step {number_of_step} logit {i},{j}"));
            }
        }
        let grads = network.grads()?;
        network.optimize(1.0)?;
        let values = network.values()?;
        for (p, e) in parameters.iter().zip(expect["params"].as_array().into_iter().flatten()) {
            let size = p.range.len() as f64;
            let at = numbers(&e["at"]);
            let mut places = vec![0; at.len()];
            for i in 0..p.range.len() {
                let torch = p.torch_index(i) as f64;
                at.iter().zip(&mut places).filter(|(a, _)| **a == torch).for_each(|(_, place)| *place = i);
            }
            let slice = |all: &[f32]| all[p.range.clone()].iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
            let (g, v) = (slice(&grads), slice(&values));
            let norm = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
            for (key, x, samples) in [("grad", &g, numbers(&e["grad"])), ("value", &v, numbers(&e["value"]))] {
                let expected = number(&e[format!("{key}_norm")]);
                let place = format!("step {number_of_step} {} {key}", p.name);
                note((norm(x) - expected).abs() / expected, format!("{place} norm"));
                let scale = samples.iter().fold(expected / size.sqrt(), |m, v| m.max(v.abs()));
                for (i, sample) in places.iter().zip(&samples) {
                    note((x[*i] - sample).abs() / scale, format!("{place} sample"));
                }
            }
            let sum: f64 = g.iter().sum();
            let error = (sum - number(&e["grad_sum"])).abs() / (number(&e["grad_norm"]) * size.sqrt());
            note(error, format!("step {number_of_step} {} sum", p.name));
        }
    }
    Ok(worst)
}

fn config(net: &str, batch: usize, precision: Precision) -> Result<NetworkConfig, Box<dyn Error>> {
    let side = if net.starts_with("conv") { 32 } else { 224 };
    let input = Shape { height: side, width: side, channels: 3 };
    Ok(NetworkConfig {
        layers: presets::layers(net, input, &[])?,
        defaults: Defaults::new(Activation::Sign, LayerLoss::SoftHinge),
        input,
        classes: if side == 32 { 10 } else { 1000 },
        batch,
        precision,
        deterministic: false,
        loss: OutputLoss::CrossEntropy,
        label_smoothing: 0.0,
        optimizer: OptimizerSpec::Adam { lr: 2.5e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 5e-4 },
        clip: None,
    })
}

/// `net:batch:precision` or the start of one, separated by commas; nothing for all.
fn run_bench(device: &Device, filter: &str) -> Result<(), Box<dyn Error>> {
    let cases = [
        ("convnet4", 64),
        ("convnet8", 64),
        ("convnet4", 1024),
        ("convnet8", 1024),
        ("alexnet", 128),
        ("resnet18", 256),
    ];
    for (net, batch) in cases {
        for precision in [Precision::Tf32, Precision::Bf16, Precision::F32] {
            let name = format!("{net}:{batch}:{precision}");
            if !filter.split(',').any(|f| name.starts_with(f)) {
                continue;
            }
            match bench(device, config(net, batch, precision)?) {
                Ok(b) => println!(
                    "{name}: {:.3} ms a step, {:.0} images/s, first step after {:.2} s",
                    b.ms_per_step, b.images_per_second, b.first_step_seconds
                ),
                Err(error) => println!("{name}: {error}"),
            }
        }
    }
    Ok(())
}

/// Where the time of a step goes: `net:batch:precision`.
fn run_profile(device: &Device, name: &str) -> Result<(), Box<dyn Error>> {
    let parts: Vec<&str> = name.split(':').collect();
    let [net, batch, precision] = parts[..] else { return Err("profile takes net:batch:precision".into()) };
    let pieces = profile(device, config(net, batch.parse()?, precision.parse()?)?)?;
    println!("{name}: {:.0} us in all", pieces.iter().map(|p| p.1).sum::<f64>());
    for (piece, us) in pieces {
        println!("{us:9.1} us  {piece}");
    }
    Ok(())
}

/// Trains convnet4 with sign and soft hinge on CIFAR-10.
fn run_cifar(device: &Device, folder: &Path, epochs: u32) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let data = open(Source::Cifar10, Some(folder), &Options::default())?;
    println!("read the data in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut network = CudaNetwork::new(device, config("convnet4", 64, Precision::Tf32)?)?;
    network.initialise(1)?;
    let resident = |split, augment, shuffle| ResidentData::new(device, split, &data.normalize, augment, shuffle);
    let train = resident(&data.train, Augment::CIFAR, true)?.ok_or("CIFAR-10 is bytes")?;
    let test = resident(&data.test, Augment::default(), false)?.ok_or("CIFAR-10 is bytes")?;
    println!("ready after {:.2} s", start.elapsed().as_secs_f64());
    let steps = train.examples().div_ceil(64);
    for epoch in 1..=epochs {
        let start = Instant::now();
        let stretch = Stretch {
            seed: 1,
            epoch: u64::from(epoch),
            first_batch: 0,
            first_step: u64::from(epoch - 1) * steps as u64,
            steps: (0..steps)
                .map(|i| (1.0, (epoch - 1) as f32 / epochs as f32 + i as f32 / (steps * epochs as usize) as f32))
                .collect(),
        };
        network.train(&train, &stretch)?;
        let learned = network.take_tally()?;
        let tested = network.evaluate_data(&test)?;
        println!(
            "epoch {epoch}: loss {:.4}, train {:.2} %, test {:.2} %, {:.3} s",
            learned.loss(),
            100.0 * learned.top1_share(),
            100.0 * tested.top1_share(),
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
