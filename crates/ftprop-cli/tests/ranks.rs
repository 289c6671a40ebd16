//! Several processes that train one network: alike every time, whoever starts them, and whatever becomes of one.
#![cfg(unix)]

mod common;

use common::*;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Without batch norm, so that ranks compute what one process computes; with chance wherever there can be some.
const PLAIN: &str = r#"
name = "plain"
activation = "sign"
layer_loss = "soft_hinge"
data.source = "digits"
data.validation = 0.1
data.pad = 1
data.random_crop = true
optimizer.name = "adam"
optimizer.lr = 1e-3
train.epochs = 4
train.batch = 50
network.layers = [
    { kind = "conv", out = 8, kernel = 3, pad = 1 },
    { kind = "act" },
    { kind = "max_pool", kernel = 2, stride = 2 },
    { kind = "conv", out = 16, kernel = 3, pad = 1 },
    { kind = "act" },
    { kind = "dropout", p = 0.2 },
    { kind = "fc" },
]
"#;

fn folder() -> Temp {
    let temp = Temp::with_recipes();
    fs::write(temp.path("plain.toml"), PLAIN).unwrap();
    temp
}

fn bytes(temp: &Temp, file: &str) -> Vec<u8> {
    fs::read(temp.path(file)).unwrap()
}

/// The last test accuracy and training loss.
fn scores(temp: &Temp, run: &str) -> (f64, f64) {
    let text = fs::read_to_string(temp.path(&format!("{run}/metrics.jsonl"))).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    (last["test"]["top1"].as_f64().unwrap(), last["train"]["loss"].as_f64().unwrap())
}

#[test]
fn ranks_give_the_same_bytes_every_time_and_nearly_those_of_one() {
    let temp = folder();
    temp.run("train --recipe plain.toml --quiet --device cpu --out one").ok();
    let (top1, loss) = scores(&temp, "one");
    for devices in ["cpu,cpu", "cpu,cpu,cpu"] {
        for run in ["a", "b"] {
            temp.run(&format!("train --recipe plain.toml --quiet --devices {devices} --out {run}-{devices}")).ok();
        }
        for file in ["best.safetensors", "checkpoint.safetensors"] {
            let same = bytes(&temp, &format!("a-{devices}/{file}")) == bytes(&temp, &format!("b-{devices}/{file}"));
            assert!(same, "{file} with {devices}");
        }
        let (other_top1, other_loss) = scores(&temp, &format!("a-{devices}"));
        assert!((other_loss / loss - 1.0).abs() < 0.02, "loss {other_loss} with {devices}, {loss} alone");
        assert!((other_top1 - top1).abs() < 0.03, "accuracy {other_top1} with {devices}, {top1} alone");
        let text = fs::read_to_string(temp.path(&format!("a-{devices}/metrics.jsonl"))).unwrap();
        assert!(text.lines().all(|line| line.contains("\"exchanged\":")), "{text}");
        for line in text.lines() {
            let metrics: serde_json::Value = serde_json::from_str(line).unwrap();
            let ranks = metrics["images_per_s"].as_f64().unwrap() / metrics["images_per_s_of_a_rank"].as_f64().unwrap();
            assert!((ranks - devices.split(',').count() as f64).abs() < 1e-6, "{line}");
        }
    }
    assert!(!fs::read_to_string(temp.path("one/metrics.jsonl")).unwrap().contains("exchanged"));
}

