//! Bad input gets one clear line, the right exit code, and loses nothing.
#![cfg(unix)]

mod common;

use common::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const TRAIN: &str = "train --recipe small.toml --quiet --out new";

/// A finished run as `run`, beside the recipes.
fn with_run() -> Temp {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    temp
}

/// Each is refused before anything is written: exit code, arguments after those of [`TRAIN`], words of the line.
#[test]
fn recipes_that_cannot_be() {
    let temp = Temp::with_recipes();
    #[rustfmt::skip]
    let table: &[(i32, &str, &[&str])] = &[
        (2, "--set train.epoch=3", &["--set train.epoch=3", "`train.epoch`", "`train.epochs`"]),
        (2, "--set trian.epochs=3", &["`trian`", "`train`"]),
        (2, "--set epochs=3", &["`epochs`", "`train.epochs`"]),
        (2, "--set optimizer.learning_rate=3", &["`optimizer.learning_rate`"]),
        (2, "--set train.epochs=many", &["`train.epochs`", "whole number"]),
        (2, "--set train.epochs=-1", &["`train.epochs`"]),
        (2, "--set weighted=3", &["`weighted`", "true or false"]),
        (2, "--set train.epochs", &["KEY=VALUE"]),
        (2, "--set network.widths=[1", &["TOML"]),
        (2, "--set activation=sgn", &["`activation`", "sgn", "known are sign"]),
        (2, "--set activation=qrelu:1", &["qrelu:1", "from 2"]),
        (2, "--set layer_loss=softhinge", &["softhinge", "soft_hinge"]),
        (2, "--set train.loss=mse", &["mse", "cross_entropy"]),
        (2, "--set optimizer.name=adm", &["adm", "adam"]),
        (2, "--set optimizer.name=sgd", &["--set optimizer.name=sgd", "`optimizer.lr` is missing"]),
        (2, "--set schedule.kind=cos", &["cos", "cosine"]),
        (2, "--seed=-3", &["--seed", "not negative"]),
        (1, "--set network.preset=convnet9", &["convnet9", "convnet4, convnet8"]),
        (1, "--set network.preset=convnet4", &["convnet4", "32×32", "8×8"]),
        (1, "--set network.widths=[0]", &["layer 0 (fc)", "at least 1"]),
        (2, "--set data.source=cifar", &["`cifar`", "cifar10"]),
        (1, "--set data.source=cifar10", &["cifar10", "--data"]),
        (1, "--set data.source=cifar10 --data nowhere", &["CIFAR-10", "data_batch_1.bin", "nowhere"]),
        (1, "--set train.batch=0", &["train.batch"]),
        (1, "--set data.random_crop=true", &["random crop", "`pad`", "`crop`"]),
        (1, "--set data.path=nowhere", &["digits", "built in"]),
        (1, "--epochs 0", &["train.epochs"]),
        (1, "--set train.clip=-2", &["train.clip"]),
        (1, "--set train.checkpoint_seconds=-1", &["train.checkpoint_seconds"]),
        (1, "--set train.checkpoint_seconds=nan", &["train.checkpoint_seconds"]),
        (2, "--set optimizer.lr=nan", &["optimizer.lr must be a finite number"]),
        (1, "--set train.label_smoothing=2", &["label smoothing"]),
        (1, "--set train.threads=100000", &["100000", "--threads"]),
        (2, "--set optimizer.lr=-1", &["optimizer.lr must be at least 0"]),
        (1, "--set data.validation=5000", &["hold out", "5000", "1438"]),
        (1, "--set data.validation=-1", &["data.validation"]),
        (1, "--set data.crop=9", &["9", "8"]),
        (1, "--set data.resize=9", &["resize", "digits"]),
        (1, "--device tpu", &["'tpu'", "cpu"]),
        (1, "--out small.toml", &["small.toml", "file"]),
        (1, "--out small.toml/inner", &["small.toml", "file"]),
    ];
    for (code, arguments, words) in table {
        // The last --out would not win: clap takes one.
        let train = if arguments.contains("--out") { TRAIN.replace(" --out new", "") } else { TRAIN.to_owned() };
        temp.run(&format!("{train} {arguments}")).refused(*code, words);
        assert!(!temp.path("new").exists(), "{arguments}: a folder was made");
    }
    assert_eq!(temp.text("small.toml"), SMALL);
}

