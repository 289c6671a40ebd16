//! The same recipe and seed give the same bytes, however many threads take part.

mod common;

use common::*;

const TRAIN: &str = "train --recipe thorough.toml --quiet --epochs 2";

#[test]
fn threads_and_workers_change_nothing() {
    let temp = Temp::with_recipes();
    temp.run(&format!("{TRAIN} --out first --threads 1 --set data.workers=0")).ok();
    for (threads, workers) in [(1, 1), (2, 0), (2, 3), (3, 1)] {
        let run = format!("run-{threads}-{workers}");
        temp.run(&format!("{TRAIN} --out {run} --threads {threads} --set data.workers={workers}")).ok();
        temp.assert_same_result(&run, "first");
    }
}

#[test]
fn the_seed_decides() {
    let temp = Temp::with_recipes();
    for (run, seed) in [("a", 7), ("b", 7), ("c", 8)] {
        temp.run(&format!("{TRAIN} --out {run} --seed {seed}")).ok();
    }
    temp.assert_same_result("a", "b");
    assert_ne!(temp.timeless_metrics("a"), temp.timeless_metrics("c"));
    assert!(temp.read("a/best.safetensors") != temp.read("c/best.safetensors"));
}

#[test]
fn a_resumed_run_may_use_other_threads() {
    let temp = Temp::with_recipes();
    let train = "train --recipe thorough.toml --quiet --set schedule.kind=constant";
    temp.run(&format!("{train} --epochs 2 --threads 1 --out whole")).ok();
    temp.run(&format!("{train} --epochs 1 --threads 3 --out run")).ok();
    temp.run("train --resume run --quiet --epochs 2 --threads 2").ok();
    assert_eq!(temp.timeless_metrics("run"), temp.timeless_metrics("whole"));
    assert!(temp.read("run/checkpoint.safetensors") == temp.read("whole/checkpoint.safetensors"));
}

/// Whatever rounds a product and a sum once comes to the same bytes; what does not still trains.
#[test]
fn instruction_sets_with_fma_agree() {
    let temp = Temp::with_recipes();
    let mut trained: Vec<&str> = Vec::new();
    for isa in ["avx512", "avx2", "neon", "portable"] {
        let outcome = temp.run(&format!("--isa {isa} train --recipe thorough.toml --quiet --epochs 2 --out {isa}"));
        if outcome.code == Some(0) {
            trained.push(isa);
        } else {
            outcome.refused(1, &["this machine"]);
        }
    }
    assert!(trained.contains(&"portable"), "{trained:?}");
    for pair in trained.windows(2).filter(|pair| pair[1] != "portable") {
        temp.assert_same_result(pair[0], pair[1]);
    }
    // The option may stand behind the command, too.
    temp.run("devices --isa portable").ok();
    temp.run("devices --isa mmx").refused(2, &["mmx", "portable"]);
}
