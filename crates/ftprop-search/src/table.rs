//! Tables as text: numbers, read exactly as they are written, with a label in the last column.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use num_bigint::{BigInt, BigUint};

use crate::error::SearchError;
use crate::points::{Labelled, Points, read_number};
use crate::rational::Rational;
use crate::whole::Decimal;

impl Labelled {
    /// Reads rows of numbers with a label in the last column, separated by commas, semicolons or tabs, whichever the
    /// first row has most of. Cells may be quoted. A first row without a single number before its label is a heading, unless
    /// its label is that of another row. Classes are in the order of their names, numbers by value; `1` and `1.0` are one class.
    pub fn from_csv(text: &str) -> Result<Self, SearchError> {
        let table = Table::read(text)?;
        let (classes, labels) = classes_of(&table.labels);
        Labelled::new(table.points, labels, classes)
    }

    /// Reads rows like [`Labelled::from_csv`], to be tested on what was learned from `train`: labels are matched with
    /// the classes there, and need not all occur.
    pub fn test_from_csv(text: &str, train: &Labelled) -> Result<Self, SearchError> {
        let table = Table::read(text)?;
        let known: BTreeMap<Key, usize> = train.classes.iter().enumerate().map(|(at, name)| (key(name), at)).collect();
        let label = |(row, text): (usize, &String)| {
            known.get(&key(text)).copied().ok_or_else(|| SearchError::UnknownLabel {
                row: table.rows[row],
                label: text.escape_debug().to_string(),
                known: train
                    .classes
                    .iter()
                    .map(|class| class.escape_debug().to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
        };
        let labels = table.labels.iter().enumerate().map(label).collect::<Result<Vec<_>, _>>()?;
        Ok(Labelled { points: table.points, labels, classes: train.classes.clone() })
    }

    /// Reads a CSV file.
    pub fn read_csv(path: &Path) -> Result<Self, SearchError> {
        in_file(path, Labelled::from_csv)
    }

    /// Reads a CSV file to be tested on what was learned from `train`.
    pub fn read_test_csv(path: &Path, train: &Labelled) -> Result<Self, SearchError> {
        in_file(path, |text| Labelled::test_from_csv(text, train))
    }
}

fn in_file(path: &Path, read: impl Fn(&str) -> Result<Labelled, SearchError>) -> Result<Labelled, SearchError> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| SearchError::File { path: name(), source })?;
    read(&text).map_err(|source| SearchError::InFile { path: name(), source: Box::new(source) })
}

struct Table {
    points: Points,
    labels: Vec<String>,
    /// The line of each instance, counted from 1.
    rows: Vec<usize>,
}

impl Table {
    fn read(text: &str) -> Result<Self, SearchError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
        let (_, first) = lines.peek().ok_or(SearchError::Empty)?;
        let separator = separator(first);
        let heading = cells(first, separator);
        let expected = heading.len();
        if expected > 1 && heading[..expected - 1].iter().all(|cell| cell.parse::<f64>().is_err()) {
            // A value that is missing in the first row does not make names of it.
            let mut others = lines.clone().skip(1).map(|(_, line)| cells(line, separator));
            if !others.any(|other| other.len() == expected && other.last() == heading.last()) {
                lines.next();
            }
        }
        let (mut decimals, mut values, mut labels, mut rows) = (vec![], vec![], vec![], vec![]);
        for (number, line) in lines {
            let row = number + 1;
            let mut found = cells(line, separator);
            if found.len() != expected {
                return Err(SearchError::Ragged { row, found: found.len(), expected });
            }
            let label = found.pop().unwrap_or_default();
            if label.is_empty() {
                return Err(SearchError::NoLabel { row });
            }
            for (column, cell) in found.iter().enumerate() {
                let (value, decimal) = read_number(cell, (row, column + 1))?;
                values.push(value);
                decimals.push(decimal);
            }
            labels.push(label);
            rows.push(row);
        }
        if labels.is_empty() {
            return Err(SearchError::Empty);
        }
        Ok(Table { points: Points::from_decimals(expected - 1, &decimals, values)?, labels, rows })
    }
}

/// What separates the cells of a table whose first row this is.
fn separator(first: &str) -> char {
    let count = |separator: &char| first.matches(*separator).count();
    // The last of several equal ones is the maximum, and a comma is the usual one.
    ['\t', ';', ','].into_iter().max_by_key(count).unwrap_or(',')
}

/// The cells of a row, without quotes and without spaces around them.
fn cells(line: &str, separator: char) -> Vec<String> {
    let mut cells = vec![];
    let mut rest = line;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\u{a0}']);
        if let Some(quoted) = trimmed.strip_prefix('"') {
            let mut cell = String::new();
            let mut left = quoted;
            // A doubled quote stands for one; a single one ends the cell.
            while let Some(end) = left.find('"') {
                cell.push_str(&left[..end]);
                left = &left[end + 1..];
                match left.strip_prefix('"') {
                    Some(more) => {
                        cell.push('"');
                        left = more;
                    }
                    None => break,
                }
            }
            cells.push(cell.trim().to_string());
            match left.find(separator) {
                Some(at) => rest = &left[at + separator.len_utf8()..],
                None => return cells,
            }
            continue;
        }
        match rest.split_once(separator) {
            Some((cell, more)) => {
                cells.push(cell.trim().to_string());
                rest = more;
            }
            None => {
                cells.push(rest.trim().to_string());
                return cells;
            }
        }
    }
}

/// What makes two labels the same: their value if they are numbers, else their text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(Rational),
    Text(String),
}

