//! Opening a prepared file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ftprop_files::Pages;
use ftprop_tensor::random::{Purpose, Stream};

use super::layout::{ENTRY, Entry, HEADER, Header, MAGIC, Parts, decode_names};
use crate::dataset::Dataset;
use crate::folder::TEST_FRACTION;
use crate::memory::Memory;
use crate::photo::{check_sizes, cover};
use crate::preprocess::{Normalize, Shape};
use crate::split::{Content, Split};
use crate::{DataError, Options, Source};

const WANTED: &str = "a sound file of prepared pictures";

/// Whether a file begins as a prepared one.
pub(crate) fn is_prepared(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == MAGIC
}

/// A prepared file that was opened: its table in memory, its pixels where they are.
#[derive(Debug)]
pub(crate) struct PictureFile {
    store: Store,
    pub(crate) edge: usize,
    entries: Vec<Entry>,
}

/// Where the pixels are.
#[derive(Debug)]
enum Store {
    File { path: PathBuf, pages: Pages },
    Memory(Memory<u8>),
}

impl PictureFile {
    /// Pictures of these heights and widths in memory, one after the other.
    pub(crate) fn in_memory(sizes: &[(usize, usize)], bytes: Memory<u8>) -> Result<Self, DataError> {
        let mut offset = 0;
        let mut entries = Vec::with_capacity(sizes.len());
        for &(height, width) in sizes {
            let too_large = || DataError::Option(format!("a picture of {height}×{width} pixels cannot be used"));
            let side = |side: usize| u32::try_from(side).map_err(|_| too_large());
            let entry = Entry { offset, height: side(height)?, width: side(width)?, label: 0, sum: 0 };
            offset += entry.checked_len().ok_or_else(too_large)? as u64;
            entries.push(entry);
        }
        if offset != bytes.get().len() as u64 || sizes.is_empty() {
            let why = format!("{} bytes are not {} pictures of {offset} bytes in all", bytes.get().len(), sizes.len());
            return Err(DataError::Option(why));
        }
        let edge = sizes.iter().map(|&(height, width)| height.min(width)).min().unwrap_or(0);
        Ok(PictureFile { store: Store::Memory(bytes), edge, entries })
    }

    pub(crate) fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The pixels of a picture, with `check` compared with their checksum.
    pub(crate) fn pixels<'a>(
        &'a self,
        number: usize,
        check: bool,
        aside: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DataError> {
        let entry = &self.entries[number];
        let (path, pages) = match &self.store {
            Store::File { path, pages } => (path, pages),
            Store::Memory(bytes) => return Ok(&bytes.get()[entry.offset as usize..][..entry.len()]),
        };
        let pixels = pages.get(entry.offset, entry.len(), aside)?;
        if check && crc32fast::hash(pixels) != entry.sum {
            let why = format!("the pixels of picture {number} (counted from 0) are damaged; make it again");
            return Err(damaged(path, &why));
        }
        Ok(pixels)
    }
}

/// Pictures of different sizes, RGB, in a prepared file or in memory, for devices that make batches themselves. Numbers are
/// those of a split's examples, see [`Split`].
#[derive(Clone, Debug)]
pub struct Pictures {
    pub(crate) file: Arc<PictureFile>,
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) resize: Option<usize>,
}

impl Pictures {
    /// How many there are, in the whole part that the split was taken from.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Height and width of a picture.
    pub fn size(&self, number: usize) -> (usize, usize) {
        let entry = self.file.entry(self.first + number);
        (entry.height as usize, entry.width as usize)
    }

    /// Bytes of a picture.
    pub fn bytes(&self, number: usize) -> usize {
        self.file.entry(self.first + number).len()
    }

    /// Height and width of a picture after its shorter edge was resized, if it is, as a window of this shape is cut from it;
    /// `None` where it is too long and thin for that.
    pub fn resized(&self, number: usize, window: Shape) -> Option<(usize, usize)> {
        let (height, width) = self.size(number);
        self.resize.map_or(Some((height, width)), |edge| cover(height, width, window, edge))
    }

    /// What the shorter edge is resized to before a window is cut; `None` where it is left as it is.
    pub fn resize(&self) -> Option<usize> {
        self.resize
    }

    /// The pixels of a picture, RGB; `aside` may hold them. With `check` they are compared with their checksum.
    pub fn pixels<'a>(&'a self, number: usize, check: bool, aside: &'a mut Vec<u8>) -> Result<&'a [u8], DataError> {
        self.file.pixels(self.first + number, check, aside)
    }
}

fn damaged(path: &Path, why: &str) -> DataError {
    DataError::Format { path: path.to_owned(), wanted: WANTED, why: why.to_owned() }
}

