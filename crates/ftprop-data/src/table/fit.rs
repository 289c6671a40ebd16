//! What a table's cells mean: numbers, categories, classes, or nothing that could be learned from.

use std::collections::{BTreeMap, BTreeSet};

use super::column::{is_missing, missing_value, number};
use super::{ColumnKind, Missing, whole_number};
use crate::DataError;
use crate::csv_file::{CsvTable, quote};

/// Different texts that a column may have before it counts as free text.
const MOST_TEXTS: usize = 256;
/// Different numbers that a label column may have before it counts as a measurement, if not all are whole.
const MOST_NUMBERS: usize = 20;
/// Rows of each label, on average, that there must be where there are more labels than that.
const LEAST_OF_A_CLASS: usize = 2;
/// How many times its deviation a column's mean may be before its values are counted from an origin: 32 bits hold 24 digits of
/// two, and beyond this fewer than 12 of them would tell the values apart.
const FAR: f64 = 4096.0;

/// What becomes of a column's cells.
pub(super) fn fit_column(
    table: &CsvTable,
    column: usize,
    as_text: bool,
    missing: Missing,
    training: &impl Fn(usize) -> bool,
) -> Result<ColumnKind, DataError> {
    let cell = |row: usize| table.cell(row, column);
    let is_number = |cell: &str| cell.parse::<f32>().is_ok();
    let absent = |cell: &str| missing != Missing::Refuse && is_missing(cell);
    // A column is text if none of its cells is a number; what is neither the one nor the other is an error below.
    let texts = (0..table.rows()).map(cell).filter(|cell| !is_missing(cell));
    if as_text || (texts.clone().next().is_some() && !texts.clone().any(is_number)) {
        if !as_text {
            check_texts(table, column, texts)?;
        }
        return fit_texts(table, column, missing);
    }
    let (mut values, mut any_absent) = (Vec::new(), false);
    for row in 0..table.rows() {
        if absent(cell(row)) {
            any_absent = true;
        } else if training(row) {
            values.push(number(table, row, column, None)?);
        } else {
            number(table, row, column, None)?;
        }
    }
    if values.is_empty() {
        let why = format!("{} holds no value in the training part; leave it out", table.column_words(column));
        return Err(DataError::Table { path: table.path().to_owned(), why });
    }
    let present = || (0..table.rows()).filter(|&row| training(row) && !absent(cell(row)));
    let origin =
        if is_far(&values) { origin(present().filter_map(|row| cell(row).parse().ok()).collect()) } else { None };
    if origin.is_some() {
        values = present().map(|row| number(table, row, column, origin)).collect::<Result<_, _>>()?;
    }
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    let fill = any_absent.then(|| match missing {
        Missing::Median => median(&mut values.clone()),
        _ => mean as f32,
    });
    // Over what the network will see: with what stands for missing values.
    let absent_training = (0..table.rows()).filter(|&row| training(row) && absent(cell(row))).count();
    values.extend(std::iter::repeat_n(fill.unwrap_or(0.0), absent_training));
    let (mean, deviation) = spread(&values);
    let fill = if missing == Missing::Refuse { None } else { fill.or(Some(mean)) };
    Ok(ColumnKind::Number { origin, mean, deviation, fill, indicator: any_absent && missing == Missing::Indicator })
}

/// Mean and deviation; a deviation of 1 where all are the same.
pub(super) fn spread(values: &[f32]) -> (f32, f32) {
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean as f32, if variance > 0.0 { variance.sqrt() as f32 } else { 1.0 })
}

/// Whether values may lie so far from 0 that they need an origin, as far as 32 bits tell: these move none of them by more than
/// a sixteen-millionth.
fn is_far(values: &[f32]) -> bool {
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / values.len() as f64;
    mean.abs() > 0.9 * FAR * variance.sqrt()
}

/// From where the values of a column are counted, if they lie far from 0 beside their deviation: their median, with as many
/// digits as the deviation needs, for people read it too.
fn origin(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    // From the middle on, so that what is the same everywhere has no deviation, and what hardly differs the right one.
    let middle = *values.get(values.len().saturating_sub(1) / 2)?;
    let mean = values.iter().map(|x| x - middle).sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|x| (x - middle - mean).powi(2)).sum::<f64>() / values.len() as f64;
    let deviation = variance.sqrt();
    if deviation == 0.0 || (middle + mean).abs() <= FAR * deviation {
        return None;
    }
    let digits = (middle.abs().log10().floor() - deviation.log10().floor()).clamp(0.0, 17.0) as usize;
    format!("{middle:.digits$e}").parse().ok()
}

