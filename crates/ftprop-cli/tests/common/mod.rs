//! Running the real program in folders of its own.
// Every test file uses some of it.
#![allow(dead_code)]

use ftprop_tensor::random::Stream;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fully connected network for the digits that trains in milliseconds.
pub(crate) const SMALL: &str = r#"
name = "small"
network.preset = "mlp"
network.widths = [16]
train.epochs = 2
train.batch = 32
"#;

/// A little of everything whose state or randomness could get lost: normalising, dropout of both kinds, a
/// residual block, groups, two activations, a target rule of chance, augmentation, a validation part, warm-up, clipping,
/// parameters that are learned in four ways, a moving average of them.
pub(crate) const THOROUGH: &str = r#"
name = "thorough"
activation = "sign"
layer_loss = "soft_hinge"
target_rule = "random_subset:0.9"

[data]
source = "digits"
validation = 0.1
pad = 1
random_crop = true
flip = true

[[network.layers]]
kind = "conv"
out = 8
kernel = 3
pad = 1
[[network.layers]]
kind = "batch_norm"
[[network.layers]]
kind = "act"
activation = "qrelu:3"
[[network.layers]]
kind = "residual"
main = [
    { kind = "conv", out = 16, kernel = 3, pad = 1, stride = 2, groups = 2 },
    { kind = "batch_norm" },
    { kind = "act" },
    { kind = "channel_dropout", p = 0.2 },
    { kind = "conv", out = 16, kernel = 3, pad = 1 },
]
shortcut = [{ kind = "conv", out = 16, kernel = 1, stride = 2 }]
[[network.layers]]
kind = "max_pool"
kernel = 3
stride = 2
pad = 1
[[network.layers]]
kind = "affine"
scale = 1.25
[[network.layers]]
kind = "act"
[[network.layers]]
kind = "affine"
[[network.layers]]
kind = "dropout"
p = 0.1
[[network.layers]]
kind = "fc"

[train]
epochs = 6
batch = 16
label_smoothing = 0.05
clip = 5.0
ema = 0.98

[optimizer]
name = "adam"
lr = 3e-3
weight_decay = 1e-4

[[groups]]
kind = "norms"
weight_decay = 0.0
[[groups]]
kind = "weights"
pattern = "3.main.*"
optimizer = { name = "muon", lr = 0.02 }
[[groups]]
kind = "biases"
lr_factor = 2.0
optimizer = { name = "sgd", lr = 0.01, momentum = 0.9 }

[schedule]
kind = "cosine"
warmup = 0.5
"#;

/// A folder of its own, removed at the end.
pub(crate) struct Temp(PathBuf);

