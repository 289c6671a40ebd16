//! Data of one's own: found out, trained, measured, asked and shipped without a recipe.

mod common;

use common::*;
use serde_json::Value;

/// A table that can be learnt: names, numbers, some of them missing.
fn mixed(rows: usize) -> String {
    let bytes = noise(3, 4 * rows);
    let row = |four: &[u8]| {
        let colour = ["red", "green", "blue"][usize::from(four[0] % 3)];
        let size = f32::from(four[1]) / 10.0;
        let answer = if (size > 12.0) == (colour != "red") { "yes" } else { "no" };
        let size = if four[2].is_multiple_of(12) { "NA".to_string() } else { size.to_string() };
        let colour = if four[2] % 25 == 1 { "" } else { colour };
        format!("{colour},{size},{},{answer}\n", four[3])
    };
    let rows: String = bytes.chunks_exact(4).map(row).collect();
    format!("colour,size,weight,answer\n{rows}")
}

/// The digits as a table without names.
fn digits() -> String {
    let data = ftprop_data::open(ftprop_data::Source::Digits, None, &Default::default()).unwrap();
    let (bytes, shape) = data.train.bytes().unwrap();
    let row = |(pixels, label): (&[u8], &u32)| {
        let cells: Vec<String> = pixels.iter().map(|p| p.to_string()).collect();
        format!("{},{label}\n", cells.join(","))
    };
    bytes.chunks_exact(shape.size()).zip(data.train.labels()).map(row).collect()
}

/// Three kinds of flowers that overlap a little, named.
fn flowers() -> String {
    let bytes = noise(8, 4 * 150);
    let row = |(i, four): (usize, &[u8])| {
        let kind = i % 3;
        let cell = |c: usize| 2.0 * kind as f32 + f32::from(four[c]) / 90.0 + c as f32;
        format!("{},{},{},{},{}\n", cell(0), cell(1), cell(2), cell(3), ["aster", "iris", "rose"][kind])
    };
    let rows: String = bytes.chunks_exact(4).enumerate().map(row).collect();
    format!("sepal length,sepal width,petal length,petal width,species\n{rows}")
}

/// Two classes by the time, in seconds since 1970, which 32 bits hold only to the next 128.
fn times() -> String {
    let time = |i: u32| 1_700_000_000 + i + 40 * (i / 150);
    let row = |i: u32| format!("{},{},{}\n", time(i), i % 7, ["early", "late"][i as usize / 150]);
    format!("time,day,half\n{}", (0..300).map(row).collect::<String>())
}

fn classes(answers: &Value) -> Vec<String> {
    let class = |a: &Value| a["classes"][0]["class"].as_str().unwrap().to_owned();
    answers.as_array().unwrap().iter().map(class).collect()
}

/// Train, eval, predict, export, and eval and predict of the packed model agree.
#[test]
fn tables_go_all_the_way() {
    let temp = Temp::new();
    for (name, text, least) in
        [("mixed", mixed(400), 0.85), ("digits", digits(), 0.93), ("flowers", flowers(), 0.9), ("times", times(), 0.95)]
    {
        let csv = format!("{name}.csv");
        temp.write(&csv, &text);
        let said = temp.run(&format!("train --data {csv} --out {name}")).ok();
        assert!(said.err.starts_with(&format!("{csv}: a table\n")) && !said.err.contains("flatters"), "{said:?}");
        let found = temp.run(&format!("eval {name} --json")).json();
        assert!(found["top1"].as_f64().unwrap() >= least, "{name}: {found}");
        assert_eq!(found["top1"], temp.json(&format!("{name}/summary.json"))["test"]["top1_last"]);

        temp.run(&format!("export {name} -o {name}.ftp --check")).ok();
        let packed = temp.run(&format!("eval {name}.ftp --data {csv} --split test --json")).json();
        for key in ["examples", "top1", "confusion", "per_class"] {
            assert_eq!(packed[key], found[key], "{name}: {key}");
        }
        let loss = |value: &Value| value["loss"].as_f64().unwrap();
        assert!((loss(&packed) - loss(&found)).abs() < 0.05 * loss(&found) + 0.01, "{packed} {found}");
        // All rows, the training rows among them.
        let float = temp.run(&format!("predict {name} {csv} --json")).json();
        let packed = temp.run(&format!("predict {name}.ftp {csv} --json")).json();
        let rows = text.lines().count() - usize::from(name != "digits");
        assert_eq!(float.as_array().unwrap().len(), rows);
        let (float, packed) = (classes(&float), classes(&packed));
        let same = float.iter().zip(&packed).filter(|(a, b)| a == b).count();
        assert!(same * 1000 >= 998 * rows, "{name}: {same} of {rows} rows have the same class");
        // What was predicted is what was measured.
        temp.write("all.csv", &text);
        let all = temp.run(&format!("eval {name} --data all.csv --split all --json")).json();
        assert_eq!((&all["examples"], &all["split"]), (&rows.into(), &"all".into()));
        let truth = text.lines().skip(usize::from(name != "digits")).map(|line| line.rsplit(',').next().unwrap());
        let right = float.iter().zip(truth).filter(|(a, b)| a == b).count();
        assert_eq!(all["top1"].as_f64().unwrap(), right as f64 / rows as f64, "{name}");
    }
}

