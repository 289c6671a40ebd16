//! What `eval` found, in words, as JSON and as a picture.

use super::tables;
use crate::cli::say;
use crate::error::Error;
use crate::terminal::Stream;
use ftprop_lab::plot::{Heat, Panel, Picture};
use ftprop_nn::Tally;
use ftprop_train::confusion::{ClassScores, Confusion};
use ftprop_train::measuring::DataNote;
use ftprop_train::run::Scores;
use ftprop_train::views::Views;
use ftprop_train::words::plain;
use serde::Serialize;
use std::path::Path;

/// The most classes that are shown as a matrix of text.
const MOST_SHOWN: usize = 20;
/// The most classes whose matrix is part of the JSON.
const MOST_WRITTEN: usize = 200;
/// Mistakes that are named where there are too many classes for a matrix.
const MISTAKES: usize = 10;

/// What was measured.
pub(super) struct Measured<'a> {
    pub(super) model: &'a Path,
    pub(super) split: &'static str,
    /// What is to be said about the data.
    pub(super) note: Option<&'a DataNote>,
    /// Views that the figures are means over.
    pub(super) tta: Option<Views>,
    pub(super) tally: &'a Tally,
    /// Whether the loss is the one that the network was trained with.
    pub(super) own_loss: bool,
    pub(super) seconds: f64,
    pub(super) classes: &'a [String],
    pub(super) confusion: &'a Confusion,
}

/// The JSON of it.
#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    split: &'static str,
    /// What is to be said about the data, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Test-time augmentation, where there is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    tta: Option<String>,
    examples: u64,
    /// By the loss that the network was trained with; null where that is not known.
    loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cross_entropy: Option<f64>,
    top1: f64,
    top5: f64,
    mean_f1: f64,
    seconds: f64,
    images_per_s: f64,
    per_class: Vec<Class>,
    /// A row for each true class, with how often it was taken for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    confusion: Option<Vec<Vec<u64>>>,
}

#[derive(Serialize)]
struct Class {
    class: String,
    #[serde(flatten)]
    scores: ClassScores,
}

impl Report {
    pub(super) fn new(found: &Measured<'_>) -> Self {
        let Scores { loss, top1, top5 } = Scores::from(found.tally);
        let class =
            |(number, class): (usize, &String)| Class { class: class.clone(), scores: found.confusion.class(number) };
        let classes = found.confusion.classes();
        Report {
            model: found.model.display().to_string(),
            split: found.split,
            note: found.note.map(ToString::to_string),
            tta: found.tta.map(|views| views.to_string()),
            examples: found.tally.examples,
            loss: found.own_loss.then_some(loss),
            cross_entropy: (!found.own_loss).then_some(loss),
            top1,
            top5,
            mean_f1: found.confusion.mean_f1(),
            seconds: found.seconds,
            images_per_s: found.tally.examples as f64 / found.seconds,
            per_class: found.classes.iter().enumerate().map(class).collect(),
            confusion: (classes <= MOST_WRITTEN)
                .then(|| (0..classes).map(|class| found.confusion.row(class).to_vec()).collect()),
        }
    }
}

impl Measured<'_> {
    /// A heading for the picture.
    pub(super) fn title(&self) -> String {
        let Scores { top1, .. } = Scores::from(self.tally);
        let (model, examples, views) = (self.model.display(), self.tally.examples, self.views());
        // Where there is not room for all of it, the figure stays.
        format!("top-1 {:.2} % of {examples} examples{views}: {model}", 100.0 * top1)
    }

    /// One line, and with `confusion` the classes.
    pub(super) fn say(&self, confusion: bool) -> Result<(), Error> {
        let Scores { loss, top1, top5 } = Scores::from(self.tally);
        // Of five classes all are among the first five.
        let top5 = if self.classes.len() > 5 { format!("top-5 {:.2} %, ", 100.0 * top5) } else { String::new() };
        say(&format!(
            "{}: top-1 {:.2} %, {top5}{} {loss:.4} over {}{} examples{} ({:.0} examples/s)",
            self.model.display(),
            100.0 * top1,
            if self.own_loss { "loss" } else { "cross entropy" },
            if self.split == "all" { "all " } else { "" },
            self.tally.examples,
            self.views(),
            self.tally.examples as f64 / self.seconds
        ))?;
        if !confusion {
            return Ok(());
        }
        let (names, room) = (self.names(), Stream::Out.columns().unwrap_or(usize::MAX));
        let print = |lines: Vec<String>| lines.iter().try_for_each(|line| say(line));
        say("")?;
        print(tables::classes(&names, self.confusion, room))?;
        say(&format!("mean F1 of the classes {:.2} %", 100.0 * self.confusion.mean_f1()))?;
        say("")?;
        if names.len() <= MOST_SHOWN {
            return print(tables::matrix(&names, self.confusion, room));
        }
        say("most frequent mistakes")?;
        print(tables::mistakes(&names, self.confusion, MISTAKES, room))
    }

    /// The views that the figures are means over, where there are some.
    fn views(&self) -> String {
        self.tta.map_or_else(String::new, |views| format!(", test-time augmentation {views}"))
    }

    /// The classes as they may be shown.
    fn names(&self) -> Vec<String> {
        self.classes.iter().map(|name| plain(name).into_owned()).collect()
    }
}

/// Which classes are taken for which, as shares of each class.
pub(super) fn picture(classes: &[String], confusion: &Confusion, title: &str) -> Picture {
    let share = |class: usize| {
        let row = confusion.row(class);
        let all = row.iter().sum::<u64>().max(1) as f64;
        row.iter().map(move |&count| count as f64 / all)
    };
    let panel = Heat {
        x_label: "taken for".into(),
        y_label: "class".into(),
        names: classes.to_vec(),
        shares: (0..classes.len()).flat_map(share).collect(),
        counts: (0..classes.len()).flat_map(|class| confusion.row(class).to_vec()).collect(),
    };
    let side = (140.0 + 34.0 * classes.len() as f64).clamp(420.0, 1200.0);
    Picture {
        title: title.into(),
        panels: vec![Panel::Heat(panel)],
        columns: 1,
        panel_size: (side, side),
        legend: false,
    }
}
