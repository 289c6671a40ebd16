//! Settings of training that change what a step is: mixed examples, weights of classes, steps of several batches, rates
//! that are cut on a plateau.

use ftprop_nn::{Activation, OptimizerSpec, ScheduleKind};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::class_weights::{ByCount, ClassWeights};
use ftprop_train::device::Place;
use ftprop_train::model::Which;
use ftprop_train::observe::{Answer, Ending, Observer, RunView, StepReport};
use ftprop_train::recipe::Recipe;
use ftprop_train::run::RunFolder;
use ftprop_train::trainer::Trainer;
use std::ops::ControlFlow;
use std::path::PathBuf;

fn digits(change: impl Fn(&mut Recipe)) -> Recipe {
    let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
    recipe.train.epochs = 2;
    change(&mut recipe);
    recipe
}

fn trained(recipe: Recipe) -> Trainer {
    let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
    let dataset = recipe.data.open().unwrap();
    let mut trainer = Trainer::new(recipe.checked().unwrap(), &dataset, &place).unwrap();
    trainer.run(&mut ()).unwrap();
    trainer
}

fn values(trainer: &Trainer) -> Vec<f32> {
    trainer.network(Which::Last).unwrap().values.into_owned()
}

#[test]
fn two_batches_make_the_step_of_one_twice_as_large() {
    let recipe = |batch: usize, accumulate: usize| {
        digits(|recipe| {
            (recipe.activation, recipe.optimizer) = (Activation::Relu, OptimizerSpec::sgd(0.05, 0.9).unwrap());
            (recipe.network.preset, recipe.network.widths) = (Some("mlp".into()), vec![20]);
            // Layers of a file's network do not go with a preset.
            recipe.network.layers.clear();
            recipe.schedule.kind = ScheduleKind::Constant;
            (recipe.train.batch, recipe.train.accumulate) = (batch, accumulate);
        })
    };
    let (whole, parts, other) = (trained(recipe(64, 1)), trained(recipe(32, 2)), trained(recipe(32, 1)));
    let apart = |a: &Trainer, b: &Trainer| {
        let (a, b) = (values(a), values(b));
        let squares = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        squares(&mut a.iter().zip(&b).map(|(x, y)| x - y)) / squares(&mut a.iter().copied())
    };
    assert!(apart(&whole, &parts) < 1e-4, "{}", apart(&whole, &parts));
    assert!(apart(&whole, &other) > 1e-2, "{}", apart(&whole, &other));
}

/// Has enough after so many reports of steps.
struct Stop(usize);

