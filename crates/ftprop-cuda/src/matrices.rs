//! Optimizers of whole matrices: all matrices of a network go together through one kernel after another.

use crate::CudaError;
use crate::abi::{DevicePtr, Pod};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::environment::tries;
use crate::kernel::{Kernel, LaunchConfig};
use crate::memory::DeviceBuffer;
use crate::parameters::ParameterBuffers;
use crate::precision::Precision;
use crate::scalars::ScalarLayout;
use crate::step::StepBuffers;
use crate::stream::CudaStream;
use ftprop_nn::optimizer::{ParameterGroups, Span};
use std::fmt::Write;

const FILE: KernelFile = KernelFile { name: "matrices.cu", text: include_str!("../kernels/matrices.cu") };

kernels! {
    /// Directions, moments, and the norms of directions and weights.
    DirectionArgs = "matrix_direction" in FILE {
        matrices: DevicePtr,
        values: DevicePtr,
        grads: DevicePtr,
        moment: DevicePtr,
        directions: DevicePtr,
        squares: DevicePtr,
        clip_scale: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
    }

    /// Directions of norm 1, where the iteration begins.
    ScaleArgs = "matrix_scale" in FILE {
        matrices: DevicePtr,
        directions: DevicePtr,
        squares: DevicePtr,
        x: DevicePtr,
    }

    /// A = XXᵀ.
    GramArgs = "matrix_gram" in FILE {
        matrices: DevicePtr,
        x: DevicePtr,
        gram: DevicePtr,
        count: u32,
        iteration: u32,
    }

    /// B = bA + cA².
    PolynomialArgs = "matrix_polynomial" in FILE {
        matrices: DevicePtr,
        gram: DevicePtr,
        polynomial: DevicePtr,
        count: u32,
        iteration: u32,
    }

    /// X ← aX + BX.
    NextArgs = "matrix_next" in FILE {
        matrices: DevicePtr,
        polynomial: DevicePtr,
        x: DevicePtr,
        next: DevicePtr,
        count: u32,
        iteration: u32,
    }

    /// The step along the orthogonal direction.
    ApplyArgs = "matrix_apply" in FILE {
        matrices: DevicePtr,
        values: DevicePtr,
        even: DevicePtr,
        odd: DevicePtr,
        squares: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
    }
}

/// Blocks that go over one matrix's weights.
const NORM_PARTS: usize = 64;
/// Rows and columns of a product that one block computes.
const TILE: usize = 64;

/// A matrix as the kernels see it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct DeviceMatrix {
    first: u32,
    rows: u32,
    columns: u32,
    side: u32,
    length: u32,
    side_stride: u32,
    length_stride: u32,
    direction: u32,
    x: u32,
    square: u32,
    scalars: u32,
    group: u32,
    iterations: u32,
    first_square_tile: u32,
    first_x_tile: u32,
    a: f32,
    b: f32,
    c: f32,
    eps: f32,
    weight_norm: f32,
}

// SAFETY: numbers without padding.
unsafe impl Pod for DeviceMatrix {}

/// Where every matrix lies in what the kernels share, and how much of that there is.
#[derive(Default)]
struct MatrixTable {
    matrices: Vec<DeviceMatrix>,
    directions: usize,
    x: usize,
    squares: usize,
    square_tiles: usize,
    x_tiles: usize,
    iterations: u32,
}

impl MatrixTable {
    fn new(groups: &ParameterGroups, scalars: &ScalarLayout) -> Self {
        let mut table = MatrixTable::default();
        for span in groups.spans() {
            table.push(groups, span, scalars);
        }
        table
    }

