//! Data that changed since a run was trained: nothing that was learned from is counted as a test, and no run goes on with
//! other data than it began with.

mod common;

use common::*;
use ftprop_data::DataMark;
use ftprop_train::checkpoint::{self, Checkpoint, Origin};
use safetensors::SafeTensors;
use std::fs;

/// Rows whose labels are chance, so that only rows that were learned from are known.
fn rows(range: std::ops::Range<u64>) -> Vec<String> {
    let row = |i| {
        let bytes = noise(i, 9);
        let cells: Vec<String> = bytes[..8].iter().map(ToString::to_string).collect();
        format!("{},{}", cells.join(","), ["red", "green", "blue"][usize::from(bytes[8]) % 3])
    };
    range.map(row).collect()
}

fn table(rows: &[String]) -> String {
    format!("a,b,c,d,e,f,g,h,kind\n{}\n", rows.join("\n"))
}

/// A run on 150 rows, and its packed model.
fn with_run() -> Temp {
    let temp = Temp::new();
    temp.write("t.csv", table(&rows(0..150)));
    temp.run("train --data t.csv --out run --quiet --epochs 60").ok();
    temp.run("export run -o run.ftp --weights f32 --check").ok();
    temp
}

#[test]
fn a_table_that_changed_is_not_divided_anew() {
    let temp = with_run();
    let before = temp.run("eval run --json").json();
    assert_eq!((&before["split"], &before["examples"]), (&"test".into(), &30.into()));
    let all = rows(0..150);
    let (mut edited, mut turned) = (all.clone(), all.clone());
    // One that is measured: which one is decided by the number of rows alone.
    edited.iter_mut().for_each(|row| *row = row.replacen(',', "1,", 1));
    turned.reverse();
    let changes: [(&str, Vec<String>, &str); 4] = [
        ("added", rows(0..180), "150 examples then, 180 now"),
        ("removed", rows(0..140), "150 examples then, 140 now"),
        ("edited", edited, "150 examples then and now"),
        ("in another order", turned, "150 examples then and now"),
    ];
    for (what, rows, difference) in changes {
        temp.write("t.csv", table(&rows));
        let folder = temp.snapshot("run");
        for command in ["eval run", "eval run --data t.csv", "eval run --split train", "export run -o x.ftp --check"] {
            let how = if command.starts_with("export") { "--check PATH" } else { "--data" };
            temp.run(command).refused(1, &["t.csv", "not as it was in training", difference, how]);
        }
        assert!(!temp.path("x.ftp").exists());
        temp.run("train --resume run --epochs 70 --quiet").refused(1, &["run", difference, "--init-from run"]);
        assert_eq!(temp.snapshot("run"), folder, "{what}: nothing is written");
    }
    temp.write("t.csv", table(&all));
    assert_eq!(temp.run("eval run --json").json()["top1"], before["top1"]);
    temp.run("train --resume run --epochs 61 --quiet").ok();
}

