//! Tables as they lie in files: the names of the columns, and the cells as text.
//!
//! Cells are divided by commas, semicolons or tabs, whichever the first line has most of; they may be quoted, the file
//! may be gzipped and may begin with a byte order mark. What the cells mean is the business of `table`.

mod rows;

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use csv::StringRecord;

use crate::DataError;
use crate::bytes::Unpacked;
use rows::Rows;

/// Bytes of a file in which its first line is looked for.
const HEAD: u64 = 1 << 20;

/// Which column holds the labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The last one.
    #[default]
    Last,
    /// The one of this name.
    Name(String),
    /// Counted from 0.
    Index(usize),
}

/// A table as it lies in a file.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("ftprop-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("t.csv");
/// use ftprop_data::CsvTable;
/// std::fs::write(&path, "length;kind\n1.5;\"a; b\"\n2;c\n")?;
/// let table = CsvTable::read(&path, None)?;
/// assert_eq!(table.names(), Some(&["length".to_string(), "kind".to_string()][..]));
/// assert_eq!((table.rows(), table.cell(0, 1), table.line(1)), (2, "a; b", 3));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CsvTable {
    path: PathBuf,
    names: Option<Vec<String>>,
    /// The line of the file that is the first, counted from 1.
    first_line: u32,
    width: usize,
    /// All cells, one after the other, and where each ends.
    text: String,
    ends: Vec<u32>,
    lines: Vec<u32>,
}

impl CsvTable {
    /// Reads a file. `header` says whether the first line names the columns; by default it does if none of its cells is
    /// a number.
    pub fn read(path: &Path, header: Option<bool>) -> Result<CsvTable, DataError> {
        Self::read_with_label(path, header, &LabelColumn::Last).map(|(table, _)| table)
    }

    /// The same, and the number of the label's column. A label in numbers does not keep the first line from being a
    /// header, for names of classes may be numbers; a column that is chosen by name makes it one, and so does a label that is the
    /// only text among numbers. A first line that could as well be a row of texts is one.
    pub(crate) fn read_with_label(
        path: &Path,
        header: Option<bool>,
        label: &LabelColumn,
    ) -> Result<(CsvTable, usize), DataError> {
        let (mut table, label_at) = Self::read_lines(path, header, label, None)?;
        if header.is_none() && !matches!(label, LabelColumn::Name(_)) {
            table = table.second_look(label_at);
        }
        table.check_rows()?;
        Ok((table, label_at))
    }

