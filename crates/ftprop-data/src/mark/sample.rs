//! Some training examples that stand for all: how many of other examples were learned from.
//!
//! They are those with the smallest checksums. So of other examples whose checksums are as small it is certain whether they
//! were learned from, and their share stands for that of the others.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use super::{DataMark, marked, sums};
use crate::split::Split;

/// How many training examples stand for all.
pub(super) const SAMPLE: usize = 1024;
/// How many do so in files that are to be small.
const FEW: usize = 256;
/// How many did so in older files.
const ONCE: usize = 64;
/// Hexadecimal digits of a checksum.
const DIGITS: usize = 8;

/// How many of some examples were learned from, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How many examples there are.
    pub examples: u64,
    /// Of how many it is known whether they were learned from.
    pub known: u64,
    /// How many of these were.
    pub learned: u64,
    /// Among so many that were learned from they were looked for.
    pub looked_for: u64,
}

impl Overlap {
    /// Whether it is known of all of them.
    pub fn is_exact(&self) -> bool {
        self.known == self.examples
    }

    /// Whether so many were not found by chance alone: checksums of 32 bits are the same now and then.
    pub fn is_clear(&self) -> bool {
        let chance = self.known as f64 * self.looked_for as f64 / 2f64.powi(32);
        self.learned as f64 > if chance < 0.01 { 0.0 } else { 3.0 + 3.0 * chance }
    }

    /// About which share of them was learned from.
    pub fn share(&self) -> f64 {
        self.learned as f64 / self.known.max(1) as f64
    }
}

impl DataMark {
    /// How many of other examples of the same kind are training examples.
    pub fn overlap(&self, others: &Split) -> Overlap {
        let most = if self.samples_all() { u32::MAX } else { self.sample.last().copied().unwrap_or(0) };
        let looked_for = self.sample.len() as u64;
        let mut overlap = Overlap { examples: others.len() as u64, known: 0, learned: 0, looked_for };
        for sum in marked(others, &sums(others)).filter(|&sum| sum <= most) {
            overlap.known += 1;
            overlap.learned += u64::from(self.sample.binary_search(&sum).is_ok());
        }
        overlap
    }

    /// The same with fewer examples that stand for all, for files that are to be small.
    pub fn brief(&self) -> DataMark {
        let mut brief = self.clone();
        brief.sample.truncate(FEW);
        brief
    }

    /// Whether the sample holds all training examples. What is there twice it holds once, so it may be shorter than they are many;
    /// one of a length at which samples end may have lost others.
    fn samples_all(&self) -> bool {
        let count = self.sample.len();
        count as u64 == self.train.examples || ![0, ONCE, FEW, SAMPLE].contains(&count)
    }
}

/// As one text, which takes less room than numbers.
pub(super) fn serialize<S: Serializer>(sample: &[u32], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&sample.iter().map(|sum| format!("{sum:0DIGITS$x}")).collect::<String>())
}

