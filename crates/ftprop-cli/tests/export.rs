//! `ftprop export` and `ftprop import`, and packed models in the other commands.

mod common;

use common::Temp;
use std::fs;

/// A network with all that an exporter meets, trained: norms, groups, a residual block, pools, dropout, two hard
/// activations, one overridden in place.
fn thorough() -> Temp {
    let temp = Temp::with_recipes();
    temp.run("train --recipe thorough.toml --out run --quiet").ok();
    temp
}

fn accuracy(temp: &Temp, arguments: &str) -> f64 {
    temp.run(&format!("eval {arguments} --json")).json()["top1"].as_f64().unwrap()
}

#[test]
fn a_packed_model_is_small_and_as_good() {
    let temp = Temp::new();
    temp.run("train --epochs 6 --out run --quiet").ok();
    let float = accuracy(&temp, "run");
    let mut sizes = Vec::new();
    // One of the 359 images is 0.28 points. Their values of 0 to 16 are rounded to bytes on the way in, which a network
    // of six epochs may feel whatever its weights are; without that, see the next test.
    for (weights, most, least) in [("int8", 0.01, 0.985), ("int4", 0.03, 0.96), ("f32", 0.01, 0.985)] {
        let report = temp.run(&format!("export run -o {weights}.ftp --weights {weights} --check --json")).json();
        let check = &report["check"];
        assert_eq!(check["examples"], 359);
        assert_eq!(check["float_top1"].as_f64().unwrap(), float, "{report}");
        let packed = accuracy(&temp, &format!("{weights}.ftp --source digits"));
        assert_eq!(check["packed_top1"].as_f64().unwrap(), packed, "{report}");
        assert!((packed - float).abs() <= most, "{weights}: {packed} for {float}");
        assert!(check["agreement"].as_f64().unwrap() >= least, "{report}");
        sizes.push(fs::metadata(temp.path(&format!("{weights}.ftp"))).unwrap().len() as f64);
    }
    temp.run("export run -o run.safetensors --format torch").ok();
    let whole = temp.read("run.safetensors").len() as f64;
    assert!(sizes[0] < 0.27 * whole && sizes[1] < 0.14 * whole, "{sizes:?} of {whole}");
}

/// Bytes go in as they are, so nothing but the order of float sums is different.
#[test]
fn with_float_weights_nothing_changes_in_any_layer() {
    let temp = Temp::with_recipes();
    temp.mnist("mnist", 200, 100);
    let same = "--set data.pad=0 --set data.flip=false --set data.random_crop=false";
    temp.run(&format!("train --recipe thorough.toml --set data.source=mnist --data mnist {same} --out run --quiet"))
        .ok();
    let check = temp.run("export run -o run.ftp --weights f32 --check --json").json()["check"].clone();
    assert!(check["agreement"].as_f64().unwrap() >= 0.99, "{check}");
    let said = temp.run("export run -o last.ftp --checkpoint last --check mnist").ok().out;
    assert!(said.contains("same top-1 on") && said.contains("last.ftp"), "{said}");
}

#[test]
fn a_packed_model_predicts_what_the_network_does() {
    let temp = Temp::new();
    temp.photos("photos");
    let recipe = "name = \"photos\"\ndata.source = \"folder\"\ndata.path = \"photos\"\ndata.resize = 10\ndata.crop = 8\n\
        network.preset = \"mlp\"\nnetwork.widths = [32]\ntrain.epochs = 5\ntrain.batch = 8\n";
    temp.write("photos.toml", recipe);
    temp.run("train --recipe photos.toml --out run --quiet").ok();
    temp.run("export run -o photos.ftp").ok();
    let images = "photos/val/dark/0.png photos/val/bright/0.png photos/val/bright/3.png";
    let float = temp.run(&format!("predict run {images} --json")).json();
    let packed = temp.run(&format!("predict photos.ftp {images} --json")).json();
    for i in 0..3 {
        assert_eq!(float[i]["classes"][0]["class"], packed[i]["classes"][0]["class"], "{float} {packed}");
        let confidence = |all: &serde_json::Value| all[i]["classes"][0]["confidence"].as_f64().unwrap();
        assert!((confidence(&float) - confidence(&packed)).abs() < 0.1, "{float} {packed}");
    }
    assert_eq!(accuracy(&temp, "run"), accuracy(&temp, "photos.ftp --source folder --data photos"));
}