#[test]
fn a_run_and_its_packed_model_say_the_same_of_any_table() {
    let temp = with_run();
    temp.write("copy.csv", table(&rows(0..150)));
    temp.write("grown.csv", table(&rows(0..180)));
    temp.write("new.csv", table(&rows(150..190)));
    let own = temp.run("eval run --json").json();
    for (file, split, examples, note) in [
        ("copy.csv", "test", 30, Some("was trained on these data")),
        (
            "grown.csv",
            "all",
            180,
            Some("120 of these 180 examples are among those that the network learned from, so the figure flatters"),
        ),
        ("new.csv", "all", 40, None),
    ] {
        let of = |model: &str| temp.run(&format!("eval {model} --data {file} --json")).json();
        let (run, packed) = (of("run"), of("run.ftp"));
        for found in [&run, &packed] {
            assert_eq!((&found["split"], &found["examples"]), (&split.into(), &examples.into()), "{file}: {found}");
            assert_eq!(found["note"].as_str().is_some(), note.is_some(), "{file}: {found}");
            assert!(found["note"].as_str().unwrap_or_default().contains(note.unwrap_or_default()), "{found}");
        }
        assert_eq!(run["top1"], packed["top1"], "{file}");
        if split == "test" {
            assert_eq!(run["top1"], own["top1"]);
        }
        let told = temp.run(&format!("eval run --data {file}")).ok().err;
        assert!(told.contains(note.unwrap_or_default()), "{told}");
    }
    temp.run("eval run --data grown.csv --split test").refused(1, &["150 examples then, 180 now"]);
    temp.run("eval run.ftp --data grown.csv --split test").refused(1, &["150 examples then, 180 now"]);
    let all = temp.run("eval run --split all --json").json();
    assert_eq!((&all["split"], &all["examples"]), (&"all".into(), &150.into()));
    assert!(all["note"].as_str().unwrap().contains("120 of these 150 examples"), "{all}");
    let checked = temp.run("export run -o y.ftp --check new.csv").ok().out;
    assert!(checked.contains("checked on 40 examples"), "{checked}");
    // A share of its own for the test part is known again.
    temp.run("train --data t.csv --set data.csv.test_fraction=0.4 --out other --quiet --epochs 2").ok();
    temp.run("export other -o other.ftp").ok();
    for split in ["", "--split test"] {
        assert_eq!(temp.run(&format!("eval other.ftp --data copy.csv {split} --json")).json()["examples"], 60);
    }
}

#[test]
fn a_folder_that_changed_is_not_divided_anew() {
    let temp = Temp::new();
    temp.photos("made");
    fs::rename(temp.path("made/train"), temp.path("photos")).unwrap();
    let train = "train --data photos --epochs 1 --quiet --set data.resize=10 --set data.crop=8";
    temp.run(&format!("{train} --out run")).ok();
    temp.run("eval run").ok();
    // Elsewhere it is the same.
    fs::rename(temp.path("photos"), temp.path("moved")).unwrap();
    let found = temp.run("eval run --data moved --json").json();
    assert!(found["split"] == "test" && found["note"].as_str().unwrap().contains("was trained on these"), "{found}");
    temp.run("train --resume run --data moved --epochs 2 --quiet").ok();
    fs::rename(temp.path("moved"), temp.path("photos")).unwrap();
    temp.run("train --resume run --data photos --epochs 3 --quiet").ok();
    fs::copy(temp.path("photos/dark/0.png"), temp.path("photos/dark/9.png")).unwrap();
    temp.run("train --resume run --epochs 4 --quiet").refused(1, &["16 examples then, 17 now"]);
    fs::remove_file(temp.path("photos/dark/9.png")).unwrap();
    fs::rename(temp.path("photos/dark/0.png"), temp.path("photos/dark/9.png")).unwrap();
    temp.run("train --resume run --epochs 4 --quiet").refused(1, &["16 examples then and now"]);
    fs::remove_dir_all(temp.path("photos/bright/")).unwrap();
    temp.run("eval run").refused(1, &["photos"]);
}

#[test]
fn a_run_of_parts_of_its_own_is_measured_on_the_part_that_it_had() {
    let temp = Temp::new();
    temp.mnist("data", 40, 20);
    temp.run("train --data data --out run --quiet --epochs 1").ok();
    temp.run("eval run --data data").ok();
    temp.run("eval run --split all").refused(1, &["a test part of their own", "choose one"]);
    let images = temp.read("data/train-images-idx3-ubyte");
    temp.mnist("data", 30, 20);
    // What is measured is as it was.
    assert_eq!(temp.run("eval run --json").json()["examples"], 20);
    temp.run("train --resume run --epochs 2 --quiet").refused(1, &["40 training examples then, 30 now"]);
    temp.mnist("data", 40, 10);
    assert_eq!(images, temp.read("data/train-images-idx3-ubyte"));
    temp.run("eval run").refused(1, &["20 test examples then, 10 now"]);
    let told = temp.run("eval run --data data").ok();
    assert!(told.err.contains("20 test examples then, 10 now") && told.out.contains("over 10 examples"), "{told:?}");
}