/// More of them: of the settings that are rarely touched.
#[test]
fn settings_that_cannot_be() {
    let temp = Temp::with_recipes();
    temp.write("table.csv", "a,b,kind\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n9,1,x\n");
    #[rustfmt::skip]
    let table: &[(i32, &str, &[&str])] = &[
        (2, "--set data.csv.missing=zero", &["`data.csv.missing`", "zero", "mean"]),
        (2, "--set data.csv.label=-1", &["`data.csv.label`", "column"]),
        (2, "--set data.csv.header=maybe", &["`data.csv.header`", "true or false"]),
        (2, "--set data.csv.categories=a", &["`data.csv.categories`", "list"]),
        (1, "--data table.csv --set data.csv.categories=[\"z\"]", &["table.csv", "`z`"]),
        (1, "--data table.csv --set data.csv.label=9", &["table.csv", "no column 9"]),
        (1, "--data table.csv --set data.csv.label=c", &["table.csv", "`c`", "`kind`"]),
        (1, "--data table.csv --set data.csv.test_fraction=2", &["hold out", "5"]),
        (1, "--data table.csv --set data.csv.test_file=nowhere.csv", &["nowhere.csv"]),
        (1, "--data table.csv --set data.flip=true", &["pictures", "table"]),
        (1, "--data table.csv --set data.crop=3", &["crop", "table"]),
        (1, "--set network.preset=aut", &["aut", "auto"]),
        (1, "--set network.preset=auto --set network.widths=[0]", &["layer 0", "at least 1"]),
        (2, "--set network.widths=7", &["`network.widths`", "list"]),
        (1, "--set train.patience=0 --set data.validation=0.1", &["train.patience", "at least 1"]),
        (1, "--set train.patience=3", &["train.patience", "data.validation"]),
        (1, "--set schedule.kind=one_cycle --set schedule.warmup=1", &["schedule.warmup", "one_cycle"]),
        (2, "--set schedule.kind=onecycle", &["onecycle", "one_cycle"]),
        (1, "--set schedule.factor=0", &["schedule.factor", "positive"]),
        (1, "--set schedule.floor=2", &["schedule.floor", "between 0 and 1"]),
        (1, "--set schedule.warmup=-1", &["schedule.warmup", "at least 0"]),
        (1, "--set schedule.kind=step --set schedule.decay_at=[0]", &["schedule.decay_at", "from 1"]),
        (1, "--set schedule.decay_at=[3]", &["schedule.decay_at", "step"]),
        (1, "--set data.validation=nan", &["data.validation"]),
        (1, "--set data.validation=1e9", &["hold out", "1438"]),
        (1, "--set train.ema=1", &["train.ema"]),
        (1, "--set train.ema=0", &["train.ema"]),
        (1, "--set train.clip=inf", &["train.clip"]),
        (2, "--set data.bad_images=ignore", &["`data.bad_images`", "ignore"]),
        (2, "--set data.pad=-1", &["`data.pad`"]),
        (2, "--set data.flip=yes", &["`data.flip`", "true or false"]),
        (2, "--set layer_loss=soft_hinge:0", &["layer_loss", "soft_hinge:0"]),
        (2, "--set layer_loss=saturated_hinge:2", &["saturated_hinge:2"]),
        (2, "--set target_rule=random_subset:0", &["random_subset:0"]),
        (2, "--set target_rule=never", &["never", "gradient_sign"]),
        (2, "--set target_rule=verified:2", &["verified:2"]),
        (1, "--set network.affine=-1", &["network.affine"]),
        (1, "--set target_rule=teacher", &["train.teacher", "must be given"]),
        (2, "--set qrelu_form=double", &["double", "single"]),
        (2, "--set activation=qrelu:256", &["qrelu:256"]),
        (2, "--set activation=qrelu:x", &["qrelu:x"]),
        (2, "--set train.precision=fp8", &["fp8", "bf16"]),
        (2, "--set train.seed=-1", &["`train.seed`"]),
        (2, "--set train.seed=1.5", &["`train.seed`", "whole number"]),
        (2, "--set optimizer.beta1=2", &["optimizer.beta1"]),
        (2, "--set optimizer.weight_decay=-1", &["optimizer.weight_decay"]),
        (2, "--set optimizer.lr=fast", &["optimizer.lr must be a number", "fast"]),
        (2, "--set optimizer.nme=sgd", &["unknown key `optimizer.nme`", "did you mean `optimizer.name`"]),
        (2, "--set optimizer.lr=inf", &["optimizer.lr must be a finite number"]),
        (2, "--set groups=3", &["`groups`", "list"]),
        (1, "--set groups=[{pattern=\"nothing*\"}]", &["group 1", "no parameters"]),
        (2, "--set name=3", &["`name`"]),
        (2, "--set =3", &["not a key"]),
        (2, "--set train=3", &["`train`", "table of keys"]),
        (2, "--set train.epochs.x=3", &["`train.epochs.x`", "no table"]),
        (1, "--init-from nowhere", &["nowhere"]),
        (1, "--init-from small.toml", &["small.toml", "not a checkpoint"]),
        (2, "--log-level loud", &["loud"]),
        (2, "--threads=-1", &["--threads"]),
        (2, "--at-once=-1", &["--at-once"]),
        (2, "--dry-run --recipe thorough.toml", &["--dry-run", "single recipe"]),
    ];
    assert!(table.len() >= 55);
    for (code, arguments, words) in table {
        temp.run(&format!("{TRAIN} {arguments}")).refused(*code, words);
        assert!(!temp.path("new").exists(), "{arguments}: a folder was made");
    }
}

