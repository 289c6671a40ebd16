//! Figures that do not flatter, and scripts that get them whole.

mod common;

use common::*;
use serde_json::Value;

/// A rate that is far too large from the third epoch on: the last epoch is not the best on the test part.
const WORSE: &str = "--set schedule.kind=step --set schedule.decay_at=[3] --set schedule.factor=3000 \
                     --set optimizer.name=adam --set optimizer.lr=2e-3";

fn epochs(temp: &Temp, run: &str) -> Vec<Value> {
    temp.text(&format!("{run}/metrics.jsonl")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn nothing_is_chosen_on_the_test_part() {
    let temp = Temp::with_recipes();
    let train = format!("train --recipe small.toml --epochs 4 {WORSE} --set train.epochs=4");
    let said = temp.run(&format!("{train} --out plain")).ok();
    let all = epochs(&temp, "plain");
    let top1 = |epoch: &Value, part: &str| epoch[part]["top1"].as_f64().unwrap();
    let best = all.iter().map(|e| top1(e, "test")).fold(0.0, f64::max);
    assert!(best > top1(&all[3], "test"), "this run gets worse: {all:?}");
    let found = temp.run("eval plain --json").json();
    assert_eq!(found["top1"], all[3]["test"]["top1"], "the network that is kept is the last one");
    assert_eq!(temp.json("plain/summary.json")["best_epoch"], 4);
    assert!(said.out.contains("kept is the last epoch") && said.out.contains("which flatters"), "{said:?}");
    // With a validation part the epoch is chosen on that.
    let said = temp.run(&format!("{train} --set data.validation=0.2 --out held")).ok();
    let all = epochs(&temp, "held");
    let best =
        (0..4).rev().max_by(|&a, &b| top1(&all[a], "validation").total_cmp(&top1(&all[b], "validation"))).unwrap();
    assert_eq!(temp.json("held/summary.json")["best_epoch"], best as u64 + 1);
    assert_eq!(temp.run("eval held --json").json()["top1"], all[best]["test"]["top1"]);
    assert!(said.out.contains("best on the validation part"), "{said:?}");
}

/// Whichever run is better on the test part, the order is that of the validation part.
#[test]
fn a_sweep_ranks_by_validation_where_there_is_some() {
    let temp = Temp::with_recipes();
    let sweep = "sweep --recipe small.toml --grid optimizer.lr=1e-5,1e-2 --quiet";
    temp.run(&format!("{sweep} --set data.validation=0.2 --out held")).ok();
    let report = temp.text("held/report.md");
    assert!(report.contains("on the validation part") && report.contains("| validation |"), "{report}");
    temp.run(&format!("{sweep} --out plain")).ok();
    let report = temp.text("plain/report.md");
    assert!(report.contains("flattered") && report.contains("data.validation"), "{report}");
}

/// A table to test by that was the one to train on, or one with every row twice, was measured without a word.
#[test]
fn test_rows_that_were_learned_from_are_told_of() {
    let temp = Temp::new();
    let rows: Vec<String> = (0..60).map(|i| format!("{},{},k{}\n", i * 7 % 60, i * 11 % 60, i % 3)).collect();
    temp.write("t.csv", format!("x,y,kind\n{}", rows.concat()));
    temp.write("twice.csv", format!("x,y,kind\n{}{}", rows.concat(), rows.concat()));
    let said = |data: &str, out: &str| temp.run(&format!("train --data {data} --epochs 1 --out {out}")).ok().err;
    let flatters = "are the same as training rows, labels included, so the test accuracy flatters";
    assert!(said("t.csv --set data.csv.test_file=t.csv", "same").contains(&format!("60 of 60 test rows {flatters}")));
    let twice = said("twice.csv", "twice");
    assert!(twice.contains(flatters), "{twice}");
    let once = said("t.csv", "once");
    assert!(!once.contains("flatters"), "{once}");
    // Prepared pictures have checksums, and so are known again too.
    temp.photos("photos");
    temp.run("prepare photos -o made.ftpictures --resize 10").ok();
    let flatters = "8 of 8 test pictures are the same as training pictures, labels included";
    let pictures = said("made.ftpictures", "pictures");
    assert!(pictures.contains(flatters), "{pictures}");
}

/// Half of the test rows could not be got right, and nothing said so.
#[test]
fn classes_that_cannot_be_learned_are_told_of() {
    let temp = Temp::new();
    let rows =
        |class: &dyn Fn(usize) -> &'static str| -> String { (0..60).map(|i| format!("{i},{}\n", class(i))).collect() };
    let usual = |i: usize| ["left", "right"][i % 2];
    temp.write("plain.csv", rows(&usual));
    // Which rows are held out does not depend on what they say.
    let data = ftprop_data::open(ftprop_data::Source::Csv, Some(&temp.path("plain.csv")), &Default::default()).unwrap();
    let (learned, tested) = (data.train.number(3), data.test.number(3));
    temp.write("tested.csv", rows(&|i| if i == tested { "odd" } else { usual(i) }));
    temp.write("learned.csv", rows(&|i| if i == learned { "odd" } else { usual(i) }));
    let said = |name: &str| temp.run(&format!("train --data {name}.csv --epochs 1 --out {name}")).ok().err;
    let never =
        "the training part has no example of odd, which the test part has, so the network can never answer that";
    for (name, told) in [("plain", false), ("tested", true), ("learned", false)] {
        let said = said(name);
        assert_eq!(said.contains(never), told, "{name}: {said}");
        assert_eq!(said.contains("the test part has no example of odd"), name == "learned", "{name}: {said}");
    }
}

/// A single example that was held out kept the first epoch that had it right.
#[test]
fn too_few_to_choose_by_are_told_of() {
    let temp = Temp::with_recipes();
    let said = |validation: &str, out: &str| {
        temp.run(&format!("train --recipe small.toml --set data.validation={validation} --epochs 1 --out {out}"))
            .ok()
            .err
    };
    assert!(said("1", "one").contains("1 example is held out to choose an epoch by, fewer than there are classes"));
    assert!(said("9", "nine").contains("9 examples are held out"));
    assert!(!said("0.1", "enough").contains("chance chooses") && !said("0", "none").contains("chance chooses"));
}

#[test]
fn a_packed_model_has_the_loss_it_was_trained_with() {
    let temp = Temp::with_recipes();
    for (name, settings) in [
        ("hinge", "--set train.loss=crammer_singer"),
        ("smooth", "--set train.label_smoothing=0.2"),
        ("plain", "--epochs 2"),
    ] {
        temp.run(&format!("train --recipe small.toml --quiet --out {name} {settings}")).ok();
        temp.run(&format!("export {name} -o {name}.ftp --weights f32")).ok();
        let loss = |model: &str| temp.run(&format!("eval {model} --json")).json()["loss"].as_f64().unwrap();
        let (float, packed) = (loss(name), loss(&format!("{name}.ftp")));
        assert!((float - packed).abs() < 1e-3 * float, "{name}: {float} in float, {packed} packed");
    }
    // One that does not say calls it by another name.
    let file = temp.read("hinge.ftp");
    let mut model = ftprop_runtime::Model::parse(&file).unwrap();
    model.notes.clear();
    temp.write("silent.ftp", model.to_bytes().unwrap());
    let found = temp.run("eval silent.ftp --source digits --json").json();
    assert!(found["loss"].is_null() && found["cross_entropy"].is_f64(), "{found}");
    let text = temp.run("eval silent.ftp --source digits").ok().out;
    assert!(text.contains("cross entropy") && !text.contains("loss"), "{text}");
    temp.run("eval silent.ftp").refused(2, &["--source", "--data"]);
}

#[test]
fn classes_are_measured_one_by_one() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    let found = temp.run("eval run --plot confused --json").json();
    let rows: Vec<Vec<u64>> = serde_json::from_value(found["confusion"].clone()).unwrap();
    assert_eq!((rows.len(), rows.iter().flatten().sum::<u64>()), (10, 359));
    let right: u64 = (0..10).map(|i| rows[i][i]).sum();
    assert_eq!(right as f64 / 359.0, found["top1"].as_f64().unwrap());
    for (number, class) in found["per_class"].as_array().unwrap().iter().enumerate() {
        let (row, column) = (rows[number].iter().sum::<u64>(), rows.iter().map(|r| r[number]).sum::<u64>());
        assert_eq!((&class["class"], &class["examples"]), (&number.to_string().into(), &row.into()));
        assert_eq!(class["recall"].as_f64().unwrap(), rows[number][number] as f64 / row as f64);
        assert_eq!(class["precision"].as_f64().unwrap(), rows[number][number] as f64 / column as f64);
    }
    let text = temp.run("eval run --confusion").ok().out;
    for word in ["precision", "recall", "F1", "taken for", "mean F1 of the classes"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let picture = image::open(temp.path("confused.png")).unwrap();
    assert!(picture.width() > 300 && temp.text("confused.svg").contains("taken for"));
}

#[test]
fn scripts_get_everything_as_json() {
    let temp = Temp::with_recipes();
    let trained = temp.run("train --recipe small.toml --quiet --json").json();
    assert_eq!((&trained["run"], &trained["epochs"]), (&"runs/small".into(), &2.into()));
    let again = temp.run("train --recipe small.toml --quiet --json").json();
    assert_eq!(again["run"], "runs/small-2");
    // The metrics as a table, also after a stop.
    temp.run("train --resume runs/small --epochs 4 --quiet").ok();
    temp.run("train --recipe small.toml --epochs 4 --quiet --out whole").ok();
    let table = |run: &str| -> Vec<Vec<String>> {
        let text = temp.text(&format!("{run}/metrics.csv"));
        // Speeds and times differ.
        text.lines().map(|line| line.split(',').take(11).map(str::to_owned).collect()).collect()
    };
    assert_eq!(table("runs/small"), table("whole"));
    let rows = table("whole");
    assert_eq!((rows.len(), rows[0][0].as_str(), rows[0][8].as_str()), (5, "epoch", "test_top1"));
    let last: Value = serde_json::from_str(temp.text("whole/metrics.jsonl").lines().last().unwrap()).unwrap();
    assert_eq!(rows[4][8].parse::<f64>().unwrap(), last["test"]["top1"].as_f64().unwrap());
    assert!(rows[4][4].is_empty(), "there is no validation part");

    let shown = temp.run("summary whole --json").json();
    assert_eq!(shown["input_shape"], serde_json::json!([8, 8, 1]));
    assert!(shown["layers"][0]["output_shape"][2].is_u64());
    let drawn = temp.run("plot whole --out drawn --json").json();
    assert_eq!((&drawn["svg"], &drawn["png"]), (&"drawn.svg".into(), &"drawn.png".into()));
    temp.run("export whole -o w.safetensors").ok();
    let back = temp.run("import w.safetensors --recipe small.toml --out back --json").json();
    assert_eq!((&back["run"], &back["parameters"]), (&"back".into(), &1210.into()));
    // Nothing but errors is told.
    let silent = temp.run("train --recipe small.toml --out silent --log-level error").ok();
    assert!(silent.err.is_empty() && silent.out.contains("test accuracy"), "{silent:?}");
}

#[test]
fn a_dry_run_prints_a_recipe_that_trains_the_same() {
    let temp = Temp::with_recipes();
    let dry = temp.run("train --recipe thorough.toml --epochs 2 --seed 5 --dry-run --quiet").ok();
    assert!(!temp.path("runs").exists() && dry.out.starts_with("# digits: 1294 training, 144 held-out and 359 test"));
    temp.write("again.toml", &dry.out);
    temp.run("train --recipe thorough.toml --epochs 2 --seed 5 --quiet --out one").ok();
    temp.run("train --recipe again.toml --quiet --out two").ok();
    temp.assert_same_result("one", "two");
    let dry = temp.run("train --recipe small.toml --dry-run --json").json();
    assert_eq!((&dry["data"]["train"], &dry["network"]["parameters"]), (&1438.into(), &1210.into()));
    assert_eq!(dry["recipe"]["train"]["epochs"], 2);
    temp.run("train --recipe small.toml --dry-run --quiet --set network.widths=[0]").refused(1, &["layer 0"]);
}

/// The same number of epochs means the same for `train` as for sweeps.
#[test]
fn a_number_of_epochs_scales_the_schedule() {
    let temp = Temp::with_recipes();
    let settings = "--set train.epochs=10 --set schedule.kind=step --set schedule.decay_at=[5,8]";
    let dry = temp.run(&format!("train --recipe small.toml {settings} --epochs 100 --dry-run --json")).json();
    let scaled = &dry["recipe"]["schedule"]["decay_at"];
    temp.run(&format!(
        "sweep --recipe small.toml {settings} --epochs 100 --grid weighted=true,false --out s --quiet --minutes 0.00001"
    ));
    let swept = temp.text("s/runs/small/weighted-true/seed-1/recipe.toml");
    let decay: Vec<u64> = serde_json::from_value(scaled.clone()).unwrap();
    assert!(swept.contains(&format!("decay_at = {decay:?}")), "{decay:?}: {swept}");
}

/// A recipe whose decays come after the end of a quick look was told that its kind of schedule has no effect.
#[test]
fn a_schedule_without_its_decays_is_no_mistake() {
    let temp = Temp::with_recipes();
    temp.cifar10("cifar");
    let train = "train --recipe convnet4-sign-ftpsh --data cifar --set train.batch=16 --device cpu --dry-run";
    let short = temp.run(&format!("{train} --epochs 1")).ok();
    assert!(!short.err.contains("no effect") && short.out.contains("kind = \"constant\""), "{short:?}");
    // What its author forgot is told.
    let none = temp.run("train --recipe small.toml --set schedule.kind=step --dry-run").ok();
    assert!(none.err.contains("schedule.kind has no effect"), "{none:?}");
}

/// Sizes that fall together when epochs are scaled were gone without a word.
#[test]
fn sizes_that_scaling_leaves_out_are_told() {
    let temp = Temp::with_recipes();
    temp.photos("photos");
    temp.write("own.toml", "name = \"own\"\nnetwork.preset = \"bireal18\"\n[train]\nepochs = 90\nbatch = 4\n[data]\nsizes = [[1, 32], [2, 48], [3, 64]]\nresize = 64\ncrop = 64\n");
    let scaled = temp.run("train --recipe own.toml --data photos --epochs 3 --dry-run").ok();
    assert!(scaled.err.contains("1 of its 3 sizes") && scaled.out.contains("sizes = [[1, 64]]"), "{scaled:?}");
    let kept = temp.run("train --recipe own.toml --data photos --set train.epochs=3 --dry-run").ok();
    assert!(!kept.err.contains("sizes") && kept.out.contains("sizes = [[1, 32], [2, 48], [3, 64]]"), "{kept:?}");
}

#[test]
fn shells_and_manuals_are_told_what_there_is() {
    let temp = Temp::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = temp.run(&format!("completions {shell}")).ok().out;
        assert!(text.contains("predict") && text.contains("dry-run"), "{shell}");
    }
    temp.run("man --out pages").ok();
    let page = temp.text("pages/ftprop-train.1");
    assert!(page.contains("ftprop\\-train") && page.contains("\\-\\-resume"), "{page}");
    assert!(temp.text("pages/ftprop.1").contains("Exit codes"));
    let version = temp.run("--version").ok().out;
    assert!(version.starts_with(&format!("ftprop {}", env!("CARGO_PKG_VERSION"))), "{version}");
}

/// On a terminal of any width no line of an epoch is wrapped, and one that cannot move its cursor gets plain lines.
#[test]
fn progress_fits_its_terminal() {
    let temp = Temp::with_recipes();
    let program = env!("CARGO_BIN_EXE_ftprop");
    for (columns, term) in [(60, "xterm"), (80, "xterm"), (80, "dumb")] {
        let run = format!("stty cols {columns}; {program} train --recipe small.toml --epochs 3 --out {term}{columns}");
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).env("TERM", term).current_dir(temp.path(""));
        let Ok(output) = command.stdin(std::process::Stdio::null()).output() else {
            println!("skipped: there is no `script` to give the program a terminal");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // What stays on the screen: after the last thing that was cleared.
        let shown = |line: &str| line.rsplit("\u{1b}[2K").next().unwrap_or_default().trim_end().to_owned();
        let done: Vec<String> = said.lines().map(shown).filter(|line| line.contains("  test ")).collect();
        assert!(said.contains("epoch 3/3") && said.contains("run folder"), "{term} {columns}: {said:?}");
        match term {
            "dumb" => {
                assert_eq!(done.len(), 3, "{said:?}");
                assert!(!said.contains('\u{1b}') && done[2].contains("rate"), "{said:?}");
            }
            _ => assert!(
                done.iter().all(|line| line.split("epoch").nth(1).is_none_or(|l| l.trim_end().len() < columns)),
                "{said:?}"
            ),
        }
    }
}

#[test]
fn a_deleted_network_and_foreign_files_are_called_what_they_are() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    std::fs::remove_file(temp.path("run/best.safetensors")).unwrap();
    temp.run("eval run").refused(1, &["run/best.safetensors is gone", "--checkpoint"]);
    temp.run("eval run --checkpoint last").ok();
    for (file, whose) in [("x.onnx", "ONNX"), ("x.pt", "PyTorch"), ("x.tflite", "TensorFlow")] {
        temp.write(file, [8, 1, 18, 0]);
        temp.run(&format!("predict {file} a.png")).refused(1, &[file, whose, "packed model"]);
        temp.run(&format!("eval {file}")).refused(1, &[file, whose]);
    }
    temp.run("summary run/checkpoint.safetensors --input 1x8x8").refused(2, &["--input", "recipe"]);
    temp.run("summary run/checkpoint.safetensors --classes 3").refused(2, &["--classes", "recipe"]);
    temp.write("k.toml", "[[network.layers]]\nkind = \"conv\"\nout = 3\nkernel = \"3\"\n");
    temp.run("train --recipe k.toml --quiet")
        .refused(1, &["k.toml:", "`kernel` must be a whole number", "[height, width]"]);
    temp.write("t.csv", "a,b\n1,x\n2,y\n");
    let label = |value: &str| temp.run(&format!("train --quiet --data t.csv --set data.csv.label={value}"));
    label("-1").refused(2, &["`data.csv.label` must be a column's name, or its number counted from 0"]);
    label("1.5").refused(2, &["`data.csv.label` must be a column's name"]);
    label("c").refused(1, &["`c`", "`a`, `b`"]);
}