fn median(values: &mut [f32]) -> f32 {
    values.sort_by(f32::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Refuses texts that nobody means as categories: numbers in another spelling, and texts that name single rows.
fn check_texts<'a>(
    table: &CsvTable,
    column: usize,
    texts: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), DataError> {
    let wrong = |why: String| DataError::Table { path: table.path().to_owned(), why };
    if let (Some(some), Some(comma)) = (texts.clone().next(), Comma::of(texts.clone())) {
        let (words, some) = (table.column_words(column), quote(some));
        return Err(wrong(match comma {
            Comma::Decimal => {
                format!("{words} holds numbers with a decimal comma, such as {some}; write them with a point")
            }
            Comma::Thousands => {
                format!(
                    "{words} holds numbers with commas between thousands, such as {some}; write them without, or say that they are names \
                         (data.csv.categories)"
                )
            }
            Comma::Either => format!(
                "{words} holds numbers with a comma, such as {some}; if it divides thousands leave it out, if it is a decimal comma \
                 write a point"
            ),
        }));
    }
    let (rows, different) = (texts.clone().count(), texts.collect::<BTreeSet<_>>().len());
    if different > MOST_NUMBERS && rows < LEAST_OF_A_CLASS * different && different <= MOST_TEXTS {
        let words = table.column_words(column);
        return Err(wrong(format!(
            "{words} holds {different} different texts in {rows} rows, so most name a single row; leave it out \
             (data.csv.ignore), put the texts in groups, or say that they are categories (data.csv.categories)"
        )));
    }
    Ok(())
}

/// What the commas in numbers mean.
enum Comma {
    Decimal,
    Thousands,
    Either,
}

impl Comma {
    /// By all texts of a column; none if they are no numbers with commas.
    fn of<'a>(mut texts: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        // Three digits follow each, but for a fraction behind the last ones.
        let thousands = |text: &str| {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let mut groups = whole.strip_prefix(['-', '+']).unwrap_or(whole).split(',');
            let digits = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
            let first = groups.next().is_some_and(|group| digits(group) && group.len() <= 3);
            first && groups.all(|group| digits(group) && group.len() == 3) && (fraction.is_empty() || digits(fraction))
        };
        let decimal = |text: &str| text.replacen(',', ".", 1).parse::<f32>().is_ok();
        if !texts.clone().all(|text| text.contains(',')) {
            return None;
        }
        match (texts.clone().all(thousands), texts.all(decimal)) {
            (true, true) => Some(Comma::Either),
            (true, false) => Some(Comma::Thousands),
            (false, true) => Some(Comma::Decimal),
            (false, false) => None,
        }
    }
}

fn fit_texts(table: &CsvTable, column: usize, missing: Missing) -> Result<ColumnKind, DataError> {
    let mut texts = BTreeSet::new();
    for row in 0..table.rows() {
        let cell = table.cell(row, column);
        if missing == Missing::Refuse && cell.is_empty() {
            return Err(missing_value(table, row, column));
        }
        texts.insert(if is_missing(cell) { "" } else { cell });
        if texts.len() > MOST_TEXTS {
            let words = table.column_words(column);
            let why = format!(
                "{words} holds more than {MOST_TEXTS} different texts; leave it out (data.csv.ignore) or put them in groups"
            );
            return Err(DataError::Table { path: table.path().to_owned(), why });
        }
    }
    Ok(ColumnKind::Category { texts: texts.into_iter().map(str::to_owned).collect() })
}

/// The classes of a table: whole numbers in numeric order, others in alphabetical order.
pub(super) fn classes_of(table: &CsvTable, label: usize) -> Result<Vec<String>, DataError> {
    let wrong = |why: String| DataError::Table { path: table.path().to_owned(), why };
    let mut texts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in 0..table.rows() {
        let text = table.cell(row, label);
        if text.is_empty() {
            return Err(table.wrong(row, format!("no label in column {}", label + 1)));
        }
        *texts.entry(text).or_default() += 1;
    }
    // Whatever they are, so many are no classes that could be learnt.
    let learnable = |labels: usize| match labels > MOST_NUMBERS && table.rows() < LEAST_OF_A_CLASS * labels {
        false => Ok(()),
        true => Err(wrong(format!(
            "{} holds {labels} different labels in {} rows, too few of each to learn; choose another label column (data.csv.label), or \
             put the labels in groups with names",
            table.column_words(label),
            table.rows()
        ))),
    };
    if let Some(numbers) = texts.keys().map(|text| whole_number(text)).collect::<Option<BTreeSet<i64>>>() {
        texts.clear();
        if numbers.len() > 1 {
            learnable(numbers.len())?;
            return Ok(numbers.iter().map(i64::to_string).collect());
        }
    }
    let measured = texts.keys().all(|text| text.parse::<f64>().is_ok_and(f64::is_finite));
    if measured && texts.len() > MOST_NUMBERS {
        return Err(wrong(format!(
            "{} holds {} different numbers in {} rows, a measurement and no classes; choose another label column (data.csv.label), or \
             put the numbers in ranges with names",
            table.column_words(label),
            texts.len(),
            table.rows()
        )));
    }
    if texts.len() < 2 {
        let only = quote(table.cell(0, label));
        return Err(wrong(format!("every row has the label {only}; is it the right column (data.csv.label)?")));
    }
    learnable(texts.len())?;
    Ok(texts.into_keys().map(str::to_owned).collect())
}
