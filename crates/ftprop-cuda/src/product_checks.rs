//! Does it matter who computes a product? Each way that timing may choose, beside the general kernel on the same numbers.

use crate::arena::{ArenaLayout, Region};
use crate::compile::{File, Source};
use crate::cudnn::Cudnn;
use crate::gemm::{Gemm, Mode};
use crate::passes::CompiledGemm;
use crate::patch::Patch;
use crate::selftest::{Check, distance};
use crate::stream::CudaStream;
use crate::{CudaError, Device, Precision};
use ftprop_tensor::geometry::ConvGeometry;

const MODES: [Mode; 3] = [Mode::Forward, Mode::Input, Mode::Weights];

/// A convolution: height, width and channels of what it reads, channels of what it writes, height, width, stride and
/// padding of its windows.
type ConvCase = ((usize, usize, usize), usize, (usize, usize, usize, usize));

fn gemm(mode: Mode, shape: ConvCase, precision: Precision, weight_offset: usize) -> Gemm {
    let ((height, width, in_channels), out_channels, (kernel_h, kernel_w, stride, pad)) = shape;
    let groups = 1;
    let geometry = ConvGeometry { height, width, in_channels, out_channels, kernel_h, kernel_w, stride, pad, groups };
    let stored = if in_channels <= 4 { 4 } else { in_channels };
    Gemm { mode, geometry, precision, weight_offset, stored, f32_output: false, bias_offset: None }
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
            let gemm = gemm(mode, shape, precision, if i.is_multiple_of(2) { 4 * i } else { 5 * i });
            // A small GPU may have no room for some.
            if !Patch::suits(&gemm, limits) {
                continue;
            }
            let patch = Patch::of(&gemm);
            let kernels = device.kernel(patch.source())?;
            // More pixels than the blocks take at a time, and not a multiple of it.
            let n = 3 + 70 * i;
            let bytes = 4 * patch.workspace(n);
            let adds = mode == Mode::Input && !i.is_multiple_of(2);
            let make = |workspace: Region, _: &mut ArenaLayout| CompiledGemm::patch(gemm, kernels, workspace);
            errors.push(apart(device, &gemm, n, adds, bytes, make)?);
        }
    }
    let error = errors.into_iter().reduce(f64::max).unwrap_or(f64::INFINITY);
    Ok(Check { name: format!("{precision}: windows from patches"), error, allowed: 1e-5 })
}

/// All that cuDNN can do, where it is installed.
pub(crate) fn engines(device: &Device, precision: Precision) -> Result<Check, CudaError> {
    // Some transform windows before they multiply, which rounds.
    let allowed = if precision == Precision::Bf16 { 1e-2 } else { 1e-3 };
    let Ok(cudnn) = Cudnn::new(device, 1) else {
        return Ok(Check { name: format!("{precision}: no cuDNN to compare"), error: 0.0, allowed });
    };
    let basic = device.kernel(Source::new(File::Basic, precision))?;
    let (mut error, mut count, n) = (0.0f64, 0, 24);
    for shape in [((27, 29, 32), 64, (3, 3, 1, 1)), ((31, 30, 16), 48, (5, 5, 1, 2)), ((28, 28, 64), 64, (3, 3, 2, 1))]
    {
        for mode in MODES {
            let gemm = gemm(mode, shape, precision, 0);
            for number in 0..cudnn.ways(&gemm, n) {
                // Not all that it proposes can it do.
                let Ok(bytes) = CompiledGemm::cudnn_bytes(&gemm, &cudnn, number, n) else { continue };
                let make = |workspace: Region, layout: &mut ArenaLayout| {
                    CompiledGemm::cudnn(gemm, &cudnn, number, &basic, workspace, n, layout)
                };
                let adds = mode == Mode::Input && number == 0;
                error = error.max(apart(device, &gemm, n, adds, bytes, make)?);
                count += 1;
            }
        }
    }
    let error = if count == 0 { f64::INFINITY } else { error };
    Ok(Check { name: format!("{precision}: {count} ways of cuDNN"), error, allowed })
}

/// How far a product computed in some way, which needs so many bytes of workspace, is from the general kernel's; where it
/// `adds`, to what is there.
fn apart(
    device: &Device,
    gemm: &Gemm,
    n: usize,
    adds: bool,
    bytes: usize,
    make: impl FnOnce(Region, &mut ArenaLayout) -> Result<CompiledGemm, CudaError>,
) -> Result<f64, CudaError> {
    let stream = CudaStream::new(device)?;
    let (tiling, g) = (gemm.guess(n, device.limits()?), &gemm.geometry);
    let mut layout = ArenaLayout::default();
    let lengths = [n * g.height * g.width * gemm.stored, n * g.out_len(), g.weight_len()];
    let operands = lengths.map(|len| layout.floats(len));
    let workspace = layout.take(bytes.max(4 * gemm.workspace(n, tiling)));
    let own = device.kernel(gemm.source(tiling.tile))?;
    let runs = [CompiledGemm::own(*gemm, tiling, own, workspace, n, &mut layout)?, make(workspace, &mut layout)?];
    let arena = layout.build(device, "a test")?;
    let narrow = gemm.precision == Precision::Bf16;
    let mut results = Vec::new();
    for run in runs {
        for (which, (place, len)) in operands.into_iter().zip(lengths).enumerate() {
            // Numbers of a few bits, which no format rounds; the channels that fill up a pixel are zero.
            let fills = |k: usize| which == 0 && k % gemm.stored >= g.in_channels;
            let number = |k: usize| if fills(k) { 0.0 } else { ((k * 37 + which) % 101) as f32 / 64.0 - 0.75 };
            let numbers: Vec<f32> = (0..len).map(number).collect();
            if narrow {
                let halves: Vec<u16> = numbers.iter().map(|v| (v.to_bits() >> 16) as u16).collect();
                arena.buffer.write(&stream, arena.offset(place), &halves)?;
            } else {
                arena.buffer.write(&stream, arena.offset(place), &numbers)?;
            }
        }
        let [x, y, w] = operands.map(|place| arena.at(place));
        let (wanted, addresses) = match gemm.mode {
            Mode::Forward => (1, [x, w, y]),
            Mode::Input => (0, [y, w, x]),
            Mode::Weights => (2, [y, x, w]),
        };
        run.run(&stream, &arena, n, addresses, 0, if adds { addresses[2] } else { 0 })?;
        let (offset, len) = (arena.offset(operands[wanted]), lengths[wanted]);
        results.push(if narrow && gemm.mode != Mode::Weights {
            let halves = arena.buffer.read::<u16>(&stream, offset, len)?;
            halves.into_iter().map(|h| f32::from_bits(u32::from(h) << 16)).collect()
        } else {
            arena.buffer.read::<f32>(&stream, offset, len)?
        });
    }
    Ok(distance(&results[1], &results[0]))
}
