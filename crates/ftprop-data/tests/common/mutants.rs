//! Damaged files of every kind: bytes changed, cut, moved and repeated, with checksums that match again where a format has
//! them, so that what lies behind the checksums is tried too.

use std::fs;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ftprop_data::{
    BadImage, CsvOptions, DataError, Loader, LoaderConfig, Missing, Normalize, Options, PrepareOptions, Preprocess,
    Shape, Source, load_image, open, prepare,
};
use image::{DynamicImage, ImageFormat};

use super::{Named, Temp, cifar_file, gzip, idx, rgb, write_mnist};

/// SplitMix64: the same numbers everywhere.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, `limit`.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Csv,
    Idx,
    Cifar,
    Tar,
    Jpeg,
    Png,
    WebP,
    Bmp,
    Gif,
    Tiff,
    Prepared,
}

impl Kind {
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Csv,
        Kind::Idx,
        Kind::Cifar,
        Kind::Tar,
        Kind::Jpeg,
        Kind::Png,
        Kind::WebP,
        Kind::Bmp,
        Kind::Gif,
        Kind::Tiff,
        Kind::Prepared,
    ];

    /// Sound files of the kind.
    fn seeds(self) -> Vec<Vec<u8>> {
        let pictures = |format: ImageFormat| {
            let small: DynamicImage = rgb(3, 19, 17).into();
            let flat: DynamicImage = image::RgbImage::new(16, 24).into();
            let grey: DynamicImage = small.to_luma8().into();
            let encode = |picture: &DynamicImage| {
                let mut file = Cursor::new(Vec::new());
                picture.write_to(&mut file, format).ok().map(|()| file.into_inner())
            };
            [small, flat, grey].iter().filter_map(encode).collect()
        };
        match self {
            Kind::Csv => [
                "a,b,kind\n1,2.5,x\n-3,4,y\n5,6,x\n7,8,y\n9,1,x\n",
                "\u{feff}\"a\";\"b\"\r\n\"1;2\";3\r\nx;4\r\ny;5\r\nNA;3\r\n",
                "1\t2\t0\n3\t4\t1\n5\t\t2\n7\t8\t1\n",
                "colour,size,price\nred,1,1.5\nblue,2,2.5\n,3,1.5\nred,NaN,2.5\n",
            ]
            .map(|text| text.as_bytes().to_vec())
            .into(),
            Kind::Idx => vec![idx(&[5, 3, 2], &super::noise(7, 30))],
            Kind::Cifar => vec![cifar_file(1, &[&[1], &[2]])],
            Kind::Tar => vec![tar(&cifar_files())],
            Kind::Jpeg => pictures(ImageFormat::Jpeg),
            Kind::Png => pictures(ImageFormat::Png),
            Kind::WebP => pictures(ImageFormat::WebP),
            Kind::Bmp => pictures(ImageFormat::Bmp),
            Kind::Gif => pictures(ImageFormat::Gif),
            Kind::Tiff => pictures(ImageFormat::Tiff),
            Kind::Prepared => vec![prepared()],
        }
    }
}

fn cifar_files() -> Vec<Named> {
    let name = |k: u8| if k < 6 { format!("data_batch_{k}.bin") } else { "test_batch.bin".into() };
    (1..=6).map(|k| (name(k), cifar_file(u64::from(k), &[&[k]]))).collect()
}

