//! Runs of a study that a report says something of: those that failed, and so are in no figure, and those whose settings were
//! changed on the way, which are.

use super::Outcome;
use crate::report::document::Document;
use ftprop_train::changes::Changed;
use ftprop_train::words::{counted, plain};

/// Says which runs failed and why, and which were changed; each run comes with the name of its recipe or combination.
pub(crate) fn write_apart<'a>(page: &mut Document, runs: impl Iterator<Item = (String, &'a Outcome)>) {
    let (mut failed, mut changed) = (Vec::new(), Vec::new());
    for (name, run) in runs {
        let said = |what: &str| format!("{name}, seed {}: {what}", run.seed);
        if let (None, Some(why)) = (&run.summary, &run.failure) {
            failed.push(said(why));
        }
        let changes: Vec<String> = run.changes.iter().filter(|change| change.step > 0).map(words).collect();
        if !changes.is_empty() {
            changed.push(said(&changes.join(", ")));
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
    if !changed.is_empty() {
        page.text("Settings of these runs were changed on the way, and they are in the figures all the same:");
        page.list(changed);
    }
}

fn words(Changed { epoch, change, .. }: &Changed) -> String {
    format!("from epoch {epoch} on {} was {}, before {}", change.key, plain(&change.now), plain(&change.before))
}

/// How many of so many runs a figure is over.
pub(crate) fn seeds(count: usize, all: usize) -> String {
    if count == all { count.to_string() } else { format!("{count} of {all}") }
}
