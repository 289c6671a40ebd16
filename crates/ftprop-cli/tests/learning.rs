//! How parameters are learned: in groups, averaged, frozen.

mod common;

use common::*;

/// A run that gets no better on the validation part ends, and ends the same way when it was killed on the way.
#[test]
fn patience_ends_a_run_early() {
    let temp = Temp::with_recipes();
    let train =
        "train --recipe small.toml --quiet --set train.epochs=60 --set data.validation=0.2 --set train.patience=3";
    let said = temp.run(&format!("{train} --out run")).ok();
    let summary = temp.json("run/summary.json");
    let (epochs, best) = (summary["epochs"].as_u64().unwrap(), summary["best_epoch"].as_u64().unwrap());
    assert!(epochs < 60 && epochs == best + 3, "{summary}");
    assert!(said.out.contains(&format!("ended after epoch {epochs}: 3 epochs")), "{said:?}");
    // Going on with it is over at once.
    let before = temp.read("run/checkpoint.safetensors");
    temp.run("train --resume run --quiet").ok();
    assert!(before == temp.read("run/checkpoint.safetensors"));
    temp.run(&format!("{} --out short", train.replace("epochs=60", "epochs=2"))).ok();
    temp.run("train --resume short --epochs 60 --quiet").ok();
    temp.assert_same_result("run", "short");
    temp.run(&train.replace("validation=0.2", "validation=0")).refused(1, &["train.patience", "data.validation"]);
}

/// A network of other classes begins where another one ended, but for its last layer.
#[test]
fn a_run_begins_with_another_ones_network() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out digits").ok();
    let rows: String = (0..80)
        .map(|i| {
            let cells: Vec<String> = noise(i, 64).iter().map(|v| (v / 16).to_string()).collect();
            format!("{},{}\n", cells.join(","), if i % 2 == 0 { "even" } else { "odd" })
        })
        .collect();
    temp.write("two.csv", rows);
    let freeze = "--set groups=[{pattern=\"0.*\",lr_factor=0.0}]";
    let train = format!("train --recipe small.toml --data two.csv --init-from digits --epochs 2 {freeze}");
    let said = temp.run(&format!("{train} --out fine")).ok();
    assert!(said.err.contains("2 of 4 tensors are those of digits; anew: 2.weight, 2.bias"), "{said:?}");
    let tensor = |run: &str, name: &str| {
        let bytes = temp.read(&format!("{run}/best.safetensors"));
        safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor(name).unwrap().data().to_vec()
    };
    assert!(tensor("fine", "0.weight") == tensor("digits", "0.weight"), "a frozen layer stays as it was");
    assert!(tensor("fine", "2.bias").len() == 8 && tensor("digits", "2.bias").len() == 40);
    temp.run("train --recipe small.toml --quiet --set network.widths=[7,5] --init-from digits --out odd")
        .refused(1, &["no layer"]);
    assert!(!temp.path("odd").exists());
    temp.run("train --recipe small.toml --quiet --init-from nowhere --out odd").refused(1, &["nowhere"]);
    // A norm of the same width is not enough to begin with.
    temp.run("train --data two.csv --set network.widths=[32,64] --epochs 1 --quiet --out norms").ok();
    temp.run("train --epochs 1 --quiet --init-from norms --out odd").refused(1, &["weights", "the recipes differ"]);
    assert!(!temp.path("odd").exists());
}

/// A network that was trained without thresholds is where one with them begins: all of it fits.
#[test]
fn a_second_stage_begins_with_another_activation() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --set activation=saturated_relu --out soft").ok();
    let said = temp.run("train --recipe small.toml --init-from soft --epochs 1 --out hard").ok();
    assert!(said.err.contains("4 of 4 tensors are those of soft\n"), "{said:?}");
}