#[test]
fn columns_are_matched_by_their_names_and_a_file_is_measured_whole() {
    let temp = Temp::new();
    temp.write("mixed.csv", mixed(400));
    temp.run("train --data mixed.csv --quiet --out run").ok();
    let turned = |line: &str| line.split(',').rev().collect::<Vec<_>>().join(",");
    let text = mixed(400);
    temp.write("turned.csv", text.lines().map(|line| turned(line) + "\n").collect::<String>());
    temp.write("same.csv", &text);
    let all = |file: &str| temp.run(&format!("eval run --data {file} --split all --json")).json();
    let (turned, same) = (all("turned.csv"), all("same.csv"));
    assert_eq!((&turned["examples"], &turned["split"]), (&400.into(), &"all".into()));
    assert_eq!((&turned["top1"], &turned["loss"]), (&same["top1"], &same["loss"]));
    // The training file itself is not measured whole unless that is asked for: that would flatter.
    for file in ["mixed.csv", "same.csv", "turned.csv"] {
        assert_eq!(temp.run(&format!("eval run --data {file} --json")).json()["examples"], 80, "{file}");
    }
    assert_eq!(temp.run("eval run --data same.csv --split test --json").json()["examples"], 80);
    // A single row is a file too, and one without labels can be asked about.
    let first: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    temp.write("one.csv", &first);
    assert_eq!(temp.run("eval run --data one.csv --json").json()["examples"], 1);
    temp.write("asked.csv", "weight,size,colour\n3,NA,red\n");
    assert!(temp.run("predict run asked.csv").ok().out.starts_with("asked.csv, line 2: "));
    temp.run("eval run --data asked.csv").refused(1, &["asked.csv", "`answer`", "labels"]);
    temp.write("less.csv", "weight,colour,answer\n3,red,yes\n");
    temp.run("eval run --data less.csv").refused(1, &["missing", "`size`"]);
    temp.run("predict run less.csv").refused(1, &["missing", "`size`"]);
    temp.write("more.csv", "colour,size,weight,height,answer\nred,3,1,1,yes\n");
    temp.run("predict run more.csv").refused(1, &["has not", "`height`"]);
    temp.write("new.csv", "colour,size,weight,answer\nred,3,1,perhaps\n");
    temp.run("eval run --data new.csv").refused(1, &["line 2", "`perhaps`", "`no`"]);
    temp.write("odd.csv", "colour,size,weight,answer\npink,3,1,yes\n");
    temp.run("predict run odd.csv").refused(1, &["line 2", "`pink`"]);
}

/// It was said of a kind of data that it needs a path, with flags of other commands.
#[test]
fn a_packed_model_says_that_it_does_not_know_where_its_data_lie() {
    let temp = Temp::new();
    temp.write("flowers.csv", flowers());
    temp.photos("photos");
    for (name, data, of) in [("flowers", "flowers.csv", "a table"), ("mine", "photos", "pictures in class folders")] {
        temp.run(&format!("train --data {data} --epochs 1 --quiet --out {name}")).ok();
        temp.run(&format!("export {name} -o {name}.ftp")).ok();
        let said = temp.run(&format!("eval {name}.ftp"));
        let about = format!("{name}.ftp is about {of}, and a packed model does not remember where its data lie");
        said.refused(2, &[&about, "--data PATH"]);
        assert!(!said.err.contains("--data-path"), "{said:?}");
        let (run, packed) = (format!("eval {name} --json"), format!("eval {name}.ftp --data {data} --json"));
        assert_eq!(temp.run(&run).json()["examples"], temp.run(&packed).json()["examples"], "{name}");
    }
    // Whoever has --data-path is told of that.
    temp.run("separable mnist --classes 0,1").refused(2, &["mnist needs a path", "--data-path PATH"]);
    temp.run("solve --data mnist:10 --hidden 4").refused(2, &["mnist needs a path", "--data-path PATH"]);
    let train = temp.run("train --set data.source=mnist --quiet");
    train.refused(1, &["mnist needs a path", "with --data PATH or data.path in a recipe"]);
    assert!(!train.err.contains("--data-path"), "{train:?}");
}

