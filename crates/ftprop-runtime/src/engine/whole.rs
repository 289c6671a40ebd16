//! Linear layers in integers: the image or levels in, levels or reals out.

use super::buffer::{Buffer, Format, Layout};
use super::fold::{Classes, Folded};
use super::{Budget, Context, Part, Scratch, finish};
use crate::error::Result;
use crate::kernels::{BLOCK, PANEL, PATTERNS, Run, Tile};
use crate::model::{Conv, Scale};

/// Output channels that are computed together, all of one group.
pub(super) struct Panel {
    group: usize,
    pub(super) first: usize,
    pub(super) outputs: usize,
    blocks: usize,
    /// Where its weights and its thresholds (or offsets) start.
    weights: usize,
    pub(super) folded: usize,
}

impl Panel {
    /// Channels with those that only fill the last block.
    pub(super) fn width(&self) -> usize {
        self.blocks * BLOCK
    }
}

enum Packed {
    Bytes(Vec<i8>),
    Words(Vec<i16>),
    Bits(Vec<i16>),
}

/// Inputs that lie side by side, of which the last step may not need all.
struct Stretch {
    offset: usize,
    elements: usize,
}

pub(super) struct Whole {
    input: usize,
    output: usize,
    stride: [usize; 2],
    pad: [usize; 2],
    /// Output rows and columns that somebody reads.
    size: [usize; 2],
    largest: usize,
    /// For each group.
    runs: Vec<Vec<Run>>,
    panels: Vec<Panel>,
    weights: Packed,
    classes: Classes,
    folded: Folded,
    tile: usize,
}

/// Inputs, stored elements and, for each output channel, stored weights of a kernel's step.
fn step_of(format: Format) -> (usize, usize, usize) {
    match format {
        Format::Bits => (4, 1, PATTERNS),
        Format::Words => (2, 2, 2),
        Format::Levels | Format::Reals => (4, 4, 4),
    }
}

impl Whole {
    /// Packs a layer's weights for the kernel that reads the input's format.
    pub(super) fn new(
        conv: &Conv<'_>,
        scale: &Scale,
        [input, output]: [usize; 2],
        size: [usize; 2],
        layouts: &[Layout],
        budget: &mut Budget,
    ) -> Result<Self> {
        let from = &layouts[input];
        let (_, elements_a_step, weights_a_step) = step_of(from.format);
        let inner = from.shape.channels / conv.groups;
        let stretches: Vec<Vec<Stretch>> =
            (0..conv.groups).map(|group| stretches(conv, from, group * inner, inner)).collect();
        let run = |stretch: &Stretch| Run { offset: stretch.offset, steps: stretch.elements.div_ceil(elements_a_step) };
        let runs: Vec<Vec<Run>> = stretches.iter().map(|group| group.iter().map(run).collect()).collect();
        let steps: usize = runs[0].iter().map(|run| run.steps).sum();
        let classes = Classes::new(conv, scale, size, from.shape);

        let outputs = conv.outputs / conv.groups;
        let folded_a_channel = classes.count() as u128 * Folded::for_each_class(&conv.stage) as u128;
        let (mut weights, mut folded) = (0u128, 0u128);
        let mut panels = Vec::new();
        for group in 0..conv.groups {
            for first in (0..outputs).step_by(PANEL * BLOCK) {
                let count = (outputs - first).min(PANEL * BLOCK);
                let blocks = count.div_ceil(BLOCK);
                let first = group * outputs + first;
                panels.push(Panel {
                    group,
                    first,
                    outputs: count,
                    blocks,
                    weights: weights as usize,
                    folded: folded as usize,
                });
                weights += (steps * weights_a_step) as u128 * (blocks * BLOCK) as u128;
                folded += folded_a_channel * (blocks * BLOCK) as u128;
            }
        }
        let weight_size = if from.format == Format::Levels { 1 } else { 2 };
        budget.take(weights * weight_size + folded * 4)?;
        let mut packed = match from.format {
            Format::Words => Packed::Words(vec![0; weights as usize]),
            Format::Bits => Packed::Bits(vec![0; weights as usize]),
            Format::Levels | Format::Reals => Packed::Bytes(vec![0; weights as usize]),
        };
        for panel in &panels {
            for lane in 0..panel.outputs {
                let row: Vec<i32> =
                    conv.weights.integers(panel.first + lane, conv.inputs(from.shape.channels)).collect();
                packed.fill(conv, from, inner, panel, lane, steps, &stretches[panel.group], &row);
            }
        }
        let folded = Folded::new(conv, scale, &classes, &panels, folded as usize, from.shape.channels);
        let tile = if from.format == Format::Bits { Scratch::POSITIONS } else { 48 };
        Ok(Whole {
            input,
            output,
            stride: conv.window.stride,
            pad: conv.window.pad,
            size,
            largest: scale.largest as usize,
            runs,
            panels,
            weights: packed,
            classes,
            folded,
            tile,
        })
    }

