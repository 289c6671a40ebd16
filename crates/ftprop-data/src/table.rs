//! From the cells of a table to numbers, and the same for other rows.
//!
//! A [`TableTransform`] is fitted to the training rows of a table: columns of numbers are standardised, columns of text
//! become a number for each text that occurs (one-hot), and what stands for missing values is chosen. It is plain data
//! that a model can keep, so that new rows go through what the training rows went through. Columns are matched by their
//! names where both files have them.

mod column;
mod fit;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::DataError;
use crate::csv_file::{CsvTable, LabelColumn, quote};
use crate::memory::Memory;
use crate::preprocess::{Normalize, Shape};
use crate::split::{Content, Split};
use fit::{classes_of, fit_column, spread};

pub use column::{ColumnKind, TableColumn};

/// Numbers that a table may become, unless its file is large itself: one-hot columns may be many.
const LEAST_NUMBERS: usize = 1 << 26;

/// Where the test examples come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TestPart {
    /// Held out at random, the same rows in every run: those of `Stream::new(0, Purpose::Split, 1)`.
    Fraction(f64),
    /// Another file with the same columns.
    File(PathBuf),
}

/// What stands for a missing value: a cell that is empty or says `NA`, `N/A`, `NaN`, `null`, `none` or `?`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Nothing does: it is an error.
    #[default]
    Refuse,
    /// The mean of the column's training values.
    Mean,
    /// Their median.
    Median,
    /// Their mean, and a column more that says where it stands.
    Indicator,
}

/// How to read a table.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvOptions {
    /// Which column holds the labels.
    pub label: LabelColumn,
    /// Whether the first line names the columns; by default it does if none of its features is a number.
    pub header: Option<bool>,
    /// Where the test examples come from.
    pub test: TestPart,
    /// What stands for missing values.
    pub missing: Missing,
    /// Columns of numbers that are names all the same, such as a postcode: one-hot. Columns of text are without being
    /// named here.
    pub categories: Vec<String>,
    /// Columns that are left out, such as the number of a row.
    pub ignore: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        CsvOptions {
            label: LabelColumn::default(),
            header: None,
            test: TestPart::Fraction(0.2),
            missing: Missing::default(),
            categories: Vec::new(),
            ignore: Vec::new(),
        }
    }
}

/// What was done to the cells of a table, fitted to its training rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableTransform {
    /// The name of the label's column, if the training file has names.
    pub label: Option<String>,
    /// The number of the label's column, counted from 0.
    pub label_at: usize,
    /// Whether columns have names of their own, and so are matched by them.
    pub named: bool,
    /// The other columns, in the order of the training file.
    pub columns: Vec<TableColumn>,
    /// The names of the classes; label i is class i.
    pub classes: Vec<String>,
    /// The names of columns that are left out; a file may have them or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

impl TableTransform {
    /// Fits a transformation to the rows for which `training` is true. What kinds of columns and which texts and
    /// classes there are is taken from all rows.
    pub fn fit(
        table: &CsvTable,
        label: usize,
        options: &CsvOptions,
        training: impl Fn(usize) -> bool,
    ) -> Result<TableTransform, DataError> {
        let wrong = |why: String| DataError::Table { path: table.path().to_owned(), why };
        if table.width() < 2 {
            return Err(wrong("a table needs at least one feature and a label, this one has a single column".into()));
        }
        table.check_names()?;
        let name = |column: usize| table.names().map(|names| names[column].clone());
        let others: Vec<usize> = (0..table.width()).filter(|&column| column != label).collect();
        let unknown = |wanted: &&String| !others.iter().any(|&column| name(column).as_ref() == Some(*wanted));
        if let Some(unknown) = options.categories.iter().chain(&options.ignore).find(unknown) {
            return Err(wrong(format!("no column of features is called {}", quote(unknown))));
        }
        let used = |column: &usize| name(*column).is_none_or(|name| !options.ignore.contains(&name));
        let features: Vec<usize> = others.into_iter().filter(used).collect();
        if features.is_empty() {
            return Err(wrong("all features are left out".into()));
        }
        let classes = classes_of(table, label)?;
        let column = |&column: &usize| {
            let as_text = name(column).is_some_and(|name| options.categories.contains(&name));
            Ok(TableColumn {
                name: name(column).unwrap_or_else(|| (column + 1).to_string()),
                kind: fit_column(table, column, as_text, options.missing, &training)?,
            })
        };
        let columns = features.iter().map(column).collect::<Result<Vec<_>, DataError>>()?;
        let (named, ignored) = (table.names().is_some(), options.ignore.clone());
        Ok(TableTransform { label: name(label), label_at: label, named, columns, classes, ignored })
    }

