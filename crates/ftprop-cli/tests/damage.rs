//! Nothing damaged is accepted and nothing foreign is gone on with.

mod common;

use common::*;
use std::fs;

/// A run of three epochs with a checkpoint before the last one.
fn with_run() -> Temp {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --epochs 3 --set train.checkpoint_seconds=0 --out run").ok();
    temp
}

fn flip(temp: &Temp, file: &str) {
    let mut bytes = temp.read(file);
    let middle = bytes.len() - 100;
    bytes[middle] ^= 4;
    temp.write(file, bytes);
}

#[test]
fn a_damaged_checkpoint_is_fallen_back_from_with_a_word() {
    let temp = with_run();
    let whole = temp.read("run/checkpoint.safetensors");
    flip(&temp, "run/checkpoint.safetensors");
    let words = ["run/checkpoint.safetensors", "damaged", "using the one before it, run/previous.safetensors"];
    for command in ["eval run --checkpoint last", "export run --checkpoint last -o last.ftp", "train --resume run"] {
        let outcome = temp.run(command).ok();
        assert!(words.iter().all(|word| outcome.err.contains(word)), "{outcome:#?}");
    }
    assert!(temp.read("run/checkpoint.safetensors") == whole, "it came to other bytes");
    let outcome = temp.run("train --resume run").ok();
    assert!(!outcome.err.contains("damaged"), "{outcome:#?}");
    // What is damaged is not kept in place of what is whole.
    flip(&temp, "run/checkpoint.safetensors");
    temp.run("train --resume run --quiet --epochs 4").ok();
    temp.run("train --recipe small.toml --quiet --epochs 4 --out four").ok();
    assert_eq!(temp.timeless_metrics("run"), temp.timeless_metrics("four"));
}

/// Another file in its place, whole and well formed, is no checkpoint either.
#[test]
fn a_file_that_is_no_checkpoint_is_fallen_back_from_with_a_word() {
    let temp = with_run();
    temp.run("export run -o weights.safetensors").ok();
    temp.run("export run -o packed.ftp").ok();
    let whole = temp.read("run/checkpoint.safetensors");
    for (other, word) in [
        ("weights.safetensors", "not one that ftprop wrote"),
        ("packed.ftp", "a packed model"),
        ("run/best.safetensors", "without what training goes on from"),
    ] {
        fs::copy(temp.path(other), temp.path("run/checkpoint.safetensors")).unwrap();
        let outcome = temp.run("train --resume run").ok();
        let words = ["run/checkpoint.safetensors", word, "using the one before it, run/previous.safetensors"];
        assert!(words.iter().all(|word| outcome.err.contains(word)), "{outcome:#?}");
        assert!(temp.read("run/checkpoint.safetensors") == whole, "{other}: it came to other bytes");
    }
    fs::remove_file(temp.path("run/previous.safetensors")).unwrap();
    fs::copy(temp.path("weights.safetensors"), temp.path("run/checkpoint.safetensors")).unwrap();
    temp.run("train --resume run --quiet").refused(1, &["run/checkpoint.safetensors", "not one that ftprop wrote"]);
}

/// It was said that somebody had changed the folder, and not what to do.
#[test]
fn lost_metrics_say_what_to_do() {
    let temp = with_run();
    let metrics = temp.text("run/metrics.jsonl");
    let first = metrics.lines().next().unwrap();
    let resume = "train --resume run --quiet --epochs 5";
    for (lost, says) in
        [(None, "metrics.jsonl is gone or holds no epoch"), (Some(first), "metrics.jsonl holds 1 whole")]
    {
        match lost {
            None => fs::remove_file(temp.path("run/metrics.jsonl")).unwrap(),
            Some(line) => drop(temp.write("run/metrics.jsonl", format!("{line}\n"))),
        }
        let words = [says, "the checkpoint is in epoch 4", "put metrics.jsonl back as it was", "--init-from run"];
        temp.run(resume).refused(1, &words);
    }
    temp.run("train --recipe small.toml --init-from run --quiet --epochs 1 --out next").ok();
    temp.write("run/metrics.jsonl", metrics);
    temp.run(resume).ok();
}