/// What to set was not said, and `NA` was blamed for not being a number.
#[test]
fn missing_values_name_the_setting_that_says_what_stands_for_them() {
    let temp = Temp::new();
    temp.write("own.toml", "network.preset = \"mlp\"\n[data]\nsource = \"csv\"\npath = \"gaps.csv\"\n");
    for (cell, says) in [("NA", "`NA` in column 2 (`size`)"), ("", "nothing in column 2 (`size`)")] {
        temp.write("gaps.csv", format!("colour,size,answer\nred,1,yes\nblue,{cell},no\nred,2,yes\nblue,3,no\n"));
        temp.run("train --recipe own.toml --quiet")
            .refused(1, &["gaps.csv, line 3", says, "data.csv.missing", "--set data.csv.missing=mean"]);
    }
    temp.run("train --recipe own.toml --quiet --set data.csv.missing=median --epochs 1 --out run").ok();
}

#[test]
fn gzipped_tables_and_standard_input_will_do() {
    use std::io::Write;
    use std::process::Stdio;
    let temp = Temp::new();
    temp.write("mixed.csv", mixed(200));
    let packed = std::process::Command::new("gzip").arg("-k").arg(temp.path("mixed.csv")).status().unwrap();
    assert!(packed.success());
    temp.run("train --data mixed.csv.gz --quiet --out zipped").ok();
    temp.run("train --data mixed.csv --quiet --out plain").ok();
    temp.assert_same_result("zipped", "plain");
    let from_file = temp.run("predict plain mixed.csv.gz --format jsonl").ok().out.replace("mixed.csv.gz", "-");
    let mut child = temp.command("predict plain - --format jsonl");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(mixed(200).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), from_file);
}

