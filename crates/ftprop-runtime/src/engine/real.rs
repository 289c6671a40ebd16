//! Linear layers in float: any value in, reals or levels out.
//!
//! The taps of a tile of outputs are copied side by side (padded ones as zeros), then summed in the order of the
//! weights. Scales are applied after the sum, so integer weights are exact until then.

use super::aligned::Aligned;
use super::buffer::Layout;
use super::finish::{self, Reader};
use super::team::Claims;
use super::{Budget, Context, Scratch};
use crate::error::Result;
use crate::kernels::{BLOCK, PANEL, Run, Tile};
use crate::model::{Affine, Conv, Kind, Preprocessing, Window};

/// Reals that the copied taps of a tile take, unless a single output has more.
const TILE_REALS: usize = 1 << 17;

pub(super) struct Real {
    input: usize,
    output: usize,
    reader: Reader,
    window: Window,
    size: [usize; 2],
    groups: usize,
    /// Channels of a group, in and out.
    inner: usize,
    outputs: usize,
    /// Inputs of one output.
    inputs: usize,
    /// For each group, panels of blocks; every panel of a group but its last is full.
    weights: Aligned<f32>,
    affine: Affine,
    tile: usize,
}

impl Real {
    pub(super) fn new(
        conv: &Conv<'_>,
        affine: &Affine,
        kind: Kind,
        about: &Preprocessing,
        [input, output]: [usize; 2],
        size: [usize; 2],
        layouts: &[Layout],
        budget: &mut Budget,
    ) -> Result<Self> {
        let channels = layouts[input].shape.channels;
        let (inputs, outputs) = (conv.inputs(channels), conv.outputs / conv.groups);
        let padded = outputs.next_multiple_of(BLOCK);
        let len = conv.groups as u128 * padded as u128 * inputs as u128;
        budget.take(len * 4 + Aligned::<i8>::EXTRA as u128 + Reader::size(kind, about))?;
        let mut weights = Aligned::new(len as usize)?;
        for row in 0..conv.outputs {
            let (group, output) = (row / outputs, row % outputs);
            let block = (group * padded / BLOCK + output / BLOCK) * inputs * BLOCK;
            for (i, weight) in conv.weights.reals(row, inputs).enumerate() {
                weights[block + i * BLOCK + output % BLOCK] = weight;
            }
        }
        Ok(Real {
            input,
            output,
            reader: Reader::new(kind, about)?,
            window: conv.window,
            size,
            groups: conv.groups,
            inner: channels / conv.groups,
            outputs,
            inputs,
            weights,
            affine: affine.copy()?,
            tile: (TILE_REALS / inputs).clamp(1, 48),
        })
    }

    /// Reals of scratch that the taps of a tile need.
    pub(super) fn taps(&self) -> usize {
        self.tile * self.inputs
    }

    fn positions(&self, context: &Context<'_>) -> usize {
        context.images * self.size[0] * self.size[1]
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL * BLOCK)
    }

    /// Into how many units the work is cut.
    pub(super) fn units(&self, context: &Context<'_>) -> usize {
        self.positions(context).div_ceil(self.tile) * self.groups * self.panels()
    }

    /// Computes the units it can claim.
    ///
    /// # Safety
    /// Nobody may write the input, or touch the output but by claiming other units.
    pub(super) unsafe fn run(&self, context: &Context<'_>, claims: &Claims, scratch: &mut Scratch) {
        let (positions, panels) = (self.positions(context), self.panels());
        let mut copied = None;
        for unit in claims.of(self.units(context)) {
            let (taps, panel) = (unit / panels, unit % panels);
            let (first, group) = (taps / self.groups * self.tile, taps % self.groups);
            let count = (positions - first).min(self.tile);
            // SAFETY: the caller's promise is passed on.
            unsafe {
                if copied.replace(taps) != Some(taps) {
                    self.copy_taps(context, first, count, group, scratch);
                }
                self.panel(context, first, count, group, panel, scratch);
            }
        }
    }

    /// Image, row and column of an output position.
    fn place(&self, position: usize) -> (usize, usize, usize) {
        let (rest, x) = (position / self.size[1], position % self.size[1]);
        (rest / self.size[0], rest % self.size[0], x)
    }

    unsafe fn copy_taps(&self, context: &Context<'_>, first: usize, count: usize, group: usize, scratch: &mut Scratch) {
        let layout = &context.layouts[self.input];
        let [rows, columns] = self.window.kernel;
        for (i, taps) in scratch.taps[..count * self.inputs].chunks_exact_mut(self.inputs).enumerate() {
            let (image, y, x) = self.place(first + i);
            for (tap, to) in taps.chunks_exact_mut(self.inner).enumerate() {
                let row = (y * self.window.stride[0] + tap / columns).wrapping_sub(self.window.pad[0]);
                let column = (x * self.window.stride[1] + tap % columns).wrapping_sub(self.window.pad[1]);
                debug_assert!(tap / columns < rows);
                if row < layout.shape.height && column < layout.shape.width {
                    let at = layout.at(image, row, column);
                    // SAFETY: nobody writes the input, says the caller.
                    unsafe { self.reader.read(&context.buffers[self.input], at, group * self.inner, to) };
                } else {
                    to.fill(0.0);
                }
            }
            scratch.positions[i] = (i * self.inputs) as u32;
        }
    }

    unsafe fn panel(
        &self,
        context: &Context<'_>,
        first: usize,
        count: usize,
        group: usize,
        panel: usize,
        scratch: &mut Scratch,
    ) {
        let start = panel * PANEL * BLOCK;
        let outputs = (self.outputs - start).min(PANEL * BLOCK);
        let blocks = outputs.div_ceil(BLOCK);
        let width = blocks * BLOCK;
        let weights = &self.weights[(group * self.outputs.next_multiple_of(BLOCK) + start) * self.inputs..];
        context.kernels.reals(Tile {
            inputs: &scratch.taps,
            positions: &scratch.positions[..count],
            path: &[Run { offset: 0, steps: self.inputs }],
            weights,
            blocks,
            narrow: 0,
            sums: &mut scratch.real_sums[..count * width],
        });
        let first_output = group * self.outputs + start;
        let scale = &self.affine.scale[first_output..first_output + outputs];
        let bias = &self.affine.bias[first_output..first_output + outputs];
        let layout = &context.layouts[self.output];
        for i in 0..count {
            let (image, y, x) = self.place(first + i);
            let reals = &mut scratch.reals[..outputs];
            let sums = &scratch.real_sums[i * width..];
            for (((real, sum), scale), bias) in reals.iter_mut().zip(sums).zip(scale).zip(bias) {
                *real = sum * scale + bias;
            }
            let (at, buffer) = (layout.at(image, y, x), &context.buffers[self.output]);
            // SAFETY: this panel's channels of this pixel belong to this unit alone, says the caller.
            unsafe { finish::write(reals, self.affine.activation, layout, buffer, at, first_output) };
        }
    }
}
