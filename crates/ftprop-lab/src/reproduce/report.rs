//! The report: the paper's table and figures beside ours.

use super::{COLUMNS, Cell, NetworkRow, Rows};
use crate::diagnostics::comparison;
use crate::error::Error;
use crate::plot::{EpochPoint, Figure, Inset, Panel, Picture, Series, Style};
use crate::report::document::Document;
use crate::report::statistics::Sample;
use crate::study::{
    Accuracy, CONFIDENCE, ENDED_EARLY, Outcome, Stint, between, ended_early, mean_curves, seeds, write_apart,
    write_history, written,
};
use ftprop_train::diagnostics::Records;
use ftprop_train::words::{counted, seconds};

/// SSTE and FTP-SH of each activation, by their places in [`COLUMNS`].
const PAIRS: [(&str, usize, usize); 2] = [("sign", 0, 1), ("qReLU", 2, 3)];
/// The places that each of a network's two figures shows.
const FIGURES: [(&str, &[usize]); 2] = [("sign", &[0, 1]), ("qReLU and full precision", &[2, 3, 4, 5])];

/// A cell and what its runs came to.
#[derive(Clone, Debug)]
pub struct CellRuns {
    /// Which cell.
    pub cell: Cell,
    /// How long a whole run is.
    pub epochs: u32,
    /// What was held out of the training part, as recipes say it.
    pub held_out: f64,
    /// A run for each seed.
    pub runs: Vec<Outcome>,
}

impl CellRuns {
    fn finished(&self) -> usize {
        self.runs.iter().filter(|run| run.summary.is_some()).count()
    }

    fn accuracy(&self) -> Accuracy {
        Accuracy::of(&self.runs)
    }
}

/// The page.
pub fn report(rows: Rows, cells: &[CellRuns], history: &[Stint]) -> Result<Document, Error> {
    let other = other_data(rows, cells);
    let title = match other {
        None => rows.title().to_string(),
        Some(classes) => format!("the networks for {}, on other data of {classes} classes", rows.title()),
    };
    let title = match (other, other_number(rows, cells)) {
        (None, Some([train, _])) => format!("the networks for {title}, on {train} training examples of it"),
        _ => title,
    };
    let mut page = Document::new(&format!("Table 1 of Friesen & Domingos (2018), run again: {title}"));
    introduce(&mut page, rows, cells);
    for network in rows.networks() {
        let cells: Vec<&CellRuns> = cells.iter().filter(|c| c.cell.network.name == network.name).collect();
        if !cells.is_empty() {
            table(&mut page, rows, network, &cells);
        }
    }
    differences(&mut page, rows, cells);
    let mut headed = false;
    for network in rows.networks() {
        let cells: Vec<&CellRuns> = cells.iter().filter(|c| c.cell.network.name == network.name).collect();
        if cells.iter().all(|c| c.runs.iter().all(|run| run.metrics.is_empty())) {
            continue;
        }
        if !headed {
            page.heading("Learning curves");
            headed = true;
        }
        let (picture, zoom) = curves(network, &cells);
        let insets = match zoom {
            Some(zoom) => format!(" The insets show the test accuracy for the last {zoom} epochs."),
            None => String::new(),
        };
        let caption = format!(
            "The top-1 train (thin dashed lines) and test (solid lines) accuracies of the {}, means over the seeds.{insets}",
            network.title
        );
        page.figure(picture, &format!("figures/{}", network.name), &caption);
    }
    diagnostics(&mut page, rows, cells)?;
    write_history(&mut page, history);
    every_run(&mut page, cells);
    Ok(page)
}

/// How many classes the runs' data have, if it cannot be the paper's data: figures are then not to be compared with its.
fn other_data<'a>(rows: Rows, cells: impl IntoIterator<Item = &'a CellRuns>) -> Option<usize> {
    let mut summaries = cells.into_iter().flat_map(|cell| &cell.runs).filter_map(|run| run.summary.as_ref());
    summaries.find_map(|summary| summary.classes.filter(|&classes| classes != rows.classes()))
}