#[test]
fn recipe_files_name_the_line() {
    let temp = Temp::new();
    temp.write("typo.toml", "name = \"x\"\n[train]\nepoch = 3\n");
    temp.run("train --quiet --recipe typo.toml").refused(1, &["typo.toml:3", "`train.epochs`"]);
    temp.write("syntax.toml", "name = \n");
    temp.run("train --quiet --recipe syntax.toml").refused(1, &["syntax.toml:1"]);
    temp.write("binary.toml", [0xff, 0xfe, 0]);
    temp.run("train --quiet --recipe binary.toml").refused(1, &["binary.toml", "not valid"]);
    temp.write("kind.toml", "[[network.layers]]\nkind = \"convolution\"\n");
    temp.run("train --quiet --recipe kind.toml").refused(1, &["kind.toml:", "convolution", "conv"]);
    temp.write("both.toml", "[network]\npreset = \"mlp\"\n[[network.layers]]\nkind = \"fc\"\n");
    temp.run("train --quiet --recipe both.toml").refused(1, &["network.preset", "network.layers"]);
    temp.write("none.toml", "name = \"x\"\n");
    temp.run("train --quiet --recipe none.toml").refused(1, &["no layers", "preset"]);
    temp.run("train --quiet --recipe nowhere.toml").refused(1, &["nowhere.toml", "no such file"]);
    assert!(!temp.path("runs").exists());
}

