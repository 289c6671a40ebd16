//! The commands around training: each does what it says, with data of every kind.

mod common;

use common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ftprop-train/recipes")
}

fn summary(temp: &Temp, arguments: &str) -> Value {
    temp.run(&format!("summary {arguments} --json")).json()
}

#[test]
fn every_help_page_has_an_example() {
    let temp = Temp::new();
    let all = temp.run("--help").ok().out;
    let commands: Vec<&str> = all
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    for needed in ["train", "eval", "predict", "summary", "plot", "selftest"] {
        assert!(commands.contains(&needed), "{needed} is not in {all}");
    }
    for command in commands {
        let help = temp.run(&format!("{command} --help")).ok().out;
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains(&format!("ftprop {command}")), "{command}: {help}");
    }
    assert!(temp.run("--version").ok().out.starts_with("ftprop "));
}

/// Eval finds again what training recorded.
#[test]
fn eval_agrees_with_training() {
    let temp = Temp::with_recipes();
    let mut trained = temp.run("train --recipe thorough.toml --quiet --json --epochs 3 --out run").json();
    assert_eq!(trained.as_object_mut().unwrap().remove("run"), Some("run".into()));
    assert_eq!(trained, temp.json("run/summary.json"));
    let metrics = temp.text("run/metrics.jsonl");
    let epochs: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let best = &epochs[trained["best_epoch"].as_u64().unwrap() as usize - 1];
    let last = &epochs[2];
    for (which, epoch) in [("best", best), ("last", last)] {
        for (split, examples) in [("test", 359), ("validation", 144)] {
            let found = temp.run(&format!("eval run --split {split} --checkpoint {which} --json")).json();
            assert_eq!(found["examples"], examples);
            assert_eq!(found["top1"], epoch[split]["top1"], "{split} {which}");
            assert_eq!(found["top5"], epoch[split]["top5"]);
            let loss = |value: &Value| value["loss"].as_f64().unwrap();
            assert!((loss(&found) - loss(&epoch[split])).abs() < 1e-6 * loss(&found));
        }
    }
    assert_eq!(last["test"]["top1"], trained["test"]["top1_last"]);
    assert_eq!(best["test"]["top1"], trained["test_top1_at_best"]);
    let most = epochs.iter().map(|e| e["test"]["top1"].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(trained["test"]["top1_best"], most);
    assert!(trained["validation"]["top1_last"].is_f64() && trained["seconds"].is_f64());
    assert!(trained["images_per_s"].as_f64().unwrap() > 0.0);

    // The training part is what the validation part left, here without augmentation.
    let train = temp.run("eval run --split train --json").json();
    assert_eq!((&train["examples"], &train["split"]), (&1294.into(), &"train".into()));
    // As text; from a checkpoint alone; in other batches and with other threads.
    let text = temp.run("eval run").ok().out;
    assert!(text.contains("top-1") && text.contains("359 examples"), "{text}");
    let alone = temp.run("eval run/best.safetensors --json --batch 7 --threads 1").json();
    assert_eq!(alone["top1"], best["test"]["top1"]);
    for file in ["curves.svg", "curves.png", "recipe.toml"] {
        assert!(temp.path("run").join(file).exists(), "{file}");
    }
    assert!(std::fs::read_dir(temp.path("run")).unwrap().any(|e| {
        let name = e.unwrap().file_name();
        name.to_string_lossy().starts_with("events.out.tfevents.")
    }));
}

/// A resolved recipe trains the same run again.
#[test]
fn a_runs_recipe_repeats_it() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe thorough.toml --quiet --epochs 1 --seed 3 --out a --set activation=qrelu:3").ok();
    temp.run("train --recipe a/recipe.toml --quiet --out b").ok();
    temp.assert_same_result("a", "b");
}

#[test]
fn without_out_runs_are_numbered() {
    let temp = Temp::with_recipes();
    for _ in 0..2 {
        temp.run("train --recipe small.toml --quiet --epochs 1").ok();
    }
    temp.assert_same_result("runs/small", "runs/small-2");
    // A name that is no name for a folder stays within the folder of runs.
    temp.run("train --recipe small.toml --quiet --epochs 1 --set name=..").ok();
    assert!(temp.path("runs/run/summary.json").exists());
}

