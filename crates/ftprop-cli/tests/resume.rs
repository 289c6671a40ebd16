//! A run that was ended at any moment and resumed comes to the same bytes as one left alone.
#![cfg(unix)]

mod common;

use common::*;
use ftprop_tensor::random::Stream;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// The first argument makes the run, the second goes on with it.
const TRAIN: &str = "train --recipe thorough.toml --quiet --set train.checkpoint_seconds=0.02 --out run";
const RESUME: &str = "train --resume run --quiet";

/// A folder with the run that nothing disturbed, as `whole`, and how long it took.
fn with_whole_run() -> (Temp, Duration) {
    let (temp, started) = (Temp::with_recipes(), Instant::now());
    temp.run("train --recipe thorough.toml --quiet --out whole").ok();
    (temp, started.elapsed())
}

/// Starts the run, or goes on with it if it got as far as being one.
fn start(temp: &Temp) -> Child {
    let begun = temp.path("run/recipe.toml").exists();
    temp.start(if begun { RESUME } else { TRAIN })
}

/// Kills the process, as `kill -9` does, once something is so; tells whether it was still at work.
fn kill_when(mut child: Child, moment: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let outcome = child.wait_with_output().unwrap();
            assert!(matches!(status.code(), Some(0 | 130)), "{}", String::from_utf8_lossy(&outcome.stderr));
            return false;
        }
        if moment() {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        assert!(Instant::now() < deadline, "the moment never came");
        sleep(Duration::from_micros(200));
    }
}

fn wait_until(moment: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !moment() {
        assert!(Instant::now() < deadline, "the moment never came");
        sleep(Duration::from_millis(1));
    }
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|&&b| b == b'\n').count())
}

/// How long the whole run took says little about the next one where the machine is shared, so a run that came to its
/// end before it was killed is compared and begun again, with shorter waits; in the end every kill comes in time.
#[test]
fn killed_at_random_moments() {
    let (temp, whole) = with_whole_run();
    let random = Stream::numbered(2018);
    let (mut longest, mut kills) = (whole.mul_f32(0.4), 0);
    for draw in 0.. {
        let (started, wait) = (Instant::now(), longest.mul_f32(random.uniform(draw)));
        if kill_when(start(&temp), || started.elapsed() >= wait) {
            kills += 1;
        } else {
            temp.assert_same_result("run", "whole");
            fs::remove_dir_all(temp.path("run")).unwrap();
            longest /= 2;
        }
        if kills == 8 {
            break;
        }
    }
    let last = if temp.path("run/recipe.toml").exists() { RESUME } else { TRAIN };
    temp.run(last).ok();
    temp.assert_same_result("run", "whole");
}

#[test]
fn killed_within_epochs_and_while_files_are_written() {
    let (temp, _) = with_whole_run();
    let (run, checkpoint) = (temp.path("run"), temp.path("run/checkpoint.safetensors"));
    let unfinished = || {
        let names = fs::read_dir(&run).into_iter().flatten().flatten().map(|entry| entry.path());
        names.filter(|path| path.extension().is_some_and(|e| e == "part")).collect::<Vec<_>>()
    };
    // Within the first epoch, before there is any checkpoint.
    assert!(kill_when(start(&temp), || run.join("recipe.toml").exists()));
    assert!(kill_when(start(&temp), || checkpoint.exists()));
    // While a checkpoint is written, which a fast disk may hide.
    for _ in 0..4 {
        kill_when(start(&temp), || !unfinished().is_empty());
    }
    // When an epoch has just been recorded, but perhaps not saved.
    for epochs in 1..=6 {
        kill_when(start(&temp), || lines(&run.join("metrics.jsonl")) >= epochs);
    }
    // What lies there for a while is nobody's any more.
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    unfinished()
        .iter()
        .for_each(|path| fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap());
    temp.run(RESUME).ok();
    temp.assert_same_result("run", "whole");
    assert_eq!(unfinished(), [] as [std::path::PathBuf; 0], "nothing half written is left");
    assert_eq!(temp.json("run/summary.json")["epochs"], 6);
}

#[test]
fn what_a_killed_process_can_leave_behind_does_no_harm() {
    let (temp, _) = with_whole_run();
    temp.run(&TRAIN.replace("--out", "--epochs 2 --out")).ok();
    // An epoch that was recorded but not saved, then half a line; and files that were never renamed.
    let metrics = temp.text("run/metrics.jsonl");
    let last = metrics.lines().last().unwrap().replace("\"epoch\":2", "\"epoch\":3");
    temp.write("run/metrics.jsonl", format!("{metrics}{last}\n{}", &last[..last.len() / 2]));
    let leftover = fs::File::create(temp.write("run/.ftprop-abcdef.part", "half of someth")).unwrap();
    leftover.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    // The half line does not keep others from looking at the run either.
    temp.run("plot run").ok();
    temp.run("eval run --split validation").ok();
    let finished = temp.run("train --resume run --quiet --epochs 4").ok();
    assert!(finished.out.contains("after 4 epochs"), "{finished:?}");
    assert_eq!(temp.timeless_metrics("run").len(), 4);
    assert!(temp.snapshot("run").iter().all(|(name, _)| !name.ends_with(".part")));
}

