//! What `train` says before it begins.

use crate::progress::{counted, tell};
use ftprop_data::{ColumnKind, Dataset, Split, TableTransform};
use ftprop_train::device::Place;
use ftprop_train::recipe::Recipe;
use ftprop_train::trainer::Trainer;
use ftprop_train::words::plain;
use std::collections::HashSet;

/// One in so many test rows is too many to have been learned from.
const MANY_OF: usize = 10;
/// Things that are named before the others are only counted.
const NAMED: usize = 3;

/// Says what is about to be trained, and what may surprise.
pub(super) fn tell_begin(trainer: &Trainer, recipe: &Recipe, dataset: &Dataset, place: &Place) {
    if let Some(note) = &place.note {
        tell(note);
    }
    tell(&format!(
        "{}: {} training{} and {} test examples, {} classes; {} parameters; {} {}; {}{}",
        plain(&recipe.name),
        trainer.train_examples(),
        match trainer.validation_examples() {
            0 => String::new(),
            held_out => format!(", {held_out} held-out"),
        },
        dataset.test.len(),
        dataset.classes.len(),
        trainer.parameters(),
        recipe.activation,
        if recipe.activation.is_hard() { recipe.layer_loss.to_string() } else { "full precision".into() },
        match &place.team {
            Some(team) => format!("{} on {}", counted(team.share().ranks as u32, "rank"), place.describe()),
            None => place.describe(),
        },
        if place.gpu.is_some() { format!(", {}", recipe.train.precision) } else { String::new() }
    ));
    if let Some(table) = &dataset.table {
        tell(&columns(table));
    }
    if dataset.passed_over.count() > 0 {
        tell(&dataset.passed_over.to_string());
    }
    let batch = trainer.recipe().train.batch;
    if batch < recipe.train.batch {
        tell(&format!("batches have {batch} examples, not {}: there are no more", recipe.train.batch));
    }
    let (held_out, classes) = (trainer.validation_examples(), dataset.classes.len());
    if (1..classes).contains(&held_out) {
        tell(&format!(
            "{} held out to choose an epoch by, fewer than there are classes, so chance chooses; data.validation is a share \
             below 1, or a number",
            if held_out == 1 { "1 example is".to_string() } else { format!("{held_out} examples are") }
        ));
    }
    if let Some(untested) = untested(dataset) {
        tell(&untested);
    }
    if let Some(unlearned) = unlearned(dataset) {
        tell(&unlearned);
    }
    if let Some(measured) = measured(dataset) {
        tell(&measured);
    }
    if let Some(alone) = alone(dataset) {
        tell(&alone);
    }
    if let Some(repeated) = repeated(dataset) {
        tell(&repeated);
    }
}

/// Examples to measure by that were learned from, where there are many.
fn repeated(dataset: &Dataset) -> Option<String> {
    let (all, repeated) = (dataset.test.len(), dataset.repeated());
    let what = if dataset.table.is_some() { "rows" } else { "pictures" };
    (repeated * MANY_OF >= all && repeated > 1).then(|| {
        format!(
            "{repeated} of {all} test {what} are the same as training {what}, labels included, so the test accuracy flatters"
        )
    })
}

/// A first line that was taken for a row, with a label that no other row has: it may hold the names of columns.
fn alone(dataset: &Dataset) -> Option<String> {
    let labels = dataset.table.as_ref().filter(|table| !table.named).map(|_| dataset.train.labels())?;
    let first = *labels.first()?;
    let class = dataset.classes.get(first as usize)?;
    (labels.iter().filter(|&&label| label == first).count() == 1).then(|| {
        format!(
            "the first line alone has the label `{}`; if it names the columns, say so by --set data.csv.header=true",
            plain(class)
        )
    })
}

/// A table whose labels look like a measurement: many whole numbers, and few rows of each.
fn measured(dataset: &Dataset) -> Option<String> {
    let (classes, rows) = (dataset.classes.len(), dataset.train.len() + dataset.test.len());
    let numbers = dataset.table.is_some() && dataset.classes.iter().all(|class| class.parse::<i64>().is_ok());
    (numbers && classes > 20 && rows < 10 * classes).then(|| {
        format!(
            "the labels are {classes} different numbers in {rows} rows, each a class of its own; if they are a measurement, \
             put them in ranges with names"
        )
    })
}

/// What a table's columns are taken for: that the last one is the label, or that a number with a unit is a text, may not be what
/// was meant.
pub(super) fn columns(table: &TableTransform) -> String {
    let name = table.label.as_ref().map_or_else(String::new, |name| format!(" (`{}`)", plain(name)));
    let texts = table.columns.iter().filter_map(|column| match &column.kind {
        ColumnKind::Category { texts } => Some((&column.name, texts.len())),
        ColumnKind::Number { .. } => None,
    });
    let texts: Vec<String> = texts.map(|(name, count)| format!("{} ({count} different)", plain(name))).collect();
    let numbers = table.columns.len() - texts.len();
    let mut said = format!("labels are in column {}{name}; learned from are ", table.label_at + 1);
    match (numbers, texts.len()) {
        (_, 0) => said.push_str(&format!("{} of numbers", counted(numbers as u64, "column"))),
        (0, count) => said.push_str(&format!("{} of texts: {}", counted(count as u64, "column"), some(&texts))),
        (_, count) => said.push_str(&format!(
            "{} of numbers and {count} of texts: {}",
            counted(numbers as u64, "column"),
            some(&texts)
        )),
    }
    said
}

/// The first few names, and how many more there are.
fn some<S: AsRef<str>>(names: &[S]) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(NAMED);
    format!("{}{}", first.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// What the test part cannot tell, if anything: classes without an example in it.
fn untested(dataset: &Dataset) -> Option<String> {
    let tested = classes_in(&dataset.test);
    let missing = named(dataset, |label| !tested.contains(&label));
    (!missing.is_empty()).then(|| format!("the test part has no example of {}", plain(&some(&missing))))
}

/// What is measured though nobody can learn it: classes with examples in the test part alone.
fn unlearned(dataset: &Dataset) -> Option<String> {
    let (learned, tested) = (classes_in(&dataset.train), classes_in(&dataset.test));
    let missing = named(dataset, |label| tested.contains(&label) && !learned.contains(&label));
    (!missing.is_empty()).then(|| {
        format!(
            "the training part has no example of {}, which the test part has, so the network can never answer that",
            plain(&some(&missing))
        )
    })
}

fn classes_in(part: &Split) -> HashSet<u32> {
    (0..part.len()).map(|position| part.label(position)).collect()
}

/// The names of some classes.
fn named(dataset: &Dataset, which: impl Fn(u32) -> bool) -> Vec<&str> {
    (0u32..).zip(&dataset.classes).filter(|(label, _)| which(*label)).map(|(_, name)| name.as_str()).collect()
}
