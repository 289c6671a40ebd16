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
