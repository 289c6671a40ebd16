//! A layer's weights in the order in which a kernel reads them.

use super::aligned::Aligned;
use super::buffer::{Format, Layout};
use super::whole::Panel;
use crate::error::Result;
use crate::kernels::{BLOCK, Offsets, PATTERNS, Run};
use crate::memory;
use crate::model::{Conv, Stage};

/// Weights for one of the integer kernels.
pub(super) enum Packed {
    Bytes(Aligned<i8>),
    Words(Aligned<i16>),
    Bits(Aligned<i16>),
}

/// Inputs that lie side by side, of which the last step may not need all.
struct Stretch {
    offset: usize,
    elements: usize,
}

/// How the inputs of a layer lie in its input's buffer, and so in what steps a kernel takes them.
pub(super) struct Packing<'a> {
    conv: &'a Conv<'a>,
    from: &'a Layout,
    /// For each group.
    stretches: Vec<Vec<Stretch>>,
    /// Stored elements of a step.
    elements: usize,
}

impl<'a> Packing<'a> {
    pub(super) fn new(conv: &'a Conv<'_>, from: &'a Layout) -> Result<Self> {
        let inner = from.shape.channels / conv.groups;
        let elements = match from.format {
            Format::Bits => 1,
            Format::Words => 2,
            Format::Levels | Format::Reals => 4,
        };
        let stretches = memory::try_collect((0..conv.groups).map(|group| stretches(conv, from, group * inner, inner)))?;
        Ok(Packing { conv, from, stretches, elements })
    }

    /// What a kernel walks through, for each group.
    pub(super) fn runs(&self) -> Result<Vec<Vec<Run>>> {
        let run = |stretch: &Stretch| Run { offset: stretch.offset, steps: stretch.elements.div_ceil(self.elements) };
        memory::try_collect(self.stretches.iter().map(|group| memory::collect(group.iter().map(run))))
    }

    /// Each step of those by itself.
    pub(super) fn offsets(&self, runs: &[Vec<Run>]) -> Result<Vec<Offsets>> {
        let offsets = |run: &Run| {
            let (offset, steps) = (run.offset, run.steps);
            (0..steps).map(move |step| (offset + step * self.elements) as u32)
        };
        memory::try_collect(runs.iter().map(|group| {
            let mut all = memory::room(group.iter().map(|run| run.steps).sum())?;
            all.extend(group.iter().flat_map(offsets));
            Ok(Offsets::new(all))
        }))
    }

    /// Steps of a group; all have as many.
    pub(super) fn steps(&self) -> usize {
        self.stretches[0].iter().map(|stretch| stretch.elements.div_ceil(self.elements)).sum()
    }

    /// Stored weights of a step for each output channel.
    pub(super) fn weights_a_step(&self) -> usize {
        if self.from.format == Format::Bits { PATTERNS } else { self.elements }
    }

    /// What to add to each channel's sum of the weights of set bits so that it fits 16 bits. None if there are no bits,
    /// if a sum would not fit, or if somebody wants the sums themselves.
    pub(super) fn shifts(&self) -> Result<Option<Vec<i32>>> {
        let conv = self.conv;
        if self.from.format != Format::Bits || !matches!(conv.stage, Stage::Thresholds { .. }) {
            return Ok(None);
        }
        let inputs = conv.inputs(self.from.shape.channels);
        let shift = |output: usize| {
            let (mut least, mut most) = (0, 0);
            for q in conv.weights.integers(output, inputs) {
                least += q.min(0);
                most += q.max(0);
            }
            let shift = -(least + most) / 2;
            // A row of a table, at most 4 · 127, must still fit with the shift added.
            let fits = shift.abs() < i16::MAX as i32 - 4 * 127
                && least + shift >= i16::MIN as i32
                && most + shift <= i16::MAX as i32;
            fits.then_some(shift)
        };
        let mut shifts = memory::room(conv.outputs)?;
        for output in 0..conv.outputs {
            let Some(shift) = shift(output) else { return Ok(None) };
            shifts.push(shift);
        }
        Ok(Some(shifts))
    }