/// The recipe says what to begin with as the command line does, so that a sweep's settings can; what has a checkpoint does not
/// begin again.
#[test]
fn a_recipe_names_the_network_it_begins_with() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --set activation=saturated_relu --out soft").ok();
    let stage = "--epochs 2 --set optimizer.lr=1e-3";
    temp.run(&format!("train --recipe small.toml --quiet {stage} --init-from soft --out said")).ok();
    temp.run(&format!("train --recipe small.toml --quiet {stage} --set train.init_from=soft --out set")).ok();
    assert!(temp.read("said/best.safetensors") == temp.read("set/best.safetensors"));
    temp.run(&format!("train --recipe small.toml --quiet {stage} --out anew")).ok();
    assert!(temp.read("said/best.safetensors") != temp.read("anew/best.safetensors"));

    temp.run(&format!("sweep --recipe small.toml --quiet {stage} --grid train.init_from=soft --seeds 1 --out sweep"))
        .ok();
    assert!(temp.text("sweep/report.md").contains("init_from"));

    // Where it lies is no part of what is learned, and once there is a checkpoint it may be gone.
    std::fs::rename(temp.path("soft"), temp.path("elsewhere")).unwrap();
    let said = temp.run("train --resume set --epochs 3").ok();
    assert!(!said.err.contains("tensors are those of"), "{said:?}");
    temp.run("train --recipe small.toml --quiet --set train.init_from=soft --out new").refused(1, &["soft"]);
    assert!(!temp.path("new").exists());
    // Several recipes begin with it too, each where it fits.
    let other = temp.text("small.toml").replace("small", "other") + "optimizer.lr = 1e-4\n";
    temp.write("other.toml", other);
    let both =
        temp.run("train --recipe small.toml --recipe other.toml --init-from elsewhere --epochs 1 --out both").ok();
    assert!(
        ["small (run 1)", "other (run 2)"].iter().all(|run| both.err.contains(&format!("{run}: 4 of 4"))),
        "{both:?}"
    );
    let one = temp.run("train --recipe small.toml --recipe thorough.toml --init-from elsewhere --epochs 1 --out one");
    assert!(one.err.contains("one/thorough failed: no layer's weights"), "{one:?}");
    assert!(temp.path("one/small/summary.json").exists());
}

/// What a teacher says is learned beside the labels; a killed run that has one goes on with it, wherever it has moved.
#[test]
fn a_teacher_is_learned_from() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --set activation=relu --set network.widths=[40] --out teacher").ok();
    let taught = "train --recipe small.toml --quiet --set train.teacher=teacher --set train.teacher_weight=0.9";
    temp.run(&format!("{taught} --epochs 3 --out pupil")).ok();
    temp.run("train --recipe small.toml --quiet --epochs 3 --out alone").ok();
    assert!(temp.read("pupil/best.safetensors") != temp.read("alone/best.safetensors"));
    assert!(temp.text("pupil/recipe.toml").contains("teacher_weight = 0.9"));
    // A pupil that is shown its own words alone hears nothing new, and stays where it is.
    let own = "--set train.teacher=alone --set train.teacher_weight=1 --init-from alone --set optimizer.lr=1e-9";
    temp.run(&format!("train --recipe small.toml --quiet --epochs 1 --out parrot {own}")).ok();
    let measured = |run: &str| -> serde_json::Value {
        let metrics = temp.text(&format!("{run}/metrics.jsonl"));
        serde_json::from_str::<serde_json::Value>(metrics.lines().last().unwrap()).unwrap()["test"]["top1"].take()
    };
    assert_eq!(measured("parrot"), measured("alone"));
    for (settings, words) in [
        ("--set train.teacher=nowhere", &["nowhere"][..]),
        ("--set train.teacher_weight=0.5", &["train.teacher", "must be given"]),
        ("--set train.teacher=teacher --set train.teacher_weight=0", &["weight must be above 0"]),
        ("--set train.teacher=teacher --set train.teacher_temperature=-1", &["temperature must be above 0"]),
        ("--set train.teacher=teacher --data two.csv", &["teacher", "does not fit", "other classes"]),
    ] {
        temp.write("two.csv", "0,1,a\n1,0,b\n1,1,a\n0,0,b\n".repeat(9));
        temp.run(&format!("train --recipe small.toml --quiet --out new {settings}")).refused(1, words);
        assert!(!temp.path("new").exists(), "{settings}");
    }
}

/// The averaged network is the one that is measured, kept as the best and as the last, and taken up again.
#[test]
fn a_moving_average_is_what_is_measured_and_kept() {
    let temp = Temp::with_recipes();
    let train = "train --recipe small.toml --quiet --epochs 3 --set train.ema=0.95";
    temp.run(&format!("{train} --out averaged")).ok();
    temp.run("train --recipe small.toml --quiet --epochs 3 --out plain").ok();
    let last = |run: &str| -> serde_json::Value {
        let metrics = temp.text(&format!("{run}/metrics.jsonl"));
        serde_json::from_str(metrics.lines().last().unwrap()).unwrap()
    };
    let measured = |run: &str| last(run)["test"]["top1"].as_f64().unwrap();
    let evaluated = |run: &str, which: &str| {
        let outcome = temp.run(&format!("eval {run} --checkpoint {which} --json")).json();
        outcome["top1"].as_f64().unwrap()
    };
    assert_eq!(evaluated("averaged", "last"), measured("averaged"));
    assert_eq!(evaluated("plain", "last"), measured("plain"));
    assert_ne!(measured("averaged"), measured("plain"), "an average of so few steps is another network");
    // What is learned does not depend on whether it is averaged.
    assert_eq!(last("averaged")["train"]["loss"], last("plain")["train"]["loss"]);
    for wrong in ["0", "1", "1.5", "-0.5", "nan"] {
        let refused = temp.run(&format!("train --recipe small.toml --quiet --out new --set train.ema={wrong}"));
        refused.refused(1, &["train.ema", "between 0 and 1"]);
    }
}

