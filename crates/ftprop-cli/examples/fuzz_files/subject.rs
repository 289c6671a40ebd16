//! The kinds of files, and what reads them.

use crate::Failure;
use crate::mutate::{Numbers, mutate};
use ftprop_export::torch;
use ftprop_nn::engine::NetworkState;
use ftprop_nn::{Network, Shape};
use ftprop_search::{
    Ball, Certificate, Labelled, Problem, RobustCertificate, RobustConfig, SeparableReport, SolveConfig, robustness,
    solve,
};
use ftprop_tensor::Cpu;
use ftprop_train::built_in;
use ftprop_train::checkpoint::{self, Checkpoint, Contents, ModelInfo, State};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::diagnostics::Records;
use ftprop_train::golden;
use ftprop_train::recipe::Recipe;
use ftprop_train::run::RunFolder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Recipe,
    Checkpoint,
    RunFolder,
    Import,
    Golden,
    Certificate,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Recipe, Kind::Checkpoint, Kind::RunFolder, Kind::Import, Kind::Golden, Kind::Certificate];
}

/// Sound files of one kind, by their names, and what is needed to read their mutants.
pub(crate) struct Subject {
    kind: Kind,
    files: Vec<(String, Vec<u8>)>,
    folder: PathBuf,
    recipe: Recipe,
    network: Network,
    place: Place,
    data: Labelled,
}

const INPUT: Shape = Shape { height: 1, width: 1, channels: 4 };
const CLASSES: usize = 3;

