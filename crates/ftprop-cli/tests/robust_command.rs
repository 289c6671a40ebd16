//! `robust` from the command line, and `verify` on what it writes.

mod common;

use common::Temp;
use serde_json::Value;

/// Norms, steps and signs, everything that is folded into exact numbers.
const NORMED: &str = r#"
name = "normed"
activation = "sign"
train.epochs = 4
train.batch = 32
network.layers = [
    { kind = "fc", out = 12 },
    { kind = "batch_norm" },
    { kind = "act" },
    { kind = "fc", out = 10 },
    { kind = "batch_norm" },
    { kind = "affine", scale = -0.75 },
    { kind = "act", activation = "step" },
    { kind = "dropout", p = 0.1 },
    { kind = "fc" },
]
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn exact_networks_classify_as_they_were_trained_and_answers_are_proved_again() {
    let temp = Temp::new();
    temp.write("normed.toml", NORMED);
    temp.run("train --quiet --recipe normed.toml --out run").ok();
    temp.run("export run -o run.ftp").ok();
    let accuracy = |arguments: &str| json(&temp.run(arguments).ok().out)["top1"].as_f64().unwrap();
    // A radius that changes nothing counts the right answers of the exact network.
    for (model, data) in [("run", ""), ("run.ftp", "--source digits")] {
        let robust = json(&temp.run(&format!("robust {model} {data} --radius 1e-9 --json")).ok().out);
        let right = robust["right"].as_f64().unwrap() / robust["instances"].as_array().unwrap().len() as f64;
        // In 32 bits a sum may fall on the other side of a threshold; packed, nothing may.
        let most = if model == "run" { 0.003 } else { 1e-9 };
        let trained = accuracy(&format!("eval {model} {data} --json"));
        assert!((right - trained).abs() <= most, "{model}: {right} and {trained}");
    }
    // A packed model knows what it was trained on.
    let [told, known] = ["--source digits", ""].map(|source| {
        json(&temp.run(&format!("robust run.ftp {source} --radius 1/300 --instances 1-3 --json")).ok().out)["robust"].clone()
    });
    assert_eq!(told, known);
    let report = json(&temp.run("robust run --radius 1/2 --instances 1-8,20 --json").ok().out);
    assert_eq!(report["changing"], 9);
    let report =
        json(&temp.run("robust run --radius 1/300 --instances 1-8,20 --certificate proof.json --json").ok().out);
    assert!(report["undecided"] == 0 && report["robust"].as_u64().unwrap() > 3, "{report}");
    temp.run("verify proof.json --model run").ok();
    assert_eq!(temp.run("verify proof.json").code, Some(3), "the network is on trust");
    temp.run("verify proof.json --model run.ftp --source digits").refused(1, &["another network"]);
    temp.run("verify proof.json --model run --train").refused(1, &["is another one in the data"]);
    let forged = temp.text("proof.json").replacen("\"class\":", "\"class\": ", 1).replacen("1/300", "1/200", 1);
    temp.write("forged.json", forged);
    temp.run("verify forged.json --model run").refused(1, &["checksum"]);
}

