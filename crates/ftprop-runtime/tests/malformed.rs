//! Nothing in a file makes the reader or the engine panic.

mod support;

use std::time::{Duration, Instant};

use ftprop_runtime::{Element, Engine, EngineOptions, Error, Model, Op, Preprocessing, Result, Shape, Window, note};
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
    let options = EngineOptions { memory_limit: 1000, ..EngineOptions::default() };
    assert!(matches!(Engine::load(&file, &options), Err(Error::Memory { .. })));
    Ok(())
}

#[test]
fn fewer_images_go_together_where_memory_has_no_room_and_give_the_same() -> Result<()> {
    let file = mutants::seeds()?.swap_remove(0);
    let one = EngineOptions { images_together: 1, ..EngineOptions::default() };
    let least = Engine::load(&file, &one)?.memory();
    let mut logits = Vec::new();
    for (images_together, memory_limit) in [(1, least), (16, 1 << 29), (16, least), (usize::MAX >> 8, 2 * least)] {
        let mut engine = Engine::load(&file, &EngineOptions { images_together, memory_limit, ..one.clone() })?;
        assert!(engine.memory() <= memory_limit);
        let mut found = vec![0.0; 20 * engine.classes()];
        engine.classify(&support::Numbers(3).image(20 * engine.image_len()), &mut found)?;
        logits.push(found);
    }
    assert!(logits.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}

/// A model of pools alone on a grey picture.
fn pools(side: usize, windows: impl IntoIterator<Item = Window>) -> Model<'static> {
    let input = Shape { height: side, width: side, channels: 1 };
    let preprocessing = Preprocessing {
        input,
        element: Element::Byte,
        resize_shorter: None,
        center_crop: false,
        mean: vec![0.0],
        std: vec![1.0],
    };
    let ops = windows.into_iter().enumerate();
    let ops = ops.map(|(input, window)| Op::MaxPool { input, window, inverted: Vec::new() }).collect();
    Model { name: String::new(), preprocessing, classes: Vec::new(), notes: Default::default(), ops }
}

#[test]
fn a_small_file_that_describes_endless_work_is_refused_unless_the_caller_wants_it() -> Result<()> {
    let mut model = pools(4096, [Window::square(2049, 1, 0)]);
    model.ops.push(Op::AveragePool { input: 1, window: Window::square(2048, 1, 0) });
    let file = model.to_bytes()?;
    assert!(file.len() < 160, "{} bytes", file.len());
    let started = Instant::now();
    let options = EngineOptions { images_together: 1, ..EngineOptions::default() };
    let Err(Error::Work { needed, limit }) = Engine::load(&file, &options) else {
        panic!("17 million million operations were accepted");
    };
    assert!(needed > 2049 * 2049 * 2048 * 2048 && limit == options.operation_limit);
    assert!(started.elapsed() < Duration::from_secs(1));
    let engine = Engine::load(&file, &EngineOptions { operation_limit: u64::MAX, ..options })?;
    assert_eq!(engine.operations(), needed);
    assert!(engine.memory() < 1 << 29);
    Ok(())
}

#[test]
fn long_chains_are_refused_or_loaded_in_no_time() -> Result<()> {
    let started = Instant::now();
    let one = Window::square(1, 1, 0);
    let average = |input: usize| Op::AveragePool { input, window: one };
    let mut model = pools(1, std::iter::repeat_n(one, (1 << 14) - 1));
    model.ops.push(average(model.ops.len()));
    let file = model.to_bytes()?;
    // On a thread's small stack: nothing may recurse as deep as a chain is long.
    let loaded = std::thread::spawn(move || Engine::load(&file, &EngineOptions::default()).map(|_| ()));
    loaded.join().unwrap()?;
    model.ops.push(average(model.ops.len()));
    assert!(matches!(model.to_bytes(), Err(Error::Invalid { .. })));
    assert!(started.elapsed() < Duration::from_secs(5));
    Ok(())
}

#[test]
fn notes_are_kept_and_models_without_them_are_written_as_before() -> Result<()> {
    let mut model = pools(1, []);
    model.ops.push(Op::AveragePool { input: 0, window: Window::square(1, 1, 0) });
    let version = |file: &[u8]| u32::from_le_bytes([file[8], file[9], file[10], file[11]]);
    assert_eq!(version(&model.to_bytes()?), 1);
    model.notes.insert(note::SOURCE.into(), "cifar10".into());
    model.notes.insert(note::LOSS.into(), "hinge".into());
    model.notes.insert("something else".into(), "ünï\n".into());
    let file = model.to_bytes()?;
    assert_eq!(version(&file), 2);
    assert_eq!(Model::parse(&file)?, model);
    Ok(())
}

#[test]
fn a_model_of_tables_is_of_version_3_and_takes_no_bytes() -> Result<()> {
    let file = mutants::seeds()?.pop().unwrap();
    assert_eq!(file[8], 3);
    let model = Model::parse(&file)?;
    assert_eq!(model.preprocessing.element, Element::Real);
    assert!(model.notes.is_empty() && model.to_bytes()? == file);
    let mut engine = Engine::load(&file, &EngineOptions::default())?;
    let mut logits = vec![0.0; engine.classes()];
    let refused = engine.classify(&vec![0; engine.image_len()], &mut logits);
    assert_eq!(refused, Err(Error::Element { takes: "rows of real numbers" }));
    engine.classify_reals(&vec![1e9; engine.image_len()], &mut logits)?;
    let mut pictures = Engine::load(&mutants::seeds()?[0], &EngineOptions::default())?;
    let mut logits = vec![0.0; pictures.classes()];
    assert!(pictures.classify_reals(&vec![0.0; pictures.image_len()], &mut logits).is_err());
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
