//! Sums in a fixed order.

use super::simd::vectorised;
use super::{Cpu, Shared};
use crate::geometry::size;

/// Rows that are summed in f32 before f64 takes over.
const RUN: usize = 256;

/// Floats of scratch for [`column_sums`] of so many rows and columns.
pub fn column_scratch_len(rows: usize, cols: usize) -> usize {
    size(rows.div_ceil(RUN), cols)
}

/// `out[j] = Σ_i x[i, j]` of a row-major matrix.
pub fn column_sums(cpu: &Cpu, rows: usize, cols: usize, x: &[f32], out: &mut [f32], scratch: &mut [f32]) {
    assert!(cols > 0, "sums of no columns");
    let x = &x[..size(rows, cols)];
    let out = &mut out[..cols];
    let partial = &mut scratch[..column_scratch_len(rows, cols)];
    cpu.each_chunk(partial, cols, |run, sums| {
        run_sums(cpu.isa, &x[run * RUN * cols..rows.min((run + 1) * RUN) * cols], sums);
    });
    for (j, out) in out.iter_mut().enumerate() {
        *out = partial.chunks_exact(cols).map(|sums| f64::from(sums[j])).sum::<f64>() as f32;
    }
}

vectorised! {
    fn run_sums(x: &[f32], sums: &mut [f32]) {
        sums.fill(0.0);
        for row in x.chunks_exact(sums.len()) {
            sums.iter_mut().zip(row).for_each(|(s, x)| *s += x);
        }
    }
}

/// Σ x², in f64.
pub fn square_sum(cpu: &Cpu, x: &[f32]) -> f64 {
    const PART: usize = 64 * 1024;
    const MOST: usize = 4096;
    // A fixed number of parts, however long the buffer: no allocation, and an order that never changes.
    let mut partial = [0.0f64; MOST];
    let part = PART.max(x.len().div_ceil(MOST));
    let parts = x.len().div_ceil(part);
    let shared = Shared::new(&mut partial);
    cpu.each(parts, |i| {
        let x = &x[i * part..x.len().min((i + 1) * part)];
        // Eight lanes, each summed in f64, so that the compiler may use its vectors.
        let mut lanes = [0.0f64; 8];
        let whole = x.chunks_exact(8);
        let tail = whole.remainder();
        for eight in whole {
            for (l, v) in lanes.iter_mut().zip(eight) {
                *l += f64::from(*v) * f64::from(*v);
            }
        }
        let sum = lanes.iter().sum::<f64>() + tail.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
        // SAFETY: each part belongs to one task.
        unsafe { shared.slice(i, 1)[0] = sum };
    });
    partial[..parts].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_right_and_do_not_depend_on_threads() {
        let (rows, cols) = (1000, 7);
        let x: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919) % 1000) as f32 / 997.0 - 0.5).collect();
        let mut scratch = vec![f32::NAN; column_scratch_len(rows, cols)];
        let mut run = |threads| {
            let cpu = Cpu::new(threads).unwrap();
            let mut out = vec![f32::NAN; cols];
            column_sums(&cpu, rows, cols, &x, &mut out, &mut scratch);
            (out, square_sum(&cpu, &x))
        };
        let (out, squares) = run(1);
        for (j, o) in out.iter().enumerate() {
            let expected: f64 = (0..rows).map(|i| f64::from(x[i * cols + j])).sum();
            assert!((f64::from(*o) - expected).abs() < 1e-4);
        }
        let expected: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        assert!((squares - expected).abs() < 1e-9 * expected);
        assert_eq!((out, squares), run(3));
    }
}