    /// Adds a span, if it is a matrix that is learned as one.
    fn push(&mut self, groups: &ParameterGroups, span: &Span, scalars: &ScalarLayout) {
        let Some(method) = groups.groups()[span.group].matrix_method() else { return };
        let [rows, columns] = span.matrix;
        let (side, length) = (rows.min(columns), rows.max(columns));
        let (side_stride, length_stride) = (side.next_multiple_of(8), length.next_multiple_of(8));
        let how = method.orthogonal();
        let [a, b, c] = how.coefficients;
        self.matrices.push(DeviceMatrix {
            first: span.range.start as u32,
            rows: rows as u32,
            columns: columns as u32,
            side: side as u32,
            length: length as u32,
            side_stride: side_stride as u32,
            length_stride: length_stride as u32,
            direction: self.directions as u32,
            x: self.x as u32,
            square: self.squares as u32,
            scalars: scalars.matrix_at(span) as u32,
            group: span.group as u32,
            iterations: how.steps,
            first_square_tile: self.square_tiles as u32,
            first_x_tile: self.x_tiles as u32,
            a,
            b,
            c,
            eps: how.eps,
            weight_norm: method.weight_norm(span.matrix).unwrap_or(0.0),
        });
        self.directions += rows * columns;
        self.x += side * length_stride;
        self.squares += side * side_stride;
        let tiles = |columns: usize| side.div_ceil(TILE) * columns.div_ceil(TILE);
        self.square_tiles += tiles(side_stride);
        self.x_tiles += tiles(length_stride);
        self.iterations = self.iterations.max(how.steps);
    }
}

/// The kernels for a network's matrices, with what its groups make of one weight; none where there are no matrices.
pub(crate) fn source(groups: &ParameterGroups, scalars: &ScalarLayout, precision: Precision) -> Option<Source> {
    let (mut text, mut directions, mut steps) = (String::new(), String::new(), String::new());
    for (i, group) in groups.groups().iter().enumerate() {
        let Some(method) = group.matrix_method() else { continue };
        text += &method.device_direction(&format!("direction{i}"));
        text += &method.device_update(&format!("step{i}"));
        let _ = writeln!(directions, "    case {i}: direction{i}(d, m, g, at[0], at[1], at[2], at[3]); break;");
        let _ = writeln!(steps, "    case {i}: step{i}(w, d, at[0], at[1], at[2], at[3]); break;");
    }
    if text.is_empty() {
        return None;
    }
    let function = |head: &str, cases: &str| {
        format!("__device__ __forceinline__ void {head} {{\n    switch (group) {{\n{cases}    }}\n}}\n")
    };
    text += &function("direction(u32 group, float& d, float& m, float g, const float* at)", &directions);
    text += &function("step_along(u32 group, float& w, float d, const float* at)", &steps);
    let source = Source::new(FILE, precision)
        .int("SCALARS", scalars.width())
        .int("NORM_PARTS", NORM_PARTS)
        .int("PRODUCT_TILE", TILE)
        .int("SYMMETRIC", usize::from(tries("symmetric")))
        .int("DEVICE_MATRIX_BYTES", size_of::<DeviceMatrix>());
    Some(source.functions(&text))
}

/// The kernels and what they share.
pub(crate) struct MatrixPass {
    direction: Kernel<DirectionArgs>,
    scale: Kernel<ScaleArgs>,
    gram: Kernel<GramArgs>,
    polynomial: Kernel<PolynomialArgs>,
    next: Kernel<NextArgs>,
    apply: Kernel<ApplyArgs>,
    table: MatrixTable,
    matrices: DeviceBuffer,
    directions: Region,
    norms: Region,
    /// X, before and after an iteration by turns.
    x: [Region; 2],
    grams: Region,
    polynomials: Region,
}

impl MatrixPass {
    /// None where a network has no matrices that are learned as such.
    pub(crate) fn new(
        device: &Device,
        groups: &ParameterGroups,
        scalars: &ScalarLayout,
        precision: Precision,
        layout: &mut ArenaLayout,
    ) -> Result<Option<Self>, CudaError> {
        let Some(source) = source(groups, scalars, precision) else { return Ok(None) };
        let table = MatrixTable::new(groups, scalars);
        let element = if precision == Precision::F32 { 4 } else { 2 };
        let module = device.module(source)?;
        Ok(Some(MatrixPass {
            direction: Kernel::find(&module)?,
            scale: Kernel::find(&module)?,
            gram: Kernel::find(&module)?,
            polynomial: Kernel::find(&module)?,
            next: Kernel::find(&module)?,
            apply: Kernel::find(&module)?,
            matrices: DeviceBuffer::of(device, &table.matrices, "the table of matrices")?,
            directions: layout.floats(table.directions),
            norms: layout.take(16 * NORM_PARTS * table.matrices.len()),
            x: [layout.take(element * table.x), layout.take(element * table.x)],
            grams: layout.take(element * table.squares),
            polynomials: layout.take(element * table.squares),
            table,
        }))
    }