#[test]
fn predict_tells_pictures_apart() {
    let temp = Temp::with_recipes();
    temp.photos("photos");
    let train = "train --recipe small.toml --quiet --out run --set data.source=folder --set data.crop=8 \
                 --set data.resize=9 --set train.batch=4 --epochs 15 --data photos";
    temp.run(train).ok();
    assert_eq!(temp.json("run/summary.json")["test"]["top1_last"], 1.0);
    let text = temp.run("predict run photos/val/bright/0.png photos/val/dark/1.png").ok().out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("photos/val/bright/0.png: bright ") && lines[0].ends_with(" %"), "{text}");
    assert!(lines[1].starts_with("photos/val/dark/1.png: dark "), "{text}");
    let found = temp.run("predict run/best.safetensors photos/val/dark/2.png --top 5 --json").json();
    let classes = found[0]["classes"].as_array().unwrap();
    assert_eq!((classes.len(), &classes[0]["class"]), (2, &"dark".into()));
    let sum: f64 = classes.iter().map(|c| c["confidence"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    // One bad file does not keep the others from their answer.
    let mixed = temp.run("predict run small.toml photos/val/dark/3.png");
    assert_eq!(mixed.code, Some(1));
    assert!(mixed.out.contains("dark/3.png: dark") && mixed.err.contains("small.toml"), "{mixed:?}");
}

/// A picture of a digit goes the same way: any size, one channel.
#[test]
fn predict_takes_grey_pictures_for_the_digits() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run --epochs 3").ok();
    let zero = image::GrayImage::from_fn(16, 16, |x, y| {
        let radius = ((f64::from(x) - 7.5) / 5.0).hypot((f64::from(y) - 7.5) / 7.0);
        image::Luma([if (0.6..1.1).contains(&radius) { 255 } else { 0 }])
    });
    zero.save(temp.path("zero.png")).unwrap();
    let found = temp.run("predict run zero.png --json").json();
    assert_eq!(found[0]["classes"][0]["class"], "0", "{found}");
}

#[test]
fn a_table_is_learnt_and_cannot_be_shown_pictures() {
    let temp = Temp::with_recipes();
    let bytes = noise(1, 600);
    let row = |(i, pair): (usize, &[u8])| {
        let class = if pair[0] > pair[1] { "more" } else { "less" };
        format!("{i},{class},{},{}\n", pair[0], pair[1])
    };
    let rows: String = bytes.chunks_exact(2).enumerate().map(row).collect();
    temp.write("table.csv", format!("id,kind,a,b\n{rows}"));
    let train = "train --recipe small.toml --quiet --data table.csv --set data.source=csv --set data.csv.label=kind \
                 --set data.csv.test_fraction=0.25 --epochs 30 --set optimizer.lr=0.01 --out run";
    temp.run(train).ok();
    assert!(temp.json("run/summary.json")["test"]["top1_last"].as_f64().unwrap() > 0.9);
    assert_eq!(temp.run("eval run --json").json()["examples"], 75);
    temp.write("x.png", "");
    temp.run("predict run x.png").refused(1, &["trained on a table", "x.png"]);
    temp.write(
        "table.toml",
        "data = { source = \"csv\", path = \"table.csv\", csv.label = \"kind\" }\nnetwork.preset = \"mlp\"\n",
    );
    let shown = summary(&temp, "table.toml --classes 7");
    assert_eq!((&shown["input"], &shown["classes"]), (&"3".into(), &7.into()));
    // Other data is normalised as the training data was: here nearly all are more, by much.
    let other = |i: usize| match i % 10 {
        0 => format!("{i},less,{},{}\n", i % 7, 200 + i % 5),
        _ => format!("{i},more,{},{}\n", 60 + i % 190, i % 9),
    };
    temp.write("other.csv", format!("id,kind,a,b\n{}", (0..300).map(other).collect::<String>()));
    let top1 = temp.run("eval run --data other.csv --json").json()["top1"].as_f64().unwrap();
    assert!(top1 > 0.9, "{top1}");
    temp.write("wide.csv", "id,kind,a,b,c\n0,more,200,10,1\n1,less,10,200,2\n2,less,0,90,3\n3,more,9,2,1\n");
    temp.run("eval run --data wide.csv").refused(1, &["wide.csv", "has not", "`c`"]);
    // A test file of its own, found again from another folder.
    temp.write("test.csv", "id,kind,a,b\n0,more,200,10\n1,less,10,200\n2,less,0,90\n");
    let train = train.replace("--set data.csv.test_fraction=0.25", "--set data.csv.test_file=test.csv");
    temp.run(&train.replace("--out run", "--out other")).ok();
    std::fs::create_dir(temp.path("elsewhere")).unwrap();
    let mut eval = temp.command("eval ../other --json");
    eval.current_dir(temp.path("elsewhere"));
    assert_eq!(Outcome::of("eval ../other --json", eval).json()["examples"], 3);
    // A test part that says little.
    temp.write("test.csv", "id,kind,a,b\n0,more,200,10\n1,more,90,20\n");
    let output = temp.run(&train.replace("--out run", "--out unseen").replace("--quiet", "")).ok();
    assert!(output.err.contains("no example of less"), "{output:?}");
    // Of several, a folder that is no run is left out of a picture, and the exit code says that something was.
    let output = temp.run("plot run elsewhere other");
    assert!(output.code == Some(1) && output.err.contains("left out: elsewhere"), "{output:?}");
    assert!(output.out.contains("plot.svg") && temp.path("plot.svg").exists(), "{output:?}");
    let output = temp.run("plot run elsewhere other --json");
    assert!(output.code == Some(1) && output.out.contains("\"left_out\": [\n    \"elsewhere\""), "{output:?}");
}

