//! The product under every convolution and fully connected layer.
//!
//! `C[i, j] (+)= Σ_k A[i, k] · B[k, j]`, where a row of A is any place in memory and k runs over a nest of
//! three strided loops. That one form is a matrix product, a convolution that reads its windows straight
//! from the padded image (nothing is unrolled into columns), and the sum over pixels of a weight gradient.
//!
//! A register tile of C stays in vector registers while k runs; B is read in panels of a tile's width. The
//! sum over k is cut into blocks whose size depends on the shapes alone, so the bits of the result do not
//! depend on the threads.

// A register tile is indexed by constants; an iterator over it may not be unrolled.
#![allow(clippy::needless_range_loop)]

use super::simd::{Kernel, Simd, dispatch};
use super::{Cpu, Shared};
use crate::geometry::size;

/// Where the rows of a matrix lie: a grid of images, rows and pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) base: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) image_stride: usize,
    pub(crate) row_stride: usize,
    pub(crate) pixel_stride: usize,
}

impl Grid {
    /// Row i at `i * stride`.
    pub(crate) fn rows(stride: usize) -> Self {
        Grid { base: 0, height: 1, width: usize::MAX, image_stride: 0, row_stride: 0, pixel_stride: stride }
    }

    fn walk(&self, row: usize) -> Walk<'_> {
        let (line, x) = (row / self.width, row % self.width);
        let (image, y) = (line / self.height, line % self.height);
        Walk { grid: self, image, y, x }
    }

    /// The furthest image, row and pixel of the first `rows` rows, each counted from 0.
    fn furthest(&self, rows: usize) -> [usize; 3] {
        let last = rows - 1;
        let (line, x) = (last / self.width, last % self.width);
        let (image, y) = (line / self.height, line % self.height);
        [image, if image > 0 { self.height - 1 } else { y }, if line > 0 { self.width - 1 } else { x }]
    }

    /// One past the last place that the first `rows` rows start at; `usize::MAX` if that is no place.
    fn end(&self, rows: usize) -> usize {
        let [image, y, x] = self.furthest(rows);
        let ends = [image.saturating_mul(self.image_stride), y.saturating_mul(self.row_stride)];
        let ends = ends.into_iter().chain([x.saturating_mul(self.pixel_stride), 1]);
        ends.fold(self.base, usize::saturating_add)
    }

    /// Whether the first `rows` rows, each `cols` long, are known not to overlap.
    fn apart(&self, rows: usize, cols: usize) -> bool {
        let [image, y, x] = self.furthest(rows);
        let line = x.saturating_mul(self.pixel_stride).saturating_add(cols);
        let whole = y.saturating_mul(self.row_stride).saturating_add(line);
        (x == 0 || cols <= self.pixel_stride)
            && (y == 0 || line <= self.row_stride)
            && (image == 0 || whole <= self.image_stride)
    }
}

/// Steps through a grid without dividing.
struct Walk<'a> {
    grid: &'a Grid,
    image: usize,
    y: usize,
    x: usize,
}

impl Walk<'_> {
    #[inline(always)]
    fn next(&mut self) -> usize {
        let g = self.grid;
        let at = g.base + self.image * g.image_stride + self.y * g.row_stride + self.x * g.pixel_stride;
        self.x += 1;
        if self.x == g.width {
            self.x = 0;
            self.y += 1;
            if self.y == g.height {
                self.y = 0;
                self.image += 1;
            }
        }
        at
    }
}

/// The loops over k, from outer to inner, how far each moves within A, and how many rows of B it moves over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nest {
    pub(crate) counts: [usize; 3],
    pub(crate) strides: [usize; 3],
    /// Of the outer and the middle loop; the inner one takes row after row.
    pub(crate) b_rows: [usize; 2],
}

impl Nest {
    /// Loops that take every row of B in turn.
    pub(crate) fn new(counts: [usize; 3], strides: [usize; 3]) -> Self {
        Nest { counts, strides, b_rows: [counts[1] * counts[2], counts[2]] }
    }

    pub(crate) fn dense(depth: usize) -> Self {
        Nest::new([1, 1, depth], [0, 0, 1])
    }

    /// One past the last row of B that the nest reads; `usize::MAX` if that is no row.
    fn b_end(&self) -> usize {
        let outer = (0..2).map(|d| (self.counts[d] - 1).saturating_mul(self.b_rows[d]));
        outer.fold(self.counts[2], usize::saturating_add)
    }