#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let (temp, _) = with_whole_run();
    let checkpoint = temp.path("run/checkpoint.safetensors");
    let child = start(&temp);
    wait_until(|| checkpoint.exists());
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("Ctrl-C again"), "{said}");
    assert!(said.contains("go on with: ftprop train --resume run\n"), "{said}");
    assert!(!temp.path("run/summary.json").exists());
    temp.run(RESUME).ok();
    temp.assert_same_result("run", "whole");
}

/// An epoch of one step has no moment within it, but ends all the same.
#[test]
fn ctrl_c_ends_a_run_whose_epochs_are_one_step() {
    let temp = Temp::with_recipes();
    let child = temp.start("train --recipe small.toml --quiet --set train.batch=1438 --epochs 1000000 --out run");
    wait_until(|| lines(&temp.path("run/metrics.jsonl")) >= 2);
    interrupt(&child);
    let asked = Instant::now();
    assert!(!kill_when(child, || asked.elapsed() > Duration::from_secs(5)), "it went on for seconds");
    assert!(!temp.path("run/summary.json").exists());
}

fn interrupt(child: &Child) {
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap().success());
}

#[test]
fn a_finished_run_can_be_extended() {
    let temp = Temp::with_recipes();
    let train = "train --recipe thorough.toml --quiet --set schedule.kind=constant";
    temp.run(&format!("{train} --epochs 3 --out whole")).ok();
    temp.run(&format!("{train} --epochs 1 --out run")).ok();
    let first = temp.timeless_metrics("run");
    assert_eq!(first.len(), 1);
    temp.run("train --resume run --quiet --epochs 3").ok();
    assert_eq!(temp.timeless_metrics("run"), temp.timeless_metrics("whole"));
    assert_eq!(temp.read("run/checkpoint.safetensors"), temp.read("whole/checkpoint.safetensors"));
    assert!(temp.text("run/recipe.toml").contains("epochs = 3"));
    assert_eq!(temp.json("run/summary.json")["epochs"], 3);
    // Resuming what is finished changes nothing and shows the result again; fewer epochs than there are is no run.
    let before = temp.snapshot("run");
    temp.run("train --resume run --quiet --epochs 2").refused(2, &["--epochs 2", "3 epochs"]);
    let again = temp.run("train --resume run --quiet").ok();
    assert!(again.out.contains("after 3 epochs"), "{again:?}");
    assert!(temp.snapshot("run") == before);
}

#[test]
fn two_processes_do_not_train_in_one_folder() {
    let temp = Temp::with_recipes();
    let mut first = temp.start("train --recipe thorough.toml --quiet --epochs 100000 --out run");
    wait_until(|| lines(&temp.path("run/metrics.jsonl")) > 0);
    temp.run(RESUME).refused(1, &["run", "another process", "--resume"]);
    first.kill().unwrap();
    first.wait().unwrap();
    // What is left of a killed process does not lock anyone out.
    temp.run("train --resume run --quiet --epochs 1").ok();
}

/// Settings that nothing is trained with are not written down as if something had been.
#[test]
fn a_finished_run_stays_as_it_is() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    let files = || fs::read_dir(temp.path("run")).unwrap().count();
    let (before, count) = (temp.snapshot("run"), files());
    for settings in ["--set optimizer.lr=0.5", "--epochs 2 --set weighted=false", "--diagnostics", "--threads 1", ""] {
        let said = temp.run(&format!("train --resume run {settings}")).ok();
        assert!(said.err.contains("run has all of its 2 epochs"), "{said:?}");
        assert_eq!(said.err.contains("no setting was changed"), settings.contains("--set"), "{said:?}");
        assert!(said.out.contains("test accuracy") && !said.err.contains("from here on"), "{said:?}");
        assert!(temp.snapshot("run") == before && files() == count, "{settings}");
    }
    // With an epoch more it counts, and is recorded.
    let said = temp.run("train --resume run --epochs 3 --set optimizer.lr=1e-4").ok();
    assert!(said.err.contains("from here on optimizer.lr"), "{said:?}");
    assert_eq!(temp.text("run/changes.jsonl").lines().count(), 1);
    // A result that a killed run did not come to write is written.
    fs::remove_file(temp.path("run/summary.json")).unwrap();
    temp.run("train --resume run --quiet").ok();
    assert_eq!(temp.json("run/summary.json")["epochs"], 3);
    // One that lost its patience is over, too.
    let train = "train --recipe small.toml --quiet --epochs 9 --set data.validation=0.1 --set train.patience=1";
    temp.run(&format!("{train} --set optimizer.lr=1e-9 --out impatient")).ok();
    let before = temp.snapshot("impatient");
    let said = temp.run("train --resume impatient --set optimizer.lr=0.01").ok();
    assert!(said.err.contains("ended after 2 epochs by train.patience; nothing is trained"), "{said:?}");
    assert!(temp.snapshot("impatient") == before);
}
