//! A table with a label column as a data set.

use std::path::Path;

use crate::csv_file::CsvTable;
use crate::dataset::Dataset;
use crate::preprocess::Shape;
use crate::split::{HoldOut, held_for_test};
use crate::table::{TableTransform, TestPart};
use crate::{DataError, Options, Source};

/// Opens a table. Where it is known what to do to its cells, its columns may have another order.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Dataset, DataError> {
    let fitted = options.known.as_ref().and_then(|known| known.table.as_ref());
    let (options, whole) = (&options.csv, options.whole);
    let read = |path: &Path| match fitted {
        Some(fitted) => Ok((fitted.read(path, options.header)?, 0)),
        None => CsvTable::read_with_label(path, options.header, &options.label),
    };
    let (table, label) = read(path)?;
    let held = match options.test {
        _ if whole => Ok(Vec::new()),
        TestPart::Fraction(fraction) => held_for_test(table.rows(), HoldOut::Fraction(fraction)),
        TestPart::File(_) => Ok(vec![false; table.rows()]),
    };
    // What is wrong with a table is said before what is wrong with dividing it.
    let training = |row: usize| whole || held.as_ref().is_ok_and(|held| !held[row]) || held.is_err();
    let transform = match fitted {
        Some(fitted) => fitted.clone(),
        None => TableTransform::fit(&table, label, options, training)?,
    };
    let all = transform.split(&table)?;
    let (train, test) = match &options.test {
        _ if whole => (all.clone(), all),
        TestPart::Fraction(_) => all.parts(&held?),
        TestPart::File(file) => (all, transform.split(&read(file)?.0)?),
    };
    Ok(Dataset {
        name: Source::Csv.to_string(),
        shape: Shape::new(1, 1, transform.width()),
        classes: transform.classes.clone(),
        normalize: transform.normalize(),
        train,
        test,
        passed_over: Default::default(),
        table: Some(transform),
    })
}