/// From such a text, or the numbers of older files.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Numbers(Vec<u32>),
    }
    let mut sample = match Written::deserialize(from)? {
        Written::Text(text) => {
            let sum = |digits: &[u8]| {
                let whole = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
                let digits = std::str::from_utf8(digits).ok().filter(|_| whole);
                digits.and_then(|digits| u32::from_str_radix(digits, 16).ok())
            };
            let sums = text.as_bytes().chunks(DIGITS).map(sum).collect::<Option<Vec<u32>>>();
            sums.ok_or_else(|| D::Error::custom("a sample of checksums has eight hexadecimal digits for each"))?
        }
        Written::Numbers(numbers) => numbers,
    };
    // They are looked for by halves.
    sample.sort_unstable();
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;
    use crate::Dataset;

    fn rows(range: std::ops::Range<u32>) -> Vec<f32> {
        range.map(|i| i as f32).collect()
    }

    /// All rows of a table, of which a label is the number's last bit.
    fn whole(rows: &[f32]) -> Split {
        let Dataset { train, .. } = table(rows, 1);
        train.parts(&vec![false; rows.len() - 1]).0
    }

    /// Among millions of rows some have the checksum of a training row by chance.
    #[test]
    fn a_few_of_millions_are_found_by_chance() {
        let found = |examples, learned| Overlap { examples, known: examples, learned, looked_for: 1000 }.is_clear();
        assert!(!found(3_000_000, 2) && found(3_000_000, 40) && found(3_000_000, 3_000_000));
        assert!(!found(500, 0) && found(500, 1));
    }

    #[test]
    fn of_few_training_examples_each_is_known() {
        let data = table(&rows(0..1000), 200);
        let mark = data.mark();
        assert_eq!(mark.sample.len(), 800);
        assert_eq!(mark.overlap(&data.test), Overlap { examples: 200, known: 200, learned: 0, looked_for: 800 });
        let grown: Vec<f32> = rows(0..1000).into_iter().chain(rows(5000..5500)).collect();
        let found = mark.overlap(&whole(&grown));
        assert!(found.is_exact() && (799..=800).contains(&found.learned) && found.examples == 1499, "{found:?}");
        // Of those that are there twice it is known as well.
        let doubled: Vec<f32> = rows(0..400).into_iter().chain(rows(0..400)).collect();
        let found = table(&doubled, 2).mark().overlap(&whole(&grown));
        assert!(found.is_exact() && (399..=400).contains(&found.learned), "{found:?}");
    }

    #[test]
    fn of_many_training_examples_some_stand_for_all() {
        let mark = table(&rows(0..20_000), 4000).mark();
        assert_eq!(mark.sample.len(), SAMPLE);
        let share = |rows: &[f32]| {
            let found = mark.overlap(&whole(rows));
            assert!(!found.is_exact() && found.share() <= 1.0, "{found:?}");
            found.share()
        };
        // Two in five are among those to learn from.
        let mixed: Vec<f32> = rows(0..2000).into_iter().chain(rows(30_000..32_000)).collect();
        assert!((share(&mixed) - 0.4).abs() < 0.12, "{}", share(&mixed));
        assert!((share(&rows(0..2000)) - 0.8).abs() < 0.12, "{}", share(&rows(0..2000)));
        assert_eq!(share(&rows(30_000..32_000)), 0.0);
        assert_eq!(mark.overlap(&table(&rows(0..20_000), 4000).test).learned, 0);
    }

    #[test]
    fn a_sample_is_short_and_older_ones_are_read() {
        let mark = table(&rows(0..20_000), 4000).mark();
        let kept = serde_json::to_string(&mark).unwrap();
        assert!(kept.len() < 9 * SAMPLE, "{}", kept.len());
        assert_eq!(serde_json::from_str::<DataMark>(&kept).unwrap(), mark);
        let small = table(&rows(0..10), 2).mark();
        let numbers = serde_json::to_string(&small.sample).unwrap();
        let kept = serde_json::to_string(&small).unwrap();
        let text = kept[kept.find("\"sample\":").unwrap() + 9..].trim_end_matches('}');
        assert_eq!(text.len(), 8 * 8 + 2, "{text}");
        assert_eq!(serde_json::from_str::<DataMark>(&kept.replace(text, &numbers)).unwrap(), small);
        for wrong in ["\"0\"", "\"0123456g\"", "\"012345678\"", "\"+1234567\"", "7"] {
            assert!(serde_json::from_str::<DataMark>(&kept.replace(text, wrong)).is_err(), "{wrong}");
        }
        // A file without one, and an older one's of which others may be missing.
        let none = DataMark { sample: vec![], ..small.clone() };
        assert_eq!(serde_json::from_str::<DataMark>(&serde_json::to_string(&none).unwrap()).unwrap(), none);
        assert_eq!(none.overlap(&whole(&rows(0..10))).known, 0);
        let brief = mark.brief();
        assert!(brief.sample == mark.sample[..FEW] && !brief.samples_all() && small.brief() == small);
        let share = brief.overlap(&whole(&rows(0..20_000))).share();
        assert!((share - 0.8).abs() < 0.15, "{share}");
        let older = DataMark { sample: mark.sample[..ONCE].to_vec(), ..mark.clone() };
        assert!(!older.samples_all() && older.difference(&mark).is_none());
    }
}