#[test]
fn pictures_in_class_folders_go_all_the_way() {
    let temp = Temp::new();
    temp.photos("parts");
    for class in ["bright", "dark"] {
        for part in ["train", "val"] {
            for (i, entry) in std::fs::read_dir(temp.path(&format!("parts/{part}/{class}"))).unwrap().enumerate() {
                let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                temp.write(&format!("photos/{class}/{part}{i}.png"), bytes);
            }
        }
    }
    temp.write("photos/dark/notes.txt", "");
    temp.write("photos/dark/film.mp4", "");
    let said = temp.run("train --data photos --epochs 12").ok();
    let found = "photos: a folder of pictures in class folders";
    for words in [found, "2 files that are no pictures were passed over: 1 .mp4, 1 .txt", "examples, not 32"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    temp.run("export runs/photos -o photos.ftp --check").ok();
    let folder = temp.run("predict runs/photos photos --json").json();
    assert_eq!(folder.as_array().unwrap().len(), 24);
    assert_eq!(classes(&folder), classes(&temp.run("predict photos.ftp photos --json").json()));
    let csv = temp.run("predict photos.ftp photos/dark photos/dark/notes.txt --format csv --top 2");
    assert_eq!((csv.code, csv.out.lines().count()), (Some(1), 14), "a header, twelve pictures and a failure: {csv:?}");
    assert!(csv.out.starts_with("image,line,class1,confidence1,class2,confidence2,error\n"), "{csv:?}");
    assert!(csv.out.lines().last().unwrap().starts_with("photos/dark/notes.txt,,,,,,"), "{csv:?}");
    let lines = temp.run("predict photos.ftp photos/dark/notes.txt --format jsonl");
    let failure: Value = serde_json::from_str(&lines.out).unwrap();
    assert_eq!((&failure["image"], &failure["table"]), (&"photos/dark/notes.txt".into(), &Value::Null));
    assert!(failure["error"].as_str().unwrap().contains("notes.txt") && lines.code == Some(1), "{failure}");
    // Other pictures are measured whole, also where a class is missing.
    std::fs::rename(temp.path("parts/val"), temp.path("more")).unwrap();
    let more = temp.run("eval runs/photos --data more --json").json();
    assert_eq!((&more["examples"], &more["split"]), (&8.into(), &"all".into()));
    assert_eq!(temp.run("eval photos.ftp --data more --json").json()["confusion"], more["confusion"]);
    // A table is none, whoever asks.
    temp.write("t.csv", "1,2,bright\n3,4,dark\n");
    let none = ["the network was trained on pictures", "t.csv is a table"];
    for command in ["eval runs/photos --data t.csv", "export runs/photos -o p.ftp --check t.csv"] {
        temp.run(command).refused(1, &none);
    }
    let moved = temp.path("gone");
    std::fs::rename(temp.path("photos"), &moved).unwrap();
    temp.run("eval runs/photos").refused(1, &["photos", "--data PATH"]);
    assert_eq!(temp.run("eval runs/photos --data gone --json").json()["split"], "test");
    std::fs::rename(&moved, temp.path("photos")).unwrap();
    temp.write("odd/grey/a.png", temp.read("photos/dark/val0.png"));
    temp.write("odd/dark/a.png", temp.read("photos/dark/val0.png"));
    temp.run("eval runs/photos --data odd").refused(1, &["odd/grey", "training classes"]);
    let shown = temp.run("summary photos.ftp --json").json();
    assert_eq!((&shown["source"], &shown["loss"]), (&"folder".into(), &"cross_entropy".into()));
    // They are no larger than that.
    assert_eq!((&shown["input"], &shown["resize"]), (&serde_json::json!([10, 10, 3]), &10.into()));
    assert_eq!(shown["classes"], serde_json::json!(["bright", "dark"]));
    let text = temp.run("summary photos.ftp").ok().out;
    assert!(text.contains("trained on folder") && text.contains("multiply-adds"), "{text}");
}

/// What `--data` names is what is trained and measured, or nothing is.
#[test]
fn data_is_never_ignored() {
    let temp = Temp::with_recipes();
    temp.mnist("mnist", 60, 20);
    temp.cifar10("cifar");
    temp.write("empty/readme.md", "");
    temp.write("notes.txt", "");
    let trained = |arguments: &str| temp.run(&format!("{arguments} --epochs 1")).ok().err;
    let said = trained("train --data mnist --out m");
    assert!(said.contains("mnist: the files of MNIST") && said.contains("60 training and 20 test"), "{said}");
    let said = trained("train --data cifar --out c");
    assert!(said.contains("the files of CIFAR-10") && said.contains("40 training and 8 test"), "{said}");
    // A recipe that does not say which data takes what is there.
    let said = trained("train --recipe small.toml --data mnist --out s");
    assert!(said.contains("mnist: the files of MNIST") && said.contains("60 training"), "{said}");
    for wrong in ["empty", "notes.txt", "nowhere"] {
        temp.run(&format!("train --data {wrong} --quiet --out w")).refused(1, &[wrong]);
        temp.run(&format!("train --recipe small.toml --data {wrong} --quiet --out w")).refused(1, &[wrong]);
        temp.run(&format!("sweep --grid optimizer.lr=1,2 --data {wrong} --quiet --out w")).refused(1, &[wrong]);
        assert!(!temp.path("w").exists());
    }
    temp.run("train --recipe small.toml --quiet --epochs 1 --out digits").ok();
    temp.run("export digits -o digits.ftp").ok();
    for model in ["digits", "digits.ftp"] {
        temp.run(&format!("eval {model} --data mnist")).refused(1, &[]);
        temp.run(&format!("eval {model} --data cifar")).refused(1, &[]);
        temp.run(&format!("eval {model} --data empty")).refused(1, &["empty"]);
    }
    let swept = temp.run("sweep --data mnist --grid optimizer.lr=1e-2,1e-3 --epochs 1 --out swept --json").json();
    assert_eq!(swept["runs"].as_array().unwrap().len(), 2);
    let run = swept["runs"][0]["run"].as_str().unwrap();
    assert!(temp.text(&format!("{run}/recipe.toml")).contains("source = \"mnist\""));
    assert_eq!(swept["runs"][0]["summary"]["epochs"], 1);
}

#[test]
fn labels_that_cannot_be_learnt_are_refused() {
    let temp = Temp::new();
    let rows = |label: &dyn Fn(usize) -> String| -> String {
        let bytes = noise(2, 300);
        (0..150).map(|i| format!("{},{},{}\n", bytes[2 * i], bytes[2 * i + 1], label(i))).collect()
    };
    for (label, words) in [
        (&|i: usize| format!("{}.5", 3 * i)) as &dyn Fn(usize) -> String,
        &|i: usize| format!("{}", 1000 + 7 * i),
        &|i: usize| format!("person{i}"),
    ]
    .map(|label| (label, ["table.csv", "150", "label column"]))
    {
        temp.write("table.csv", rows(label));
        temp.run("train --data table.csv --quiet --out run").refused(1, &words);
        assert!(!temp.path("run").exists());
    }
}

/// One row that cannot be read kept all others from their answer.
#[test]
fn every_row_of_a_table_has_its_answer_or_its_error() {
    let temp = Temp::new();
    temp.write("mixed.csv", mixed(200));
    temp.run("train --data mixed.csv --quiet --epochs 2 --out run").ok();
    temp.run("export run -o model.ftp").ok();
    temp.write("new.csv", "colour,size,weight\nred,1,2\npurple,1,2\nblue,3,4\n,NA,9\n");
    for model in ["run", "model.ftp"] {
        let run = temp.run(&format!("predict {model} new.csv --format jsonl"));
        assert_eq!(run.code, Some(1), "{run:?}");
        let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let wrong: Vec<&Value> = lines.iter().filter(|line| !line["error"].is_null()).collect();
        assert_eq!((lines.len(), wrong.len()), (4, 1), "{run:?}");
        assert!(wrong[0]["error"].as_str().unwrap().contains("`purple`") && run.err.contains("`purple`"), "{run:?}");
        let numbers: Vec<u64> = lines.iter().map(|line| line["line"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [2, 3, 4, 5]);
        // A table is no image, and a call has one word for all, failures too.
        assert!(lines.iter().all(|line| line["table"] == "new.csv" && line["image"].is_null()), "{run:?}");
        let csv = temp.run(&format!("predict {model} new.csv cat.png --format csv")).out;
        assert!(csv.starts_with("table,line,class1,confidence1,error\n"), "{csv}");
        let missing = temp.run(&format!("predict {model} cat.png nowhere.csv --json")).out;
        let missing: Value = serde_json::from_str(&missing).unwrap();
        assert_eq!((&missing[0]["table"], &missing[1]["table"]), (&"cat.png".into(), &"nowhere.csv".into()));
    }
    // So does a row with too few or too many cells, or with letters that are none; training refuses all of it.
    let ragged = b"colour,size,weight\nred,1,2\nred,1\nblue,3,4\nblue,3,4,5\n\xff,3,4\npurple,1,2\nred,2,2\n";
    temp.write("ragged.csv", ragged);
    for model in ["run", "model.ftp"] {
        let run = temp.run(&format!("predict {model} ragged.csv --format jsonl"));
        assert_eq!(run.code, Some(1), "{run:?}");
        let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = lines.iter().map(|line| line["line"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8], "{run:?}");
        let wrong: Vec<bool> = lines.iter().map(|line| !line["error"].is_null()).collect();
        assert_eq!(wrong, [false, true, false, true, true, true, false], "{run:?}");
        for words in ["line 3: 2 columns, but the first line has 3", "line 5: 4 columns", "line 6: not valid UTF-8"] {
            assert!(run.err.contains(words), "{words}: {run:?}");
        }
        // Where no row fits, the file is what is wrong.
        temp.write("short.csv", "colour,size,weight\nred,1\nblue,2\n");
        temp.run(&format!("predict {model} short.csv")).refused(1, &["short.csv", "line 2", "2 columns"]);
    }
    temp.write("labelled.csv", mixed(200) + "red,1\n");
    for command in ["train --data labelled.csv --quiet --out x", "eval run --data labelled.csv"] {
        temp.run(command).refused(1, &["labelled.csv", "line 202", "2 columns"]);
    }
}

/// Which column is the label, and that `0.5 %` is a text, had to be guessed from the figures.
#[test]
fn what_the_columns_of_a_table_are_taken_for_is_told() {
    let temp = Temp::new();
    let rows: String = (0..60).map(|i| format!("{i},{}%,{},k{}\n", i % 7, i % 5, i % 3)).collect();
    temp.write("t.csv", format!("size,share,grade,kind\n{rows}"));
    let run = temp.run("train --data t.csv --epochs 1 --out run").ok();
    let found =
        "labels are in column 4 (`kind`); learned from are 2 columns of numbers and 1 of texts: share (7 different)";
    assert!(run.err.contains(found), "{run:?}");
    let other = temp.run("train --data t.csv --set data.csv.label=grade --dry-run").ok();
    let found = "# labels are in column 3 (`grade`); learned from are 1 column of numbers and 2 of texts: share (7 different), \
                 kind (3 different)";
    assert!(other.out.contains(found), "{other:?}");
    // Where it is the wrong one, the way to another is told.
    temp.write("first.csv", (0..60).map(|i| format!("k{},{}.5\n", i % 3, i)).collect::<String>());
    temp.run("train --data first.csv --quiet --out x").refused(1, &["a measurement", "data.csv.label"]);
    temp.write("latin.csv", b"x,kind\n1,gr\xfcn\n2,rot\n");
    let refused = temp.run("train --data latin.csv --quiet --out x");
    refused.refused(1, &["latin.csv, line 2: not valid UTF-8; save the table as UTF-8"]);
    assert!(!refused.err.contains("byte index"), "{refused:?}");
    temp.run("predict run -").refused(1, &["standard input holds no examples"]);
}

/// Years as names made a row of the first line, with a class of its own; a table of texts without names lost its first row.
#[test]
fn a_first_line_is_taken_for_what_it_is() {
    let temp = Temp::new();
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 3)).collect();
    let run = |name: &str, text: String| {
        temp.write(&format!("{name}.csv"), text);
        temp.run(&format!("train --data {name}.csv --epochs 1 --out {name}")).ok().err
    };
    let said = run("years", format!("1990,2000,label\n{rows}"));
    assert!(said.contains("48 training and 12 test examples, 3 classes") && said.contains("(`label`)"), "{said}");
    assert_eq!(temp.run("eval years --data years.csv --split all --json").json()["examples"], 60);
    temp.write("new.csv", "2000,1990\n3,4\n5,6\n");
    assert_eq!(temp.run("predict years new.csv").ok().out.lines().count(), 2);
    // Where the labels are texts it cannot be known, and is told.
    let said = run("kinds", format!("1990,2000,kind\n{}", "1,2,a\n3,4,b\n".repeat(30)));
    assert!(said.contains("the first line alone has the label `kind`") && said.contains("csv.header=true"), "{said}");
    let said = run("texts", "red,small,yes\nblue,large,no\nred,large,yes\nblue,small,no\n".repeat(15));
    assert!(said.contains("48 training and 12 test examples, 2 classes") && !said.contains('`'), "{said}");
    let said = run("named", format!("colour,size,kind\n{}", "red,small,yes\nblue,large,no\n".repeat(30)));
    assert!(said.contains("48 training and 12 test examples, 2 classes") && said.contains("(`kind`)"), "{said}");
}

