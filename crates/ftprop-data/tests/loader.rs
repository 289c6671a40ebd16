//! Batches are a pure function of seed, epoch and number.

mod common;

use std::time::{Duration, Instant};

use common::*;
use ftprop_data::{
    Augment, Dataset, Draws, HoldOut, Loader, LoaderConfig, Options, Placement, Room, Shape, Source, Split, open,
};
use ftprop_tensor::random::{Permutation, Purpose, Stream};

type Batches = Vec<(usize, Vec<f32>, Vec<u32>, Vec<u32>)>;

fn drain(loader: &Loader, epoch: u64, first: usize) -> Batches {
    let mut epoch = loader.epoch(epoch, first);
    let mut batches = Vec::new();
    while let Some(b) = epoch.next_batch().unwrap() {
        batches.push((b.index, b.images.to_vec(), b.labels.to_vec(), b.numbers.to_vec()));
    }
    assert_eq!(epoch.next_index(), loader.batches_per_epoch());
    batches
}

fn cifar() -> Dataset {
    let temp = Temp::new();
    cifar10_files().iter().for_each(|(name, content)| drop(temp.write(name, content)));
    open(Source::Cifar10, Some(temp.path()), &Options::default()).unwrap()
}

fn digits() -> Dataset {
    open(Source::Digits, None, &Options::default()).unwrap()
}

/// Bytes must not depend on the workers, on where an epoch is taken up, or on which epoch ran before.
fn check_pure(split: &Split, config: &LoaderConfig) {
    let loader = |workers| Loader::new(split, LoaderConfig { workers, ..config.clone() }).unwrap();
    let alone = loader(0);
    let (first, second) = (drain(&alone, 1, 0), drain(&alone, 2, 0));
    assert_eq!(first.len(), split.len().div_ceil(config.batch));
    assert_eq!(first.iter().map(|b| b.2.len()).sum::<usize>(), split.len());
    for workers in [0, 1, 2, 5] {
        let loader = loader(workers);
        assert!(drain(&loader, 2, 0) == second, "{workers} workers");
        assert!(drain(&loader, 1, 0) == first, "{workers} workers, after another epoch");
        for start in [1, first.len() / 2, first.len() - 1, first.len(), first.len() + 7] {
            let rest = &first[start.min(first.len())..];
            assert!(drain(&loader, 1, start) == rest, "{workers} workers, from batch {start}");
        }
    }
}

#[test]
fn workers_and_resumes_change_nothing() {
    let (digits, cifar) = (digits(), cifar());
    check_pure(&digits.train, &LoaderConfig::training(100, 3, digits.normalize.clone()));
    let augment = Augment::CIFAR;
    check_pure(&cifar.train, &LoaderConfig { augment, ..LoaderConfig::training(4, 3, cifar.normalize.clone()) });

    let temp = Temp::new();
    write_photos(&temp);
    let options = Options { resize: Some(10), crop: Some(7), ..Options::default() };
    let photos = open(Source::Folder, Some(temp.path()), &options).unwrap();
    let augment = Augment::PHOTOS;
    check_pure(&photos.train, &LoaderConfig { augment, ..LoaderConfig::training(4, 3, photos.normalize.clone()) });

    let rows: String = (0..30).map(|i| format!("{i},{},{}\n", i * i % 7, i % 3)).collect();
    let table = open(Source::Csv, Some(&temp.write("t.csv", rows)), &Options::default()).unwrap();
    check_pure(&table.train, &LoaderConfig::training(5, 3, table.normalize.clone()));
}

#[test]
fn seeds_and_epochs_give_other_orders_and_crops() {
    let cifar = cifar();
    let images = |seed, epoch| {
        let config =
            LoaderConfig { augment: Augment::CIFAR, ..LoaderConfig::training(15, seed, cifar.normalize.clone()) };
        drain(&Loader::new(&cifar.train, config).unwrap(), epoch, 0)
    };
    assert!(images(1, 1) != images(1, 2));
    assert!(images(1, 1) != images(2, 1));
    assert!(images(1, 1) == images(1, 1));
}

/// The order and the augmentation as they are documented, one value at a time.
#[test]
fn batches_hold_what_the_documents_say() {
    let cifar = cifar();
    let (train, _) = cifar.train.hold_out(HoldOut::Count(4), 9).unwrap();
    let (bytes, _) = train.bytes().unwrap();
    let (seed, epoch, pad) = (11, 5, 3usize);
    let augment = Augment { pad, ..Augment::CIFAR };
    let config = LoaderConfig { augment, ..LoaderConfig::training(4, seed, cifar.normalize.clone()) };
    let batches = drain(&Loader::new(&train, config).unwrap(), epoch, 0);

    let order = Permutation::new(Stream::new(seed, Purpose::Shuffle, epoch), train.len());
    let stream = Stream::new(seed, Purpose::Augment, epoch);
    let mut flips = 0;
    for place in 0..train.len() {
        let number = train.number(order.at(place));
        let (_, images, labels, numbers) = &batches[place / 4];
        assert_eq!(numbers[place % 4] as usize, number);
        assert_eq!(labels[place % 4], train.labels()[number]);
        let own = stream.fork(number as u64);
        let (top, left, flip) = (own.below(0, 7) as usize, own.below(1, 7) as usize, own.u64(2) >> 63 == 1);
        flips += usize::from(flip);
        for i in 0..3072 {
            let (y, x, c) = (i / 96, i / 3 % 32, i % 3);
            let x = if flip { 31 - x } else { x };
            let (y, x) = ((top + y).wrapping_sub(pad), (left + x).wrapping_sub(pad));
            let raw = if y < 32 && x < 32 { bytes[number * 3072 + (y * 32 + x) * 3 + c] } else { 0 };
            let expected = (f32::from(raw) / 255.0 - cifar.normalize.mean[c]) / cifar.normalize.std[c];
            assert_eq!(images[place % 4 * 3072 + i], expected, "example {number}, value {i}");
        }
    }
    assert!(0 < flips && flips < train.len());
}