/// How many examples the runs' data have, if that is not the number of the paper's data.
fn other_number<'a>(rows: Rows, cells: impl IntoIterator<Item = &'a CellRuns>) -> Option<[u64; 2]> {
    let mut summaries = cells.into_iter().flat_map(|cell| &cell.runs).filter_map(|run| run.summary.as_ref());
    summaries.find_map(|summary| summary.examples.filter(|&examples| examples != rows.examples()))
}

fn introduce(page: &mut Document, rows: Rows, cells: &[CellRuns]) {
    let (finished, all): (usize, usize) =
        (cells.iter().map(CellRuns::finished).sum(), cells.iter().map(|c| c.runs.len()).sum());
    let mut epochs: Vec<String> = cells.iter().map(|c| counted(c.epochs, "epoch")).collect();
    epochs.dedup();
    page.text(&format!(
        "{finished} of {all} runs are finished, {} each. Figures are top-1 test accuracies in percent, as mean ± \
         standard deviation over the seeds. SSTE is the saturated straight-through estimator (saturated-hinge layer \
         losses), FTP-SH is feasible target propagation with soft-hinge layer losses.",
        epochs.join(" or ")
    ));
    let held_out = cells.first().map_or(0.0, |c| c.held_out);
    let how_much = if held_out < 1.0 { percent(held_out) } else { format!("{held_out} images") };
    let mut text = String::new();
    if let Some(classes) = other_data(rows, cells) {
        text.push_str(&format!(
            "These are other pictures than the paper's, of {classes} classes instead of {}: which column is ahead of which \
             may be compared with the paper, the figures may not. ",
            rows.classes()
        ));
    }
    if let ([train, test], None, Some(found)) = (rows.examples(), other_data(rows, cells), other_number(rows, cells)) {
        text.push_str(&format!(
            "These are not all pictures of {}: {} were there to learn from and {} to measure by, instead of {train} and {test}. \
             The figures may not be compared with the paper's. ",
            rows.title(),
            found[0],
            found[1]
        ));
    }
    text.push_str("The paper gives the best epoch on the test images, which flatters. Beside it ");
    if held_out > 0.0 {
        text.push_str(&format!(
            "stand the last epoch, and the epoch that was best on {how_much} of the training images that were held out for it; so a little \
             less was trained on than in the paper."
        ));
    } else {
        text.push_str("stands the last epoch; nothing was held out of the training images to choose an epoch by.");
    }
    if cells.iter().any(|c| c.cell.network.independent.is_some()) {
        text.push_str(
            " The row PyTorch is a run by an independent implementation: the same recipes at 270 epochs, decays at 180 and \
             225, one seed, the best epoch.",
        );
    }
    page.text(&text);
    if cells.iter().any(|cell| ended_early(cell.runs.iter(), cell.epochs)) {
        page.text(ENDED_EARLY);
    }
    write_apart(page, cells.iter().flat_map(|cell| cell.runs.iter().map(|run| (cell.cell.name(), run))));
}

/// A share in percent, as somebody writes it: 0.07 times 100 is a little more than 7.
fn percent(share: f64) -> String {
    format!("{} %", (1e10 * share).round() / 1e8)
}

