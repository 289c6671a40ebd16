//! A table with a label column as a data set.

use std::path::Path;

use crate::csv_file::CsvTable;
use crate::dataset::Dataset;
use crate::preprocess::Shape;
use crate::split::{HoldOut, held_for_test};
use crate::table::{CsvOptions, TableTransform, TestPart};
use crate::{DataError, Source};

pub(crate) fn open(path: &Path, options: &CsvOptions) -> Result<Dataset, DataError> {
    let read = |path: &Path| CsvTable::read_with_label(path, options.header, &options.label);
    let (table, label) = read(path)?;
    let held = match options.test {
        TestPart::Fraction(fraction) => held_for_test(table.rows(), HoldOut::Fraction(fraction)),
        TestPart::File(_) => Ok(vec![false; table.rows()]),
    };
    // What is wrong with a table is said before what is wrong with dividing it.
    let training = |row: usize| held.as_ref().is_ok_and(|held| !held[row]) || held.is_err();
    let transform = TableTransform::fit(&table, label, options, training)?;
    let all = transform.split(&table)?;
    let (train, test) = match &options.test {
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