fn key(label: &str) -> Key {
    let Some(Decimal { digits, exponent }) = Decimal::parse(label) else { return Key::Text(label.to_string()) };
    let power = BigUint::from(10u32).pow(exponent.unsigned_abs());
    Key::Number(if exponent >= 0 { Rational::from(digits * BigInt::from(power)) } else { Rational::new(digits, power) })
}

/// The classes in order, each by its shortest spelling, and each label as a number.
fn classes_of(labels: &[String]) -> (Vec<String>, Vec<usize>) {
    let spellings: BTreeSet<&String> = labels.iter().collect();
    let numbers = spellings.iter().all(|label| Decimal::parse(label).is_some());
    let key = |label: &String| if numbers { key(label) } else { Key::Text(label.clone()) };
    let mut classes: BTreeMap<Key, &String> = BTreeMap::new();
    for spelling in spellings {
        let name = classes.entry(key(spelling)).or_insert(spelling);
        if spelling.len() < name.len() {
            *name = spelling;
        }
    }
    let number: BTreeMap<&Key, usize> = classes.keys().enumerate().map(|(number, key)| (key, number)).collect();
    let numbered = labels.iter().map(|label| number[&key(label)]).collect();
    (classes.values().map(ToString::to_string).collect(), numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::separability::{Verdict, separable};

    #[test]
    fn csv_is_read_with_or_without_heading() {
        let data = Labelled::from_csv("x,y,label\n1,2,b\n\n3, 4 ,a\n-5,1e3,b\n").unwrap();
        assert_eq!(data.classes, ["a", "b"]);
        assert_eq!(data.labels, [1, 0, 1]);
        assert_eq!(data.points.row(2), [-5.0, 1000.0]);
        let data = Labelled::from_csv("1,10\n2,-1\n3,9\n").unwrap();
        assert_eq!(data.classes, ["-1", "9", "10"], "numbers by value");
    }

    #[test]
    fn quotes_marks_and_separators_are_read() {
        let plain = Labelled::from_csv("1,2,a\n3,4,b\n").unwrap();
        for text in [
            "\u{feff}1,2,a\n3,4,b\n",
            "\"1\",\"2\",\"a\"\n3,4,b\n",
            "1;2;a\n3;4;b\n",
            "1\t2\ta\n3\t4\tb\n",
            "1,2,a\r\n3,4,b\r\n",
        ] {
            assert_eq!(Labelled::from_csv(text).unwrap(), plain, "{text:?}");
        }
        let quoted = Labelled::from_csv("1,\"x, \"\"y\"\"\"\n2,b\n").unwrap();
        assert_eq!(quoted.classes, ["b", "x, \"y\""]);
        let spelled = Labelled::from_csv("1,1.0\n2,1\n3,0\n").unwrap();
        assert_eq!((spelled.classes, spelled.labels), (vec!["0".to_string(), "1".into()], vec![1, 1, 0]));
    }

    #[test]
    fn decimals_are_what_they_say() {
        // The third point is the midpoint of the first two; rounded to floats it is not.
        let data = Labelled::from_csv("0.1,0.3,a\n0.3,0.1,a\n0.2,0.2,b\n5,5,b\n").unwrap();
        assert!(matches!(separable(&data.points, &data.targets(0)), Verdict::NotSeparable(_)));
        let data = Labelled::from_csv("9007199254740992,a\n9007199254740993,b\n").unwrap();
        assert!(data.contradiction().is_none());
        assert!(matches!(separable(&data.points, &data.targets(0)), Verdict::Separable(_)));
    }

    #[test]
    fn test_labels_are_matched_by_name() {
        let train = Labelled::from_csv("1,a\n2,b\n3,c\n").unwrap();
        let test = Labelled::test_from_csv("3,c\n3,c\n", &train).unwrap();
        assert_eq!(test.labels, [2, 2]);
        let unknown = Labelled::test_from_csv("3,c\n3,d\n", &train).unwrap_err().to_string();
        assert!(unknown.contains("row 2") && unknown.contains("'d'"), "{unknown}");
        let train = Labelled::from_csv("1,0\n2,1\n").unwrap();
        assert_eq!(Labelled::test_from_csv("3,1.0\n", &train).unwrap().labels, [1]);
    }

    #[test]
    fn bad_csv_is_explained() {
        let error = |text: &str| Labelled::from_csv(text).unwrap_err().to_string();
        assert!(error("").contains("empty"));
        assert!(error("x,label\n").contains("empty"));
        assert!(error("NA,a\n1,a\n2,b\n").contains("row 1, column 1: 'NA' is not"), "names are no classes");
        for number in ["1e-401", "1e999", &"1".repeat(500), "-1e309"] {
            let said = error(&format!("1,a\n{number},b\n"));
            assert!(said.contains("row 2, column 1") && said.contains("too long, too large or too small"), "{said}");
            assert!(said.len() < 250, "{said}");
        }
        assert!(error("1,a\ninf,b\n").contains("'inf' is not a finite number"));
        assert!(error("1,a\n1,2,b\n").contains("row 2 has 3 columns"));
        assert!(error("1,a\nNaN,b\n").contains("row 2, column 1: 'NaN'"));
        assert!(error("1,2,a\n1,x,b\n").contains("row 2, column 2: 'x'"));
        assert!(error("1,a\n2,a\n").contains("'a'"));
        assert!(error("1,a\n2,\n").contains("row 2 has no label"));
        assert!(error("a\nb\n").contains("no inputs"));
        assert!(!error("1,a\n\u{1b}[2J,b\n").contains('\u{1b}'), "what a file says is escaped");
    }
}
