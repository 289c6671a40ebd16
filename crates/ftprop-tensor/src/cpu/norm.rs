//! Batch normalisation over the rows of a matrix, a column a channel: `[n·height·width, channels]`.

use super::simd::vectorised;
use super::{Cpu, Shared};
use crate::geometry::size;

/// Rows whose mean and spread one task takes.
const RUN: usize = 128;

/// Floats of scratch that the kernels here need.
pub fn scratch_len(rows: usize, channels: usize) -> usize {
    size((2 * rows.div_ceil(RUN)).max(3), channels)
}

/// The mean and the (biased) variance of each column.
///
/// Each run of rows is centred on its own mean before it is squared, and the runs are combined in f64 after
/// Chan, Golub and LeVeque, so that a mean far from zero costs no digits.
pub fn statistics(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    mean: &mut [f32],
    variance: &mut [f32],
    scratch: &mut [f32],
) {
    assert!(rows > 0 && channels > 0, "statistics of {rows} rows of {channels} channels");
    let x = &x[..size(rows, channels)];
    let (mean, variance) = (&mut mean[..channels], &mut variance[..channels]);
    each_column(cpu, rows, channels, x, scratch, |j, column_mean, spread| {
        mean[j] = column_mean as f32;
        variance[j] = (spread / rows as f64) as f32;
    });
}

/// Of each column its number, its mean and its squared differences from that, to `take`.
pub(super) fn each_column(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    scratch: &mut [f32],
    mut take: impl FnMut(usize, f64, f64),
) {
    let runs = rows.div_ceil(RUN);
    let partial = &mut scratch[..2 * runs * channels];
    cpu.each_chunk(partial, 2 * channels, |run, out| {
        let (mean, spread) = out.split_at_mut(channels);
        run_statistics(cpu.isa, &x[run * RUN * channels..rows.min((run + 1) * RUN) * channels], mean, spread);
    });
    for j in 0..channels {
        let (mut count, mut mean, mut spread) = (0.0f64, 0.0f64, 0.0f64);
        for (run, part) in partial.chunks_exact(2 * channels).enumerate() {
            let here = (rows.min((run + 1) * RUN) - run * RUN) as f64;
            let delta = f64::from(part[j]) - mean;
            let both = count + here;
            mean += delta * here / both;
            spread += f64::from(part[channels + j]) + delta * delta * count * here / both;
            count = both;
        }
        take(j, mean, spread);
    }
}

vectorised! {
    /// The mean of each column of some rows, and its squared differences from that.
    fn run_statistics(x: &[f32], mean: &mut [f32], spread: &mut [f32]) {
        let channels = mean.len();
        mean.fill(0.0);
        spread.fill(0.0);
        for row in x.chunks_exact(channels) {
            mean.iter_mut().zip(row).for_each(|(m, x)| *m += x);
        }
        let scale = 1.0 / (x.len() / channels) as f32;
        mean.iter_mut().for_each(|m| *m *= scale);
        for row in x.chunks_exact(channels) {
            for ((s, m), x) in spread.iter_mut().zip(mean.iter()).zip(row) {
                *s += (x - m) * (x - m);
            }
        }
    }
}

/// y = x · scale + shift, column by column.
pub fn affine(cpu: &Cpu, rows: usize, channels: usize, x: &[f32], scale: &[f32], shift: &[f32], y: &mut [f32]) {
    assert!(channels > 0, "a map of no channels");
    let (x, scale, shift) = (&x[..size(rows, channels)], &scale[..channels], &shift[..channels]);
    cpu.each_chunk(&mut y[..x.len()], RUN * channels, |run, y| {
        run_affine(cpu.isa, &x[run * RUN * channels..][..y.len()], scale, shift, y);
    });
}

vectorised! {
    fn run_affine(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [f32]) {
        let channels = scale.len();
        for (y, x) in y.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
            for (((y, x), s), t) in y.iter_mut().zip(x).zip(scale).zip(shift) {
                *y = x * s + t;
            }
        }
    }
}

/// Batches of at most this many rows go through [`backward_small`].
pub(super) const SMALL: usize = 64;