#[test]
fn a_damaged_packed_model_is_refused_in_one_line() {
    let temp = thorough();
    temp.run("export run -o whole.ftp").ok();
    let whole = temp.read("whole.ftp");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    temp.write("changed.ftp", changed);
    temp.write("short.ftp", &whole[..whole.len() / 2]);
    temp.write("empty.ftp", "");
    temp.write("text.ftp", "this is not a model");
    for name in ["changed", "short", "empty", "text"] {
        let words = [&format!("{name}.ftp")[..]];
        temp.run(&format!("eval {name}.ftp --source digits")).refused(1, &words);
        temp.run(&format!("predict {name}.ftp any.png")).refused(1, &words);
    }
    temp.run("eval missing.ftp --source digits").refused(1, &["missing.ftp", "no such file"]);
}

/// Test-time augmentation is said wherever a figure has it, in float and packed.
#[test]
fn views_are_named_with_the_figures() {
    let temp = Temp::new();
    temp.run("train --epochs 2 --out run --quiet").ok();
    temp.run("export run -o run.ftp").ok();
    for model in ["run", "run.ftp"] {
        let (plain, shifted) = (accuracy(&temp, model), temp.run(&format!("eval {model} --tta shift --json")).json());
        assert_eq!(shifted["tta"], "shift");
        assert!(plain > 0.8 && shifted["top1"].as_f64().unwrap() > 0.5, "{plain} {shifted}");
        let said = temp.run(&format!("eval {model} --tta flip,shift")).ok().out;
        assert!(said.contains("test-time augmentation flip,shift"), "{said}");
    }
    temp.photos("photos");
    let images = "photos/val/dark/0.png photos/val/bright/0.png";
    let train =
        "train --data photos --set network.preset=mlp --set network.widths=[8] --set data.resize=10 --set data.crop=8";
    temp.run(&format!("{train} --epochs 2 --quiet --out photo")).ok();
    assert_eq!(temp.run(&format!("predict photo {images} --tta flip --json")).json()[1]["tta"], "flip");
    assert!(temp.run(&format!("predict photo {images} --tta flip")).ok().out.contains("(mean over flip)"));
    assert!(temp.run(&format!("predict photo {images} --tta flip --format csv")).ok().out.contains(",tta,error\n"));
    temp.run("eval run --tta turn").refused(2, &["turn", "flip", "shift"]);
    temp.write("two.csv", "0,1,a\n1,0,b\n1,1,a\n0,0,b\n".repeat(9));
    temp.run("train --data two.csv --epochs 1 --quiet --out table").ok();
    temp.run("eval table --tta flip").refused(2, &["--tta", "pictures"]);
    temp.run("predict table two.csv --tta flip").refused(2, &["--tta", "pictures"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let temp = thorough();
    temp.run("export run -o model.ftp").ok();
    assert_eq!(temp.run("eval model.ftp --json").json()["split"], "test");
    temp.run("eval run --source digits").refused(2, &["--source"]);
    temp.run("eval model.ftp --source csv --data thorough.toml").refused(1, &[]);
    temp.run("export run -o model.onnx --format onnx --check").refused(2, &["--check", "packed"]);
    temp.run("export run -o model.onnx --format onnx --weights int4").refused(2, &["--weights", "packed"]);
    temp.run("export run -o no/such/folder/model.ftp").refused(1, &["no/such/folder"]);
    temp.run("export nowhere -o model.ftp").refused(1, &["nowhere"]);
    assert!(!temp.path("model.onnx").exists());
}

#[test]
fn a_table_goes_to_onnx_and_is_packed() {
    let temp = Temp::new();
    let rows: String =
        (0..40).map(|i| format!("{},{},{}\n", i % 7, i % 5, if i % 7 > 3 { "a" } else { "b" })).collect();
    temp.write("table.csv", rows);
    let recipe = "name = \"table\"\ndata.source = \"csv\"\ndata.path = \"table.csv\"\ndata.csv.header = false\n\
        network.preset = \"mlp\"\nnetwork.widths = [4]\ntrain.epochs = 1\ntrain.batch = 8\n";
    temp.write("table.toml", recipe);
    temp.run("train --recipe table.toml --out run --quiet").ok();
    temp.run("export run -o table.ftp").ok();
    assert_eq!(temp.read("table.ftp")[8], 3, "real numbers take version 3");
    temp.run("export table.ftp -o exact.onnx").ok();
    // It takes rows, which it makes pixels of itself, and says what its numbers are.
    let holds = |file: &str, text: &str| temp.read(file).windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(holds("exact.onnx", "pixel_2") && holds("exact.onnx", "\"columns\":[{"));
    for file in ["table.pt", "table.tflite", "table", "table.ftp.bak"] {
        temp.run(&format!("export run -o {file}")).refused(2, &[file, ".ftp", ".onnx", ".safetensors", "--format"]);
        assert!(!temp.path(file).exists());
    }
    temp.run("export run -o table.onnx --format onnx").ok();
    assert!(holds("table.onnx", "\"columns\":[{"));
    // The ending says it as well.
    let onnx = temp.read("table.onnx");
    temp.run("export run -o same.onnx").ok();
    temp.run("export run -o table.safetensors").ok();
    assert!(temp.read("same.onnx") == onnx && temp.read("table.safetensors") != onnx);
}

#[test]
fn weights_go_to_pytorch_and_back_unchanged() {
    let temp = thorough();
    temp.run("export run -o there.safetensors --format torch").ok();
    temp.run("import there.safetensors --recipe thorough.toml --out back").ok();
    temp.run("export back -o again.safetensors --format torch").ok();
    assert!(temp.read("there.safetensors") == temp.read("again.safetensors"), "the round trip changed the file");
    assert_eq!(accuracy(&temp, "run"), accuracy(&temp, "back"));
    // Training goes on from the imported weights.
    temp.run("train --resume back --epochs 1 --quiet").ok();
    assert!(accuracy(&temp, "back --split train") > 0.5);
}

#[test]
fn weights_of_another_network_are_not_imported() {
    let temp = thorough();
    temp.run("train --recipe small.toml --out small --quiet").ok();
    temp.run("export small -o small.safetensors --format torch").ok();
    temp.run("import small.safetensors --recipe thorough.toml --out back")
        .refused(1, &["small.safetensors", "it has no"]);
    let wider = "import small.safetensors --recipe small.toml --set network.widths=[17] --out back";
    temp.run(wider).refused(1, &["1.weight", "[16, 64]", "[17, 64]"]);
    temp.run("import small.toml --recipe small.toml --out back").refused(1, &["not a safetensors file"]);
    assert!(!temp.path("back").exists());
    temp.run("import small.safetensors --recipe small.toml --out small").refused(1, &["already holds a run"]);
}

#[test]
fn an_onnx_file_is_the_same_every_time_and_holds_every_weight() {
    let temp = thorough();
    temp.run("export run -o a.onnx --format onnx").ok();
    temp.run("export run -o b.onnx --format onnx").ok();
    let file = temp.read("a.onnx");
    assert!(file == temp.read("b.onnx"));
    let has = |word: &str| file.windows(word.len()).any(|w| w == word.as_bytes());
    for word in ["Conv", "BatchNormalization", "MaxPool", "Gemm", "Greater", "Where", "Ceil", "Clip", "Add", "Flatten"]
    {
        assert!(has(word), "{word}");
    }
    assert!(!has("Dropout"));
    let torch = temp.run("export run -o a.safetensors --format torch --json").json()["bytes"].as_u64().unwrap();
    assert!(file.len() as u64 > torch * 9 / 10, "{} bytes for weights of {torch}", file.len());
}

/// What a protobuf message holds: each field's number, and its bytes where it has a length.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("the message ends inside a number");
            *bytes = rest;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = number(&mut message);
        let length = match key & 7 {
            0 => {
                number(&mut message);
                0
            }
            2 => number(&mut message) as usize,
            5 => 4,
            other => panic!("a field of wire type {other}"),
        };
        let (content, rest) = message.split_at(length);
        fields.push((key >> 3, content));
        message = rest;
    }
    fields
}

