//! Fully connected layers: x is `[n, inputs]`, w `[outputs, inputs]`, y `[n, outputs]`, all row-major.

use super::Cpu;
use super::gemm::{Grid, Nest, Product, Right, Start, pack, packed_len, product};
use crate::geometry::size;

const BLOCK_DEPTH: usize = 256;
/// Rows of weights that one task takes: they share the block of examples in cache.
const TASK_ROWS: usize = 48;

/// Floats of scratch that the three passes need for a batch of `n`.
pub fn scratch_len(cpu: &Cpu, inputs: usize, outputs: usize, n: usize) -> usize {
    let forward = packed_len(cpu, inputs, n).saturating_add(size(outputs, n));
    let input = if whole_vectors(cpu, inputs) { 0 } else { packed_len(cpu, outputs, inputs) };
    let weights = if whole_vectors(cpu, inputs) { 0 } else { packed_len(cpu, n, inputs) };
    forward.max(input).max(weights)
}

/// Whether rows of this length can be read where they lie.
fn whole_vectors(cpu: &Cpu, len: usize) -> bool {
    len.is_multiple_of(cpu.isa.lanes())
}

/// Checks that there is something to multiply, and that x, y and w are numbers of floats at all.
fn expect_sound(n: usize, inputs: usize, outputs: usize) {
    assert!(inputs > 0 && outputs > 0, "a layer of {inputs} inputs and {outputs} outputs");
    let _ = (size(n, inputs), size(n, outputs), size(inputs, outputs));
}

/// y = x wᵀ + bias
///
/// Computed as yᵀ = w xᵀ: the weights, far larger than the batch, are then read once and where they lie.
pub fn forward(
    cpu: &Cpu,
    n: usize,
    inputs: usize,
    outputs: usize,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    scratch: &mut [f32],
) {
    expect_sound(n, inputs, outputs);
    let (x, w, bias) = (&x[..n * inputs], &w[..outputs * inputs], bias.map(|bias| &bias[..outputs]));
    let (packed, transposed) = scratch.split_at_mut(packed_len(cpu, inputs, n));
    let transposed = &mut transposed[..outputs * n];
    pack(cpu, inputs, n, packed, |k, j| x[j * inputs + k]);
    let p = Product {
        rows: outputs,
        cols: n,
        a: w,
        a_rows: Grid::rows(inputs),
        nest: Nest::dense(inputs),
        b: Right::Panels { data: packed, depth: inputs },
        b_first: 0,
        c_rows: Grid::rows(n),
        start: Start::Zero,
        task_rows: TASK_ROWS,
        block_depth: BLOCK_DEPTH,
    };
    product(cpu, &p, transposed);
    let transposed = &*transposed;
    cpu.each_chunk(&mut y[..n * outputs], 8 * outputs, |i, rows| {
        for (r, row) in rows.chunks_exact_mut(outputs).enumerate() {
            let example = i * 8 + r;
            for (o, y) in row.iter_mut().enumerate() {
                *y = transposed[o * n + example] + bias.map_or(0.0, |b| b[o]);
            }
        }
    });
}

/// dx = dy w
pub fn backward_input(
    cpu: &Cpu,
    n: usize,
    inputs: usize,
    outputs: usize,
    dy: &[f32],
    w: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
) {
    expect_sound(n, inputs, outputs);
    let (dy, w) = (&dy[..n * outputs], &w[..outputs * inputs]);
    let p = Product {
        rows: n,
        cols: inputs,
        a: dy,
        a_rows: Grid::rows(outputs),
        nest: Nest::dense(outputs),
        b: right(cpu, outputs, inputs, w, scratch),
        b_first: 0,
        c_rows: Grid::rows(inputs),
        start: Start::Zero,
        task_rows: 96,
        block_depth: BLOCK_DEPTH,
    };
    product(cpu, &p, dx);
}

/// dw = dyᵀ x
pub fn backward_weights(
    cpu: &Cpu,
    n: usize,
    inputs: usize,
    outputs: usize,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut [f32],
) {
    expect_sound(n, inputs, outputs);
    let (x, dy, dw) = (&x[..n * inputs], &dy[..n * outputs], &mut dw[..outputs * inputs]);
    if n == 0 {
        return dw.fill(0.0);
    }
    let p = Product {
        rows: outputs,
        cols: inputs,
        a: dy,
        a_rows: Grid::rows(1),
        nest: Nest::new([1, 1, n], [0, 0, outputs]),
        b: right(cpu, n, inputs, x, scratch),
        b_first: 0,
        c_rows: Grid::rows(inputs),
        start: Start::Zero,
        task_rows: TASK_ROWS,
        block_depth: BLOCK_DEPTH,
    };
    product(cpu, &p, dw);
}

/// A row-major matrix as a right factor: as it lies if its rows are whole vectors, else packed.
fn right<'a>(cpu: &Cpu, depth: usize, cols: usize, matrix: &'a [f32], scratch: &'a mut [f32]) -> Right<'a> {
    if whole_vectors(cpu, cols) {
        return Right::Rows { data: &matrix[..depth * cols], stride: cols };
    }
    pack(cpu, depth, cols, scratch, |k, j| matrix[k * cols + j]);
    Right::Panels { data: scratch, depth }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::gemm::reference;
    use crate::random::Stream;

    #[test]
    fn equals_the_reference_on_odd_sizes() {
        let cpu = Cpu::new(2).unwrap();
        for (case, (n, inputs, outputs)) in
            [(1, 1, 1), (3, 20, 16), (64, 33, 10), (5, 300, 70), (2, 513, 129), (9, 512, 64)].into_iter().enumerate()
        {
            let numbers = |stream: usize, len: usize| -> Vec<f32> {
                let s = Stream::numbered((10 * case + stream) as u64);
                (0..len as u64).map(|i| 2.0 * s.uniform(i) - 1.0).collect()
            };
            let transpose = |m: &[f32], rows: usize, cols: usize| -> Vec<f32> {
                (0..rows * cols).map(|i| m[i % rows * cols + i / rows]).collect()
            };
            let (x, w, dy) = (numbers(0, n * inputs), numbers(1, outputs * inputs), numbers(2, n * outputs));
            let bias = numbers(3, outputs);
            let mut scratch = vec![f32::NAN; scratch_len(&cpu, inputs, outputs, n)];
            let close = |got: &[f32], expected: &[f32]| {
                got.iter()
                    .zip(expected)
                    .for_each(|(x, e)| assert!((x - e).abs() < 1e-4, "{n} {inputs} {outputs}: {x} {e}"));
            };
            let mut y = vec![f32::NAN; n * outputs];
            forward(&cpu, n, inputs, outputs, &x, &w, Some(&bias), &mut y, &mut scratch);
            let mut expected = reference(n, inputs, outputs, &x, &transpose(&w, outputs, inputs));
            expected.iter_mut().enumerate().for_each(|(i, e)| *e += bias[i % outputs]);
            close(&y, &expected);
            let mut dx = vec![f32::NAN; n * inputs];
            backward_input(&cpu, n, inputs, outputs, &dy, &w, &mut dx, &mut scratch);
            close(&dx, &reference(n, outputs, inputs, &dy, &w));
            let mut dw = vec![f32::NAN; outputs * inputs];
            backward_weights(&cpu, n, inputs, outputs, &x, &dy, &mut dw, &mut scratch);
            close(&dw, &reference(outputs, n, inputs, &transpose(&dy, n, outputs), &x));
        }
    }
}
