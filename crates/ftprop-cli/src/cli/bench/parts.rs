//! The time of each part of a step.

use super::Part;

/// Seconds of the parts of a step, over many steps. What is told of them is the median, as of whole steps: means would be those of
/// the few steps that something else got in the way of, and add up to more than the step that they are shown under.
#[derive(Default)]
pub(super) struct PartTimes(Vec<(String, Vec<f64>)>);

impl PartTimes {
    /// Adds what a part took in one step.
    pub(super) fn add(&mut self, kind: &str, seconds: f64) {
        match self.0.iter_mut().find(|(known, _)| known == kind) {
            Some((_, times)) => times.push(seconds),
            None => self.0.push((kind.to_owned(), vec![seconds])),
        }
    }

    /// The parts, in the order in which they first came.
    pub(super) fn medians(self) -> Vec<Part> {
        let median = |(kind, mut times): (String, Vec<f64>)| {
            times.sort_by(f64::total_cmp);
            Part { kind, ms_per_step: times[times.len() / 2] * 1e3, work: None }
        };
        self.0.into_iter().map(median).collect()
    }

    /// What took longest comes first.
    pub(super) fn longest_first(self) -> Vec<Part> {
        let mut parts = self.medians();
        parts.sort_by(|a, b| b.ms_per_step.total_cmp(&a.ms_per_step));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_step_does_not_count() {
        let mut times = PartTimes::default();
        for step in 0..5 {
            times.add("first", 0.001);
            times.add("second", if step == 2 { 9.0 } else { 0.002 });
        }
        let parts: Vec<_> = times.longest_first().into_iter().map(|part| (part.kind, part.ms_per_step)).collect();
        assert_eq!(parts, [("second".into(), 2.0), ("first".into(), 1.0)]);
    }
}
