//! Knowing data again: how many examples a part has, and a checksum over them in their order.
//!
//! A mark costs little beside training: tables and pictures in memory are gone through once (of more than a gibibyte some
//! of the examples), pictures in files count by their names and sizes, those of a prepared file by the checksums that it
//! has. It notices what changed by itself or by accident; a hand that means to deceive is not.

mod sample;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::pictures::Pictures;
use crate::split::{Content, Split};
use sample::SAMPLE;

pub use sample::Overlap;

/// Bytes in memory up to which every example is looked at.
const LOOKED_AT: usize = 1 << 30;

/// By which the examples of a part, in their order, are known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// How many there are.
    pub examples: u64,
    /// A CRC-32 of what they are and of their labels.
    pub checksum: u32,
}

/// By which a data set is known again, wherever it lies.
///
/// ```
/// use ftprop_data::{Options, Source, open};
/// let digits = open(Source::Digits, None, &Options::default())?;
/// let mark = digits.mark();
/// assert_eq!((mark.train.examples, mark.test.examples), (1438, 359));
/// assert_eq!(mark, digits.mark());
/// # Ok::<(), ftprop_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataMark {
    /// What kind of data it is: pictures in files have other marks than the same ones prepared.
    pub source: String,
    /// The examples to learn from, those for validation included.
    pub train: Mark,
    /// The examples to measure by.
    pub test: Mark,
    /// All of them together, where they come in one piece and were divided here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Mark>,
    /// Checksums of some training examples, the smallest ones in order: as many of other examples as are among these, in
    /// proportion, are among all.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "sample")]
    pub sample: Vec<u32>,
}

impl Dataset {
    /// By which these data are known again.
    pub fn mark(&self) -> DataMark {
        let source = self.name.clone();
        let sums = sums(&self.train);
        let train = mark(&self.train, &sums, positions(&self.train));
        let mut sample: Vec<u32> = marked(&self.train, &sums).collect();
        sample.sort_unstable();
        sample.dedup();
        sample.truncate(SAMPLE);
        if !self.train.shares_examples(&self.test) {
            let test = self.test.mark();
            return DataMark { source, train, test, whole: None, sample };
        }
        let test = mark(&self.test, &sums, positions(&self.test));
        let whole = Some(mark(&self.train, &sums, 0..sums.len()));
        DataMark { source, train, test, whole, sample }
    }
}

impl Dataset {
    /// How many test examples are also training examples, with the same label, to the last digit. Of pictures in files nothing is
    /// known but names and sizes, so none is counted.
    ///
    /// ```
    /// use ftprop_data::{Options, Source, open};
    /// let digits = open(Source::Digits, None, &Options::default())?;
    /// assert_eq!(digits.repeated(), 0);
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn repeated(&self) -> usize {
        if matches!(self.train.content(), Content::Files { .. }) {
            return 0;
        }
        let learned = sums(&self.train);
        let known: HashSet<u32> = marked(&self.train, &learned).collect();
        let count = |sums: &[u32]| marked(&self.test, sums).filter(|sum| known.contains(sum)).count();
        if self.train.shares_examples(&self.test) { count(&learned) } else { count(&sums(&self.test)) }
    }
}

impl Split {
    /// By which its examples are known again.
    pub fn mark(&self) -> Mark {
        mark(self, &sums(self), positions(self))
    }
}

impl DataMark {
    /// What is not as it was, in words; nothing if all is.
    ///
    /// ```
    /// # use ftprop_data::{DataMark, Mark};
    /// let mark = |examples, checksum| Mark { examples, checksum };
    /// let then = DataMark { source: "csv".into(), train: mark(120, 1), test: mark(30, 2), whole: Some(mark(150, 3)), sample: vec![] };
    /// let now = DataMark { source: "csv".into(), train: mark(144, 4), test: mark(36, 5), whole: Some(mark(180, 6)), sample: vec![] };
    /// assert_eq!(then.difference(&now).as_deref(), Some("150 examples then, 180 now"));
    /// assert_eq!(then.difference(&then), None);
    /// ```
    pub fn difference(&self, now: &DataMark) -> Option<String> {
        // Samples differ where an older program took fewer.
        if (&self.source, self.train, self.test, self.whole) == (&now.source, now.train, now.test, now.whole) {
            return None;
        }
        if self.source != now.source {
            return Some(format!("{} then, {} now", self.source, now.source));
        }
        let between = |then: Mark, now: Mark, of: &str| match then.examples == now.examples {
            true => format!("{} {of}examples then and now, but not the same ones, or in another order", now.examples),
            false => format!("{} {of}examples then, {} now", then.examples, now.examples),
        };
        if let (Some(then), Some(now)) = (self.whole, now.whole)
            && then != now
        {
            return Some(between(then, now, ""));
        }
        let parts = [(self.train, now.train, "training "), (self.test, now.test, "test ")];
        let words: Vec<String> = parts
            .into_iter()
            .filter(|(then, now, _)| then != now)
            .map(|(then, now, of)| between(then, now, of))
            .collect();
        match words.is_empty() {
            true => Some("divided into parts otherwise".into()),
            false => Some(words.join(", ")),
        }
    }