struct OnnxNode {
    kind: String,
    inputs: Vec<String>,
}

/// The nodes of an ONNX file and its constants' bytes by name, after checking that nodes only use what stands before
/// them, that no name is made twice, and that the graph ends in `logits`.
fn onnx_graph(file: &[u8]) -> (Vec<OnnxNode>, std::collections::HashMap<String, Vec<u8>>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let of = |fields: &[(u64, &[u8])], which: u64| -> Vec<String> {
        fields.iter().filter(|(field, _)| *field == which).map(|(_, bytes)| text(bytes)).collect()
    };
    let graph = fields(file).into_iter().find(|(field, _)| *field == 7).expect("a graph").1;
    let graph = fields(graph);
    let mut constants = std::collections::HashMap::new();
    for (_, tensor) in graph.iter().filter(|(field, _)| *field == 5) {
        let tensor = fields(tensor);
        let raw = tensor.iter().find(|(field, _)| *field == 9).expect("a tensor has bytes").1.to_vec();
        assert!(constants.insert(of(&tensor, 8).remove(0), raw).is_none(), "two constants have one name");
    }
    let mut known: std::collections::HashSet<String> = constants.keys().cloned().collect();
    known.insert("input".into());
    let mut nodes = Vec::new();
    for (_, node) in graph.iter().filter(|(field, _)| *field == 1) {
        let node = fields(node);
        let (inputs, kind) = (of(&node, 1), of(&node, 4).remove(0));
        for input in &inputs {
            assert!(known.contains(input), "{kind} takes {input}, which nothing before it makes");
        }
        assert!(known.insert(of(&node, 2).remove(0)), "two nodes make one value");
        nodes.push(OnnxNode { kind, inputs });
    }
    assert!(known.contains("logits"));
    (nodes, constants)
}

