//! `ftprop zoo`, and its models by name in the other commands.

mod common;

use common::{Outcome, Temp};
use std::fs;
use std::path::Path;

fn accuracy(temp: &Temp, arguments: &str) -> f64 {
    temp.run(&format!("eval {arguments} --json")).json()["top1"].as_f64().unwrap()
}

/// The repository's digits in the folder `zoo`, where a program that works in it finds them.
fn with_digits() -> Temp {
    let temp = Temp::new();
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo");
    for file in ["index.toml", "digits.ftp", "digits.safetensors"] {
        temp.write(&format!("zoo/{file}"), fs::read(zoo.join(file)).unwrap());
    }
    temp
}

/// A command for the zoo of the temporary folder, whatever zoo the program has itself.
fn run(temp: &Temp, arguments: &str) -> Outcome {
    let mut command = temp.command(arguments);
    command.env("FTPROP_ZOO", temp.path("zoo"));
    Outcome::of(arguments, command)
}

/// A model that was put into a zoo is listed with its accuracy, and used only as long as it is the same file; the repository's
/// own zoo is found where the program works.
#[test]
fn a_zoo_gives_out_what_was_put_in() {
    let temp = Temp::new();
    temp.run("train --epochs 2 --out run --quiet").ok();
    temp.run("export run -o run.ftp").ok();
    let added = temp.run("zoo --add run.ftp --name mine --recipe digits --seed 0 --folder here").ok().out;
    let packed = accuracy(&temp, "run.ftp");
    assert!(added.starts_with(&format!("mine: {:.2} % of the test part of digits", 100.0 * packed)), "{added}");
    let listed = temp.run("zoo --folder here --report zoo.md --json").json();
    assert_eq!((&listed[0]["accuracy"], &listed[0]["sound"]), (&packed.into(), &true.into()));
    assert!(temp.text("zoo.md").contains("| `zoo:mine` | digits | digits, 0 |"));
    let mut model = temp.read("here/mine.ftp");
    *model.last_mut().unwrap() ^= 1;
    temp.write("here/mine.ftp", model);
    let damaged = temp.run("zoo --folder here");
    assert!(damaged.code == Some(1) && damaged.out.contains("NOT the file"), "{damaged:?}");
    temp.run("zoo --add run.ftp --name ../mine --recipe digits --folder here").refused(1, &["../mine"]);
    temp.run("zoo --add run.ftp --folder here").refused(2, &["--name"]);
    temp.run("zoo --folder nowhere").refused(1, &["nowhere"]);
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo");
    for file in ["index.toml", "digits.ftp", "digits.safetensors"] {
        temp.write(&format!("zoo/{file}"), fs::read(zoo.join(file)).unwrap());
    }
    temp.run("eval zoo:none-of-this-name").refused(1, &["none-of-this-name", "not in the zoo", "digits"]);
    assert!(accuracy(&temp, "zoo:digits") > 0.9);
    // Training begins with a model whose weights are there too.
    let begun = temp.run("train --init-from zoo:digits --epochs 1 --set optimizer.lr=1e-9 --out begun").ok();
    assert!(
        begun.err.contains("11 of 11 tensors are those of ") && begun.err.contains("zoo/digits.safetensors"),
        "{begun:?}"
    );
    assert!(accuracy(&temp, "begun") > 0.9);
    temp.run("zoo --add run.ftp --name bare --recipe digits --folder zoo").ok();
    let arguments = "train --init-from zoo:bare --epochs 1 --out bare";
    let mut command = temp.command(arguments);
    command.env("FTPROP_ZOO", temp.path("zoo"));
    Outcome::of(arguments, command).refused(1, &["'bare' as a packed model only"]);
}