/// A file made from a folder of four small pictures.
fn prepared() -> Vec<u8> {
    let folder = Temp::new();
    for (i, class) in ["in/train/a", "in/train/b", "in/val/a", "in/val/b"].into_iter().enumerate() {
        fs::create_dir_all(folder.path().join(class)).unwrap();
        rgb(i as u64, 8 + i as u32, 8).save(folder.path().join(class).join("x.png")).unwrap();
    }
    let (path, options) =
        (folder.path().join("out"), PrepareOptions { edge: 8, threads: 1, bad_image: BadImage::Stop });
    prepare(&folder.path().join("in"), &path, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    fs::read(path).unwrap()
}

fn tar(files: &[Named]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("x/{name}"), content.as_slice()).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Where the mutants of one kind are written and read.
pub(crate) struct Bench {
    kind: Kind,
    seeds: Vec<Vec<u8>>,
    folder: Temp,
    file: PathBuf,
}

impl Bench {
    pub(crate) fn new(kind: Kind) -> Self {
        let folder = Temp::new();
        let file = match kind {
            Kind::Csv => "t.csv",
            Kind::Idx => "train-images-idx3-ubyte",
            Kind::Cifar => "data_batch_1.bin",
            Kind::Tar => "cifar.tar",
            _ => "picture",
        };
        match kind {
            Kind::Idx => write_mnist(&folder, 5, 5),
            Kind::Cifar => cifar_files().iter().for_each(|(name, content)| drop(folder.write(name, content))),
            _ => {}
        }
        Bench { kind, seeds: kind.seeds(), file: folder.path().join(file), folder }
    }

    /// Makes a mutant and reads it: whether it was taken.
    pub(crate) fn try_one(&self, numbers: &mut Numbers) -> bool {
        let mut file = self.seeds[numbers.below(self.seeds.len())].clone();
        for _ in 0..1 + numbers.below(4) {
            mutate(self.kind, &mut file, numbers);
        }
        if numbers.below(8) > 0 {
            mend(self.kind, &mut file);
        }
        if matches!(self.kind, Kind::Csv | Kind::Idx | Kind::Tar) && numbers.below(16) == 0 {
            file = gzip(&file);
            if numbers.below(2) == 0 {
                mutate(self.kind, &mut file, numbers);
            }
        }
        fs::write(&self.file, &file).unwrap();
        match self.read(numbers) {
            Ok(()) => true,
            Err(error) => {
                let words = error.to_string();
                assert!(!words.contains('\n') && words.len() < 2000, "{words}");
                false
            }
        }
    }

    fn read(&self, numbers: &mut Numbers) -> Result<(), DataError> {
        let data = |source, path: &Path| open(source, Some(path), &Options::default()).map(drop);
        match self.kind {
            Kind::Csv => {
                let missing = [Missing::Refuse, Missing::Mean, Missing::Median, Missing::Indicator][numbers.below(4)];
                let header = [None, Some(true), Some(false)][numbers.below(3)];
                let csv = CsvOptions { missing, header, ..CsvOptions::default() };
                let table = open(Source::Csv, Some(&self.file), &Options { csv, ..Options::default() })?;
                assert!(table.normalize.mean.len() == table.shape.channels && table.train.len() < 1000);
                Ok(())
            }
            Kind::Idx => data(Source::Mnist, self.folder.path()),
            Kind::Cifar => data(Source::Cifar10, self.folder.path()),
            Kind::Tar => data(Source::Cifar10, &self.file),
            Kind::Prepared => {
                let data = open(Source::Prepared, Some(&self.file), &Options { crop: Some(7), ..Options::default() })?;
                let config = LoaderConfig { workers: 0, ..LoaderConfig::evaluation(1, data.normalize.clone()) };
                let loader = Loader::new(&data.train, config)?;
                let mut batches = loader.epoch(0, 0);
                while batches.next_batch()?.is_some() {}
                Ok(())
            }
            _ => {
                let channels = [1, 3][numbers.below(2)];
                let normalize = Normalize::pixels(&vec![0.5; channels], &vec![0.25; channels]);
                let preprocess = Preprocess { shape: Shape::new(8, 8, channels), resize: 9, normalize };
                load_image(&self.file, &preprocess).map(drop)
            }
        }
    }
}

/// One change.
fn mutate(kind: Kind, file: &mut Vec<u8>, numbers: &mut Numbers) {
    if file.is_empty() {
        return;
    }
    // Headers are near the start, of an archive also in between.
    let at = match (kind, numbers.below(2)) {
        (Kind::Tar, 0) => numbers.below(6) * 3584 + numbers.below(512),
        (_, 0) => numbers.below(64),
        _ => numbers.below(file.len()),
    };
    let at = at.min(file.len() - 1);
    let left = file.len() - at;
    match numbers.below(9) {
        0 => file[at] ^= 1 << numbers.below(8),
        1 => file[at] = numbers.next() as u8,
        2 => file[at] = [0, 1, 2, 9, 10, b',', b'"', b';', 127, 128, 254, 255][numbers.below(12)],
        3 if left >= 4 => {
            let extremes = [0, 1, 255, 256, 65535, 65536, (1 << 24) - 1, i32::MAX as u32, 1 << 31, u32::MAX];
            let word = extremes[numbers.below(extremes.len())];
            let bytes = if numbers.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() };
            file[at..at + 4].copy_from_slice(&bytes);
        }
        4 => file.truncate(at),
        5 => {
            let end = at + numbers.below(left.min(64)) + 1;
            file.drain(at..end);
        }
        6 => {
            let end = at + numbers.below(left.min(64)) + 1;
            let copy = file[at..end].to_vec();
            let to = numbers.below(file.len());
            file.splice(to..to, copy);
        }
        7 if kind == Kind::Csv => {
            let words =
                ["\n", "\"", "\"\"", ",,", "nan", "1e999", "-0", "é", "\u{feff}", "0x1", "\r", "  ", "999999999999"];
            let word = words[numbers.below(words.len())];
            file.splice(at..at, word.bytes());
        }
        7 if kind == Kind::Tar && left >= 12 => {
            let sizes: [&[u8]; 4] =
                [b"77777777777\0", b"00000000000\0", b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b"00000006001\0"];
            // The size of an entry.
            let at = at / 512 * 512 + 124;
            if at + 12 <= file.len() {
                file[at..at + 12].copy_from_slice(sizes[numbers.below(4)]);
            }
        }
        _ => {
            let end = at + numbers.below(left.min(16)) + 1;
            file[at..end].fill(numbers.next() as u8);
        }
    }
}