    /// One step of every matrix along the gradients, which are multiplied by what lies at `clip_scale`, if it is not null.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        arena: &Arena,
        parameters: &ParameterBuffers,
        step: &StepBuffers,
        clip_scale: DevicePtr,
    ) -> Result<(), CudaError> {
        let matrices = self.matrices.start();
        let [directions, squares, gram, polynomial] =
            [self.directions, self.norms, self.grams, self.polynomials].map(|region| arena.at(region));
        let [even, odd] = self.x.map(|region| arena.at(region));
        let (values, step, scalars) = (parameters.value(0), step.step(arena), step.scalars(arena));
        let count = self.table.matrices.len() as u32;
        let over_weights = LaunchConfig { grid: (NORM_PARTS as u32, count, 1), threads: 256, shared: 0 };
        let over_tiles = |tiles: usize| LaunchConfig { grid: (tiles as u32, 1, 1), threads: 128, shared: 0 };
        let (squares_config, x_config) = (over_tiles(self.table.square_tiles), over_tiles(self.table.x_tiles));
        let (grads, moment) = (parameters.grad(0), parameters.moment(0));
        let direction =
            DirectionArgs { matrices, values, grads, moment, directions, squares, clip_scale, step, scalars };
        // SAFETY: the table says where in the flat buffers and in the regions each matrix lies, and they are that large;
        // there is a block for every tile that it counts.
        unsafe {
            self.direction.launch(stream, over_weights, &direction)?;
            self.scale.launch(stream, over_weights, &ScaleArgs { matrices, directions, squares, x: even })?;
            for iteration in 0..self.table.iterations {
                let (x, next) = if iteration % 2 == 0 { (even, odd) } else { (odd, even) };
                self.gram.launch(stream, squares_config, &GramArgs { matrices, x, gram, count, iteration })?;
                let args = PolynomialArgs { matrices, gram, polynomial, count, iteration };
                self.polynomial.launch(stream, squares_config, &args)?;
                self.next.launch(stream, x_config, &NextArgs { matrices, polynomial, x, next, count, iteration })?;
            }
            self.apply.launch(stream, over_weights, &ApplyArgs { matrices, values, even, odd, squares, step, scalars })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::optimizer::{GroupSpec, OptimizerSpec, ParameterClass, Setting};
    use ftprop_nn::{Activation, Defaults, Graph, LayerLoss, Learning, Shape, presets};
    use std::sync::Arc;

    #[test]
    fn matrices_have_room_of_their_own_and_a_tile_for_every_part_of_them() {
        let input = Shape { height: 32, width: 32, channels: 3 };
        let layers = presets::layers("convnet4", input, &[]).unwrap();
        let graph =
            Graph::resolve(&layers, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), input, 10).unwrap();
        let rest = |kind| GroupSpec {
            kind: Some(kind),
            pattern: None,
            lr_factor: 1.0,
            weight_decay: None,
            momentum: None,
            optimizer: OptimizerSpec::adam(1e-3).ok(),
        };
        let muon = OptimizerSpec::new("muon", &[("lr", Setting::Number(0.1))]).unwrap();
        let groups = Arc::new(ParameterGroups::resolve(&muon, &[rest(ParameterClass::Biases)], &graph).unwrap());
        let learning = Learning { groups, ..Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap() };
        let scalars = ScalarLayout::new(&graph, &learning);
        let table = MatrixTable::new(&learning.groups, &scalars);
        let shapes: Vec<_> = table.matrices.iter().map(|m| (m.rows, m.columns, m.side, m.length)).collect();
        assert_eq!(shapes[0], (32, 75, 32, 75));
        assert_eq!(table.matrices[0].length_stride, 80);
        assert!(table.matrices.iter().any(|m| m.rows < m.columns));
        for pair in table.matrices.windows(2) {
            assert_eq!(pair[1].x - pair[0].x, pair[0].side * pair[0].length_stride);
            let tiles = pair[0].side.div_ceil(64) * pair[0].length_stride.div_ceil(64);
            assert_eq!(pair[1].first_x_tile - pair[0].first_x_tile, tiles);
            assert_eq!(pair[1].direction - pair[0].direction, pair[0].rows * pair[0].columns);
        }
        assert!(table.matrices.iter().all(|m| m.scalars + 4 <= scalars.width() as u32));
    }
}
