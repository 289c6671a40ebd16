//! Tables: CSV files with a label column.
//!
//! Cells are divided by commas, semicolons or tabs, whichever the first line has most of; the file may be
//! gzipped. Every column but the label's is a number. Labels that are all whole numbers become classes in
//! numeric order, others in alphabetical order. Columns are standardised by the mean and the deviation of the
//! training part.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::dataset::{Dataset, Normalize, Shape};
use crate::split::{Content, HoldOut, Split};
use crate::{DataError, Source, bytes};

/// Which column holds the labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    #[default]
    Last,
    Name(String),
    /// Counted from 0.
    Index(usize),
}

/// Where the test examples come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TestPart {
    /// Held out at random, the same rows in every run: those of `Stream::new(0, Purpose::Split, 1)`.
    Fraction(f64),
    /// Another file with the same columns.
    File(PathBuf),
}

/// How to read a table.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvOptions {
    pub label: LabelColumn,
    /// Whether the first line names the columns; by default it does if none of its features is a number.
    pub header: Option<bool>,
    pub test: TestPart,
}

impl Default for CsvOptions {
    fn default() -> Self {
        CsvOptions { label: LabelColumn::default(), header: None, test: TestPart::Fraction(0.2) }
    }
}

pub(crate) fn open(path: &Path, options: &CsvOptions) -> Result<Dataset, DataError> {
    let table = Table::read(path, options)?;
    let classes = Classes::of(&table)?;
    let shape = Shape::new(1, 1, table.columns);
    let train = table.split(&classes, shape)?;
    let (train, test) = match &options.test {
        TestPart::Fraction(fraction) => train.divide_for_test(HoldOut::Fraction(*fraction))?,
        TestPart::File(file) => {
            let test = Table::read(file, options)?;
            if test.columns != table.columns {
                let why = format!("{} features, but {} has {}", test.columns, path.display(), table.columns);
                return Err(DataError::Table { path: file.clone(), why });
            }
            (train, test.split(&classes, shape)?)
        }
    };
    let normalize = standardise(&train, &table);
    Ok(Dataset { name: Source::Csv.to_string(), shape, classes: classes.names(), normalize, train, test })
}

/// A file as read: features as numbers, labels still as text.
struct Table {
    path: PathBuf,
    columns: usize,
    values: Vec<f32>,
    labels: Vec<String>,
    lines: Vec<u64>,
}

impl Table {
    fn read(path: &Path, options: &CsvOptions) -> Result<Table, DataError> {
        let text = bytes::read(path)?;
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .delimiter(delimiter(&text))
            .from_reader(text.as_slice());
        let wrong = |why: String| DataError::Table { path: path.to_owned(), why };
        let mut records = reader.records().map(|record| {
            record.map_err(|error| {
                let line = error.position().map_or(0, |p| p.line());
                DataError::Row { path: path.to_owned(), line, why: error.to_string() }
            })
        });
        let first = records.next().ok_or_else(|| DataError::Empty { what: path.display().to_string() })??;
        let width = first.len();
        if width < 2 {
            return Err(wrong("a table needs at least one feature and a label, this one has a single column".into()));
        }
        let by_name = matches!(options.label, LabelColumn::Name(_));
        let label = match &options.label {
            LabelColumn::Last => width - 1,
            LabelColumn::Index(index) if *index < width => *index,
            LabelColumn::Index(index) => {
                return Err(wrong(format!("there is no column {index}: there are {width}, counted from 0")));
            }
            LabelColumn::Name(name) => first.iter().position(|cell| cell == name).ok_or_else(|| {
                let names = first.iter().map(quote).collect::<Vec<_>>().join(", ");
                wrong(format!("no column is called {}; the first line has: {names}", quote(name)))
            })?,
        };
        let names_columns = || first.iter().enumerate().all(|(i, cell)| i == label || cell.parse::<f32>().is_err());
        let header = by_name || options.header.unwrap_or_else(names_columns);
        let mut table =
            Table { path: path.to_owned(), columns: width - 1, values: vec![], labels: vec![], lines: vec![] };
        if !header {
            table.push(&first, label)?;
        }
        for record in records {
            table.push(&record?, label)?;
        }
        if table.labels.is_empty() {
            return Err(DataError::Empty { what: format!("{} (it has only a header)", path.display()) });
        }
        Ok(table)
    }