/// Makes the checksums match again.
fn mend(kind: Kind, file: &mut [u8]) {
    match kind {
        Kind::Png => {
            let mut at = 8;
            while let Some(length) =
                file.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().unwrap()) as usize)
            {
                let Some(chunk) = length.checked_add(at + 8).and_then(|end| file.get(at + 4..end)) else { return };
                let mut crc = flate2::Crc::new();
                crc.update(chunk);
                let (sum, end) = (crc.sum().to_be_bytes(), at + 8 + length);
                let Some(place) = file.get_mut(end..end + 4) else { return };
                place.copy_from_slice(&sum);
                at = end + 4;
            }
        }
        Kind::Tar => {
            for header in file.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
                header[148..156].fill(b' ');
                let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
                header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        Kind::Prepared => mend_prepared(file),
        _ => {}
    }
}

/// Length, table and sums of a prepared file that match again, as far as there is room for them.
fn mend_prepared(file: &mut [u8]) {
    fn sum(bytes: &[u8]) -> [u8; 4] {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    }
    let word = |file: &[u8], at: usize, len: usize| {
        let bytes = file.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0, |word, &byte| word << 8 | usize::from(byte))
    };
    let len = file.len();
    if len < 128 {
        return;
    }
    file[40..48].copy_from_slice(&(len as u64).to_le_bytes());
    let table = word(file, 48, 8);
    let mut at = table;
    while at < len.saturating_sub(24) && at < table + 4 * 24 {
        let (from, pixels) = (word(file, at, 8), word(file, at + 8, 4).saturating_mul(word(file, at + 12, 4)));
        if let Some(pixels) = from.checked_add(pixels.saturating_mul(3)).and_then(|end| file.get(from..end)) {
            let sum = sum(pixels);
            file[at + 20..at + 24].copy_from_slice(&sum);
        }
        at += 24;
    }
    if let Some(tail) = file.get(table..) {
        let sum = sum(tail);
        file[72..76].copy_from_slice(&sum);
    }
    let sum = sum(&file[..76]);
    file[76..80].copy_from_slice(&sum);
}
