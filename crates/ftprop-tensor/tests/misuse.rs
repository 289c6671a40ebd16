//! Every safe public kernel, called with random arguments: buffers too short, geometry that cannot be, places that no
//! window has. A call returns or panics with words; nothing outside its buffers is ever written.
//!
//! A write out of bounds shows here as a broken guard beside a buffer, a read out of bounds under AddressSanitizer.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::{Isa, conv, conv_pool, elementwise, gemm, linear, norm, pool, reduce};
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use ftprop_tensor::random::Stream;

const CASES: u64 = 4000;
/// Buffers that a case asks for are no longer than this.
const MOST: usize = 1 << 16;
const GUARD: usize = 64;
const GUARD_VALUE: f32 = 1234.5;

/// The random choices of one case.
struct Case {
    stream: Stream,
    next: RefCell<u64>,
}

impl Case {
    fn below(&self, n: u64) -> usize {
        let mut next = self.next.borrow_mut();
        *next += 1;
        self.stream.below(*next, n) as usize
    }

    fn size(&self, n: u64) -> usize {
        1 + self.below(n)
    }

    /// Mostly `value`, now and then something odd.
    fn perhaps(&self, value: usize) -> usize {
        if self.below(40) > 0 {
            return value;
        }
        let odd =
            [0, 1, value.wrapping_sub(1), value + 1, 2 * value, 300, 1 << 16, 1 << 33, usize::MAX / 2, usize::MAX];
        odd[self.below(odd.len() as u64)]
    }

    /// Numbers in a buffer of about this length, with guards on both sides.
    fn buffer(&self, len: usize) -> Guarded {
        let len = self.perhaps(len).min(MOST);
        let mut all = vec![GUARD_VALUE; len + 2 * GUARD];
        all[GUARD..GUARD + len].iter_mut().enumerate().for_each(|(i, x)| *x = self.stream.uniform(i as u64) - 0.5);
        Guarded { all }
    }

    fn conv(&self) -> ConvGeometry {
        let groups = self.size(2);
        let (kernel_h, kernel_w) = (self.size(3), self.size(3));
        ConvGeometry {
            height: self.perhaps(kernel_h + self.below(5)),
            width: self.perhaps(kernel_w + self.below(5)),
            in_channels: self.perhaps(groups * self.size(20)),
            out_channels: self.perhaps(groups * self.size(20)),
            kernel_h: self.perhaps(kernel_h),
            kernel_w: self.perhaps(kernel_w),
            stride: self.perhaps(self.size(2)),
            pad: self.perhaps(self.below(3)),
            groups: self.perhaps(groups),
        }
    }

    fn pool(&self) -> PoolGeometry {
        let kernel = self.size(3);
        PoolGeometry {
            height: self.perhaps(kernel + self.below(5)),
            width: self.perhaps(kernel + self.below(5)),
            channels: self.perhaps(self.size(20)),
            kernel: self.perhaps(kernel),
            stride: self.perhaps(self.size(3)),
            pad: self.perhaps(kernel / 2),
        }
    }
}

struct Guarded {
    all: Vec<f32>,
}

impl Guarded {
    fn get(&mut self) -> &mut [f32] {
        let end = self.all.len() - GUARD;
        &mut self.all[GUARD..end]
    }

    fn check(&self, what: &str, case: u64) {
        let (low, high) = (&self.all[..GUARD], &self.all[self.all.len() - GUARD..]);
        assert!(low.iter().chain(high).all(|x| *x == GUARD_VALUE), "{what}, case {case}: written outside a buffer");
    }
}

/// Calls `call` for many cases on every instruction set; it gives back the buffers that it wrote to.
fn misuse(what: &str, call: impl Fn(&Cpu, &Case) -> Option<Called>) {
    let (mut returned, mut refused) = (0, 0);
    for isa in Isa::all_available() {
        let cpu = Cpu::with_isa(2, isa).unwrap();
        for number in 0..CASES {
            let case = Case { stream: Stream::numbered(number), next: RefCell::new(1 << 20) };
            let Some(called) = call(&cpu, &case) else { continue };
            match called.outcome {
                Ok(()) => returned += 1,
                Err(words) => {
                    assert!(!words.is_empty(), "{what}, case {number}: a panic without a word");
                    refused += 1;
                }
            }
            called.written.iter().for_each(|buffer| buffer.check(what, number));
        }
    }
    assert!(returned > CASES / 40 && refused > CASES / 40, "{what}: {returned} calls returned, {refused} were refused");
}

