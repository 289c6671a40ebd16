//! Batch normalisation over a batch of which some rows are elsewhere: what has to be summed with the others' on the way
//! forward and on the way back, and what follows from the sums. All sums are in f64, so nothing depends on where the rows are.

use super::Cpu;
use super::norm::{self, SMALL};
use crate::geometry::size;

/// Σ x and Σ x² of each column of the rows that are here: first all of the one, then all of the other.
pub fn moments(cpu: &Cpu, rows: usize, channels: usize, x: &[f32], sums: &mut [f64], scratch: &mut [f32]) {
    let (first, second) = sums[..2 * channels].split_at_mut(channels);
    let (count, x) = (rows as f64, &x[..size(rows, channels)]);
    if rows <= SMALL {
        // The whole batch may be small too, and then every digit counts on the way back.
        first.fill(0.0);
        second.fill(0.0);
        for row in x.chunks_exact(channels) {
            for (j, &x) in row.iter().enumerate() {
                first[j] += f64::from(x);
                second[j] += f64::from(x) * f64::from(x);
            }
        }
        return;
    }
    norm::each_column(cpu, rows, channels, x, scratch, |j, mean, spread| {
        first[j] = count * mean;
        second[j] = spread + count * mean * mean;
    });
}

/// The mean and the (biased) variance of each column, from the [`moments`] of all `total` rows.
pub fn statistics(total: usize, sums: &[f64], mean: &mut [f64], variance: &mut [f64]) {
    let (first, second) = sums.split_at(mean.len());
    let count = total.max(1) as f64;
    for (((mean, variance), first), second) in mean.iter_mut().zip(variance).zip(first).zip(second) {
        *mean = first / count;
        let spread = second / count - *mean * *mean;
        // Rounding may take it below zero, a NaN must stay one.
        *variance = if spread < 0.0 { 0.0 } else { spread };
    }
}

/// Σ dy and Σ dy · (x − mean) of each column of the rows that are here, of `total`: first all of the one, then all of the
/// other.
pub fn slope_sums(
    cpu: &Cpu,
    (rows, total): (usize, usize),
    channels: usize,
    x: &[f32],
    dy: &[f32],
    mean: &[f64],
    sums: &mut [f64],
    scratch: &mut [f32],
) {
    let (sum, product) = sums[..2 * channels].split_at_mut(channels);
    let (x, dy) = (&x[..size(rows, channels)], &dy[..size(rows, channels)]);
    if total > SMALL {
        let rounded: Vec<f32> = mean.iter().map(|&mean| mean as f32).collect();
        return norm::each_sum(cpu, rows, channels, x, dy, &rounded, scratch, |j, s, p| {
            (sum[j], product[j]) = (s, p);
        });
    }
    sum.fill(0.0);
    product.fill(0.0);
    for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
        for j in 0..channels {
            sum[j] += f64::from(dy[j]);
            product[j] += f64::from(dy[j]) * (f64::from(x[j]) - mean[j]);
        }
    }
}

