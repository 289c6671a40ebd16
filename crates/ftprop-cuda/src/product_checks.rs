//! Does it matter what computes a product? Each algorithm that timing may choose, beside the general kernel on the same numbers.

use crate::abi::DevicePtr;
use crate::arena::ArenaLayout;
use crate::compiled_gemm::CompiledGemm;
use crate::cudnn_engines::FEW_ENGINES;
use crate::environment::tries;
use crate::gemm::{Algorithm, Gemm, Mode, Operands};
use crate::libraries::Libraries;
use crate::patch::Patch;
use crate::shifted::Shifted;
use crate::stream::CudaStream;
use crate::{CudaError, Device, Precision};
use ftprop_nn::engine::suite::{Check, distance};
use ftprop_tensor::geometry::ConvGeometry;

const MODES: [Mode; 3] = [Mode::Forward, Mode::Input, Mode::Weights];

/// A convolution: height, width and channels of what it reads, channels of what it writes, height, width, stride and
/// padding of its windows.
type ConvCase = ((usize, usize, usize), usize, (usize, usize, usize, usize));

/// Every tile, with the depth whole and split, for operands that are read in pieces of every width: beside sums in f64.
pub(crate) fn tilings(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    let limits = device.limits()?;
    let shapes: [(ConvCase, usize); 3] =
        [(((9, 7, 32), 48, (3, 3, 1, 1)), 1), (((7, 9, 3), 20, (3, 2, 2, 1)), 1), (((8, 8, 20), 28, (3, 3, 2, 1)), 2)];
    let n = 5;
    let mut gemms = Vec::new();
    for (i, (shape, groups)) in shapes.into_iter().enumerate() {
        for mode in MODES {
            let mut gemm = gemm(mode, shape, precision, 8 * (i % 2));
            gemm.geometry.groups = groups;
            gemms.push(gemm);
        }
    }
    // All at once, so that the compiler has work for every core.
    let sources: Vec<_> = gemms
        .iter()
        .flat_map(|gemm| gemm.all_tilings(n, limits).into_iter().map(|tiling| gemm.source(tiling.tile)))
        .collect();
    device.modules(&sources)?;
    let (mut error, mut count) = (0.0f64, 0);
    for gemm in &gemms {
        let all: Vec<Algorithm> = gemm.all_tilings(n, limits).into_iter().map(Algorithm::Tiled).collect();
        count += all.len();
        let expected = reference(Numbers::Few, gemm, n);
        for got in results(device, Numbers::Few, gemm, n, &all, &Libraries::default())? {
            error = error.max(distance(&got, &expected));
        }
    }
    // What is written in bf16 is rounded once.
    let allowed = if precision == Precision::Bf16 { 4e-3 } else { 1e-5 };
    Ok(Check { name: format!("{precision}: {count} tilings beside f64"), error, allowed })
}

/// Numbers of an operand.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// Of a few bits, which no format rounds.
    Few,
    /// Of all bits that a tf32 has.
    All,
}

/// A number of an operand; the channels that fill up a pixel are zero.
fn number(numbers: Numbers, gemm: &Gemm, which: usize, k: usize) -> f32 {
    let fills = which == 0 && k % gemm.stored >= gemm.geometry.in_channels;
    let further = if numbers == Numbers::All { (k * 5 + which) % 13 } else { 0 };
    if fills { 0.0 } else { ((k * 37 + which) % 101) as f32 / 64.0 - 0.75 + further as f32 / 1024.0 }
}