    /// For rows of numbers, the label last, whose columns have no names: fitted to these numbers, given column by column,
    /// with classes that are known, in this order.
    ///
    /// ```
    /// use ftprop_data::TableTransform;
    /// let fitted = TableTransform::of_numbers([vec![1.0, 3.0], vec![5.0, 5.0]], vec!["b".into(), "a".into()]);
    /// assert_eq!((fitted.width(), fitted.normalize().mean), (2, vec![2.0, 5.0]));
    /// ```
    pub fn of_numbers(columns: impl IntoIterator<Item = Vec<f32>>, classes: Vec<String>) -> TableTransform {
        let column = |(at, values): (usize, Vec<f32>)| {
            let (mean, deviation) = spread(&values);
            let kind = ColumnKind::Number { origin: None, mean, deviation, fill: None, indicator: false };
            TableColumn { name: (at + 1).to_string(), kind }
        };
        let columns: Vec<TableColumn> = columns.into_iter().enumerate().map(column).collect();
        TableTransform { label: None, label_at: columns.len(), named: false, columns, classes, ignored: Vec::new() }
    }

    /// Reads a table of such rows. Where the training file had no names, a first line that could be a row is one.
    pub fn read(&self, path: &Path, header: Option<bool>) -> Result<CsvTable, DataError> {
        self.read_rows(path, header, None)
    }

    /// The same, with the rows that numbers can be made of, and what is wrong with the others, in the order of the file. What
    /// is wrong with the whole, such as a column that is missing, is an error.
    pub fn read_sound(&self, path: &Path, header: Option<bool>) -> Result<(CsvTable, Vec<DataError>), DataError> {
        let mut ragged = Vec::new();
        let table = self.read_rows(path, header, Some(&mut ragged));
        let table = match table {
            // A first line that fits nothing else is what is wrong, and it is the rows that show it.
            Err(DataError::Empty { .. }) if !ragged.is_empty() => return Err(ragged.swap_remove(0)),
            table => table?,
        };
        let (table, mut wrong) = self.sound(table)?;
        wrong.append(&mut ragged);
        wrong.sort_by_key(DataError::line);
        Ok((table, wrong))
    }

    fn read_rows(
        &self,
        path: &Path,
        header: Option<bool>,
        aside: Option<&mut Vec<DataError>>,
    ) -> Result<CsvTable, DataError> {
        let (mut table, _) = CsvTable::read_lines(path, header, &LabelColumn::Last, aside)?;
        if !self.named && header.is_none() && table.names().is_some() {
            let whole = table.clone().with_names_as_row();
            if self.places(&whole).and_then(|places| self.check_row(&whole, 0, &places)).is_ok() {
                table = whole;
            }
        }
        // Names that are numbers, such as years, were not taken for names.
        if self.named && header.is_none() && table.names().is_none() && self.named_in_row(&table) {
            table = table.with_row_as_names();
        }
        table.check_rows()?;
        Ok(table)
    }

    /// Whether the first row holds the names of all columns.
    fn named_in_row(&self, table: &CsvTable) -> bool {
        let cells: Vec<&str> = (0..table.width()).filter(|_| table.rows() > 0).map(|at| table.cell(0, at)).collect();
        self.columns.iter().all(|column| cells.contains(&column.name.as_str()))
    }

    /// What is wrong with a row, if anything is.
    fn check_row(&self, table: &CsvTable, row: usize, places: &[usize]) -> Result<(), DataError> {
        let mut numbers = vec![0.0; self.columns.iter().map(|column| column.kind.width()).max().unwrap_or(0)];
        let check = |(column, &place): (&TableColumn, &usize)| column.kind.write(table, row, place, &mut numbers);
        self.columns.iter().zip(places).try_for_each(check)
    }

