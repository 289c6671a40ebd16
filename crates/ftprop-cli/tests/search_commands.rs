//! `separable`, `solve` and `verify` from the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ftprop(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ftprop")).current_dir(folder).args(arguments).output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_solution_is_proved_again_drawn_and_used() {
    let place = folder("solve-xor");
    let solve = ["solve", "--data", "xor", "--hidden", "2", "--search", "exhaustive", "--json"];
    let extras = ["--certificate", "xor.json", "--plot", "regions", "--save", "run"];
    let output = ftprop(&place, &[solve.as_slice(), extras.as_slice()].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["status"], &report["train"]["accuracy"]), (&"optimal".into(), &1.0.into()));
    assert!(place.join("regions.svg").exists() && place.join("regions.png").exists());

    let output = ftprop(&place, &["verify", "xor.json", "xor"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let certificate = std::fs::read_to_string(place.join("xor.json")).unwrap();
    std::fs::write(place.join("xor.json"), certificate.replacen("\"errors\": 0", "\"errors\": 1", 1)).unwrap();
    let output = ftprop(&place, &["verify", "xor.json", "xor"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("refused"), "{}", text(&output.stderr));

    let output = ftprop(&place, &["eval", "run", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let scores: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scores["top1"], 1.0);
}

#[test]
fn tables_are_decided_with_a_certificate() {
    let place = folder("separable");
    std::fs::write(place.join("yes.csv"), "0,0,a\n1,0,a\n0,1,b\n1,1,b\n").unwrap();
    std::fs::write(place.join("no.csv"), "0,0,a\n1,1,a\n0,1,b\n1,0,b\n").unwrap();
    for (table, answer) in [("yes.csv", "separable"), ("no.csv", "not-separable")] {
        let output = ftprop(&place, &["separable", table, "--certificate", "proof.json", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["status"], answer);
        let output = ftprop(&place, &["verify", "proof.json", table]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let output = ftprop(&place, &["verify", "proof.json", "yes.csv"]);
    assert_eq!(output.status.code(), Some(1), "a proof about other data");
}

#[test]
fn bad_input_is_one_line() {
    let place = folder("search-bad-input");
    for (content, words) in [
        ("", "no instances"),
        ("1,a\n2,a\n", "every instance has the label 'a'"),
        ("1,a\nNaN,b\n", "row 2, column 1: 'NaN'"),
        ("1,2,a\n1,b\n", "row 2 has 2 columns"),
    ] {
        std::fs::write(place.join("bad.csv"), content).unwrap();
        for arguments in [["separable", "bad.csv"].as_slice(), &["solve", "--data", "bad.csv"]] {
            let output = ftprop(&place, arguments);
            assert_eq!(output.status.code(), Some(1));
            let message = text(&output.stderr);
            assert!(message.contains(words) && message.trim().lines().count() == 1, "{message}");
        }
    }
    std::fs::write(place.join("twice.csv"), "1,2,a\n1,2,b\n3,4,a\n").unwrap();
    let output = ftprop(&place, &["separable", "twice.csv"]);
    assert!(text(&output.stdout).contains("instances 1 and 2 are equal"));
    // What cannot be written is found before the search.
    std::fs::create_dir_all(place.join("run")).unwrap();
    std::fs::write(place.join("run/recipe.toml"), "").unwrap();
    for (more, words) in [
        (["--certificate", "no/such/x.json"], "no/such"),
        (["--plot", "no/such/x"], "no/such"),
        (["--save", "run"], "already holds a run"),
    ] {
        let output = ftprop(&place, &[["solve", "--data", "xor"].as_slice(), &more].concat());
        let message = text(&output.stderr);
        assert!(!output.status.success() && message.contains(words) && output.stdout.is_empty(), "{message}");
    }
    let output = ftprop(&place, &["solve", "--data", "parity:3", "--plot", "x"]);
    assert!(text(&output.stderr).contains("two inputs, not for 3"));
    let output = ftprop(&place, &["solve", "--data", "xor", "--budget", "0s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the budget is zero"));
}
