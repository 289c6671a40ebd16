//! Packs a network of hard thresholds into a small model of low-bit numbers, and uses it.
//!
//!     cargo run --release -p ftprop --example packed

use ftprop::export::packed;
use ftprop::prelude::*;
use ftprop::runtime::{Engine, EngineOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut recipe = Recipe::built_in("digits")?.into_recipe();
    recipe.train.epochs = 3;
    let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 0)?);
    let mut trainer = Trainer::new(recipe.checked()?, &dataset, &place)?;
    trainer.run(&mut ())?;

    // From here on: pack it, load it as a program without any training code would, and ask it.
    let mut model = trainer.model(Which::Best, 64)?;
    let bytes = packed::pack(&model, WeightFormat::Int8)?;
    let mut engine = Engine::load(&bytes, &EngineOptions::default())?;
    let picture = vec![128; engine.image_len()];
    let mut logits = vec![0.0; engine.classes()];
    engine.classify(&picture, &mut logits)?;
    println!("{} bytes for {} parameters; a grey picture: {logits:.1?}", bytes.len(), model.network.values().len());

    let agreement = packed::check(&mut model, &mut Classifier::new(&bytes, 1)?, &dataset, &mut |_| {})?;
    println!("{agreement:?}");
    assert!(bytes.len() < 2 * model.network.values().len(), "a weight takes more than two bytes");
    assert!(agreement.agreement > 0.95, "the packed model is another one");
    Ok(())
}