impl Subject {
    pub(crate) fn new(kind: Kind) -> Result<Self, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ftprop-fuzz-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = in_memory().join(name);
        std::fs::create_dir_all(&folder)?;
        let mut recipe = Recipe::built_in("digits")?.into_recipe();
        recipe.network.preset = Some("mlp".into());
        (recipe.network.layers, recipe.network.widths) = (Vec::new(), vec![3]);
        let graph = recipe.graph(INPUT, CLASSES)?;
        let network = Network::new(Arc::new(Cpu::new(1)?), graph, 1)?;
        let data = Problem::generate("xor".parse()?, 1)?.train;
        let place = Place::open(DeviceChoice::Cpu, 1)?;
        let mut subject = Subject { kind, files: Vec::new(), folder, recipe, network, place, data };
        subject.files = subject.sound()?;
        for (name, bytes) in &subject.files {
            std::fs::write(subject.folder.join(name), bytes)?;
        }
        Ok(subject)
    }

    fn sound(&self) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let one = |name: &str, bytes: Vec<u8>| vec![(name.to_string(), bytes)];
        Ok(match self.kind {
            Kind::Recipe => {
                let texts = built_in::names().step_by(5).filter_map(built_in::built_in).chain([LAYERS]);
                texts.enumerate().map(|(i, text)| (format!("{i}.toml"), text.as_bytes().to_vec())).collect()
            }
            Kind::Checkpoint => one(CHECKPOINT, self.checkpoint()?),
            Kind::RunFolder => vec![
                ("recipe.toml".into(), self.recipe.to_toml()?.into_bytes()),
                ("metrics.jsonl".into(), METRICS.repeat(3).into_bytes()),
                ("summary.json".into(), SUMMARY.as_bytes().to_vec()),
                ("diagnostics.jsonl".into(), Vec::new()),
                ("changes.jsonl".into(), CHANGES.as_bytes().to_vec()),
                (CHECKPOINT.into(), self.checkpoint()?),
                ("previous.safetensors".into(), self.checkpoint()?),
            ],
            Kind::Import => one("weights.safetensors", torch::to_bytes(&self.recipe, &self.network)?),
            Kind::Golden => {
                let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ftprop-train/golden/mlp-sign-soft.json");
                one("case.json", std::fs::read(golden)?)
            }
            Kind::Certificate => self.certificates()?,
        })
    }

    fn checkpoint(&self) -> Result<Vec<u8>, Failure> {
        let path = self.folder.join("sound");
        let (info, graph) = (self.info(), self.network.graph().clone());
        let state = NetworkState { values: self.network.values().into(), statistics: self.network.stats().into() };
        checkpoint::save(&path, &self.recipe, &info, &State::start(), &Contents::for_use(&graph, state))?;
        Ok(std::fs::read(path)?)
    }

    /// Of two classes, of a network, and of how robust that network is.
    fn certificates(&self) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let report = SeparableReport::new(&self.data, "10s".parse()?)?;
        let classes = Certificate::of_verdict(&self.data, &report.verdict).ok_or("there is no proof")?;
        let (problem, goes_on) = (Problem::new("data", self.data.clone(), None)?, AtomicBool::new(false));
        let solution = solve(&problem, &SolveConfig::default(), &goes_on, &|_| {})?;
        let network = Certificate::of_solution(&self.data, &solution)?;
        let (points, ball) =
            (&self.data.points, Ball { radius: Ball::radius("1/8")?, inputs: Some(vec![1]), range: None });
        let config = RobustConfig { time: Duration::from_secs(10), memory: 1 << 24, threads: 1 };
        let decisions = robustness(&solution.exact, points, &ball, &config, &goes_on, &|_, _| {})?;
        let numbers: Vec<usize> = (0..decisions.len()).collect();
        let robust = RobustCertificate::new(&solution.exact, points, &numbers, &ball, &decisions)?;
        let texts = [("classes", classes.to_json()), ("network", network.to_json()), ("robust", robust.to_json())];
        Ok(texts.into_iter().map(|(name, text)| (format!("{name}.json"), text.into_bytes())).collect())
    }

    fn info(&self) -> ModelInfo {
        ModelInfo {
            table: None,
            classes: (0..CLASSES).map(|class| format!("class {class}")).collect(),
            input: [INPUT.height, INPUT.width, INPUT.channels],
            full: 1.0,
            mean: vec![0.0; INPUT.channels],
            std: vec![1.0; INPUT.channels],
            resize: None,
            origin: Default::default(),
        }
    }

    /// Makes a mutant and has it read; tells whether it was taken.
    pub(crate) fn try_one(&mut self, numbers: &mut Numbers) -> Result<bool, Failure> {
        let (name, original) = &self.files[numbers.below(self.files.len())];
        let mut bytes = mutate(original, numbers);
        // Behind the checksum there is more to try.
        let reseal = numbers.below(4) > 0;
        if reseal && name.ends_with(".safetensors") && self.kind != Kind::Import {
            sum_again(&mut bytes);
        }
        if reseal && self.kind == Kind::Certificate {
            seal_again(&mut bytes);
        }
        let path = self.folder.join(name);
        if !matches!(self.kind, Kind::Recipe | Kind::Checkpoint | Kind::Certificate) {
            std::fs::write(&path, &bytes)?;
        }
        let taken = self.read(&path, bytes);
        if self.kind == Kind::RunFolder {
            let (name, original) = self.files.iter().find(|(n, _)| path.ends_with(n)).ok_or("a file has no name")?;
            std::fs::write(self.folder.join(name), original)?;
        }
        Ok(taken)
    }

    fn read(&mut self, path: &Path, bytes: Vec<u8>) -> bool {
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        match self.kind {
            Kind::Recipe => {
                let checked = Recipe::from_toml("mutant", &text()).and_then(Recipe::checked);
                checked.is_ok_and(|recipe| {
                    let graph = recipe.graph(Shape { height: 32, width: 32, channels: 3 }, 10);
                    graph.is_ok_and(|graph| recipe.learning(&graph).is_ok())
                })
            }
            Kind::Checkpoint => Checkpoint::parse(path, bytes).is_ok_and(|checkpoint| {
                let info = &checkpoint.header.model;
                let [height, width, channels] = info.input;
                let graph = checkpoint.recipe().map(|r| r.graph(Shape { height, width, channels }, info.classes.len()));
                graph.is_ok_and(|graph| graph.is_ok_and(|graph| checkpoint.contents(&graph).is_ok()))
            }),
            Kind::RunFolder => RunFolder::open(&self.folder).is_ok_and(|run| {
                // All of them, whatever the first say.
                let read = [run.recipe().is_ok(), run.metrics().is_ok(), run.summary().is_ok(), run.changes().is_ok()];
                let (records, last) = (Records::read(run.path()).is_ok(), run.last().is_ok());
                records && last && read.iter().all(|&ok| ok)
            }),
            Kind::Import => torch::read(path, &self.recipe, &mut self.network).is_ok(),
            Kind::Golden => golden::in_folder(&self.folder)
                .is_ok_and(|cases| self.place.cpu.enter(|| cases.iter().all(|case| case.run(&self.place).is_ok()))),
            Kind::Certificate if RobustCertificate::is_meant(&text()) => {
                RobustCertificate::from_json(&text()).is_ok_and(|certificate| certificate.verify(None).is_ok())
            }
            Kind::Certificate => {
                Certificate::from_json(&text()).is_ok_and(|certificate| certificate.verify(&self.data).is_ok())
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where files cost least: most of the time of a million files on a disk is the disk's.
fn in_memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() && std::env::var_os("TMPDIR").is_none() { memory } else { std::env::temp_dir() }
}

/// Makes a certificate's checksum match again, where it can still be read.
fn seal_again(file: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(file);
    let plain = if RobustCertificate::is_meant(&text) {
        RobustCertificate::from_json(&text).ok().and_then(|certificate| serde_json::to_string(&certificate).ok())
    } else {
        Certificate::from_json(&text).ok().and_then(|certificate| serde_json::to_string(&certificate).ok())
    };
    const BEFORE: &str = r#""checksum":""#;
    let Some((start, plain)) = plain.and_then(|plain| Some((plain.rfind(BEFORE)? + BEFORE.len(), plain))) else {
        return;
    };
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let sum = plain[..start].bytes().chain(*b"\"}").fold(0xCBF2_9CE4_8422_2325, hash);
    *file = format!("{}{sum:016x}\"}}", &plain[..start]).into_bytes();
}

/// Makes a checkpoint's checksum match again, where its place can still be found.
fn sum_again(file: &mut [u8]) {
    const BEFORE: &[u8] = br#"\"checksum\":\""#;
    let Some(at) = file.windows(BEFORE.len()).position(|window| window == BEFORE) else { return };
    let (start, end) = (at + BEFORE.len(), at + BEFORE.len() + 8);
    if end <= file.len() {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&file[..start]);
        sum.update(&file[end..]);
        file[start..end].copy_from_slice(format!("{:08x}", sum.finalize()).as_bytes());
    }
}

const CHECKPOINT: &str = "checkpoint.safetensors";

const LAYERS: &str = r#"
name = "layers"
activation = "qrelu:3"
layer_loss = "soft_hinge:2"
target_rule = "random_subset:0.5"
[[network.layers]]
kind = "conv"
out = 8
kernel = 3
pad = 1
stride = 2
groups = 1
[[network.layers]]
kind = "batch_norm"
[[network.layers]]
kind = "act"
[[network.layers]]
kind = "residual"
main = [{ kind = "conv", out = 16, kernel = 3, pad = 1, stride = 2 }, { kind = "act", activation = "sign" }]
shortcut = [{ kind = "conv", out = 16, kernel = 1, stride = 2 }]
[[network.layers]]
kind = "max_pool"
kernel = 3
stride = 2
pad = 1
[[network.layers]]
kind = "fc"
[data]
source = "cifar10"
validation = 0.1
pad = 4
random_crop = true
[train]
epochs = 6
batch = 16
clip = 5.0
ema = 0.98
[optimizer]
name = "adam"
lr = 3e-3
[[groups]]
kind = "norms"
weight_decay = 0.0
[schedule]
kind = "cosine"
warmup = 0.5
"#;

const METRICS: &str = "{\"epoch\":1,\"train\":{\"loss\":2.3,\"top1\":0.1,\"top5\":0.5},\"validation\":null,\"test\":{\"loss\":2.2,\
                       \"top1\":0.2,\"top5\":0.6},\"learning_rate\":0.001,\"images_per_s\":100.5,\"waited\":0.0,\"seconds\":1.5}\n";

const CHANGES: &str = "{\"epoch\":2,\"step\":12,\"key\":\"optimizer.lr\",\"before\":\"0.001\",\"now\":\"0.002\"}\n";

const SUMMARY: &str = r#"{"name":"x","train":{"top1_best":0.5,"top1_last":0.5,"top5_last":0.9,"loss_last":1.5},"validation":null,
"test":{"top1_best":0.5,"top1_last":0.5,"top5_last":0.9,"loss_last":1.5},"best_epoch":1,"test_top1_at_best":0.5,"epochs":3,
"parameters":27,"seconds":4.5,"images_per_s":100.5}"#;
