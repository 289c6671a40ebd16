//! Instances with real inputs, and their labels.

use std::sync::{Arc, OnceLock};

use crate::error::SearchError;
use crate::rational::Rational;
use crate::whole::{Decimal, Whole};

/// Instances as rows of finite numbers. The bias input, a constant 1, is not stored: a unit over `inputs`
/// features has `inputs + 1` weights, the bias last.
///
/// What is proved is proved about the numbers as they were given, decimals and long whole numbers included; the floats
/// that [`Points::row`] shows are the nearest ones.
#[derive(Clone, Debug)]
pub struct Points {
    inputs: usize,
    values: Vec<f64>,
    /// The numbers exactly: made from the floats when they are first needed, unless those are not exact.
    whole: OnceLock<Arc<Whole>>,
    exact: bool,
}

impl PartialEq for Points {
    fn eq(&self, other: &Self) -> bool {
        let floats = self.inputs == other.inputs && self.values == other.values;
        floats && ((self.exact && other.exact) || self.whole() == other.whole())
    }
}

impl Points {
    /// Instances from one row-major array.
    pub fn new(inputs: usize, values: Vec<f64>) -> Result<Self, SearchError> {
        if inputs == 0 {
            return Err(SearchError::NoInputs);
        }
        if values.is_empty() {
            return Err(SearchError::Empty);
        }
        if !values.len().is_multiple_of(inputs) {
            let row = values.len() / inputs + 1;
            return Err(SearchError::Ragged { row, found: values.len() % inputs, expected: inputs });
        }
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let (row, column) = (at / inputs + 1, at % inputs + 1);
            return Err(SearchError::NotFinite { row, column, text: values[at].to_string() });
        }
        Ok(Points { inputs, values, whole: OnceLock::new(), exact: true })
    }

    /// Instances that are whole numbers divided by one number for all, such as pixels, row after row.
    pub fn from_ratios(inputs: usize, numbers: Vec<i64>, scale: u32) -> Result<Self, SearchError> {
        let values = numbers.iter().map(|&number| number as f64 / f64::from(scale)).collect();
        let points = Points::new(inputs, values)?;
        let whole = OnceLock::from(Arc::new(Whole::from_ratios(inputs, numbers, scale)));
        Ok(Points { whole, exact: false, ..points })
    }

    /// Instances that are fractions, row after row.
    pub fn from_rationals(inputs: usize, values: &[Rational]) -> Result<Self, SearchError> {
        let points = Points::new(inputs, values.iter().map(Rational::approximate).collect())?;
        let whole = OnceLock::from(Arc::new(Whole::from_rationals(inputs, values)));
        Ok(Points { whole, exact: false, ..points })
    }

    /// Instances from decimals as they are written, row after row: not rounded, whatever floats could hold of them.
    pub fn from_written(inputs: usize, numbers: &[impl AsRef<str>]) -> Result<Self, SearchError> {
        let read = |at: usize, text: &str| {
            let place = (at / inputs.max(1) + 1, at % inputs.max(1) + 1);
            read_number(text, place)
        };
        let both =
            numbers.iter().enumerate().map(|(at, text)| read(at, text.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let (values, decimals): (Vec<f64>, Vec<Decimal>) = both.into_iter().unzip();
        Points::from_decimals(inputs, &decimals, values)
    }

    /// Instances from decimals and the floats nearest to them.
    pub(crate) fn from_decimals(inputs: usize, decimals: &[Decimal], values: Vec<f64>) -> Result<Self, SearchError> {
        let points = Points::new(inputs, values)?;
        let whole = OnceLock::from(Arc::new(Whole::from_decimals(inputs, decimals)));
        Ok(Points { whole, exact: false, ..points })
    }

    /// The instances as whole numbers, without any rounding.
    pub(crate) fn whole(&self) -> &Whole {
        self.whole.get_or_init(|| Arc::new(Whole::from_floats(self.inputs, &self.values)))
    }

    /// Instances from rows.
    pub fn from_rows(rows: &[Vec<f64>]) -> Result<Self, SearchError> {
        let inputs = rows.first().ok_or(SearchError::Empty)?.len();
        if let Some((at, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != inputs) {
            return Err(SearchError::Ragged { row: at + 1, found: row.len(), expected: inputs });
        }
        Points::new(inputs, rows.concat())
    }

    /// Rows of −1 and +1, the form in which hidden layers see their inputs.
    pub(crate) fn from_signs(rows: &[Vec<bool>]) -> Self {
        let inputs = rows.first().map_or(0, Vec::len);
        let values = rows.iter().flatten().map(|&sign| if sign { 1.0 } else { -1.0 }).collect();
        Points { inputs, values, whole: OnceLock::new(), exact: true }
    }

    /// How many instances there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.inputs.max(1)
    }

    /// Never true for points made by the constructors, which refuse empty data.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many inputs an instance has, without the bias.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// One instance.
    pub fn row(&self, instance: usize) -> &[f64] {
        &self.values[instance * self.inputs..][..self.inputs]
    }

    /// One instance, without any rounding.
    pub fn exact_row(&self, instance: usize) -> Vec<Rational> {
        let whole = self.whole();
        (0..self.inputs).map(|i| Rational::new(whole.number(instance, i), whole.scale(i).clone())).collect()
    }

    /// All instances in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.inputs)
    }

    /// The instances with these numbers, in this order.
    pub fn select(&self, instances: &[usize]) -> Self {
        let values = instances.iter().flat_map(|&i| self.row(i).iter().copied()).collect();
        let whole = OnceLock::new();
        if !self.exact {
            whole.get_or_init(|| Arc::new(self.whole().select(instances)));
        }
        Points { inputs: self.inputs, values, whole, exact: self.exact }
    }

    /// Groups equal instances: for each instance the number of its group, and each group's first instance.
    pub fn distinct(&self) -> (Vec<usize>, Vec<usize>) {
        self.whole().distinct()
    }

    /// A number that tells these points and labels from others, for certificates.
    pub(crate) fn fingerprint(&self, labels: &[usize]) -> u64 {
        let mut hash = Fnv::default();
        self.whole().canonical(|text| hash.add(text));
        labels.iter().for_each(|label| hash.add(format!("{label};").as_bytes()));
        hash.0
    }
}

