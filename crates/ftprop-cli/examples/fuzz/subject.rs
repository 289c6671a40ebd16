//! The kinds of files, and what reads them.

use crate::Failure;
use crate::mutate::{Numbers, mutate};
use ftprop_export::torch;
use ftprop_nn::engine::NetworkState;
use ftprop_nn::{Network, Shape};
use ftprop_search::{Certificate, Labelled, Problem, SeparableReport};
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
use std::sync::atomic::{AtomicUsize, Ordering};

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
        let folder = std::env::temp_dir().join(name);
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
            Kind::Checkpoint => {
                let path = self.folder.join("sound");
                let (info, graph) = (self.info(), self.network.graph().clone());
                let state =
                    NetworkState { values: self.network.values().into(), statistics: self.network.stats().into() };
                checkpoint::save(&path, &self.recipe, &info, &State::start(), &Contents::for_use(&graph, state))?;
                one("checkpoint.safetensors", std::fs::read(path)?)
            }
            Kind::RunFolder => vec![
                ("recipe.toml".into(), self.recipe.to_toml()?.into_bytes()),
                ("metrics.jsonl".into(), METRICS.repeat(3).into_bytes()),
                ("summary.json".into(), SUMMARY.as_bytes().to_vec()),
                ("diagnostics.jsonl".into(), Vec::new()),
            ],
            Kind::Import => one("weights.safetensors", torch::to_bytes(&self.recipe, &self.network)?),
            Kind::Golden => {
                let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ftprop-train/golden/mlp-sign-soft.json");
                one("case.json", std::fs::read(golden)?)
            }
            Kind::Certificate => {
                let report = SeparableReport::new(&self.data, "10s".parse()?)?;
                let certificate = Certificate::of_verdict(&self.data, &report.verdict).ok_or("there is no proof")?;
                one("proof.json", certificate.to_json().into_bytes())
            }
        })
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
        }
    }

    /// Makes a mutant and has it read; tells whether it was taken.
    pub(crate) fn try_one(&mut self, numbers: &mut Numbers) -> Result<bool, Failure> {
        let (name, original) = &self.files[numbers.below(self.files.len())];
        let mut bytes = mutate(original, numbers);
        // Behind the checksum there is more to try.
        if self.kind == Kind::Checkpoint && numbers.below(4) > 0 {
            sum_again(&mut bytes);
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
                let read = [run.recipe().is_ok(), run.metrics().is_ok(), run.summary().is_ok()];
                let records = Records::read(run.path()).is_ok();
                records && read.iter().all(|&ok| ok)
            }),
            Kind::Import => torch::read(path, &self.recipe, &mut self.network).is_ok(),
            Kind::Golden => golden::in_folder(&self.folder)
                .is_ok_and(|cases| self.place.cpu.enter(|| cases.iter().all(|case| case.run(&self.place).is_ok()))),
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

const SUMMARY: &str = r#"{"name":"x","train":{"top1_best":0.5,"top1_last":0.5,"top5_last":0.9,"loss_last":1.5},"validation":null,
"test":{"top1_best":0.5,"top1_last":0.5,"top5_last":0.9,"loss_last":1.5},"best_epoch":1,"test_top1_at_best":0.5,"epochs":3,
"parameters":27,"seconds":4.5,"images_per_s":100.5}"#;
