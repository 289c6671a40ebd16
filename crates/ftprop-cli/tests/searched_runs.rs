//! What `solve --save` leaves behind, and that other commands can use it.

mod common;

use common::Temp;

/// Ten rows that a line divides, with these two labels.
fn table(first: &str, second: &str) -> String {
    let row = |i: usize| format!("{}.5,{}.25,{}\n", i, (3 * i) % 7, if i < 5 { first } else { second });
    (0..10).map(row).collect()
}

#[test]
fn labels_of_every_spelling_are_saved_and_used() {
    let temp = Temp::new();
    // Numbers by value, whatever text they are: a table that is read by itself has them by their text, or in another
    // spelling, and refuses the last pair.
    let pairs =
        [("-1.000000", "1.000000"), ("+1", "-1"), ("1.0", "2.0"), ("9.5", "10.5"), ("1e20", "2e19"), ("a", "b,c")];
    for (number, (first, second)) in pairs.into_iter().enumerate() {
        let (quoted, run) = (format!("\"{second}\""), format!("run{number}"));
        temp.write("x.csv", table(first, if second.contains(',') { &quoted } else { second }));
        temp.run(&format!("solve --data x.csv --hidden 1 --save {run} --certificate {run}.json")).ok();
        let eval = temp.run(&format!("eval {run} --json")).json();
        assert_eq!((&eval["top1"], &eval["examples"]), (&1.0.into(), &10.into()), "{first} {second}: {eval}");
        let robust = temp.run(&format!("robust {run} --radius 0.001 --certificate near.json --json")).json();
        assert_eq!((&robust["right"], &robust["robust"]), (&10.into(), &10.into()), "{first} {second}: {robust}");
        temp.run(&format!("verify near.json --model {run}")).ok();
        // The copy is the data, digit for digit, and its classes are those of the search.
        temp.run(&format!("verify {run}.json {run}/points.csv")).ok();
        let predicted = temp.run(&format!("predict {run} x.csv --format csv")).ok().out;
        assert_eq!(predicted.matches(&format!(",{first},")).count(), 5, "{predicted}");
    }
}

#[test]
fn advice_about_a_searched_run_can_be_followed() {
    let temp = Temp::new();
    temp.write("x.csv", table("a", "b"));
    temp.run("solve --data x.csv --hidden 1 --save run").ok();
    let again = temp.run("solve --data x.csv --hidden 1 --save run --certificate c.json");
    again.refused(1, &["run already holds a run; choose another folder", "--certificate and --resume"]);
    assert!(!again.err.contains("train"), "{again:?}");
    temp.run("solve --data x.csv --hidden 1 --certificate c.json").ok();
    temp.run("solve --data x.csv --hidden 1 --certificate c.json --resume c.json --save other").ok();
    // Nor does training go on with it; its network can be what another run begins with.
    let train =
        "train --data x.csv --set network.preset=mlp --set network.widths=[1] --set activation=sign --quiet --epochs 1";
    let refused = temp.run(&format!("{train} --out run"));
    refused.refused(1, &["run already holds a run; choose another folder", "--init-from run"]);
    assert!(!refused.err.contains("--resume"), "{refused:?}");
    temp.run(&format!("{train} --out new --init-from run")).ok();
}

/// Proved on the decimals, and not what 32 bits hold of them: that is said.
#[test]
fn a_saved_network_that_answers_otherwise_is_announced() {
    let temp = Temp::new();
    temp.write("x.csv", "9007199254740992,a\n9007199254740993,b\n");
    let solved = temp.run("solve --data x.csv --hidden 1 --save run").ok();
    assert!(
        solved.out.contains("100.00 %") && solved.err.contains("answers 1 training instance differently"),
        "{solved:?}"
    );
    assert_eq!(temp.run("eval run --json").json()["top1"], 0.5);
    temp.write("y.csv", table("a", "b"));
    assert!(!temp.run("solve --data y.csv --hidden 1 --save other").ok().err.contains("differently"));
}

#[test]
fn what_cannot_be_saved_is_said_before_the_search_and_leaves_nothing() {
    let temp = Temp::new();
    temp.write("large.csv", "0,1e300,a\n1,1,b\n2,2,a\n");
    temp.run("solve --data large.csv --save run").refused(1, &["row 1, column 2", "32-bit", "scale"]);
    temp.write("x.csv", table("a", "b"));
    temp.write("mine/points.csv", "not a run's\n");
    temp.run("solve --data x.csv --save mine").refused(1, &["mine/points.csv", "choose another folder"]);
    temp.run("solve --data x.csv --save x.csv").refused(1, &["x.csv", "a folder was expected"]);
    temp.run("solve --data x.csv --save x.csv/run").refused(1, &["x.csv/run", "a folder was expected"]);
    assert!(!temp.path("run").exists());
    assert_eq!(temp.snapshot("mine").len(), 1);
}

/// Where saving fails after all, what was written before is taken back.
#[cfg(unix)]
#[test]
fn a_run_that_cannot_be_written_leaves_no_half_of_it() {
    let temp = Temp::new();
    temp.write("x.csv", table("a", "b"));
    // The table fits in a file of so many blocks, the network of a thousand units does not.
    let solve =
        format!("ulimit -f 8; exec {} solve --data x.csv --hidden 1000 --save run", env!("CARGO_BIN_EXE_ftprop"));
    let output = std::process::Command::new("sh").current_dir(temp.path("")).args(["-c", &solve]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("larger than files may become"), "{said}");
    assert!(!temp.path("run").exists(), "{said}");
}
