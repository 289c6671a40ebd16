//! The paper's Table 1 and learning curves, from the recipes that the program carries.
//!
//! | module | subject |
//! | --- | --- |
//! | this one | the table's cells: recipes, the paper's figures, the runs they mean |
//! | [`report`] | what came out beside what the paper says |

pub mod report;

use crate::error::Error;
use crate::study::{check_alone, other_study};
use ftprop_train::built_in::built_in;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::fleet::Job;
use ftprop_train::recipe::Recipe;
use ftprop_train::run::RunFolder;
use std::path::{Path, PathBuf};

/// A block of rows of the table, by its data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The convnets.
    Cifar10,
    /// AlexNet and ResNet-18.
    Imagenet,
}

/// A column of the table: an activation and how it is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// How its recipes' names end.
    pub ending: &'static str,
    /// In tables.
    pub title: &'static str,
    /// In pictures, where the activation is in the title.
    pub short: &'static str,
}

/// The table's columns, from left to right.
pub const COLUMNS: [Column; 6] = [
    Column { ending: "sign-sste", title: "sign, SSTE", short: "SSTE" },
    Column { ending: "sign-ftpsh", title: "sign, FTP-SH", short: "FTP-SH" },
    Column { ending: "qrelu-sste", title: "qReLU, SSTE", short: "SSTE" },
    Column { ending: "qrelu-ftpsh", title: "qReLU, FTP-SH", short: "FTP-SH" },
    Column { ending: "relu", title: "ReLU", short: "ReLU" },
    Column { ending: "saturated-relu", title: "saturated ReLU", short: "saturated ReLU" },
];

/// A network of the table, with figures in the order of [`COLUMNS`].
#[derive(Debug)]
pub struct NetworkRow {
    /// As its recipes' names begin.
    pub name: &'static str,
    /// In headings.
    pub title: &'static str,
    /// The places in [`COLUMNS`] that it has.
    pub columns: &'static [usize],
    /// Best top-1 test accuracies in percent, as printed in the paper; none for a network that came after it.
    pub paper: Option<[f64; 6]>,
    /// The same from one run of each recipe in PyTorch, 270 epochs long.
    pub independent: Option<[f64; 6]>,
    /// The share of all epochs, at the end, that the paper's insets show.
    pub zoom: f64,
}

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

const CIFAR10: [NetworkRow; 2] = [
    NetworkRow {
        name: "convnet4",
        title: "4-layer convnet",
        columns: &ALL,
        paper: Some([80.6, 81.3, 85.6, 85.5, 86.5, 87.3]),
        independent: Some([81.0, 81.4, 85.6, 85.6, 86.1, 86.8]),
        zoom: 100.0 / 300.0,
    },
    NetworkRow {
        name: "convnet8",
        title: "8-layer convnet",
        columns: &ALL,
        paper: Some([84.6, 84.9, 88.4, 89.8, 91.2, 91.2]),
        independent: Some([84.6, 84.9, 88.3, 90.1, 90.8, 91.4]),
        zoom: 100.0 / 300.0,
    },
];

const IMAGENET: [NetworkRow; 3] = [
    NetworkRow {
        name: "alexnet",
        title: "AlexNet",
        columns: &ALL,
        paper: Some([46.7, 47.3, 59.4, 60.7, 61.3, 61.9]),
        independent: None,
        zoom: 25.0 / 80.0,
    },
    NetworkRow {
        name: "resnet18",
        title: "ResNet-18",
        columns: &ALL,
        paper: Some([49.1, 47.8, 60.6, 64.3, 69.1, 66.9]),
        independent: None,
        zoom: 60.0 / 90.0,
    },
    NetworkRow {
        name: "bireal18",
        title: "ResNet-18 with a way around every convolution",
        columns: &[0, 1],
        paper: None,
        independent: None,
        zoom: 60.0 / 90.0,
    },
];

