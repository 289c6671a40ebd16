//! MNIST and Fashion-MNIST: IDX files, gzipped or not.
//!
//! The path is the folder with the four files or one above it; both spellings of their names are known
//! (`train-images-idx3-ubyte` and `train-images.idx3-ubyte`, with or without `.gz`).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::dataset::Dataset;
use crate::memory::Memory;
use crate::preprocess::{Normalize, Shape};
use crate::split::{Content, Split};
use crate::{DataError, Source, bytes};

/// Unsigned bytes of three and of one dimension.
const IMAGES: u32 = 0x0803;
const LABELS: u32 = 0x0801;

pub(crate) fn open_mnist(path: &Path) -> Result<Dataset, DataError> {
    let classes = (0..10).map(|d| d.to_string()).collect();
    open(Source::Mnist, "MNIST", &["mnist", "MNIST", "MNIST/raw", "raw"], classes, (0.1307, 0.3081), path)
}

pub(crate) fn open_fashion(path: &Path) -> Result<Dataset, DataError> {
    let folders = ["fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "raw"];
    let classes =
        ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];
    let classes = classes.map(str::to_owned).into();
    open(Source::FashionMnist, "Fashion-MNIST", &folders, classes, (0.286, 0.353), path)
}

/// The places below a folder where either data set may lie.
const FOLDERS: [&str; 7] = ["mnist", "MNIST", "MNIST/raw", "raw", "fashion-mnist", "FashionMNIST", "FashionMNIST/raw"];

/// Whether a folder, or a usual one below it, holds pictures of either.
pub(crate) fn in_folder(path: &Path) -> bool {
    let places = std::iter::once(path.to_owned()).chain(FOLDERS.map(|folder| path.join(folder)));
    places.into_iter().any(|place| file_in(&place, "train-images-idx3-ubyte").is_some())
}

/// The file of this name in a folder, in any spelling.
fn file_in(place: &Path, stem: &str) -> Option<PathBuf> {
    let spellings = ["-idx", ".idx"].map(|dash| stem.replacen("-idx", dash, 1));
    let names = spellings.iter().flat_map(|name| [name.clone(), format!("{name}.gz")]);
    names.map(|name| place.join(name)).find(|file| file.is_file())
}

fn open(
    source: Source,
    title: &str,
    folders: &[&str],
    classes: Vec<String>,
    (mean, std): (f32, f32),
    path: &Path,
) -> Result<Dataset, DataError> {
    let places: Vec<PathBuf> =
        std::iter::once(path.to_owned()).chain(folders.iter().map(|folder| path.join(folder))).collect();
    let find = |stem: &str| {
        places.iter().find_map(|place| file_in(place, stem)).ok_or_else(|| DataError::Missing {
            dataset: title.into(),
            wanted: format!("{stem} or {stem}.gz"),
            places: places.clone(),
        })
    };
    let split = |part: &str| {
        let images = find(&format!("{part}-images-idx3-ubyte"))?;
        let labels = find(&format!("{part}-labels-idx1-ubyte"))?;
        read(&images, &labels, classes.len())
    };
    let (train, test) = (split("train")?, split("t10k")?);
    if train.shape() != test.shape() {
        let (a, b) = (train.shape(), test.shape());
        return Err(DataError::Option(format!(
            "{title}: training pictures are {}×{} but test pictures {}×{}",
            a.height, a.width, b.height, b.width
        )));
    }
    let normalize = Normalize::pixels(&[mean], &[std]);
    Ok(Dataset {
        name: source.to_string(),
        shape: train.shape(),
        classes,
        normalize,
        train,
        test,
        passed_over: Default::default(),
        table: None,
    })
}

fn read(images: &Path, labels: &Path, classes: usize) -> Result<Split, DataError> {
    let (sizes, pixels) = array::<3>(images, IMAGES)?;
    let ([count], label_bytes) = array::<1>(labels, LABELS)?;
    if count != sizes[0] {
        let why = format!("{count} labels for the {} pictures of {}", sizes[0], images.display());
        return Err(DataError::Format { path: labels.to_owned(), wanted: "the labels that belong here", why });
    }
    if pixels.is_empty() {
        return Err(DataError::Empty { what: images.display().to_string() });
    }
    let numbers = label_bytes.iter().map(|&label| u32::from(label)).collect::<Vec<_>>();
    if let Some((example, &label)) = numbers.iter().enumerate().find(|&(_, &label)| label as usize >= classes) {
        return Err(DataError::Label { path: labels.to_owned(), example, label, classes });
    }
    let shape = Shape::new(sizes[1], sizes[2], 1);
    Ok(Split::new(Content::Pixels { shape, bytes: Memory::new(pixels) }, numbers, shape))
}

/// The sizes and bytes of an IDX file of `D` dimensions.
fn array<const D: usize>(path: &Path, magic: u32) -> Result<([usize; D], Vec<u8>), DataError> {
    let mut file = bytes::Unpacked::open(path)?;
    let failed = |why| DataError::read(path, why);
    let mut header = Vec::new();
    file.by_ref().take(4 * (1 + D as u64)).read_to_end(&mut header).map_err(failed)?;
    let word = |i: usize| Some(u32::from_be_bytes(header.get(4 * i..4 * i + 4)?.try_into().ok()?));
    let truncated = |why: String| DataError::Truncated { path: path.to_owned(), why };
    let short = || truncated(format!("{} bytes hold no IDX header", header.len()));
    let found = word(0).ok_or_else(short)?;
    if found != magic {
        let why = format!("its first four bytes are {found:#010x}, not {magic:#010x}");
        return Err(DataError::Format { path: path.to_owned(), wanted: "an IDX file of this kind", why });
    }
    let mut sizes = [0; D];
    for (d, size) in sizes.iter_mut().enumerate() {
        *size = word(1 + d).ok_or_else(short)? as usize;
    }
    // Of what follows no more is taken into memory than was announced.
    let announced = sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(size as u64)).unwrap_or(u64::MAX);
    let mut values = Vec::new();
    file.by_ref().take(announced).read_to_end(&mut values).map_err(failed)?;
    if (values.len() as u64) < announced {
        let announced = sizes.map(|size| size.to_string()).join(" × ");
        return Err(truncated(format!("its header announces {announced} bytes, {} follow", values.len())));
    }
    let more = io::copy(&mut file, &mut io::sink()).map_err(failed)?;
    if more > 0 {
        let why = format!("{} bytes follow its header, which announces {announced}", announced.saturating_add(more));
        return Err(DataError::Format { path: path.to_owned(), wanted: "an IDX file of this kind", why });
    }
    Ok((sizes, values))
}