    /// The same for a table that may have no rows. Lines that are no rows of it are put aside, where there is a place for
    /// them, and are an error where there is none.
    pub(crate) fn read_lines(
        path: &Path,
        header: Option<bool>,
        label: &LabelColumn,
        mut aside: Option<&mut Vec<DataError>>,
    ) -> Result<(CsvTable, usize), DataError> {
        let failed = |why| DataError::read(path, why);
        let mut file = Unpacked::open(path)?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head).map_err(failed)?;
        if head.starts_with(b"\xef\xbb\xbf") {
            head.drain(..3);
        }
        let delimiter = delimiter(&head);
        let text = Cursor::new(head).chain(file);
        let mut rows = Rows::new(path, text, delimiter);
        let Some((first_line, record)) = rows.next()? else {
            return Err(DataError::Empty { what: path.display().to_string() });
        };
        let width = record.len();
        let mut table = CsvTable {
            path: path.to_owned(),
            names: None,
            first_line: first_line as u32,
            width,
            text: String::new(),
            ends: vec![],
            lines: vec![],
        };
        let label_at = label_column(path, record, label)?;
        let names_columns = || record.iter().enumerate().all(|(i, cell)| i == label_at || cell.parse::<f32>().is_err());
        if matches!(label, LabelColumn::Name(_)) || header.unwrap_or_else(names_columns) {
            table.names = Some(record.iter().map(str::to_owned).collect());
        } else {
            table.push(first_line, record)?;
        }
        loop {
            let read = match rows.next() {
                Ok(None) => break,
                Ok(Some((line, record))) => table.push(line, record),
                Err(error) => Err(error),
            };
            match (read, &mut aside) {
                (Err(error @ DataError::Row { .. }), Some(aside)) => aside.push(error),
                (read, _) => read?,
            }
        }
        Ok((table, label_at))
    }

    /// Refuses a table that has names and nothing else.
    pub(crate) fn check_rows(&self) -> Result<(), DataError> {
        match self.lines.is_empty() {
            true => Err(DataError::Empty { what: format!("{} (it has only a header)", self.path.display()) }),
            false => Ok(()),
        }
    }

    /// Refuses two columns of one name: other files could not be matched by it.
    pub(crate) fn check_names(&self) -> Result<(), DataError> {
        let mut names: Vec<&String> = self.names.iter().flatten().collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(DataError::Table {
                path: self.path.clone(),
                why: format!(
                    "two columns have the same name, {}; give them different ones or, if the first line holds no names, \
                     set data.csv.header to false",
                    quote(pair[0])
                ),
            }),
        }
    }

    /// Whether the first line names the columns, now that the others are known: names of columns may be numbers, such as years,
    /// and a table of texts alone need not have names.
    fn second_look(self, label_at: usize) -> CsvTable {
        let is_number = |row: usize| self.cell(row, label_at).parse::<f64>().is_ok();
        match &self.names {
            // Every name is also a value of its column, and what follows are texts as well.
            Some(names) => {
                let texts =
                    |row: usize| (0..self.width).all(|at| at == label_at || self.cell(row, at).parse::<f32>().is_err());
                let a_value = |column: usize| (0..self.rows()).any(|row| self.cell(row, column) == names[column]);
                let a_row = self.rows() > 0 && texts(0) && (0..self.width).all(a_value);
                if a_row { self.with_names_as_row() } else { self }
            }
            // All labels are numbers but this one.
            None if self.rows() > 1 && !is_number(0) && (1..self.rows()).all(is_number) => self.with_row_as_names(),
            None => self,
        }
    }

    /// The same with the first row for names.
    pub(crate) fn with_row_as_names(mut self) -> CsvTable {
        if self.names.is_some() || self.lines.is_empty() {
            return self;
        }
        let names: Vec<String> = (0..self.width).map(|column| self.cell(0, column).to_owned()).collect();
        let begin = self.ends[self.width - 1];
        self.text.drain(..begin as usize);
        self.ends.drain(..self.width);
        self.ends.iter_mut().for_each(|end| *end -= begin);
        self.lines.remove(0);
        self.names = Some(names);
        self
    }

    /// The same with the first line as a row like the others.
    pub(crate) fn with_names_as_row(mut self) -> CsvTable {
        let Some(names) = self.names.take() else { return self };
        let mut end = 0;
        let mut ends: Vec<u32> = Vec::with_capacity(self.ends.len() + names.len());
        ends.extend(names.iter().map(|name| {
            end += name.len() as u32;
            end
        }));
        ends.extend(self.ends.iter().map(|other| other + end));
        (self.ends, self.text) = (ends, names.concat() + &self.text);
        self.lines.insert(0, self.first_line);
        self
    }

    /// Some of the rows, in the order in which they are given.
    pub fn select(&self, rows: &[usize]) -> CsvTable {
        let mut table = CsvTable { text: String::new(), ends: Vec::new(), lines: Vec::new(), ..self.clone() };
        for &row in rows {
            for column in 0..self.width {
                table.text.push_str(self.cell(row, column));
                table.ends.push(table.text.len() as u32);
            }
            table.lines.push(self.lines[row]);
        }
        table
    }

    fn push(&mut self, line: u64, record: &StringRecord) -> Result<(), DataError> {
        let wrong = |why: String| DataError::Row { path: self.path.clone(), line, why };
        if record.len() != self.width {
            return Err(wrong(format!("{} columns, but the first line has {}", record.len(), self.width)));
        }
        let end = self.text.len() + record.as_slice().len();
        if u32::try_from(end).is_err() || u32::try_from(line).is_err() {
            let why = "the table is larger than 4 GiB; divide it".into();
            return Err(DataError::Table { path: self.path.clone(), why });
        }
        self.ends.extend(record.iter().scan(self.text.len() as u32, |end, cell| {
            *end += cell.len() as u32;
            Some(*end)
        }));
        self.text.push_str(record.as_slice());
        self.lines.push(line as u32);
        Ok(())
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the columns, if the first line has them.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// How many columns there are.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many rows there are, the names not counted.
    pub fn rows(&self) -> usize {
        self.lines.len()
    }

    /// A cell, without spaces around it. Panics if there is none.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        assert!(column < self.width, "column {column} of {}", self.width);
        let at = row * self.width + column;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.text[start..self.ends[at] as usize]
    }

    /// The line of the file that a row begins at, counted from 1.
    pub fn line(&self, row: usize) -> u64 {
        u64::from(self.lines[row])
    }

    /// What is wrong with a row.
    pub(crate) fn wrong(&self, row: usize, why: String) -> DataError {
        DataError::Row { path: self.path.clone(), line: self.line(row), why }
    }

    /// A column as a message calls it, by its number from 1 and its name.
    pub(crate) fn column_words(&self, column: usize) -> String {
        match &self.names {
            Some(names) => format!("column {} ({})", column + 1, quote(&names[column])),
            None => format!("column {}", column + 1),
        }
    }
}

fn label_column(path: &Path, first: &StringRecord, label: &LabelColumn) -> Result<usize, DataError> {
    let wrong = |why: String| DataError::Table { path: path.to_owned(), why };
    match label {
        LabelColumn::Last => Ok(first.len().saturating_sub(1)),
        LabelColumn::Index(index) if *index < first.len() => Ok(*index),
        LabelColumn::Index(index) => {
            Err(wrong(format!("there is no column {index}: there are {}, counted from 0", first.len())))
        }
        LabelColumn::Name(name) => first.iter().position(|cell| cell == name).ok_or_else(|| {
            let names = first.iter().map(quote).collect::<Vec<_>>().join(", ");
            wrong(format!("no column is called {}; the first line has: {names}", quote(name)))
        }),
    }
}

/// A cell in a message: on one line, and not all of a long one.
pub(crate) fn quote(cell: &str) -> String {
    let start: String = cell.chars().take(40).collect();
    let dots = if start.len() < cell.len() { "…" } else { "" };
    format!("`{}{dots}`", start.escape_debug())
}

/// What divides the cells of the first line that is not empty; what stands in quotes does not count.
fn delimiter(text: &[u8]) -> u8 {
    let mut quoted = false;
    let mut counts = [0; 3];
    for &byte in text.trim_ascii_start() {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            b'\t' => counts[0] += 1,
            b';' => counts[1] += 1,
            b',' => counts[2] += 1,
            _ => {}
        }
    }
    // The last of equals wins, so the comma is last.
    let most = (0..3).max_by_key(|&i| counts[i]).unwrap_or(2);
    b"\t;,"[most]
}