/// A batch that is larger than the data shrinks, and the same command still finds its runs.
#[test]
fn several_recipes_whose_batch_shrinks_are_gone_on_with() {
    let temp = Temp::with_recipes();
    temp.write("other.toml", SMALL.replace("\"small\"", "\"other\""));
    let train = "train --recipe small.toml --recipe other.toml --quiet --set train.batch=5000 --out runs";
    temp.run(train).ok();
    let before = temp.read("runs/small/checkpoint.safetensors");
    temp.run(train).ok();
    assert!(before == temp.read("runs/small/checkpoint.safetensors"));
    temp.run("train --resume runs/small --quiet --epochs 4").ok();
}

/// Names that come from files stay on their lines, whatever they hold.
#[test]
fn names_of_classes_do_not_speak() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    temp.run("export run -o run.ftp").ok();
    let file = temp.read("run.ftp");
    let mut model = ftprop_runtime::Model::parse(&file).unwrap();
    model.classes = (0..10).map(|i| format!("{i}\nsecret.png: authorised 100.0 %\u{1b}[2J")).collect();
    temp.write("loud.ftp", model.to_bytes().unwrap());
    image::GrayImage::new(8, 8).save(temp.path("a.png")).unwrap();
    for arguments in ["summary loud.ftp", "predict loud.ftp a.png", "predict loud.ftp a.png --format csv"] {
        let said = temp.run(arguments).ok().out;
        assert!(
            !said.contains('\u{1b}') && !said.lines().any(|line| line.starts_with("secret")),
            "{arguments}: {said}"
        );
    }
}