/// A network in the paper's layout.
fn table(page: &mut Document, data: Rows, network: &NetworkRow, cells: &[&CellRuns]) {
    page.heading(network.title);
    let classes = other_data(data, cells.iter().copied());
    let other = classes.is_some();
    let accuracies: Vec<(usize, Accuracy)> = cells.iter().map(|c| (c.cell.column, c.accuracy())).collect();
    let row = |name: &str, value: &dyn Fn(usize, &Accuracy) -> String| {
        let mut row = vec![name.to_string()];
        row.extend(accuracies.iter().map(|(column, accuracy)| value(*column, accuracy)));
        row
    };
    let mut head = vec![""];
    head.extend(accuracies.iter().map(|(column, _)| COLUMNS[*column].title));
    let signed = |sample: &Sample, from: f64| match sample.count {
        0 => "–".into(),
        _ => format!("{:+.2}", sample.mean - from),
    };
    let mut rows = Vec::new();
    if let Some(paper) = network.paper {
        let name = if other { format!("paper, {}, best epoch", data.title()) } else { "paper, best epoch".into() };
        rows.push(row(&name, &|c, _| format!("{:.1}", paper[c])));
    }
    if let Some(independent) = network.independent {
        rows.push(row("PyTorch, one run of 270 epochs, best", &|c, _| format!("{:.1}", independent[c])));
    }
    rows.push(row("**ours, best epoch**", &|_, a| format!("**{}**", written(&a.best))));
    let comparable = !other && other_number(data, cells.iter().copied()).is_none();
    if let Some(paper) = network.paper.filter(|_| comparable) {
        rows.push(row("ours, best − paper", &|c, a| signed(&a.best, paper[c])));
    }
    rows.push(row("ours, last epoch", &|_, a| written(&a.last)));
    if accuracies.iter().any(|(_, a)| a.chosen.count > 0) {
        rows.push(row("ours, epoch chosen on validation", &|_, a| written(&a.chosen)));
    }
    // Of five classes all are among the first five.
    if classes.is_none_or(|classes| classes > 5) {
        rows.push(row("ours, top-5, last epoch", &|_, a| written(&a.top5)));
    }
    rows.push(row("ours, train accuracy, last epoch", &|_, a| written(&a.train)));
    let counts = cells.iter().map(|cell| seeds(cell.finished(), cell.runs.len()));
    rows.push(["seeds".to_string()].into_iter().chain(counts).collect());
    page.table(&head, rows);
}

/// FTP-SH − SSTE.
fn differences(page: &mut Document, rows: Rows, cells: &[CellRuns]) {
    let mut lines = Vec::new();
    for network in rows.networks() {
        let find = |column: usize| {
            cells
                .iter()
                .find(|c| c.cell.network.name == network.name && c.cell.column == column)
                .map(CellRuns::accuracy)
        };
        for (activation, sste, ftpsh) in PAIRS {
            let (Some(a), Some(b)) = (find(ftpsh), find(sste)) else { continue };
            lines.push(vec![
                format!("{}, {activation}", network.title),
                network.paper.map_or_else(|| "–".into(), |paper| format!("{:+.1}", paper[ftpsh] - paper[sste])),
                between(&a.best, &b.best),
                between(&a.last, &b.last),
                between(&a.chosen, &b.chosen),
            ]);
        }
    }
    if lines.is_empty() {
        return;
    }
    page.heading("FTP-SH − SSTE");
    page.text(&format!(
        "In points, with Welch's {:.0} % confidence interval over the seeds. An interval that holds 0 does not tell the \
         two apart.",
        100.0 * CONFIDENCE
    ));
    let paper = match other_data(rows, cells) {
        Some(_) => format!("paper, {}, best", rows.title()),
        None => "paper, best".to_string(),
    };
    page.table(&["", &paper, "ours, best epoch", "ours, last epoch", "ours, chosen on validation"], lines);
}

/// A network's two figures side by side, as in the paper: sign at the left, qReLU with the baselines at the right. Also
/// gives how many epochs their insets show, if there are any.
fn curves(network: &NetworkRow, cells: &[&CellRuns]) -> (Picture, Option<u32>) {
    let longest = cells.iter().map(|c| c.epochs).max().unwrap_or(0);
    let zoom = (network.zoom * f64::from(longest)).round() as u32;
    let panel = |(activations, columns): (&str, &[usize])| {
        let mut series = Vec::new();
        let mut last = 0;
        for cell in cells.iter().filter(|c| columns.contains(&c.cell.column)) {
            let curves = mean_curves(COLUMNS[cell.cell.column].short, &cell.runs);
            // SSTE is blue and FTP-SH red in both figures.
            let group = if cell.cell.column < 4 { cell.cell.column % 2 } else { cell.cell.column - 2 };
            let points = |value: fn(&EpochPoint) -> Option<f64>| {
                curves.epochs.iter().filter_map(|e| Some((f64::from(e.epoch), 100.0 * value(e)?))).collect()
            };
            last = last.max(curves.epochs.last().map_or(0, |e| e.epoch));
            let train = points(|e| Some(e.train_accuracy));
            series.push(Series { name: String::new(), group, style: Style::ThinDashed, points: train });
            let test = points(|e| e.test_accuracy);
            series.push(Series { name: curves.name, group, style: Style::Solid, points: test });
        }
        let whole = zoom > 1 && last >= longest && longest > zoom;
        let inset = whole.then(|| Inset {
            x_range: (f64::from(last - zoom), f64::from(last)),
            y_range: None,
            only: Some(Style::Solid),
            label: format!("test, last {zoom} epochs"),
        });
        Panel::Lines(Figure {
            title: format!("{}, {activations}", network.title),
            x_label: "epoch".into(),
            y_label: "top-1 accuracy (%)".into(),
            series,
            inset,
            style_names: Some(("train".into(), "test".into())),
            ..Figure::default()
        })
    };
    let shown = |(_, columns): &(&str, &[usize])| cells.iter().any(|cell| columns.contains(&cell.cell.column));
    let panels: Vec<Panel> = FIGURES.into_iter().filter(shown).map(panel).collect();
    let zoomed = panels.iter().any(|panel| matches!(panel, Panel::Lines(Figure { inset: Some(_), .. })));
    let columns = panels.len();
    (
        Picture { title: String::new(), panels, columns, panel_size: (620.0, 430.0), legend: true },
        zoomed.then_some(zoom),
    )
}

