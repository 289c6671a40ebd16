//! Every kernel of this machine against the scalar one, over odd shapes.

use super::*;

/// SplitMix64, for made-up numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

struct Case {
    positions: Vec<u32>,
    runs: Vec<Run>,
    steps: usize,
    inputs: usize,
    blocks: usize,
}

impl Case {
    /// Each step of the runs by itself.
    fn offsets(&self, a_step: usize) -> Offsets {
        let steps = |run: &Run| (run.offset..).step_by(a_step).take(run.steps).map(|at| at as u32).collect::<Vec<_>>();
        Offsets::new(self.runs.iter().flat_map(steps).collect())
    }
}

/// Runs of odd lengths at odd places, for a kernel that takes `a_step` inputs a step.
fn case(numbers: &mut Numbers, a_step: usize) -> Case {
    let long = if numbers.below(4) == 0 { 300 } else { 30 };
    let runs: Vec<Run> =
        (0..1 + numbers.below(4)).map(|_| Run { offset: numbers.below(50), steps: numbers.below(long) }).collect();
    let positions: Vec<u32> = (0..1 + numbers.below(40)).map(|_| numbers.below(500) as u32).collect();
    let furthest = runs.iter().map(|run| run.offset + run.steps * a_step).max().unwrap_or(0);
    let steps = runs.iter().map(|run| run.steps).sum();
    Case { positions, runs, steps, inputs: 500 + furthest, blocks: 1 + numbers.below(PANEL) }
}

fn others() -> Vec<Kernels> {
    Kernels::all_available().into_iter().filter(|&kernels| kernels != Kernels::Scalar).collect()
}

