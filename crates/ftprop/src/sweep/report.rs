//! What a sweep came to: a table in the order of accuracy, and the curves.

use super::{Axis, Point};
use crate::error::Error;
use crate::plot::{Figure, Inset, Panel, Picture, Series, Style};
use crate::report::document::Document;
use crate::study::{Accuracy, Outcome, Stint, mean_curves, outcome, write_history, written};

/// A point of the grid and what its runs came to.
struct Compared<'a> {
    point: &'a Point,
    runs: Vec<Outcome>,
    accuracy: Accuracy,
}

/// The page.
pub fn report(points: &[Point], axes: &[Axis], history: &[Stint]) -> Result<Document, Error> {
    let mut results = Vec::new();
    for point in points {
        let runs = point.jobs.iter().map(outcome).collect::<Result<Vec<_>, Error>>()?;
        results.push(Compared { point, accuracy: Accuracy::of(&runs), runs });
    }
    let keys: Vec<&str> = axes.iter().map(|axis| axis.key.as_str()).collect();
    let title = if keys.is_empty() { "recipes compared".into() } else { format!("a sweep over {}", keys.join(", ")) };
    let mut page = Document::new(&capital(&title));
    let all: usize = results.iter().map(|r| r.runs.len()).sum();
    let finished = results.iter().flat_map(|r| &r.runs).filter(|run| run.summary.is_some()).count();
    page.text(&format!(
        "{finished} of {all} runs are finished. Figures are top-1 accuracies in percent, as mean ± standard deviation over \
         the seeds where there are several; the best come first, by the last epoch on the test images. The best epoch on \
         the test images flatters."
    ));
    let mut bases: Vec<&str> = points.iter().map(|point| point.base.as_str()).collect();
    bases.dedup();
    for base in &bases {
        let mut rows: Vec<&Compared<'_>> = results.iter().filter(|r| r.point.base == *base).collect();
        table(&mut page, base, &keys, &mut rows);
    }
    page.heading("Learning curves");
    for base in &bases {
        let shown: Vec<&Compared<'_>> = results.iter().filter(|r| r.point.base == *base).collect();
        if shown.iter().any(|r| r.runs.iter().any(|run| !run.metrics.is_empty())) {
            let path = format!("figures/{}", crate::run::folder_name(base));
            let caption = format!("Test accuracy of {base}, means over the seeds.");
            page.figure(curves(base, &shown), &path, &caption);
        }
    }
    write_history(&mut page, history);
    Ok(page)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn table(page: &mut Document, base: &str, keys: &[&str], rows: &mut [&Compared<'_>]) {
    page.heading(base);
    rows.sort_by(|a, b| {
        let rank = |r: &Compared<'_>| (r.accuracy.last.count > 0, r.accuracy.last.mean);
        rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let chosen = rows.iter().any(|r| r.accuracy.chosen.count > 0);
    let mut head: Vec<String> = if keys.is_empty() { vec!["recipe".into()] } else { Vec::new() };
    head.extend(keys.iter().map(|key| format!("`{key}`")));
    head.extend(["last epoch", "best epoch"].map(String::from));
    head.extend(chosen.then(|| "chosen on validation".to_string()));
    head.extend(["train, last epoch", "epochs", "seeds"].map(String::from));
    let line = |result: &&Compared<'_>| {
        let Accuracy { best, last, chosen: by_validation, train } = &result.accuracy;
        let mut cells = if keys.is_empty() { vec![base.to_string()] } else { result.point.values.clone() };
        cells.extend([written(last), written(best)]);
        cells.extend(chosen.then(|| written(by_validation)));
        let whole = result.point.jobs.first().map_or(0, |job| job.recipe.train.epochs);
        let shortest = result.runs.iter().map(|run| run.metrics.len()).min().unwrap_or(0);
        let epochs = if last.count > 0 { whole.to_string() } else { format!("{shortest} of {whole}") };
        cells.extend([written(train), epochs, last.count.to_string()]);
        cells
    };
    page.table(&head, rows.iter().map(line).collect());
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
    let inset = (last >= 9).then(|| Inset {
        x_range: (f64::from(last - last / 3), f64::from(last)),
        y_range: None,
        only: None,
        label: format!("last {} epochs", last / 3),
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
