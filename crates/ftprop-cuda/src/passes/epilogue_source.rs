//! What an epilogue's kernels are compiled for.

use super::carry;
use crate::compile::{KernelFile, Source};
use crate::environment::tries;
use crate::plan::{ActivationOp, Affine, Epilogue};
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use ftprop_nn::Shape;
use ftprop_nn::graph::Dropout;
use ftprop_nn::trace::function;

pub(super) const FILE: KernelFile = KernelFile { name: "epilogue.cu", text: include_str!("../../kernels/epilogue.cu") };

pub(super) const COOPERATIVE_FILE: KernelFile =
    KernelFile { name: "epilogue_cooperative.cu", text: include_str!("../../kernels/epilogue_cooperative.cu") };

/// Where pools go back by their windows.
pub(super) const WINDOWS_FILE: KernelFile =
    KernelFile { name: "epilogue_windows.cu", text: include_str!("../../kernels/epilogue_windows.cu") };

/// How the kernels of an epilogue share its work.
pub(super) struct Sharing {
    /// Channels that a thread takes.
    pub(super) vector_width: usize,
    /// Threads of a block across channels, where sums are taken and where none are.
    pub(super) threads_x: usize,
    pub(super) map_x: usize,
    /// Rows that a thread reads before it uses the first.
    pub(super) rows_at_once: usize,
    /// Rows that a thread keeps where the launch is cooperative.
    pub(super) rows_per_thread: Option<usize>,
    /// Whether it is on the way back too.
    pub(super) cooperative_back: bool,
    /// Whether the first pass back writes what the second one reads, see [`keeps_dz`](super::epilogue).
    pub(super) keeps_dz: bool,
    /// Whether a pool goes back by its windows.
    pub(super) by_windows: bool,
    /// Whether the ways back keep to few registers.
    pub(super) dense: bool,
    /// Whether maps are so large that what is read for the last time should make room in the cache.
    pub(super) large: bool,
}

/// Whether the passes that follow a product begin with what it wrote last.
pub(super) fn turned() -> usize {
    usize::from(!tries("straight"))
}

/// Whether the kernel that goes back over a pool's windows also gives their places what they are given: no place is in two of
/// them, and no norm has to know the sums first.
pub(super) fn windows_and_places_together(f: &Epilogue) -> bool {
    let has_norm = matches!(f.affine, Affine::Norm(_)) || matches!(f.residual, Some((_, Some(_))));
    !has_norm && f.pool.is_some_and(|pool| pool.kernel == pool.stride && pool.pad == 0)
}

/// Bytes in which a pool keeps where in its window the largest value was.
pub(super) fn position_bytes(kernel: usize) -> usize {
    match kernel {
        0..=16 => 1,
        17..=256 => 2,
        _ => 4,
    }
}

/// The kernels of an epilogue whose input has that shape.
pub(super) fn source(
    f: &Epilogue,
    shape: Shape,
    precision: Precision,
    sharing: &Sharing,
    scalars: &ScalarLayout,
) -> Source {
    let file = match (sharing.rows_per_thread, sharing.by_windows) {
        (Some(_), _) => COOPERATIVE_FILE,
        (None, true) => WINDOWS_FILE,
        (None, false) => FILE,
    };
    source_of(Source::new(file, precision), f, shape, sharing, scalars)
}

/// The kernel that carries the loss's curvature down through it.
pub(super) fn carry_source(
    f: &Epilogue,
    shape: Shape,
    precision: Precision,
    sharing: &Sharing,
    scalars: &ScalarLayout,
) -> Source {
    source_of(Source::new(carry::FILE, precision), f, shape, sharing, scalars)
}

fn source_of(source: Source, f: &Epilogue, shape: Shape, sharing: &Sharing, scalars: &ScalarLayout) -> Source {
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
    let pool = match (f.pool, f.pool_last) {
        (None, _) => "POOL_NONE",
        (Some(_), false) => "POOL_BEFORE",
        (Some(_), true) => "POOL_AFTER",
    };
    let dropout = match f.dropout {
        None => "DROPOUT_NONE",
        Some(Dropout { by_channel: false, .. }) => "DROPOUT_VALUES",
        Some(Dropout { by_channel: true, .. }) => "DROPOUT_CHANNELS",
    };
    let source = source
        .int("ROWS_PER_THREAD", sharing.rows_per_thread.unwrap_or(0))
        .int("COOPERATIVE_BACK", usize::from(sharing.cooperative_back))
        .int("ROWS_AT_ONCE", sharing.rows_at_once)
        .int("THREADS_X", sharing.threads_x)
        .int("MAP_X", sharing.map_x)
        .int("KEEPS_DZ", usize::from(sharing.keeps_dz))
        .int("DENSE", usize::from(sharing.dense))
        .int("BRANCH", usize::from(f.branch.is_some()))
        .int("TURNED", turned())
        .int("STATISTICS", usize::from(f.takes_statistics()))
        .int("LARGE", usize::from(sharing.large))
        .int("KEEPS_LARGEST", usize::from(sharing.by_windows && f.has_slopes_by_windows()))
        .int("TOGETHER", usize::from(windows_and_places_together(f)))
        .int("C", shape.channels)
        .int("VEC", sharing.vector_width)
        .int("HEIGHT", shape.height)
        .int("WIDTH", shape.width)
        .name("POOL", pool)
        .int("POSITION_BYTES", position_bytes(kernel))
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
    formulas(source, f.any_activation(), scalars)
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
            let slope = unit.device_slope(slope).expect("a network with another rule is refused");
            (value, slope, Some(unit.layer_loss), number)
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