/// Runs `kernel` for the scalar reference and for every other set, and compares the bits.
fn compare<I, W, O: Copy + Default + PartialEq + std::fmt::Debug, P: Path + ?Sized>(
    case: &Case,
    path: &P,
    narrow: usize,
    inputs: &[I],
    weights: &[W],
    kernel: impl Fn(Kernels, Tile<'_, I, W, O, P>),
) {
    let run = |kernels| {
        let mut sums = vec![O::default(); case.positions.len() * case.blocks * BLOCK];
        let (positions, blocks) = (&case.positions, case.blocks);
        kernel(kernels, Tile { inputs, positions, path, weights, blocks, narrow, sums: &mut sums });
        sums
    };
    let expected = run(Kernels::Scalar);
    for kernels in others() {
        assert!(run(kernels) == expected, "{} differs from scalar", kernels.name());
    }
}

#[test]
fn bytes_agree_at_the_extremes_and_between() {
    let mut numbers = Numbers(1);
    for round in 0..120 {
        let case = case(&mut numbers, 4);
        let largest = [1, 2, 3, 5, 7, 127][round % 6];
        let extreme = round % 3 == 0;
        let input = |n: &mut Numbers| if extreme { largest as u8 } else { n.below(largest + 1) as u8 };
        let weight = |n: &mut Numbers| if extreme { -127 } else { (n.below(255) as i32 - 127) as i8 };
        let inputs: Vec<u8> = (0..case.inputs).map(|_| input(&mut numbers)).collect();
        let weights: Vec<i8> = (0..case.steps * 4 * BLOCK * case.blocks).map(|_| weight(&mut numbers)).collect();
        compare(&case, &case.offsets(4), narrow_bytes(largest), &inputs, &weights, |kernels, tile| kernels.bytes(tile));
    }
}

#[test]
fn words_agree() {
    let mut numbers = Numbers(2);
    for _ in 0..80 {
        let case = case(&mut numbers, 2);
        let inputs: Vec<i16> = (0..case.inputs).map(|_| numbers.below(256) as i16).collect();
        let most = (i32::MAX as usize / (255 * 2 * case.steps.max(1))).min(32767);
        let weight = |n: &mut Numbers| (n.below(2 * most + 1) as i64 - most as i64) as i16;
        let weights: Vec<i16> = (0..case.steps * 2 * BLOCK * case.blocks).map(|_| weight(&mut numbers)).collect();
        compare(&case, &case.offsets(2), 0, &inputs, &weights, |kernels, tile| kernels.words(tile));
    }
}

#[test]
fn bits_agree_and_equal_products() {
    let mut numbers = Numbers(3);
    let mut whole = 0;
    for round in 0..80 {
        let case = case(&mut numbers, 1);
        let width = case.blocks * BLOCK;
        let inputs: Vec<u8> =
            (0..case.inputs).map(|_| if round % 4 == 0 { 15 } else { numbers.below(16) as u8 }).collect();
        let weight = |n: &mut Numbers| if round % 4 == 0 { 127 } else { n.below(255) as i16 - 127 };
        let mut tables = vec![0i16; case.steps * PATTERNS * width];
        let mut products = vec![0i32; case.positions.len() * width];
        let mut step = 0;
        for run in &case.runs {
            for i in 0..run.steps {
                for channel in 0..width {
                    let weights: [i16; 4] = std::array::from_fn(|_| weight(&mut numbers));
                    let sum = |bits: usize| (0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| weights[bit]).sum();
                    for pattern in 0..PATTERNS {
                        tables[(step * PATTERNS + pattern) * width + channel] = sum(pattern);
                    }
                    for (p, &at) in case.positions.iter().enumerate() {
                        products[p * width + channel] += sum(inputs[at as usize + run.offset + i] as usize) as i32;
                    }
                }
                step += 1;
            }
        }
        let mut sums = vec![0; products.len()];
        let (positions, path, blocks) = (&case.positions, &case.runs[..], case.blocks);
        scalar::bits(Tile { inputs: &inputs, positions, path, weights: &tables, blocks, narrow: 1, sums: &mut sums });
        assert_eq!(sums, products);
        compare(&case, &case.runs[..], NARROW_BITS, &inputs, &tables, |kernels, tile| kernels.bits(tile));
        if products.iter().all(|&sum| i16::try_from(sum).is_ok()) {
            whole += 1;
            compare(&case, &case.runs[..], usize::MAX, &inputs, &tables, |kernels, tile| kernels.bits(tile));
        }
    }
    assert!(whole > 10, "too few cases whose sums stay within 16 bits");
}

#[test]
fn reals_agree_to_the_bit() {
    let mut numbers = Numbers(4);
    for _ in 0..60 {
        let case = case(&mut numbers, 1);
        let real = |n: &mut Numbers| n.below(1 << 20) as f32 / 1e5 - 5.0;
        let inputs: Vec<f32> = (0..case.inputs).map(|_| real(&mut numbers)).collect();
        let weights: Vec<f32> = (0..case.steps * BLOCK * case.blocks).map(|_| real(&mut numbers)).collect();
        compare(&case, &case.runs[..], 0, &inputs, &weights, |kernels, tile| kernels.reals(tile));
    }
}

#[test]
fn counts_agree() {
    let mut numbers = Numbers(5);
    for round in 0..100 {
        let width = BLOCK * (1 + round % PANEL);
        let steps = [1, 2, 3, 5, 127][round % 5];
        let bits = steps == 1 && round % 2 == 0;
        let positions = 1 + numbers.below(9);
        let mut number = |limit: usize| numbers.below(limit) as i32 - limit as i32 / 2;
        let sums: Vec<i32> = (0..width * positions).map(|_| number(100)).collect();
        let extremes = [i32::MIN, i32::MAX];
        let thresholds: Vec<i32> =
            (0..width * steps + 40).map(|i| if i % 11 < 2 { extremes[i % 11] } else { number(100) }).collect();
        let rows: Vec<u32> = (0..positions).map(|_| numbers.below(41) as u32).collect();
        let places: Vec<u32> = (0..positions).map(|i| (i * (width + 3)) as u32).collect();
        let run = |kernels: Kernels| {
            let mut levels = vec![77; positions * (width + 3)];
            let (to, len) = (levels.as_mut_ptr(), levels.len());
            let (sums, thresholds, rows, places) = (&sums[..], &thresholds[..], &rows[..], &places[..]);
            let counts = Counts { sums, width, thresholds, steps, rows, places, bits, to, len };
            // SAFETY: `levels` is this closure's own.
            unsafe { kernels.count(&counts) };
            levels
        };
        for kernels in others() {
            assert_eq!(run(kernels), run(Kernels::Scalar), "{}", kernels.name());
        }
    }
}

#[test]
fn names_are_understood() {
    for kernels in Kernels::all_available() {
        assert_eq!(Kernels::named(kernels.name()), Ok(kernels));
    }
    assert!(Kernels::named("abacus").is_err());
}
