//! How parameters are learned: in groups, averaged, frozen.

mod common;

use common::*;

/// The averaged network is the one that is measured, kept as the best and as the last, and taken up again.
#[test]
fn a_moving_average_is_what_is_measured_and_kept() {
    let temp = Temp::with_recipes();
    let train = "train --recipe small.toml --quiet --epochs 3 --set train.ema=0.95";
    temp.run(&format!("{train} --out averaged")).ok();
    temp.run("train --recipe small.toml --quiet --epochs 3 --out plain").ok();
    let last = |run: &str| -> serde_json::Value {
        let metrics = temp.text(&format!("{run}/metrics.jsonl"));
        serde_json::from_str(metrics.lines().last().unwrap()).unwrap()
    };
    let measured = |run: &str| last(run)["test"]["top1"].as_f64().unwrap();
    let evaluated = |run: &str, which: &str| {
        let outcome = temp.run(&format!("eval {run} --checkpoint {which} --json")).json();
        outcome["top1"].as_f64().unwrap()
    };
    assert_eq!(evaluated("averaged", "last"), measured("averaged"));
    assert_eq!(evaluated("plain", "last"), measured("plain"));
    assert_ne!(measured("averaged"), measured("plain"), "an average of so few steps is another network");
    // What is learned does not depend on whether it is averaged.
    assert_eq!(last("averaged")["train"]["loss"], last("plain")["train"]["loss"]);
    for wrong in ["0", "1", "1.5", "-0.5", "nan"] {
        let refused = temp.run(&format!("train --recipe small.toml --quiet --out new --set train.ema={wrong}"));
        refused.refused(1, &["train.ema", "between 0 and 1"]);
    }
}

#[test]
fn groups_are_chosen_by_kind_and_pattern() {
    let temp = Temp::with_recipes();
    temp.write("frozen.toml", format!("{SMALL}\n[[groups]]\npattern = \"0.*\"\nlr_factor = 0.0\n"));
    temp.run("train --recipe frozen.toml --quiet --epochs 1 --out one").ok();
    temp.run("train --recipe frozen.toml --quiet --epochs 2 --out two").ok();
    let tensors = |run: &str| {
        let bytes = temp.read(&format!("{run}/checkpoint.safetensors"));
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        ["0.weight", "2.weight"].map(|name| tensors.tensor(name).unwrap().data().to_vec())
    };
    let ([first, last], [first_later, last_later]) = (tensors("one"), tensors("two"));
    assert!(first == first_later && last != last_later, "the first layer is frozen, the last is not");

    let refused = |groups: &str, words: &[&str]| {
        temp.write("wrong.toml", format!("{SMALL}\n{groups}"));
        temp.run("train --recipe wrong.toml --quiet --out new").refused(1, words);
    };
    refused("[[groups]]\nkind = \"norms\"", &["group 1 has no parameters", "0.weight"]);
    refused("[[groups]]\nkind = \"weigths\"", &["weigths", "weights"]);
    refused("[[groups]]\nlr_factor = -1.0", &["group 1", "lr_factor"]);
    refused("[optimizer]\nname = \"muon\"\nlr = 0.02", &["0.bias is no matrix", "group"]);
    refused("[optimizer]\nname = \"muon\"\nlr = 0.02\niterations = 2.5", &["optimizer.iterations", "whole number"]);
}