impl Rows {
    /// The data set's name.
    pub fn title(self) -> &'static str {
        match self {
            Rows::Cifar10 => "CIFAR-10",
            Rows::Imagenet => "ImageNet",
        }
    }

    /// How many classes it has.
    pub fn classes(self) -> usize {
        match self {
            Rows::Cifar10 => 10,
            Rows::Imagenet => 1000,
        }
    }

    /// How many examples it has to learn from and to measure by.
    pub fn examples(self) -> [u64; 2] {
        match self {
            Rows::Cifar10 => [50_000, 10_000],
            Rows::Imagenet => [1_281_167, 50_000],
        }
    }

    /// Its networks, from top to bottom.
    pub fn networks(self) -> &'static [NetworkRow] {
        match self {
            Rows::Cifar10 => &CIFAR10,
            Rows::Imagenet => &IMAGENET,
        }
    }

    /// All its cells, row by row.
    pub fn cells(self) -> Vec<Cell> {
        let networks = self.networks().iter();
        networks.flat_map(|network| network.columns.iter().map(move |&column| Cell { network, column })).collect()
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its row.
    pub network: &'static NetworkRow,
    /// Its place in [`COLUMNS`].
    pub column: usize,
}

/// What is the same for all runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the data is.
    pub data: Option<PathBuf>,
    /// Seeds 1 to this for each cell.
    pub seeds: u32,
    /// Instead of the recipe's, with the schedule scaled to fit.
    pub epochs: Option<u32>,
    /// What is held out of the training part.
    pub validation: f64,
    /// Where to train.
    pub device: DeviceChoice,
    /// Of the CPU; 0 for one a core.
    pub threads: usize,
    /// Whether to look into the hard layers.
    pub diagnostics: bool,
    /// `KEY=VALUE` for every recipe.
    pub settings: Vec<String>,
}

impl Cell {
    /// As its recipe: `convnet8-sign-ftpsh`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.network.name, COLUMNS[self.column].ending)
    }

    /// What the paper says, in percent, if it has this network.
    pub fn paper(&self) -> Option<f64> {
        self.network.paper.map(|paper| paper[self.column])
    }

    /// The runs of this cell, one for each of these seeds, in `out/runs/CELL/seed-N`.
    pub fn jobs(&self, plan: &Plan, seeds: impl IntoIterator<Item = u32>, out: &Path) -> Result<Vec<Job>, Error> {
        let name = self.name();
        let file = format!("the built-in recipe {name}.toml");
        let mut layers = Recipe::defaults()?.text(&file, built_in(&name).expect("every cell has a recipe"))?;
        for setting in &plan.settings {
            layers = layers.set(setting)?;
        }
        let mut recipe: Recipe = layers.build()?;
        if let Some(path) = &plan.data {
            recipe.data.locate(path)?;
        }
        recipe.data.validation = plan.validation;
        recipe.train.device = plan.device;
        recipe.train.threads = plan.threads;
        recipe.train.diagnostics |= plan.diagnostics;
        if let Some(epochs) = plan.epochs {
            recipe = recipe.scaled(epochs);
        }
        let job = |seed: u32| {
            let mut recipe = recipe.clone();
            recipe.train.seed = u64::from(seed);
            Ok(Job { recipe: recipe.checked()?, folder: self.folder(out).join(format!("seed-{seed}")) })
        };
        seeds.into_iter().map(job).collect()
    }

    fn folder(&self, out: &Path) -> PathBuf {
        out.join("runs").join(self.name())
    }

    /// The seeds that `out` has a run of, whoever asked for them, in their order.
    fn seeds_in(&self, out: &Path) -> Vec<u32> {
        let entries = std::fs::read_dir(self.folder(out)).into_iter().flatten().flatten();
        let runs = entries.filter(|entry| entry.path().join("recipe.toml").exists());
        let mut seeds: Vec<u32> = runs
            .filter_map(|entry| {
                let name = entry.file_name();
                let number = name.to_str()?.strip_prefix("seed-")?;
                // `seed-07` would be another folder than that of seed 7.
                number.parse().ok().filter(|seed: &u32| seed.to_string() == number)
            })
            .collect();
        seeds.sort_unstable();
        seeds
    }
}

