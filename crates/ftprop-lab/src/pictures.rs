//! The pictures of runs: their learning curves compared, and what [`Pictures`] draws into a run's folder while it trains.

use crate::diagnostics;
use crate::plot::{CurveOptions, Curves, EpochPoint, Picture, PlotError, curves};
use ftprop_train::observe::{Answer, Ending, Observer, ObserverError, RunView};
use ftprop_train::run::EpochMetrics;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// In long runs pictures are drawn now and then.
const DRAW_EVERY: Duration = Duration::from_secs(60);

/// Draws `curves` and, where the hard layers are looked into, `diagnostics` into the run's folder, as `.svg` and `.png`:
/// at the end, and now and then before it. A run without a folder has no pictures.
#[derive(Default)]
pub struct Pictures {
    /// When they were drawn last, or the run began.
    drawn: Option<Instant>,
}

impl Pictures {
    fn draw(&mut self, run: &RunView<'_>) -> Result<(), PlotError> {
        let Some(folder) = run.folder else { return Ok(()) };
        let name = &run.recipe.name;
        if !run.metrics.is_empty() {
            picture(&[(name.clone(), run.metrics.to_vec())], name).save(&folder.join("curves"))?;
        }
        if run.diagnostics.iter().any(|r| !r.diagnosis.layers.is_empty()) {
            diagnostics::picture(run.diagnostics, name).save(&folder.join("diagnostics"))?;
        }
        self.drawn = Some(Instant::now());
        Ok(())
    }
}

impl Observer for Pictures {
    fn begin(&mut self, _run: &RunView<'_>) -> Answer {
        self.drawn = Some(Instant::now());
        Ok(ControlFlow::Continue(()))
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        if self.drawn.is_none_or(|drawn| drawn.elapsed() > DRAW_EVERY) {
            self.draw(run)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self, run: &RunView<'_>, _ending: &Ending) -> Result<(), ObserverError> {
        Ok(self.draw(run)?)
    }
}

/// Runs compared in one picture.
pub fn picture(runs: &[(String, Vec<EpochMetrics>)], title: &str) -> Picture {
    let runs: Vec<Curves> = runs
        .iter()
        .map(|(name, metrics)| Curves {
            name: name.clone(),
            epochs: metrics
                .iter()
                .map(|m| EpochPoint {
                    epoch: m.epoch,
                    train_accuracy: m.train.top1,
                    train_loss: m.train.loss,
                    test_accuracy: Some(m.test.top1),
                    test_loss: Some(m.test.loss),
                })
                .collect(),
        })
        .collect();
    let longest = runs.iter().map(|r| r.epochs.len()).max().unwrap_or(0);
    let zoom_last = (longest >= 150).then_some(100);
    curves(&runs, &CurveOptions { title: title.to_string(), losses: true, zoom_last })
}