/// What stands in the index is what is in the folder: no model goes under a recipe that does not make it, with weights that
/// it was not packed from, or in the place of another without a word.
#[test]
fn a_zoo_takes_only_what_is_what_it_is_said_to_be() {
    let temp = Temp::with_recipes();
    temp.run("train --epochs 1 --out run --seed 3 --quiet").ok();
    temp.run("train --epochs 1 --out other --seed 4 --quiet").ok();
    temp.run("train --recipe small.toml --epochs 1 --out small --quiet").ok();
    temp.run("export run -o run.ftp").ok();
    temp.run("export run -o int4.ftp --weights int4").ok();
    temp.run("export small -o small.ftp").ok();
    let add = |arguments: &str| temp.run(&format!("zoo --folder here --add {arguments}"));
    add("run.ftp --name a --recipe nonsense-of-mine")
        .refused(1, &["no built-in recipe 'nonsense-of-mine'", "ftprop recipes"]);
    add("run.ftp --name a --recipe digit").refused(1, &["did you mean digits?"]);
    add("small.ftp --name a --recipe digits")
        .refused(1, &["small.ftp", "not the network of the recipe digits", "operation"]);
    add("run.ftp --name a --recipe quick-sign").refused(1, &["trained on digits, the recipe is for cifar10"]);
    add("run.ftp --name a --recipe digits --seed 3 --weights other/best.safetensors")
        .refused(1, &["other/best.safetensors", "run.ftp was not packed from these weights"]);
    add("run.ftp --name a --recipe digits --seed 5 --weights run/best.safetensors").refused(1, &["seed 3, not 5"]);
    assert!(!temp.path("here").exists());
    let added = add("run.ftp --name a --recipe digits --seed 3 --weights run/best.safetensors").ok();
    assert!(added.err.contains("FTPROP_ZOO=here"), "{added:?}");
    add("small.ftp --name b --recipe small.toml").ok();
    let before = temp.text("here/index.toml");
    add("int4.ftp --name a --recipe digits --seed 3").refused(1, &["a model 'a' already", "--replace"]);
    assert_eq!(temp.text("here/index.toml"), before);
    add("int4.ftp --name a --recipe digits --seed 3 --weights run/best.safetensors --replace").ok();
    assert!(temp.text("here/index.toml") != before && temp.read("here/a.ftp") == temp.read("int4.ftp"));
    // Without its weights it is a packed model alone.
    add("int4.ftp --name a --recipe digits --seed 3 --replace").ok();
    assert!(!temp.path("here/a.safetensors").exists());
}

/// A name stands for the model wherever a trained network is taken, and where none is the answer says so.
#[test]
fn a_model_of_the_zoo_goes_where_a_trained_network_does() {
    let temp = with_digits();
    let packed = run(&temp, "summary zoo:digits").ok().out;
    assert!(packed.contains("trained on digits") && packed.contains("multiply-adds"), "{packed}");
    run(&temp, "bench infer zoo:digits --steps 1 --json").ok();
    run(&temp, "export zoo:digits -o exact.onnx").ok();
    temp.run("export zoo/digits.ftp -o same.onnx").ok();
    assert_eq!(temp.read("exact.onnx"), temp.read("same.onnx"));
    run(&temp, "export zoo:digits -o again.ftp").ok();
    assert_eq!(temp.read("again.ftp"), temp.read("zoo/digits.ftp"));
    run(&temp, "export zoo:digits -o torch.safetensors").ok();
    // It teaches by the weights that it was packed from, and the run goes on without the zoo.
    let teach = "train --set train.teacher=zoo:digits --set train.teacher_weight=0.9";
    run(&temp, &format!("{teach} --epochs 1 --out taught --quiet")).ok();
    temp.run("train --resume taught --epochs 2 --quiet").ok();
    temp.run("train --epochs 2 --out alone --quiet").ok();
    assert!(temp.text("taught/metrics.jsonl") != temp.text("alone/metrics.jsonl"));
    run(&temp, "train --set train.teacher=zoo:none --out no").refused(1, &["'none' is not in the zoo"]);
    run(&temp, "zoo --add zoo/digits.ftp --name bare --recipe digits --seed 1").ok();
    run(&temp, "train --set train.teacher=zoo:bare --out no").refused(1, &["'bare'", "nor teach", "recipe digits"]);
    temp.run("train --set train.teacher=zoo/digits.ftp --out no").refused(1, &["a packed model cannot teach"]);
    for arguments in ["plot zoo:digits", "train --resume zoo:digits", "watch zoo:digits", "verify zoo:digits"] {
        run(&temp, arguments).refused(1, &["zoo:digits is a model of the zoo", "--init-from"]);
    }
    assert!(!temp.path("no").exists());
}

/// A recipe that wants a teacher says that it is the teacher that is missing, and where one comes from.
#[test]
fn a_missing_teacher_is_called_that() {
    let temp = Temp::new();
    temp.run("train --set train.teacher=nowhere --out run")
        .refused(1, &["teacher is not there", "nowhere", "zoo:NAME"]);
    let taught = temp.run("train --set train.teacher=runs/fast-relu --out run");
    taught.refused(1, &["teacher is not there", "ftprop train --recipe fast-relu", "runs/fast-relu", "train.teacher="]);
    temp.write("empty/recipe.toml", "");
    temp.run("train --set train.teacher=empty --out run").refused(1, &["the teacher", "empty"]);
    assert!(!temp.path("run").exists());
}