/// A column of whole numbers with few rows of each was learned as so many classes, without a word.
#[test]
fn labels_that_look_like_a_measurement_are_told_of() {
    let temp = Temp::new();
    let rows: String = (0..90).map(|i| format!("{},{}\n", i * 7 % 13, i % 30)).collect();
    temp.write("ages.csv", format!("size,age\n{rows}"));
    let run = temp.run("train --data ages.csv --epochs 1 --out run").ok();
    assert!(run.err.contains("30 different numbers in 90 rows"), "{run:?}");
}

/// What is measured was called the test part wherever it came from, and a folder `test` beside `val` was left out in silence.
#[test]
fn the_parts_of_a_folder_are_called_by_their_names() {
    let temp = Temp::new();
    temp.photos("photos");
    let said = |folder: &str| temp.run(&format!("train --data {folder} --dry-run")).ok().err;
    assert!(said("photos").contains("class folders, train to learn from, val to measure by\n"), "{}", said("photos"));
    temp.photos("more");
    std::fs::rename(temp.path("more/val"), temp.path("photos/test")).unwrap();
    let left_out = "val to measure by (test is left out, and can be measured by its own path)";
    assert!(said("photos").contains(left_out), "{}", said("photos"));
    std::fs::remove_dir_all(temp.path("photos/val")).unwrap();
    std::fs::rename(temp.path("photos"), temp.path("other")).unwrap();
    std::fs::rename(temp.path("other/train"), temp.path("other/Train")).unwrap();
    assert!(said("other").contains("Train to learn from, test to measure by\n"), "{}", said("other"));
    std::fs::remove_dir_all(temp.path("other/test")).unwrap();
    temp.run("train --data other --quiet").refused(1, &["beside Train", "the path of Train itself"]);
    // Trains can be told from cars.
    std::fs::create_dir(temp.path("rails")).unwrap();
    std::fs::rename(temp.path("other/Train/dark"), temp.path("rails/train")).unwrap();
    std::fs::rename(temp.path("other/Train/bright"), temp.path("rails/car")).unwrap();
    assert!(said("rails").contains("a folder of pictures in class folders"), "{}", said("rails"));
}

