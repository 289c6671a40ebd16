use super::*;
use crate::choice::DeviceChoice;
use crate::observe::StepReport;

#[test]
fn runs_pause_for_one_who_wants_to_be_alone() {
    let temp = std::env::temp_dir().join(format!("ftprop-pause-{}", std::process::id()));
    let gate = Arc::new(Gate::default());
    let train = |name: &str, seed: u64, gate: Option<Arc<Gate>>| {
        let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
        (recipe.train.epochs, recipe.train.seed) = (1, seed);
        // Each with threads of its own, as runs on a GPU have.
        let (place, dataset) = (Place::open(DeviceChoice::Cpu, 1).unwrap(), recipe.data.open().unwrap());
        let folder = RunFolder::planned(&temp.join(name)).unwrap();
        let recipe = recipe.checked().unwrap();
        let mut trainer = Trainer::in_folder(recipe, folder.clone(), &dataset, &place).unwrap();
        trainer.gate = gate;
        let ending = trainer.run(&mut ()).unwrap();
        assert!(matches!(ending, Ending::Finished(_)), "{ending:?}");
        std::fs::read(folder.checkpoint()).unwrap()
    };
    let turns = || Some(gate.clone());
    let mut alone = 0;
    let paused = std::thread::scope(|scope| {
        let runs = [scope.spawn(|| train("a", 1, turns())), scope.spawn(|| train("b", 2, turns()))];
        while !runs.iter().any(|run| run.is_finished()) {
            let _alone = gate.alone();
            std::thread::sleep(Duration::from_millis(5));
            alone += 1;
        }
        runs.map(|run| run.join().unwrap())
    });
    assert!(alone > 3, "alone {alone} times while two runs went on");
    assert!(paused == [train("c", 1, None), train("d", 2, None)], "pausing changed what was learned");
    std::fs::remove_dir_all(&temp).unwrap();
}

fn digits(epochs: u32) -> (CheckedRecipe, Dataset, Place) {
    let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
    (recipe.train.epochs, recipe.train.diagnostics) = (epochs, true);
    let (dataset, place) = (recipe.data.open().unwrap(), Place::open(DeviceChoice::Cpu, 1).unwrap());
    (recipe.checked().unwrap(), dataset, place)
}

#[test]
fn a_run_without_a_folder_is_the_same_run() {
    let temp = std::env::temp_dir().join(format!("ftprop-memory-{}", std::process::id()));
    let (recipe, dataset, place) = digits(2);
    let folder = RunFolder::create(&temp, &recipe).unwrap();
    let mut kept = Trainer::in_folder(recipe.clone(), folder, &dataset, &place).unwrap();
    let mut memory = Trainer::new(recipe, &dataset, &place).unwrap();
    let scores = |ending: Ending| match ending {
        Ending::Finished(summary) => (summary.train, summary.test, summary.best_epoch),
        interrupted @ Ending::Interrupted { .. } => panic!("{interrupted:?}"),
    };
    assert_eq!(scores(memory.run(&mut ()).unwrap()), scores(kept.run(&mut ()).unwrap()));
    assert_eq!((memory.metrics().len(), memory.view().diagnostics.len()), (2, 3));
    assert_eq!(memory.view().diagnostics, kept.view().diagnostics);
    assert!(memory.view().folder.is_none());
    for which in [Which::Best, Which::Last] {
        let (here, there) = (memory.model(which, 1).unwrap(), kept.model(which, 1).unwrap());
        assert_eq!(here.network.values(), there.network.values(), "{which:?}");
        assert_eq!(here.info, there.info);
        for trainer in [&memory, &kept] {
            assert_eq!(&trainer.network(which).unwrap().values[..], here.network.values(), "{which:?}");
        }
        let saved = Model::load(&temp, which, place.cpu.clone(), 1).unwrap();
        assert_eq!(here.network.values(), saved.network.values(), "{which:?}");
    }
    std::fs::remove_dir_all(&temp).unwrap();
}

