//! Mixed examples: mixup (Zhang and others 2018) and cutmix (Yun and others 2019).
//!
//! Example i of a batch of n is mixed with example n − 1 − i, which the epoch's random order makes a random one, and the
//! step has one blend for all of them. It is a function of the run's seed and of the step's number, so a run that is
//! resumed mixes the same, and so does any device.

use crate::{NnError, Shape};
use ftprop_tensor::random::{Purpose, Stream};

/// How strongly examples are mixed; at least one of the two is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    mixup: f64,
    cutmix: f64,
}

/// What one step does to its examples: within a window they become a weighted mean of themselves and their partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend {
    /// The share of an example's label that stays its own; its partner's label has the rest.
    pub keep: f32,
    /// The weight of an example's own values within the window.
    pub own: f32,
    /// The window: first row, row after the last, first column, column after the last.
    pub window: [usize; 4],
}

impl Blend {
    /// Leaves everything as it is.
    pub const NONE: Blend = Blend { keep: 1.0, own: 1.0, window: [0; 4] };

    /// As a row of numbers, for a device.
    pub fn scalars(&self) -> [f32; 6] {
        let [top, bottom, left, right] = self.window.map(|edge| edge as f32);
        [self.keep, self.own, top, bottom, left, right]
    }

    /// Writes the mixed examples of a batch; both have whole examples of the shape.
    pub fn apply(&self, images: &[f32], input: Shape, mixed: &mut [f32]) {
        mixed.copy_from_slice(images);
        let (len, row_len) = (input.len(), input.width * input.channels);
        let n = images.len() / len;
        let [top, bottom, left, right] = self.window;
        let columns = left * input.channels..right * input.channels;
        let (own, rest) = (self.own, 1.0 - self.own);
        for (i, mixed) in mixed.chunks_exact_mut(len).enumerate() {
            let partner = &images[(n - 1 - i) * len..(n - i) * len];
            for row in top..bottom {
                let span = row * row_len + columns.start..row * row_len + columns.end;
                for (v, &p) in mixed[span.clone()].iter_mut().zip(&partner[span]) {
                    *v = own * *v + rest * p;
                }
            }
        }
    }
}

impl Mixing {
    /// With the α of each: a step's share is drawn from Beta(α, α). 0 leaves that way of mixing out; with both out
    /// nothing is mixed, with both in each step takes either at random.
    pub fn new(mixup: f64, cutmix: f64) -> Result<Option<Self>, NnError> {
        for (name, alpha) in [("mixup", mixup), ("cutmix", cutmix)] {
            if !(0.0..=100.0).contains(&alpha) {
                return Err(NnError::Setting(format!("{name} must be between 0 and 100, not {alpha}")));
            }
        }
        Ok((mixup > 0.0 || cutmix > 0.0).then_some(Mixing { mixup, cutmix }))
    }

    /// What a step of a run does to examples of a shape.
    pub fn at(&self, seed: u64, step: u64, input: Shape) -> Blend {
        let random = Stream::new(seed, Purpose::Mix, step);
        let cut = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (true, true) => random.u64(0) >> 63 == 1,
            (_, cutmix) => cutmix,
        };
        let Shape { height, width, .. } = input;
        if !cut {
            let share = beta(random.fork(1), self.mixup) as f32;
            // Both of a pair are mixed with each other, so the larger share may stay with either.
            let keep = share.max(1.0 - share);
            return Blend { keep, own: keep, window: [0, height, 0, width] };
        }
        let side = (1.0 - beta(random.fork(1), self.cutmix)).sqrt();
        let span = |middle: u64, len: usize| {
            let half = (side * len as f64 / 2.0).round() as usize;
            let middle = middle as usize;
            (middle.saturating_sub(half), (middle + half).min(len))
        };
        let (top, bottom) = span(random.below(2, height as u64), height);
        let (left, right) = span(random.below(3, width as u64), width);
        let share = ((bottom - top) * (right - left)) as f64 / (height * width) as f64;
        Blend { keep: (1.0 - share) as f32, own: 0.0, window: [top, bottom, left, right] }
    }
}

/// Beta(α, α), by two numbers of Gamma(α); their logarithms, because for a small α both are often nearly 0.
fn beta(random: Stream, alpha: f64) -> f64 {
    let difference = log_gamma_number(random.fork(1), alpha) - log_gamma_number(random.fork(0), alpha);
    1.0 / (1.0 + difference.exp())
}

/// The logarithm of a number of Gamma(α), by the rejection of Marsaglia and Tsang (2000) for α + 1.
fn log_gamma_number(random: Stream, alpha: f64) -> f64 {
    let open = |number: u64| (((random.u64(number) >> 11) as f64) + 0.5) / (1u64 << 53) as f64;
    let boosted = open(0).ln() / alpha;
    let d = alpha + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    // At least 95 of 100 are accepted at once, so the end is there for the compiler.
    for attempt in 0..1000 {
        let x = f64::from(random.normal((1 << 32) + attempt));
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && open(1 + attempt).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d.ln() + v.ln() + boosted;
        }
    }
    d.ln() + boosted
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: Shape = Shape { height: 6, width: 8, channels: 2 };

    #[test]
    fn shares_have_the_mean_and_variance_of_beta() {
        for alpha in [0.1, 0.4, 1.0, 3.0] {
            let all: Vec<f64> = (0..20_000).map(|i| beta(Stream::numbered(i), alpha)).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.012, "{alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.04, "{alpha}: variance {variance}, not {expected}");
            assert!(all.iter().all(|v| (0.0..=1.0).contains(v)), "{alpha}");
        }
    }

    #[test]
    fn mixed_values_are_as_defined_and_labels_follow_the_area() {
        let n = 5;
        let images: Vec<f32> = (0..n * INPUT.len()).map(|i| Stream::numbered(3).uniform(i as u64)).collect();
        for (mixup, cutmix) in [(0.3, 0.0), (0.0, 1.0), (1.0, 1.0)] {
            let mixing = Mixing::new(mixup, cutmix).unwrap().unwrap();
            for step in 0..50 {
                let blend = mixing.at(9, step, INPUT);
                assert_eq!(blend, mixing.at(9, step, INPUT));
                let mut mixed = vec![f32::NAN; images.len()];
                blend.apply(&images, INPUT, &mut mixed);
                let [top, bottom, left, right] = blend.window;
                let mut kept = 0.0;
                for (at, &got) in mixed.iter().enumerate() {
                    let (i, place) = (at / INPUT.len(), at % INPUT.len() / INPUT.channels);
                    let (row, column) = (place / INPUT.width, place % INPUT.width);
                    let inside = (top..bottom).contains(&row) && (left..right).contains(&column);
                    let own = if inside { blend.own } else { 1.0 };
                    let partner = images[(n - 1 - i) * INPUT.len() + at % INPUT.len()];
                    assert!((got - (own * images[at] + (1.0 - own) * partner)).abs() < 1e-6);
                    kept += own;
                }
                let share = kept / images.len() as f32;
                assert!((share - blend.keep).abs() < 1e-5, "{blend:?} keeps {share}");
            }
        }
        assert!(Mixing::new(0.0, 0.0).unwrap().is_none());
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 101.0] {
            assert!(Mixing::new(wrong, 0.0).is_err() && Mixing::new(0.0, wrong).is_err());
        }
    }

    #[test]
    fn both_ways_of_mixing_take_turns() {
        let mixing = Mixing::new(1.0, 1.0).unwrap().unwrap();
        let cut = (0..1000).filter(|&step| mixing.at(1, step, INPUT).own == 0.0).count();
        assert!((430..570).contains(&cut), "{cut}");
    }
}
