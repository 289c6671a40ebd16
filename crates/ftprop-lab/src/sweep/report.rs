//! What a sweep came to: a table in the order of accuracy, on the validation part where there is one, and the curves.

use super::{Axis, Point, differences};
use crate::error::Error;
use crate::plot::{Figure, Inset, Panel, Picture, Series, Style};
use crate::report::document::Document;
use crate::study::{
    Accuracy, ENDED_EARLY, Outcome, Stint, ended_early, extent, mean_curves, outcome, seeds, write_apart,
    write_history, written,
};

/// A point of the grid and what its runs came to.
pub(super) struct Compared<'a> {
    pub(super) point: &'a Point,
    pub(super) runs: Vec<Outcome>,
    pub(super) accuracy: Accuracy,
}

impl Compared<'_> {
    /// The epochs of a whole run.
    fn whole(&self) -> u32 {
        self.point.jobs.first().map_or(0, |job| job.recipe.train.epochs)
    }
}

/// The page; `question` is what the sweep is to find out, where it says so.
pub fn report(question: Option<&str>, points: &[Point], axes: &[Axis], history: &[Stint]) -> Result<Document, Error> {
    let mut results = Vec::new();
    for point in points {
        let runs = point.jobs.iter().map(outcome).collect::<Result<Vec<_>, Error>>()?;
        results.push(Compared { point, accuracy: Accuracy::of(&runs), runs });
    }
    let keys: Vec<&str> = axes.iter().map(|axis| axis.key.as_str()).collect();
    let title = match (keys.is_empty(), points) {
        (true, [alone]) => format!("the seeds of {}", alone.base),
        (true, _) => "recipes compared".into(),
        (false, _) => format!("a sweep over {}", keys.join(", ")),
    };
    let mut page = Document::new(&capital(&title));
    let all: usize = results.iter().map(|r| r.runs.len()).sum();
    let finished = results.iter().flat_map(|r| &r.runs).filter(|run| run.summary.is_some()).count();
    let validated = results.iter().any(|r| r.accuracy.validation.count > 0);
    let order = match (points.len(), validated) {
        (1, _) => ".",
        (_, true) if results.iter().any(|r| r.accuracy.last.count > 0 && r.accuracy.validation.count == 0) => {
            "; the best come first, by their best epoch on the validation part, which the test part has no share in. Those \
             without a validation part come last and are not ranked, as they stand in the grid: nothing but the test part \
             could rank them."
        }
        (_, true) => {
            "; the best come first, by their best epoch on the validation part, which the test part has no share in."
        }
        (_, false) => {
            "; the best come first, by the last epoch on the test part: whoever chooses by that order is flattered by \
             it, and should hold examples out to choose by (data.validation)."
        }
    };
    if let Some(question) = question {
        page.text(&format!("**{question}**"));
    }
    page.text(&format!(
        "{finished} of {all} runs are finished. Figures are top-1 accuracies in percent, as mean ± standard deviation over \
         the seeds where there are several{order} The best epoch on the test part flatters."
    ));
    if results.iter().any(|result| ended_early(result.runs.iter(), result.whole())) {
        page.text(ENDED_EARLY);
    }
    let named = |result: &Compared<'_>| match result.point.values.is_empty() {
        true => result.point.base.clone(),
        false => format!("{}, {}", result.point.base, result.point.name()),
    };
    write_apart(&mut page, results.iter().flat_map(|r| r.runs.iter().map(move |run| (named(r), run))));
    let mut bases: Vec<&str> = points.iter().map(|point| point.base.as_str()).collect();
    bases.dedup();
    // Without a grid the recipes are compared with each other, with one they are not.
    let groups: Vec<(&str, Vec<&Compared<'_>>)> = match keys.is_empty() && bases.len() > 1 {
        true => vec![(RECIPES, results.iter().collect())],
        false => bases.iter().map(|b| (*b, results.iter().filter(|r| r.point.base == *b).collect())).collect(),
    };
    for (name, rows) in &groups {
        table(&mut page, name, &keys, &mut rows.clone(), validated);
    }
    differences::write(&mut page, &results);
    let begun = |shown: &[&Compared<'_>]| shown.iter().any(|r| r.runs.iter().any(|run| !run.metrics.is_empty()));
    if groups.iter().any(|(_, shown)| begun(shown)) {
        page.heading("Learning curves");
    }
    for (base, shown) in &groups {
        if begun(shown) {
            let path = format!("figures/{}", ftprop_train::run::folder_name(base));
            let caption = format!("Test accuracy of {base}, means over the seeds.");
            page.figure(curves(base, shown), &path, &caption);
        }
    }
    write_history(&mut page, history);
    Ok(page)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The heading of recipes that are compared with each other; a recipe's name stays as it is.
const RECIPES: &str = "recipes";

fn heading(name: &str) -> String {
    if name == RECIPES { capital(name) } else { name.to_string() }
}

/// `validated` says that the test part ranks nothing: there are runs with a validation part.
fn table(page: &mut Document, base: &str, keys: &[&str], rows: &mut [&Compared<'_>], validated: bool) {
    page.heading(&heading(base));
    let rank = |r: &Compared<'_>| {
        let Accuracy { last, validation, .. } = &r.accuracy;
        match validation.count {
            0 if validated => (false, last.count > 0, 0.0),
            0 => (false, last.count > 0, last.mean),
            _ => (true, true, validation.mean),
        }
    };
    rows.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal));
    let chosen = rows.iter().any(|r| r.accuracy.chosen.count > 0);
    let mut head: Vec<String> = if keys.is_empty() { vec!["recipe".into()] } else { Vec::new() };
    head.extend(keys.iter().map(|key| format!("`{key}`")));
    head.extend(chosen.then(|| "validation".to_string()));
    head.extend(["last epoch", "best epoch"].map(String::from));
    head.extend(chosen.then(|| "chosen on validation".to_string()));
    head.extend(["train, last epoch", "epochs", "seeds"].map(String::from));
    let line = |result: &&Compared<'_>| {
        let Accuracy { best, last, validation, chosen: by_validation, train, .. } = &result.accuracy;
        let mut cells = if keys.is_empty() { vec![result.point.base.clone()] } else { result.point.values.clone() };
        cells.extend(chosen.then(|| written(validation)));
        cells.extend([written(last), written(best)]);
        cells.extend(chosen.then(|| written(by_validation)));
        cells.extend([written(train), epochs(result), seeds(last.count, result.runs.len())]);
        cells
    };
    page.table(&head, rows.iter().map(line).collect());
}

