//! What studies count, compare and say of it: runs that ended early or failed, that began from something else, or that were
//! changed on the way.

mod common;

use common::Temp;

/// They never counted, and the same command found nothing to do about it.
#[test]
fn runs_that_patience_ended_are_finished() {
    let temp = Temp::with_recipes();
    let held = "--set data.validation=0.1 --set train.patience=1";
    let sweep =
        format!("sweep --recipe small.toml --epochs 12 --seeds 2 {held} --grid layer_loss=soft_hinge,saturated_hinge");
    let first = temp.run(&format!("{sweep} --set optimizer.lr=0.3 --out s --quiet --json")).ok().json();
    let epochs = |run: &serde_json::Value| run["summary"]["epochs"].as_u64();
    let runs = first["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| epochs(run).is_some()), "{first}");
    let early = runs.iter().find(|run| epochs(run) < Some(12)).expect("one that patience ended");
    let report = temp.text("s/report.md");
    assert!(report.contains("4 of 4 runs are finished") && report.contains(" of 12 |"), "{report}");
    assert!(report.contains("Some runs were ended early, by `train.patience`"), "{report}");

    // Nothing is left to do.
    let (folder, history) = (early["run"].as_str().unwrap(), temp.read("s/history.jsonl"));
    std::fs::remove_file(temp.path(&format!("{folder}/checkpoint.safetensors"))).unwrap();
    temp.run(&format!("{sweep} --set optimizer.lr=0.3 --out s --quiet")).ok();
    assert!(!temp.path(&format!("{folder}/checkpoint.safetensors")).exists(), "it was run again");
    assert_eq!(temp.read("s/history.jsonl"), history);
}

/// Seeds that began with different networks, or had different teachers, stood in one mean: where a network lies is no part of
/// a recipe, and nothing else was asked.
#[test]
fn a_sweep_has_one_beginning_and_one_teacher() {
    let temp = Temp::with_recipes();
    for (folder, seed) in [("ia/x", 1), ("ib/x", 2)] {
        let soft = "--set activation=saturated_relu --epochs 1 --quiet";
        temp.run(&format!("train --recipe small.toml {soft} --seed {seed} --out {folder}")).ok();
    }
    let base = "sweep --recipe small.toml --epochs 1 --grid layer_loss=log,hinge --quiet";
    for (key, out, says) in [
        ("train.init_from", "begun", "began with another network than train.init_from has now"),
        ("train.teacher", "taught", "the teacher is not the network"),
    ] {
        let sweep = |folder: &str, seeds: u32| format!("{base} --seeds {seeds} --set {key}={folder}/x --out {out}");
        temp.run(&sweep("ia", 1)).ok();
        let report = temp.read(&format!("{out}/report.md"));
        for seeds in [1, 2] {
            temp.run(&sweep("ib", seeds)).refused(1, &[out, says]);
        }
        assert_eq!(temp.read(&format!("{out}/report.md")), report);
        temp.run(&sweep("ia", 2)).ok();
    }
    // One that is there no more is not asked for by runs that have begun.
    std::fs::rename(temp.path("ia"), temp.path("gone")).unwrap();
    temp.run(&format!("{base} --seeds 2 --set train.init_from=ia/x --out begun")).ok();
    // Elsewhere it is the same.
    temp.run(&format!("{base} --seeds 3 --set train.init_from=gone/x --out begun")).ok();
}

/// They were left out without a word, and the mean of the others stood for all.
#[test]
fn a_report_says_which_runs_failed_and_why() {
    let temp = Temp::with_recipes();
    let sweep = "sweep --recipe small.toml --epochs 1 --seeds 3 --grid optimizer.lr=1e-3,1e38 --out s --quiet";
    assert_eq!(temp.run(sweep).code, Some(1));
    let why = "small, 1e38, seed 2: the loss is no longer a number";
    let said = |part: &str| [temp.text("s/report.md"), temp.text("s/report.html")].iter().all(|r| r.contains(part));
    assert!(said("3 runs failed") && said("means and deviations are over the others") && said(why));

    // One of several, and for another reason.
    let run = "s/runs/small/optimizer.lr-1e-3/seed-2";
    let checkpoint = temp.read(&format!("{run}/checkpoint.safetensors"));
    let _ = std::fs::remove_file(temp.path(&format!("{run}/previous.safetensors")));
    std::fs::remove_file(temp.path(&format!("{run}/summary.json"))).unwrap();
    temp.write(&format!("{run}/checkpoint.safetensors"), &checkpoint[..checkpoint.len() / 2]);
    assert_eq!(temp.run(sweep).code, Some(1));
    let json = temp.run(&format!("{sweep} --report-only --json")).ok().json();
    let failures = json["runs"].as_array().unwrap().iter().filter(|run| run["failure"].is_string()).count();
    let report = temp.text("s/report.md");
    assert!(failures == 4 && report.contains("4 runs failed") && report.contains("small, 1e-3, seed 2: "), "{report}");
    assert!(report.contains("| 2 of 3 |") && said(why), "{report}");
    // What goes on has not failed any more.
    temp.write(&format!("{run}/checkpoint.safetensors"), checkpoint);
    assert_eq!(temp.run(sweep).code, Some(1));
    assert!(said("3 runs failed") && !said("small, 1e-3, seed 2: "));
    assert!(!temp.path(&format!("{run}/failure.txt")).exists());
}

/// They counted as the sweep's own, though what was said of them held from some epoch on only.
#[test]
fn a_report_says_which_runs_were_changed_on_the_way() {
    let temp = Temp::with_recipes();
    let sweep = |epochs: u32, lr: &str| {
        let set = format!("--epochs {epochs} --set optimizer.lr={lr}");
        temp.run(&format!("sweep --recipe small.toml {set} --grid layer_loss=soft_hinge,hinge --out s --quiet")).ok();
        temp.text("s/report.md")
    };
    assert!(!sweep(2, "1e-2").contains("changed on the way"));
    for loss in ["soft_hinge", "hinge"] {
        let run = format!("s/runs/small/layer_loss-{loss}/seed-1");
        temp.run(&format!("train --resume {run} --set optimizer.lr=1e-3 --epochs 4 --quiet")).ok();
    }
    let report = sweep(4, "1e-3");
    assert!(report.contains("2 of 2 runs are finished"), "{report}");
    for part in ["changed on the way", "small, hinge, seed 1: from epoch 3 on optimizer.lr was 0.001, before 0.01"] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
}

#[test]
fn runs_without_a_validation_part_are_not_ranked_beside_those_with_one() {
    let temp = Temp::with_recipes();
    temp.run("sweep --recipe small.toml --epochs 2 --grid data.validation=0,0.3 --out s --quiet").ok();
    let report = temp.text("s/report.md");
    assert!(report.contains("Those without a validation part come last and are not ranked"), "{report}");
    let rows: Vec<&str> = report.lines().filter(|line| line.starts_with("| 0")).collect();
    assert!(rows.len() == 2 && rows[0].starts_with("| 0.3 |") && rows[1].starts_with("| 0 | – |"), "{report}");
}