    /// The furthest place from a row's start that the nest reads; `usize::MAX` if that is no place.
    fn reach(&self) -> usize {
        (0..3).map(|d| (self.counts[d] - 1).saturating_mul(self.strides[d])).fold(0, usize::saturating_add)
    }

    /// The counts of a block of about `depth` steps: whole inner loops before outer ones.
    #[inline(always)]
    fn block_counts(&self, depth: usize) -> [usize; 3] {
        let [n0, n1, n2] = self.counts;
        let b2 = n2.min(depth);
        let b1 = if b2 < n2 { 1 } else { n1.min((depth / n2).max(1)) };
        let b0 = if b1 < n1 || b2 < n2 { 1 } else { n0.min((depth / (n1 * n2)).max(1)) };
        [b0, b1, b2]
    }
}

/// The right factor: `depth` rows of columns.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// `depth` rows, packed by [`pack`] into panels of a tile's width.
    Panels { data: &'a [f32], depth: usize },
    /// Plain rows, `stride` apart, in a buffer that has room for whole vectors.
    Rows { data: &'a [f32], stride: usize },
}

/// What C holds before the sum.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// A bias for each column.
    Bias(&'a [f32]),
}

/// One product; see the module's head.
pub(crate) struct Product<'a> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) a: &'a [f32],
    pub(crate) a_rows: Grid,
    pub(crate) nest: Nest,
    pub(crate) b: Right<'a>,
    /// The row of B that the nest begins at.
    pub(crate) b_first: usize,
    pub(crate) c_rows: Grid,
    pub(crate) start: Start<'a>,
    /// Rows that one task handles: enough to share a panel of B, few enough to keep every thread busy.
    pub(crate) task_rows: usize,
    /// How many steps of k a block of the sum has.
    pub(crate) block_depth: usize,
}

/// Floats of B's `cols` columns and `depth` rows when packed.
pub(crate) fn packed_len(cpu: &Cpu, depth: usize, cols: usize) -> usize {
    let lanes = cpu.isa.lanes();
    size(depth, size(cols.div_ceil(lanes), lanes))
}

/// Packs B into panels, `value(k, j)` by `value(k, j)`; columns past the last are zero.
pub(crate) fn pack(
    cpu: &Cpu,
    depth: usize,
    cols: usize,
    out: &mut [f32],
    value: impl Fn(usize, usize) -> f32 + Sync + Send,
) {
    let lanes = cpu.isa.lanes();
    let width = lanes * cpu.isa.tile_vectors();
    assert!(out.len() >= packed_len(cpu, depth, cols), "the packed matrix does not fit its buffer");
    // Short runs of k keep the places that a transposing `value` reads in cache; they are tasks, too.
    const RUN: usize = 256;
    let (panels, runs) = (cols.div_ceil(width), depth.div_ceil(RUN));
    let shared = Shared::new(out);
    cpu.each(panels * runs, |task| {
        let (panel, run) = (task / runs, task % runs);
        let col = panel * width;
        let wide = width.min((cols - col).next_multiple_of(lanes));
        for k in run * RUN..depth.min((run + 1) * RUN) {
            // SAFETY: each (panel, k) belongs to one task.
            let row = unsafe { shared.slice(col * depth + k * wide, wide) };
            for (j, x) in row.iter_mut().enumerate() {
                *x = if col + j < cols { value(k, col + j) } else { 0.0 };
            }
        }
    });
}

/// Checks that the product reads and writes within its buffers, of which C has `c_len` floats, and writes each row of C
/// by itself. Sums that wrap would pass for small ones, so they saturate.
fn check(cpu: &Cpu, p: &Product<'_>, c_len: usize) {
    assert!(p.nest.counts.iter().all(|&count| count > 0), "a product that sums nothing");
    let a_end = p.a_rows.end(p.rows).saturating_add(p.nest.reach());
    assert!(a_end <= p.a.len(), "the left factor reaches outside its buffer");
    let c_end = p.c_rows.end(p.rows).saturating_add(p.cols - 1);
    assert!(c_end <= c_len, "the product does not fit its buffer");
    assert!(p.c_rows.apart(p.rows, p.cols), "rows of the product overlap");
    let b_end = p.b_first.saturating_add(p.nest.b_end());
    match p.b {
        Right::Panels { data, depth } => {
            assert!(b_end <= depth && data.len() >= packed_len(cpu, depth, p.cols), "the nest leaves the panels");
        }
        Right::Rows { data, stride } => {
            let wide = p.cols.next_multiple_of(cpu.isa.lanes());
            let end = (b_end - 1).saturating_mul(stride).saturating_add(wide);
            assert!(end <= data.len(), "the last row's last vector reaches outside its buffer");
        }
    }
    if let Start::Bias(bias) = p.start {
        assert!(bias.len() >= p.cols, "{} biases for {} columns", bias.len(), p.cols);
    }
}