#[test]
fn placements_are_spread_evenly_and_keep_to_the_room() {
    let (room, draws, window) = (Room { x: 8, y: 4 }, Draws::new(1, 1), Shape::new(28, 32, 3));
    let place = |example, augment: &Augment| Placement::of(&draws, example, augment, room, window);
    let (mut columns, mut rows, mut flips) = ([0; 9], [0; 5], 0);
    for example in 0..45_000 {
        let placed = place(example, &Augment::CIFAR);
        columns[placed.x] += 1;
        rows[placed.y] += 1;
        flips += usize::from(placed.flip);
    }
    // Six standard deviations.
    assert!(columns.iter().all(|n: &i32| (n - 5000).abs() < 400), "{columns:?}");
    assert!(rows.iter().all(|n: &i32| (n - 9000).abs() < 510), "{rows:?}");
    assert!(flips.abs_diff(22_500) < 640, "{flips}");
    // Without a crop or a flip the rest stays as it was.
    for example in 0..50 {
        let all = place(example, &Augment::CIFAR);
        let still = place(example, &Augment { crop: false, ..Augment::CIFAR });
        assert_eq!(still, Placement { flip: all.flip, ..Placement::centre(room) });
        let unflipped = place(example, &Augment { flip: false, ..Augment::CIFAR });
        assert_eq!(unflipped, Placement { flip: false, ..all });
        let blanked = place(example, &Augment { cutout: 9, ..Augment::CIFAR });
        assert_eq!(Placement { blank: None, ..blanked }, all);
        assert!(blanked.blank.is_some_and(|[y, x]| y < 28 && x < 32));
    }
}

#[test]
fn flips_that_alternate_show_the_other_side_in_every_other_epoch() {
    let (room, window) = (Room { x: 8, y: 8 }, Shape::new(32, 32, 3));
    let augment = Augment { alternate: true, ..Augment::CIFAR };
    let flips = |epoch| -> Vec<bool> {
        (0..2000).map(|example| Placement::of(&Draws::new(5, epoch), example, &augment, room, window).flip).collect()
    };
    let (first, second) = (flips(1), flips(2));
    assert!(first.iter().zip(&second).all(|(a, b)| a != b));
    assert_eq!(first, flips(3));
    let flipped = first.iter().filter(|flip| **flip).count();
    assert!(flipped.abs_diff(1000) < 140, "{flipped}");
}

#[test]
fn what_is_held_out_and_what_remains_are_disjoint_and_complete() {
    let train = digits().train;
    for amount in [HoldOut::Count(200), HoldOut::Fraction(0.1)] {
        let (rest, held) = train.hold_out(amount, 4).unwrap();
        assert_eq!(held.len(), if amount == HoldOut::Count(200) { 200 } else { 144 });
        let mut numbers: Vec<u32> = [&rest, &held].iter().flat_map(|s| s.numbers().unwrap()).copied().collect();
        assert!(rest.numbers().unwrap().is_sorted() && held.numbers().unwrap().is_sorted());
        numbers.sort_unstable();
        assert_eq!(numbers, train.numbers().unwrap());
        assert!((0..held.len()).all(|i| held.label(i) == train.labels()[held.number(i)]));
        let (again, other) = (train.hold_out(amount, 4).unwrap().1, train.hold_out(amount, 5).unwrap().1);
        assert_eq!(again.numbers(), held.numbers());
        assert_ne!(other.numbers(), held.numbers());
        // Holding out from what remains never touches what was held out before.
        let (_, twice) = rest.hold_out(HoldOut::Count(50), 4).unwrap();
        assert!(twice.numbers().unwrap().iter().all(|n| !held.numbers().unwrap().contains(n)));
    }
}

#[test]
fn an_epoch_that_is_dropped_ends_at_once() {
    let digits = digits();
    let config = LoaderConfig { workers: 3, ..LoaderConfig::training(7, 1, digits.normalize.clone()) };
    let start = Instant::now();
    for taken in [0, 1, 5] {
        let loader = Loader::new(&digits.train, config.clone()).unwrap();
        let mut epoch = loader.epoch(1, 0);
        for _ in 0..taken {
            epoch.next_batch().unwrap();
        }
        drop(loader);
        assert!(epoch.next_batch().unwrap().is_some(), "an epoch outlives its loader");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn waiting_is_counted() {
    let digits = digits();
    let config = LoaderConfig { workers: 0, ..LoaderConfig::training(1438, 1, digits.normalize.clone()) };
    let mut epoch = Loader::new(&digits.train, config).unwrap().epoch(1, 0);
    assert_eq!(epoch.waited(), Duration::ZERO);
    epoch.next_batch().unwrap();
    assert!(epoch.waited() > Duration::ZERO);
}