/// How many epochs the runs of a point had, of those that they were to have.
fn epochs(result: &Compared<'_>) -> String {
    let whole = result.whole();
    let finished = result.runs.iter().filter_map(|run| run.summary.as_ref());
    let (least, most) = match result.accuracy.last.count {
        0 => (result.runs.iter().map(|run| run.metrics.len()).min().unwrap_or(0), 0),
        _ => extent(finished.map(|summary| summary.epochs as usize)),
    };
    match (least, most) {
        (least, _) if least == whole as usize => whole.to_string(),
        (least, most) if most > least => format!("{least} to {most} of {whole}"),
        (least, _) => format!("{least} of {whole}"),
    }
}

/// Points below the best at the end that still count as among the best.
const CLOSE: f64 = 5.0;

/// What an inset has to show for the best to be told apart, where others are far below them.
fn leaders(series: &[Series], (from, to): (f64, f64)) -> Option<(f64, f64)> {
    let end = |s: &Series| s.points.last().map_or(f64::NEG_INFINITY, |p| p.1);
    let best = series.iter().map(end).fold(f64::NEG_INFINITY, f64::max);
    let (close, far): (Vec<_>, Vec<_>) = series.iter().partition(|s| end(s) >= best - CLOSE);
    if far.is_empty() {
        return None;
    }
    let shown = close.iter().flat_map(|s| &s.points).filter(|p| (from..=to).contains(&p.0)).map(|p| p.1);
    let (least, most) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), y| (l.min(y), m.max(y)));
    let room = 0.05 * (most - least).max(1e-3);
    Some((least - room, most + room))
}

