//! Nothing in a file makes the reader or the engine panic.

mod support;

use ftprop_runtime::{Engine, EngineOptions, Error, Model, Result};
use support::mutants;

#[test]
fn mutants_are_refused_or_run() -> Result<()> {
    let tally = mutants::try_mutants(1, 20_000)?;
    println!("{tally:?}");
    let kinds = [tally.magic, tally.checksum, tally.truncated, tally.invalid, tally.memory, tally.run];
    assert!(kinds.iter().all(|&kind| kind > 20), "the mutants do not try everything: {tally:?}");
    Ok(())
}

#[test]
fn every_cut_is_refused() -> Result<()> {
    for file in mutants::seeds()? {
        for end in 0..file.len() {
            assert!(Model::parse(&file[..end]).is_err());
        }
        Model::parse(&file)?;
    }
    Ok(())
}

#[test]
fn every_flipped_bit_is_noticed() -> Result<()> {
    let mut file = mutants::seeds()?.swap_remove(0);
    for at in 0..file.len() {
        file[at] ^= 1 << (at % 8);
        assert!(Model::parse(&file).is_err(), "a flipped bit in byte {at} went unnoticed");
        file[at] ^= 1 << (at % 8);
    }
    Ok(())
}

#[test]
fn what_is_read_is_what_was_written() -> Result<()> {
    for file in mutants::seeds()? {
        assert_eq!(Model::parse(&file)?.to_bytes()?, file);
    }
    Ok(())
}

#[test]
fn memory_is_limited_before_it_is_allocated() -> Result<()> {
    let file = mutants::seeds()?.swap_remove(0);
    let options = EngineOptions { images_together: usize::MAX >> 8, ..EngineOptions::default() };
    assert!(matches!(Engine::load(&file, &options), Err(Error::Memory { .. })));
    let options = EngineOptions { memory_limit: 1000, ..EngineOptions::default() };
    assert!(matches!(Engine::load(&file, &options), Err(Error::Memory { .. })));
    Ok(())
}

#[test]
fn buffers_of_the_wrong_size_are_refused() -> Result<()> {
    let file = mutants::seeds()?.swap_remove(0);
    let mut engine = Engine::load(&file, &EngineOptions::default())?;
    let image = vec![0; engine.image_len()];
    let mut logits = vec![0.0; engine.classes()];
    assert!(engine.classify(&image[1..], &mut logits).is_err());
    assert!(engine.classify(&image, &mut logits[1..]).is_err());
    engine.classify(&[], &mut [])?;
    engine.classify(&image, &mut logits)
}
