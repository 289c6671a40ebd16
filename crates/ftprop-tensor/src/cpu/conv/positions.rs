//! Small images, position by position: the padding is left out, and the images of a batch are the rows.

use super::BLOCK_DEPTH;
use super::padded::Extent;
use crate::cpu::gemm::{Grid, Nest, Product, Right, Start};
use crate::geometry::ConvGeometry;

/// Whether so much of the work would fall on padding that it pays to leave it out, position by position, with the
/// images of a batch as rows. That wants a batch that fills tiles and images that fit the cache together.
pub(super) fn mostly_border(g: &ConvGeometry, n: usize) -> bool {
    let pairs = |size: usize, out: usize, kernel: usize| -> usize {
        (0..out).map(|o| Taps::of_output(o, size, kernel, g).count).sum()
    };
    let needed = pairs(g.height, g.out_height(), g.kernel_h) * pairs(g.width, g.out_width(), g.kernel_w);
    // The forward pass goes over output positions, the input's gradient over input positions.
    let swept = g.kernel_h * g.kernel_w * (g.height * g.width).max(g.out_height() * g.out_width());
    // With so much padding an output may see nothing else.
    let all_see = g.pad < g.kernel_h && g.pad < g.kernel_w;
    let fits = n * g.in_len().max(g.out_len()) <= 1 << 20;
    g.stride == 1 && g.groups == 1 && n >= 12 && all_see && fits && 5 * swept > 6 * needed
}

/// Along one axis: the places of an image that one position of the other side touches, and the kernel's part in it.
#[derive(Clone, Copy)]
pub(super) struct Taps {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) kernel_first: usize,
}

impl Taps {
    /// The inputs that output `o` looks at (stride 1).
    pub(super) fn of_output(o: usize, size: usize, kernel: usize, g: &ConvGeometry) -> Self {
        let kernel_first = g.pad.saturating_sub(o);
        let end = kernel.min((size + g.pad).saturating_sub(o));
        Taps {
            first: o + kernel_first - g.pad.min(o + kernel_first),
            count: end.saturating_sub(kernel_first),
            kernel_first,
        }
    }

    /// The outputs that look at input `i` (stride 1); the kernel is turned around.
    pub(super) fn of_input(i: usize, out: usize, kernel: usize, g: &ConvGeometry) -> Self {
        let last = (i + g.pad).min(out - 1);
        let first = (i + g.pad + 1).saturating_sub(kernel);
        let kernel_first = first + kernel - 1 - (i + g.pad).min(first + kernel - 1);
        Taps { first, count: (last + 1).saturating_sub(first), kernel_first }
    }
}

/// The product of all images at one position: a row an image, the sum over the taps that lie on it.
pub(super) fn position_product<'a>(
    n: usize,
    x: &'a [f32],
    image: Extent,
    v: Taps,
    h: Taps,
    kernel_w: usize,
    b: Right<'a>,
    cols: usize,
    pixel: usize,
    out_len: usize,
    start: Start<'a>,
) -> Product<'a> {
    let c = image.channels;
    let rows = |base: usize, stride: usize| Grid { base, ..Grid::rows(stride) };
    Product {
        rows: n,
        cols,
        a: x,
        a_rows: rows((v.first * image.width + h.first) * c, image.height * image.width * c),
        nest: Nest { counts: [1, v.count, h.count * c], strides: [0, image.width * c, 1], b_rows: [0, kernel_w * c] },
        b,
        b_first: (v.kernel_first * kernel_w + h.kernel_first) * c,
        c_rows: rows(pixel * cols, out_len),
        start,
        task_rows: n,
        block_depth: BLOCK_DEPTH,
    }
}
