//! The commands in the documentation work: each `sh` block of a page is run as it stands, in order, in a fresh folder.
//! Blocks marked `sh data` need real data: they run where `FTPROP_DATA` points to a folder with `cifar-10-batches-bin`
//! and `photos`, and only those that take seconds there. Those marked `sh repository` build, and CI runs them. Rust stands
//! in the documentation of `ftprop-runtime` too, where it is compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a page: what its fence says, and its lines.
fn blocks(text: &str) -> Vec<(String, Vec<String>)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Vec<String>)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => open = Some((info.trim().to_string(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.to_string()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn run(line: &str, folder: &Path) {
    let program = Path::new(env!("CARGO_BIN_EXE_ftprop"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", line]).current_dir(folder).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a page's commands; returns the folder they ran in and how many there were.
fn follow(page: &str) -> (PathBuf, usize) {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let name = page.replace(['/', '.'], "-");
    let folder = std::env::temp_dir().join(format!("ftprop-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(root().join("recipes"), folder.join("recipes")).unwrap();
    let data = std::env::var_os("FTPROP_DATA").map(PathBuf::from);
    if let Some(data) = &data {
        for name in ["cifar-10-batches-bin", "photos"] {
            std::os::unix::fs::symlink(data.join(name), folder.join(name)).unwrap();
        }
    }
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let runtime = std::fs::read_to_string(root().join("crates/ftprop-runtime/src/lib.rs")).unwrap();
    let mut commands = 0;
    for (info, lines) in blocks(&text) {
        match info.as_str() {
            "toml" => {
                // A comment at the top says the file's name, or a recipe its own.
                let titled = lines[0].strip_prefix("# ").and_then(|title| title.strip_suffix(".toml"));
                let named = lines.iter().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
                let file = format!("{}.toml", titled.or(named).unwrap_or("recipe"));
                std::fs::write(folder.join(file), lines.join("\n")).unwrap();
            }
            "sh" => lines.iter().for_each(|line| {
                run(line, &folder);
                commands += 1;
            }),
            "sh data" if data.is_none() => println!("skipped, FTPROP_DATA is not set: {lines:?}"),
            "sh data" => lines.iter().for_each(|line| {
                if line.contains("cifar") {
                    println!("skipped, takes minutes: {line}");
                } else {
                    run(line, &folder);
                }
            }),
            "sh repository" => lines.iter().for_each(|line| assert!(ci.contains(line), "CI does not run {line}")),
            "rust" => lines.iter().for_each(|line| {
                assert!(runtime.contains(format!("//! {line}").trim_end()), "ftprop-runtime does not show {line}");
            }),
            other => panic!("what is a block of '{other}'?"),
        }
    }
    (folder, commands)
}

#[test]
fn the_commands_of_the_quick_start_work() {
    let (folder, commands) = follow("docs/quickstart.md");
    assert!(commands >= 8, "only {commands} commands were found");
    assert!(folder.join("comparison.png").exists() && folder.join("runs/digits/curves.svg").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_commands_of_deploying_work() {
    let (folder, commands) = follow("docs/deploy.md");
    assert!(commands >= 9, "only {commands} commands were found");
    for name in ["digits.ftp", "digits.onnx", "digits-float.onnx", "digits.safetensors", "runs/back"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_page_on_accuracy_works() {
    let (folder, commands) = follow("docs/accuracy.md");
    assert_eq!(commands, 7);
    assert!(folder.join("rules/report.md").exists());
    for run in ["thresholds", "taught", "second-stage"] {
        assert!(folder.join("runs").join(run).join("summary.json").exists(), "{run}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_commands_of_reproducing_work() {
    let (folder, commands) = follow("docs/reproduce.md");
    assert!(commands >= 5, "only {commands} commands were found");
    for name in [
        "hinges/report.html",
        "sweep/report.html",
        "sweep/figures/digits.png",
        "hard-layers.png",
        "runs/soft/diagnostics.png",
    ] {
        assert!(folder.join(name).exists(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The best epoch flatters, and stood beside last ones as if it were one of them.
#[test]
fn figures_of_the_papers_table_are_those_of_its_runs() {
    let mean = |cell: &str, which: &str| {
        let of_seed = |seed: u32| {
            let path = root().join(format!("results/table1/runs/convnet8-{cell}/seed-{seed}/summary.json"));
            let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            100.0 * summary["test"][which].as_f64().unwrap()
        };
        (1..=3).map(of_seed).sum::<f64>() / 3.0
    };
    let cells = ["qrelu-ftpsh", "qrelu-sste", "saturated-relu", "sign-ftpsh", "sign-sste"];
    let [last, best] = ["top1_last", "top1_best"].map(|which| cells.map(|cell| mean(cell, which)));
    let [q, s, r, f, e] = last;
    let ends = format!(
        "(FTP-SH) end at {q:.1} %, the saturated straight-through estimator (SSTE) at {s:.1} %, and the full-precision \
         saturated ReLU at {r:.1} %. With sign activations the two estimators end at {f:.2} and {e:.2} %"
    );
    let [bq, bs, br, bf, be] = best;
    let flatters = format!(
        "In the best epoch on the test images, which the paper gives and which flatters, these five have {bq:.1}, {bs:.1}, \
         {br:.1}, {bf:.2} and {be:.2} %"
    );
    for (page, figure) in [
        ("README.md", ends),
        ("README.md", flatters),
        ("docs/accuracy.md", format!("| sign | **87.01** | 86.53, 87.17, 87.33 | {f:.2} |")),
        ("docs/accuracy.md", format!("| qReLU 3 | **91.30** | 90.96, 91.48, 91.45 | {q:.2} |")),
        ("docs/accuracy.md", format!("| saturated ReLU, not quantized | | | {r:.2} |")),
    ] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&figure), "{page} does not say: {figure}");
    }
}

#[test]
fn every_page_that_is_linked_exists() {
    for page in [
        "README.md",
        "docs/quickstart.md",
        "docs/theory.md",
        "docs/prepared-format.md",
        "docs/recipes.md",
        "docs/reproduce.md",
        "docs/performance.md",
        "docs/decisions.md",
        "docs/deploy.md",
        "docs/gpus.md",
        "docs/architecture.md",
        "CONTRIBUTING.md",
    ] {
        let path = root().join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            // A place in a page, perhaps in this one.
            let link = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(link).exists(), "{page} links to {link}");
        }
    }
}

#[test]
fn the_pages_about_code_name_files_that_exist() {
    for (page, least) in [("docs/theory.md", 4), ("docs/architecture.md", 30), ("CONTRIBUTING.md", 2)] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let files: Vec<&str> = text.split('`').filter(|word| word.starts_with("crates/")).collect();
        assert!(files.len() >= least, "{page} names {} files", files.len());
        files.iter().for_each(|file| assert!(root().join(file).exists(), "{page} names {file}"));
    }
}
