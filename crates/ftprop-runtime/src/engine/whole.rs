//! Linear layers in integers: the image or levels in, levels or reals out.

use super::aligned::Aligned;
use super::buffer::{Buffer, Format, Layout};
use super::fold::{Classes, Folded};
use super::packing::{Packed, Packing};
use super::team::Claims;
use super::{Budget, Context, Scratch, finish};
use crate::error::Result;
use crate::kernels::{BLOCK, Counts, NARROW_BITS, Offsets, PANEL, Run, Tile, narrow_bytes};
use crate::memory;
use crate::model::{Conv, Scale};

/// Output channels that are computed together, all of one group.
pub(super) struct Panel {
    pub(super) group: usize,
    pub(super) first: usize,
    pub(super) outputs: usize,
    blocks: usize,
    /// Where its weights and its thresholds (or offsets) start.
    pub(super) weights: usize,
    pub(super) folded: usize,
}

impl Panel {
    /// Channels with those that only fill the last block.
    pub(super) fn width(&self) -> usize {
        self.blocks * BLOCK
    }
}

pub(super) struct Whole {
    input: usize,
    output: usize,
    stride: [usize; 2],
    pad: [usize; 2],
    /// Output rows and columns that somebody reads.
    size: [usize; 2],
    /// See [`Tile::narrow`].
    narrow: usize,
    /// For each group, as runs and step by step.
    runs: Vec<Vec<Run>>,
    offsets: Vec<Offsets>,
    panels: Vec<Panel>,
    weights: Packed,
    classes: Classes,
    folded: Folded,
    tile: usize,
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
        let packing = Packing::new(conv, from)?;
        let steps = packing.steps();
        let classes = Classes::new(conv, scale, size, from.shape)?;