/// A decimal as it is written, and the float nearest to it; the row and column are for what is wrong with it.
pub(crate) fn read_number(text: &str, (row, column): (usize, usize)) -> Result<(f64, Decimal), SearchError> {
    let float = text.parse::<f64>().ok();
    let read = float.filter(|value| value.is_finite()).zip(Decimal::parse(text));
    read.ok_or_else(|| {
        // What has digits is finite, whatever floats make of it.
        let number = float.is_some() && text.contains(|c: char| c.is_ascii_digit());
        let text = text.escape_debug().to_string();
        if number {
            let text = if text.len() > MOST_SHOWN { format!("{}…", &text[..MOST_SHOWN]) } else { text };
            SearchError::OutOfProportion { row, column, text }
        } else {
            SearchError::NotFinite { row, column, text }
        }
    })
}

/// Digits of a number that are shown.
const MOST_SHOWN: usize = 40;

/// FNV-1a over bytes: a checksum against accidents, not against an adversary.
pub(crate) struct Fnv(pub(crate) u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

/// Instances with a class each.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// The instances.
    pub points: Points,
    /// The class of each instance, an index into `classes`.
    pub labels: Vec<usize>,
    /// The names of the classes.
    pub classes: Vec<String>,
}

impl Labelled {
    /// Checks that instances and labels belong together and that there is something to tell apart.
    pub fn new(points: Points, labels: Vec<usize>, classes: Vec<String>) -> Result<Self, SearchError> {
        if points.len() != labels.len() {
            return Err(SearchError::LabelCount { instances: points.len(), labels: labels.len() });
        }
        if labels.iter().all(|&label| label == labels[0]) {
            let label = classes.get(labels[0]).cloned().unwrap_or_else(|| labels[0].to_string());
            return Err(SearchError::OneClass { label });
        }
        Ok(Labelled { points, labels, classes })
    }

    /// How many output units tell the classes apart: one for two classes, else one a class.
    pub fn outputs(&self) -> usize {
        if self.classes.len() == 2 { 1 } else { self.classes.len() }
    }

    /// The targets of one output unit: +1 (true) for its class, the second of two.
    pub fn targets(&self, output: usize) -> Vec<bool> {
        let positive = if self.classes.len() == 2 { 1 } else { output };
        self.labels.iter().map(|&label| label == positive).collect()
    }

