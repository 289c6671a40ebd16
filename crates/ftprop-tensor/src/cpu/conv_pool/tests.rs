use super::*;
use crate::cpu::Isa;
use crate::cpu::conv::reference;
use crate::random::Stream;

fn numbers(stream: u64, n: usize) -> Vec<f32> {
    let s = Stream::numbered(stream);
    (0..n as u64).map(|i| 2.0 * s.uniform(i) - 1.0).collect()
}

fn close(what: &str, g: &ConvPool, got: &[f32], expected: &[f32]) {
    let scale = expected.iter().fold(1.0f32, |m, e| m.max(e.abs()));
    assert_eq!(got.len(), expected.len());
    for (i, (x, e)) in got.iter().zip(expected).enumerate() {
        assert!((x - e).abs() < 2e-5 * scale, "{what} of {g:?} at {i}: {x} for {e}");
    }
}

/// The largest value of each window, and the index of the first place that has it.
fn pooled(g: &ConvPool, n: usize, map: &[f32]) -> Vec<(f32, usize)> {
    let (p, c) = (&g.pool, g.pool.channels);
    let mut out = Vec::new();
    for i in 0..n * g.out_len() {
        let (pixel, channel) = (i / c, i % c);
        let (image, window) = (pixel / g.windows(), pixel % g.windows());
        let (y, x) = (window / p.out_width() * p.kernel, window % p.out_width() * p.kernel);
        let places = (0..p.kernel * p.kernel)
            .map(|place| ((image * p.height + y + place / p.kernel) * p.width + x + place % p.kernel) * c + channel);
        out.push(places.fold((f32::NEG_INFINITY, 0), |most, at| if map[at] > most.0 { (map[at], at) } else { most }));
    }
    out
}

/// What the fast passes give: y, dx and dw.
fn fast(cpu: &Cpu, g: &ConvPool, n: usize, seed: u64) -> [Vec<f32>; 3] {
    let (x, w) = (numbers(seed, n * g.in_len()), numbers(seed + 1, g.conv.weight_len()));
    let (dy, bias) = (numbers(seed + 2, n * g.out_len()), numbers(seed + 3, g.out_channels()));
    let mut scratch = vec![f32::NAN; scratch_len(cpu, g, n)];
    let (mut y, mut chosen) = (vec![f32::NAN; n * g.out_len()], vec![255; n * g.out_len()]);
    forward(cpu, g, n, &x, &w, Some(&bias), &mut y, &mut chosen, &mut scratch);
    scratch.fill(f32::NAN);
    let mut dx = vec![f32::NAN; n * g.in_len()];
    backward_input(cpu, g, n, &dy, &chosen, &w, &mut dx, &mut scratch);
    scratch.fill(f32::NAN);
    let mut dw = vec![f32::NAN; g.conv.weight_len()];
    backward_weights(cpu, g, n, &x, &dy, &chosen, &mut dw, &mut scratch);
    [y, dx, dw]
}

fn check(cpu: &Cpu, g: &ConvPool, n: usize, seed: u64) {
    let (x, w) = (numbers(seed, n * g.in_len()), numbers(seed + 1, g.conv.weight_len()));
    let (dy, bias) = (numbers(seed + 2, n * g.out_len()), numbers(seed + 3, g.out_channels()));
    let most = pooled(g, n, &reference::forward(&g.conv, n, &x, &w, Some(&bias)));
    let [y, dx, dw] = fast(cpu, g, n, seed);
    close("forward", g, &y, &most.iter().map(|m| m.0).collect::<Vec<_>>());
    let mut slopes = vec![0.0; n * g.conv.out_len()];
    most.iter().zip(&dy).for_each(|(m, dy)| slopes[m.1] = *dy);
    close("backward_input", g, &dx, &reference::backward_input(&g.conv, n, &slopes, &w));
    close("backward_weights", g, &dw, &reference::backward_weights(&g.conv, n, &x, &slopes));
}