/// A product, one multiplication after another.
fn reference(numbers: Numbers, gemm: &Gemm, n: usize) -> Vec<f32> {
    let g = &gemm.geometry;
    let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
    let mut sums = match gemm.mode {
        Mode::Forward => vec![0.0f64; n * g.out_len()],
        Mode::Input => vec![0.0; n * g.height * g.width * g.in_channels],
        Mode::Weights => vec![0.0; g.weight_len()],
    };
    let value = |which, k| f64::from(number(numbers, gemm, which, k));
    for out_pixel in 0..n * g.out_height() * g.out_width() {
        let (image, place) =
            (out_pixel / (g.out_height() * g.out_width()), out_pixel % (g.out_height() * g.out_width()));
        for tap in 0..g.kernel_h * g.kernel_w {
            let row = place / g.out_width() * g.stride + tap / g.kernel_w;
            let column = place % g.out_width() * g.stride + tap % g.kernel_w;
            let (Some(row), Some(column)) = (row.checked_sub(g.pad), column.checked_sub(g.pad)) else { continue };
            if row >= g.height || column >= g.width {
                continue;
            }
            let pixel = (image * g.height + row) * g.width + column;
            for out in 0..g.out_channels {
                for inside in 0..ci {
                    let channel = out / co * ci + inside;
                    let x = pixel * gemm.stored + channel;
                    let (y, w) =
                        (out_pixel * g.out_channels + out, (out * g.kernel_h * g.kernel_w + tap) * ci + inside);
                    match gemm.mode {
                        Mode::Forward => sums[y] += value(0, x) * value(2, w),
                        Mode::Input => sums[pixel * g.in_channels + channel] += value(1, y) * value(2, w),
                        Mode::Weights => sums[w] += value(1, y) * value(0, x),
                    }
                }
            }
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

fn gemm(mode: Mode, shape: ConvCase, precision: Precision, weight_offset: usize) -> Gemm {
    let ((height, width, in_channels), out_channels, (kernel_h, kernel_w, stride, pad)) = shape;
    let groups = 1;
    let geometry = ConvGeometry { height, width, in_channels, out_channels, kernel_h, kernel_w, stride, pad, groups };
    let stored = if in_channels <= 4 { 4 } else { in_channels };
    Gemm { mode, geometry, precision, weight_offset, stored, f32_output: false, bias_offset: None, adds: false }
}

/// Products that read windows from a patch.
pub(crate) fn patches(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    let limits = device.limits()?;
    let shapes: [ConvCase; 10] = [
        ((13, 11, 3), 32, (5, 5, 1, 3)),
        ((9, 12, 4), 16, (3, 2, 2, 1)),
        ((45, 61, 3), 64, (7, 7, 2, 3)),
        ((28, 28, 1), 48, (5, 4, 1, 0)),
        ((32, 32, 3), 48, (5, 5, 1, 2)),
        ((3, 3, 3), 16, (3, 3, 1, 1)),
        ((17, 17, 32), 64, (5, 5, 1, 2)),
        ((9, 7, 48), 32, (3, 2, 1, 1)),
        ((5, 6, 64), 128, (3, 3, 1, 0)),
        ((21, 10, 16), 32, (2, 5, 1, 1)),
    ];
    let mut errors = Vec::new();
    for (i, shape) in shapes.into_iter().enumerate() {
        for mode in MODES {
            // Weights begin anywhere, or where several can be read at once.
            let gemm = Gemm {
                adds: mode == Mode::Input && !i.is_multiple_of(2),
                ..gemm(mode, shape, precision, if i.is_multiple_of(2) { 4 * i } else { 5 * i })
            };
            // A small GPU may have no room for some.
            if !Patch::suits(&gemm, limits) {
                continue;
            }
            // More pixels than the blocks take at a time, and not a multiple of it.
            let n = 3 + 70 * i;
            errors.push(apart(device, &gemm, n, Algorithm::Patch, &Libraries::default())?);
        }
    }
    let error = errors.into_iter().reduce(f64::max).unwrap_or(f64::INFINITY);
    // Sums that differ in their last bits may be rounded to different neighbours.
    let allowed = if precision == Precision::Bf16 { 1e-3 } else { 1e-5 };
    Ok(Check { name: format!("{precision}: windows from patches"), error, allowed })
}

/// Products whose windows move by one pixel, cut in every way: beside sums in f64.
pub(crate) fn shifted(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    let limits = device.limits()?;
    // Channels of one part and of several, that fill a block's columns or not; windows within and beyond the map, wide and high.
    // Of the last two there are several tiles for each group of warps, with two patches and in tf32 with one, and many steps for
    // each block of a gradient; the one before has windows that reach far.
    let shapes: [(ConvCase, usize); 10] = [
        (((7, 6, 32), 64, (3, 3, 1, 1)), 11),
        (((9, 8, 48), 80, (3, 3, 1, 1)), 11),
        (((8, 8, 64), 128, (3, 3, 1, 0)), 11),
        (((11, 9, 96), 64, (5, 5, 1, 2)), 11),
        (((5, 7, 144), 48, (3, 3, 1, 2)), 11),
        (((6, 5, 16), 192, (2, 4, 1, 1)), 11),
        (((4, 4, 128), 32, (4, 3, 1, 1)), 11),
        (((9, 40, 16), 32, (5, 5, 1, 2)), 16),
        (((18, 19, 16), 32, (3, 3, 1, 1)), 100),
        (((40, 40, 64), 32, (3, 3, 1, 1)), 12),
    ];
    let mut gemms = Vec::new();
    for (i, (shape, n)) in shapes.into_iter().enumerate() {
        for mode in MODES {
            let adds = mode == Mode::Input && i.is_multiple_of(2);
            gemms.push((Gemm { adds, ..gemm(mode, shape, precision, 8 * (i % 2)) }, n));
        }
    }
    let cuts = |gemm: &Gemm| Shifted::cuts(gemm, limits).into_iter().map(Algorithm::Shifted).collect::<Vec<_>>();
    let sources =
        |gemm: &Gemm| cuts(gemm).into_iter().filter_map(|cut| CompiledGemm::source(gemm, cut)).collect::<Vec<_>>();
    device.modules(&gemms.iter().flat_map(|(gemm, _)| sources(gemm)).collect::<Vec<_>>())?;
    let (mut error, mut count) = (0.0f64, 0);
    let numbers: &[Numbers] =
        if precision == Precision::Tf32 { &[Numbers::Few, Numbers::All] } else { &[Numbers::Few] };
    for ((gemm, n), &numbers) in gemms.iter().flat_map(|gemm| numbers.iter().map(move |numbers| (gemm, numbers))) {
        let n = *n;
        let cuts = cuts(gemm);
        let mut expected = reference(numbers, gemm, n);
        if gemm.adds {
            expected.iter_mut().enumerate().for_each(|(k, sum)| *sum += number(numbers, gemm, 0, k));
        }
        count += cuts.len();
        for got in results(device, numbers, gemm, n, &cuts, &Libraries::default())? {
            error = error.max(distance(&got, &expected));
        }
    }
    let allowed = if precision == Precision::Bf16 { 4e-3 } else { 3e-5 };
    let name = match count {
        0 => format!("{precision}: no matrix units that read shared memory themselves"),
        _ => format!("{precision}: {count} products by shifts beside f64"),
    };
    Ok(Check { name, error, allowed })
}

/// All that cuDNN can do, where it is installed.
pub(crate) fn engines(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    // Some transform windows before they multiply, which rounds.
    let allowed = if precision == Precision::Bf16 { 1e-2 } else { 1e-3 };
    let libraries = Libraries::open(device, true, false, 1);
    let Ok(cudnn) = libraries.cudnn() else {
        return Ok(Check { name: format!("{precision}: no cuDNN to compare"), error: 0.0, allowed });
    };
    let (mut error, mut worst, mut count, n) = (0.0f64, String::new(), 0, 24);
    // The last two are read as pixels that are joined, where that is asked for.
    let shapes: [ConvCase; 5] = [
        ((27, 29, 32), 64, (3, 3, 1, 1)),
        ((31, 30, 16), 48, (5, 5, 1, 2)),
        ((28, 28, 64), 64, (3, 3, 2, 1)),
        ((60, 62, 3), 64, (7, 7, 2, 3)),
        ((61, 60, 3), 32, (12, 12, 4, 0)),
    ];
    for shape in shapes {
        for (mode, adds) in MODES.map(|mode| (mode, false)).into_iter().chain([(Mode::Input, true)]) {
            let gemm = Gemm { adds, ..gemm(mode, shape, precision, 0) };
            let pictures = gemm.stored > gemm.geometry.in_channels;
            let asked = match pictures && !(tries("joined") && gemm.joined().is_some()) {
                true => 0,
                false if adds || !tries("thorough") => cudnn.algorithms(&gemm, n).min(1 + FEW_ENGINES),
                false => cudnn.algorithms(&gemm, n),
            };
            for number in 0..asked {
                let algorithm = Algorithm::Cudnn(number);
                // Not all that it proposes can it do.
                if CompiledGemm::workspace(&gemm, algorithm, &libraries, n).is_err() {
                    continue;
                }
                let far = apart(device, &gemm, n, algorithm, &libraries)?;
                if far > error {
                    (error, worst) = (far, format!(", worst {number} of {}", gemm.key(n)));
                }
                count += 1;
            }
        }
    }
    let error = if count == 0 { f64::INFINITY } else { error };
    let worst = if error > allowed { worst } else { String::new() };
    Ok(Check { name: format!("{precision}: {count} algorithms of cuDNN{worst}"), error, allowed })
}

/// How far a product is from the general kernel's.
fn apart(
    device: &Device,
    gemm: &Gemm,
    n: usize,
    algorithm: Algorithm,
    libraries: &Libraries,
) -> Result<f64, CudaError> {
    let both = [Algorithm::Tiled(gemm.guess(n, device.limits()?)), algorithm];
    let results = results(device, Numbers::Few, gemm, n, &both, libraries)?;
    Ok(distance(&results[1], &results[0]))
}

/// What each algorithm makes of the same numbers.
fn results(
    device: &Device,
    numbers: Numbers,
    gemm: &Gemm,
    n: usize,
    algorithms: &[Algorithm],
    libraries: &Libraries,
) -> Result<Vec<Vec<f32>>, CudaError> {
    let stream = CudaStream::new(device)?;
    let g = &gemm.geometry;
    let mut layout = ArenaLayout::default();
    let lengths = [n * g.height * g.width * gemm.stored, n * g.out_len(), g.weight_len()];
    let operands = lengths.map(|len| layout.floats(len));
    let mut bytes = 0;
    for &algorithm in algorithms {
        bytes = bytes.max(CompiledGemm::workspace(gemm, algorithm, libraries, n)?);
    }
    let workspace = layout.take(bytes);
    let mut compiled = Vec::new();
    for &algorithm in algorithms {
        compiled.push(CompiledGemm::new(device, *gemm, algorithm, libraries, workspace, n, &mut layout)?);
    }
    let arena = layout.build(device, "a test")?;
    let narrow = gemm.precision == Precision::Bf16;
    let mut results = Vec::new();
    for one in compiled {
        for (which, (place, len)) in operands.into_iter().zip(lengths).enumerate() {
            let values: Vec<f32> = (0..len).map(|k| number(numbers, gemm, which, k)).collect();
            if narrow {
                let halves: Vec<u16> = values.iter().map(|v| (v.to_bits() >> 16) as u16).collect();
                arena.write(&stream, place, &halves)?;
            } else {
                arena.write(&stream, place, &values)?;
            }
        }
        let [x, y, w] = operands.map(|region| arena.at(region));
        let (wanted, mut addresses) = match gemm.mode {
            Mode::Forward => (1, Operands::new(x, w, y)),
            Mode::Input => (0, Operands::new(y, w, x)),
            Mode::Weights => (2, Operands::new(y, x, w)),
        };
        addresses.addend = if gemm.adds { addresses.out } else { DevicePtr::NULL };
        one.run(&stream, &arena, n, addresses)?;
        let (region, len) = (operands[wanted], lengths[wanted]);
        // Slopes by a picture have only the channels that it has.
        let len = if gemm.mode == Mode::Input { len / gemm.stored * g.in_channels } else { len };
        results.push(if narrow && gemm.mode != Mode::Weights {
            let halves = arena.read::<u16>(&stream, region, len)?;
            halves.into_iter().map(|h| f32::from_bits(u32::from(h) << 16)).collect()
        } else {
            arena.read::<f32>(&stream, region, len)?
        });
    }
    Ok(results)
}