/// Turns dy into dx in place, by the [`slope_sums`] of all `total` rows.
pub fn input_slopes(
    cpu: &Cpu,
    (rows, total): (usize, usize),
    channels: usize,
    x: &[f32],
    dy: &mut [f32],
    (mean, inverse_deviation): (&[f64], &[f64]),
    gamma: &[f32],
    sums: &[f64],
    scratch: &mut [f32],
) {
    let (sum, product) = sums[..2 * channels].split_at(channels);
    let (x, dy) = (&x[..size(rows, channels)], &mut dy[..size(rows, channels)]);
    let count = total.max(1) as f64;
    let column = |j: usize| {
        let inverse = inverse_deviation[j];
        [sum[j] / count, inverse * inverse * product[j] / count, f64::from(gamma[j]) * inverse]
    };
    if total > SMALL {
        let rounded: Vec<f32> = mean.iter().map(|&mean| mean as f32).collect();
        return norm::map_slopes(cpu, rows, channels, x, dy, &rounded, scratch, |j| {
            column(j).map(|number| number as f32)
        });
    }
    // With few rows the terms cancel almost wholly, and f32 would leave noise.
    let columns: Vec<[f64; 3]> = (0..channels).map(column).collect();
    for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact_mut(channels)) {
        for (j, [mean_dy, pull, scale]) in columns.iter().enumerate() {
            let slope = (f64::from(dy[j]) - mean_dy) - (f64::from(x[j]) - mean[j]) * pull;
            dy[j] = (slope * scale) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// Rows cut into parts give what one batch gives, forward and back, few rows and many, and a part without any.
    #[test]
    fn parts_of_a_batch_give_what_the_batch_gives() {
        let cpu = Cpu::new(2).unwrap();
        for (parts, channels) in [(vec![1, 1], 3), (vec![20, 0, 17], 5), (vec![130, 260, 1, 0], 70), (vec![300], 2)] {
            let rows: usize = parts.iter().sum();
            let stream = Stream::numbered(3);
            let number = |i: usize| 2.0 * stream.uniform(i as u64) - 1.0;
            let x: Vec<f32> = (0..rows * channels).map(|i| 0.3 * (i % channels) as f32 + number(i)).collect();
            let dy: Vec<f32> = (0..rows * channels).map(|i| number(9000 + i)).collect();
            let gamma: Vec<f32> = (0..channels).map(|j| number(90_000 + j)).collect();
            let mut scratch = vec![f32::NAN; norm::scratch_len(rows, channels)];
            let ranges: Vec<_> = parts
                .iter()
                .scan(0, |at, part| {
                    *at += part;
                    Some((*at - part) * channels..*at * channels)
                })
                .collect();
            let mut total = vec![0.0; 2 * channels];
            let add = |total: &mut [f64], own: &[f64]| total.iter_mut().zip(own).for_each(|(t, o)| *t += o);
            let mut own = vec![0.0; 2 * channels];
            for (range, &n) in ranges.iter().zip(&parts).filter(|(_, n)| **n > 0) {
                moments(&cpu, n, channels, &x[range.clone()], &mut own, &mut scratch);
                add(&mut total, &own);
            }
            let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
            statistics(rows, &total, &mut mean, &mut variance);
            let (mut whole_mean, mut whole_variance) = (vec![0.0; channels], vec![0.0; channels]);
            norm::statistics(&cpu, rows, channels, &x, &mut whole_mean, &mut whole_variance, &mut scratch);
            let inverse: Vec<f64> = variance.iter().map(|v| 1.0 / (v + 1e-3).sqrt()).collect();
            let whole_inverse: Vec<f32> = whole_variance.iter().map(|v| 1.0 / (v + 1e-3).sqrt()).collect();
            for j in 0..channels {
                assert!((mean[j] - f64::from(whole_mean[j])).abs() < 1e-6 * (1.0 + mean[j].abs()), "mean {j}");
                assert!((inverse[j] / f64::from(whole_inverse[j]) - 1.0).abs() < 1e-5, "deviation {j}");
            }
            let mut dx = dy.clone();
            let mut total = vec![0.0; 2 * channels];
            for (range, &n) in ranges.iter().zip(&parts).filter(|(_, n)| **n > 0) {
                let (x, dy) = (&x[range.clone()], &dy[range.clone()]);
                slope_sums(&cpu, (n, rows), channels, x, dy, &mean, &mut own, &mut scratch);
                add(&mut total, &own);
            }
            for (range, &n) in ranges.iter().zip(&parts).filter(|(_, n)| **n > 0) {
                let (x, dy, by) = (&x[range.clone()], &mut dx[range.clone()], (&mean[..], &inverse[..]));
                input_slopes(&cpu, (n, rows), channels, x, dy, by, &gamma, &total, &mut scratch);
            }
            let (mut d_gamma, mut d_beta, mut whole) = (vec![0.0; channels], vec![0.0; channels], dy.clone());
            let (by, grads) = ((&whole_mean[..], &whole_inverse[..]), (&mut d_gamma[..], &mut d_beta[..]));
            norm::backward(&cpu, rows, channels, 1e-3, &x, &mut whole, by, &gamma, grads, true, &mut scratch);
            for (i, (part, whole)) in dx.iter().zip(&whole).enumerate() {
                assert!((part - whole).abs() < 2e-5, "{i} of {parts:?}: {part} for {whole}");
            }
            for j in 0..channels {
                assert!((total[j] as f32 - d_beta[j]).abs() < 1e-4, "beta {j}");
                assert!(((total[channels + j] * inverse[j]) as f32 - d_gamma[j]).abs() < 1e-4, "gamma {j}");
            }
        }
    }
}
