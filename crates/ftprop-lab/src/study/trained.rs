//! Whether a fleet trained anything, which its runs' epochs do not tell where it was ended within one.

use ftprop_train::fleet::{FleetEvent, FleetObserver, Job};
use ftprop_train::observe::{Answer, Ending, Notice, Observer, ObserverError, RunView, StepReport};
use std::sync::atomic::{AtomicBool, Ordering};

/// Passes everything on to another observer, and notes whether any run took a step.
pub(super) struct Trained<'a> {
    observer: &'a dyn FleetObserver,
    steps: AtomicBool,
}

impl<'a> Trained<'a> {
    pub(super) fn new(observer: &'a dyn FleetObserver) -> Self {
        Trained { observer, steps: AtomicBool::new(false) }
    }

    /// Whether any run took a step.
    pub(super) fn anything(&self) -> bool {
        self.steps.load(Ordering::Relaxed)
    }
}

impl FleetObserver for Trained<'_> {
    fn event(&self, event: &FleetEvent<'_>) {
        self.observer.event(event);
    }

    fn run<'a>(&'a self, number: usize, job: &Job) -> Box<dyn Observer + 'a> {
        Box::new(Run { own: self.observer.run(number, job), steps: &self.steps })
    }

    fn stops(&self) -> bool {
        self.observer.stops()
    }
}

/// One of the runs.
struct Run<'a> {
    own: Box<dyn Observer + 'a>,
    steps: &'a AtomicBool,
}

impl Observer for Run<'_> {
    fn begin(&mut self, run: &RunView<'_>) -> Answer {
        self.own.begin(run)
    }

    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        self.steps.store(true, Ordering::Relaxed);
        self.own.step(run, step)
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        self.own.epoch(run)
    }

    fn notice(&mut self, run: &RunView<'_>, notice: &Notice) {
        self.own.notice(run, notice);
    }

    fn end(&mut self, run: &RunView<'_>, ending: &Ending) -> Result<(), ObserverError> {
        self.own.end(run, ending)
    }
}

#[cfg(test)]
mod tests {
    use crate::reproduce::report::{CellRuns, report as table};
    use crate::reproduce::{Cell, Rows};
    use crate::study::{self, Endings};
    use crate::sweep::report::report;
    use crate::sweep::{Base, points};
    use ftprop_train::choice::DeviceChoice;
    use ftprop_train::fleet::{FleetObserver, Job};
    use ftprop_train::observe::{Answer, Observer, RunView, StepReport};
    use ftprop_train::recipe::Recipe;
    use std::ops::ControlFlow;

    /// Has every run end after its first step.
    struct OneStep;

    impl FleetObserver for OneStep {
        fn run<'a>(&'a self, _number: usize, _job: &Job) -> Box<dyn Observer + 'a> {
            Box::new(OneStep)
        }
    }

    impl Observer for OneStep {
        fn step(&mut self, _run: &RunView<'_>, _step: &StepReport) -> Answer {
            Ok(ControlFlow::Break(()))
        }
    }

    /// It took time that the runs' own times have, and the report said that nothing was trained.
    #[test]
    fn a_call_that_ends_within_its_first_epoch_is_recorded() {
        let out = std::env::temp_dir().join(format!("ftprop-one-step-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&out);
        let layers = Recipe::layers_of("digits".as_ref()).unwrap();
        let base = Base { name: "digits".into(), layers };
        let points = points(&[base], &[], 1, &out, |mut recipe| {
            (recipe.train.device, recipe.train.threads, recipe.train.epochs) = (DeviceChoice::Cpu, 1, 1);
            Ok(recipe)
        })
        .unwrap();
        let jobs = &points[0].jobs;
        let train =
            |observer: &dyn FleetObserver| study::train(&out, jobs, (&[], 1), "ftprop again", observer).unwrap();
        assert_eq!(train(&OneStep), Endings { interrupted: 1, ..Endings::default() });
        let history = study::history(&out).unwrap();
        assert_eq!(history.iter().map(|stint| (stint.epochs, stint.finished)).collect::<Vec<_>>(), [(0, 0)]);
        let runs = vec![study::outcome(&jobs[0]).unwrap()];
        let cell = Cell { network: &Rows::Cifar10.networks()[0], column: 0 };
        let cells = [CellRuns { cell, epochs: 1, held_out: 0.0, runs }];
        for page in [report(None, &points, &[], &history), table(Rows::Cifar10, &cells, &history)] {
            let text = page.unwrap().markdown();
            assert!(text.contains("ftprop again") && !text.contains("Learning curves"), "{text}");
        }

        train(&());
        let history = study::history(&out).unwrap();
        assert_eq!(history.iter().map(|stint| (stint.epochs, stint.finished)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
        assert!(report(None, &points, &[], &history).unwrap().markdown().contains("Learning curves"));
        // Nothing is left to do.
        train(&());
        assert_eq!(study::history(&out).unwrap(), history);
        std::fs::remove_dir_all(&out).unwrap();
    }
}
