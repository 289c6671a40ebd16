//! Real data, where `FTPROP_DATA` points to a folder with `cifar-10-batches-bin`, `mnist` and `photos`.

mod common;

use common::*;

fn data(name: &str) -> Option<String> {
    let found = std::env::var("FTPROP_DATA").ok().map(|folder| format!("{folder}/{name}"));
    if found.is_none() {
        println!("skipped: FTPROP_DATA is not set");
    }
    found
}

#[test]
fn mnist_in_an_epoch() {
    let Some(path) = data("mnist") else { return };
    let temp = Temp::new();
    temp.write("mnist.toml", "data.source = \"mnist\"\nnetwork = { preset = \"mlp\", widths = [256] }\n");
    temp.run(&format!("train --recipe mnist.toml --quiet --epochs 1 --data {path} --out run")).ok();
    let summary = temp.json("run/summary.json");
    assert!(summary["test"]["top1_last"].as_f64().unwrap() > 0.9, "{summary}");
    assert_eq!(temp.run("eval run --json").json()["examples"], 10_000);
}

#[test]
fn cifar_with_a_small_network() {
    let Some(path) = data("cifar-10-batches-bin") else { return };
    let temp = Temp::new();
    temp.write("cifar.toml", "data.source = \"cifar10\"\nnetwork = { preset = \"mlp\", widths = [16] }\n");
    let train = format!("train --recipe cifar.toml --quiet --epochs 1 --set data.flip=true --data {path} --out run");
    temp.run(&train).ok();
    let summary = temp.json("run/summary.json");
    assert!(summary["test"]["top1_last"].as_f64().unwrap() > 0.2, "{summary}");
}

#[test]
fn photos_with_a_small_network() {
    let Some(path) = data("photos") else { return };
    let temp = Temp::new();
    let recipe = r#"
        data = { source = "folder", resize = 36, crop = 32, random_crop = true, flip = true }
        train.batch = 16
        [[network.layers]]
        kind = "conv"
        out = 8
        kernel = 5
        stride = 2
        [[network.layers]]
        kind = "batch_norm"
        [[network.layers]]
        kind = "act"
        [[network.layers]]
        kind = "fc"
    "#;
    temp.write("photos.toml", recipe);
    temp.run(&format!("train --recipe photos.toml --quiet --epochs 1 --data {path} --out run")).ok();
    let photo = std::fs::read_dir(format!("{path}/val/watch")).unwrap().next().unwrap().unwrap().path();
    let found = temp.run(&format!("predict run {} --top 10 --json", photo.display())).json();
    assert_eq!(found[0]["classes"].as_array().unwrap().len(), 10);
}