/// The gradients of gamma and beta, and dy turned into dx in place if the input needs it, for statistics that
/// were the batch's own.
pub fn backward(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    eps: f32,
    x: &[f32],
    dy: &mut [f32],
    (mean, inverse_deviation): (&[f32], &[f32]),
    gamma: &[f32],
    (d_gamma, d_beta): (&mut [f32], &mut [f32]),
    needs_input: bool,
    scratch: &mut [f32],
) {
    assert!(rows > 0 && channels > 0, "the gradient of {rows} rows of {channels} channels");
    let (x, dy) = (&x[..size(rows, channels)], &mut dy[..size(rows, channels)]);
    let (mean, inverse_deviation, gamma) = (&mean[..channels], &inverse_deviation[..channels], &gamma[..channels]);
    let (d_gamma, d_beta) = (&mut d_gamma[..channels], &mut d_beta[..channels]);
    if rows <= SMALL {
        backward_small(cpu, rows, channels, eps, x, dy, gamma, (d_gamma, d_beta));
    } else {
        backward_sums(cpu, rows, channels, x, dy, mean, inverse_deviation, d_gamma, d_beta, scratch);
        if needs_input {
            backward_input(cpu, rows, channels, x, dy, mean, inverse_deviation, gamma, d_gamma, d_beta, scratch);
        }
    }
}

/// The same in f64 from the statistics on. With few rows the terms of dx cancel almost wholly (with two, all
/// but eps / (variance + eps) of them), and f32 would leave noise.
fn backward_small(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    eps: f32,
    x: &[f32],
    dy: &mut [f32],
    gamma: &[f32],
    (d_gamma, d_beta): (&mut [f32], &mut [f32]),
) {
    let count = rows as f64;
    // Unchecked pointers below stay within these.
    let dy = Shared::new(&mut dy[..size(rows, channels)]);
    let (d_gamma, d_beta) = (Shared::new(&mut d_gamma[..channels]), Shared::new(&mut d_beta[..channels]));
    // Neighbouring channels share cache lines, so a task takes a run of them.
    const CHANNELS: usize = 64;
    cpu.each(channels.div_ceil(CHANNELS), |task| {
        for j in task * CHANNELS..channels.min((task + 1) * CHANNELS) {
            let x = |i: usize| f64::from(x[i * channels + j]);
            // SAFETY: rows below `rows` and channels below `channels` lie within; each channel belongs to one task.
            let dy = |i: usize| unsafe { dy.ptr(i * channels + j) };
            // SAFETY: as above.
            let dy_of = |i: usize| f64::from(unsafe { *dy(i) });
            let mean = (0..rows).map(x).sum::<f64>() / count;
            let variance = (0..rows).map(|i| (x(i) - mean).powi(2)).sum::<f64>() / count;
            let inverse = 1.0 / (variance + f64::from(eps)).sqrt();
            let sum = (0..rows).map(dy_of).sum::<f64>();
            let product = (0..rows).map(|i| dy_of(i) * (x(i) - mean) * inverse).sum::<f64>();
            for i in 0..rows {
                let slope = (dy_of(i) - sum / count) - (x(i) - mean) * inverse * product / count;
                // SAFETY: as above.
                unsafe { *dy(i) = (slope * inverse * f64::from(gamma[j])) as f32 };
            }
            // SAFETY: as above.
            unsafe {
                *d_beta.ptr(j) = sum as f32;
                *d_gamma.ptr(j) = product as f32;
            }
        }
    });
}

/// The gradients of scale and shift, Σ dy · x and Σ dy of each column, of a map whose statistics are none of the batch's;
/// `fixed` is a mean of zeros and a deviation of ones.
pub fn affine_gradients(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    dy: &[f32],
    fixed: (&[f32], &[f32]),
    (d_scale, d_shift): (&mut [f32], &mut [f32]),
    scratch: &mut [f32],
) {
    assert!(channels > 0, "a map of no channels");
    let (x, dy) = (&x[..size(rows, channels)], &dy[..size(rows, channels)]);
    let (mean, inverse) = (&fixed.0[..channels], &fixed.1[..channels]);
    let (d_scale, d_shift) = (&mut d_scale[..channels], &mut d_shift[..channels]);
    backward_sums(cpu, rows, channels, x, dy, mean, inverse, d_scale, d_shift, scratch);
}

