//! A column of a table: what becomes of its cells.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::DataError;
use crate::csv_file::{CsvTable, quote};

/// A column of a table and what becomes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableColumn {
    /// Its name, or its number from 1 where it has none.
    pub name: String,
    /// What becomes of its cells.
    pub kind: ColumnKind,
}

/// What becomes of a column's cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ColumnKind {
    /// A number x becomes `(x - origin - mean) / deviation`.
    Number {
        /// What is taken from each value in 64 bits, before 32 hold it: where values lie so far from 0 that 32 bits would make
        /// the same number of many, as of times in seconds since 1970. The mean and what stands for a missing value are of
        /// what is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<f64>,
        /// Of the training rows.
        mean: f32,
        /// Of the training rows; 1 where all are the same.
        deviation: f32,
        /// What stands for a missing value, if anything does.
        fill: Option<f32>,
        /// Whether a second number says where it does.
        indicator: bool,
    },
    /// A text becomes 1 in its own place and 0 in the others.
    Category {
        /// The texts, sorted; an empty one stands for a missing value.
        texts: Vec<String>,
    },
}

impl ColumnKind {
    /// How many numbers a cell becomes.
    pub(super) fn width(&self) -> usize {
        match self {
            ColumnKind::Number { indicator, .. } => 1 + usize::from(*indicator),
            ColumnKind::Category { texts } => texts.len(),
        }
    }

    /// Writes the numbers of one cell.
    pub(super) fn write(&self, table: &CsvTable, row: usize, column: usize, to: &mut [f32]) -> Result<(), DataError> {
        let cell = table.cell(row, column);
        match self {
            ColumnKind::Number { fill: Some(fill), indicator, .. } if is_missing(cell) => {
                to[0] = *fill;
                if *indicator {
                    to[1] = 1.0;
                }
            }
            ColumnKind::Number { origin, .. } => to[0] = number(table, row, column, *origin)?,
            ColumnKind::Category { texts } => {
                let text = if is_missing(cell) { "" } else { cell };
                let find = |text: &str| texts.binary_search_by(|known| known.as_str().cmp(text));
                // Older models have line ends as their file had them.
                let place = find(text).or_else(|_| find(&text.replace('\n', "\r\n"))).map_err(|_| {
                    let words = table.column_words(column);
                    table.wrong(row, format!("{} in {words} does not occur in the training file", quote(cell)))
                })?;
                to[place] = 1.0;
            }
        }
        Ok(())
    }

    /// Adds the same numbers as decimals, not rounded.
    pub(super) fn write_decimals<'a>(
        &self,
        table: &'a CsvTable,
        row: usize,
        column: usize,
        to: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), DataError> {
        let mut numbers = vec![0.0; self.width()];
        self.write(table, row, column, &mut numbers)?;
        let cell = table.cell(row, column);
        let first = match self {
            ColumnKind::Number { fill, origin, .. } if fill.is_none() || !is_missing(cell) => match origin {
                None => Cow::Borrowed(cell),
                Some(origin) => Cow::Owned(less(cell, *origin).ok_or_else(|| {
                    let (cell, words) = (quote(cell), table.column_words(column));
                    table
                        .wrong(row, format!("{cell} in {words} is too long to take {origin} from it exactly; round it"))
                })?),
            },
            _ => Cow::Owned(decimal(numbers[0])),
        };
        to.push(first);
        to.extend(numbers[1..].iter().map(|&number| Cow::Owned(decimal(number))));
        Ok(())
    }
}

/// A float exactly: none has more places than these.
fn decimal(float: f32) -> String {
    let text = format!("{float:.149}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number less an origin, both as the decimals that are written, if their digits fit 128 bits.
fn less(cell: &str, origin: f64) -> Option<String> {
    let ((cell, power), (origin, places)) = (digits(cell)?, digits(&origin.to_string())?);
    let least = power.min(places).min(0);
    let aligned = |digits: i128, power: i32| match digits {
        0 => Some(0),
        _ => digits.checked_mul(10i128.checked_pow(power.abs_diff(least))?),
    };
    let left = aligned(cell, power)?.checked_sub(aligned(origin, places)?)?;
    let places = least.unsigned_abs() as usize;
    let text = format!("{:0>width$}", left.unsigned_abs(), width = places + 1);
    let (whole, rest) = text.split_at(text.len() - places);
    let sign = if left < 0 { "-" } else { "" };
    Some(if places == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") })
}

/// A decimal as its digits and a power of ten, if it has no more digits than 128 bits hold.
fn digits(text: &str) -> Option<(i128, i32)> {
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{before}{after}").parse().ok()?;
    let power = power.parse::<i32>().ok()?.checked_sub(i32::try_from(after.len()).ok()?)?;
    // What is 0 has no places that would have to be kept.
    Some(if digits == 0 { (0, 0) } else { (digits, power) })
}

pub(super) fn is_missing(cell: &str) -> bool {
    let known = ["na", "n/a", "nan", "null", "none", "?"];
    cell.is_empty() || known.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

/// A cell as a number, less the column's origin, or what is wrong with it.
pub(super) fn number(table: &CsvTable, row: usize, column: usize, origin: Option<f64>) -> Result<f32, DataError> {
    let cell = table.cell(row, column);
    let value = match origin {
        None => cell.parse::<f32>(),
        Some(origin) => cell.parse::<f64>().map(|value| (value - origin) as f32),
    };
    let why = match value {
        Ok(value) if value.is_finite() => return Ok(value),
        _ if is_missing(cell) => return Err(missing_value(table, row, column)),
        Ok(_) if cell.contains(|c: char| c.is_ascii_digit()) => {
            let column = table.column_words(column);
            format!("{} in {column} is beyond 32-bit numbers, which end at 3.4e38; scale the column", quote(cell))
        }
        Ok(_) => format!("{} in {} is not a finite number", quote(cell), table.column_words(column)),
        Err(_) => format!("{} in {} is not a number, as others there are", quote(cell), table.column_words(column)),
    };
    Err(table.wrong(row, why))
}

/// That a cell has no value and nothing stands for it.
pub(super) fn missing_value(table: &CsvTable, row: usize, column: usize) -> DataError {
    let cell = table.cell(row, column);
    DataError::MissingValue {
        path: table.path().to_owned(),
        line: table.line(row),
        what: if cell.is_empty() { "nothing".into() } else { quote(cell) },
        column: table.column_words(column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_taken_away_digit_by_digit() {
        for (cell, origin, left) in [
            ("1700000012", 1_700_000_060.0, "-48"),
            ("1700000060.25", 1_700_000_060.0, "0.25"),
            ("+1.70000006e9", 1_700_000_060.0, "0"),
            ("1700000060.000000000000000001", 1_700_000_060.0, "0.000000000000000001"),
            ("1.50000001", 1.5, "0.00000001"),
            ("-7.", -7.125, "0.125"),
            ("0e999999999", 1e6, "-1000000"),
            (".5", 1e6, "-999999.5"),
        ] {
            assert_eq!(less(cell, origin).as_deref(), Some(left), "{cell} {origin}");
        }
        for long in ["1e-999999999", "1e99", "1.00000000000000000000000000000000000000000001", "1e", "x"] {
            assert_eq!(less(long, 1.0), None, "{long}");
        }
    }
}
