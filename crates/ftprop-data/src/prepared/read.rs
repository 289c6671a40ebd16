//! Opening a prepared file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ftprop_files::Pages;
use ftprop_tensor::random::{Purpose, Stream};

use super::layout::{ENTRY, HEADER, Header, MAGIC, Parts, decode_names};
use crate::dataset::Dataset;
use crate::folder::TEST_FRACTION;
use crate::pictures::{Entry, PictureFile, Pictures, damaged};
use crate::preprocess::{Normalize, Shape};
use crate::sizes::check_sizes;
use crate::split::{Content, Split};
use crate::{DataError, Options, Source};

/// Whether a file begins as a prepared one.
pub(crate) fn is_prepared(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == MAGIC
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
        let labels = (first..first + count).map(|number| label(file.entry(number))).collect::<Result<Vec<_>, _>>()?;
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
    let file = PictureFile::in_file(path, pages, header.edge as usize, entries);
    Ok((header, names, file))
}