struct Called {
    outcome: Result<(), String>,
    written: Vec<Guarded>,
}

/// Runs `f` on buffers and says what came of it.
fn try_on<const N: usize>(mut buffers: [Guarded; N], f: impl FnOnce([&mut [f32]; N])) -> Called {
    let outcome = attempt(|| f(buffers.each_mut().map(Guarded::get)));
    Called { outcome, written: buffers.into() }
}

fn attempt<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    // Thousands of panics are expected here; only those of this file are worth printing.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            if info.location().is_some_and(|place| place.file().ends_with("misuse.rs")) {
                eprintln!("{info}");
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(f)).map_err(|why| {
        let words = why.downcast_ref::<&str>().map(|words| words.to_string());
        words.or_else(|| why.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

/// Lengths that suit the arguments, or any where the arguments have none.
fn lens<const N: usize>(f: impl FnOnce() -> Option<[usize; N]>) -> [usize; N] {
    let fitting = attempt(f).ok().flatten();
    fitting.map_or([100; N], |lens| lens.map(|len| len.min(MOST)))
}

#[test]
fn convolution() {
    misuse("convolution", |cpu, case| {
        let (g, n) = (case.conv(), case.perhaps(case.size(14)));
        let fitting = lens(|| {
            let g = g.checked().ok()?;
            let batch = |len: usize| n.saturating_mul(len);
            let scratch = conv::scratch_len(cpu, &g, n);
            Some([batch(g.in_len()), batch(g.out_len()), g.weight_len(), g.out_channels, scratch])
        });
        let pass = case.below(4);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, y, w, bias, scratch]| match pass {
            0 => conv::forward(cpu, &g, n, x, w, Some(bias), y, scratch),
            1 => conv::forward(cpu, &g, n, x, w, None, y, scratch),
            2 => conv::backward_input(cpu, &g, n, y, w, x, scratch),
            _ => conv::backward_weights(cpu, &g, n, x, y, w, scratch),
        }))
    });
}

#[test]
fn convolution_with_a_pool() {
    misuse("convolution with a pool", |cpu, case| {
        let conv = ConvGeometry { groups: 1, ..case.conv() };
        let kernel = case.perhaps(2 + case.below(2));
        let [height, width] = lens(|| conv.checked().ok().map(|g| [g.out_height(), g.out_width()]));
        let pool = PoolGeometry { height, width, channels: conv.out_channels, kernel, stride: kernel, pad: 0 };
        // Geometry that is refused here is never seen by a kernel.
        let g = attempt(|| conv_pool::ConvPool::new(conv, pool)).unwrap()?;
        let n = case.perhaps(case.size(5));
        let fitting = lens(|| {
            let batch = |len: usize| n.saturating_mul(len);
            let scratch = conv_pool::scratch_len(cpu, &g, n);
            Some([batch(g.in_len()), batch(g.out_len()), conv.weight_len(), g.out_channels(), scratch])
        });
        let places = (kernel * kernel) as u64;
        let mut chosen: Vec<u8> = (0..case.perhaps(fitting[1]).min(MOST)).map(|_| case.below(places) as u8).collect();
        if case.below(4) == 0 && !chosen.is_empty() {
            let at = case.below(chosen.len() as u64);
            chosen[at] = case.below(256) as u8;
        }
        let pass = case.below(3);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, y, w, bias, scratch]| match pass {
            0 => conv_pool::forward(cpu, &g, n, x, w, Some(bias), y, &mut chosen, scratch),
            1 => conv_pool::backward_input(cpu, &g, n, y, &chosen, w, x, scratch),
            _ => conv_pool::backward_weights(cpu, &g, n, x, y, &chosen, w, scratch),
        }))
    });
}