#[test]
fn mnist_and_cifar_files_are_learnt() {
    let temp = Temp::with_recipes();
    temp.mnist("mnist", 60, 20);
    let train = "train --recipe small.toml --quiet --set train.batch=10";
    temp.run(&format!("{train} --data mnist --set data.source=mnist --epochs 30 --set optimizer.lr=0.01 --out m")).ok();
    assert_eq!(temp.json("m/summary.json")["test"]["top1_last"], 1.0);
    assert_eq!(summary(&temp, "m")["input"], "1×6×5");
    temp.cifar10("cifar");
    let cifar = "--data cifar --set data.source=cifar10 --set data.pad=4 --set data.random_crop=true";
    temp.run(&format!("{train} {cifar} --set data.flip=true --epochs 1 --out c")).ok();
    assert_eq!(summary(&temp, "c")["input"], "3×32×32");
    assert_eq!(temp.run("eval c --split train --json").json()["examples"], 40);
}

/// The figures were computed by hand from the tables of the networks; resnet18's is torchvision's.
#[test]
fn presets_have_the_right_number_of_parameters() {
    let temp = Temp::new();
    for (recipe, parameters) in [
        ("cifar10/convnet4-sign-ftpsh", 4_259_274),
        ("cifar10/convnet8-qrelu-ftpsh", 1_492_554),
        ("imagenet/alexnet-sign-sste", 62_394_344),
        ("imagenet/resnet18-qrelu-ftpsh", 11_689_512),
    ] {
        let path = recipes().join(format!("{recipe}.toml"));
        assert_eq!(summary(&temp, &path.display().to_string())["parameters"], parameters, "{recipe}");
    }
    temp.write("mlp.toml", "network = { preset = \"mlp\", widths = [100, 50] }");
    let mlp = summary(&temp, "mlp.toml --input 20 --classes 5");
    assert_eq!(mlp["parameters"], 20 * 100 + 100 + 100 * 50 + 50 + 50 * 5 + 5);
    assert_eq!(mlp["multiply_adds"], 20 * 100 + 100 * 50 + 50 * 5);
    assert_eq!(mlp["activation_bits"], 150, "a sign is a bit");
}

#[test]
fn every_recipe_builds_and_says_what_its_name_says() {
    let temp = Temp::new();
    let mut count = 0;
    for folder in ["cifar10", "cifar100", "imagenet", "imagenette"] {
        for entry in std::fs::read_dir(recipes().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let layers = summary(&temp, &path.display().to_string())["layers"].clone();
            let kinds: Vec<&str> = layers.as_array().unwrap().iter().filter_map(|l| l["kind"].as_str()).collect();
            // The ResNet for small pictures has the name of its data before its own.
            let (_, rest) = stem.trim_start_matches("cifar-").split_once('-').unwrap();
            let k = if stem.starts_with("resnet18") { 5 } else { 3 };
            let expected = match rest {
                "sign-sste" => "sign, saturated_hinge".to_owned(),
                "sign-ftpsh" | "sign" | "sign-taught" => "sign, soft_hinge".to_owned(),
                "qrelu-sste" => format!("qrelu:{k}, saturated_hinge"),
                "qrelu-ftpsh" | "qrelu" | "qrelu-taught" => format!("qrelu:{k}, soft_hinge"),
                "relu" => "relu".to_owned(),
                "saturated-relu" => "saturated_relu".to_owned(),
                other => panic!("a recipe of another name: {other}"),
            };
            assert!(kinds.contains(&expected.as_str()), "{stem}: {kinds:?}");
            count += 1;
        }
    }
    assert_eq!(count, 63);
}

