//! Instruction sets that round a product and a sum once give the same bits, whatever the width of their vectors.

use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::{Isa, conv, linear, norm, pool, reduce};
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use ftprop_tensor::random::Stream;

fn numbers(stream: u64, len: usize) -> Vec<f32> {
    let s = Stream::numbered(stream);
    (0..len as u64).map(|i| 2.0 * s.uniform(i) - 1.0).collect()
}

/// Checks that `results` gives the same bits on every instruction set of this machine that fuses.
fn same_bits(what: &str, results: impl Fn(&Cpu) -> Vec<Vec<f32>>) {
    let mut first: Option<(Isa, Vec<Vec<u32>>)> = None;
    for isa in Isa::all_available().filter(|isa| isa.fuses()) {
        let found = results(&Cpu::with_isa(2, isa).unwrap());
        let found: Vec<Vec<u32>> = found.into_iter().map(|v| v.into_iter().map(f32::to_bits).collect()).collect();
        match &first {
            Some((other, expected)) => assert!(found == *expected, "{what}: {isa:?} and {other:?} differ"),
            None => first = Some((isa, found)),
        }
    }
}

#[test]
fn convolutions() {
    for case in 0..80 {
        let s = Stream::numbered(300 + case);
        let groups = if s.below(0, 4) == 0 { 2 } else { 1 };
        let g = ConvGeometry {
            height: 1 + s.below(1, 9) as usize,
            width: 1 + s.below(2, 9) as usize,
            in_channels: groups * (1 + s.below(3, 40) as usize),
            out_channels: groups * (1 + s.below(4, 36) as usize),
            kernel_h: 1 + s.below(5, 4) as usize,
            kernel_w: 1 + s.below(6, 4) as usize,
            stride: 1 + s.below(7, 2) as usize,
            pad: s.below(8, 3) as usize,
            groups,
        };
        if g.checked().is_err() {
            continue;
        }
        let n = 1 + s.below(9, 16) as usize;
        let (x, w, dy) = (numbers(1, n * g.in_len()), numbers(2, g.weight_len()), numbers(3, n * g.out_len()));
        let bias = numbers(4, g.out_channels);
        same_bits(&format!("{g:?} of {n}"), |cpu| {
            let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
            let mut scratch = vec![f32::NAN; conv::scratch_len(cpu, &g, n)];
            conv::forward(cpu, &g, n, &x, &w, Some(&bias), &mut y, &mut scratch);
            conv::backward_input(cpu, &g, n, &dy, &w, &mut dx, &mut scratch);
            conv::backward_weights(cpu, &g, n, &x, &dy, &mut dw, &mut scratch);
            vec![y, dx, dw]
        });
    }
}

#[test]
fn fully_connected_layers() {
    for (n, inputs, outputs) in [(1, 1, 1), (3, 20, 16), (64, 33, 10), (5, 300, 70), (2, 513, 129), (9, 512, 64)] {
        let (x, w, dy) = (numbers(1, n * inputs), numbers(2, inputs * outputs), numbers(3, n * outputs));
        same_bits(&format!("{n} of {inputs} to {outputs}"), |cpu| {
            let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
            let mut scratch = vec![f32::NAN; linear::scratch_len(cpu, inputs, outputs, n)];
            linear::forward(cpu, n, inputs, outputs, &x, &w, None, &mut y, &mut scratch);
            linear::backward_input(cpu, n, inputs, outputs, &dy, &w, &mut dx, &mut scratch);
            linear::backward_weights(cpu, n, inputs, outputs, &x, &dy, &mut dw, &mut scratch);
            vec![y, dx, dw]
        });
    }
}

#[test]
fn norms_pools_and_sums() {
    for (rows, channels) in [(2, 3), (60, 70), (300, 33)] {
        let (x, dy, gamma) = (numbers(1, rows * channels), numbers(2, rows * channels), numbers(3, channels));
        same_bits(&format!("{rows} rows of {channels}"), |cpu| {
            let mut scratch = vec![f32::NAN; norm::scratch_len(rows, channels)];
            let (mut mean, mut variance) = (gamma.clone(), gamma.clone());
            norm::statistics(cpu, rows, channels, &x, &mut mean, &mut variance, &mut scratch);
            let (mut dx, mut d_gamma, mut d_beta, mut sums) = (dy.clone(), gamma.clone(), gamma.clone(), gamma.clone());
            let grads = (&mut d_gamma[..], &mut d_beta[..]);
            norm::backward(
                cpu,
                rows,
                channels,
                1e-3,
                &x,
                &mut dx,
                (&mean, &variance),
                &gamma,
                grads,
                true,
                &mut scratch,
            );
            reduce::column_sums(cpu, rows, channels, &x, &mut sums, &mut scratch);
            vec![mean, variance, dx, d_gamma, d_beta, sums]
        });
    }
    let g = PoolGeometry { height: 9, width: 7, channels: 21, kernel: 3, stride: 2, pad: 1 };
    let (x, dy) = (numbers(1, 2 * g.in_len()), numbers(2, 2 * g.out_len()));
    same_bits("pools", |cpu| {
        let mut outputs = [dy.clone(), x.clone(), dy.clone(), x.clone()];
        let [y, dx, mean, d_mean] = &mut outputs;
        pool::max_forward(cpu, &g, 2, &x, y);
        pool::max_backward(cpu, &g, 2, &x, &dy, dx);
        pool::average_forward(cpu, &g, 2, &x, mean);
        pool::average_backward(cpu, &g, 2, &dy, d_mean);
        outputs.into()
    });
}