/// ONNX Runtime itself is asked by `benches/check_onnx.py`, which CI runs.
#[test]
fn the_onnx_of_a_packed_model_is_all_integers_up_to_the_logits() {
    let temp = Temp::new();
    temp.run("train --epochs 1 --out run --quiet").ok();
    temp.run("export run -o run.ftp").ok();
    temp.run("export run.ftp -o run.onnx --format onnx").ok();
    temp.run("export run.ftp -o again.onnx --format onnx").ok();
    let file = temp.read("run.onnx");
    assert!(file == temp.read("again.onnx"));
    let (nodes, constants) = onnx_graph(&file);
    let count = |kind: &str| nodes.iter().filter(|node| node.kind == kind).count();
    // The layer on the image is two convolutions; every other one is one. Norms have become thresholds.
    assert_eq!((count("Conv"), count("Cast"), count("BatchNormalization")), (5, 2, 0));
    assert_eq!((count("Greater"), count("Where"), count("MaxPool")), (3, 3, 1));
    let floats = |name: &str| -> Vec<f32> {
        constants[name].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    for node in nodes.iter().filter(|node| node.kind == "Conv") {
        let weights = floats(&node.inputs[1]);
        assert!(weights.iter().all(|w| w.fract() == 0.0 && w.abs() <= 128.0), "{}", node.inputs[1]);
        assert!(weights.iter().any(|&w| w != 0.0));
    }
    for node in nodes.iter().filter(|node| node.kind == "Greater").skip(1) {
        assert!(floats(&node.inputs[1]).iter().all(|t| t.fract() == 0.0), "{}", node.inputs[1]);
    }
}

#[test]
fn whatever_can_be_packed_goes_on_to_onnx() {
    let temp = thorough();
    for weights in ["int8", "int4", "f32"] {
        temp.run(&format!("export run -o run.ftp --weights {weights}")).ok();
        temp.run("export run.ftp -o run.onnx --format onnx").ok();
        let (nodes, _) = onnx_graph(&temp.read("run.onnx"));
        for kind in ["Conv", "Greater", "Where", "Add", "MaxPool"] {
            assert!(nodes.iter().any(|node| node.kind == kind), "{weights}: {kind}");
        }
    }
    temp.run("export run.ftp -o run.safetensors --format torch").refused(2, &["onnx"]);
    temp.run("export run.ftp -o other.ftp").refused(2, &["onnx"]);
    temp.write("text.ftp", "this is not a model");
    temp.run("export text.ftp -o text.onnx --format onnx").refused(1, &["text.ftp"]);
    assert!(!temp.path("text.onnx").exists());
}

#[test]
fn help_shows_how() {
    let temp = Temp::new();
    let export = temp.run("export --help").ok().out;
    assert!(export.contains("Examples:") && export.contains("ftprop export runs/digits -o digits.ftp"), "{export}");
    assert!(temp.run("import --help").ok().out.contains("ftprop import c8.safetensors"));
}

#[test]
fn eval_saves_what_went_in_and_came_out() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --out run --quiet").ok();
    let top1 = accuracy(&temp, "run --save record.safetensors");
    let file = temp.read("record.safetensors");
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("images").unwrap().shape(), [359, 8, 8, 1]);
    let logits = tensors.tensor("logits").unwrap();
    assert_eq!(logits.shape(), [359, 10]);
    let logits: Vec<f32> = logits.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let labels = tensors.tensor("labels").unwrap();
    let labels = labels.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as usize);
    let right = logits.chunks_exact(10).zip(labels).filter(|(z, label)| z.iter().all(|v| *v <= z[*label])).count();
    assert_eq!(right as f64 / 359.0, top1);
}