    fn push(&mut self, record: &StringRecord, label: usize) -> Result<(), DataError> {
        let line = record.position().map_or(0, |p| p.line());
        let wrong = |why: String| Err(DataError::Row { path: self.path.clone(), line, why });
        if record.len() != self.columns + 1 {
            return wrong(format!("{} columns, but the first line has {}", record.len(), self.columns + 1));
        }
        for (column, cell) in record.iter().enumerate() {
            if column == label {
                if cell.is_empty() {
                    return wrong(format!("no label in column {}", column + 1));
                }
                self.labels.push(cell.to_owned());
                continue;
            }
            match cell.parse::<f32>() {
                Ok(value) if value.is_finite() => self.values.push(value),
                Ok(_) => return wrong(format!("{} in column {} is not a finite number", quote(cell), column + 1)),
                Err(_) if cell.is_empty() => return wrong(format!("nothing in column {}", column + 1)),
                Err(_) => return wrong(format!("{} in column {} is not a number", quote(cell), column + 1)),
            }
        }
        self.lines.push(line);
        Ok(())
    }

    fn split(&self, classes: &Classes, shape: Shape) -> Result<Split, DataError> {
        let label = |(text, &line): (&String, &u64)| {
            classes.find(text).ok_or_else(|| DataError::Row {
                path: self.path.clone(),
                line,
                why: format!("the label {} does not occur in the training file", quote(text)),
            })
        };
        let labels = self.labels.iter().zip(&self.lines).map(label).collect::<Result<_, _>>()?;
        let content = Content::Features { columns: self.columns, values: self.values.clone() };
        Ok(Split::new(content, labels, shape))
    }
}

/// The labels of a table, sorted.
enum Classes {
    Numbers(Vec<i64>),
    Texts(Vec<String>),
}

impl Classes {
    fn of(table: &Table) -> Result<Classes, DataError> {
        let numbers: Option<BTreeSet<i64>> = table.labels.iter().map(|label| whole_number(label)).collect();
        let classes = match numbers {
            Some(numbers) => Classes::Numbers(numbers.into_iter().collect()),
            None => Classes::Texts(table.labels.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()),
        };
        match classes.names().as_slice() {
            [only] => {
                let why = format!("every row has the label {}; is it the right column?", quote(only));
                Err(DataError::Table { path: table.path.clone(), why })
            }
            _ => Ok(classes),
        }
    }

    fn find(&self, label: &str) -> Option<u32> {
        let place = match self {
            Classes::Numbers(numbers) => numbers.binary_search(&whole_number(label)?).ok()?,
            Classes::Texts(texts) => texts.binary_search_by(|text| text.as_str().cmp(label)).ok()?,
        };
        Some(place as u32)
    }

    fn names(&self) -> Vec<String> {
        match self {
            Classes::Numbers(numbers) => numbers.iter().map(i64::to_string).collect(),
            Classes::Texts(texts) => texts.clone(),
        }
    }
}

/// `3` and `3.0` are the same label: spreadsheets write either.
fn whole_number(text: &str) -> Option<i64> {
    let float = || text.parse::<f64>().ok().filter(|x| x.fract() == 0.0 && x.abs() < 1e15).map(|x| x as i64);
    text.parse().ok().or_else(float)
}

/// A cell in a message: on one line, and not all of a long one.
fn quote(cell: &str) -> String {
    let start: String = cell.chars().take(40).collect();
    let dots = if start.len() < cell.len() { "…" } else { "" };
    format!("`{}{dots}`", start.escape_debug())
}

fn delimiter(text: &[u8]) -> u8 {
    let first = text.split(|&b| b == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let count = |&&wanted: &&u8| first.iter().filter(|&&b| b == wanted).count();
    // The last of equals wins, so the comma is last.
    *b"\t;,".iter().max_by_key(count).unwrap_or(&b',')
}

/// Mean and deviation of each column over the examples of a split; a constant column only loses its mean.
fn standardise(train: &Split, table: &Table) -> Normalize {
    let columns = table.columns;
    let rows = || (0..train.len()).map(|i| &table.values[train.number(i) * columns..][..columns]);
    let average = |of: &dyn Fn(usize, f32) -> f64| {
        let mut sums = vec![0.0; columns];
        for row in rows() {
            sums.iter_mut().zip(row).enumerate().for_each(|(column, (sum, &x))| *sum += of(column, x));
        }
        sums.into_iter().map(|sum| sum / train.len() as f64).collect::<Vec<_>>()
    };
    let mean = average(&|_, x| f64::from(x));
    let variance = average(&|column, x| (f64::from(x) - mean[column]).powi(2));
    let deviation = |v: &f64| if *v > 0.0 { v.sqrt() as f32 } else { 1.0 };
    Normalize {
        full: 1.0,
        mean: mean.iter().map(|&m| m as f32).collect(),
        std: variance.iter().map(deviation).collect(),
    }
}