/// Where runs were looked into, how the hard layers of SSTE and FTP-SH fared.
fn diagnostics(page: &mut Document, rows: Rows, cells: &[CellRuns]) -> Result<(), Error> {
    let mut headed = false;
    for network in rows.networks() {
        for (activation, sste, ftpsh) in PAIRS {
            let mut runs = Vec::new();
            for column in [sste, ftpsh] {
                let cell = cells.iter().find(|c| c.cell.network.name == network.name && c.cell.column == column);
                // One seed shows it; more would make the picture unreadable.
                let Some(run) = cell.and_then(|c| c.runs.first()) else { continue };
                let records = Records::read(&run.folder)?.into_all();
                if records.iter().any(|r| !r.diagnosis.layers.is_empty()) {
                    runs.push((COLUMNS[column].short.to_string(), records));
                }
            }
            if runs.len() < 2 {
                continue;
            }
            if !headed {
                page.heading("How the hard layers fared");
                page.text(
                    "For each hard layer of the first seed's runs: units beyond the saturated hinge's reach, targets that \
                     disagree with the activations, flips that came true after the step, and the gradient's norm; \
                     docs/reproduce.md says how to read them.",
                );
                headed = true;
            }
            let name = format!("figures/{}-{}-diagnostics", network.name, activation.to_lowercase());
            let title = format!("{}, {activation}", network.title);
            page.figure(comparison(&runs, &title), &name, &format!("{title}: SSTE and FTP-SH, layer by layer."));
        }
    }
    Ok(())
}

fn every_run(page: &mut Document, cells: &[CellRuns]) {
    page.heading("Every run");
    let mut rows = Vec::new();
    for cell in cells {
        for run in &cell.runs {
            let percent = |share: f64| format!("{:.2}", 100.0 * share);
            let mut row = vec![cell.cell.name(), run.seed.to_string()];
            match &run.summary {
                Some(s) => row.extend([
                    s.epochs.to_string(),
                    percent(s.test.top1_best),
                    percent(s.test.top1_last),
                    s.validation.map_or_else(|| "–".into(), |_| percent(s.test_top1_at_best)),
                    percent(s.train.top1_last),
                    seconds(s.seconds),
                ]),
                None => {
                    let last = run.metrics.last();
                    let best = run.metrics.iter().map(|m| m.test.top1).fold(0.0, f64::max);
                    row.extend([
                        format!("{} of {}", run.metrics.len(), cell.epochs),
                        last.map_or_else(|| "–".into(), |_| percent(best)),
                        last.map_or_else(|| "–".into(), |m| percent(m.test.top1)),
                        "–".into(),
                        last.map_or_else(|| "–".into(), |m| percent(m.train.top1)),
                        "not finished".into(),
                    ]);
                }
            }
            rows.push(row);
        }
    }
    page.text("The time of a run is from its first epoch to its last, beside the others that shared the device.");
    page.table(&["run", "seed", "epochs", "best", "last", "chosen on validation", "train", "time"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_as_they_were_meant() {
        assert_eq!([0.07, 0.02, 0.29, 0.125, 1e-6].map(percent), ["7 %", "2 %", "29 %", "12.5 %", "0.0001 %"]);
    }
}