/// Σ dy and Σ dy · (x − mean) · inverse_deviation of each column: the gradients of beta and gamma.
fn backward_sums(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    dy: &[f32],
    mean: &[f32],
    inverse_deviation: &[f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
    scratch: &mut [f32],
) {
    each_sum(cpu, rows, channels, x, dy, mean, scratch, |j, sum, product| {
        d_beta[j] = sum as f32;
        d_gamma[j] = (product * f64::from(inverse_deviation[j])) as f32;
    });
}

/// Of each column its number, Σ dy and Σ dy · (x − mean), to `take`.
pub(super) fn each_sum(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    dy: &[f32],
    mean: &[f32],
    scratch: &mut [f32],
    mut take: impl FnMut(usize, f64, f64),
) {
    let (x, dy) = (&x[..rows * channels], &dy[..rows * channels]);
    let runs = rows.div_ceil(RUN);
    let partial = &mut scratch[..2 * runs * channels];
    cpu.each_chunk(partial, 2 * channels, |run, out| {
        let part = run * RUN * channels..rows.min((run + 1) * RUN) * channels;
        let (sums, products) = out.split_at_mut(channels);
        run_sums(cpu.isa, &x[part.clone()], &dy[part], mean, sums, products);
    });
    for j in 0..channels {
        let total = |offset: usize| partial.chunks_exact(2 * channels).map(|p| f64::from(p[offset + j])).sum::<f64>();
        take(j, total(0), total(channels));
    }
}

vectorised! {
    fn run_sums(x: &[f32], dy: &[f32], mean: &[f32], sums: &mut [f32], products: &mut [f32]) {
        let channels = sums.len();
        sums.fill(0.0);
        products.fill(0.0);
        for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
            for ((((s, p), m), x), dy) in sums.iter_mut().zip(products.iter_mut()).zip(mean).zip(x).zip(dy) {
                *s += dy;
                *p += dy * (x - m);
            }
        }
    }
}

/// Turns dy into dx in place:
/// dx = gamma · inverse_deviation · (dy − mean(dy) − x̂ · mean(dy · x̂)).
fn backward_input(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    dy: &mut [f32],
    mean: &[f32],
    inverse_deviation: &[f32],
    gamma: &[f32],
    d_gamma: &[f32],
    d_beta: &[f32],
    scratch: &mut [f32],
) {
    let count = rows as f32;
    map_slopes(cpu, rows, channels, x, dy, mean, scratch, |j| {
        [d_beta[j] / count, inverse_deviation[j] * d_gamma[j] / count, gamma[j] * inverse_deviation[j]]
    });
}

/// Turns dy into dx in place by three numbers of each column: dx = ((dy − mean_dy) − (x − mean) · pull) · scale. Centred first,
/// because for a small batch the two terms nearly cancel.
pub(super) fn map_slopes(
    cpu: &Cpu,
    rows: usize,
    channels: usize,
    x: &[f32],
    dy: &mut [f32],
    mean: &[f32],
    scratch: &mut [f32],
    column: impl Fn(usize) -> [f32; 3],
) {
    let (mean_dy, rest) = scratch.split_at_mut(channels);
    let (pull, rest) = rest.split_at_mut(channels);
    let scale = &mut rest[..channels];
    for j in 0..channels {
        [mean_dy[j], pull[j], scale[j]] = column(j);
    }
    let (mean_dy, pull, scale) = (&*mean_dy, &*pull, &*scale);
    let dy = Shared::new(&mut dy[..rows * channels]);
    cpu.each(rows.div_ceil(RUN), |run| {
        let start = run * RUN * channels;
        let len = rows.min((run + 1) * RUN) * channels - start;
        // SAFETY: the runs of different tasks do not overlap.
        let dy = unsafe { dy.slice(start, len) };
        run_input(cpu.isa, &x[start..start + len], dy, [mean_dy, pull, scale, mean]);
    });
}

