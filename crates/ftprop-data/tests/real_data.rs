//! The real data sets, where `FTPROP_DATA` names a folder with `cifar-10-batches-bin/`, `mnist/` and `photos/`.

use std::path::PathBuf;
use std::time::Instant;

use ftprop_data::{Augment, Dataset, Loader, LoaderConfig, Options, Source, Split, load_image, open};

fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FTPROP_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("{test}: skipped, FTPROP_DATA is not set");
    }
    folder
}

fn counts(split: &Split, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    (0..split.len()).for_each(|i| counts[split.label(i) as usize] += 1);
    counts
}

/// Mean and deviation of everything a loader delivers, which normalising should have made 0 and 1.
fn moments(dataset: &Dataset) -> (f64, f64) {
    let config = LoaderConfig::evaluation(100, dataset.normalize.clone());
    let mut epoch = Loader::new(&dataset.train, config).unwrap().epoch(0, 0);
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    while let Some(batch) = epoch.next_batch().unwrap() {
        count += batch.images.len() as f64;
        sum += batch.images.iter().map(|&x| f64::from(x)).sum::<f64>();
        squares += batch.images.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    }
    (sum / count, (squares / count).sqrt())
}

#[test]
fn cifar10() {
    let Some(folder) = folder("cifar10") else { return };
    let cifar = open(Source::Cifar10, Some(&folder), &Options::default()).unwrap();
    assert_eq!(counts(&cifar.train, 10), [5000; 10]);
    assert_eq!(counts(&cifar.test, 10), [1000; 10]);
    assert_eq!(cifar.classes[9], "truck");
    let (mean, deviation) = moments(&cifar);
    assert!(mean.abs() < 1e-3 && (deviation - 1.0).abs() < 1e-3, "{mean} {deviation}");

    // How fast one core augments, for the record.
    for workers in [0, 1] {
        let augment = Augment::CIFAR;
        let config = LoaderConfig { workers, augment, ..LoaderConfig::training(64, 1, cifar.normalize.clone()) };
        let loader = Loader::new(&cifar.train, config).unwrap();
        let start = Instant::now();
        let mut seen = 0;
        for number in 0..4 {
            let mut epoch = loader.epoch(number, 0);
            while let Some(batch) = epoch.next_batch().unwrap() {
                seen += batch.len();
            }
        }
        assert_eq!(seen, 4 * cifar.train.len());
        eprintln!("cifar10, {workers} workers: {:.0} images/s", seen as f64 / start.elapsed().as_secs_f64());
    }
}

#[test]
fn mnist() {
    let Some(folder) = folder("mnist") else { return };
    let mnist = open(Source::Mnist, Some(&folder), &Options::default()).unwrap();
    assert_eq!((mnist.train.len(), mnist.test.len()), (60_000, 10_000));
    assert_eq!(counts(&mnist.test, 10), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
    let (mean, deviation) = moments(&mnist);
    assert!(mean.abs() < 1e-3 && (deviation - 1.0).abs() < 1e-3, "{mean} {deviation}");
}

#[test]
fn photos() {
    let Some(folder) = folder("photos") else { return };
    let photos = open(Source::Folder, Some(&folder.join("photos")), &Options::default()).unwrap();
    assert_eq!((photos.classes.len(), photos.train.len(), photos.test.len()), (10, 600, 150));
    let augment = Augment::PHOTOS;
    let config = LoaderConfig { workers: 2, augment, ..LoaderConfig::training(32, 1, photos.normalize.clone()) };
    let mut epoch = Loader::new(&photos.train, config).unwrap().epoch(0, 0);
    let start = Instant::now();
    let mut seen = 0;
    while let Some(batch) = epoch.next_batch().unwrap() {
        seen += batch.len();
        assert_eq!(batch.images.len(), batch.len() * 224 * 224 * 3);
    }
    assert_eq!((seen, epoch.skipped()), (600, 0));
    eprintln!("photos, 2 workers: {:.0} images/s", seen as f64 / start.elapsed().as_secs_f64());

    // A test batch is what `load_image` makes of the same file.
    let mut epoch =
        Loader::new(&photos.test, LoaderConfig::evaluation(1, photos.normalize.clone())).unwrap().epoch(0, 0);
    let first = epoch.next_batch().unwrap().unwrap();
    let mut files: Vec<_> =
        folder.join("photos/val").join(&photos.classes[0]).read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert_eq!(first.images, load_image(&files[0], &photos.preprocess().unwrap()).unwrap());
}
