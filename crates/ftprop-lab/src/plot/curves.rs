//! Training curves: one run's, or those of many runs compared.

use super::{Figure, Inset, Panel, Picture, Series, Style};

/// What happened to one run, epoch by epoch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    /// What the run is called in the legend.
    pub name: String,
    /// In their order.
    pub epochs: Vec<EpochPoint>,
}

/// One epoch of a run. Accuracies are fractions of 1; an epoch without evaluation has no test figures.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EpochPoint {
    /// Counted from 1.
    pub epoch: u32,
    /// Of the training part.
    pub train_accuracy: f64,
    /// Of the training part.
    pub train_loss: f64,
    /// Of the test part.
    pub test_accuracy: Option<f64>,
    /// Of the test part.
    pub test_loss: Option<f64>,
}

/// What [`curves`] shows besides the accuracies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CurveOptions {
    /// Above the picture; empty for none.
    pub title: String,
    /// Adds a second panel with the losses.
    pub losses: bool,
    /// Zooms in on the last so many epochs in an inset, where there are more.
    pub zoom_last: Option<u32>,
}

/// A picture of training: for each run, in a colour of its own, train thin and dashed and test solid.
pub fn curves(runs: &[Curves], options: &CurveOptions) -> Picture {
    let mut accuracy = figure(runs, "accuracy (%)", |epoch| {
        (100.0 * epoch.train_accuracy, epoch.test_accuracy.map(|accuracy| 100.0 * accuracy))
    });
    let last = runs.iter().flat_map(|run| &run.epochs).map(|epoch| epoch.epoch).max().unwrap_or(0);
    accuracy.inset = options.zoom_last.filter(|zoom| *zoom > 0 && *zoom < last).map(|zoom| Inset {
        x_range: (f64::from(last - zoom), f64::from(last)),
        y_range: None,
        only: None,
        label: format!("last {zoom} epochs"),
    });
    let mut panels = vec![Panel::Lines(accuracy)];
    if options.losses {
        panels.push(Panel::Lines(figure(runs, "loss", |epoch| (epoch.train_loss, epoch.test_loss))));
    }
    let height = if panels.len() == 1 { 440.0 } else { 320.0 };
    Picture { title: options.title.clone(), panels, columns: 1, panel_size: (776.0, height), legend: true }
}

fn figure(runs: &[Curves], y_label: &str, values: impl Fn(&EpochPoint) -> (f64, Option<f64>)) -> Figure {
    // A single run needs no name: its two lines do.
    let alone = runs.len() == 1;
    let mut series = Vec::new();
    for (group, run) in runs.iter().enumerate() {
        let train = run.epochs.iter().map(|epoch| (f64::from(epoch.epoch), values(epoch).0)).collect();
        let test = run.epochs.iter().filter_map(|epoch| Some((f64::from(epoch.epoch), values(epoch).1?))).collect();
        let (train_name, test_name) = if alone { ("train", "test") } else { ("", run.name.as_str()) };
        series.push(Series { name: train_name.into(), group, style: Style::ThinDashed, points: train });
        series.push(Series { name: test_name.into(), group, style: Style::Solid, points: test });
    }
    Figure {
        x_label: "epoch".into(),
        y_label: y_label.into(),
        series,
        style_names: (!alone).then(|| ("train".into(), "test".into())),
        ..Figure::default()
    }
}
