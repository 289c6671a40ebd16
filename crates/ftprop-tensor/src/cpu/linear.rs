//! Fully connected layers: x is `[n, inputs]`, w `[outputs, inputs]`, y `[n, outputs]`, all row-major.

use super::Cpu;
use super::gemm::{Grid, Nest, Product, Right, Start, pack, packed_len, product};

const BLOCK_DEPTH: usize = 256;

/// Floats of scratch that the three passes need for a batch of `n`.
pub fn scratch_len(cpu: &Cpu, inputs: usize, outputs: usize, n: usize) -> usize {
    let forward = packed_len(cpu, inputs, outputs);
    let input = packed_len(cpu, outputs, inputs);
    let weights = packed_len(cpu, n, inputs);
    forward.max(input).max(weights)
}

/// y = x wᵀ + bias
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
    pack(cpu, inputs, outputs, scratch, |k, j| w[j * inputs + k]);
    let p = Product {
        rows: n,
        cols: outputs,
        a: x,
        a_rows: Grid::rows(inputs),
        nest: Nest::dense(inputs),
        b: Right::Panels(scratch),
        c_rows: Grid::rows(outputs),
        start: bias.map_or(Start::Zero, Start::Bias),
        task_rows: 96,
        block_depth: BLOCK_DEPTH,
    };
    product(cpu, &p, y);
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
    pack(cpu, outputs, inputs, scratch, |k, j| w[k * inputs + j]);
    let p = Product {
        rows: n,
        cols: inputs,
        a: dy,
        a_rows: Grid::rows(outputs),
        nest: Nest::dense(outputs),
        b: Right::Panels(scratch),
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
    pack(cpu, n, inputs, scratch, |k, j| x[k * inputs + j]);
    let p = Product {
        rows: outputs,
        cols: inputs,
        a: dy,
        a_rows: Grid::rows(1),
        nest: Nest { counts: [1, 1, n], strides: [0, 0, outputs] },
        b: Right::Panels(scratch),
        c_rows: Grid::rows(inputs),
        start: Start::Zero,
        task_rows: 48,
        block_depth: BLOCK_DEPTH,
    };
    product(cpu, &p, dw);
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
            [(1, 1, 1), (3, 20, 16), (64, 33, 10), (5, 300, 70), (2, 513, 129)].into_iter().enumerate()
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