    /// The share of data in one piece that is for measuring.
    pub fn test_fraction(&self) -> Option<f64> {
        self.whole.map(|whole| self.test.examples as f64 / whole.examples.max(1) as f64)
    }
}

/// The numbers of a split's examples.
fn positions(split: &Split) -> impl Iterator<Item = usize> {
    (0..split.len()).map(|position| split.number(position))
}

/// Checksums of a split's examples with their labels, but for those that were not looked at.
fn marked(split: &Split, sums: &[u32]) -> impl Iterator<Item = u32> {
    positions(split).filter(|&number| sums[number] != 0).map(|number| {
        let mut hasher = crc32fast::Hasher::new_with_initial(sums[number]);
        hasher.update(&split.labels()[number].to_le_bytes());
        hasher.finalize()
    })
}

/// Of the examples with these numbers.
fn mark(split: &Split, sums: &[u32], numbers: impl Iterator<Item = usize>) -> Mark {
    let (mut hasher, mut examples) = (crc32fast::Hasher::new(), 0);
    for number in numbers {
        hasher.update(&split.labels()[number].to_le_bytes());
        hasher.update(&sums[number].to_le_bytes());
        examples += 1;
    }
    Mark { examples, checksum: hasher.finalize() }
}

/// A checksum of each example that was read, by number.
fn sums(split: &Split) -> Vec<u32> {
    let examples = split.labels().len();
    match split.content() {
        Content::Pixels { shape, bytes } => of_memory(bytes.get(), shape.size(), crc32fast::hash),
        Content::Floats { shape, values } => of_memory(values.get(), shape.size(), of_floats),
        Content::Files { paths, .. } => of_files(paths),
        Content::Pictures(pictures) => (0..examples).map(|number| of_picture(pictures, number)).collect(),
    }
}

/// Of examples of one size in memory.
fn of_memory<T>(values: &[T], size: usize, sum: impl Fn(&[T]) -> u32) -> Vec<u32> {
    // Of more than that it would take as long as reading a disk, and so some stand for all.
    let every = size_of_val(values).div_ceil(LOOKED_AT).max(1);
    let one = |(i, example)| if i % every == 0 { sum(example) } else { 0 };
    values.chunks_exact(size.max(1)).enumerate().map(one).collect()
}

fn of_floats(values: &[f32]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    values.iter().for_each(|value| hasher.update(&value.to_le_bytes()));
    hasher.finalize()
}

/// Of files: their names within the folder that holds them all, and how large they are.
fn of_files(paths: &[PathBuf]) -> Vec<u32> {
    let root = common_folder(paths);
    let one = |path: &PathBuf| {
        let name = path.strip_prefix(root).unwrap_or(path);
        let mut hasher = crc32fast::Hasher::new();
        for part in name {
            hasher.update(part.as_encoded_bytes());
            hasher.update(b"/");
        }
        // One that is gone or cannot be read is said to be so when it is needed.
        let bytes = fs::metadata(path).map_or(u64::MAX, |about| about.len());
        hasher.update(&bytes.to_le_bytes());
        hasher.finalize()
    };
    paths.iter().map(one).collect()
}

/// The innermost folder that all paths, which are sorted class by class, lie in.
fn common_folder(paths: &[PathBuf]) -> &Path {
    let Some(mut folder) = paths.first().and_then(|path| path.parent()) else { return Path::new("") };
    for path in paths {
        while !path.starts_with(folder) {
            folder = folder.parent().unwrap_or(Path::new(""));
        }
    }
    folder
}