#[test]
fn groups_are_chosen_by_kind_and_pattern() {
    let temp = Temp::with_recipes();
    temp.write("frozen.toml", format!("{SMALL}\n[[groups]]\npattern = \"0.*\"\nlr_factor = 0.0\n"));
    temp.run("train --recipe frozen.toml --quiet --epochs 1 --out one").ok();
    temp.run("train --recipe frozen.toml --quiet --epochs 2 --out two").ok();
    let tensors = |run: &str| {
        let bytes = temp.read(&format!("{run}/checkpoint.safetensors"));
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        ["0.weight", "2.weight"].map(|name| tensors.tensor(name).unwrap().data().to_vec())
    };
    let ([first, last], [first_later, last_later]) = (tensors("one"), tensors("two"));
    assert!(first == first_later && last != last_later, "the first layer is frozen, the last is not");

    let refused = |groups: &str, words: &[&str]| {
        temp.write("wrong.toml", format!("{SMALL}\n{groups}"));
        temp.run("train --recipe wrong.toml --quiet --out new").refused(1, words);
    };
    refused("[[groups]]\nkind = \"norms\"", &["group 1 has no parameters", "0.weight"]);
    refused("[[groups]]\nkind = \"weigths\"", &["weigths", "weights"]);
    refused("[[groups]]\nlr_factor = -1.0", &["group 1", "lr_factor"]);
    refused("[optimizer]\nname = \"muon\"\nlr = 0.02", &["0.bias is no matrix", "group"]);
    refused("[optimizer]\nname = \"muon\"\nlr = 0.02\niterations = 2.5", &["optimizer.iterations", "whole number"]);
}

/// Settings of a run under way change where that means something, and the run folder says when.
#[test]
fn a_run_goes_on_with_other_settings() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --epochs 2 --out run").ok();
    let whole = temp.snapshot("run");
    for (setting, words) in [
        ("train.seed=9", "train.seed was 0 and is 9"),
        ("activation=relu", "activation was"),
        ("network.widths=[9]", "network"),
        ("data.validation=0.3", "data.validation was"),
        ("train.batch=7", "train.batch was"),
        ("optimizer.name=sgd --set optimizer.lr=0.1", "optimizer"),
        ("train.ema=0.9", "train.ema was not set"),
    ] {
        let outcome = temp.run(&format!("train --resume run --quiet --epochs 4 --set {setting}"));
        outcome.refused(1, &[words]);
        assert!(temp.snapshot("run") == whole, "{setting} changed something");
    }
    temp.run("train --resume run --quiet --set train.mixpu=0.2").refused(2, &["mixpu", "train.mixup"]);
    let settings = "--set optimizer.lr=0.0005 --set train.mixup=0.2 --set schedule.kind=cosine";
    let said = temp.run(&format!("train --resume run --epochs 4 {settings}")).ok();
    assert!(said.err.contains("from here on optimizer.lr was 0.001 and is 0.0005"), "{said:?}");
    let changes: Vec<serde_json::Value> =
        temp.text("run/changes.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&str> = changes.iter().map(|change| change["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"optimizer.lr") && keys.contains(&"train.mixup"), "{keys:?}");
    assert!(changes.iter().all(|change| change["epoch"] == 3 && change["step"].as_u64() > Some(0)), "{changes:?}");
    let recipe = temp.text("run/recipe.toml");
    assert!(recipe.contains("mixup = 0.2") && recipe.contains("lr = 0.0005"), "{recipe}");
    // It goes on as it is now, without a word; and as often as it is ended.
    let said = temp.run("train --resume run --epochs 6").ok();
    assert!(!said.err.contains("from here on"), "{said:?}");
    // A run that was killed before it saved with its new settings knows where they come from.
    temp.run("train --recipe small.toml --quiet --epochs 2 --out other").ok();
    let (old, text) = (temp.read("other/checkpoint.safetensors"), temp.read("other/metrics.jsonl"));
    temp.run(&format!("train --resume other --quiet --epochs 4 {settings}")).ok();
    temp.write("other/checkpoint.safetensors", old);
    temp.write("other/metrics.jsonl", text);
    temp.run("train --resume other --quiet").ok();
    temp.run("train --resume other --quiet --epochs 6").ok();
    temp.assert_same_result("run", "other");
}

