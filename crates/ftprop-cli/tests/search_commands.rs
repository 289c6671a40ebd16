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
    let output = ftprop(&place, &["separable", "yes.csv", "--certificate", "proof.json"]);
    assert!(text(&output.stderr).contains("certificate in proof.json"), "{}", text(&output.stderr));
    // Without an answer there is no proof, and what lies there is another's. A linear program takes a while here.
    let mut rng = ftprop_search::Rng::new(5);
    let direction: Vec<f64> = (0..20).map(|_| rng.normal()).collect();
    let long: String = (0..400)
        .map(|_| {
            let row: Vec<f64> = (0..20).map(|_| rng.normal()).collect();
            let above = row.iter().zip(&direction).map(|(x, w)| x * w).sum::<f64>() > 0.0;
            let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
            format!("{},{above}\n", cells.join(","))
        })
        .collect();
    std::fs::write(place.join("long.csv"), long).unwrap();
    let budget = ["--budget", "0.000001ms", "--certificate"];
    for (file, words) in [("proof.json", "holds what it held before"), ("new.json", "nothing was written to new.json")]
    {
        let output = ftprop(&place, &[["separable", "long.csv"].as_slice(), &budget, &[file]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
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

#[test]
fn what_is_on_trust_has_an_exit_code_of_its_own() {
    let place = folder("solve-trust");
    let solve = |hidden: &'static str, file: &'static str| {
        ftprop(
            &place,
            &["solve", "--data", "parity:3", "--hidden", hidden, "--search", "exhaustive", "--certificate", file],
        )
    };
    // One unit: the certificate is proved by listing. Two layers: nobody but the search has seen that.
    for (hidden, file, code, word) in [("1", "one.json", 0, "is good"), ("1,2", "two.json", 3, "on trust")] {
        let output = solve(hidden, file);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("optimal"), "{}", text(&output.stdout));
        let output = ftprop(&place, &["verify", file, "parity:3"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(word), "{}", text(&output.stdout));
    }
}

#[test]
fn test_labels_are_those_of_the_training_file() {
    let place = folder("solve-test-labels");
    std::fs::write(place.join("train.csv"), "0,a\n1,b\n2,c\n").unwrap();
    std::fs::write(place.join("test.csv"), "1,b\n2,c\n2,c\n").unwrap();
    let arguments =
        ["solve", "--data", "train.csv", "--hidden", "3", "--test", "test.csv", "--json", "--budget", "20s"];
    let report: serde_json::Value = serde_json::from_slice(&ftprop(&place, &arguments).stdout).unwrap();
    assert_eq!((&report["train"]["errors"], &report["test"]["errors"]), (&0.into(), &0.into()), "{report}");
    std::fs::write(place.join("test.csv"), "1,b\n2,d\n").unwrap();
    let output = ftprop(&place, &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("row 2 has the label 'd'"), "{}", text(&output.stderr));
}

#[test]
fn numbers_of_every_size_are_decided() {
    let place = folder("separable-sizes");
    for (content, margin) in [
        ("1e-309,a\n2e-309,b\n", 5e-310),
        ("-1.7e308,a\n1.7e308,b\n", 1.7e308),
        ("9007199254740992,a\n9007199254740993,b\n", 0.5),
    ] {
        std::fs::write(place.join("x.csv"), content).unwrap();
        let output = ftprop(&place, &["separable", "x.csv", "--certificate", "x.json", "--json"]);
        assert!(output.status.success(), "{content}: {}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = report["margin"].as_f64().unwrap();
        assert!(found > 0.0 && found <= margin * 1.001, "{content}: {found}");
        let output = ftprop(&place, &["verify", "x.json", "x.csv"]);
        assert!(output.status.success(), "{content}: {}", text(&output.stderr));
    }
}

#[test]
fn a_search_goes_on_from_its_certificate() {
    let place = folder("solve-resume");
    // Sixty points over five inputs with a third of the labels against the rest: not proved within a few nodes.
    let mut rng = ftprop_search::Rng::new(3);
    let mut table = String::new();
    for _ in 0..60 {
        let row: Vec<f64> = (0..5).map(|_| rng.below(100) as f64 / 10.0).collect();
        let label = (row[0] + row[1] > row[2] + 5.0) != (rng.below(8) == 0);
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        table += &format!("{},{}\n", cells.join(","), u8::from(label));
    }
    std::fs::write(place.join("x.csv"), table).unwrap();
    let run = |more: &[&str]| {
        let base =
            ["solve", "--data", "x.csv", "--hidden", "1", "--certificate", "x.json", "--resume", "x.json", "--json"];
        let output = ftprop(&place, &[base.as_slice(), more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let first = run(&["--nodes", "70"]);
    assert_eq!(first["status"], "stopped", "{first}");
    let last = run(&[]);
    assert_eq!(last["status"], "optimal");
    let number = |report: &serde_json::Value, key: &str| report[key].as_f64().unwrap();
    assert!(number(&last, "loss_value") <= number(&first, "loss_value"));
    assert!(number(&last, "at_least") >= number(&first, "at_least"));
    // What is proved stays proved, however little comes after it.
    for more in [&["--nodes", "1"][..], &["--search", "hill-climbing", "--nodes", "1"], &["--budget", "1ms"]] {
        let again = run(more);
        assert_eq!((&again["at_least"], &again["proved"]), (&last["at_least"], &true.into()), "{again}");
    }
    assert!(ftprop(&place, &["verify", "x.json", "x.csv"]).status.success());
}

#[test]
fn networks_that_no_memory_holds_are_refused_at_once() {
    let place = folder("solve-memory");
    let output = ftprop(&place, &["solve", "--data", "xor", "--hidden", "1000000", "--memory", "1000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("MiB of memory"), "{}", text(&output.stderr));
}

/// A request to terminate ends the search as Ctrl-C does: with what it has.
#[cfg(unix)]
#[test]
fn a_terminated_search_saves_what_it_has() {
    let place = folder("solve-terminate");
    let mut rng = ftprop_search::Rng::new(4);
    let row = |_| (0..7).map(|at| rng.below(if at < 6 { 1000 } else { 2 }).to_string()).collect::<Vec<_>>().join(",");
    let rows: Vec<String> = (0..120).map(row).collect();
    std::fs::write(place.join("x.csv"), rows.join("\n")).unwrap();
    let arguments = ["solve", "--data", "x.csv", "--hidden", "1", "--certificate", "x.json", "--budget", "5m"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_ftprop")).current_dir(&place).args(arguments).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    // Not what a finished search says, though all is saved.
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let output = ftprop(&place, &["verify", "x.json", "x.csv"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