/// A layer that does not fit is named, with the shapes.
#[test]
fn shapes_that_cannot_fit() {
    let temp = Temp::new();
    let layer = |fields: &str| format!("{{ {fields} }}");
    let conv = |fields: &str| layer(&format!("kind = \"conv\", {fields}"));
    let fc = layer("kind = \"fc\"");
    let residual = format!(
        "{{ kind = \"residual\", main = [{}], shortcut = [{}] }}",
        conv("out = 4, kernel = 3, pad = 1, stride = 2"),
        conv("out = 4, kernel = 1")
    );
    let table: &[(Vec<String>, &[&str])] = &[
        (vec![conv("out = 4, kernel = 9"), fc.clone()], &["layer 0 (conv)", "9×9", "8×8"]),
        (vec![conv("out = 4, kernel = 3, groups = 2"), fc.clone()], &["layer 0 (conv)", "2 groups", "1×8×8"]),
        (vec![conv("out = 4, kernel = 3, stride = 0"), fc.clone()], &["layer 0 (conv)", "stride"]),
        (
            vec![conv("out = 4, kernel = 3"), layer("kind = \"max_pool\", kernel = 7"), fc.clone()],
            &["layer 1 (max_pool)", "7×7", "4×6×6"],
        ),
        (vec![layer("kind = \"fc\", out = 11")], &["layer 0 (fc)", "11", "10 classes"]),
        (vec![residual, fc.clone()], &["layer 0 (residual)", "4×4×4", "4×8×8"]),
        (vec![layer("kind = \"dropout\", p = 1.5"), fc.clone()], &["layer 0 (dropout)", "1.5"]),
    ];
    for (layers, words) in table {
        temp.write("net.toml", format!("[network]\nlayers = [{}]\n", layers.join(", ")));
        temp.run("train --recipe net.toml --quiet --out new").refused(1, words);
        temp.run("summary net.toml").refused(1, words);
        assert!(!temp.path("new").exists());
    }
}

#[test]
fn folders_and_files_that_are_not_what_they_should_be() {
    let temp = with_run();
    fs::create_dir(temp.path("empty")).unwrap();
    temp.write("noise.safetensors", [7; 1000]);
    let before = temp.snapshot("run");
    #[rustfmt::skip]
    let table: &[(i32, &str, &[&str])] = &[
        (1, "train --recipe small.toml --quiet --out run", &["run already holds a run", "--resume run"]),
        (1, "train --quiet --resume nowhere", &["nowhere", "no such"]),
        (1, "train --quiet --resume empty", &["empty is not a run folder", "recipe.toml"]),
        (1, "train --quiet --resume small.toml", &["small.toml is not a run folder"]),
        (1, "train --quiet --resume run --epochs 0", &["train.epochs"]),
        (1, "bench infer --network convnet4 --device cuda:0 --steps 1", &["CPU"]),
        (2, "bench infer --network convnet4 --at-once 2", &["--at-once"]),
        (1, "eval empty", &["not a run folder"]),
        (1, "eval nowhere", &["nowhere", "no such"]),
        (1, "eval small.toml", &["small.toml", "not a checkpoint"]),
        (1, "eval noise.safetensors", &["noise.safetensors", "not a checkpoint"]),
        (1, "eval run --split validation", &["no validation part"]),
        (1, "eval run --device tpu", &["tpu"]),
        (1, "predict run small.toml", &["small.toml", "neither JPEG nor PNG"]),
        (1, "predict run nowhere.png", &["nowhere.png", "no such file"]),
        (1, "plot empty", &["not a run folder"]),
        (1, "plot nowhere", &["nowhere"]),
        (1, "plot run --out nowhere/plot", &["nowhere", "no such"]),
        (1, "summary nowhere", &["nowhere"]),
        (1, "summary small.toml --input 3x0x1", &["input"]),
        (1, "selftest --golden empty", &["empty", "no golden case"]),
        (1, "selftest --golden nowhere", &["nowhere"]),
        (2, "selftest --part large --device cpu", &["--part large", "--device cuda:0"]),
        (2, "eval run --batch 0", &["--batch"]),
        (2, "predict run x.png --top 0", &["--top"]),
    ];
    for (code, arguments, words) in table {
        temp.run(arguments).refused(*code, words);
    }
    assert!(temp.snapshot("run") == before, "the run is as it was");
}

