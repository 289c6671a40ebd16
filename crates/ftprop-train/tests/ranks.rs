//! Ranks that share every batch against one that has it alone: here they are threads of one process.

use ftprop_data::{Dataset, Split};
use ftprop_nn::engine::NetworkState;
use ftprop_ranks::in_one_process;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::golden;
use ftprop_train::model::Which;
use ftprop_train::recipe::Recipe;
use ftprop_train::team::{Team, Way};
use ftprop_train::trainer::Trainer;

/// What a rank ends with: its network, and the training loss of each epoch.
#[derive(PartialEq)]
struct End {
    network: NetworkState<'static>,
    losses: Vec<f64>,
}

/// What each of so many ranks comes to, on one thread each.
fn on_ranks<T: Send>(ranks: usize, run: impl Fn(&Place) -> T + Sync) -> Vec<T> {
    let run = |team: Option<Team>| run(&Place { team, ..Place::open(DeviceChoice::Cpu, 1).unwrap() });
    if ranks == 1 {
        return vec![run(None)];
    }
    std::thread::scope(|scope| {
        let start = |group| {
            let run = &run;
            scope.spawn(move || run(Some(Team::new(group, Way::Auto))))
        };
        let threads: Vec<_> = in_one_process(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What each of so many ranks ends with.
fn trained(recipe: &Recipe, dataset: &Dataset, ranks: usize) -> Vec<End> {
    on_ranks(ranks, |place| {
        let mut trainer = Trainer::new(recipe.clone().checked().unwrap(), dataset, place).unwrap();
        trainer.run(&mut ()).unwrap();
        assert!(trainer.state().step >= 100, "{} steps", trainer.state().step);
        let losses = trainer.metrics().iter().map(|epoch| epoch.train.loss).collect();
        End { network: trainer.network(Which::Last).unwrap(), losses }
    })
}

#[test]
fn ranks_compute_what_pytorch_does() {
    for case in golden::built_in().unwrap() {
        // Three ranks have unequal parts, and of a batch of two one has none.
        for ranks in [2, 3] {
            for outcome in on_ranks(ranks, |place| place.cpu.enter(|| case.run(place)).unwrap()) {
                assert!(outcome.largest_error <= case.tolerance, "{} with {ranks} ranks: {outcome:?}", case.name);
            }
        }
    }
}

fn apart(a: &[f32], b: &[f32]) -> f64 {
    let squares = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    squares(&mut a.iter().zip(b).map(|(x, y)| x - y)) / squares(&mut a.iter().copied())
}

/// A recipe for the digits: its activation, its settings of training and its layers.
fn recipe(activation: &str, train: &str, layers: &str) -> Recipe {
    let text = format!(
        "name = \"ranks\"\nactivation = \"{activation}\"\nlayer_loss = \"soft_hinge\"\n[data]\nsource = \"digits\"\npad = 1\n\
         random_crop = true\n[optimizer]\nname = \"sgd\"\nlr = 0.02\nmomentum = 0.9\n[train]\nepochs = 3\nbatch = 33\n{train}\n\
         [network]\nlayers = [{layers}]\n"
    );
    Recipe::from_toml("ranks", &text).unwrap()
}

const PLAIN: &str = r#"
    { kind = "conv", out = 8, kernel = 3, pad = 1 }, { kind = "act" }, { kind = "max_pool", kernel = 2, stride = 2 },
    { kind = "conv", out = 16, kernel = 3, pad = 1 }, { kind = "act" }, { kind = "dropout", p = 0.2 }, { kind = "fc" },
"#;

/// Norms of maps and of units, in a block with a norm on each of its paths.
const NORMED: &str = r#"
    { kind = "conv", out = 8, kernel = 3, pad = 1 }, { kind = "batch_norm" }, { kind = "act" },
    { kind = "residual", main = [
        { kind = "conv", out = 12, kernel = 3, pad = 1, stride = 2 }, { kind = "batch_norm" }, { kind = "act" },
        { kind = "conv", out = 12, kernel = 3, pad = 1 }, { kind = "batch_norm" },
    ], shortcut = [{ kind = "conv", out = 12, kernel = 1, stride = 2 }, { kind = "batch_norm" }] },
    { kind = "act" }, { kind = "fc", out = 20 }, { kind = "batch_norm" }, { kind = "act" }, { kind = "fc" },
"#;

/// The same without anything that has a kink, past which rounding could carry a number and all that follows.
fn smooth() -> String {
    NORMED.replace(r#"{ kind = "act" },"#, "")
}

/// Digits, so many of them that the last batch of 33 has two.
fn digits() -> Dataset {
    let dataset = Recipe::built_in("digits").unwrap().into_recipe().data.open().unwrap();
    let keep: Vec<u32> = (0..(dataset.train.len() / 33 * 33 - 31) as u32).collect();
    Dataset { train: dataset.train.select(&keep).unwrap(), ..dataset }
}

/// After 100 steps and more, with a batch at the end of each epoch of which two ranks of four have nothing.
#[test]
fn ranks_agree_with_one_that_has_the_batch_alone() {
    let dataset = digits();
    assert_eq!(dataset.train.len() % 33, 2);
    for (name, recipe) in [
        ("plain", recipe("relu", "", PLAIN)),
        ("plain, several batches a step", recipe("relu", "accumulate = 3", PLAIN)),
        ("norms", recipe("relu", "sync_norm = true", &smooth())),
        ("norms, averaged", recipe("relu", "sync_norm = true\nema = 0.99", &smooth())),
        ("norms, several batches a step", recipe("relu", "sync_norm = true\naccumulate = 2", &smooth())),
    ] {
        let one = &trained(&recipe, &dataset, 1)[0].network;
        for ranks in [2, 3, 4] {
            let all = trained(&recipe, &dataset, ranks);
            assert!(all.iter().all(|rank| *rank == all[0]), "{name}: ranks differ among each other");
            assert!(all == trained(&recipe, &dataset, ranks), "{name}: other bytes in a second run");
            let other = &all[0].network;
            let values = apart(&one.values, &other.values);
            let statistics = if one.statistics.is_empty() { 0.0 } else { apart(&one.statistics, &other.statistics) };
            println!("{name}, {ranks} ranks: {values:.1e} {statistics:.1e}");
            assert!(values < 1e-3 && statistics < 1e-3, "{name}, {ranks} ranks: {values:.1e} {statistics:.1e}");
        }
        if recipe.train.sync_norm {
            let mut own = recipe.clone();
            own.train.sync_norm = false;
            let own = apart(&one.values, &trained(&own, &dataset, 2)[0].network.values);
            assert!(own > 1e-2, "{name}: {own:.1e} with norms of each rank's own");
        }
    }
}

/// Behind a threshold a number that was rounded otherwise may be another one, so what is compared is how well they learn.
#[test]
fn ranks_learn_what_one_learns_behind_thresholds() {
    let dataset = digits();
    for recipe in [recipe("sign", "", PLAIN), recipe("sign", "sync_norm = true", NORMED)] {
        let one = &trained(&recipe, &dataset, 1)[0].losses;
        for ranks in [2, 4] {
            let all = trained(&recipe, &dataset, ranks);
            assert!(all == trained(&recipe, &dataset, ranks), "other bytes in a second run");
            for (one, other) in one.iter().zip(&all[0].losses) {
                assert!((other / one - 1.0).abs() < 0.02, "{ranks} ranks: {:?} for {one:?}", all[0].losses);
            }
        }
    }
}

/// Epochs of other sizes have engines of their own, which the ranks share batches on as well.
#[test]
fn sizes_change_on_all_ranks_at_once() {
    let text = "name = \"sizes\"\nactivation = \"relu\"\n[data]\nflip = true\nrandom_crop = true\nsizes = [[1, 6], [2, 9], [3, 12]]\n\
                [optimizer]\nname = \"sgd\"\nlr = 0.02\n[train]\nepochs = 5\nbatch = 2\nsync_norm = true\n[network]\nlayers = [\
                { kind = \"conv\", out = 6, kernel = 3 }, { kind = \"batch_norm\" }, { kind = \"avg_pool\" }, { kind = \"fc\" }]\n";
    let recipe = Recipe::from_toml("sizes", text).unwrap();
    let pictures: Vec<(usize, usize)> = (0..41).map(|i| (16 + i % 5, 16 + i % 3)).collect();
    let bytes: usize = pictures.iter().map(|(height, width)| height * width * 3).sum();
    let random = ftprop_tensor::random::Stream::numbered(4);
    let bytes: Vec<u8> = (0..bytes).map(|i| random.below(i as u64, 256) as u8).collect();
    let window = ftprop_data::Shape::new(12, 12, 3);
    let train = Split::from_pictures(&pictures, bytes, (0..41).map(|i| i % 3).collect(), window).unwrap();
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
    let (one, two) = (&trained(&recipe, &dataset, 1)[0], &trained(&recipe, &dataset, 2)[0]);
    let error = apart(&one.network.values, &two.network.values);
    assert!(error < 1e-3, "{error:.1e}");
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    let dataset = digits();
    for (settings, part) in [("mixup = 0.2", "train.mixup"), ("cutmix = 1.0", "train.cutmix")] {
        let recipe = recipe("sign", settings, PLAIN).checked().unwrap();
        let group = in_one_process(2).swap_remove(0);
        let team = Some(Team::new(group, Way::Auto));
        let place = Place { team, ..Place::open(DeviceChoice::Cpu, 1).unwrap() };
        let refused = Trainer::new(recipe, &dataset, &place).err().unwrap().to_string();
        assert!(refused.contains(part) && refused.contains("single rank"), "{refused}");
    }
}