#[test]
fn no_result_is_written_over_a_file_of_a_run() {
    let temp = with_run();
    temp.run("export run -o fine.onnx").ok();
    temp.photos("photos");
    temp.write("points.csv", "1,2,a\n2,1,b\n3,0,b\n0,3,a\n");
    let before = temp.snapshot("run");
    let files = ["best.safetensors", "checkpoint.safetensors", "previous.safetensors", "recipe.toml", "metrics.jsonl"];
    let more = ["metrics.csv", "summary.json", "changes.jsonl", "failure.txt", "events.out.tfevents.1"];
    for file in files.into_iter().chain(more) {
        let words = [&format!("run/{file}")[..], "a file of a run", "choose another"];
        temp.run(&format!("export run -o run/{file} --format onnx")).refused(1, &words);
        temp.run(&format!("export fine.onnx -o run/{file} --format onnx")).refused(1, &words);
        temp.run(&format!("eval run --save run/{file}")).refused(1, &words);
        temp.run(&format!("prepare photos -o run/{file} --quiet")).refused(1, &words);
        temp.run(&format!("separable points.csv --certificate run/{file}")).refused(1, &words);
        temp.run(&format!("solve --data points.csv --hidden 1 --certificate run/{file}")).refused(1, &words);
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(temp.path("run/best.safetensors"), temp.path("link.safetensors")).unwrap();
        temp.run("export run -o link.safetensors").refused(1, &["link.safetensors", "a file of a run"]);
    }
    assert_eq!(temp.snapshot("run"), before);
    // Beside them there is room, and elsewhere the names are free.
    temp.run("export run -o run/model.ftp").ok();
    temp.run("export run -o best.safetensors").ok();
}

#[test]
fn a_damaged_network_is_not_used() {
    let temp = with_run();
    flip(&temp, "run/best.safetensors");
    temp.write("x.png", "");
    for command in ["eval run", "predict run x.png", "export run -o x.ftp", "export run -o x.onnx", "summary run"] {
        temp.run(command).refused(1, &["run/best.safetensors", "damaged", "checksum"]);
    }
    assert!(!temp.path("x.ftp").exists() && !temp.path("x.onnx").exists());
}

#[test]
fn a_run_does_not_go_on_with_another_recipe() {
    let temp = with_run();
    let recipe = temp.text("run/recipe.toml");
    let edits = [
        ("seed = 0", "seed = 7", "train.seed was 0 and is 7"),
        ("validation = 0.0", "validation = 0.2", "data.validation was 0.0 and is 0.2"),
        ("activation = \"sign\"", "activation = \"relu\"", "activation was \"sign\" and is \"relu\""),
        ("loss = \"cross_entropy\"", "loss = \"multi_hinge\"", "train.loss"),
        ("lr = 0.001", "lr = 0.01", "optimizer.lr"),
    ];
    for (from, to, word) in edits {
        assert!(recipe.contains(from), "{recipe}");
        temp.write("run/recipe.toml", recipe.replacen(from, to, 1));
        let before = temp.snapshot("run");
        temp.run("train --resume run --quiet --epochs 4").refused(1, &["run: recipe.toml", word, "begin a new run"]);
        assert!(temp.snapshot("run") == before, "something was changed");
    }
    // What belongs to the machine may change, and the name may.
    temp.write("run/recipe.toml", recipe.replacen("name = \"small\"", "name = \"renamed\"", 1));
    temp.run("train --resume run --quiet --epochs 4 --threads 1").ok();
}