/// Folders as people have them: what is not as it should be is called what it is.
#[test]
fn folders_of_pictures_are_taken_as_people_have_them() {
    let temp = Temp::new();
    temp.photos("photos");
    for (part, name) in [("train", "training"), ("val", "valid")] {
        std::fs::create_dir_all(temp.path("named")).unwrap();
        std::fs::rename(temp.path(&format!("photos/{part}")), temp.path(&format!("named/{name}"))).unwrap();
    }
    temp.run("train --data named/valid/dark --quiet").refused(1, &["4 pictures lie in", "CLASS/*"]);
    std::fs::create_dir_all(temp.path("one")).unwrap();
    std::fs::rename(temp.path("named/training/dark"), temp.path("one/dark")).unwrap();
    temp.run("train --data one --quiet").refused(1, &["one/dark", "single class"]);
    std::fs::rename(temp.path("one/dark"), temp.path("named/training/dark")).unwrap();
    // Hidden files are passed over in silence, pictures of no class are counted.
    temp.write("named/training/dark/._0.png", "no picture");
    std::fs::copy(temp.path("named/valid/dark/0.png"), temp.path("named/training/loose.png")).unwrap();
    let run = temp.run("train --data named --set data.resize=8 --set data.crop=8 --epochs 1 --out run").ok();
    assert!(run.err.contains("16 training and 8 test examples"), "{run:?}");
    assert!(run.err.contains("1 picture in no class folder was passed over"), "{run:?}");
    let said = temp.run("predict run named/training/dark").ok();
    assert_eq!(said.out.lines().count(), 8, "{said:?}");
}