    /// The rows that numbers can be made of, and what is wrong with the others, in order. What is wrong with the whole, such
    /// as a column that is missing, is an error.
    pub fn sound(&self, table: CsvTable) -> Result<(CsvTable, Vec<DataError>), DataError> {
        let places = self.places(&table)?;
        let wrong: BTreeMap<usize, DataError> = (0..table.rows())
            .filter_map(|row| self.check_row(&table, row, &places).err().map(|why| (row, why)))
            .collect();
        if wrong.is_empty() {
            return Ok((table, Vec::new()));
        }
        let sound: Vec<usize> = (0..table.rows()).filter(|row| !wrong.contains_key(row)).collect();
        Ok((table.select(&sound), wrong.into_values().collect()))
    }

    /// How many numbers a row becomes: the network's inputs.
    pub fn width(&self) -> usize {
        self.columns.iter().map(|column| column.kind.width()).sum()
    }

    /// How the numbers of [`features`](Self::features) are standardised.
    pub fn normalize(&self) -> Normalize {
        let mut normalize = Normalize { full: 1.0, mean: Vec::new(), std: Vec::new() };
        for column in &self.columns {
            let before = normalize.mean.len();
            if let ColumnKind::Number { mean, deviation, .. } = column.kind {
                normalize.mean.push(mean);
                normalize.std.push(deviation);
            }
            normalize.mean.resize(before + column.kind.width(), 0.0);
            normalize.std.resize(before + column.kind.width(), 1.0);
        }
        normalize
    }

    /// The numbers of a table's rows, row by row, less their columns' origins and not yet standardised. The table may have the
    /// label's column or not.
    pub fn features(&self, table: &CsvTable) -> Result<Vec<f32>, DataError> {
        let places = self.places(table)?;
        let (rows, width) = (table.rows(), self.width());
        let most = LEAST_NUMBERS.max(8 * rows * table.width());
        if rows.checked_mul(width).is_none_or(|numbers| numbers > most) {
            let why = format!("{rows} rows of {width} numbers are too many; leave out columns of many texts");
            return Err(DataError::Table { path: table.path().to_owned(), why });
        }
        let mut values = vec![0.0; rows * width];
        let mut first = 0;
        for (column, &place) in self.columns.iter().zip(&places) {
            for row in 0..rows {
                let to = &mut values[row * width + first..][..column.kind.width()];
                column.kind.write(table, row, place, to)?;
            }
            first += column.kind.width();
        }
        Ok(values)
    }