/// The same for commands that use what was trained.
#[test]
fn inputs_and_outputs_that_cannot_be() {
    let temp = with_run();
    fs::create_dir(temp.path("empty")).unwrap();
    temp.write("table.csv", "a,b,kind\n1,2,x\n3,4,y\n");
    temp.write("noise.ftp", [7; 100]);
    temp.run("export run -o run.ftp").ok();
    let before = temp.snapshot("run");
    #[rustfmt::skip]
    let table: &[(i32, &str, &[&str])] = &[
        (1, "eval run --data nowhere", &["nowhere"]),
        (1, "eval run --data small.toml", &["small.toml", "no data that are known"]),
        (1, "eval run --data empty", &["empty", "no data that are known"]),
        (1, "eval run --data table.csv", &["trained on pictures", "table.csv"]),
        (1, "eval run.ftp --data table.csv --source csv", &["trained on pictures", "table.csv"]),
        (1, "eval run --plot nowhere/x", &["nowhere"]),
        (1, "eval run --save nowhere/x.safetensors", &["nowhere"]),
        (2, "eval run --split half", &["half"]),
        (1, "eval run.ftp --split validation", &["packed", "held out"]),
        (1, "eval run.ftp --source cifra", &["cifra", "cifar10"]),
        (1, "predict run nowhere", &["nowhere"]),
        (1, "predict run empty", &["empty", "no picture"]),
        (1, "predict run table.csv", &["trained on pictures", "table.csv"]),
        (1, "predict run.ftp table.csv", &["trained on pictures", "table.csv"]),
        (2, "predict run x.png --format xml", &["xml", "jsonl"]),
        (2, "predict run x.png --json --format csv", &["--json", "--format"]),
        (2, "predict run x.png --checkpoint middle", &["middle"]),
        (1, "predict noise.ftp x.png", &["noise.ftp", "not a packed model"]),
        (2, "export run -o x.pt", &["x.pt", "--format"]),
        (2, "export run -o x", &["--format"]),
        (2, "export run -o x.ftp --format pt", &["pt", "onnx"]),
        (2, "export run -o x.onnx --weights int4", &["--weights"]),
        (2, "export run.ftp -o y.ftp", &["--format onnx"]),
        (1, "export run -o nowhere/x.ftp", &["nowhere"]),
        (1, "export run -o x.ftp --check nowhere", &["nowhere"]),
        (1, "export run -o x.ftp --check empty", &["empty"]),
        (1, "summary noise.ftp", &["noise.ftp", "not a packed model"]),
        (2, "summary run --input 1x8x8", &["--input"]),
        (2, "summary run --classes 3", &["--classes"]),
        (2, "completions tcsh", &["tcsh"]),
        (2, "man", &["--out"]),
        (1, "man --out small.toml", &["small.toml"]),
        (2, "sweep --out s", &["nothing to compare"]),
        (2, "sweep --grid x --out s", &["--grid", "KEY=VALUE"]),
        (2, "sweep --grid optimizer.lr=1,2 --seeds 0 --out s", &["--seeds"]),
        (1, "sweep --grid optimizer.lr=1,2 --data empty --out s", &["empty"]),
        (1, "recipes nothing", &["nothing", "ftprop recipes"]),
        (1, "import small.toml --recipe small.toml --out i", &["small.toml"]),
        (1, "import nowhere.safetensors --recipe small.toml --out i", &["nowhere.safetensors"]),
        (1, "import nowhere.safetensors --recipe small.toml --data empty --out i", &["empty"]),
        (1, "plot run --diagnostics", &["--diagnostics"]),
        (1, "bench infer noise.ftp", &["noise.ftp"]),
    ];
    for (code, arguments, words) in table {
        temp.run(arguments).refused(*code, words);
    }
    for left in ["x", "x.pt", "x.ftp", "x.onnx", "y.ftp", "s", "i"] {
        assert!(!temp.path(left).exists(), "{left} was made");
    }
    assert!(temp.snapshot("run") == before, "the run is as it was");
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let temp = Temp::with_recipes();
    for arguments in [
        "",
        "trian",
        "train --bogus",
        "train --epochs many",
        "train extra",
        "train --resume run --seed 3",
        "train --resume run --recipe small.toml",
        "eval",
        "eval run --split half",
        "predict run",
        "plot",
        "summary x.toml --input 3x4",
    ] {
        let outcome = temp.run(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome:#?}");
        assert!(!outcome.err.is_empty() && outcome.out.is_empty(), "{outcome:#?}");
    }
    assert!(!temp.path("runs").exists());
}

#[test]
fn checkpoints_that_do_not_belong() {
    let temp = with_run();
    temp.run("train --recipe small.toml --quiet --out wide --set network.widths=[17]").ok();
    temp.run("train --recipe thorough.toml --quiet --out thorough --epochs 1").ok();
    let own = temp.read("run/checkpoint.safetensors");
    let recipe = temp.text("run/recipe.toml");
    let refuse = |content: &[u8], words: &[&str]| {
        temp.write("run/checkpoint.safetensors", content);
        let before = temp.snapshot("run");
        temp.run("train --quiet --resume run --epochs 3").refused(1, words);
        assert!(temp.snapshot("run") == before, "something was changed");
        assert_eq!(temp.text("run/recipe.toml"), recipe);
    };
    // With one to fall back to it would go on from there.
    fs::remove_file(temp.path("run/previous.safetensors")).unwrap();
    refuse(&temp.read("wide/checkpoint.safetensors"), &["network.widths was [17] and is [16]"]);
    refuse(&temp.read("thorough/checkpoint.safetensors"), &["network.preset", "optimizer.lr"]);
    refuse(&temp.read("run/best.safetensors"), &["without the optimizer"]);
    refuse(SMALL.as_bytes(), &["checkpoint.safetensors", "not a checkpoint"]);
    refuse(b"", &["not a checkpoint"]);
    refuse(&own[..own.len() / 2], &["not a checkpoint, or a damaged one"]);
    refuse(&[&own[..], b"more"].concat(), &["damaged"]);
    let plain = safetensors::serialize::<&str, safetensors::tensor::TensorView<'_>, _>([], None).unwrap();
    refuse(&plain, &["not one that ftprop wrote"]);
    temp.write("run/checkpoint.safetensors", &own);
    temp.run("train --quiet --resume run --epochs 3").ok();
}

/// What blew up is named and never saved: not when the loss shows it at once, nor when only the weights do.
#[test]
fn a_loss_that_is_no_number() {
    let temp = Temp::with_recipes();
    // The second epoch's rate is far too large.
    let explodes = "--set schedule.kind=step --set schedule.decay_at=[2] --set schedule.factor=1e45";
    for (run, more) in [("soon", "--set train.checkpoint_seconds=0"), ("late", ""), ("one", "--set train.batch=1438")] {
        let train = format!("train --recipe small.toml --quiet --set train.epochs=3 --out {run} {explodes} {more}");
        let outcome = temp.run(&train);
        outcome.refused(1, &["no longer a number", "epoch 2", "0", "blew up first", "optimizer.lr"]);
        outcome.refused(1, &["last good checkpoint is kept in", run]);
        assert_eq!(temp.timeless_metrics(run).len(), 1, "the first epoch stays");
        let evaluated = temp.run(&format!("eval {run} --checkpoint last --json")).json();
        assert!(evaluated["loss"].as_f64().is_some_and(f64::is_finite), "{evaluated}");
    }
    let train = "train --recipe small.toml --quiet --out first --set optimizer.lr=1e39 --set activation=relu";
    temp.run(train).refused(1, &["epoch 1", "layer 0 (fc)", "no checkpoint yet"]);
    temp.run("eval first").refused(1, &["first has no finished epoch", "--resume first"]);
    temp.run("plot first").refused(1, &["first has no finished epoch"]);
}

/// A file that cannot be written: the device that is always full stands in for a full disk.
#[test]
fn a_full_disk_loses_nothing() {
    let temp = with_run();
    for file in ["best.safetensors", "summary.json", "curves.png"] {
        fs::create_dir(temp.path("full")).unwrap();
        let blocked = temp.path(&format!("full/{file}"));
        symlink("/dev/full", &blocked).unwrap();
        let train = "train --recipe small.toml --quiet --out full";
        temp.run(train).refused(1, &[&format!("full/{file}"), "the disk is full", "free some space"]);
        // Once there is room again it goes on as if nothing had been.
        fs::remove_file(&blocked).unwrap();
        temp.run("train --resume full --quiet").ok();
        temp.assert_same_result("full", "run");
        fs::remove_dir_all(temp.path("full")).unwrap();
    }
}

#[test]
fn a_limit_on_files_in_the_middle_of_a_run() {
    let temp = with_run();
    let limited = |arguments: &str| {
        let program = env!("CARGO_BIN_EXE_ftprop");
        let mut command = Command::new("sh");
        let script = format!("ulimit -f 8; exec {program} {arguments}");
        command.current_dir(temp.path("")).args(["-c", &script]);
        Outcome::of(arguments, command)
    };
    let outcome = limited("train --quiet --resume run --epochs 4");
    outcome.refused(1, &["cannot write run/", ".safetensors", "ulimit"]);
    temp.run("eval run --checkpoint last").ok();
    temp.run("train --recipe small.toml --quiet --out whole --epochs 4").ok();
    temp.run("train --quiet --resume run --epochs 4").ok();
    assert_eq!(temp.timeless_metrics("run"), temp.timeless_metrics("whole"));
}

/// Where nobody can be told, the work goes on; only a result that got lost is no success.
#[test]
fn a_full_disk_under_the_log_is_no_reason_to_stop() {
    let temp = Temp::with_recipes();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = temp.command("train --recipe small.toml --out run").stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let status = temp.command("train --recipe small.toml --out lost").stderr(full()).stdout(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    temp.assert_same_result("run", "lost");
    assert!(temp.path("lost/summary.json").exists());
}

/// Every command that prints tells a script when its words did not get through.
#[test]
fn output_that_gets_lost_is_no_success() {
    let temp = with_run();
    temp.photos("photos");
    let train = "train --recipe small.toml --quiet --out p --set data.source=folder --set data.crop=8 --set data.resize=8 \
                 --data photos";
    temp.run(train).ok();
    temp.run("export run -o run.ftp").ok();
    temp.run("solve --data xor --hidden 2 --certificate xor.json").ok();
    for arguments in [
        "--help",
        "--version",
        "train --help",
        "train --recipe small.toml --quiet --out fresh",
        "train --recipe small.toml --dry-run",
        "eval run",
        "eval run --json",
        "eval run.ftp --confusion",
        "predict p photos/val/dark",
        "predict p photos/val/dark --format csv",
        "predict p photos/val/dark --format jsonl",
        "predict p photos/val/dark --json",
        "export run -o other.ftp",
        "summary run",
        "summary run.ftp",
        "plot run --out drawn",
        "recipes",
        "recipes digits",
        "devices",
        "separable xor",
        "solve --data xor --hidden 2",
        "verify xor.json xor",
        "bench infer run.ftp --steps 1",
        "completions bash",
        "sweep --recipe small.toml --grid optimizer.lr=1e-3,1e-2 --out swept --quiet",
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = temp.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("ftprop: cannot write to standard output: the disk is full"), "{arguments}: {said}");
    }
    assert!(temp.path("other.ftp").exists() && temp.path("drawn.png").exists(), "the work itself was done");
    // A reader that goes away is told nothing, and the exit code says so.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = temp.command("recipes").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0));
}

/// Data files: the reader's own tests go through every format; here the way to the user is tested.
#[test]
fn data_that_is_damaged() {
    let temp = Temp::with_recipes();
    temp.mnist("mnist", 40, 20);
    let train = "train --recipe small.toml --quiet --out new --set data.source=mnist --data mnist";
    let images = temp.read("mnist/train-images-idx3-ubyte");
    let labels = temp.read("mnist/train-labels-idx1-ubyte");
    temp.write("mnist/train-images-idx3-ubyte", &images[..images.len() - 1]);
    temp.run(train).refused(1, &["train-images-idx3-ubyte", "truncated"]);
    temp.write("mnist/train-images-idx3-ubyte", &images);
    let mut wrong = labels.clone();
    *wrong.last_mut().unwrap() = 10;
    temp.write("mnist/train-labels-idx1-ubyte", &wrong);
    temp.run(train).refused(1, &["train-labels-idx1-ubyte", "example 39", "label 10", "10 classes"]);
    fs::remove_file(temp.path("mnist/train-labels-idx1-ubyte")).unwrap();
    temp.run(train).refused(1, &["train-labels-idx1-ubyte", "not found"]);
    assert!(!temp.path("new").exists());
    temp.write("mnist/train-labels-idx1-ubyte", &labels);
    temp.run(train).ok();
    temp.run("eval new --data nowhere").refused(1, &["MNIST", "nowhere"]);

    temp.cifar10("cifar");
    let batch = temp.read("cifar/data_batch_3.bin");
    temp.write("cifar/data_batch_3.bin", &batch[..batch.len() - 7]);
    let train = "train --recipe small.toml --quiet --out other --set data.source=cifar10 --data cifar";
    temp.run(train).refused(1, &["data_batch_3.bin", "truncated"]);
    fs::remove_file(temp.path("cifar/data_batch_3.bin")).unwrap();
    fs::remove_file(temp.path("cifar/data_batch_5.bin")).unwrap();
    let missing = ["cifar", "a part of CIFAR-10 only: data_batch_3.bin, data_batch_5.bin must be there too"];
    temp.run(train).refused(1, &missing);
    temp.run("reproduce --data cifar --out table --quiet").refused(1, &missing);

    temp.write("table.csv", "a,b,label\n1,2,x\n3,oops,y\n");
    let train = "train --recipe small.toml --quiet --out other --set data.source=csv --data table.csv";
    temp.run(train).refused(1, &["table.csv, line 3", "oops"]);
    assert!(!temp.path("other").exists());
}

#[test]
fn pictures_that_do_not_decode_stop_or_are_skipped_and_counted() {
    let temp = Temp::with_recipes();
    temp.photos("photos");
    temp.write("photos/train/dark/bad.png", "not a picture");
    let png = temp.read("photos/train/bright/0.png");
    temp.write("photos/train/bright/cut.png", &png[..png.len() / 2]);
    let train = "train --recipe small.toml --set data.source=folder --set data.crop=8 --set data.resize=8 \
                 --set train.batch=4 --data photos";
    let stopped = temp.run(&format!("{train} --quiet --out stop"));
    stopped.refused(1, &["cannot decode image", "photos/train/"]);
    stopped.refused(1, &["2 of the", "bad.png", "cut.png", "data.bad_images=skip"]);
    assert!(!temp.path("stop").exists(), "the folder would be in the way of the same command");
    let skipped = temp.run(&format!("{train} --out skip --set data.bad_images=skip")).ok();
    assert!(skipped.err.contains("2 pictures were skipped; the first: cannot decode image"), "{skipped:?}");
    // Also where the bad ones are all that an interrupted epoch had left.
    for split in ["train/dark", "train/bright", "val/dark", "val/bright"] {
        for entry in fs::read_dir(temp.path(&format!("photos/{split}"))).unwrap() {
            fs::write(entry.unwrap().path(), "not a picture").unwrap();
        }
    }
    let none = temp.run(&format!("{train} --quiet --out none --set data.bad_images=skip"));
    none.refused(1, &["none of the", "images could be used"]);
    for part in ["train", "val"] {
        fs::remove_dir_all(temp.path(&format!("photos/{part}/dark"))).unwrap();
    }
    temp.run(&format!("{train} --quiet --out one")).refused(1, &["single class", "bright"]);
}