vectorised! {
    fn run_input(x: &[f32], dy: &mut [f32], columns: [&[f32]; 4]) {
        let [mean_dy, pull, scale, mean] = columns;
        let channels = mean_dy.len();
        for (dy, x) in dy.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
            for (((((dy, x), m), p), s), mean) in dy.iter_mut().zip(x).zip(mean_dy).zip(pull).zip(scale).zip(mean) {
                *dy = ((*dy - m) - (x - mean) * p) * s;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn statistics_keep_their_digits_when_the_mean_is_large() {
        let cpu = Cpu::new(2).unwrap();
        let (rows, channels) = (517, 3);
        let s = Stream::numbered(4);
        let x: Vec<f32> = (0..rows * channels).map(|i| 1000.0 * (i % channels) as f32 + s.uniform(i as u64)).collect();
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        let mut scratch = vec![f32::NAN; scratch_len(rows, channels)];
        statistics(&cpu, rows, channels, &x, &mut mean, &mut variance, &mut scratch);
        for j in 0..channels {
            let column: Vec<f64> = (0..rows).map(|i| f64::from(x[i * channels + j])).collect();
            let m = column.iter().sum::<f64>() / rows as f64;
            let v = column.iter().map(|x| (x - m).powi(2)).sum::<f64>() / rows as f64;
            let (dm, dv) = (f64::from(mean[j]) - m, f64::from(variance[j]) / v - 1.0);
            assert!(dm.abs() < 1e-6 * (1.0 + m) && dv.abs() < 1e-3, "{dm} {dv}");
        }
    }

    #[test]
    fn the_gradient_equals_a_numerical_one() {
        let cpu = Cpu::new(2).unwrap();
        gradient_is_numerical(&cpu, 2, 4, 2e-4);
        gradient_is_numerical(&cpu, 9, 4, 1e-4);
        gradient_is_numerical(&cpu, SMALL + 9, 70, 1e-4);
    }

    fn gradient_is_numerical(cpu: &Cpu, rows: usize, channels: usize, tolerance: f64) {
        let s = Stream::numbered(8);
        let number = |i: usize| s.uniform(i as u64) * 2.0 - 1.0;
        let x: Vec<f32> = (0..rows * channels).map(number).collect();
        let dy: Vec<f32> = (0..rows * channels).map(|i| number(1000 + i)).collect();
        let gamma: Vec<f32> = (0..channels).map(|i| number(2000 + i)).collect();
        let eps = 1e-3f64;
        // The loss Σ y · dy in f64, as a function of x.
        let loss = |x: &[f64]| -> f64 {
            (0..channels)
                .map(|j| {
                    let m = (0..rows).map(|i| x[i * channels + j]).sum::<f64>() / rows as f64;
                    let v = (0..rows).map(|i| (x[i * channels + j] - m).powi(2)).sum::<f64>() / rows as f64;
                    (0..rows)
                        .map(|i| {
                            (x[i * channels + j] - m) / (v + eps).sqrt()
                                * f64::from(gamma[j])
                                * f64::from(dy[i * channels + j])
                        })
                        .sum::<f64>()
                })
                .sum()
        };
        let mut scratch = vec![f32::NAN; scratch_len(rows, channels)];
        let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
        statistics(cpu, rows, channels, &x, &mut mean, &mut variance, &mut scratch);
        let inverse: Vec<f32> = variance.iter().map(|v| 1.0 / (v + eps as f32).sqrt()).collect();
        let (mut d_gamma, mut d_beta) = (vec![0.0; channels], vec![0.0; channels]);
        let mut dx = dy.clone();
        let grads = (&mut d_gamma[..], &mut d_beta[..]);
        let stats = (&mean[..], &inverse[..]);
        backward(cpu, rows, channels, eps as f32, &x, &mut dx, stats, &gamma, grads, true, &mut scratch);
        for j in 0..channels {
            let beta: f64 = (0..rows).map(|i| f64::from(dy[i * channels + j])).sum();
            let x_hat = |i: usize| f64::from((x[i * channels + j] - mean[j]) * inverse[j]);
            let gamma: f64 = (0..rows).map(|i| f64::from(dy[i * channels + j]) * x_hat(i)).sum();
            assert!((f64::from(d_beta[j]) - beta).abs() < 1e-4 && (f64::from(d_gamma[j]) - gamma).abs() < 1e-4);
        }
        let x64: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
        for i in (0..x.len()).step_by(1 + x.len() / 200) {
            let (mut up, mut down) = (x64.clone(), x64.clone());
            up[i] += 1e-5;
            down[i] -= 1e-5;
            let slope = (loss(&up) - loss(&down)) / 2e-5;
            assert!((f64::from(dx[i]) - slope).abs() < tolerance, "{i}: {} for {slope}", dx[i]);
        }
    }
}
