//! How an epilogue's work is shared by threads: how many channels each has, which kernels suit its size, whether blocks wait for
//! each other.

use super::column_reduction::ColumnReduction;
use super::epilogue_source::Sharing;
use super::map::MapLaunch;
use super::{CompileOptions, vector_width, wide_vectors, windows};
use crate::environment::tries;
use crate::kernel::LaunchConfig;
use crate::plan::{Affine, Epilogue, PlannedTensor};

/// Bytes of a map from which on a few of them do not fit the cache.
const LARGE: usize = 12 << 20;

/// How an epilogue's work is shared by threads.
pub(super) struct Threads {
    pub(super) columns: ColumnReduction,
    pub(super) map: MapLaunch,
    /// Where the launch is cooperative, how.
    pub(super) cooperative: Option<LaunchConfig>,
    pub(super) sharing: Sharing,
}

/// How blocks that wait for each other share an epilogue's work, where they can: with how many channels a thread, and how many
/// rows it keeps.
fn cooperative(
    f: &Epilogue,
    (channels, start, rows): (usize, usize, usize),
    options: &CompileOptions,
) -> Option<(ColumnReduction, LaunchConfig, usize, usize)> {
    let one_norm = matches!(&f.affine, Affine::Norm(norm) if !norm.is_fixed());
    let apart = tries("apart");
    let plain = match &f.residual {
        None => f.branch.is_none() || !apart,
        Some((_, norm)) => norm.is_none() && !apart,
    };
    if !one_norm || !plain {
        return None;
    }
    let with = |columns: ColumnReduction, width: usize, most: usize| {
        let (config, kept) = columns.cooperative(rows, options.cooperative_blocks, most)?;
        Some((columns, config, width, kept))
    };
    // Many threads with little each end soonest.
    let narrow = vector_width(&[channels, start]);
    let few = with(ColumnReduction::new(channels, narrow, rows), narrow, ColumnReduction::MAX_PAIRED_ROWS);
    let wide = f.pool.is_none() && !apart && wide_vectors(channels, start, rows, options.precision) == 8;
    few.or_else(|| {
        let columns = wide.then(|| ColumnReduction::waiting(channels, 8, rows))?;
        with(columns, 8, ColumnReduction::MAX_ROWS_PER_THREAD)
    })
}

impl Threads {
    pub(super) fn new(f: &Epilogue, tensors: &[PlannedTensor], options: &CompileOptions) -> Self {
        let shape = tensors[f.y].shape;
        let start = if let Affine::Bias(bias) = &f.affine { bias.start } else { 0 };
        let rows = options.rows_for * shape.height * shape.width;
        let cooperative = cooperative(f, (shape.channels, start, rows), options);
        let by_windows = cooperative.is_none() && f.pool.as_ref().is_some_and(windows::suit);
        // Windows that do not overlap want few registers.
        let many_windows = f.pool.is_some_and(|pool| !by_windows || pool.kernel > pool.stride);
        let vector_width = match &cooperative {
            Some((_, _, width, _)) => *width,
            // A pool's windows want many registers.
            None if many_windows => vector_width(&[shape.channels, start]),
            None => wide_vectors(shape.channels, start, rows, options.precision),
        };
        let columns = match &cooperative {
            Some((columns, ..)) => *columns,
            None => ColumnReduction::new(shape.channels, vector_width, rows),
        };
        let two = matches!(f.residual, Some((_, Some(_))));
        let dense = f.pool.is_none() && !two && vector_width == 8;
        let many = f.pool.is_some() || two || dense;
        let map = MapLaunch::new(shape.channels / vector_width, rows, if many { 2 } else { 4 });
        let kept = cooperative.as_ref().map(|(_, _, _, kept)| *kept);
        let sharing = Sharing {
            vector_width,
            threads_x: columns.threads_x(),
            map_x: map.threads_x(),
            rows_at_once: map.rows_at_once(),
            rows_per_thread: kept,
            cooperative_back: kept.is_some_and(|kept| kept <= ColumnReduction::MAX_PAIRED_ROWS),
            keeps_dz: keeps_dz(f, tensors),
            by_windows,
            dense,
            large: rows * shape.channels * options.precision.activation_bytes() > LARGE && !tries("keep"),
        };
        Threads { columns, map, cooperative: cooperative.map(|(_, config, ..)| config), sharing }
    }
}

/// Whether the first pass back of a normed epilogue writes the slopes by the pre-activation for the second: where those by its
/// second summand are the same numbers, and, in the place of those by y, where there is a pool.
fn keeps_dz(f: &Epilogue, tensors: &[PlannedTensor]) -> bool {
    let needs = |tensor: usize| tensors[tensor].needs_slopes;
    match (&f.affine, &f.residual) {
        (Affine::Norm(_), Some((other, None))) => needs(f.y) && needs(*other) && !f.adds_residual,
        (Affine::Norm(_), None) => f.pool.is_some() && needs(f.y) && !f.adds,
        _ => false,
    }
}