    /// Computes this part's share of the outputs of all images.
    ///
    /// # Safety
    /// No other part may be equal, and nobody may write the input or touch the output otherwise.
    pub(super) unsafe fn run(&self, context: &Context<'_>, part: Part, scratch: &mut Scratch) {
        let positions = context.images * self.size[0] * self.size[1];
        let tiles = positions.div_ceil(self.tile);
        for unit in part.of(self.panels.len() * tiles) {
            let panel = &self.panels[unit / tiles];
            let first = unit % tiles * self.tile;
            let count = (positions - first).min(self.tile);
            let from = &context.layouts[self.input];
            for (i, at) in scratch.positions[..count].iter_mut().enumerate() {
                let (image, y, x) = self.place(first + i);
                // The border may be wider than this layer asks for.
                let at_pad = from.at(image, y * self.stride[0], x * self.stride[1]);
                *at = (at_pad - self.pad[0] * from.row - self.pad[1] * from.pixel) as u32;
            }
            // SAFETY: the caller's promise is passed on.
            unsafe {
                self.sum(context, panel, count, scratch);
                for i in 0..count {
                    self.write(context, panel, first + i, i, scratch);
                }
            }
        }
    }

    /// Image, row and column of an output position.
    fn place(&self, position: usize) -> (usize, usize, usize) {
        let (rest, x) = (position / self.size[1], position % self.size[1]);
        (rest / self.size[0], rest % self.size[0], x)
    }