/// Pictures of other sizes become the network's inputs alike, whether it is packed or not.
#[test]
fn a_run_and_its_packed_model_see_the_same_of_any_picture() {
    let temp = Temp::new();
    temp.photos("photos");
    temp.photos("larger");
    temp.run("prepare photos -o small.ftpictures --resize 10 --quiet").ok();
    // Of the size that they were prepared at: the recipe does not say it.
    temp.write(
        "plain.toml",
        "network.preset = \"auto\"\ndata = { source = \"prepared\", crop = 8 }\ntrain.epochs = 20\n",
    );
    temp.run("train --recipe plain.toml --data small.ftpictures --quiet --out run").ok();
    temp.run("export run -o run.ftp --weights f32").ok();
    let same = |data: &str| {
        let of = |model: &str| {
            let found = temp.run(&format!("eval {model} --data {data} --save seen.safetensors --json")).json();
            let file = temp.read("seen.safetensors");
            (found, SafeTensors::deserialize(&file).unwrap().tensor("images").unwrap().data().to_vec())
        };
        let ((run, seen), (packed, seen_packed)) = (of("run"), of("run.ftp"));
        for key in ["split", "examples", "top1", "note"] {
            assert_eq!(run[key], packed[key], "{data}: {key}: {run} {packed}");
        }
        assert!(seen == seen_packed, "{data}: other inputs");
    };
    same("small.ftpictures");
    for part in ["train", "val"] {
        for class in ["bright", "dark"] {
            for file in fs::read_dir(temp.path(&format!("larger/{part}/{class}"))).unwrap() {
                let path = file.unwrap().path();
                let picture = image::open(&path).unwrap();
                picture.resize_exact(30, 25, image::imageops::FilterType::Triangle).save(path).unwrap();
            }
        }
    }
    for data in ["photos", "larger", "larger/val"] {
        same(data);
    }
    // What is not resized is refused, by both in the same words.
    temp.mnist("mnist", 40, 20);
    temp.run("train --data mnist --set data.crop=5 --epochs 1 --quiet --out digits").ok();
    temp.run("export digits -o digits.ftp").ok();
    let count = 20u32.to_be_bytes();
    for part in ["train", "t10k"] {
        let head = [&[0, 0, 8, 3][..], &count, &[0, 0, 0, 9, 0, 0, 0, 9]].concat();
        temp.write(&format!("other/{part}-images-idx3-ubyte"), [head, noise(1, 20 * 81)].concat());
        let labels: Vec<u8> = (0..20).map(|i| i % 10).collect();
        temp.write(&format!("other/{part}-labels-idx1-ubyte"), [&[0, 0, 8, 1][..], &count, &labels].concat());
    }
    for model in ["digits", "digits.ftp"] {
        temp.run(&format!("eval {model} --data mnist")).ok();
        temp.run(&format!("eval {model} --data other"))
            .refused(1, &["9 pixels along their shorter edge", "trained on 5"]);
    }
}

/// Runs that are to be compared have the same data.
#[test]
fn a_sweep_does_not_go_on_with_other_data() {
    let temp = Temp::new();
    temp.write("t.csv", table(&rows(0..150)));
    let sweep = "sweep --data t.csv --epochs 1 --quiet --out s --grid optimizer.lr";
    temp.run(&format!("{sweep}=1e-3,1e-2")).ok();
    temp.write("t.csv", table(&rows(0..180)));
    let report = temp.read("s/report.md");
    // Also where nothing is left to train: the report would be taken for one on these data.
    for values in ["1e-3,1e-2", "1e-3,1e-2,1e-1"] {
        temp.run(&format!("{sweep}={values}")).refused(1, &["150 examples then, 180 now"]);
    }
    temp.write("other/t.csv", table(&rows(0..160)));
    let other = format!("{sweep}=1e-3,1e-2").replace("t.csv", "other/t.csv");
    temp.run(&other).refused(1, &["150 examples then, 160 now"]);
    assert_eq!(temp.read("s/report.md"), report);
    // What is finished can be reported without them.
    temp.run(&format!("{other} --report-only")).ok();
    temp.write("t.csv", table(&rows(0..150)));
    temp.run(&format!("{sweep}=1e-3,1e-2,1e-1")).ok();
}