pub(crate) fn open(path: &Path, options: &Options) -> Result<Dataset, DataError> {
    let (header, names, file) = read(path)?;
    let edge = file.edge;
    let (resize, default) = (options.resize.filter(|&resize| resize != edge), edge - edge / 8);
    let crop = options.crop.unwrap_or_else(|| resize.map_or(default, |resize| resize - resize / 8));
    let shape = Shape::new(crop, crop, 3);
    check_sizes(resize.unwrap_or(edge), shape)?;
    let classes = options.known.as_ref().map_or_else(|| names.clone(), |known| known.classes.clone());
    let relabelled = names.iter().map(|name| classes.iter().position(|class| class == name)).collect::<Vec<_>>();
    let file = Arc::new(file);
    let part = |first: usize, count: usize| -> Result<Split, DataError> {
        let label = |entry: &Entry| {
            relabelled[entry.label as usize]
                .map(|label| label as u32)
                .ok_or_else(|| DataError::UnknownClass { path: path.join(&names[entry.label as usize]) })
        };
        let labels = file.entries[first..first + count].iter().map(label).collect::<Result<Vec<_>, _>>()?;
        let pictures = Pictures { file: file.clone(), first, count, resize };
        Ok(Split::new(Content::Pictures(pictures), labels, shape))
    };
    let [train, test] = header.examples.map(|count| count as usize);
    let (train, test) = match header.parts {
        Parts::Two => (part(0, train)?, part(train, test)?),
        Parts::One if options.whole => {
            let all = part(0, train)?;
            (all.clone(), all)
        }
        // As the folder itself is divided.
        Parts::One => part(0, train)?.divide_each_class(TEST_FRACTION, Stream::new(0, Purpose::Split, 1))?,
    };
    let (name, normalize) = (Source::Prepared.to_string(), Normalize::imagenet());
    let passed_over = Default::default();
    Dataset { name, shape, classes, normalize, train, test, passed_over, table: None }.crop_to(crop)
}

/// A file's header, the names of its classes and its pictures, all of it checked but the pixels, which are when they are
/// first used.
fn read(path: &Path) -> Result<(Header, Vec<String>, PictureFile), DataError> {
    let wrong = |why: &str| damaged(path, why);
    let pages = Pages::open(path)?;
    let mut aside = Vec::new();
    if pages.len() < HEADER as u64 {
        return Err(wrong("it is shorter than a header"));
    }
    let header: [u8; HEADER] = {
        let head = pages.get(0, HEADER, &mut aside)?;
        std::array::from_fn(|i| head[i])
    };
    let header = Header::decode(&header).map_err(|why| wrong(&why))?;
    if header.bytes == 0 {
        return Err(wrong("it was not finished; prepare the same folder again, which goes on with it"));
    }
    if header.bytes != pages.len() {
        let why = format!("{} bytes of {} are there", pages.len(), header.bytes);
        return Err(DataError::Truncated { path: path.to_owned(), why });
    }
    let count = header.examples[0].checked_add(header.examples[1]);
    let table = count.and_then(|count| count.checked_mul(ENTRY as u64)).filter(|&table| {
        let end = header.table.checked_add(table);
        end == Some(header.names) && header.names <= header.bytes && header.table >= HEADER as u64
    });
    let Some(table) = table else { return Err(wrong("its table does not lie where it says; make it again")) };
    if header.examples[0] == 0 || (header.parts == Parts::Two) == (header.examples[1] == 0) {
        return Err(wrong("a part of it has no pictures; make it again"));
    }
    if u32::try_from(count.unwrap_or(u64::MAX)).is_err() {
        return Err(wrong("it has more pictures than are read"));
    }
    // All of it lies in the file, so it is no larger than that.
    let tail = pages.get(header.table, (header.bytes - header.table) as usize, &mut aside)?;
    if crc32fast::hash(tail) != header.table_sum {
        return Err(wrong("its table is damaged; make it again"));
    }
    let (table, names) = tail.split_at(table as usize);
    let names = decode_names(names, header.classes).ok_or_else(|| wrong("its classes are damaged; make it again"))?;
    let entries: Vec<Entry> = table.chunks_exact(ENTRY).map(Entry::decode).collect();
    for (number, entry) in entries.iter().enumerate() {
        let end = entry.checked_len().and_then(|len| entry.offset.checked_add(len as u64));
        let inside = entry.offset >= HEADER as u64 && end.is_some_and(|end| end <= header.table);
        if !inside || entry.height.min(entry.width) != header.edge {
            return Err(wrong(&format!("its picture {number} does not lie in it; make it again")));
        }
        if entry.label >= header.classes {
            let (label, classes) = (entry.label, header.classes as usize);
            return Err(DataError::Label { path: path.to_owned(), example: number, label, classes });
        }
    }
    let file = PictureFile { store: Store::File { path: path.to_owned(), pages }, edge: header.edge as usize, entries };
    Ok((header, names, file))
}