/// A network of one kind of pictures is measured on class folders too, and one of tables says that they are none.
#[test]
fn what_a_network_is_measured_on_is_what_is_there() {
    let temp = Temp::new();
    temp.photos("parts");
    for (own, class) in [("bright", "airplane"), ("dark", "cat")] {
        for (i, entry) in std::fs::read_dir(temp.path(&format!("parts/val/{own}"))).unwrap().enumerate() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            temp.write(&format!("own/{class}/{i}.png"), bytes);
        }
    }
    let eval = "eval zoo:cifar10-quick-sign --data own --json";
    let zoo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo");
    let said = temp.command(eval).env("FTPROP_ZOO", &zoo).output().unwrap();
    let found: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((&found["examples"], &found["split"]), (&8.into(), &"all".into()));
    // Also where there is a single class, which could not be learned from.
    std::fs::remove_dir_all(temp.path("own/cat")).unwrap();
    let said = temp.command(eval).env("FTPROP_ZOO", &zoo).output().unwrap();
    let found: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((&found["examples"], &found["per_class"][0]["class"]), (&4.into(), &"airplane".into()));
    temp.run("train --data own").refused(1, &["a single class"]);
    temp.write("flowers.csv", flowers());
    temp.run("train --data flowers.csv --epochs 1 --set data.validation=0.2 --quiet").ok();
    temp.run("eval runs/flowers --data own").refused(1, &["the network was trained on a table", "own is none"]);
    temp.run("export runs/flowers -o flowers.ftp --check own").refused(1, &["the network was trained on a table"]);
    // Nor does a packed model say which of its rows were held out.
    temp.run("export runs/flowers -o flowers.ftp").ok();
    let train = temp.run("eval flowers.ftp --data flowers.csv --split train").ok();
    assert!(train.err.contains("held out of training for validation is among these"), "{train:?}");
}
