//! What a run came to, `summary.json`.

use super::{EpochMetrics, Scores};
use crate::recipe::Recipe;
use serde::{Deserialize, Serialize};

/// The result of a run, `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The recipe's name.
    pub name: String,
    /// The training part.
    pub train: PartSummary,
    /// The validation part, where there is one.
    pub validation: Option<PartSummary>,
    /// The test part.
    pub test: PartSummary,
    /// The epoch kept in `best.safetensors`: best on the validation part if there is one, else the last.
    pub best_epoch: u32,
    /// The test part's top-1 at that epoch.
    pub test_top1_at_best: f64,
    /// Epochs in all.
    pub epochs: u32,
    /// How many numbers the network learned.
    pub parameters: usize,
    /// How many classes the data have; summaries of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// How many examples they have to learn from, those held out included, and to measure by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<[u64; 2]>,
    /// How long all epochs took.
    pub seconds: f64,
    /// Training images a second, the mean over the epochs.
    pub images_per_s: f64,
}

/// One part of the data over the whole run, as fractions of 1. The best over all epochs flatters: it is
/// given because the paper reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartSummary {
    /// The best of all epochs.
    pub top1_best: f64,
    /// Top-1 at the last epoch.
    pub top1_last: f64,
    /// Top-5 at the last epoch.
    pub top5_last: f64,
    /// The loss at the last epoch.
    pub loss_last: f64,
}

impl Summary {
    /// The result of a run with these epochs, of which there is at least one.
    pub fn new(name: &str, metrics: &[EpochMetrics], best_epoch: u32, parameters: usize) -> Option<Self> {
        let last = metrics.last()?;
        let part = |scores: &dyn Fn(&EpochMetrics) -> Option<Scores>| {
            let last = scores(last)?;
            let top1_best = metrics.iter().filter_map(scores).map(|s| s.top1).fold(0.0, f64::max);
            Some(PartSummary { top1_best, top1_last: last.top1, top5_last: last.top5, loss_last: last.loss })
        };
        let seconds: f64 = metrics.iter().map(|m| m.seconds).sum();
        let images_per_s = metrics.iter().map(|m| m.images_per_s).sum::<f64>() / metrics.len() as f64;
        Some(Summary {
            name: name.to_string(),
            train: part(&|m| Some(m.train))?,
            validation: part(&|m| m.validation),
            test: part(&|m| Some(m.test))?,
            best_epoch,
            test_top1_at_best: metrics.iter().find(|m| m.epoch == best_epoch).unwrap_or(last).test.top1,
            epochs: last.epoch,
            parameters,
            classes: None,
            examples: None,
            seconds,
            images_per_s,
        })
    }

    /// Whether a run of this recipe is over with it: all epochs are done, or as many as its patience allows.
    pub fn ends(&self, recipe: &Recipe) -> bool {
        let since_best = self.epochs.saturating_sub(self.best_epoch);
        self.epochs >= recipe.train.epochs || recipe.train.patience.is_some_and(|patience| since_best >= patience)
    }
}