#[test]
fn bench_takes_a_packed_model_and_a_run() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --out run --quiet").ok();
    temp.run("export run -o model.ftp").ok();
    for model in ["model.ftp", "run"] {
        let report =
            temp.run(&format!("bench infer {model} --batch 3 --threads 1 --steps 5 --breakdown --json")).json();
        assert_eq!((&report["what"], &report["batch"]), (&"infer".into(), &3.into()), "{report}");
        assert_eq!((&report["threads"], &report["steps"]), (&1.into(), &5.into()), "{report}");
        assert!(report["images_per_s"].as_f64().unwrap() > 0.0 && report["gflops"].as_f64().unwrap() > 0.0);
        assert!(report["breakdown"].as_array().is_some_and(|parts| parts.len() > 1), "{report}");
    }
    assert!(temp.run("bench infer model.ftp --steps 2").ok().out.contains("images/s"));
    temp.run("bench infer model.ftp --network convnet4").refused(2, &["--network"]);
    temp.run("bench infer model.ftp --batch 0").refused(2, &["--batch"]);
    for many in ["bench infer model.ftp --steps", "bench infer model.ftp --batch", "eval run --batch"] {
        temp.run(&format!("{many} 18446744073709551615")).refused(2, &["is not in 1..="]);
    }
    for model in ["model.ftp", "run/best.safetensors"] {
        temp.run(&format!("bench infer {model} --checkpoint last")).refused(2, &["is a single network"]);
    }
    temp.run("predict model.ftp x.png --checkpoint last").refused(2, &["is a single network"]);
    for command in ["eval model.ftp", "robust run/best.safetensors --radius 0.1", "export model.ftp -o m.onnx"] {
        temp.run(&format!("{command} --checkpoint last")).refused(2, &["is a single network"]);
    }
    temp.run("bench infer nothing.ftp").refused(1, &["nothing.ftp"]);
    temp.write("text.ftp", "this is not a model");
    temp.run("bench infer text.ftp").refused(1, &["text.ftp"]);
}

/// A pipe or a device cannot be replaced; what is written to standard output is the model alone.
#[cfg(unix)]
#[test]
fn a_model_can_go_to_a_stream() {
    let temp = Temp::with_recipes();
    temp.run("train --recipe small.toml --quiet --out run").ok();
    temp.run("export run -o model.ftp").ok();
    let output = temp.command("export run -o /dev/stdout").output().unwrap();
    assert!(output.status.success() && output.stdout == temp.read("model.ftp"), "{output:?}");
    let dash = temp.command("export run -o - --format packed").output().unwrap();
    assert!(dash.stdout == output.stdout && !temp.path("-").exists(), "{dash:?}");
    let into_file = fs::File::create(temp.path("redirected.ftp")).unwrap();
    assert!(temp.command("export run -o /dev/stdout").stdout(into_file).status().unwrap().success());
    assert!(temp.read("redirected.ftp") == temp.read("model.ftp"));
    temp.run("export run -o /dev/full").refused(1, &["/dev/full", "disk is full"]);
}