/// A packed model under another name was a damaged checkpoint, and a table that a network of pictures was to be measured on
/// was blamed for its cells.
#[test]
fn files_are_known_by_what_is_in_them() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    temp.run("export run -o model.ftp").ok();
    std::fs::copy(temp.path("model.ftp"), temp.path("model.bin")).unwrap();
    let loss = |model: &str| temp.run(&format!("eval {model} --json")).json()["loss"].clone();
    assert_eq!(loss("model.bin"), loss("model.ftp"));
    temp.write("table.csv", "a,b,kind\n1,,x\n2,3,y\n");
    for model in ["run", "model.ftp"] {
        temp.run(&format!("eval {model} --data table.csv")).refused(1, &["trained on pictures", "table.csv"]);
    }
}

/// Whoever sets something believes that it does something.
#[test]
fn settings_that_change_nothing_are_told() {
    let temp = Temp::with_recipes();
    let train = "train --recipe small.toml --quiet";
    for (number, (settings, key)) in [
        ("--set data.pad=1", "data.pad has no effect"),
        ("--set data.reflect=true", "data.reflect has no effect"),
        ("--set activation=relu --set target_rule=random_subset:0.5", "target_rule has no effect"),
        ("--set qrelu_form=per_step", "qrelu_form has no effect"),
        ("--set data.csv.label=kind", "data.csv has no effect"),
    ]
    .into_iter()
    .enumerate()
    {
        for more in [format!("--out run{number}"), "--dry-run".into()] {
            let told = temp.run(&format!("{train} {settings} {more}")).ok().err;
            assert!(told.contains(key) && told.lines().count() == 1, "{settings} {more}: {told}");
        }
    }
    assert!(temp.run(&format!("{train} --out plain")).ok().err.is_empty());
    for validation in ["1.5", "10.9", "-1", "nan"] {
        let run = temp.run(&format!("{train} --set data.validation={validation} --out no"));
        run.refused(1, &["data.validation", "a whole number of examples"]);
    }
    temp.run(&format!("{train} --set data.validation=10 --out ten")).ok();
}