#[test]
fn another_schedule_takes_the_place_of_a_recipes() {
    use ftprop_nn::ScheduleKind;
    use ftprop_train::recipe::Recipe;
    let layers = Recipe::defaults().unwrap().file(&recipes().join("cifar10/convnet8-relu.toml")).unwrap();
    let schedule = |settings: &[&str]| {
        let layers = settings.iter().fold(layers.clone(), |layers, setting| layers.set(setting).unwrap());
        let recipe: Recipe = layers.build().unwrap();
        recipe.checked().map(|recipe| recipe.schedule.clone())
    };
    assert_eq!(schedule(&["schedule.kind=step"]).unwrap().decay_at, [200, 250], "the same kind");
    for kind in ["constant", "cosine"] {
        let settings = ["schedule.floor=0.1", &format!("schedule.kind={kind}"), "schedule.warmup=2"];
        let schedule = schedule(&settings).unwrap();
        assert!(schedule.decay_at.is_empty() && schedule.kind != ScheduleKind::Step, "{schedule:?}");
        assert_eq!((schedule.floor, schedule.warmup), (0.1, 2.0), "what was said beside it");
    }
    assert!(schedule(&["schedule.kind=constant", "schedule.decay_at=[3]"]).is_err());
}

#[test]
fn summary_shows_layers_a_user_wrote() {
    let temp = Temp::with_recipes();
    let rows = summary(&temp, "thorough.toml");
    let find = |path: &str| rows["layers"].as_array().unwrap().iter().find(|l| l["layer"] == path).unwrap().clone();
    assert_eq!(find("0")["parameters"], 8 * 9, "no bias before a norm");
    assert_eq!(find("2")["kind"], "qrelu:3, soft_hinge");
    assert_eq!(find("2")["activation_bits"], 2 * 8 * 64);
    assert_eq!(find("3.main.0")["parameters"], 16 * 4 * 9, "each of two groups sees half of the channels");
    assert_eq!(find("3.main.0")["output"], "16×4×4");
    assert_eq!(find("3.shortcut.0")["parameters"], 16 * 8 + 16);
    assert_eq!(find("5")["parameters"], 2 * 16, "a factor and a summand for each channel");
    assert_eq!(find("6")["activation_bits"], 16 * 4);
    let text = temp.run("summary thorough.toml").ok().out;
    assert!(text.contains("residual sum") && text.contains("in all"), "{text}");
    temp.run("train --recipe thorough.toml --quiet --epochs 1 --out run").ok();
    assert_eq!(summary(&temp, "run"), rows);
    assert_eq!(summary(&temp, "run/checkpoint.safetensors"), rows);
}

#[test]
fn plot_compares_runs() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out first").ok();
    temp.run("train --recipe small.toml --quiet --out second --seed 2").ok();
    let said = temp.run("plot first second/ --out both.png --title digits").ok().out;
    assert!(said.contains("both.svg") && said.contains("both.png"), "{said}");
    let picture = image::open(temp.path("both.png")).unwrap();
    assert!(picture.width() > 300 && picture.height() > 200);
    let drawing = temp.text("both.svg");
    for word in ["<svg", "first", "second", "digits"] {
        assert!(drawing.contains(word), "{word}");
    }
    image::open(temp.path("first/curves.png")).unwrap();
}

#[test]
fn selftest_passes_and_notices_a_wrong_number() {
    let temp = Temp::new();
    let rows = temp.run("selftest --json").json();
    assert_eq!(rows.as_array().unwrap().len(), 12);
    assert!(rows.as_array().unwrap().iter().all(|row| row["passed"] == true), "{rows}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ftprop-train/golden");
    for name in ["mlp-sign-soft", "mlp-relu"] {
        temp.write(&format!("cases/{name}.json"), std::fs::read(golden.join(format!("{name}.json"))).unwrap());
    }
    let said = temp.run("selftest --golden cases").ok().out;
    assert!(said.contains("2 passed, 0 failed"), "{said}");
    let mut case: Value = temp.json("cases/mlp-relu.json");
    let loss = &mut case["expect"][0]["loss"];
    *loss = (loss.as_f64().unwrap() * 1.01).into();
    temp.write("cases/mlp-relu.json", case.to_string());
    let failed = temp.run("selftest --golden cases");
    assert_eq!(failed.code, Some(1));
    assert!(failed.out.contains("FAILED  mlp-relu") && failed.out.contains("1 passed, 1 failed"), "{failed:?}");
    temp.write("cases/mlp-relu.json", "{}");
    temp.run("selftest --golden cases").refused(1, &["mlp-relu.json", "not a golden case"]);
}