/// What a report on `out` has to show: the cells that are asked for, with the plan's seeds, and whatever else of these rows was
/// run there, so that asking for less never makes a smaller report of what is there. Runs that are not this plan's cannot stand
/// in the same table and are refused.
pub fn covered(rows: Rows, asked: &[Cell], plan: &Plan, out: &Path) -> Result<Vec<(Cell, Vec<Job>)>, Error> {
    let mut all = Vec::new();
    for cell in rows.cells() {
        let asked = asked.iter().any(|other| other.name() == cell.name());
        let mut seeds: Vec<u32> = if asked { (1..=plan.seeds).collect() } else { Vec::new() };
        let more: Vec<u32> = cell.seeds_in(out).into_iter().filter(|seed| !seeds.contains(seed)).collect();
        for job in cell.jobs(plan, more.iter().copied(), out)? {
            if !job.may_show(&RunFolder::open(&job.folder)?)? {
                return Err(other_study(out, job.folder));
            }
        }
        seeds.extend(more);
        if !seeds.is_empty() {
            all.push((cell, cell.jobs(plan, seeds, out)?));
        }
    }
    let jobs: Vec<Job> = all.iter().flat_map(|(_, jobs)| jobs.clone()).collect();
    check_alone(out, &jobs)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(epochs: Option<u32>) -> Plan {
        Plan {
            data: None,
            seeds: 2,
            epochs,
            validation: 0.02,
            device: DeviceChoice::Cpu,
            threads: 1,
            diagnostics: false,
            settings: Vec::new(),
        }
    }

    /// Every cell trains what its place in the table says, by its file's name and by what stands in it.
    #[test]
    fn each_cell_is_its_recipe() {
        for (rows, epochs, count) in [(Rows::Cifar10, [300, 300], 12), (Rows::Imagenet, [80, 90], 14)] {
            let cells = rows.cells();
            assert_eq!(cells.len(), count);
            for cell in cells {
                let jobs = cell.jobs(&plan(None), 1..=2, Path::new("out")).unwrap();
                let recipe = &jobs[1].recipe;
                assert_eq!(recipe.name, cell.name());
                assert_eq!(recipe.network.preset.as_deref(), Some(cell.network.name));
                let (activation, loss) = (recipe.activation.to_string(), recipe.layer_loss.to_string());
                let (known, hard) = match cell.column {
                    0 | 1 => ("sign", true),
                    // The paper gives ResNet-18 more steps.
                    2 | 3 if cell.network.name == "resnet18" => ("qrelu:5", true),
                    2 | 3 => ("qrelu:3", true),
                    4 => ("relu", false),
                    _ => ("saturated_relu", false),
                };
                assert_eq!(activation, known, "{}", cell.name());
                let known = if cell.column % 2 == 0 { "saturated_hinge" } else { "soft_hinge" };
                assert!(!hard || loss == known, "{}: {loss}", cell.name());
                let network = usize::from(["convnet8", "resnet18", "bireal18"].contains(&cell.network.name));
                assert_eq!(recipe.train.epochs, epochs[network], "{}", cell.name());
                assert_eq!((jobs.len(), recipe.train.seed), (2, 2));
                assert_eq!(jobs[1].folder, Path::new("out/runs").join(cell.name()).join("seed-2"));
            }
        }
    }

    #[test]
    fn a_quick_look_scales_the_schedule() {
        let jobs = Rows::Cifar10.cells()[0].jobs(&plan(Some(30)), [1], Path::new("out")).unwrap();
        assert_eq!(jobs[0].recipe.train.epochs, 30);
        assert_eq!(jobs[0].recipe.schedule.decay_at, [21, 26]);
    }
}
