//! The digits that come with the program: 1,797 grey 8×8 pictures of handwritten digits.
//!
//! E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository,
//! CC BY 4.0; see `data/ATTRIBUTION.md`. The file does not say which rows are for testing, so one fifth of
//! them is held out at random, the same for every run: the first 359 of the permutation of
//! `Stream::new(0, Purpose::Split, 1)`. (Every fifth row would not do: the labels come in cycles of ten.)

use std::path::Path;

use crate::dataset::Dataset;
use crate::memory::Memory;
use crate::preprocess::{Normalize, Shape};
use crate::split::{Content, HoldOut, Split};
use crate::{DataError, Source, bytes};

static FILE: &[u8] = include_bytes!("../data/digits.csv.gz");
const NAME: &str = "digits.csv.gz (built in)";
const SHAPE: Shape = Shape::new(8, 8, 1);
const TEST: HoldOut = HoldOut::Count(359);
/// Mean and deviation of all pixels of the training part, divided by 16.
const MEAN: f32 = 0.305;
const STD: f32 = 0.376;

pub(crate) fn open() -> Result<Dataset, DataError> {
    let broken = |why: String| DataError::Format { path: NAME.into(), wanted: "the digits", why };
    let text = bytes::unpack(FILE).map_err(|why| DataError::read(Path::new(NAME), why))?;
    let text = String::from_utf8(text).map_err(|why| broken(why.to_string()))?;
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let row: Result<Vec<u8>, _> = line.split(',').map(str::parse).collect();
        match row.as_deref() {
            Ok([values @ .., label]) if values.len() == SHAPE.size() && *label < 10 => {
                pixels.extend_from_slice(values);
                labels.push(u32::from(*label));
            }
            _ => return Err(broken(format!("row `{line}`"))),
        }
    }
    let (train, test) = Split::new(Content::Pixels { shape: SHAPE, bytes: Memory::new(pixels) }, labels, SHAPE)
        .divide_for_test(TEST)?;
    Ok(Dataset {
        name: Source::Digits.to_string(),
        shape: SHAPE,
        classes: (0..10).map(|d| d.to_string()).collect(),
        normalize: Normalize { full: 16.0, mean: vec![MEAN], std: vec![STD] },
        train,
        test,
        passed_over: Default::default(),
        table: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_whole_and_normalised_by_their_own_training_part() {
        let digits = open().unwrap();
        assert_eq!((digits.train.len(), digits.test.len()), (1438, 359));
        // Every class is in both parts, in fair shares: about 36 of each are held out.
        for class in 0..10 {
            let count = |split: &Split| (0..split.len()).filter(|&i| split.label(i) == class).count();
            assert!((20..=52).contains(&count(&digits.test)), "{class}: {}", count(&digits.test));
            assert!(count(&digits.train) > 100);
        }
        let (bytes, _) = digits.train.bytes().unwrap();
        assert!(bytes.iter().all(|&b| b <= 16));
        let values: Vec<f64> = (0..digits.train.len())
            .flat_map(|i| &bytes[digits.train.number(i) * 64..][..64])
            .map(|&b| f64::from(b) / 16.0)
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!((mean - f64::from(MEAN)).abs() < 1e-3 && (std - f64::from(STD)).abs() < 1e-3, "{mean} {std}");
    }
}