#[test]
fn a_run_can_begin_with_what_another_learned() {
    let (recipe, dataset, place) = digits(1);
    let mut first = Trainer::new(recipe.clone(), &dataset, &place).unwrap();
    first.run(&mut ()).unwrap();
    let learned = first.model(Which::Last, 1).unwrap().network;
    let mut second = Trainer::new(recipe, &dataset, &place).unwrap();
    let state =
        |values: &[f32]| NetworkState { values: values.to_vec().into(), statistics: learned.stats().to_vec().into() };
    second.set_network(state(learned.values())).unwrap();
    assert_eq!(second.model(Which::Last, 1).unwrap().network.values(), learned.values());
    second.run(&mut ()).unwrap();
    assert!(second.metrics()[0].train.loss < first.metrics()[0].train.loss);
    assert!(second.set_network(state(&[0.0; 3])).is_err());
}

#[test]
fn a_moving_average_begins_where_the_network_does() {
    let (recipe, dataset, place) = digits(1);
    let mut recipe = recipe.into_recipe();
    recipe.train.ema = Some(0.9);
    let mut trainer = Trainer::new(recipe.checked().unwrap(), &dataset, &place).unwrap();
    let network = trainer.engine.network().unwrap();
    let (values, statistics) = (vec![0.25; network.values.len()], network.statistics.to_vec());
    trainer.set_network(NetworkState { values: values.clone().into(), statistics: statistics.into() }).unwrap();
    assert_eq!(trainer.engine.state().unwrap().average.unwrap()[..], values[..]);
}

#[test]
fn what_thresholds_hide_from_the_loss_is_found_within_an_epoch() {
    let (recipe, dataset, place) = digits(1);
    let mut trainer = Trainer::new(recipe, &dataset, &place).unwrap();
    let network = trainer.engine.network().unwrap();
    let (mut values, statistics) = (network.values.to_vec(), network.statistics.to_vec());
    values[0] = f32::NAN;
    trainer.engine.set_network(&NetworkState { values: values.into(), statistics: statistics.into() }).unwrap();
    match trainer.run(&mut ()) {
        Err(Error::Diverged { epoch: 1, culprit, .. }) => assert!(culprit.contains('0'), "{culprit}"),
        other => panic!("{other:?}"),
    }
}

/// Has enough after so many steps, and fails after so many epochs.
struct Impatient {
    steps: usize,
    epochs: usize,
}

impl Observer for Impatient {
    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        let done = (run.state.epoch as usize - 1) * run.steps_per_epoch + step.step;
        Ok(if done >= self.steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        if run.metrics.len() >= self.epochs { Err("no paper left".into()) } else { Ok(ControlFlow::Continue(())) }
    }
}

#[test]
fn an_observer_can_stop_a_run_and_let_it_go_on() {
    let (recipe, dataset, place) = digits(2);
    let mut whole = Trainer::new(recipe.clone(), &dataset, &place).unwrap();
    whole.run(&mut ()).unwrap();
    let mut stopped = Trainer::new(recipe, &dataset, &place).unwrap();
    let steps = stopped.steps_per_epoch();
    // Within an epoch, and at its last step, after which it is still evaluated.
    for (after, at) in [(5, (1, 5)), (steps, (2, 0))] {
        match stopped.run(&mut Impatient { steps: after, epochs: 9 }).unwrap() {
            Ending::Interrupted { epoch, step } => assert_eq!((epoch, step), at),
            Ending::Finished(_) => panic!("it was not stopped after {after} steps"),
        }
    }
    let failed = stopped.run(&mut Impatient { steps: usize::MAX, epochs: 2 }).unwrap_err();
    assert_eq!(failed.to_string(), "no paper left");
    let values = |trainer: &Trainer| trainer.model(Which::Last, 1).unwrap().network.values().to_vec();
    assert!(values(&stopped) == values(&whole), "stopping changed what was learned");
}