#[test]
fn inputs_and_tables_and_what_cannot_be_asked() {
    let temp = Temp::with_recipes();
    temp.write("table.csv", "0,0,a\n1,0,a\n0,1,b\n1,1,b\n0.2,0.9,b\n0.9,0.1,a\n");
    temp.write("large.csv", "0,0,a\n1e39,0,b\n");
    temp.run("solve --data table.csv --hidden 2 --save run --certificate solved.json").ok();
    // Only the second input matters, so the first may go anywhere. That only it may is said wherever it is said.
    let first = json(&temp.run("robust run --radius 0.3 --inputs 1,1 --certificate first.json --json").ok().out);
    assert_eq!((&first["robust"], &first["moving"]), (&6.into(), &"input 1 of 2".into()));
    assert!(temp.run("robust run --radius 0.3 --inputs 1").ok().out.contains("within 0.3 (input 1 of 2): 6 robust"));
    for form in ["", "--json"] {
        let said = temp.run(&format!("verify first.json --model run {form}")).ok().out;
        assert!(said.contains("6 instances keep their class within 3/10 (input 1 of 2)"), "{said}");
        assert!(said.contains("inputs can have any value, as the model's can"), "{said}");
    }
    let once = json(&temp.run("robust run --radius 0.3 --instances 1,1,2-3,3 --json").ok().out);
    assert_eq!(once["asked"], 3);
    let both = json(&temp.run("robust run --radius 2 --json").ok().out);
    assert_eq!(both["changing"], 6);
    temp.run("train --quiet --recipe thorough.toml --out conv --epochs 1").ok();
    temp.write("longer.csv", "0,0,a\n1,0,a\n0,1,b\n1,1,b\n".repeat(9));
    temp.run("train --data longer.csv --set activation=sign --quiet --out rows --epochs 1").ok();
    temp.run("export rows -o rows.ftp").ok();
    let cases = [
        (1, "robust conv --radius 0.1", &["layer 0 (conv)", "fully connected"][..]),
        (1, "robust rows.ftp --radius 0.1 --data longer.csv", &["for pictures", "give the run"]),
        (2, "robust run --radius 0", &["radius '0'"]),
        (2, "robust run --radius 1 --instances 9", &["there is no 9"]),
        (2, "robust run --radius 1 --instances 0", &["from 1 on"]),
        (2, "robust run --radius 1 --inputs 3", &["--inputs: there is no 3; there are 2"]),
        (2, "robust run --radius 1 --instances 1-9999999999999", &["there is no 9999999999999; there are 6"]),
        (2, "robust run --radius 1 --memory 0", &["1 at least"]),
        (2, "verify first.json table.csv", &["by --model"]),
        (2, "verify first.json --train", &["by --model"]),
        (2, "verify first.json --model run --classes a,b", &["--classes does not go with"]),
        (2, "verify solved.json table.csv --train", &["--train goes with a certificate of robust"]),
        (2, "verify solved.json table.csv --source csv", &["--source goes with a certificate of robust"]),
        (1, "robust run --data large.csv --radius 1", &["line 2", "`1e39` in column 1 is beyond 32-bit numbers"]),
        (1, "robust nowhere --radius 1", &["nowhere", "no such"]),
        (1, "robust run --radius 1 --certificate nowhere/proof.json", &["no folder nowhere"]),
        (2, "verify run/recipe.toml", &["give the data"]),
    ];
    for (code, arguments, words) in cases {
        temp.run(arguments).refused(code, words);
    }
}

#[test]
fn packed_tables_are_read() {
    let temp = Temp::new();
    // `printf '0,a\n1,b\n' | gzip -n`
    let packed = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0xd0, 0x49, 0xe4, 0x32, 0xd4, 0x49, 0xe2, 2, 0, 0xd9, 0xdb, 0x34,
        0xaf, 8, 0, 0, 0,
    ];
    temp.write("table.csv.gz", packed);
    temp.run("separable table.csv.gz --certificate proof.json").ok();
    temp.run("verify proof.json table.csv.gz").ok();
    let solved = temp.run("solve --data table.csv.gz --test table.csv.gz --hidden 1").ok();
    assert!(solved.out.starts_with("problem   table,"), "{}", solved.out);
}

/// A packed model of pictures is given bytes, whatever the data's values are, and with real weights too.
#[test]
fn proofs_about_packed_digits_are_about_what_the_model_is_given() {
    let temp = Temp::new();
    temp.write("mlp.toml", common::SMALL.replace("[16]", "[12, 8]"));
    temp.run("train --quiet --recipe mlp.toml --out run").ok();
    for weights in ["int8", "f32"] {
        temp.run(&format!("export run -o {weights}.ftp --weights {weights}")).ok();
        let report = temp.run(&format!("robust {weights}.ftp --radius 1e-9 --certificate p.json --json")).ok().out;
        let eval = temp.run(&format!("eval {weights}.ftp --json")).ok().out;
        let right = json(&report)["right"].as_f64().unwrap() / json(&report)["asked"].as_f64().unwrap();
        let most = if weights == "f32" { 0.003 } else { 1e-9 };
        assert!((right - json(&eval)["top1"].as_f64().unwrap()).abs() <= most, "{weights}: {right}, {eval}");
        let seen: std::collections::BTreeSet<String> = temp.json("p.json")["instances"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one["input"].as_array().unwrap())
            .map(|value| value.as_str().unwrap().to_string())
            .collect();
        // Of 17 values some are the nearest byte, as 1/16 is 16/255.
        assert!(seen.contains("16/255") && !seen.contains("1/16") && seen.len() <= 17, "{seen:?}");
        temp.run(&format!("verify p.json --model {weights}.ftp")).ok();
    }
}

