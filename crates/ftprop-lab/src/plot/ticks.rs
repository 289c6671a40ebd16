//! Ranges of axes, and round numbers along them.

/// Values beyond this are treated as missing: nothing sensible is drawn with them, and sums of them overflow.
const LARGEST: f64 = 1e30;

pub(super) fn drawable(value: f64) -> bool {
    value.abs() <= LARGEST
}

/// The least range that holds all drawable values and has some extent; `None` without values.
pub(super) fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values
        .filter(|value| drawable(*value))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    (low <= high).then(|| with_extent(low, high))
}

/// A range somebody asked for, if it can be used.
pub(super) fn usable((low, high): (f64, f64)) -> Option<(f64, f64)> {
    (drawable(low) && drawable(high) && low <= high).then(|| with_extent(low, high))
}

fn with_extent(low: f64, high: f64) -> (f64, f64) {
    let least = 1e-9 * low.abs().max(high.abs());
    if high - low > least {
        (low, high)
    } else {
        (low - (low.abs() * 0.05).max(0.5), high + (high.abs() * 0.05).max(0.5))
    }
}

/// The range with a share of its extent added at both ends.
pub(super) fn with_room((low, high): (f64, f64), share: f64) -> (f64, f64) {
    let room = (high - low) * share;
    (low - room, high + room)
}

/// Round numbers within a range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ticks {
    pub(super) values: Vec<f64>,
    step: f64,
}

impl Ticks {
    /// About `count` of them, and no closer than `least_step`.
    pub(super) fn new((low, high): (f64, f64), count: f64, least_step: f64) -> Self {
        let raw = ((high - low) / count.max(1.0)).max(least_step).max(f64::MIN_POSITIVE);
        let magnitude = 10_f64.powf(raw.log10().floor());
        // The small tolerance keeps 0.1 + 0.2 from asking for the next larger step.
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|round| round * magnitude)
            .into_iter()
            .find(|step| *step >= raw * (1.0 - 1e-9))
            .unwrap_or(10.0 * magnitude);
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        // Far more than any axis shows: a guard against steps that are lost in the rounding of the values.
        let number = (last - first).clamp(-1.0, 100.0) as i32 + 1;
        Self { values: (0..number).map(|index| (first + f64::from(index)) * step).collect(), step }
    }

    /// The text of a tick: all of an axis have the same number of digits.
    pub(super) fn label(&self, value: f64) -> String {
        let largest = self.values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let scientific = largest >= 1e6 || self.step < 1e-4;
        let text = if value.abs() < self.step * 1e-6 && scientific {
            "0".to_owned()
        } else if scientific {
            let digits = (largest.log10().floor() - self.step.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{value:.digits$e}")
        } else {
            let decimals = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
            // Adding zero turns a negative zero, which would show its sign, into a plain one.
            format!("{:.decimals$}", value + 0.0)
        };
        text.replace('-', "−")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: (f64, f64), count: f64, least_step: f64) -> Vec<String> {
        let ticks = Ticks::new(range, count, least_step);
        ticks.values.iter().map(|value| ticks.label(*value)).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(labels((0.0, 100.0), 5.0, 0.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels((-0.31, 0.29), 3.0, 0.0), ["−0.2", "0.0", "0.2"]);
        assert_eq!(labels((1.0, 3.0), 8.0, 1.0), ["1", "2", "3"]);
        assert_eq!(labels((81.2, 83.9), 5.0, 0.0), ["82", "83"]);
        assert_eq!(labels((0.0, 3e-5), 3.0, 0.0), ["0", "1e−5", "2e−5", "3e−5"]);
        assert_eq!(labels((0.0, 2e7), 2.0, 0.0), ["0", "1e7", "2e7"]);
    }

    #[test]
    fn odd_ranges_stay_finite() {
        for range in [(5.0, 5.0), (0.0, 0.0), (-1e30, 1e30), (1e30, 1e30), (1e20, 1e20 + 1.0)] {
            let range = usable(range).unwrap();
            assert!(range.1 > range.0, "{range:?}");
            let ticks = Ticks::new(range, 5.0, 0.0);
            assert!(ticks.values.len() <= 101 && ticks.values.iter().all(|value| value.is_finite()), "{range:?}");
        }
        assert_eq!(range([f64::NAN, f64::INFINITY].into_iter()), None);
        assert_eq!(range([f64::NAN, 1.0, 3.0].into_iter()), Some((1.0, 3.0)));
        assert_eq!(usable((2.0, 1.0)), None);
        assert_eq!(usable((f64::NAN, 1.0)), None);
    }
}