    /// The numbers of [`features`](Self::features) as decimals, before they are rounded to 32 bits: cells of numbers as they are
    /// written, less the column's origin where it has one, and what stands for others exactly.
    pub fn written<'a>(&self, table: &'a CsvTable) -> Result<Vec<Cow<'a, str>>, DataError> {
        let places = self.places(table)?;
        let mut all = Vec::with_capacity(table.rows() * self.width());
        for row in 0..table.rows() {
            for (column, &place) in self.columns.iter().zip(&places) {
                column.kind.write_decimals(table, row, place, &mut all)?;
            }
        }
        Ok(all)
    }

    /// What is taken from each column's numbers before they are rounded to 32 bits; none where nothing is.
    pub fn origins(&self) -> Vec<Option<f64>> {
        let origin = |column: &TableColumn| match column.kind {
            ColumnKind::Number { origin, .. } => origin,
            ColumnKind::Category { .. } => None,
        };
        self.columns.iter().map(origin).collect()
    }

    /// The same, standardised: what a network takes.
    pub fn inputs(&self, table: &CsvTable) -> Result<Vec<f32>, DataError> {
        let (mut values, normalize) = (self.features(table)?, self.normalize());
        for row in values.chunks_exact_mut(self.width()) {
            row.iter_mut().enumerate().for_each(|(column, x)| *x = normalize.apply(*x, column));
        }
        Ok(values)
    }

    /// The labels of a table's rows.
    pub fn labels(&self, table: &CsvTable) -> Result<Vec<u32>, DataError> {
        let wrong = |why: String| DataError::Table { path: table.path().to_owned(), why };
        let place = match (table.names(), &self.label) {
            (Some(names), Some(label)) if self.named => names
                .iter()
                .position(|name| name == label)
                .ok_or_else(|| wrong(format!("no column is called {}, which holds the labels", quote(label))))?,
            _ if table.width() == self.columns.len() + 1 => self.label_at,
            _ => return Err(wrong(format!("{} columns, none of them with labels", table.width()))),
        };
        let known = Classes::new(&self.classes);
        let label = |row: usize| {
            let text = table.cell(row, place);
            if text.is_empty() {
                return Err(table.wrong(row, format!("no label in column {}", place + 1)));
            }
            known.find(text).ok_or_else(|| {
                let known = self.classes.iter().take(10).map(|class| quote(class)).collect::<Vec<_>>().join(", ");
                let more = if self.classes.len() > 10 { ", …" } else { "" };
                table.wrong(
                    row,
                    format!("the label {} does not occur in the training file, which has {known}{more}", quote(text)),
                )
            })
        };
        (0..table.rows()).map(label).collect()
    }

    /// A table's rows as examples.
    pub fn split(&self, table: &CsvTable) -> Result<Split, DataError> {
        let shape = Shape::new(1, 1, self.width());
        let content = Content::Floats { shape, values: Memory::new(self.features(table)?) };
        Ok(Split::new(content, self.labels(table)?, shape))
    }

    /// Where in a table the columns are.
    fn places(&self, table: &CsvTable) -> Result<Vec<usize>, DataError> {
        let wrong = |why: String| DataError::Table { path: table.path().to_owned(), why };
        let Some(names) = table.names().filter(|_| self.named) else {
            if !self.ignored.is_empty() {
                return Err(wrong("a first line with the names of the columns is missing: some are left out".into()));
            }
            let (width, wanted) = (table.width(), self.columns.len());
            let skipped = if width == wanted { usize::MAX } else { self.label_at };
            if width != wanted && width != wanted + 1 {
                let found = width.saturating_sub(1);
                return Err(wrong(format!("{found} features, but the training file has {wanted}")));
            }
            return Ok((0..width).filter(|&column| column != skipped).collect());
        };
        let list = |names: Vec<&String>| names.into_iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
        let missing: Vec<_> = self.columns.iter().map(|c| &c.name).filter(|name| !names.contains(name)).collect();
        if !missing.is_empty() {
            return Err(wrong(format!("columns of the training file are missing: {}", list(missing))));
        }
        let known = |name: &&String| {
            let label = self.label.as_ref() == Some(*name);
            label || self.columns.iter().any(|c| c.name == **name) || self.ignored.contains(name)
        };
        let additional: Vec<_> = names.iter().filter(|name| !known(name)).collect();
        if !additional.is_empty() {
            return Err(wrong(format!("columns that the training file has not: {}", list(additional))));
        }
        table.check_names()?;
        let place = |c: &TableColumn| names.iter().position(|name| *name == c.name).unwrap_or(0);
        Ok(self.columns.iter().map(place).collect())
    }
}

/// Classes by what a cell says.
enum Classes<'a> {
    Numbers(HashMap<i64, u32>),
    Texts(HashMap<&'a str, u32>),
}

impl<'a> Classes<'a> {
    fn new(names: &'a [String]) -> Self {
        let numbers = names.iter().map(|name| whole_number(name)).collect::<Option<Vec<_>>>();
        match numbers {
            Some(numbers) => Classes::Numbers(numbers.into_iter().zip(0..).collect()),
            None => Classes::Texts(names.iter().map(String::as_str).zip(0..).collect()),
        }
    }

    fn find(&self, label: &str) -> Option<u32> {
        match self {
            Classes::Numbers(numbers) => numbers.get(&whole_number(label)?).copied(),
            Classes::Texts(texts) => texts.get(label).copied(),
        }
    }
}

/// `3` and `3.0` are the same label: spreadsheets write either.
fn whole_number(text: &str) -> Option<i64> {
    let float = || text.parse::<f64>().ok().filter(|x| x.fract() == 0.0 && x.abs() < 1e15).map(|x| x as i64);
    text.parse().ok().or_else(float)
}