#[test]
fn fully_connected() {
    misuse("fully connected", |cpu, case| {
        let [n, inputs, outputs] = [20, 40, 40].map(|most| case.perhaps(case.size(most)));
        let fitting = lens(|| {
            let [x, y, w] = [(n, inputs), (n, outputs), (outputs, inputs)].map(|(a, b)| a.saturating_mul(b));
            Some([x, y, w, outputs, linear::scratch_len(cpu, inputs, outputs, n)])
        });
        let pass = case.below(3);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, y, w, bias, scratch]| match pass {
            0 => linear::forward(cpu, n, inputs, outputs, x, w, Some(bias), y, scratch),
            1 => linear::backward_input(cpu, n, inputs, outputs, y, w, x, scratch),
            _ => linear::backward_weights(cpu, n, inputs, outputs, x, y, w, scratch),
        }))
    });
}

#[test]
fn pooling() {
    misuse("pooling", |cpu, case| {
        let (g, n) = (case.pool(), case.perhaps(case.size(5)));
        let fitting = lens(|| {
            let g = g.checked().ok()?;
            Some([g.in_len(), g.out_len(), g.in_len()].map(|len| n.saturating_mul(len)))
        });
        let pass = case.below(4);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, y, dx]| match pass {
            0 => pool::max_forward(cpu, &g, n, x, y),
            1 => pool::max_backward(cpu, &g, n, x, y, dx),
            2 => pool::average_forward(cpu, &g, n, x, y),
            _ => pool::average_backward(cpu, &g, n, y, dx),
        }))
    });
}

#[test]
fn batch_norm_and_sums() {
    misuse("batch norm", |cpu, case| {
        let [rows, channels] = [150, 80].map(|most| case.perhaps(case.size(most)));
        let fitting = lens(|| {
            let values = rows.saturating_mul(channels);
            Some([values, values, channels, channels, channels, channels, channels, norm::scratch_len(rows, channels)])
        });
        let pass = case.below(4);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, dy, a, b, c, d, e, scratch]| match pass {
            0 => norm::statistics(cpu, rows, channels, x, a, b, scratch),
            1 => norm::affine(cpu, rows, channels, x, a, b, dy),
            2 => reduce::column_sums(cpu, rows, channels, x, a, scratch),
            _ => norm::backward(cpu, rows, channels, 1e-3, x, dy, (a, b), c, (d, e), true, scratch),
        }))
    });
}

#[test]
fn elementwise_maps() {
    misuse("maps", |cpu, case| {
        let len = case.below(40_000);
        let pass = case.below(5);
        Some(try_on([(); 4].map(|()| case.buffer(len)), |[a, b, c, x]| match pass {
            0 => elementwise::map(cpu, x, a, |x| x + 1.0),
            1 => elementwise::update(cpu, a, x, |a: f32, x: f32| a * x),
            2 => elementwise::update2(cpu, [a, b], x, |a, b, x| (b, a + x)),
            3 => elementwise::update3(cpu, [a, b, c], x, |a, b, c, x| (b, c, a + x)),
            _ => {
                elementwise::update_places(cpu, a, |i, a| a + i as f32);
                reduce::square_sum(cpu, x);
            }
        }))
    });
}

#[test]
fn references() {
    misuse("references", |_, case| {
        let (rows, depth, cols) = (case.size(5), case.size(9), case.size(9));
        Some(try_on([rows * depth, depth * cols].map(|len| case.buffer(len)), |[a, b]| {
            gemm::reference(rows, depth, cols, a, b);
        }))
    });
    misuse("convolution's references", |_, case| {
        let g = case.conv();
        // They make their own outputs, so only geometry that a machine could hold is tried.
        let fitting = match g.checked() {
            Ok(g) if [g.in_len(), g.out_len(), g.weight_len()].iter().all(|&len| len < MOST) => {
                [g.in_len(), g.out_len(), g.weight_len()]
            }
            Ok(_) => return None,
            Err(_) => [100; 3],
        };
        let pass = case.below(3);
        Some(try_on(fitting.map(|len| case.buffer(len)), |[x, y, w]| match pass {
            0 => drop(conv::reference::forward(&g, 1, x, w, None)),
            1 => drop(conv::reference::backward_input(&g, 1, y, w)),
            _ => drop(conv::reference::backward_weights(&g, 1, x, y)),
        }))
    });
}