impl Temp {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Temp(path)
    }

    /// With recipes to train from.
    pub(crate) fn with_recipes() -> Self {
        let temp = Temp::new();
        temp.write("small.toml", SMALL);
        temp.write("thorough.toml", THOROUGH);
        temp
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// A small MNIST of noise in a folder: pictures of 6×5 pixels whose first row shows the label.
    pub(crate) fn mnist(&self, folder: &str, train: usize, test: usize) {
        for (part, count) in [("train", train), ("t10k", test)] {
            let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
            let picture = |&label: &u8| {
                let mut pixels = noise(u64::from(label), 30);
                pixels[..5].fill(25 * label);
                pixels
            };
            let pixels: Vec<u8> = labels.iter().flat_map(picture).collect();
            let count = (count as u32).to_be_bytes();
            let head = [&[0, 0, 8, 3][..], &count, &[0, 0, 0, 6, 0, 0, 0, 5]].concat();
            self.write(&format!("{folder}/{part}-images-idx3-ubyte"), [head, pixels].concat());
            let head = [&[0, 0, 8, 1][..], &count].concat();
            self.write(&format!("{folder}/{part}-labels-idx1-ubyte"), [head, labels].concat());
        }
    }

    /// A small CIFAR-10 of noise in a folder, 8 pictures a file.
    pub(crate) fn cifar10(&self, folder: &str) {
        for file in 0..6u8 {
            let name = if file == 5 { "test_batch.bin".to_owned() } else { format!("data_batch_{}.bin", file + 1) };
            let record = |i: u8| [vec![(file + i) % 10], noise(u64::from(8 * file + i), 3072)].concat();
            self.write(&format!("{folder}/{name}"), (0..8).flat_map(record).collect::<Vec<u8>>());
        }
    }

    /// Pictures of two classes that anyone can tell apart, in ImageNet's layout.
    pub(crate) fn photos(&self, folder: &str) {
        for (class, base) in [("bright", 200), ("dark", 20)] {
            for (part, count) in [("train", 8), ("val", 4)] {
                let place = self.path(&format!("{folder}/{part}/{class}"));
                fs::create_dir_all(&place).unwrap();
                for i in 0..count {
                    let pixels = noise(i, 3 * 12 * 10).into_iter().map(|v| base + v / 8).collect();
                    image::RgbImage::from_raw(12, 10, pixels).unwrap().save(place.join(format!("{i}.png"))).unwrap();
                }
            }
        }
    }

    /// The program in this folder, its arguments divided by spaces.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftprop"));
        command.current_dir(&self.0).args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Outcome {
        Outcome::of(arguments, self.command(arguments))
    }

    /// Starts the program and lets it go on beside the test.
    pub(crate) fn start(&self, arguments: &str) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What is in a folder: every file's name and content, but for TensorBoard's, which hold the time.
    pub(crate) fn snapshot(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
            .filter(|(name, _)| !name.starts_with("events."))
            .collect();
        files.sort();
        files
    }

    /// Checks that two runs came to the same, to the byte where no clock is involved.
    pub(crate) fn assert_same_result(&self, run: &str, other: &str) {
        for file in ["checkpoint.safetensors", "best.safetensors"] {
            assert!(
                self.read(&format!("{run}/{file}")) == self.read(&format!("{other}/{file}")),
                "{file} of {run} and of {other} are different"
            );
        }
        assert_eq!(self.timeless_metrics(run), self.timeless_metrics(other), "metrics.jsonl of {run} and {other}");
    }

    /// The lines of `metrics.jsonl` up to the speeds and times, which come last.
    pub(crate) fn timeless_metrics(&self, run: &str) -> Vec<String> {
        let text = self.text(&format!("{run}/metrics.jsonl"));
        assert!(text.ends_with('\n'), "{text}");
        let cut = |line: &str| line.split_once(",\"images_per_s\"").expect("a line of metrics").0.to_owned();
        text.lines().map(cut).collect()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that look random, the same for the same number.
pub(crate) fn noise(number: u64, count: usize) -> Vec<u8> {
    let stream = Stream::numbered(number);
    (0..count).map(|i| stream.below(i as u64, 256) as u8).collect()
}

/// How the program ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    arguments: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn of(arguments: &str, mut command: Command) -> Self {
        let output = command.output().unwrap();
        let outcome = Outcome {
            arguments: arguments.to_owned(),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!outcome.err.contains("panicked"), "{outcome:?}");
        outcome
    }

    /// It went well.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// It went well and printed JSON.
    pub(crate) fn json(self) -> serde_json::Value {
        let outcome = self.ok();
        serde_json::from_str(&outcome.out).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"))
    }

    /// It ended with this exit code and one line that has all the words. Progress may stand before it.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        let complaints: Vec<&str> = self.err.lines().filter(|line| line.starts_with("ftprop: ")).collect();
        let quiet = self.arguments.contains("--quiet") || !self.arguments.starts_with("train");
        assert!(complaints.len() == 1 && self.err.ends_with(&format!("{}\n", complaints[0])), "{self:#?}");
        assert!(!quiet || self.err.lines().count() == 1, "more than one line: {self:#?}");
        for word in words {
            assert!(complaints[0].contains(word), "`{word}` is not in: {}", complaints[0]);
        }
    }
}
