//! Files of prepared pictures: what a folder gives, whoever wrote them and however often they were interrupted; and
//! nothing at all once they are damaged.

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use common::*;
use ftprop_data::{
    Augment, BadImage, DataError, Dataset, Jitter, Loader, LoaderConfig, Options, PrepareOptions, Prepared, Preparing,
    Source, Split, open, prepare,
};

const EDGE: usize = 10;

fn options(threads: usize) -> PrepareOptions {
    PrepareOptions { edge: EDGE, threads, bad_image: BadImage::Stop }
}

fn made(folder: &Path, file: &Path, threads: usize) -> Prepared {
    let made = prepare(folder, file, &options(threads), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(made.finished && made.bytes == fs::metadata(file).unwrap().len());
    made
}

/// Class folders alone.
fn write_classes(temp: &Temp) -> PathBuf {
    for (class, first) in [("ant", 20), ("bee", 40)] {
        fs::create_dir_all(temp.path().join("in").join(class)).unwrap();
        for i in 0..7 {
            let picture = rgb(first + i, 9 + i as u32 % 5, 13 - i as u32 % 4);
            picture.save(temp.path().join(format!("in/{class}/{i}.png"))).unwrap();
        }
    }
    temp.path().join("in")
}

fn opened(source: Source, path: &Path) -> Dataset {
    let options = Options { resize: Some(EDGE), crop: Some(7), ..Options::default() };
    open(source, Some(path), &options).unwrap()
}

/// Images, labels and numbers of two epochs.
fn batches(split: &Split, data: &Dataset, augment: Augment) -> Result<(Vec<f32>, Vec<u32>), DataError> {
    let config = LoaderConfig { augment, ..LoaderConfig::training(2, 5, data.normalize.clone()) };
    let loader = Loader::new(split, config)?;
    let (mut images, mut numbers) = (Vec::new(), Vec::new());
    for epoch in [1, 2] {
        let mut epoch = loader.epoch(epoch, 0);
        while let Some(batch) = epoch.next_batch()? {
            images.extend_from_slice(batch.images);
            numbers.extend(batch.labels.iter().chain(batch.numbers));
        }
    }
    Ok((images, numbers))
}

#[test]
fn a_prepared_file_gives_the_batches_of_its_folder() {
    let (photos, classes) = (Temp::new(), Temp::new());
    write_photos(&photos);
    for folder in [photos.path().to_owned(), write_classes(&classes)] {
        let temp = Temp::new();
        let file = temp.path().join("pictures");
        let summary = made(&folder, &file, 2);
        let found = Source::detect(&file).unwrap();
        assert_eq!((found.source, found.what.as_str()), (Source::Prepared, "prepared pictures"));
        let (from_folder, from_file) = (opened(Source::Folder, &folder), opened(Source::Prepared, &file));
        assert_eq!(from_folder.classes, from_file.classes);
        assert_eq!(summary.classes, from_file.classes.len());
        assert_eq!((from_folder.shape, from_folder.preprocess()), (from_file.shape, from_file.preprocess()));
        let jitter = Jitter { brightness: 0.4, contrast: 0.3, saturation: 0.2 };
        let trivial = Augment { trivial: true, ..Augment::PHOTOS };
        let plain = batches(&from_folder.train, &from_folder, Augment::PHOTOS).unwrap();
        assert!(plain != batches(&from_folder.train, &from_folder, trivial).unwrap());
        for augment in [Augment::default(), Augment::PHOTOS, trivial, Augment { jitter, cutout: 3, ..Augment::PHOTOS }]
        {
            for (one, other) in [(&from_folder.train, &from_file.train), (&from_folder.test, &from_file.test)] {
                let expected = batches(one, &from_folder, augment).unwrap();
                assert!(expected == batches(other, &from_file, augment).unwrap(), "{augment:?}");
            }
        }
    }
}

#[test]
fn random_parts_are_those_of_the_same_pictures_in_memory() {
    let temp = Temp::new();
    for i in 0..6 {
        let class = temp.path().join(["in/a", "in/b"][i % 2]);
        fs::create_dir_all(&class).unwrap();
        rgb(i as u64, 16, EDGE as u32).save(class.join(format!("{i}.png"))).unwrap();
    }
    let file = temp.path().join("pictures");
    made(&temp.path().join("in"), &file, 1);
    let data = opened(Source::Prepared, &file);
    // Class by class, as the folder has them.
    let bytes: Vec<u8> = [0, 2, 4, 1, 3, 5].iter().flat_map(|&i| rgb(i, 16, EDGE as u32).into_raw()).collect();
    let shape = ftprop_data::Shape::new(EDGE, 16, 3);
    let memory = Split::from_pixels(shape, bytes, vec![0, 0, 0, 1, 1, 1]).unwrap();
    let numbers: Vec<u32> = data.train.numbers().unwrap().to_vec();
    let mut memory = Dataset { train: memory.select(&numbers).unwrap(), test: memory, ..data.clone() };
    memory = memory.crop_to(7).unwrap();
    let jitter = Jitter { brightness: 0.2, ..Jitter::NONE };
    let augment = Augment { area: Some([0.2, 1.0]), flip: true, jitter, ..Augment::default() };
    let parts = batches(&data.train, &data, augment).unwrap();
    assert!(parts == batches(&memory.train, &memory, augment).unwrap());
    assert!(parts != batches(&data.train, &data, Augment { area: None, crop: true, ..augment }).unwrap());
    for wrong in [
        Augment { crop: true, ..augment },
        Augment { area: Some([0.0, 1.0]), ..augment },
        Augment { area: Some([0.6, 0.5]), ..augment },
        Augment { jitter: Jitter { contrast: -0.1, ..jitter }, ..augment },
        Augment { pad: 1, area: None, ..augment },
    ] {
        assert!(matches!(batches(&data.train, &data, wrong), Err(DataError::Option(_))), "{wrong:?}");
    }
}

#[test]
fn bytes_are_the_windows_before_they_are_normalised() {
    let photos = Temp::new();
    write_photos(&photos);
    let data = opened(Source::Folder, photos.path());
    let part = Augment { area: Some([0.3, 1.0]), ..Augment::default() };
    for augment in [Augment::default(), Augment { crop: true, ..Augment::default() }, part] {
        let config = LoaderConfig { augment, ..LoaderConfig::training(2, 5, data.normalize.clone()) };
        let values = Loader::new(&data.train, config).unwrap();
        // Mirrored, blanked and coloured elsewhere.
        let flipped = Augment { flip: true, cutout: 2, ..augment };
        let config = LoaderConfig { augment: flipped, pixels: true, ..values.config().clone() };
        let bytes = Loader::new(&data.train, config).unwrap();
        let tables = data.normalize.tables();
        let (mut values, mut bytes) = (values.epoch(1, 0), bytes.epoch(1, 0));
        while let Some(expected) = values.next_batch().unwrap() {
            let batch = bytes.next_batch().unwrap().unwrap();
            let normalised = batch.pixels.iter().enumerate().map(|(i, &byte)| tables[i % 3][usize::from(byte)]);
            assert!(normalised.eq(expected.images.iter().copied()) && batch.images.is_empty(), "{augment:?}");
            assert_eq!((batch.labels, batch.numbers), (expected.labels, expected.numbers));
        }
    }
    let digits = open(Source::Digits, None, &Options::default()).unwrap();
    let config = LoaderConfig { pixels: true, ..LoaderConfig::training(2, 5, digits.normalize.clone()) };
    assert!(Loader::new(&digits.train, config).is_err());
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_interruptions() {
    let (temp, photos) = (Temp::new(), Temp::new());
    write_photos(&photos);
    let path = |name: &str| temp.path().join(name);
    made(photos.path(), &path("one"), 1);
    let whole = fs::read(path("one")).unwrap();
    made(photos.path(), &path("four"), 4);
    assert!(fs::read(path("four")).unwrap() == whole);
    for stop in 0..9 {
        let mut ended = |p: Preparing| if p.done >= stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let begun = prepare(photos.path(), &path("later"), &options(2), &mut ended).unwrap();
        assert!(!begun.finished && !path("later").exists());
        let refused = open(Source::Prepared, Some(&path("later.part")), &Options::default()).unwrap_err();
        assert!(refused.to_string().contains("not finished"), "{refused}");
        // Killed in the middle of a write, and something else written after it.
        let mut part = fs::read(path("later.part")).unwrap();
        part.truncate(part.len() - part.len().saturating_sub(128).min(5 * stop));
        part.extend([7; 99]);
        fs::write(path("later.part"), part).unwrap();
        let mut first = None;
        let again = prepare(photos.path(), &path("later"), &options(3), &mut |p| {
            first.get_or_insert(p.before);
            ControlFlow::Continue(())
        });
        assert!(again.unwrap().finished && first.unwrap() + 1 >= stop && !path("later.part").exists());
        assert!(fs::read(path("later")).unwrap() == whole, "{stop}");
        fs::remove_file(path("later")).unwrap();
    }
    // What was begun with another size is begun anew.
    let other = PrepareOptions { edge: EDGE + 1, ..options(1) };
    let _ = prepare(photos.path(), &path("later"), &other, &mut |_| ControlFlow::Break(())).unwrap();
    made(photos.path(), &path("later"), 1);
    assert!(fs::read(path("later")).unwrap() == whole);
}

#[test]
fn bad_pictures_stop_it_or_are_left_out() {
    let (temp, photos) = (Temp::new(), Temp::new());
    write_photos(&photos);
    photos.write("train/dog/0a.jpg", "no picture");
    let file = temp.path().join("pictures");
    let mut go_on = |_| ControlFlow::Continue(());
    let refused = prepare(photos.path(), &file, &options(2), &mut go_on).unwrap_err();
    assert!(refused.to_string().contains("0a.jpg"), "{refused}");
    assert!(!file.exists());
    let skipping = PrepareOptions { bad_image: BadImage::Skip, ..options(2) };
    let made = prepare(photos.path(), &file, &skipping, &mut go_on).unwrap();
    assert_eq!((made.skipped, made.examples), (1, [6, 3]));
    assert!(made.first_skipped.unwrap().to_string().contains("0a.jpg"));
    assert_eq!(made.passed_over.count(), 1);
    assert_eq!(opened(Source::Prepared, &file).train.len(), 6);
}

#[test]
fn classes_that_are_known_decide_the_labels() {
    let (temp, photos) = (Temp::new(), Temp::new());
    write_photos(&photos);
    let file = temp.path().join("pictures");
    made(photos.path(), &file, 1);
    let with = |classes: &[&str]| {
        let known = Some(ftprop_data::Known { classes: classes.iter().map(|&c| c.into()).collect(), table: None });
        open(Source::Prepared, Some(&file), &Options { crop: Some(7), known, ..Options::default() })
    };
    let data = with(&["bird", "dog", "cat"]).unwrap();
    assert_eq!((data.train.label(0), data.train.label(5)), (2, 1));
    assert!(matches!(with(&["cat"]), Err(DataError::UnknownClass { .. })));
}

#[test]
fn every_changed_byte_is_noticed_and_every_missing_one() {
    let (temp, photos) = (Temp::new(), Temp::new());
    write_photos(&photos);
    let file = temp.path().join("pictures");
    made(photos.path(), &file, 1);
    let whole = fs::read(&file).unwrap();
    let look = || -> Result<(), DataError> {
        let data = open(Source::Prepared, Some(&file), &Options { crop: Some(7), ..Options::default() })?;
        batches(&data.train, &data, Augment::PHOTOS)?;
        batches(&data.test, &data, Augment::default()).map(drop)
    };
    look().unwrap();
    let mut at = 0;
    let mut unnoticed = Vec::new();
    while at < whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&file, &changed).unwrap();
        if look().is_ok() {
            unnoticed.push(at);
        }
        at += if at < 300 || at + 400 > whole.len() { 1 } else { 37 };
    }
    // Only the records between the pictures, which a finished file does not need.
    assert!(unnoticed.len() < 9 * 32 && unnoticed.iter().all(|&at| (128..whole.len() - 216).contains(&at)));
    for len in [0, 1, 127, 128, 129, 500, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..len]).unwrap();
        let why = look().unwrap_err().to_string();
        assert!(!why.contains('\n') && why.contains("pictures"), "{why}");
    }
    fs::write(&file, [whole.as_slice(), &[0]].concat()).unwrap();
    assert!(look().is_err());
}