impl Observer for Stop {
    fn step(&mut self, _: &RunView<'_>, _: &StepReport) -> Answer {
        self.0 = self.0.saturating_sub(1);
        Ok(if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[test]
fn an_interrupted_run_ends_with_the_same_bytes_whatever_a_step_is() {
    let temp = std::env::temp_dir().join(format!("ftprop-settings-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&temp);
    let plateau = |recipe: &mut Recipe| {
        recipe.data.validation = 0.2;
        recipe.schedule.kind = ScheduleKind::Plateau;
        (recipe.schedule.patience, recipe.schedule.factor, recipe.train.epochs) = (1, 0.5, 4);
    };
    type Settings<'a> = (&'a str, &'a dyn Fn(&mut Recipe));
    let changes: [Settings<'_>; 5] = [
        ("mixed", &|r| (r.train.mixup, r.train.cutmix) = (0.4, 1.0)),
        ("weighted", &|r| r.train.class_weights = Some(ClassWeights::ByCount(ByCount::Balanced))),
        ("accumulated", &|r| r.train.accumulate = 3),
        ("trivially augmented", &|r| r.data.trivial_augment = true),
        ("plateau", &plateau),
    ];
    let plain = values(&trained(digits(|_| {})));
    for (name, change) in changes {
        let recipe = digits(change);
        let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
        let dataset = recipe.data.open().unwrap();
        let recipe = recipe.checked().unwrap();
        let run = |folder: PathBuf, stops: &[usize]| {
            let mut folder = RunFolder::planned(&folder).unwrap();
            for &stop in stops {
                let mut trainer = Trainer::in_folder(recipe.clone(), folder.clone(), &dataset, &place).unwrap();
                let ending = trainer.run(&mut Stop(stop)).unwrap();
                assert!(matches!(ending, Ending::Interrupted { .. }), "{name}: {ending:?}");
                folder = RunFolder::open(folder.path()).unwrap();
            }
            let mut trainer = Trainer::in_folder(recipe.clone(), folder.clone(), &dataset, &place).unwrap();
            assert!(matches!(trainer.run(&mut ()).unwrap(), Ending::Finished(_)));
            let rates: Vec<f64> = trainer.metrics().iter().map(|m| m.learning_rate).collect();
            (std::fs::read(folder.checkpoint()).unwrap(), rates, values(&trainer))
        };
        let (alone, stopped) = (run(temp.join(name), &[]), run(temp.join(format!("{name}-stopped")), &[2, 3, 5]));
        assert!(alone == stopped, "{name}: another network after being stopped");
        if name != "plateau" {
            assert!(alone.2 != plain, "{name} changed nothing");
        }
    }
    std::fs::remove_dir_all(&temp).unwrap();
}

#[test]
fn a_plateau_lowers_the_rate() {
    let recipe = digits(|recipe| {
        // Nothing is learned, and there are no norms that take statistics, so no epoch is better than the first.
        (recipe.network.preset, recipe.network.widths) = (Some("mlp".into()), vec![20]);
        recipe.network.layers.clear();
        recipe.data.validation = 0.2;
        recipe.optimizer = OptimizerSpec::sgd(1e-30, 0.0).unwrap();
        recipe.schedule.kind = ScheduleKind::Plateau;
        (recipe.schedule.patience, recipe.schedule.factor, recipe.train.epochs) = (2, 0.1, 6);
    });
    let rates: Vec<f64> = trained(recipe).metrics().iter().map(|m| m.learning_rate / 1e-30).collect();
    let expected = [1.0, 1.0, 1.0, 0.1, 0.1, 0.01];
    assert!(rates.iter().zip(expected).all(|(got, e)| (got / e - 1.0).abs() < 1e-9), "{rates:?}");
}

/// What a plateau decided before it was changed stays, also where the run is ended and taken up again after it.
#[test]
fn a_plateau_that_changes_goes_on_from_its_rate() {
    let temp = std::env::temp_dir().join(format!("ftprop-plateau-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&temp);
    let recipe = |epochs: u32, kind: ScheduleKind, factor: f64| {
        digits(|recipe| {
            (recipe.network.preset, recipe.network.widths) = (Some("mlp".into()), vec![20]);
            recipe.network.layers.clear();
            recipe.data.validation = 0.2;
            // Nothing is learned, so no epoch is better than the first.
            recipe.optimizer = OptimizerSpec::sgd(1e-30, 0.0).unwrap();
            (recipe.schedule.kind, recipe.schedule.factor, recipe.train.epochs) = (kind, factor, epochs);
            recipe.schedule.patience = if kind == ScheduleKind::Plateau { 1 } else { 5 };
        })
    };
    let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
    let dataset = recipe(1, ScheduleKind::Constant, 0.1).data.open().unwrap();
    let go_on = |name: &str, recipe: Recipe, reports: usize| {
        let (path, recipe) = (temp.join(name), recipe.checked().unwrap());
        let mut trainer = match RunFolder::open(&path) {
            Ok(folder) => Trainer::with_changes(recipe, folder, &dataset, &place).unwrap(),
            Err(_) => Trainer::in_folder(recipe, RunFolder::planned(&path).unwrap(), &dataset, &place).unwrap(),
        };
        trainer.run(&mut Stop(reports)).unwrap();
        trainer.metrics().iter().map(|m| m.learning_rate / 1e-30).collect::<Vec<f64>>()
    };
    let (plateau, constant) = (ScheduleKind::Plateau, ScheduleKind::Constant);
    let near = |rates: Vec<f64>, expected: &[f64]| {
        let same = rates.len() == expected.len() && rates.iter().zip(expected).all(|(r, e)| (r / e - 1.0).abs() < 1e-9);
        assert!(same, "{rates:?} for {expected:?}");
    };
    go_on("cut", recipe(3, plateau, 0.5), usize::MAX);
    // Ended within its first epoch and once more in the next one.
    go_on("cut", recipe(6, plateau, 0.1), 2);
    go_on("cut", recipe(6, plateau, 0.1), 30);
    near(go_on("cut", recipe(6, plateau, 0.1), usize::MAX), &[1.0, 1.0, 0.5, 0.25, 0.025, 0.0025]);
    go_on("begun", recipe(3, constant, 0.1), usize::MAX);
    near(go_on("begun", recipe(6, plateau, 0.5), usize::MAX), &[1.0, 1.0, 1.0, 1.0, 1.0, 0.5]);
    std::fs::remove_dir_all(&temp).unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let refused = |change: &dyn Fn(&mut Recipe)| {
        let recipe = digits(change);
        let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
        let dataset = recipe.data.open().unwrap();
        let trainer = recipe.checked().and_then(|recipe| Trainer::new(recipe, &dataset, &place));
        trainer.err().expect("refused").to_string()
    };
    let hinge = || "multi_hinge".parse().unwrap();
    for (change, words) in [
        ((&|r: &mut Recipe| r.train.accumulate = 0) as &dyn Fn(&mut Recipe), "train.accumulate"),
        (&|r| (r.train.accumulate, r.train.diagnostics) = (2, true), "train.diagnostics"),
        (&|r| r.train.mixup = -1.0, "mixup must be between 0 and 100"),
        (&|r| r.train.cutmix = f64::NAN, "cutmix must be between 0 and 100"),
        (&|r| (r.train.mixup, r.train.loss) = (0.2, hinge()), "go with cross_entropy"),
        (&|r| r.train.class_weights = Some(ClassWeights::Each(vec![1.0; 3])), "3 weights of classes"),
        (&|r| r.train.class_weights = Some(ClassWeights::Each(vec![-1.0; 10])), "must be 0 or more"),
        (&|r| r.train.class_weights = Some(ClassWeights::Each(vec![0.0; 10])), "nothing would be learned"),
        (&|r| r.schedule.kind = ScheduleKind::Plateau, "data.validation"),
        (&|r| r.schedule.patience = 2, "schedule.patience"),
    ] {
        let said = refused(change);
        assert!(said.contains(words), "{said}");
    }
}