/// Computes many small products into `c`, each on one thread: `f(i)` is the i-th.
///
/// # Safety
/// No two of the products write to the same place.
pub(crate) unsafe fn products<'a>(
    cpu: &Cpu,
    count: usize,
    f: impl Fn(usize) -> Product<'a> + Sync + Send,
    c: &mut [f32],
) {
    let c = Shared::new(c);
    cpu.each(count, |i| {
        let p = f(i);
        if p.rows == 0 || p.cols == 0 {
            return;
        }
        check(cpu, &p, c.len());
        let panels = p.cols.div_ceil(cpu.isa.lanes() * cpu.isa.tile_vectors());
        dispatch(cpu.isa, Task { p: &p, c, rows: 0..p.rows, panels: 0..panels });
    });
}

/// Computes the product into `c` on this thread.
pub(crate) fn product_here(cpu: &Cpu, p: &Product<'_>, c: &mut [f32]) {
    if p.rows == 0 || p.cols == 0 {
        return;
    }
    check(cpu, p, c.len());
    let panels = p.cols.div_ceil(cpu.isa.lanes() * cpu.isa.tile_vectors());
    dispatch(cpu.isa, Task { p, c: Shared::new(c), rows: 0..p.rows, panels: 0..panels });
}

/// Computes the product into `c`, whose row i starts at `c_rows`' i-th place.
pub(crate) fn product(cpu: &Cpu, p: &Product<'_>, c: &mut [f32]) {
    if p.rows == 0 || p.cols == 0 {
        return;
    }
    check(cpu, p, c.len());
    let width = cpu.isa.lanes() * cpu.isa.tile_vectors();
    let panels = p.cols.div_ceil(width);
    let row_tasks = p.rows.div_ceil(p.task_rows);
    // With few rows there are not enough tasks for the threads unless panels are tasks, too.
    let panel_tasks = if row_tasks >= 2 * cpu.threads { 1 } else { panels.min(4 * cpu.threads) };
    let task_panels = panels.div_ceil(panel_tasks);
    let panel_tasks = panels.div_ceil(task_panels);
    let c = Shared::new(c);
    cpu.each(row_tasks * panel_tasks, |task| {
        let (row_task, panel_task) = (task / panel_tasks, task % panel_tasks);
        let rows = row_task * p.task_rows..p.rows.min((row_task + 1) * p.task_rows);
        let panels = panel_task * task_panels..panels.min((panel_task + 1) * task_panels);
        dispatch(cpu.isa, Task { p, c, rows, panels });
    });
}

struct Task<'a> {
    p: &'a Product<'a>,
    c: Shared<'a, f32>,
    rows: std::ops::Range<usize>,
    panels: std::ops::Range<usize>,
}

/// Floats of the largest tile.
const TILE: usize = 384;

impl Kernel for Task<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // Plain loops: a closure here would be compiled without the instruction set's features.
        let Nest { counts: [n0, n1, n2], strides: [s0, s1, s2], b_rows: [r0, r1] } = self.p.nest;
        let [b0, b1, b2] = self.p.nest.block_counts(self.p.block_depth);
        for i in (0..n0).step_by(b0) {
            for j in (0..n1).step_by(b1) {
                for k in (0..n2).step_by(b2) {
                    let counts = [b0.min(n0 - i), b1.min(n1 - j), b2.min(n2 - k)];
                    let block = Nest { counts, ..self.p.nest };
                    let first = i + j + k == 0;
                    // SAFETY: `check` has seen the bounds of every operand.
                    unsafe { self.block::<S>(&block, i * s0 + j * s1 + k * s2, i * r0 + j * r1 + k, first) };
                }
            }
        }
    }
}

/// One panel of B against all rows of a task, for one block of k.
struct Strip<'a> {
    block: &'a Nest,
    a_offset: usize,
    b: *const f32,
    b_stride: usize,
    col: usize,
    cols: usize,
    /// Whether this is the first block of the sum.
    first: bool,
}