        let outputs = conv.outputs / conv.groups;
        let folded_a_channel = classes.count() as u128 * Folded::of_stage(&conv.stage) as u128;
        let (mut weights, mut folded) = (0u128, 0u128);
        let mut panels = Vec::new();
        for group in 0..conv.groups {
            for first in (0..outputs).step_by(PANEL * BLOCK) {
                let count = (outputs - first).min(PANEL * BLOCK);
                let blocks = count.div_ceil(BLOCK);
                let first = group * outputs + first;
                let (weights_at, folded_at) = (weights as usize, folded as usize);
                let panel = Panel { group, first, outputs: count, blocks, weights: weights_at, folded: folded_at };
                memory::push(&mut panels, panel)?;
                weights += (steps * packing.weights_a_step()) as u128 * (blocks * BLOCK) as u128;
                folded += folded_a_channel * (blocks * BLOCK) as u128;
            }
        }
        let weight_size = if from.format == Format::Levels { 1 } else { 2 };
        budget.take(
            weights * weight_size + folded * 4 + (conv.groups * steps) as u128 * 4 + Aligned::<i8>::EXTRA as u128,
        )?;
        let shifts = packing.shifts()?;
        let packed = packing.pack(&panels, weights as usize, shifts.as_deref())?;
        let folded =
            Folded::new(conv, scale, &classes, &panels, folded as usize, from.shape.channels, shifts.as_deref())?;
        let narrow = match from.format {
            Format::Bits if shifts.is_some() => usize::MAX,
            Format::Bits => NARROW_BITS,
            _ => narrow_bytes(scale.largest as usize),
        };
        let tile = if from.format == Format::Bits { Scratch::POSITIONS } else { 48 };
        let runs = packing.runs()?;
        Ok(Whole {
            input,
            output,
            stride: conv.window.stride,
            pad: conv.window.pad,
            size,
            narrow,
            offsets: packing.offsets(&runs)?,
            runs,
            panels,
            weights: packed,
            classes,
            folded,
            tile,
        })
    }

    /// Outputs of a tile: fewer than fit where several threads share few of them.
    fn tile(&self, context: &Context<'_>) -> usize {
        self.positions(context).div_ceil(context.workers).clamp(16, self.tile)
    }

    fn positions(&self, context: &Context<'_>) -> usize {
        context.images * self.size[0] * self.size[1]
    }

    /// Into how many units the work is cut.
    pub(super) fn units(&self, context: &Context<'_>) -> usize {
        self.panels.len() * self.positions(context).div_ceil(self.tile(context))
    }

    /// Computes the units it can claim.
    ///
    /// # Safety
    /// Nobody may write the input, or touch the output but by claiming other units.
    pub(super) unsafe fn run(&self, context: &Context<'_>, claims: &Claims, scratch: &mut Scratch) {
        let (positions, tile) = (self.positions(context), self.tile(context));
        let tiles = positions.div_ceil(tile);
        for unit in claims.of(self.units(context)) {
            let panel = &self.panels[unit / tiles];
            let first = unit % tiles * tile;
            let count = (positions - first).min(tile);
            self.locate(context, panel, first, count, scratch);
            // SAFETY: the caller's promise is passed on.
            unsafe {
                self.sum(context, panel, count, scratch);
                self.write(context, panel, count, scratch);
            }
        }
    }

    /// Notes for each output of a tile where its inputs are, where it goes and where its class's numbers are.
    fn locate(&self, context: &Context<'_>, panel: &Panel, first: usize, count: usize, scratch: &mut Scratch) {
        let (from, to) = (&context.layouts[self.input], &context.layouts[self.output]);
        // The border may be wider than this layer asks for.
        let border = self.pad[0] * from.row + self.pad[1] * from.pixel;
        let row_size = self.folded.for_each_class() * panel.width();
        let mut done = 0;
        while done < count {
            let (image, y, x) = self.place(first + done);
            let now = (self.size[1] - x).min(count - done);
            let input = from.at(image, y * self.stride[0], x * self.stride[1]) - border;
            let output = to.at(image, y, x);
            for i in 0..now {
                scratch.positions[done + i] = (input + i * self.stride[1] * from.pixel) as u32;
                scratch.places[done + i] = (output + i * to.pixel) as u32;
                scratch.rows[done + i] = (panel.folded + self.classes.of(y, x + i) * row_size) as u32;
            }
            done += now;
        }
    }

    /// Image, row and column of an output position.
    fn place(&self, position: usize) -> (usize, usize, usize) {
        let (rest, x) = (position / self.size[1], position % self.size[1]);
        (rest / self.size[0], rest % self.size[0], x)
    }

    unsafe fn sum(&self, context: &Context<'_>, panel: &Panel, count: usize, scratch: &mut Scratch) {
        let positions = &scratch.positions[..count];
        let (runs, path) = (&self.runs[panel.group][..], &self.offsets[panel.group]);
        let (blocks, narrow, sums) = (panel.blocks, self.narrow, &mut scratch.sums[..count * panel.width()]);
        // SAFETY: nobody writes the input, says the caller.
        unsafe {
            match (&self.weights, &context.buffers[self.input]) {
                (Packed::Bytes(weights), Buffer::Bytes(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.bytes(Tile { inputs, positions, path, weights, blocks, narrow, sums });
                }
                (Packed::Bits(weights), Buffer::Bytes(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.bits(Tile { inputs, positions, path: runs, weights, blocks, narrow, sums });
                }
                (Packed::Words(weights), Buffer::Words(inputs)) => {
                    let (inputs, weights) = (inputs.all(), &weights[panel.weights..]);
                    context.kernels.words(Tile { inputs, positions, path, weights, blocks, narrow, sums });
                }
                _ => unreachable!("weights are packed for the input's format"),
            }
        }
    }

    unsafe fn write(&self, context: &Context<'_>, panel: &Panel, count: usize, scratch: &mut Scratch) {
        let to = &context.layouts[self.output];
        let width = panel.width();
        match (&self.folded, &context.buffers[self.output]) {
            (Folded::Thresholds { steps, thresholds }, Buffer::Bytes(bytes)) => {
                // Bytes of a pixel from this panel's first channel on.
                let bits = to.format == Format::Bits;
                let (start, size) = if bits { (panel.first / 4, width / 4) } else { (panel.first, width) };
                let used = if bits { panel.outputs.div_ceil(4) } else { panel.outputs };
                // Channels that only fill a block must not touch the next pixel.
                let direct = used == size;
                for (i, place) in scratch.places[..count].iter_mut().enumerate() {
                    scratch.pixels_at[i] = *place + start as u32;
                    *place = if direct { scratch.pixels_at[i] } else { (i * size) as u32 };
                }
                let (pointer, len) = match direct {
                    true => (bytes.pointer(), bytes.len()),
                    false => (scratch.levels.as_mut_ptr(), scratch.levels.len()),
                };
                // SAFETY: this panel's channels of these pixels belong to this unit alone, says the caller.
                unsafe {
                    context.kernels.count(&Counts {
                        sums: &scratch.sums[..count * width],
                        width,
                        thresholds,
                        steps: *steps,
                        rows: &scratch.rows[..count],
                        places: &scratch.places[..count],
                        bits,
                        to: pointer,
                        len,
                    });
                    if !direct {
                        for (i, &at) in scratch.pixels_at[..count].iter().enumerate() {
                            let pixel = bytes.part(at as usize..at as usize + used);
                            pixel.copy_from_slice(&scratch.levels[i * size..i * size + used]);
                        }
                    }
                }
            }
            (Folded::Affine { offsets, scales, activation }, buffer) => {
                let scales = &scales[panel.first..][..panel.outputs];
                for (i, (&place, &row)) in scratch.places[..count].iter().zip(&scratch.rows[..count]).enumerate() {
                    let sums = &scratch.sums[i * width..];
                    let reals = &mut scratch.reals[..panel.outputs];
                    for (((real, &sum), scale), offset) in
                        reals.iter_mut().zip(sums).zip(scales).zip(&offsets[row as usize..])
                    {
                        *real = sum as f32 * scale + offset;
                    }
                    // SAFETY: as above.
                    unsafe { finish::write(reals, *activation, to, buffer, place as usize, panel.first) };
                }
            }
            _ => unreachable!("the plan gives each value the buffer of its kind"),
        }
    }
}