/// Instances are a table's decimals, and not what 32 bits hold of them.
#[test]
fn instances_of_a_table_are_its_decimals() {
    let temp = Temp::new();
    let inputs = |file: &str| {
        let all = temp.json(file)["instances"].as_array().unwrap().clone();
        all.iter().map(|one| one["input"].as_array().unwrap().clone()).collect::<Vec<_>>()
    };
    temp.write("b.csv", "16777216,0,a\n16777217,0,b\n16777219,0.1,b\n16777215,1e-3,a\n");
    temp.run("solve --data b.csv --hidden 1 --save run").ok();
    let expected = [["16777216", "0"], ["16777217", "0"], ["16777219", "1/10"], ["16777215", "1/1000"]];
    for data in ["", "--data b.csv"] {
        temp.run(&format!("robust run {data} --radius 0.1 --certificate p.json")).ok();
        assert_eq!(inputs("p.json"), expected, "{data}");
        let output = temp.run("verify p.json --model run").ok().out;
        assert!(output.contains("4 instances are those of the data, digit for digit"), "{output}");
        temp.run("verify p.json b.csv --model run").ok();
    }
    // The same floats, but other decimals.
    temp.write("c.csv", "16777216,0,a\n16777216,0,b\n16777219,0.1,b\n16777215,1e-3,a\n");
    temp.run("verify p.json c.csv --model run").refused(1, &["instance 2 is another one in the data"]);
    // Other data are asked about as a whole.
    temp.write("d.csv", "5,0.25,a\n");
    temp.run("robust run --data d.csv --radius 0.1 --certificate d.json").ok();
    assert_eq!(inputs("d.json"), [["5", "1/4"]]);

    // Of a run that was trained: the test part, what stands for a missing value, and categories.
    let row = |i: usize| format!("{}.1,{},{}\n", i, ["x", "y"][i % 2], ["a", "b"][i / 20]);
    let rows: Vec<String> = (0..40).map(row).collect();
    temp.write("rows.csv", rows.concat().replacen("7.1,", "?,", 1));
    let train = "train --data rows.csv --set activation=sign --set data.csv.missing=mean --quiet --epochs 1 --out rows";
    temp.run(train).ok();
    for part in ["", "--train"] {
        temp.run(&format!("robust rows {part} --radius 0.01 --certificate rows.json")).ok();
        temp.run(&format!("verify rows.json --model rows {part}")).ok();
        let written: Vec<String> = (0..40).map(|i| format!("{}/10", 10 * i + 1)).collect();
        let found = inputs("rows.json");
        assert_eq!(found.len(), if part.is_empty() { 8 } else { 32 });
        let is_written = |input: &[Value]| written.iter().any(|text| *text == input[0]);
        assert!(found.iter().filter(|input| !is_written(input)).count() <= 1, "one value is missing");
        assert!(found.iter().all(|input| input[1..] == ["0", "1"] || input[1..] == ["1", "0"]), "{found:?}");
    }

    // Times are what is left of them without their origin, digit for digit.
    let row = |i: usize| format!("17000000{i}.1,{},{}\n", i % 3, ["a", "b"][i / 30]);
    temp.write("times.csv", (10..50).map(row).collect::<String>());
    temp.run("train --data times.csv --set activation=sign --quiet --epochs 1 --out times").ok();
    temp.run("robust times --radius 0.01 --certificate times.json").ok();
    temp.run("verify times.json --model times").ok();
    let left: Vec<String> = (10..50).map(|i| format!("{}/10", 10 * (i - 30) + 1)).collect();
    let found = inputs("times.json");
    assert!(found.len() == 8 && found.iter().all(|input| left.iter().any(|text| *text == input[0])), "{found:?}");
}

/// Ctrl-C leaves what is decided so far, and an exit code that says that it is not all.
#[cfg(unix)]
#[test]
fn an_interrupted_question_saves_what_is_decided() {
    let temp = Temp::new();
    // So many units that the first instances take longer than anyone waits.
    temp.write("wide.toml", common::SMALL.replace("[16]", "[400, 40]"));
    temp.run("train --quiet --recipe wide.toml --out run").ok();
    let child = temp.start("robust run --radius 0.05 --threads 1 --budget 5m --certificate proof.json --json");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let decided = report["robust"].as_u64().unwrap() + report["changing"].as_u64().unwrap();
    assert!(decided < report["asked"].as_u64().unwrap(), "there was nothing left to interrupt");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    temp.run("verify proof.json --model run").ok();
}