impl Task<'_> {
    /// One block of the sum, from A's `a_offset` and the nest's k-th row of B on.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, block: &Nest, a_offset: usize, k: usize, first: bool) {
        let k = self.p.b_first + k;
        for panel in self.panels.clone() {
            let col = panel * S::TILE_VECTORS * S::LANES;
            let cols = (S::TILE_VECTORS * S::LANES).min(self.p.cols - col);
            let vectors = cols.div_ceil(S::LANES);
            let (b, b_stride) = match self.p.b {
                Right::Panels { data, depth } => {
                    (data[col * depth + k * vectors * S::LANES..].as_ptr(), vectors * S::LANES)
                }
                Right::Rows { data, stride } => (data[k * stride + col..].as_ptr(), stride),
            };
            let strip = Strip { block, a_offset, b, b_stride, col, cols, first };
            // SAFETY: the caller's.
            unsafe {
                match (S::MANY_REGISTERS, vectors) {
                    (true, 4) => self.strip::<S, 6, 4>(&strip),
                    (true, 3) => self.strip::<S, 8, 3>(&strip),
                    (true, 2) => self.strip::<S, 8, 2>(&strip),
                    (true, _) => self.strip::<S, 14, 1>(&strip),
                    (false, 2) => self.strip::<S, 6, 2>(&strip),
                    (false, _) => self.strip::<S, 8, 1>(&strip),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn strip<S: Simd, const MR: usize, const NV: usize>(&self, s: &Strip<'_>) {
        let p = self.p;
        let mut a_walk = p.a_rows.walk(self.rows.start);
        let mut c_walk = p.c_rows.walk(self.rows.start);
        let mut row = self.rows.start;
        let mut spare = [0.0f32; TILE];
        // SAFETY: the caller's.
        unsafe {
            while row < self.rows.end {
                let valid = MR.min(self.rows.end - row);
                let mut a = [std::ptr::null(); MR];
                let mut c = [std::ptr::null_mut(); MR];
                for r in 0..MR {
                    if r < valid {
                        a[r] = p.a.as_ptr().add(a_walk.next() + s.a_offset);
                        c[r] = self.c.ptr(c_walk.next() + s.col);
                    } else {
                        // Rows past the last repeat the first and are dropped.
                        a[r] = a[0];
                    }
                }
                let whole = valid == MR && s.cols == NV * S::LANES;
                if whole {
                    match (s.first, p.start) {
                        (true, Start::Zero) => tile::<S, MR, NV>(s, &a, &c, Begin::Zero),
                        (true, Start::Bias(bias)) => {
                            tile::<S, MR, NV>(s, &a, &c, Begin::Bias(bias.as_ptr().add(s.col)))
                        }
                        (false, _) => tile::<S, MR, NV>(s, &a, &c, Begin::Keep),
                    }
                } else {
                    let inside: [*mut f32; MR] = std::array::from_fn(|r| spare.as_mut_ptr().add(r * NV * S::LANES));
                    let begin = match (s.first, p.start) {
                        (true, Start::Zero) => Begin::Zero,
                        _ => Begin::Keep,
                    };
                    for r in 0..valid {
                        for j in 0..s.cols {
                            *inside[r].add(j) = match (s.first, p.start) {
                                (true, Start::Zero) => 0.0,
                                (true, Start::Bias(bias)) => *bias.as_ptr().add(s.col + j),
                                (false, _) => *c[r].add(j),
                            };
                        }
                    }
                    // Begun as a whole tile is: which tiles are whole depends on the vectors, the bits must not.
                    tile::<S, MR, NV>(s, &a, &inside, begin);
                    for r in 0..valid {
                        std::ptr::copy_nonoverlapping(inside[r], c[r], s.cols);
                    }
                }
                row += valid;
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Begin {
    Zero,
    Keep,
    Bias(*const f32),
}

/// The register tile: MR rows of C by NV vectors of columns.
#[inline(always)]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(
    s: &Strip<'_>,
    a: &[*const f32; MR],
    c: &[*mut f32; MR],
    begin: Begin,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[S::zero(); NV]; MR];
        let Nest { counts: [n0, n1, n2], strides: [s0, s1, s2], b_rows: [r0, r1] } = *s.block;
        for i in 0..n0 {
            for j in 0..n1 {
                let mut at = i * s0 + j * s1;
                let mut b = s.b.add((i * r0 + j * r1) * s.b_stride);
                for _ in 0..n2 {
                    let mut bv = [S::zero(); NV];
                    for (v, x) in bv.iter_mut().enumerate() {
                        *x = S::load(b.add(v * S::LANES));
                    }
                    for r in 0..MR {
                        let av = S::splat(a[r].add(at));
                        for v in 0..NV {
                            acc[r][v] = S::fma(av, bv[v], acc[r][v]);
                        }
                    }
                    b = b.add(s.b_stride);
                    at += s2;
                }
            }
        }
        // A block is summed from zero and then added: shorter chains of rounding than one long one.
        for r in 0..MR {
            for v in 0..NV {
                let at = c[r].add(v * S::LANES);
                let sum = match begin {
                    Begin::Zero => acc[r][v],
                    Begin::Keep => S::add(S::load(at), acc[r][v]),
                    Begin::Bias(bias) => S::add(S::load(bias.add(v * S::LANES)), acc[r][v]),
                };
                S::store(at, sum);
            }
        }
    }
}

/// `C[i, j] = Σ_k A[i, k] · B[k, j]` for plain row-major matrices, one number at a time: what the fast product must equal.
pub fn reference(rows: usize, depth: usize, cols: usize, a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut c = vec![0.0; rows * cols];
    for i in 0..rows {
        for j in 0..cols {
            c[i * cols + j] =
                (0..depth).map(|k| f64::from(a[i * depth + k]) * f64::from(b[k * cols + j])).sum::<f64>() as f32;
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::random::Stream;

    fn numbers(stream: u64, n: usize) -> Vec<f32> {
        let s = Stream::numbered(stream);
        (0..n as u64).map(|i| 2.0 * s.uniform(i) - 1.0).collect()
    }

    #[test]
    fn equals_the_reference_on_odd_shapes_for_every_instruction_set_and_right_factor() {
        let s = Stream::numbered(77);
        for isa in Isa::all_available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            for case in 0..40 {
                let (rows, depth, cols) = (
                    1 + s.below(3 * case, 40) as usize,
                    1 + s.below(3 * case + 1, 90) as usize,
                    1 + s.below(3 * case + 2, 150) as usize,
                );
                let (a, b) = (numbers(case, rows * depth), numbers(case + 1000, depth * cols));
                let mut packed = vec![f32::NAN; packed_len(&cpu, depth, cols)];
                pack(&cpu, depth, cols, &mut packed, |k, j| b[k * cols + j]);
                let expected = reference(rows, depth, cols, &a, &b);
                let bias = numbers(9, cols);
                let mut rights = vec![Right::Panels { data: &packed, depth }];
                if cols % isa.lanes() == 0 {
                    rights.push(Right::Rows { data: &b, stride: cols });
                }
                for right in rights {
                    for start in [Start::Zero, Start::Bias(&bias)] {
                        let mut c = vec![f32::NAN; rows * cols];
                        let p = Product {
                            rows,
                            cols,
                            a: &a,
                            a_rows: Grid::rows(depth),
                            nest: Nest::dense(depth),
                            b: right,
                            b_first: 0,
                            c_rows: Grid::rows(cols),
                            start,
                            task_rows: 13,
                            block_depth: 32,
                        };
                        product(&cpu, &p, &mut c);
                        for (i, (x, e)) in c.iter().zip(&expected).enumerate() {
                            let e = e + if matches!(start, Start::Bias(_)) { bias[i % cols] } else { 0.0 };
                            assert!((x - e).abs() < 1e-4, "{isa:?} {rows}×{depth}×{cols} at {i}: {x} for {e}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_threads_or_tasks() {
        let (rows, depth, cols) = (61, 700, 72);
        let (a, b) = (numbers(1, rows * depth), numbers(2, depth * cols));
        let run = |threads: usize, task_rows: usize| {
            let cpu = Cpu::new(threads).unwrap();
            let mut packed = vec![0.0; packed_len(&cpu, depth, cols)];
            pack(&cpu, depth, cols, &mut packed, |k, j| b[k * cols + j]);
            let mut c = vec![0.0; rows * cols];
            let p = Product {
                rows,
                cols,
                a: &a,
                a_rows: Grid::rows(depth),
                nest: Nest::dense(depth),
                b: Right::Panels { data: &packed, depth },
                b_first: 0,
                c_rows: Grid::rows(cols),
                start: Start::Zero,
                task_rows,
                block_depth: 192,
            };
            product(&cpu, &p, &mut c);
            c.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let once = run(1, 61);
        for (threads, task_rows) in [(1, 7), (2, 12), (3, 5), (8, 61)] {
            assert_eq!(once, run(threads, task_rows), "{threads} threads, {task_rows} rows a task");
        }
    }
}