    unsafe fn sum(&self, context: &Context<'_>, panel: &Panel, count: usize, scratch: &mut Scratch) {
        let positions = &scratch.positions[..count];
        let runs = &self.runs[panel.group][..];
        let (blocks, largest, sums) = (panel.blocks, self.largest, &mut scratch.sums[..count * panel.width()]);
        // SAFETY: nobody writes the input, says the caller.
        unsafe {
            match (&self.weights, &context.buffers[self.input]) {
                (Packed::Bytes(weights), Buffer::Bytes(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.bytes(Tile { inputs, positions, runs, weights, blocks, largest, sums });
                }
                (Packed::Bits(weights), Buffer::Bytes(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.bits(Tile { inputs, positions, runs, weights, blocks, largest, sums });
                }
                (Packed::Words(weights), Buffer::Words(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.words(Tile { inputs, positions, runs, weights, blocks, largest, sums });
                }
                _ => unreachable!("weights are packed for the input's format"),
            }
        }
    }

    unsafe fn write(&self, context: &Context<'_>, panel: &Panel, position: usize, i: usize, scratch: &mut Scratch) {
        let (image, y, x) = self.place(position);
        let class = self.classes.of(y, x);
        let to = &context.layouts[self.output];
        let at = to.at(image, y, x);
        let width = panel.width();
        let sums = &scratch.sums[i * width..(i + 1) * width];
        match (&self.folded, &context.buffers[self.output]) {
            (Folded::Thresholds { steps, thresholds }, Buffer::Bytes(bytes)) => {
                let size = steps * width;
                let thresholds = &thresholds[panel.folded + class * size..][..size];
                let levels = &mut scratch.levels[..width];
                context.kernels.levels(sums, thresholds, levels);
                // SAFETY: this panel's channels of this pixel belong to this part alone, says the caller.
                unsafe {
                    if to.format == Format::Bits {
                        let start = at + panel.first / 4;
                        pack_bits(levels, bytes.part(start..start + panel.outputs.div_ceil(4)));
                    } else {
                        let start = at + panel.first;
                        bytes.part(start..start + panel.outputs).copy_from_slice(&levels[..panel.outputs]);
                    }
                }
            }
            (Folded::Affine { offsets, scales, activation }, buffer) => {
                let offsets = &offsets[panel.folded + class * width..][..panel.outputs];
                let scales = &scales[panel.first..][..panel.outputs];
                let reals = &mut scratch.reals[..panel.outputs];
                for (((real, &sum), scale), offset) in reals.iter_mut().zip(sums).zip(scales).zip(offsets) {
                    *real = sum as f32 * scale + offset;
                }
                // SAFETY: as above.
                unsafe { finish::write(reals, *activation, to, buffer, at, panel.first) };
            }
            _ => unreachable!("the plan gives each value the buffer of its kind"),
        }
    }
}

impl Packed {
    /// Puts the weights of one output channel in their places; what is not a tap of the layer stays zero.
    fn fill(
        &mut self,
        conv: &Conv<'_>,
        from: &Layout,
        inner: usize,
        panel: &Panel,
        lane: usize,
        steps: usize,
        stretches: &[Stretch],
        row: &[i32],
    ) {
        let [rows, columns] = conv.window.kernel;
        let (_, elements_a_step, _) = step_of(from.format);
        let per_element = if from.format == Format::Bits { 4 } else { 1 };
        let mut step = 0;
        for stretch in stretches {
            for start in (0..stretch.elements).step_by(elements_a_step) {
                let mut taken = [0i32; 4];
                for element in start..(start + elements_a_step).min(stretch.elements) {
                    let place = stretch.offset + element;
                    let (y, x) = (place / from.row, place % from.row / from.pixel);
                    for bit in 0..per_element {
                        let channel = (place % from.pixel * per_element + bit).wrapping_sub(panel.group * inner);
                        if y < rows && x < columns && channel < inner {
                            taken[(element - start) * per_element + bit] = row[(y * columns + x) * inner + channel];
                        }
                    }
                }
                let dense = ((lane / BLOCK * steps + step) * BLOCK + lane % BLOCK) * elements_a_step;
                match self {
                    Packed::Bytes(bytes) => {
                        let to = &mut bytes[panel.weights + dense..][..4];
                        to.iter_mut().zip(taken).for_each(|(to, q)| *to = q as i8);
                    }
                    Packed::Words(words) => {
                        let to = &mut words[panel.weights + dense..][..2];
                        to.iter_mut().zip(taken).for_each(|(to, q)| *to = q as i16);
                    }
                    Packed::Bits(tables) => {
                        for pattern in 0..PATTERNS {
                            let sum: i32 = (0..4).filter(|bit| pattern >> bit & 1 == 1).map(|bit| taken[bit]).sum();
                            tables[panel.weights + (step * PATTERNS + pattern) * panel.width() + lane] = sum as i16;
                        }
                    }
                }
                step += 1;
            }
        }
    }
}

/// The stretches that a group's channels make: a kernel row each, or a tap each where other groups lie between; those
/// that touch become one.
fn stretches(conv: &Conv<'_>, from: &Layout, first: usize, inner: usize) -> Vec<Stretch> {
    let [rows, columns] = conv.window.kernel;
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut push = |offset: usize, elements: usize| match stretches.last_mut() {
        Some(last) if last.offset + last.elements == offset => last.elements += elements,
        _ => stretches.push(Stretch { offset, elements }),
    };
    for y in 0..rows {
        if conv.groups == 1 {
            push(y * from.row, columns * from.pixel);
        } else {
            (0..columns).for_each(|x| push(y * from.row + x * from.pixel + first, inner));
        }
    }
    stretches
}

/// Four levels of 0 or 1 to the low bits of a byte each.
fn pack_bits(levels: &[u8], bits: &mut [u8]) {
    for (bits, four) in bits.iter_mut().zip(levels.chunks_exact(4)) {
        let four = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        // Moves bits 0, 8, 16 and 24 to 24, 25, 26 and 27; no two products meet.
        *bits = (four.wrapping_mul(1 << 24 | 1 << 17 | 1 << 10 | 1 << 3) >> 24) as u8 & 15;
    }
}