/// However many begin at the same time, each has a folder of its own, and one folder has one run.
#[test]
fn runs_begun_at_once_do_not_meet() {
    let temp = Temp::with_recipes();
    for round in 0..4 {
        let start = |seed: usize, out: &str| {
            temp.start(&format!("train --recipe small.toml --quiet --epochs 1 --seed {seed} --threads 1 {out}"))
        };
        let unnamed: Vec<_> = (0..3).map(|seed| start(seed, "")).collect();
        for child in unnamed {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let out = format!("--out same-{round}");
        let mut finished = Vec::new();
        for (seed, child) in [5, 6].map(|seed| (seed, start(seed, &out))) {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                finished.push(seed);
            } else {
                assert!(said.contains("already holds a run") || said.contains("another process"), "{said}");
            }
        }
        assert_eq!(finished.len(), 1);
        assert!(temp.text(&format!("same-{round}/recipe.toml")).contains(&format!("seed = {}", finished[0])));
        temp.run(&format!("train --resume same-{round} --quiet")).ok();
    }
    let folders: Vec<_> = fs::read_dir(temp.path("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 12, "{folders:?}");
    assert!(folders.iter().all(|folder| folder.join("summary.json").exists()));
}

/// Names of classes, runs and files are data, whatever they say.
#[cfg(unix)]
#[test]
fn names_from_files_are_shown_and_not_obeyed() {
    let temp = Temp::new();
    temp.photos("photos");
    let forged = "x\u{1b}[2J\u{202e}\nsecret.png: authorised";
    for part in ["train", "val"] {
        let class = |name: &str| temp.path(&format!("photos/{part}")).join(name);
        fs::rename(class("bright"), class(forged)).unwrap();
    }
    let recipe = "name = \"r\\u001b[31m\\nran: well\"\nnetwork.preset = \"mlp\"\nnetwork.widths = [4]\ntrain.epochs = 2\n\
                  train.batch = 4\ndata.source = \"folder\"\ndata.path = \"photos\"\ndata.crop = 8\ndata.resize = 8\n";
    temp.write("own.toml", recipe);
    let picture = "a\n1.png: cat.png";
    fs::copy(temp.path("photos/val/dark/0.png"), temp.path(picture)).unwrap();
    let mut outcomes = vec![temp.run("train --recipe own.toml --out run"), temp.run("export run -o run.ftp")];
    for model in ["run", "run.ftp"] {
        let mut command = temp.command(&format!("predict {model} --top 2"));
        command.arg(picture).arg("missing\n2.png");
        outcomes.push(Outcome::of("predict", command));
    }
    for command in ["eval run --confusion", "summary run.ftp", "plot run"] {
        outcomes.push(temp.run(command).ok());
    }
    // A program that reads JSON gets the name as it is.
    let mut command = temp.command("predict run --top 2 --json");
    command.arg(picture);
    let answers = Outcome::of("predict --json", command).json();
    let names: Vec<&str> = (0..2).filter_map(|i| answers[0]["classes"][i]["class"].as_str()).collect();
    assert!(names.contains(&forged), "{answers}");
    for outcome in &outcomes {
        let said = format!("{}{}", outcome.out, outcome.err);
        assert!(!said.contains('\u{1b}'), "{said:?}");
        let forgeries = ["secret.png:", "ran:", "1.png:", "2.png:"];
        assert!(!said.lines().any(|line| forgeries.iter().any(|forgery| line.starts_with(forgery))), "{said}");
    }
    assert!(outcomes[2].out.contains("a\\n1.png: cat.png: "), "{:?}", outcomes[2]);
    assert!(outcomes[2].out.contains("x\\u{1b}[2J\\u{202e}\\nsecret.png: authorised"), "{:?}", outcomes[2]);
    assert!(!temp.text("run/curves.svg").contains('\u{1b}'));
}

/// A file that somebody edited does not end the program.
#[test]
fn impossible_times_are_no_panic() {
    let temp = with_run();
    let summary = temp.text("run/summary.json");
    for seconds in ["-1.0", "1e300"] {
        let edited: Vec<String> = temp
            .text("run/metrics.jsonl")
            .lines()
            .map(|line| {
                let at = line.find("\"seconds\":").unwrap() + "\"seconds\":".len();
                format!("{}{seconds}}}\n", &line[..at])
            })
            .collect();
        temp.write("run/metrics.jsonl", edited.concat());
        let outcome = temp.run("train --resume run").ok();
        assert!(outcome.out.contains("test accuracy"), "{outcome:?}");
        temp.run("plot run").ok();
    }
    temp.write("run/summary.json", summary);
}

#[cfg(target_os = "linux")]
mod gpu_libraries {
    use super::*;
    use std::process::Command;

    /// A library of this name that leaves a file behind when it is loaded, and has none of CUDA's functions.
    fn planted(temp: &Temp, name: &str) {
        let source = "#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) \
                      { FILE *f = fopen(\"loaded\", \"w\"); if (f) fclose(f); }\n";
        temp.write("planted.c", source);
        fs::create_dir_all(temp.path("lib64")).unwrap();
        let library = temp.path(&format!("lib64/{name}"));
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", &format!("-Wl,-soname,{name}"), "-o"])
            .args([&library, &temp.path("planted.c")])
            .status();
        assert!(built.unwrap().success());
    }

    /// With `folder` in the variables that name NVIDIA's folders.
    fn devices(temp: &Temp, folder: &str) -> Outcome {
        let mut command = temp.command("devices");
        command.env("CUDA_HOME", folder).env("CUDA_PATH", folder).env_remove("FTPROP_CUDA_LIBRARIES");
        Outcome::of("devices", command)
    }

    #[test]
    fn nothing_is_loaded_from_the_current_folder() {
        let temp = Temp::new();
        planted(&temp, "libcuda.so.1");
        for relative in ["", ".", "./"] {
            devices(&temp, relative).ok();
            assert!(!temp.path("loaded").exists(), "{relative:?} led to the current folder");
        }
    }

    #[test]
    fn a_strange_library_is_an_error_and_no_panic() {
        let temp = Temp::new();
        planted(&temp, "libcuda.so.1");
        planted(&temp, "libnvrtc.so.12");
        let folder = temp.path("").display().to_string();
        let outcome = devices(&temp, &folder).ok();
        // Where there is a real driver, it comes first.
        if temp.path("loaded").exists() {
            let said = format!("{}{}", outcome.out, outcome.err);
            assert!(said.contains("has no cuInit"), "{said}");
            assert!(!said.contains("panicked"), "{said}");
        }
        temp.write("lib64/libcuda.so.1", "not a library");
        devices(&temp, &folder).ok();
    }
}