/// Starts a rank as a launcher would.
fn rank(temp: &Temp, rank: usize, size: usize, port: u16, arguments: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ftprop"))
        .args(arguments.split_whitespace())
        .current_dir(temp.path(""))
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("FTPROP_TOKEN", "a token for tests, of no use elsewhere")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a process said, and its exit code.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn wait_until(what: &str, moment: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !moment() {
        assert!(Instant::now() < deadline, "{what} never came");
        sleep(Duration::from_millis(2));
    }
}

const LONG: &str = "train --recipe plain.toml --quiet --device cpu --threads 1 --rank-timeout 5 --set train.epochs=400 \
                    --set train.checkpoint_seconds=0.05 --out run";

#[test]
fn a_launchers_ranks_are_those_that_the_program_starts_itself() {
    let (temp, port) = (folder(), free_port());
    temp.run("train --recipe plain.toml --quiet --devices cpu,cpu --out own").ok();
    let one = "train --recipe plain.toml --quiet --device cpu --out launched";
    let ranks = [0, 1].map(|number| rank(&temp, number, 2, port, one));
    for child in ranks {
        let (code, said) = end(child);
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(bytes(&temp, "own/best.safetensors") == bytes(&temp, "launched/best.safetensors"));
}

#[test]
fn ranks_of_two_minds_are_refused() {
    let (temp, port) = (folder(), free_port());
    let first = rank(&temp, 0, 2, port, "train --recipe plain.toml --quiet --device cpu --out run");
    let second = rank(&temp, 1, 2, port, "train --recipe plain.toml --quiet --device cpu --set train.batch=64");
    for child in [first, second] {
        let (code, said) = end(child);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("rank 1 has train.batch 64, rank 0 has 50") && said.lines().count() == 1, "{said}");
    }
    assert!(!temp.path("run").exists());
}

#[test]
fn a_killed_or_hanging_rank_stops_the_others_and_the_run_goes_on_with_another_number() {
    let temp = folder();
    for (lost, signal) in [(1, libc::SIGKILL), (1, libc::SIGSTOP), (0, libc::SIGKILL)] {
        let port = free_port();
        let arguments = if temp.path("run").exists() {
            "train --resume run --quiet --device cpu --threads 1 --rank-timeout 5"
        } else {
            LONG
        };
        let before = fs::metadata(temp.path("run/checkpoint.safetensors")).and_then(|m| m.modified()).ok();
        let mut ranks: Vec<Child> = (0..3).map(|number| rank(&temp, number, 3, port, arguments)).collect();
        wait_until("a new checkpoint", || {
            fs::metadata(temp.path("run/checkpoint.safetensors")).and_then(|m| m.modified()).ok() > before
        });
        let (mut gone, began) = (ranks.remove(lost), Instant::now());
        // SAFETY: the process is this test's own child and has not been waited for.
        unsafe { libc::kill(gone.id() as i32, signal) };
        let said: Vec<String> = ranks
            .into_iter()
            .map(|child| {
                let (code, said) = end(child);
                assert_eq!(code, Some(1), "{said}");
                said
            })
            .collect();
        assert!(began.elapsed() < Duration::from_secs(9), "{:?} after {signal}", began.elapsed());
        if lost == 1 {
            assert!(said[0].contains("rank 1 (") && said[0].contains("--resume"), "{said:?}");
            assert_eq!(said[0].lines().count(), 1, "{said:?}");
        }
        gone.kill().unwrap();
        gone.wait().unwrap();
    }
    let epochs = fs::read_to_string(temp.path("run/metrics.jsonl")).map_or(0, |text| text.lines().count()) + 2;
    temp.run(&format!("train --resume run --quiet --devices cpu,cpu --epochs {epochs}")).ok();
    assert_eq!(fs::read_to_string(temp.path("run/metrics.jsonl")).unwrap().lines().count(), epochs);
}

#[test]
fn a_signal_to_any_rank_saves_once_and_the_run_ends_with_the_bytes_of_one_left_alone() {
    let temp = folder();
    let whole = "train --recipe plain.toml --quiet --device cpu --threads 1 --set train.epochs=40 --out";
    let both = |arguments: &str| {
        let port = free_port();
        [0, 1].map(|number| rank(&temp, number, 2, port, arguments))
    };
    for child in both(&format!("{whole} whole")) {
        let (code, said) = end(child);
        assert_eq!(code, Some(0), "{said}");
    }
    for signalled in [1, 0] {
        let run = format!("run-{signalled}");
        let ranks = both(&format!("{whole} {run}"));
        wait_until("an epoch", || temp.path(&format!("{run}/metrics.jsonl")).exists());
        // SAFETY: the process is this test's own child and has not been waited for.
        unsafe { libc::kill(ranks[signalled].id() as i32, libc::SIGTERM) };
        for child in ranks {
            let (code, said) = end(child);
            assert_eq!(code, Some(130), "{said}");
        }
        for child in both(&format!("train --resume {run} --quiet --device cpu --threads 1")) {
            let (code, said) = end(child);
            assert_eq!(code, Some(0), "{said}");
        }
        for file in ["best.safetensors", "checkpoint.safetensors"] {
            assert!(bytes(&temp, &format!("whole/{file}")) == bytes(&temp, &format!("{run}/{file}")), "{run} {file}");
        }
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let temp = folder();
    let small = "train --recipe plain.toml --quiet --set train.batch=2 --devices cpu,cpu,cpu --out run";
    temp.run(small).refused(1, &["train.batch = 2", "3 ranks"]);
    temp.run("train --devices gpu,cpu --out run").refused(1, &["'gpu'"]);
    // A rank that ends before it has come, here for want of a folder that the first does not need.
    let (port, arguments) = (free_port(), "train --recipe plain.toml --quiet --device cpu --out run");
    let mut alone = rank(&temp, 1, 2, port, arguments);
    sleep(Duration::from_millis(300));
    assert!(alone.try_wait().unwrap().is_none(), "it waits for rank 0");
    alone.kill().unwrap();
    alone.wait().unwrap();
    let mut without = Command::new(env!("CARGO_BIN_EXE_ftprop"));
    without.args(["train", "--quiet", "--out", "run"]).current_dir(temp.path("")).env_remove("FTPROP_TOKEN");
    let output = without.env("RANK", "0").env("WORLD_SIZE", "2").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("FTPROP_TOKEN") && said.lines().count() == 1, "{said}");
}

#[test]
fn the_bench_gives_a_row_for_each_number_of_ranks() {
    let temp = Temp::with_recipes();
    let words = "bench train --network convnet4 --batch 2 --steps 2 --devices cpu,cpu --threads 1";
    let shown = temp.run(words).ok().out;
    assert!(shown.contains("efficiency") && shown.lines().count() == 4, "{shown}");
    let report = temp.run(&format!("{words} --json")).json();
    let rows = report["rows"].as_array().unwrap();
    let column = |name: &str| rows.iter().map(|row| row[name].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!((column("ranks"), column("batch")), (vec![1.0, 2.0], vec![2.0, 4.0]));
    assert!(column("images_per_s").iter().all(|&speed| speed > 0.0) && column("efficiency")[0] == 1.0, "{report}");
    assert!(column("exchanged")[0] == 0.0 && column("exchanged")[1] > 0.0, "{report}");
    temp.run(&format!("{words} --breakdown")).refused(2, &["--breakdown", "--devices"]);
}

/// By `mpirun`, with messages over TCP and, where the program was built for it, by MPI: the same bytes as ranks that the program
/// starts itself.
#[cfg(feature = "mpi")]
#[test]
fn messages_by_mpi_give_the_bytes_of_those_over_tcp() {
    let temp = folder();
    for size in [2, 4] {
        let devices = vec!["cpu"; size].join(",");
        temp.run(&format!("train --recipe plain.toml --quiet --threads 1 --devices {devices} --out own{size}")).ok();
        for way in ["auto", "tcp"] {
            let run = format!("{way}{size}");
            let output = Command::new("mpirun")
                .args(["--allow-run-as-root", "--oversubscribe", "-n", &size.to_string(), "-x", "FTPROP_TOKEN"])
                .arg(env!("CARGO_BIN_EXE_ftprop"))
                .args("train --recipe plain.toml --quiet --device cpu --threads 1".split(' '))
                .args(["--exchange", way, "--out", &run])
                .current_dir(temp.path(""))
                .env("FTPROP_TOKEN", "a token for tests, of no use elsewhere")
                .output()
                .expect("Open MPI's mpirun");
            assert!(output.status.success(), "{run}: {}", String::from_utf8_lossy(&output.stderr));
            let (own, other) = (format!("own{size}/best.safetensors"), format!("{run}/best.safetensors"));
            assert!(bytes(&temp, &own) == bytes(&temp, &other), "{run}");
        }
    }
}