/// Of a picture of a prepared file, which has a checksum of its pixels; of one in memory, those.
fn of_picture(pictures: &Pictures, number: usize) -> u32 {
    let (height, width) = pictures.size(number);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(height as u64).to_le_bytes());
    hasher.update(&(width as u64).to_le_bytes());
    match pictures.known_sum(number) {
        Some(sum) => hasher.update(&sum.to_le_bytes()),
        None => {
            let mut aside = Vec::new();
            hasher.update(pictures.pixels(number, false, &mut aside).unwrap_or_default());
        }
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HoldOut, Normalize, Shape};

    pub(super) fn table(rows: &[f32], test: usize) -> Dataset {
        let labels = (0..rows.len() as u32).map(|i| i % 2).collect();
        let all = Split::from_features(1, rows.to_vec(), labels).unwrap();
        let (train, test) = all.divide_for_test(HoldOut::Count(test)).unwrap();
        let normalize = Normalize { full: 1.0, mean: vec![0.0], std: vec![1.0] };
        let (shape, classes) = (Shape::new(1, 1, 1), vec!["a".into(), "b".into()]);
        let passed_over = Default::default();
        Dataset { name: "csv".into(), shape, classes, normalize, train, test, passed_over, table: None }
    }

    #[test]
    fn what_changed_is_noticed_and_said() {
        let rows: Vec<f32> = (0..20).map(|i| i as f32).collect();
        let mark = table(&rows, 4).mark();
        assert_eq!((mark.train.examples, mark.test.examples), (16, 4));
        assert_eq!(mark, table(&rows, 4).mark());
        let mut edited = rows.clone();
        edited[7] += 1.0;
        let mut swapped = rows.clone();
        swapped.swap(2, 6);
        for other in [&edited, &swapped] {
            let said = mark.difference(&table(other, 4).mark()).unwrap();
            assert!(said.contains("20 examples then and now, but not the same"), "{said}");
        }
        let said = mark.difference(&table(&rows[..18], 4).mark()).unwrap();
        assert_eq!(said, "20 examples then, 18 now");
        let said = mark.difference(&table(&rows, 5).mark()).unwrap();
        assert!(said.contains("16 training examples then, 15 now") && said.contains("4 test"), "{said}");
    }

    #[test]
    fn test_examples_that_were_learned_from_are_counted() {
        let rows: Vec<f32> = (0..20).map(|i| i as f32).collect();
        assert_eq!(table(&rows, 4).repeated(), 0);
        // Every row twice, with the same label; a copy may be in the other part or in the same one.
        let twice: Vec<f32> = (0..20).map(|i| (i / 4 * 2 + i % 2) as f32).collect();
        let doubled = table(&twice, 4);
        let value = |split: &Split, at: usize| split.features().map(|(values, _)| values[split.number(at)]);
        let learned: Vec<_> = (0..16).map(|at| value(&doubled.train, at)).collect();
        let expected = (0..4).filter(|&at| learned.contains(&value(&doubled.test, at))).count();
        assert!(expected > 0 && doubled.repeated() == expected, "{expected} and {}", doubled.repeated());
        let same = Dataset { test: doubled.train.clone(), ..table(&twice, 4) };
        assert_eq!(same.repeated(), 16);
    }

    #[test]
    fn labels_count_as_pixels_do() {
        let pixels = vec![7u8; 12];
        let shape = Shape::new(2, 2, 1);
        let split = Split::from_pixels(shape, pixels, vec![0, 1, 0]).unwrap();
        assert_eq!(sums(&split).len(), 3);
        let other = Split::from_pixels(shape, vec![7u8; 12], vec![0, 1, 1]).unwrap();
        assert_ne!(split.mark(), other.mark());
    }

    #[test]
    fn files_are_known_by_their_names_within_their_folder() {
        let paths = |root: &str| ["a/1.png", "a/b/2.png", "c/3.png"].map(|name| Path::new(root).join(name)).to_vec();
        assert_eq!(common_folder(&paths("/data/photos")), Path::new("/data/photos"));
        assert_eq!(of_files(&paths("/data/photos")), of_files(&paths("moved")));
        assert_ne!(of_files(&paths("x"))[0], of_files(&paths("x"))[2]);
    }
}
