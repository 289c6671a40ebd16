//! CIFAR-10 and CIFAR-100 in the official binary version.
//!
//! A record is one label byte (CIFAR-100: the coarse label, then the fine one, which is used) and 3,072 pixels,
//! channel by channel; in memory a picture is NHWC. The path is the folder of the `.bin` files, its parent, the
//! `.tar.gz` as downloaded, or the folder that holds it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::dataset::Dataset;
use crate::error::too_much;
use crate::memory::Memory;
use crate::preprocess::{Normalize, Shape};
use crate::split::{Content, Split};
use crate::{DataError, Source, bytes};

const SHAPE: Shape = Shape::new(32, 32, 3);

/// What is different between the two.
struct Variant {
    source: Source,
    title: &'static str,
    folder: &'static str,
    archive: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    names: &'static str,
    /// Bytes of labels before the pixels; the last one is used.
    label_bytes: usize,
    classes: &'static [&'static str],
    mean: [f32; 3],
    std: [f32; 3],
}

const CIFAR10: Variant = Variant {
    source: Source::Cifar10,
    title: "CIFAR-10",
    folder: "cifar-10-batches-bin",
    archive: "cifar-10-binary.tar.gz",
    train: &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
    test: "test_batch.bin",
    names: "batches.meta.txt",
    label_bytes: 1,
    classes: &["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
    mean: [0.491_399_68, 0.482_158_41, 0.446_530_9],
    std: [0.247_032_23, 0.243_485_13, 0.261_587_84],
};

const CIFAR100: Variant = Variant {
    source: Source::Cifar100,
    title: "CIFAR-100",
    folder: "cifar-100-binary",
    archive: "cifar-100-binary.tar.gz",
    train: &["train.bin"],
    test: "test.bin",
    names: "fine_label_names.txt",
    label_bytes: 2,
    classes: &FINE_LABELS,
    mean: [0.507_075_16, 0.486_548_87, 0.440_917_84],
    std: [0.267_334_29, 0.256_438_46, 0.276_150_47],
};

#[rustfmt::skip]
const FINE_LABELS: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
];

pub(crate) fn open10(path: &Path) -> Result<Dataset, DataError> {
    open(&CIFAR10, path)
}

pub(crate) fn open100(path: &Path) -> Result<Dataset, DataError> {
    open(&CIFAR100, path)
}

/// Which of the two has its files in a folder, if any.
pub(crate) fn in_folder(path: &Path) -> Option<Source> {
    let holds = |variant: &&Variant| {
        let folders = [path.to_owned(), path.join(variant.folder)];
        let file = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
        variant.train.iter().any(|name| file(name)) && (file(variant.test) || file(variant.names))
            || path.join(variant.archive).is_file()
    };
    [&CIFAR10, &CIFAR100].into_iter().find(holds).map(|variant| variant.source)
}

/// Which of the two has its files in an archive, if any: the first file with a known name tells.
pub(crate) fn in_archive(path: &Path) -> Result<Option<Source>, DataError> {
    let mut archive = tar::Archive::new(bytes::Unpacked::open(path)?);
    let Ok(entries) = archive.entries() else { return Ok(None) };
    for entry in entries {
        // What is wrong with the archive is said when it is opened.
        let Ok(entry) = entry else { return Ok(None) };
        let name = entry.path().ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned())).unwrap_or_default();
        let holds = |variant: &&Variant| variant.train.contains(&name.as_str()) || variant.test == name;
        if let Some(variant) = [&CIFAR10, &CIFAR100].into_iter().find(holds) {
            return Ok(Some(variant.source));
        }
    }
    Ok(None)
}

fn open(variant: &Variant, path: &Path) -> Result<Dataset, DataError> {
    let files = Files::find(variant, path)?;
    let names = files.read(variant.names).map_or_else(|_| Vec::new(), |text| class_names(&text));
    let classes = if names.len() == variant.classes.len() {
        names
    } else {
        variant.classes.iter().map(|&name| name.to_owned()).collect()
    };
    let split = |names: &[&str]| {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for name in names {
            parse(variant, &files.place(name), &files.read(name)?, &mut pixels, &mut labels)?;
        }
        Ok::<_, DataError>(Split::new(Content::Pixels { shape: SHAPE, bytes: Memory::new(pixels) }, labels, SHAPE))
    };
    Ok(Dataset {
        name: variant.source.to_string(),
        shape: SHAPE,
        classes,
        normalize: Normalize::pixels(&variant.mean, &variant.std),
        train: split(variant.train)?,
        test: split(&[variant.test])?,
        passed_over: Default::default(),
        table: None,
    })
}

