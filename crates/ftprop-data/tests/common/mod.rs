//! Little data sets written to temporary folders.
// Every test file uses some of it.
#![allow(dead_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use ftprop_tensor::random::Stream;
use image::{GrayImage, RgbImage};

/// A folder of its own, removed at the end.
pub(crate) struct Temp(PathBuf);

impl Temp {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ftprop-data-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Temp(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Random bytes, the same for the same number.
pub(crate) fn noise(number: u64, count: usize) -> Vec<u8> {
    let stream = Stream::numbered(number);
    (0..count).map(|i| stream.below(i as u64, 256) as u8).collect()
}

/// A file's name and content.
pub(crate) type Named = (String, Vec<u8>);

/// Records of CIFAR with noise for pixels; `labels` gives the bytes before the pixels of each.
pub(crate) fn cifar_file(number: u64, labels: &[&[u8]]) -> Vec<u8> {
    let record = |(i, label): (usize, &&[u8])| [label, noise(number * 1000 + i as u64, 3072).as_slice()].concat();
    labels.iter().enumerate().flat_map(record).collect()
}

/// The files of a small CIFAR-10: three records in each training file, two in the test file.
pub(crate) fn cifar10_files() -> Vec<Named> {
    let train = (1..=5u8).map(|k| (format!("data_batch_{k}.bin"), cifar_file(u64::from(k), &[&[k], &[9 - k], &[0]])));
    train.chain([("test_batch.bin".to_owned(), cifar_file(6, &[&[3], &[9]]))]).collect()
}

pub(crate) fn tar_gz(folder: &str, files: &[Named]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("{folder}/{name}"), content.as_slice()).unwrap();
    }
    gzip(&archive.into_inner().unwrap())
}

/// An IDX file of unsigned bytes.
pub(crate) fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend(bytes);
    file
}

/// A small MNIST of `train` and `test` pictures of 3 rows and 2 columns.
pub(crate) fn write_mnist(temp: &Temp, train: u32, test: u32) {
    for (part, count) in [("train", train), ("t10k", test)] {
        let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
        temp.write(&format!("{part}-images-idx3-ubyte"), idx(&[count, 3, 2], &noise(7, count as usize * 6)));
        temp.write(&format!("{part}-labels-idx1-ubyte"), idx(&[count], &labels));
    }
}

pub(crate) fn rgb(number: u64, width: u32, height: u32) -> RgbImage {
    RgbImage::from_raw(width, height, noise(number, (width * height * 3) as usize)).unwrap()
}

pub(crate) fn grey(number: u64, width: u32, height: u32) -> GrayImage {
    GrayImage::from_raw(width, height, noise(number, (width * height) as usize)).unwrap()
}

/// Two classes of PNG and JPEG pictures in ImageNet's layout: six to train on, three to test.
pub(crate) fn write_photos(temp: &Temp) {
    for class in ["train/cat", "train/dog", "val/cat", "val/dog"] {
        fs::create_dir_all(temp.path().join(class)).unwrap();
    }
    let path = |name: &str| temp.path().join(name);
    rgb(1, 20, 14).save(path("train/cat/b.png")).unwrap();
    grey(2, 13, 19).save(path("train/cat/a.PNG")).unwrap();
    rgb(3, 12, 12).save(path("train/cat/c.jpg")).unwrap();
    rgb(4, 30, 9).save(path("train/dog/0.JPEG")).unwrap();
    rgb(5, 8, 8).save(path("train/dog/1.png")).unwrap();
    grey(6, 16, 16).save(path("train/dog/2.jpeg")).unwrap();
    rgb(7, 20, 20).save(path("val/cat/x.png")).unwrap();
    rgb(8, 10, 10).save(path("val/dog/x.png")).unwrap();
    rgb(9, 11, 23).save(path("val/dog/y.png")).unwrap();
    temp.write("train/dog/notes.txt", "not a picture");
    temp.write("train/dog/.hidden.png", "not a picture either");
}