/// What an epoch had taken before it was stopped was lost where the same trainer went on.
#[test]
fn an_epoch_takes_as_long_as_all_of_its_parts() {
    /// Takes its time over the first step, and has enough after it, or fails.
    struct Slow {
        fails: bool,
    }
    impl Observer for Slow {
        fn step(&mut self, _run: &RunView<'_>, _step: &StepReport) -> Answer {
            std::thread::sleep(Duration::from_millis(200));
            if self.fails { Err("no paper left".into()) } else { Ok(ControlFlow::Break(())) }
        }
    }
    let (recipe, dataset, place) = digits(2);
    let mut trainer = Trainer::new(recipe, &dataset, &place).unwrap();
    let mut took = 0.0;
    let mut run = |trainer: &mut Trainer, observer: &mut dyn Observer| {
        // That nothing is learned between two runs is no part of it.
        std::thread::sleep(Duration::from_millis(300));
        let started = Instant::now();
        let ended = trainer.run(observer);
        took += started.elapsed().as_secs_f64();
        ended
    };
    run(&mut trainer, &mut Slow { fails: false }).unwrap();
    run(&mut trainer, &mut Slow { fails: true }).unwrap_err();
    run(&mut trainer, &mut ()).unwrap();
    let epochs: Vec<f64> = trainer.metrics().iter().map(|epoch| epoch.seconds).collect();
    assert!(epochs[0] >= 0.4 && epochs[0] + epochs[1] <= took, "{epochs:?}, and {took} s in all");
}

/// The result of an earlier ending stood for one of the run that went on, also after that was stopped.
#[test]
fn a_run_that_goes_on_has_no_result_until_it_ends_again() {
    let temp = std::env::temp_dir().join(format!("ftprop-goes-on-{}", std::process::id()));
    let (recipe, dataset, place) = digits(1);
    let mut folder = RunFolder::create(&temp, &recipe).unwrap();
    let train = |folder: &RunFolder, epochs: u32, steps: usize| {
        let mut longer = recipe.clone().into_recipe();
        longer.train.epochs = epochs;
        let recipe = longer.checked().unwrap();
        let mut trainer = Trainer::in_folder(recipe.clone(), folder.clone(), &dataset, &place).unwrap();
        trainer.run(&mut Impatient { steps, epochs: usize::MAX }).unwrap();
        (folder.summary().unwrap().map(|summary| summary.epochs), folder.finished(&recipe).unwrap().is_some())
    };
    assert_eq!(train(&folder, 1, usize::MAX), (Some(1), true));
    assert_eq!(train(&folder, 3, 1), (None, false));
    assert_eq!(train(&folder, 3, usize::MAX), (Some(3), true));
    // Killed after the recipe was written, and before anything was learned by it.
    let summary = folder.summary().unwrap().unwrap();
    let mut longer = recipe.clone().into_recipe();
    longer.train.epochs = 4;
    folder.write_recipe(&longer).unwrap();
    assert_eq!(folder.summary().unwrap(), None);
    // Nor is one that an older version left behind the result of what came after it.
    folder.write_summary(&Summary { epochs: 2, ..summary }).unwrap();
    let mut shorter = recipe.clone().into_recipe();
    shorter.train.epochs = 2;
    assert_eq!(folder.finished(&shorter).unwrap(), None);
    assert_eq!(train(&folder, 3, usize::MAX), (Some(3), true));
    std::fs::remove_dir_all(&temp).unwrap();
}

/// Photographs in memory, and a network that does not mind their size.
fn photographs(sizes: &str) -> (CheckedRecipe, Dataset, Place) {
    let text = format!(
        "name = \"sizes\"\n[data]\nflip = true\nrandom_crop = true\nsizes = {sizes}\n[train]\nepochs = 4\nbatch = 8\nema = 0.9\n\
         [[network.layers]]\nkind = \"conv\"\nout = 6\nkernel = 3\n[[network.layers]]\nkind = \"batch_norm\"\n\
         [[network.layers]]\nkind = \"act\"\n[[network.layers]]\nkind = \"avg_pool\"\n[[network.layers]]\nkind = \"fc\"\n"
    );
    let recipe = Recipe::from_toml("sizes", &text).unwrap();
    let random = ftprop_tensor::random::Stream::numbered(4);
    let pictures: Vec<(usize, usize)> = (0..40).map(|i| (16 + i % 5, 16 + i % 3)).collect();
    let bytes: usize = pictures.iter().map(|(height, width)| height * width * 3).sum();
    let bytes: Vec<u8> = (0..bytes).map(|i| random.below(i as u64, 256) as u8).collect();
    let labels = (0..40).map(|i| i % 3).collect();
    let window = ftprop_data::Shape::new(12, 12, 3);
    let train = Split::from_pictures(&pictures, bytes, labels, window).unwrap();
    let dataset = Dataset {
        name: "photographs".into(),
        shape: window,
        classes: ["a", "b", "c"].map(String::from).to_vec(),
        normalize: ftprop_data::Normalize::imagenet(),
        test: train.select(&[0, 5, 9, 14]).unwrap(),
        train,
        passed_over: Default::default(),
        table: None,
    };
    (recipe.checked().unwrap(), dataset, Place::open(DeviceChoice::Cpu, 1).unwrap())
}