/// The names in a text file, one a line; CIFAR-10's ends in an empty one.
fn class_names(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Appends the records of one file.
fn parse(
    variant: &Variant,
    place: &Path,
    bytes: &[u8],
    pixels: &mut Vec<u8>,
    labels: &mut Vec<u32>,
) -> Result<(), DataError> {
    let record = variant.label_bytes + SHAPE.size();
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        let why = format!("{} bytes are not a whole number of records of {record}", bytes.len());
        return Err(DataError::Truncated { path: place.to_owned(), why });
    }
    let plane = SHAPE.height * SHAPE.width;
    pixels.reserve(bytes.len() / record * SHAPE.size());
    for (example, record) in bytes.chunks_exact(record).enumerate() {
        let (label, planes) = record.split_at(variant.label_bytes);
        let label = u32::from(label[variant.label_bytes - 1]);
        if label as usize >= variant.classes.len() {
            let (path, classes) = (place.to_owned(), variant.classes.len());
            return Err(DataError::Label { path, example, label, classes });
        }
        labels.push(label);
        let (red, rest) = planes.split_at(plane);
        let (green, blue) = rest.split_at(plane);
        pixels.extend(red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]));
    }
    Ok(())
}

/// Where the files are: in a folder, or already read from an archive.
enum Files {
    Folder(PathBuf),
    Archive { path: PathBuf, files: HashMap<String, Vec<u8>> },
}

impl Files {
    fn find(variant: &Variant, path: &Path) -> Result<Files, DataError> {
        if path.is_file() {
            return Files::unpack(variant, path);
        }
        let folders = [path.to_owned(), path.join(variant.folder)];
        // A folder with any of the files is meant, so that one file missing from it is reported by name.
        let holds_some = |folder: &&PathBuf| variant.train.iter().any(|name| folder.join(name).is_file());
        if let Some(folder) = folders.iter().find(holds_some) {
            let files = variant.train.iter().chain([&variant.test]);
            let missing: Vec<&str> = files.filter(|name| !folder.join(name).exists()).copied().collect();
            return match missing.is_empty() {
                true => Ok(Files::Folder(folder.clone())),
                false => Err(DataError::Incomplete {
                    dataset: variant.title,
                    path: folder.clone(),
                    missing: missing.join(", "),
                }),
            };
        }
        let archive = path.join(variant.archive);
        if archive.is_file() {
            return Files::unpack(variant, &archive);
        }
        let wanted = format!("the binary version ({} or {})", variant.train[0], variant.archive);
        Err(DataError::Missing { dataset: variant.title.into(), wanted, places: folders.into() })
    }

    /// Reads the wanted files of an archive into memory.
    fn unpack(variant: &Variant, path: &Path) -> Result<Files, DataError> {
        let broken = |why: io::Error| match why.kind() {
            // The archive reader's own complaints quote the bytes it did not understand.
            io::ErrorKind::Other if too_much(&why).is_none() => DataError::Format {
                path: path.to_owned(),
                wanted: "a tar archive, gzipped or not",
                why: "it is damaged or something else".into(),
            },
            _ => DataError::read(path, why),
        };
        // A sparse archive holds files that are larger than itself.
        let size = fs::metadata(path).map_err(broken)?.len();
        let mut left = bytes::room(size);
        let wanted = |name: &str| variant.train.contains(&name) || name == variant.test || name == variant.names;
        let mut files = HashMap::new();
        let mut archive = tar::Archive::new(bytes::Unpacked::open(path)?);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let name = entry.path().ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned()));
            if let Some(name) = name.filter(|name| wanted(name)) {
                let mut content = Vec::new();
                entry.by_ref().take(left.saturating_add(1)).read_to_end(&mut content).map_err(broken)?;
                left = left
                    .checked_sub(content.len() as u64)
                    .ok_or_else(|| DataError::UnpacksTooLarge { path: path.to_owned(), room: bytes::room(size) })?;
                files.insert(name, content);
            }
        }
        Ok(Files::Archive { path: path.to_owned(), files })
    }

    /// What to call a file in a message.
    fn place(&self, name: &str) -> PathBuf {
        match self {
            Files::Folder(folder) => folder.join(name),
            Files::Archive { path, .. } => path.join(name),
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DataError> {
        match self {
            Files::Folder(folder) => bytes::read(&folder.join(name)),
            Files::Archive { path, files } => files.get(name).cloned().ok_or_else(|| DataError::Missing {
                dataset: name.into(),
                wanted: "it".into(),
                places: vec![path.clone()],
            }),
        }
    }
}
