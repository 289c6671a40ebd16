//! Nothing that a command reads is written over by what it writes.

mod common;

use common::Temp;

const TABLE: &str = "0,0,a\n1,0,a\n0,1,b\n1,1,b\n0.2,0.9,b\n0.9,0.1,a\n";

#[cfg(unix)]
#[test]
fn inputs_are_not_written_over() {
    let temp = Temp::new();
    temp.write("t.csv", TABLE);
    temp.write("test.csv", TABLE);
    temp.mnist("mnist", 40, 20);
    temp.run("solve --data t.csv --hidden 1 --save run --certificate c.json").ok();
    temp.run("export run -o m.onnx").ok();
    temp.run(
        "train --data t.csv --set activation=sign --set data.csv.test_file=test.csv --quiet --epochs 1 --out rows",
    )
    .ok();
    std::fs::copy(temp.path("run/best.safetensors"), temp.path("copy.safetensors")).unwrap();
    std::os::unix::fs::symlink("t.csv", temp.path("link.json")).unwrap();
    std::os::unix::fs::symlink("../t.csv", temp.path("mnist/link.csv")).unwrap();
    let names =
        ["t.csv", "test.csv", "copy.safetensors", "mnist/train-images-idx3-ubyte", "mnist/t10k-labels-idx1-ubyte"];
    let before = names.map(|name| temp.read(name));
    let mnist = "mnist/train-images-idx3-ubyte";
    for (command, name) in [
        ("separable t.csv --certificate t.csv", "t.csv"),
        ("separable mnist/link.csv --certificate t.csv", "t.csv"),
        ("solve --data t.csv --certificate t.csv", "t.csv"),
        ("solve --data t.csv --certificate ./mnist/../t.csv", "t.csv"),
        ("solve --data t.csv --certificate link.json", "link.json"),
        ("solve --data link.json --certificate t.csv", "t.csv"),
        ("solve --data t.csv --test test.csv --certificate test.csv", "test.csv"),
        (&format!("solve --data mnist:2 --data-path mnist --certificate {mnist}"), mnist),
        ("robust run --radius 0.1 --data t.csv --certificate t.csv", "t.csv"),
        ("robust rows --radius 0.1 --certificate t.csv", "t.csv"),
        ("robust rows/best.safetensors --radius 0.1 --certificate test.csv", "test.csv"),
        ("robust copy.safetensors --radius 0.1 --certificate copy.safetensors", "copy.safetensors"),
        ("export copy.safetensors -o copy.safetensors", "copy.safetensors"),
        ("export rows --format packed -o t.csv", "t.csv"),
        ("eval run --data t.csv --save t.csv", "t.csv"),
        ("eval rows --save test.csv", "test.csv"),
    ] {
        temp.run(command).refused(1, &[name, "read here"]);
        assert!(names.map(|name| temp.read(name)) == before, "{command}");
    }
    // To go on with one certificate is what it is for, and a result among the data may be made anew.
    temp.run("solve --data t.csv --hidden 1 --certificate c.json --resume c.json").ok();
    for _ in 0..2 {
        temp.run("solve --data mnist:2 --data-path mnist --hidden 1 --budget 2s --certificate mnist/c.json").ok();
    }
}

#[test]
fn results_do_not_write_over_each_other() {
    let temp = Temp::new();
    temp.write("runs/x/notes.txt", "");
    let solve = "solve --data xor --hidden 2";
    temp.run(&format!("{solve} --plot p --certificate p.svg")).refused(2, &["p.svg", "another name"]);
    temp.run(&format!("{solve} --save runs/x --certificate runs/x/points.csv"))
        .refused(1, &["points.csv", "run itself"]);
    temp.run(&format!("{solve} --save runs/x --certificate runs/x/proof.json")).ok();
    temp.run("verify runs/x/proof.json xor").ok();
    temp.run("eval runs/x").ok();
}
