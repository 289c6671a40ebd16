use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    activation: Activation,
    train: Train,
    schedule: Schedule,
    network: Network,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Activation {
    Sign,
    Relu,
    Qrelu,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Train {
    epochs: u32,
    seed: u64,
    rate: f32,
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
enum Schedule {
    Step { decay_at: Vec<u32>, factor: f32 },
    Cosine { warm_up: u32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    layers: Vec<Layer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    width: u32,
    activation: Option<Activation>,
}

fn defaults() -> Recipe {
    Recipe {
        activation: Activation::Relu,
        train: Train { epochs: 20, seed: 1, rate: 0.1, note: None },
        schedule: Schedule::Step { decay_at: vec![10], factor: 0.1 },
        network: Network { layers: vec![Layer { width: 8, activation: None }; 2] },
    }
}

fn layers() -> Layers {
    Layers::new(&defaults()).unwrap()
}

fn build(layers: Layers) -> Recipe {
    layers.build().unwrap()
}

/// The message of the error that `layers` ends in, which must be one line.
fn message(layers: Result<Layers, ConfigError>) -> String {
    let message = layers.and_then(|layers| layers.build::<Recipe>()).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn defaults_survive_untouched() {
    assert_eq!(build(layers()), defaults());
}

#[test]
fn later_layers_win_and_leave_the_other_keys_alone() {
    let file = "activation = 'sign'\ntrain = { epochs = 5, seed = 2 }";
    let with_file = layers().text("a.toml", file).unwrap();
    assert_eq!(build(with_file.clone()).train, Train { epochs: 5, seed: 2, rate: 0.1, note: None });
    let with_set = with_file.set("train.epochs=7").unwrap().set("train.epochs = 8").unwrap();
    assert_eq!(build(with_set.clone()).train, Train { epochs: 8, seed: 2, rate: 0.1, note: None });
    let with_flag = with_set.flag("--epochs", "train.epochs", 9).unwrap();
    assert_eq!(build(with_flag.clone()).train, Train { epochs: 9, seed: 2, rate: 0.1, note: None });
    assert_eq!(build(with_flag).activation, Activation::Sign);
}

#[test]
fn lists_replace_and_tables_merge() {
    let set = layers().set("schedule.decay_at=[200,250]").unwrap();
    assert_eq!(build(set).schedule, Schedule::Step { decay_at: vec![200, 250], factor: 0.1 });
    let set = layers().set("train={ epochs = 3 }").unwrap();
    assert_eq!(build(set).train, Train { epochs: 3, ..defaults().train });
}

#[test]
fn another_kind_replaces_its_table() {
    let cosine = Schedule::Cosine { warm_up: 5 };
    let file = "schedule = { name = 'cosine', warm_up = 5 }";
    assert_eq!(
        message(layers().text("r.toml", file)),
        "the built-in defaults: unknown key `schedule.decay_at`; known are warm_up"
    );
    let kinds = || layers().kinds(&["schedule.name"]);
    assert_eq!(build(kinds().text("r.toml", file).unwrap()).schedule, cosine);
    let set = kinds().set("schedule.name=cosine").unwrap().set("schedule.warm_up=5").unwrap();
    assert_eq!(build(set).schedule, cosine);
    let other_order = kinds().set("schedule.warm_up=5").unwrap().set("schedule.name=cosine").unwrap();
    assert_eq!(build(other_order).schedule, cosine);
    let incomplete = kinds().set("schedule.name=cosine");
    assert_eq!(message(incomplete), "the setting schedule.name=cosine: the key `schedule.warm_up` is missing");
    let same_kind = kinds().text("r.toml", "schedule = { name = 'step', factor = 0.5 }").unwrap();
    assert_eq!(build(same_kind).schedule, Schedule::Step { decay_at: vec![10], factor: 0.5 });
}

#[test]
fn set_takes_toml_and_falls_back_to_a_string() {
    assert_eq!(build(layers().set("activation=sign").unwrap()).activation, Activation::Sign);
    assert_eq!(build(layers().set("activation=\"sign\"").unwrap()).activation, Activation::Sign);
    let note = |argument| build(layers().set(argument).unwrap()).train.note.unwrap();
    assert_eq!(note("train.note=a = b, c"), "a = b, c");
    assert_eq!(note("train.note="), "");
    assert_eq!(build(layers().set("train.rate=1e-3").unwrap()).train.rate, 1e-3);
    assert_eq!(build(layers().set("train.rate=1").unwrap()).train.rate, 1.0);
}

#[test]
fn set_reaches_into_lists() {
    let set = layers().set("network.layers.1.activation=sign").unwrap();
    let expected = [None, Some(Activation::Sign)];
    assert_eq!(build(set).network.layers.iter().map(|layer| layer.activation).collect::<Vec<_>>(), expected);
    assert_eq!(
        message(layers().set("network.layers.2.activation=sign")),
        "the setting network.layers.2.activation=sign: `network.layers.2`: the list has 2 entries, numbered 0 to 1"
    );
}

#[test]
fn an_unknown_key_names_its_place_and_the_nearest_known_one() {
    assert_eq!(
        message(layers().text("r.toml", "activation = 'sign'\n\n[train]\nepochs = 3\nsede = 4\n")),
        "r.toml:5: unknown key `train.sede`; did you mean `train.seed`?"
    );
    assert_eq!(
        message(layers().set("activatoin=sign")),
        "the setting activatoin=sign: unknown key `activatoin`; did you mean `activation`?"
    );
    assert_eq!(
        message(layers().set("epochs=sign")),
        "the setting epochs=sign: unknown key `epochs`; did you mean `train.epochs`?"
    );
    assert_eq!(
        message(layers().set("train.colour=blue")),
        "the setting train.colour=blue: unknown key `train.colour`; known are epochs, seed, rate, note"
    );
    assert_eq!(
        message(layers().text("r.toml", "[[network.layers]]\nwidth = 1\n[[network.layers]]\nwdth = 2")),
        "r.toml:4: unknown key `network.layers.1.wdth`; did you mean `network.layers.1.width`?"
    );
    assert_eq!(
        message(layers().set("schedule.facter=1")),
        "the setting schedule.facter=1: unknown key `schedule.facter`; did you mean `schedule.factor`?"
    );
}

#[test]
fn a_wrong_type_names_the_key_and_what_was_expected() {
    assert_eq!(
        message(layers().set("train.epochs=many")),
        "the setting train.epochs=many: `train.epochs`: invalid type: string \"many\", \
         expected a whole number that is not negative"
    );
    assert_eq!(
        message(layers().flag("--epochs", "train.epochs", -1)),
        "--epochs: `train.epochs`: invalid value: integer `-1`, expected a whole number that is not negative"
    );
    assert_eq!(
        message(layers().text("r.toml", "\n[train]\nrate = true")),
        "r.toml:3: `train.rate`: invalid type: boolean `true`, expected a number"
    );
    assert_eq!(
        message(layers().set("activation=sing")),
        "the setting activation=sing: `activation` cannot be `sing`; did you mean `sign`?"
    );
    assert_eq!(
        message(layers().set("train=3")),
        "the setting train=3: `train`: invalid type: integer `3`, expected a table of keys"
    );
}

#[test]
fn a_missing_key_is_named_in_full() {
    assert_eq!(
        message(layers().text("r.toml", "[[network.layers]]\nactivation = 'sign'")),
        "r.toml:1: the key `network.layers.0.width` is missing"
    );
}

#[test]
fn bad_syntax_gives_line_and_column() {
    let error = message(layers().text("r.toml", "activation = 'sign'\n[train]\nepochs = = 3\n"));
    assert!(error.starts_with("r.toml:3:10: "), "{error}");
    let error = message(layers().text("r.toml", "[train]\nepochs = 1\nepochs = 2\n"));
    assert!(error.starts_with("r.toml:3:1: duplicate key"), "{error}");
    let error = message(layers().set("schedule.decay_at=[1,"));
    assert!(error.starts_with("the setting schedule.decay_at=[1,: the value is not valid TOML: "), "{error}");
    let expected = "the setting train.epochs: expected KEY=VALUE, for example train.epochs=10";
    assert_eq!(message(layers().set("train.epochs")), expected);
    assert_eq!(
        message(layers().set("train..x=1")),
        "the setting train..x=1: `train..x` is not a key; expected names joined by dots"
    );
    assert_eq!(
        message(layers().set("train.epochs.x=1")),
        "the setting train.epochs.x=1: `train.epochs.x` cannot be set: `train.epochs` is no table but of type integer"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = message(layers().file(Path::new("no/such/recipe.toml")));
    assert_eq!(error, "cannot read no/such/recipe.toml: no such file or folder; check the path");
}

#[test]
fn the_merged_table_builds_again_from_its_own_text() {
    let merged = layers().set("activation=sign").unwrap().set("train.note=it's \"quoted\"").unwrap();
    let text = toml::to_string(merged.table()).unwrap();
    assert_eq!(build(layers().text("resolved", &text).unwrap()), build(merged));
}

#[test]
fn an_error_knows_whether_the_caller_is_at_fault() {
    let at_fault = |layers: Result<Layers, ConfigError>| {
        layers.and_then(|layers| layers.build::<Recipe>()).unwrap_err().argument().is_some()
    };
    assert!(at_fault(layers().set("train.epochs")));
    assert!(at_fault(layers().set("train.epoch=1")));
    assert!(at_fault(layers().flag("--epochs", "train.epochs", "x")));
    assert!(!at_fault(layers().text("r.toml", "epoch = 1")));
    assert!(!at_fault(layers().text("r.toml", "epoch")));
}

/// What a hundred thousand keys take grows as they do, and not as their square.
#[test]
fn a_long_file_is_read_in_a_moment() {
    let keys: String = (0..100_000).map(|i| format!("k{i} = {i}\n")).collect();
    let layers = "[[network.layers]]\nkind = \"act\"\n".repeat(100_000);
    for text in [keys, layers] {
        let started = std::time::Instant::now();
        let read = Layers::new(&Table::new()).unwrap().text("long.toml", &text).unwrap();
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        assert!(!read.table().is_empty());
    }
}
