//! How fast the CPU's kernels are: `cargo bench -p ftprop-tensor`, some seconds in all.
//!
//! Shapes are like those of the 8-layer network for CIFAR-10 with a batch of 64; the larger product is AlexNet's. Threads are one a core, or as many as
//! `FTPROP_BENCH_THREADS` says. What a row counts is multiply-adds for products, and values for the rest.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use ftprop_tensor::cpu::{conv, elementwise, linear, norm};
use ftprop_tensor::geometry::ConvGeometry;
use ftprop_tensor::random::{Purpose, Stream};
use ftprop_tensor::{Buffer, Cpu};
use std::sync::LazyLock;

const BATCH: usize = 64;

static CPU: LazyLock<Cpu> = LazyLock::new(|| {
    let threads = std::env::var("FTPROP_BENCH_THREADS").map_or(0, |n| n.parse().expect("a number of threads"));
    Cpu::new(threads).expect("a CPU with threads")
});

fn main() {
    divan::main();
}

/// Numbers in [−1, 1).
fn numbers(len: usize, number: u64) -> Buffer {
    let stream = Stream::new(1, Purpose::Init, number);
    let mut buffer = Buffer::zeros(len);
    buffer.iter_mut().enumerate().for_each(|(i, x)| *x = 2.0 * stream.uniform(i as u64) - 1.0);
    buffer
}

/// Convolutions by input side, input channels, output channels and kernel.
const CONVOLUTIONS: [[usize; 4]; 3] = [[32, 3, 48, 5], [16, 64, 64, 3], [8, 128, 128, 3]];

fn geometry([side, in_channels, out_channels, kernel]: [usize; 4]) -> ConvGeometry {
    ConvGeometry {
        height: side,
        width: side,
        in_channels,
        out_channels,
        kernel_h: kernel,
        kernel_w: kernel,
        stride: 1,
        pad: kernel / 2,
        groups: 1,
    }
}

#[divan::bench(args = CONVOLUTIONS, max_time = 1)]
fn conv_forward(bencher: Bencher<'_, '_>, shape: [usize; 4]) {
    let g = geometry(shape);
    let (x, w) = (numbers(BATCH * g.in_len(), 0), numbers(g.weight_len(), 1));
    let (mut y, mut scratch) = (Buffer::zeros(BATCH * g.out_len()), scratch_of(&g));
    bencher.counter(multiply_adds(&g)).bench_local(|| {
        conv::forward(&CPU, &g, BATCH, black_box(&x), &w, None, &mut y, &mut scratch);
    });
}

#[divan::bench(args = CONVOLUTIONS, max_time = 1)]
fn conv_backward_input(bencher: Bencher<'_, '_>, shape: [usize; 4]) {
    let g = geometry(shape);
    let (dy, w) = (numbers(BATCH * g.out_len(), 0), numbers(g.weight_len(), 1));
    let (mut dx, mut scratch) = (Buffer::zeros(BATCH * g.in_len()), scratch_of(&g));
    bencher.counter(multiply_adds(&g)).bench_local(|| {
        conv::backward_input(&CPU, &g, BATCH, black_box(&dy), &w, &mut dx, &mut scratch);
    });
}

#[divan::bench(args = CONVOLUTIONS, max_time = 1)]
fn conv_backward_weights(bencher: Bencher<'_, '_>, shape: [usize; 4]) {
    let g = geometry(shape);
    let (x, dy) = (numbers(BATCH * g.in_len(), 0), numbers(BATCH * g.out_len(), 1));
    let (mut dw, mut scratch) = (Buffer::zeros(g.weight_len()), scratch_of(&g));
    bencher.counter(multiply_adds(&g)).bench_local(|| {
        conv::backward_weights(&CPU, &g, BATCH, black_box(&x), &dy, &mut dw, &mut scratch);
    });
}

/// The product itself, as a fully connected layer calls it: inputs and outputs.
const PRODUCTS: [[usize; 2]; 2] = [[512, 512], [9216, 4096]];