/// Examples of a rare class count more where the classes are to count alike.
#[test]
fn balanced_classes_find_the_rare_one() {
    let temp = Temp::new();
    let rows: String = (0..600u64)
        .map(|i| {
            let rare = i % 12 == 0;
            let [x, y] =
                [0, 1].map(|axis| f64::from(noise(2 * i + axis, 8).iter().map(|v| u32::from(*v)).sum::<u32>()));
            let shift = if rare { 220.0 } else { 0.0 };
            format!("{},{},{}\n", x + shift, y + shift, if rare { "rare" } else { "usual" })
        })
        .collect();
    temp.write("rare.csv", format!("x,y,kind\n{rows}"));
    let recall = |name: &str, settings: &str| {
        temp.run(&format!("train --data rare.csv --quiet --epochs 8 {settings} --out {name}")).ok();
        let report = temp.run(&format!("eval {name} --data rare.csv --json")).ok();
        let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
        let rare = report["per_class"].as_array().unwrap().iter().find(|class| class["class"] == "rare").cloned();
        rare.unwrap_or_else(|| panic!("{report}"))["recall"].as_f64().unwrap()
    };
    let (plain, balanced) = (recall("plain", ""), recall("balanced", "--set train.class_weights=balanced"));
    assert!(balanced > plain + 0.1, "{plain} and {balanced}");
    let outcome = temp.run("train --data rare.csv --quiet --set train.class_weights=[1,2,3] --out wrong");
    outcome.refused(1, &["3 weights of classes where there are 2"]);
    let outcome = temp.run("train --data rare.csv --quiet --set train.class_weights=even --out wrong");
    outcome.refused(2, &["class_weights", "must be \"balanced\" or a list"]);
    temp.run("train --data rare.csv --quiet --set train.cutmix=1.0 --out wrong").refused(1, &["train.cutmix", "table"]);
    temp.run("train --data rare.csv --quiet --set train.mixup=0.2 --epochs 2 --out mixed").ok();
    assert!(!temp.path("wrong").exists());
}

/// A batch norm that sees one value a channel makes the same of every example: such runs ended at the share of the largest
/// class, without a word.
#[test]
fn batches_of_one_value_a_channel_are_refused() {
    let temp = Temp::with_recipes();
    let norms = "--set network.layers=[{kind=\"fc\",out=12},{kind=\"batch_norm\"},{kind=\"act\"},{kind=\"fc\"}]";
    temp.write("norms.toml", "name = \"norms\"\ntrain.batch = 32\n");
    let train = format!("train --recipe norms.toml --epochs 1 {norms}");
    let refused = ["layer 1 (batch_norm)", "single value", "train.batch"];
    temp.run(&format!("{train} --set train.batch=1 --out run")).refused(1, &refused);
    temp.run(&format!("{train} --set train.batch=1 --dry-run")).refused(1, &refused);
    let sweep = temp.run(&format!("sweep --recipe norms.toml --grid train.batch=1,2 --out sweep --epochs 1 {norms}"));
    assert!(sweep.code == Some(1) && refused.iter().all(|words| sweep.err.contains(words)), "{sweep:?}");
    assert!(!temp.path("run").exists());
    // A picture has many values, and without norms one example is enough.
    let pictures = norms.replace("{kind=\"fc\",out=12}", "{kind=\"conv\",out=2,kernel=3}");
    temp.run(&format!("train --recipe norms.toml {pictures} --set train.batch=1 --dry-run")).ok();
    temp.run("train --recipe small.toml --set train.batch=1 --dry-run").ok();
    // An image of one pixel is no picture.
    let pixel = norms.replace("{kind=\"fc\",out=12}", "{kind=\"conv\",out=2,kernel=8}");
    temp.run(&format!("train --recipe norms.toml {pixel} --set train.batch=1 --dry-run")).refused(1, &refused);

    // The digits have 1,438 examples to learn from, and 1,437 are a multiple of 3.
    for (batch, said) in [(3, true), (4, false)] {
        for quiet in ["--quiet", ""] {
            let out = format!("batch{batch}{quiet}");
            let run = temp.run(&format!("{train} --set train.batch={batch} {quiet} --out {out}")).ok();
            assert_eq!(run.err.contains("the last batch of each epoch has 1 example"), said, "{run:?}");
        }
    }
}

/// Partners are found within a batch.
#[test]
fn examples_are_not_mixed_with_themselves() {
    let temp = Temp::with_recipes();
    for mixing in ["train.mixup=0.2", "train.cutmix=1"] {
        temp.run(&format!("train --recipe small.toml --set train.batch=1 --set {mixing} --out run"))
            .refused(1, &["train.batch", "at least 2"]);
    }
    assert!(!temp.path("run").exists());
}
