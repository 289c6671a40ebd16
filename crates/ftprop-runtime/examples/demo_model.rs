//! Writes a small packed model with made-up weights and a few images, and prints what the C example must print.
//!
//! ```text
//! cargo run --release -p ftprop-runtime --example demo_model -- MODEL IMAGES
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use ftprop_runtime::pack::{PackOptions, pack};
use ftprop_runtime::{Activation, Engine, EngineOptions};

const IMAGES: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [model, images] = &paths[..] else { return Err("usage: demo_model MODEL IMAGES".into()) };
    let network = support::networks::convnet4(Activation::Sign, 1, 4);
    let file = pack(&network, &PackOptions::default())?.to_bytes()?;
    std::fs::write(model, &file)?;
    let mut engine = Engine::load(&file, &EngineOptions::default())?;
    let pixels = support::Numbers(2).image(IMAGES * engine.image_len());
    std::fs::write(images, &pixels)?;
    let mut logits = vec![0.0; IMAGES * engine.classes()];
    engine.classify(&pixels, &mut logits)?;
    for (image, row) in logits.chunks_exact(engine.classes()).enumerate() {
        // The first of equal ones.
        let best = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
        println!("{image} {best} {} {:.6}", engine.class_names()[best], row[best]);
    }
    Ok(())
}
