//! Runs of a study that a report says something of: those that failed, and so are in no figure.

use super::Outcome;
use crate::report::document::Document;
use ftprop_train::words::counted;

/// Says which runs failed and why; each run comes with the name of its recipe or combination.
pub(crate) fn write_apart<'a>(page: &mut Document, runs: impl Iterator<Item = (String, &'a Outcome)>) {
    let mut failed = Vec::new();
    for (name, run) in runs {
        if let (None, Some(why)) = (&run.summary, &run.failure) {
            failed.push(format!("{name}, seed {}: {why}", run.seed));
        }
    }
    if !failed.is_empty() {
        page.text(&format!(
            "**{} failed** and can be in no figure: means and deviations are over the others, which flatters a setting that \
             training does not always survive.",
            counted(failed.len() as u64, "run")
        ));
        page.list(failed);
    }
}

/// How many of so many runs a figure is over.
pub(crate) fn seeds(count: usize, all: usize) -> String {
    if count == all { count.to_string() } else { format!("{count} of {all}") }
}