/// Test accuracy over the epochs, a line for each point, with an inset of the last third.
fn curves(base: &str, results: &[&Compared<'_>]) -> Picture {
    let mut series = Vec::new();
    let mut last = 0;
    for (group, result) in results.iter().enumerate() {
        let curves = mean_curves(&result.point.name(), &result.runs);
        last = last.max(curves.epochs.last().map_or(0, |e| e.epoch));
        let points =
            curves.epochs.iter().filter_map(|e| Some((f64::from(e.epoch), 100.0 * e.test_accuracy?))).collect();
        series.push(Series { name: curves.name, group, style: Style::Solid, points });
    }
    let inset = (last >= 9).then(|| {
        let x_range = (f64::from(last - last / 3), f64::from(last));
        let y_range = leaders(&series, x_range);
        let best = if y_range.is_some() { " of the best" } else { "" };
        Inset { x_range, y_range, only: None, label: format!("last {} epochs{best}", last / 3) }
    });
    let figure = Figure {
        title: base.to_string(),
        x_label: "epoch".into(),
        y_label: "top-1 test accuracy (%)".into(),
        series,
        inset,
        ..Figure::default()
    };
    Picture {
        title: String::new(),
        panels: vec![Panel::Lines(figure)],
        columns: 1,
        panel_size: (900.0, 520.0),
        legend: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::statistics::Sample;

    /// Those without a validation part stood among the others by their test accuracy.
    #[test]
    fn the_test_part_ranks_nothing_beside_a_validation_part() {
        let value = |value: &str| Point { base: "a".into(), values: vec![value.into()], jobs: Vec::new() };
        let points = ["none", "half", "neither", "third", "unfinished"].map(value);
        let sample = |share: Option<f64>| Sample::new(share);
        let figures = [(Some(70.0), None), (Some(60.0), Some(80.0)), (Some(95.0), None), (Some(50.0), Some(85.0))];
        let accuracy = |(last, validation)| Accuracy {
            last: sample(last),
            validation: sample(validation),
            chosen: sample(validation),
            ..Accuracy::default()
        };
        let accuracies = figures.into_iter().chain([(None, None)]).map(accuracy);
        let compared = |(point, accuracy)| Compared { point, runs: Vec::new(), accuracy };
        let results: Vec<Compared<'_>> = points.iter().zip(accuracies).map(compared).collect();
        let order = |rows: &mut Vec<&Compared<'_>>, validated| {
            let mut page = Document::new("any");
            table(&mut page, "a", &["data.validation"], rows, validated);
            rows.iter().map(|row| row.point.name()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&mut results.iter().collect(), true), "third half none neither unfinished");
        let without = |r: &&Compared<'_>| r.accuracy.validation.count == 0;
        assert_eq!(order(&mut results.iter().filter(without).collect(), false), "neither none unfinished");
    }

    #[test]
    fn the_inset_shows_the_best_where_others_are_far_below() {
        let line = |values: &[f64]| Series {
            name: String::new(),
            group: 0,
            style: Style::Solid,
            points: values.iter().enumerate().map(|(i, &y)| (1.0 + i as f64, y)).collect(),
        };
        let (good, better, dead) = (line(&[40.0, 80.0, 82.0]), line(&[50.0, 81.0, 83.0]), line(&[30.0, 10.0, 10.0]));
        let (low, high) = leaders(&[good.clone(), dead, better.clone()], (2.0, 3.0)).unwrap();
        assert!((79.0..80.0).contains(&low) && (83.0..84.0).contains(&high), "{low} to {high}");
        assert_eq!(leaders(&[good, better], (2.0, 3.0)), None);
    }
}
