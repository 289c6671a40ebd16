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
                let named = lines.iter().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
                let file = format!("{}.toml", named.unwrap_or("recipe"));
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
    assert!(commands >= 4, "only {commands} commands were found");
    for name in ["sweep/report.html", "sweep/figures/digits.png", "hard-layers.png", "runs/soft/diagnostics.png"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
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