    /// Two equal instances with different labels, if there are any: no network can classify both.
    pub fn contradiction(&self) -> Option<(usize, usize)> {
        let (group_of, firsts) = self.points.distinct();
        (0..self.labels.len())
            .map(|instance| (firsts[group_of[instance]], instance))
            .find(|&(first, instance)| self.labels[first] != self.labels[instance])
    }

    /// The zero-one loss that contradicting labels force on any classifier.
    pub fn forced_errors(&self) -> usize {
        let (group_of, firsts) = self.points.distinct();
        let mut counts = vec![vec![0usize; self.classes.len()]; firsts.len()];
        group_of.iter().zip(&self.labels).for_each(|(&group, &label)| counts[group][label] += 1);
        counts.iter().map(|c| c.iter().sum::<usize>() - c.iter().max().copied().unwrap_or(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_data_is_named() {
        assert!(matches!(Points::from_rows(&[]), Err(SearchError::Empty)));
        assert!(matches!(Points::from_rows(&[vec![]]), Err(SearchError::NoInputs)));
        let ragged = Points::from_rows(&[vec![1.0, 2.0], vec![3.0]]);
        assert!(matches!(ragged, Err(SearchError::Ragged { row: 2, found: 1, expected: 2 })));
        let nan = Points::from_rows(&[vec![1.0, 2.0], vec![3.0, f64::NAN]]);
        assert!(matches!(nan, Err(SearchError::NotFinite { row: 2, column: 2, .. })));
        let points = Points::from_rows(&[vec![1.0], vec![2.0]]).unwrap();
        let classes = vec!["a".to_string(), "b".to_string()];
        let one = Labelled::new(points.clone(), vec![1, 1], classes.clone()).unwrap_err();
        assert!(one.to_string().contains("'b'"));
        assert!(matches!(Labelled::new(points, vec![1], classes), Err(SearchError::LabelCount { .. })));
    }

    #[test]
    fn fractions_are_taken_as_they_are() {
        let numbers = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rational>>();
        let thirds = Points::from_rationals(2, &numbers(&["1/3", "5", "2/3", "-7/2"])).unwrap();
        assert_eq!(thirds.row(1), [2.0 / 3.0, -3.5]);
        let near = Points::from_rows(&[vec![1.0 / 3.0, 5.0], vec![2.0 / 3.0, -3.5]]).unwrap();
        assert!(thirds != near, "a third is not a float");
        // What floats hold is the same data, whichever way it came.
        let halves = Points::from_rationals(2, &numbers(&["1/2", "5", "4", "-7/2"])).unwrap();
        let floats = Points::from_rows(&[vec![0.5, 5.0], vec![4.0, -3.5]]).unwrap();
        assert_eq!(halves.fingerprint(&[0, 1]), floats.fingerprint(&[0, 1]));
        // Apart by less than a float could show.
        let close =
            Points::from_rationals(1, &numbers(&["1", "1000000000000000000001/1000000000000000000000"])).unwrap();
        assert_eq!(close.distinct().1.len(), 2);
        assert!(matches!(Points::from_rationals(2, &numbers(&["1"])), Err(SearchError::Ragged { .. })));
    }

    #[test]
    fn written_numbers_are_not_rounded() {
        let points = Points::from_written(2, &["16777217", "0.1", "9007199254740993", "-1e-3"]).unwrap();
        let exact = |instance: usize| points.exact_row(instance).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            (exact(0), exact(1)),
            (vec!["16777217".into(), "1/10".into()], vec!["9007199254740993".into(), "-1/1000".into()])
        );
        let error = Points::from_written(2, &["1", "2", "3", "x"]).unwrap_err().to_string();
        assert!(error.contains("row 2, column 2: 'x'"), "{error}");
    }

    #[test]
    fn contradictions_are_found_and_counted() {
        let points = Points::from_rows(&[vec![0.0], vec![1.0], vec![-0.0], vec![1.0], vec![1.0]]).unwrap();
        let classes = vec!["a".to_string(), "b".to_string()];
        let data = Labelled::new(points, vec![0, 1, 1, 1, 0], classes).unwrap();
        assert_eq!(data.contradiction(), Some((0, 2)));
        assert_eq!(data.forced_errors(), 2);
    }
}