#[test]
fn a_teacher_that_changed_is_noticed() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --set activation=relu --out teacher").ok();
    temp.run("train --recipe small.toml --quiet --set train.teacher=teacher --out pupil").ok();
    fs::rename(temp.path("teacher"), temp.path("moved")).unwrap();
    temp.run("train --recipe small.toml --quiet --set activation=relu --seed 5 --out teacher").ok();
    temp.run("train --resume pupil --epochs 3 --quiet").refused(1, &["pupil", "the teacher is not the network"]);
    fs::remove_dir_all(temp.path("teacher")).unwrap();
    fs::rename(temp.path("moved"), temp.path("teacher")).unwrap();
    temp.run("train --resume pupil --epochs 3 --quiet").ok();
}

/// Makes a run's files as a version wrote them that did not know its data again.
fn forget(temp: &Temp, run: &str) {
    for file in ["best.safetensors", "checkpoint.safetensors"] {
        let path = temp.path(&format!("{run}/{file}"));
        let saved = Checkpoint::read(&path).unwrap();
        let recipe = saved.recipe().unwrap();
        let mut model = saved.header.model.clone();
        assert!(model.origin.data.is_some());
        model.origin = Origin::default();
        let [height, width, channels] = model.input;
        let shape = ftprop_nn::Shape { height, width, channels };
        let graph = recipe.graph(shape, model.classes.len()).unwrap();
        let contents = saved.contents(&graph).unwrap();
        checkpoint::save(&path, &recipe, &model, &saved.header.state, &contents).unwrap();
    }
}

#[test]
fn runs_of_older_versions_go_on_with_a_word() {
    let temp = with_run();
    forget(&temp, "run");
    let told = temp.run("eval run").ok();
    assert!(told.err.contains("does not say which examples it was trained on"), "{told:?}");
    let told = temp.run("train --resume run --epochs 62").ok();
    assert!(told.err.contains("does not say which data it was trained on"), "{told:?}");
    // From here on it does.
    let mark: Option<DataMark> = Checkpoint::read(&temp.path("run/best.safetensors")).unwrap().header.model.origin.data;
    assert_eq!(mark.unwrap().whole.unwrap().examples, 150);
    assert!(temp.run("eval run").ok().err.is_empty());
    // The built-in digits do not change.
    temp.write("small.toml", SMALL);
    temp.run("train --recipe small.toml --quiet --out digits").ok();
    forget(&temp, "digits");
    assert!(temp.run("eval digits").ok().err.is_empty());
}

/// What is left of times is the same a day later, but the teacher would take it for its own day's.
#[test]
fn a_teacher_of_other_times_is_refused() {
    let temp = Temp::new();
    let day = |first: u32| (0..60).map(|i| format!("{},{}\n", first + i, i / 30)).collect::<String>();
    temp.write("monday.csv", day(1_700_000_000));
    temp.write("tuesday.csv", day(1_700_086_400));
    temp.run("train --data monday.csv --epochs 1 --quiet --out teacher").ok();
    let learn = "train --epochs 1 --quiet --set train.teacher=teacher --data";
    temp.run(&format!("{learn} monday.csv --out pupil")).ok();
    temp.run(&format!("{learn} tuesday.csv --out other")).refused(1, &["teacher", "normalised otherwise"]);
}