#[divan::bench(args = PRODUCTS, max_time = 1)]
fn gemm(bencher: Bencher<'_, '_>, [inputs, outputs]: [usize; 2]) {
    let (x, w) = (numbers(BATCH * inputs, 0), numbers(outputs * inputs, 1));
    let mut y = Buffer::zeros(BATCH * outputs);
    let mut scratch = Buffer::zeros(linear::scratch_len(&CPU, inputs, outputs, BATCH));
    bencher.counter(ItemsCount::new(BATCH * inputs * outputs)).bench_local(|| {
        linear::forward(&CPU, BATCH, inputs, outputs, black_box(&x), &w, None, &mut y, &mut scratch);
    });
}

/// Rows and channels of a batch norm.
const NORM: (usize, usize) = (BATCH * 16 * 16, 64);

#[divan::bench]
fn norm_statistics(bencher: Bencher<'_, '_>) {
    let (rows, channels) = NORM;
    let x = numbers(rows * channels, 0);
    let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
    let mut scratch = Buffer::zeros(norm::scratch_len(rows, channels));
    bencher.counter(ItemsCount::new(x.len())).bench_local(|| {
        norm::statistics(&CPU, rows, channels, black_box(&x), &mut mean, &mut variance, &mut scratch);
    });
}

#[divan::bench]
fn norm_affine(bencher: Bencher<'_, '_>) {
    let (rows, channels) = NORM;
    let (x, scale, shift) = (numbers(rows * channels, 0), numbers(channels, 1), numbers(channels, 2));
    let mut y = Buffer::zeros(x.len());
    bencher
        .counter(ItemsCount::new(x.len()))
        .bench_local(|| norm::affine(&CPU, rows, channels, black_box(&x), &scale, &shift, &mut y));
}

#[divan::bench]
fn norm_backward(bencher: Bencher<'_, '_>) {
    let (rows, channels) = NORM;
    // Slopes are changed in place, again and again: with a gamma of 1 they stay ordinary numbers.
    let (x, gamma) = (numbers(rows * channels, 0), vec![1.0; channels]);
    let (mean, inverse_deviation) = (vec![0.0; channels], vec![1.0; channels]);
    let (mut d_gamma, mut d_beta) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut dy, mut scratch) = (numbers(x.len(), 2), Buffer::zeros(norm::scratch_len(rows, channels)));
    bencher.counter(ItemsCount::new(x.len())).bench_local(|| {
        let statistics = (&mean[..], &inverse_deviation[..]);
        let learned = (&mut d_gamma[..], &mut d_beta[..]);
        norm::backward(
            &CPU,
            rows,
            channels,
            1e-5,
            black_box(&x),
            &mut dy,
            statistics,
            &gamma,
            learned,
            true,
            &mut scratch,
        );
    });
}

#[divan::bench]
fn elementwise_map(bencher: Bencher<'_, '_>) {
    let x = numbers(NORM.0 * NORM.1, 0);
    let mut y = Buffer::zeros(x.len());
    bencher
        .counter(ItemsCount::new(x.len()))
        .bench_local(|| elementwise::map(&CPU, black_box(&x), &mut y, |z| if z > 0.0 { 1.0 } else { -1.0 }));
}

/// As Adam does it: a weight and two moments, given a gradient.
#[divan::bench]
fn elementwise_update3(bencher: Bencher<'_, '_>) {
    let grads = numbers(NORM.0 * NORM.1, 0);
    let [mut w, mut m, mut v] = [1, 2, 3].map(|number| numbers(grads.len(), number));
    v.fill(1.0);
    bencher.counter(ItemsCount::new(grads.len())).bench_local(|| {
        elementwise::update3(&CPU, [&mut w, &mut m, &mut v], black_box(&grads), |w, m, v, g| {
            let (m, v) = (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g);
            (w - 1e-3 * m / (v.sqrt() + 1e-8), m, v)
        });
    });
}

fn multiply_adds(g: &ConvGeometry) -> ItemsCount {
    ItemsCount::new(BATCH * g.multiply_adds())
}

fn scratch_of(g: &ConvGeometry) -> Buffer {
    Buffer::zeros(conv::scratch_len(&CPU, g, BATCH))
}
