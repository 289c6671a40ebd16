//! `ftprop train --diagnostics`: what it leaves behind, and that the run itself does not notice.
#![cfg(unix)]

mod common;

use common::*;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn records(temp: &Temp, run: &str) -> Vec<serde_json::Value> {
    temp.text(&format!("{run}/diagnostics.jsonl")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_does_not_notice_that_it_is_looked_at() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe thorough.toml --quiet --epochs 3 --out plain").ok();
    temp.run("train --recipe thorough.toml --quiet --epochs 3 --out watched --diagnostics").ok();
    temp.run("train --recipe thorough.toml --quiet --epochs 3 --out set --set train.diagnostics=true").ok();
    temp.assert_same_result("watched", "plain");
    temp.assert_same_result("set", "plain");
    assert_eq!(temp.read("watched/diagnostics.jsonl"), temp.read("set/diagnostics.jsonl"));
    assert!(temp.text("watched/recipe.toml").contains("diagnostics = true"));
    assert!(!temp.text("plain/recipe.toml").contains("diagnostics"));
    assert!(temp.snapshot("plain").iter().all(|(name, _)| !name.starts_with("diagnostics")));

    let records = records(&temp, "watched");
    let epochs: Vec<_> = records.iter().map(|r| r["epoch"].as_u64().unwrap()).collect();
    assert_eq!(epochs, [0, 1, 2, 3]);
    // The first batch's loss before the first step is that of a network that knows nothing.
    assert!((records[0]["loss"].as_f64().unwrap() - 10f64.ln()).abs() < 0.8, "{}", records[0]);
    for record in &records {
        for layer in record["layers"].as_array().unwrap() {
            for share in ["beyond", "untargeted", "faint", "disagree", "came_true", "lost"] {
                assert!((0.0..=1.0).contains(&layer[share].as_f64().unwrap()), "{share} of {layer}");
            }
            assert!(layer["gradient"].as_f64().unwrap() >= layer["slope"].as_f64().unwrap(), "{layer}");
        }
    }
    let first = &records[0]["layers"][0];
    assert_eq!((first["layer"].as_str(), first["below"].as_str()), (Some("2"), Some("conv 8 3×3 pad 1")));
    assert!(temp.text("watched/diagnostics.svg").contains("2: conv 8 3×3 pad 1"));
    assert!(temp.read("watched/diagnostics.png").starts_with(b"\x89PNG"));
    let events = fs::read_dir(temp.path("watched")).unwrap().map(|e| e.unwrap().path());
    let events = events.filter(|p| p.to_string_lossy().contains("tfevents"));
    let events: Vec<u8> = events.flat_map(|p| fs::read(p).unwrap()).collect();
    assert!(events.windows(23).any(|w| w == b"diagnostics.came_true/2"));
}

/// The digits' schedule ends at 0, where a step changes nothing.
#[test]
fn there_is_something_to_see_after_the_last_epoch() {
    let temp = Temp::new();
    temp.run("train --quiet --epochs 2 --out run --diagnostics").ok();
    for record in records(&temp, "run") {
        let came_true = |layer: &serde_json::Value| layer["came_true"].as_f64().unwrap();
        assert!(record["layers"].as_array().unwrap().iter().any(|layer| came_true(layer) > 0.0), "{record}");
    }
}

#[test]
fn a_killed_run_ends_with_the_same_records() {
    let temp = Temp::with_recipes();
    let train = "train --recipe thorough.toml --quiet --diagnostics --set train.checkpoint_seconds=0.02";
    temp.run(&format!("{train} --out whole")).ok();
    for lines in 1..=6 {
        let begun = temp.path("run/recipe.toml").exists();
        let mut child =
            temp.start(&if begun { "train --resume run --quiet".into() } else { format!("{train} --out run") });
        let deadline = Instant::now() + Duration::from_secs(60);
        let path = temp.path("run/diagnostics.jsonl");
        let written = || fs::read(&path).map_or(0, |bytes| bytes.iter().filter(|&&b| b == b'\n').count());
        while written() < lines && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the moment never came");
            sleep(Duration::from_micros(500));
        }
        let _ = child.kill();
        child.wait().unwrap();
        if lines == 3 {
            // What a kill in the middle of a line leaves.
            let text = temp.text("run/diagnostics.jsonl");
            temp.write("run/diagnostics.jsonl", format!("{text}{}", &text[..40]));
        }
    }
    temp.run("train --resume run --quiet").ok();
    temp.assert_same_result("run", "whole");
    assert!(temp.read("run/diagnostics.jsonl") == temp.read("whole/diagnostics.jsonl"));
    assert_eq!(records(&temp, "run").len(), 7);
    // Resuming what is finished changes nothing.
    let before = temp.snapshot("run");
    temp.run("train --resume run --quiet").ok();
    assert!(temp.snapshot("run") == before);
}

#[test]
fn a_run_can_be_looked_at_from_some_epoch_on() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    temp.run("train --resume run --quiet --epochs 4 --diagnostics").ok();
    let epochs: Vec<_> = records(&temp, "run").iter().map(|r| r["epoch"].as_u64().unwrap()).collect();
    assert_eq!(epochs, [2, 3, 4]);
    // Nothing to see in a network without hard layers, but nothing wrong either.
    temp.run("train --recipe small.toml --quiet --set activation=relu --diagnostics --out relu").ok();
    assert_eq!(records(&temp, "relu").len(), 3);
    assert!(!temp.path("relu/diagnostics.png").exists());
    temp.run("train --recipe small.toml --quiet --out plain").ok();
    temp.run("plot --diagnostics run run --out both").ok();
    assert!(temp.text("both.svg").contains("1: fc 16, out of reach"));
    for run in ["relu", "plain"] {
        temp.run(&format!("plot --diagnostics run {run}")).refused(1, &[run, "--diagnostics"]);
    }
}

/// TensorBoard is shown each look at the hard layers once, however often a run was taken up.
#[test]
fn a_resumed_run_shows_tensorboard_every_step_once() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --diagnostics --epochs 2 --out run").ok();
    temp.run("train --resume run --quiet --epochs 3").ok();
    temp.run("train --resume run --quiet --epochs 5").ok();
    let tag = b"diagnostics.loss/before_the_step";
    let shown: usize = fs::read_dir(temp.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("events."))
        .map(|path| fs::read(path).unwrap().windows(tag.len()).filter(|window| window == tag).count())
        .sum();
    assert_eq!(shown, 6, "before the first epoch, and after each of five");
}