#[test]
fn sizes_change_with_the_epochs_and_a_resumed_run_ends_with_the_same_bytes() {
    let temp = std::env::temp_dir().join(format!("ftprop-sizes-{}", std::process::id()));
    let (recipe, dataset, place) = photographs("[[1, 6], [3, 9], [4, 12]]");
    let train = |name: &str, recipe: &CheckedRecipe, stops: &[usize]| {
        let folder = temp.join(name);
        RunFolder::create(&folder, recipe).unwrap();
        for steps in stops.iter().copied().chain([usize::MAX]) {
            let opened = RunFolder::open(&folder).unwrap();
            let mut trainer = Trainer::in_folder(recipe.clone(), opened, &dataset, &place).unwrap();
            trainer.run(&mut Impatient { steps, epochs: usize::MAX }).unwrap();
        }
        std::fs::read(RunFolder::open(&folder).unwrap().checkpoint()).unwrap()
    };
    let whole = train("whole", &recipe, &[]);
    // Within an epoch of the first size, at its end, and within one of the second.
    assert!(whole == train("stopped", &recipe, &[3, 10, 12]), "a resumed run is another one");
    let (plain, ..) = photographs("[]");
    assert!(whole != train("plain", &plain, &[]), "sizes made no difference");
    std::fs::remove_dir_all(&temp).unwrap();
}

#[test]
fn sizes_are_for_networks_that_do_not_mind() {
    let (recipe, dataset, place) = photographs("[[1, 6]]");
    let mut other = recipe.clone().into_recipe();
    other.network.layers.retain(|layer| !matches!(layer, ftprop_nn::LayerSpec::AvgPool { .. }));
    let refused = Trainer::new(other.checked().unwrap(), &dataset, &place).err().unwrap();
    assert!(refused.to_string().starts_with("data.sizes needs a network"), "{refused}");
    for wrong in [vec![(0, 6)], vec![(2, 6), (2, 8)], vec![(1, 0)]] {
        let mut recipe = recipe.clone().into_recipe();
        recipe.data.sizes = wrong;
        assert!(recipe.checked().unwrap_err().to_string().starts_with("data.sizes"));
    }
    let mut long = recipe.into_recipe();
    (long.train.epochs, long.data.sizes) = (90, vec![(1, 6), (31, 8), (61, 10), (62, 12)]);
    assert_eq!(long.scaled(9).data.sizes, [(1, 6), (4, 8), (7, 12)]);
    assert_eq!((long.data.side_at(30), long.data.side_at(31), long.data.side_at(90)), (Some(6), Some(8), Some(12)));
}

/// The norms of the first layer's weights after each epoch.
#[derive(Default)]
struct Norms(Vec<f32>);

impl Observer for Norms {
    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        let first = run.learned.graph().parameters()[0].range.clone();
        let weights = &run.learned.network()?.values[first];
        self.0.push(weights.iter().map(|w| w * w).sum::<f32>().sqrt());
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
fn an_observer_can_look_at_the_network() {
    let (recipe, dataset, place) = digits(2);
    let mut trainer = Trainer::new(recipe, &dataset, &place).unwrap();
    let mut norms = Norms::default();
    trainer.run(&mut norms).unwrap();
    let first = trainer.engine.graph().parameters()[0].range.clone();
    let last = trainer.engine.network().unwrap().values[first].iter().map(|w| w * w).sum::<f32>().sqrt();
    assert!(norms.0.len() == 2 && norms.0[0] != norms.0[1] && norms.0[1] == last, "{:?} and {last}", norms.0);
}
