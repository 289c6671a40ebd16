//! What an epilogue's kernels are compiled for.

use crate::compile::{KernelFile, Source};
use crate::plan::{ActivationOp, Affine, Epilogue};
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use ftprop_nn::Shape;
use ftprop_nn::graph::Dropout;
use ftprop_nn::trace::function;

pub(super) const FILE: KernelFile = KernelFile {
    name: "epilogue.cu",
    text: concat!(include_str!("../../kernels/column_reduction.cuh"), include_str!("../../kernels/epilogue.cu")),
};

pub(super) const COOPERATIVE_FILE: KernelFile = KernelFile {
    name: "epilogue_cooperative.cu",
    text: concat!(
        include_str!("../../kernels/column_reduction.cuh"),
        include_str!("../../kernels/epilogue.cu"),
        include_str!("../../kernels/epilogue_cooperative.cu")
    ),
};

/// The kernels of an epilogue whose input has that shape, with so many channels a thread, column sums of that kind, and
/// the rows that a thread keeps where the launch is cooperative.
pub(super) fn source(
    f: &Epilogue,
    shape: Shape,
    precision: Precision,
    vector_width: usize,
    threads_x: usize,
    rows_per_thread: Option<usize>,
    scalars: &ScalarLayout,
) -> Source {
    let pooled = f.pool.map_or((shape.height, shape.width), |p| (p.out_height(), p.out_width()));
    let (kernel, stride, pad) = f.pool.map_or((1, 1, 0), |p| (p.kernel, p.stride, p.pad));
    let (p, number) = f.dropout.map_or((0.0, 0), |d| (d.p, d.number));
    let affine = match f.affine {
        Affine::Identity => "AFFINE_IDENTITY",
        Affine::Norm(_) => "AFFINE_NORM",
        Affine::Bias(_) => "AFFINE_BIAS",
    };
    let residual = match f.residual {
        None => "RESIDUAL_NONE",
        Some((_, None)) => "RESIDUAL_PLAIN",
        Some((_, Some(_))) => "RESIDUAL_NORM",
    };
    let dropout = match f.dropout {
        None => "DROPOUT_NONE",
        Some(Dropout { by_channel: false, .. }) => "DROPOUT_VALUES",
        Some(Dropout { by_channel: true, .. }) => "DROPOUT_CHANNELS",
    };
    let file = if rows_per_thread.is_some() { COOPERATIVE_FILE } else { FILE };
    let source = Source::new(file, precision)
        .int("ROWS_PER_THREAD", rows_per_thread.unwrap_or(0))
        .int("THREADS_X", threads_x)
        .int("C", shape.channels)
        .int("VEC", vector_width)
        .int("HEIGHT", shape.height)
        .int("WIDTH", shape.width)
        .int("POOL", usize::from(f.pool.is_some()))
        .int("POOL_KERNEL", kernel)
        .int("POOL_STRIDE", stride)
        .int("POOL_PAD", pad)
        .int("POOL_H", pooled.0)
        .int("POOL_W", pooled.1)
        .name("AFFINE", affine)
        .name("RESIDUAL", residual)
        .int("FIXED1", usize::from(matches!(&f.affine, Affine::Norm(norm) if norm.is_fixed())))
        .int("FIXED2", usize::from(matches!(&f.residual, Some((_, Some(norm))) if norm.is_fixed())))
        .name("DROPOUT", dropout)
        .float("DROPOUT_P", p)
        .int("DROPOUT_NUMBER", number as usize)
        .int("ACCUMULATE1", usize::from(f.adds))
        .int("ACCUMULATE2", usize::from(f.adds_residual));
    formulas(source, f.activation, scalars)
}

/// What units output and what they pass down, as text, and where their layer loss's number is.
fn formulas(source: Source, op: Option<ActivationOp>, scalars: &ScalarLayout) -> Source {
    let (activation, slope) = ("activation", "slope");
    let (value, passed, loss, number) = match op {
        None => (identity(activation, &["z"]), identity(slope, &SLOPE_INPUTS), None, 0),
        Some(ActivationOp::Soft(soft)) => {
            let passed = soft.device_passed(slope).expect("a soft activation passes a gradient");
            (soft.device_value(activation), passed, None, 0)
        }
        Some(ActivationOp::Hard(unit, number)) => {
            let value = unit.activation.device_value(activation);
            (value, unit.device_slope(slope), Some(unit.layer_loss), number)
        }
    };
    source
        .int("SCALARS", scalars.width())
        .int("LOSS_SCALAR", scalars.loss_at(loss))
        .int("HARD_LAYER", number as usize)
        .functions(&value)
        .functions(&passed)
}

/// The arguments of `slope`.
const SLOPE_INPUTS: [&str; 7] = ["g", "z", "label", "step", "random", "s", "share"];

/// A function that gives its first argument back.
fn identity<const N: usize>(name: &str, inputs: &[&'static str; N]) -> String {
    function(name, inputs, |all| all[0])
}