fn random_shape(s: &Stream) -> Option<ConvPool> {
    let conv = ConvGeometry {
        height: 2 + s.below(1, 12) as usize,
        width: 2 + s.below(2, 12) as usize,
        in_channels: 1 + s.below(3, 40) as usize,
        out_channels: 1 + s.below(4, 36) as usize,
        kernel_h: 1 + s.below(5, 7) as usize,
        kernel_w: 1 + s.below(6, 5) as usize,
        stride: 1 + s.below(7, 2) as usize,
        pad: s.below(8, 4) as usize,
        groups: 1,
    };
    let conv = conv.checked().ok()?;
    let kernel = 2 + s.below(9, 2) as usize;
    let (height, width, channels) = (conv.out_height(), conv.out_width(), conv.out_channels);
    ConvPool::new(conv, PoolGeometry { height, width, channels, kernel, stride: kernel, pad: 0 }.checked().ok()?)
}

#[test]
fn equals_the_reference_on_random_shapes() {
    for isa in Isa::all_available() {
        let cpu = Cpu::with_isa(2, isa).unwrap();
        let mut tried = 0;
        for case in 0..150u64 {
            let s = Stream::numbered(700 + case);
            if let Some(g) = random_shape(&s) {
                tried += 1;
                check(&cpu, &g, 1 + s.below(10, 11) as usize, 10_000 + 10 * case);
            }
        }
        assert!(tried > 60, "only {tried} shapes were possible");
    }
}

#[test]
fn the_bits_do_not_depend_on_threads() {
    for case in 0..20u64 {
        let s = Stream::numbered(900 + case);
        let Some(g) = random_shape(&s) else { continue };
        let run = |threads| {
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            fast(&Cpu::new(threads).unwrap(), &g, 1 + case as usize, case).map(bits)
        };
        let once = run(1);
        assert!([2, 3, 5].into_iter().all(|threads| run(threads) == once), "{g:?}");
    }
}

#[test]
fn the_bits_do_not_depend_on_the_vectors() {
    let fusing: Vec<Isa> = Isa::all_available().filter(|isa| isa.fuses()).collect();
    for case in 0..60u64 {
        let s = Stream::numbered(1100 + case);
        let Some(g) = random_shape(&s) else { continue };
        let run = |isa: Isa| {
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            fast(&Cpu::with_isa(2, isa).unwrap(), &g, 1 + case as usize % 7, case).map(bits)
        };
        let every = fusing.iter().map(|&isa| run(isa)).collect::<Vec<_>>();
        assert!(every.windows(2).all(|pair| pair[0] == pair[1]), "{fusing:?} differ on {g:?}");
    }
}

#[test]
fn takes_windows_side_by_side_that_pool_the_convolutions_own_outputs() {
    let conv = ConvGeometry {
        height: 8,
        width: 8,
        in_channels: 2,
        out_channels: 4,
        kernel_h: 3,
        kernel_w: 3,
        stride: 1,
        pad: 0,
        groups: 1,
    };
    let pool = PoolGeometry { height: 6, width: 6, channels: 4, kernel: 2, stride: 2, pad: 0 };
    assert!(ConvPool::new(conv, pool).is_some());
    assert!(ConvPool::new(ConvGeometry { groups: 2, ..conv }, pool).is_none());
    assert!(ConvPool::new(conv, PoolGeometry { stride: 1, ..pool }).is_none());
    assert!(ConvPool::new(conv, PoolGeometry { pad: 1, ..pool }).is_none());
    assert!(ConvPool::new(conv, PoolGeometry { height: 8, ..pool }).is_none());
}

#[test]
fn the_first_of_equal_values_is_chosen_and_a_nan_is_not_hidden() {
    let (mut y, mut chosen) = ([0.0; 2], [9u8; 2]);
    let map = [3.0, 1.0, 3.0, f32::NAN, 1.0, 7.0, 3.0, 7.0];
    pool_rows(Isa::detect(), 2, 1, 2, &map, &mut y, &mut chosen);
    assert_eq!((y[0], chosen[0]), (3.0, 0));
    assert!(y[1].is_nan());
}