    /// The weights of all panels, `len` in all, with the shifts in the first table of each channel.
    pub(super) fn pack(&self, panels: &[Panel], len: usize, shifts: Option<&[i32]>) -> Result<Packed> {
        let mut packed = match self.from.format {
            Format::Words => Packed::Words(Aligned::new(len)?),
            Format::Bits => Packed::Bits(Aligned::new(len)?),
            Format::Levels | Format::Reals => Packed::Bytes(Aligned::new(len)?),
        };
        let inputs = self.conv.inputs(self.from.shape.channels);
        let mut sources = (usize::MAX, Vec::new());
        let mut row = memory::room(inputs + 1)?;
        for panel in panels {
            if sources.0 != panel.group {
                sources = (panel.group, self.sources(panel.group)?);
            }
            for lane in 0..panel.outputs {
                let output = panel.first + lane;
                row.clear();
                row.extend(self.conv.weights.integers(output, inputs).chain([0]));
                packed.fill(panel, lane, &sources.1, &row);
                if let (Packed::Bits(tables), Some(shifts)) = (&mut packed, shifts) {
                    // Exactly one row of the first step's table is added.
                    let first = tables[panel.weights..].chunks_exact_mut(panel.width()).take(PATTERNS);
                    first.for_each(|row| row[lane] += shifts[output] as i16);
                }
            }
        }
        Ok(packed)
    }

    /// For each step of a group the numbers of its weights in an output channel's row, up to four; one past the row's
    /// end where there is none.
    fn sources(&self, group: usize) -> Result<Vec<[u32; 4]>> {
        let [rows, columns] = self.conv.window.kernel;
        let inner = self.from.shape.channels / self.conv.groups;
        let none = (rows * columns * inner) as u32;
        let bits = if self.from.format == Format::Bits { 4 } else { 1 };
        let mut sources = memory::room(self.steps())?;
        for stretch in &self.stretches[group] {
            for start in (0..stretch.elements).step_by(self.elements) {
                let mut step = [none; 4];
                for element in start..(start + self.elements).min(stretch.elements) {
                    let place = stretch.offset + element;
                    let (y, x) = (place / self.from.row, place % self.from.row / self.from.pixel);
                    for bit in 0..bits {
                        let channel = (place % self.from.pixel * bits + bit).wrapping_sub(group * inner);
                        if y < rows && x < columns && channel < inner {
                            step[(element - start) * bits + bit] = ((y * columns + x) * inner + channel) as u32;
                        }
                    }
                }
                sources.push(step);
            }
        }
        Ok(sources)
    }
}

impl Packed {
    /// Puts the weights of one output channel in their places.
    fn fill(&mut self, panel: &Panel, lane: usize, sources: &[[u32; 4]], row: &[i32]) {
        let first_block = lane / BLOCK * sources.len();
        for (step, source) in sources.iter().enumerate() {
            let weights = source.map(|source| row[source as usize]);
            let place = (first_block + step) * BLOCK + lane % BLOCK;
            match self {
                Packed::Bytes(bytes) => {
                    bytes[panel.weights + place * 4..][..4].copy_from_slice(&weights.map(|q| q as i8));
                }
                Packed::Words(words) => {
                    words[panel.weights + place * 2..][..2].copy_from_slice(&[weights[0] as i16, weights[1] as i16]);
                }
                Packed::Bits(tables) => {
                    let table = &mut tables[panel.weights + step * PATTERNS * panel.width()..];
                    for pattern in 0..PATTERNS {
                        let sum: i32 = (0..4).map(|bit| weights[bit] * (pattern >> bit & 1) as i32).sum();
                        table[pattern * panel.width() + lane] = sum as i16;
                    }
                }
            }
        }
    }
}

/// The stretches that a group's channels make: a kernel row each, or a tap each where other groups lie between; those
/// that touch become one.
fn stretches(conv: &Conv<'_>, from: &Layout, first: usize, inner: usize) -> Result<Vec<Stretch>> {
    let [rows, columns] = conv.window.kernel;
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut push = |offset: usize, elements: usize| match stretches.last_mut() {
        Some(last) if last.offset + last.elements == offset => {
            last.elements += elements;
            Ok(())
        }
        _ => memory::push(&mut stretches, Stretch { offset, elements }),
    };
    for y in 0..rows {
        if conv.groups == 1 {
            push(y * from.row, columns * from.pixel)?;
        } else {
            (0..columns).try_for_each(|x| push(y * from.row + x * from.pixel + first, inner))?;
        }
    }
    Ok(stretches)
}
