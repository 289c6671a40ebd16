//! From thresholds on a layer's meaning to thresholds on what its kernel sums.
//!
//! A stored input b means unit · b − offset, but a padded tap means zero: S = unit · Σ q b − Σ q offset, the second sum
//! over the taps inside the image. So S > T if and only if Σ q b > ⌊(T + Σ q offset) / unit⌋, and outputs that see the
//! same taps, a class, share that number.

use super::aligned::Aligned;
use super::whole::Panel;
use crate::error::Result;
use crate::memory;
use crate::model::{Activation, Conv, Scale, Shape, Stage};

/// The taps inside the image along one axis, from the first up to the second.
type Span = (usize, usize);

/// Which outputs see the same taps.
pub(super) struct Classes {
    rows: Vec<u32>,
    columns: Vec<u32>,
    row_spans: Vec<Span>,
    column_spans: Vec<Span>,
}

impl Classes {
    pub(super) fn new(conv: &Conv<'_>, scale: &Scale, size: [usize; 2], input: Shape) -> Result<Self> {
        // Without an offset, a tap outside is as good as a zero inside.
        let matters = scale.offsets.iter().any(|&offset| offset != 0);
        let axis = |axis: usize, side: usize| {
            let (kernel, stride, pad) = (conv.window.kernel[axis], conv.window.stride[axis], conv.window.pad[axis]);
            let mut numbers = memory::room(size[axis])?;
            let mut spans: Vec<Span> = Vec::new();
            for start in (0..size[axis]).map(|o| o * stride) {
                let low = pad.saturating_sub(start).min(kernel);
                let high = (side + pad).saturating_sub(start).min(kernel).max(low);
                let span = if matters { (low, high) } else { (0, kernel) };
                // Both ends fall as the window moves on, so equal spans are neighbours.
                if spans.last() != Some(&span) {
                    memory::push(&mut spans, span)?;
                }
                numbers.push(spans.len() as u32 - 1);
            }
            Ok((numbers, spans))
        };
        let (rows, row_spans) = axis(0, input.height)?;
        let (columns, column_spans) = axis(1, input.width)?;
        Ok(Classes { rows, columns, row_spans, column_spans })
    }

    pub(super) fn count(&self) -> usize {
        self.row_spans.len() * self.column_spans.len()
    }

    /// The class of an output.
    pub(super) fn of(&self, y: usize, x: usize) -> usize {
        self.rows[y] as usize * self.column_spans.len() + self.columns[x] as usize
    }
}

/// What becomes of the sums of a kernel.
pub(super) enum Folded {
    /// For each panel, class and step a threshold for each channel.
    Thresholds { steps: usize, thresholds: Aligned<i32> },
    /// For each panel and class an offset for each channel; for each channel a scale.
    Affine { offsets: Vec<f32>, scales: Vec<f32>, activation: Option<Activation> },
}

impl Folded {
    /// How many numbers a channel needs for each class.
    pub(super) fn of_stage(stage: &Stage) -> usize {
        match stage {
            Stage::Thresholds { activation, .. } => activation.steps().unwrap_or(0) as usize,
            Stage::Affine(_) => 1,
        }
    }

    /// As [`Folded::of_stage`].
    pub(super) fn for_each_class(&self) -> usize {
        match self {
            Folded::Thresholds { steps, .. } => *steps,
            Folded::Affine { .. } => 1,
        }
    }

    /// `len` is the size of the table that the panels index; `shifts` is what the kernel adds to each channel's sums.
    pub(super) fn new(
        conv: &Conv<'_>,
        scale: &Scale,
        classes: &Classes,
        panels: &[Panel],
        len: usize,
        channels: usize,
        shifts: Option<&[i32]>,
    ) -> Result<Self> {
        let mut folded = match &conv.stage {
            // Channels that only fill a block never exceed their thresholds.
            Stage::Thresholds { .. } => {
                Folded::Thresholds { steps: Folded::of_stage(&conv.stage), thresholds: unreachable(len)? }
            }
            Stage::Affine(affine) => Folded::Affine {
                offsets: memory::filled(0.0, len)?,
                scales: memory::collect(affine.scale.iter().map(|&by| (by as f64 * scale.unit as f64) as f32))?,
                activation: affine.activation,
            },
        };
        for panel in panels {
            for lane in 0..panel.outputs {
                let output = panel.first + lane;
                let inside = Inside::new(conv, scale, output, channels)?;
                for (class, offset) in classes.spans().map(|(rows, columns)| inside.sum(rows, columns)).enumerate() {
                    let shift = shifts.map_or(0, |shifts| shifts[output]);
                    folded.set(conv, scale, panel, lane, class, offset, shift);
                }
            }
        }
        Ok(folded)
    }

    fn set(
        &mut self,
        conv: &Conv<'_>,
        scale: &Scale,
        panel: &Panel,
        lane: usize,
        class: usize,
        offset: i64,
        shift: i32,
    ) {
        let output = panel.first + lane;
        match (self, &conv.stage) {
            (Folded::Thresholds { steps, thresholds: to }, Stage::Thresholds { thresholds, .. }) => {
                for step in 0..*steps {
                    let threshold = thresholds[step * conv.outputs + output];
                    // Minus and plus infinity stay what they are: no sum reaches either end of 32 bits.
                    let folded = threshold.saturating_add(offset).div_euclid(scale.unit);
                    let folded = match threshold {
                        i64::MIN => i32::MIN,
                        i64::MAX => i32::MAX,
                        _ => folded.clamp(i32::MIN as i64, i32::MAX as i64) as i32,
                    };
                    let at = panel.folded + (class * *steps + step) * panel.width() + lane;
                    to[at] = folded.saturating_add(shift);
                }
            }
            (Folded::Affine { offsets, .. }, Stage::Affine(affine)) => {
                let offset = affine.bias[output] as f64 - affine.scale[output] as f64 * offset as f64;
                offsets[panel.folded + class * panel.width() + lane] = offset as f32;
            }
            _ => unreachable!("made from the same stage"),
        }
    }
}

impl Classes {
    fn spans(&self) -> impl Iterator<Item = (Span, Span)> + '_ {
        self.row_spans.iter().flat_map(|&rows| self.column_spans.iter().map(move |&columns| (rows, columns)))
    }
}

/// Thresholds that nothing exceeds.
fn unreachable(len: usize) -> Result<Aligned<i32>> {
    let mut thresholds = Aligned::new(len)?;
    thresholds.fill(i32::MAX);
    Ok(thresholds)
}

/// Σ q offset of one output channel over any rectangle of taps.
struct Inside {
    columns: usize,
    /// Sums over all taps above and left of a corner.
    corners: Vec<i64>,
}

impl Inside {
    fn new(conv: &Conv<'_>, scale: &Scale, output: usize, channels: usize) -> Result<Self> {
        let [rows, columns] = conv.window.kernel;
        let inner = channels / conv.groups;
        let first = output / (conv.outputs / conv.groups) * inner;
        let offset = |channel: usize| scale.offsets[(first + channel) % scale.offsets.len()];
        let mut corners = memory::filled(0i64, (rows + 1) * (columns + 1))?;
        let mut weights = conv.weights.integers(output, conv.inputs(channels));
        for y in 1..=rows {
            let mut row = 0;
            for x in 1..=columns {
                row += weights.by_ref().take(inner).enumerate().map(|(c, q)| q as i64 * offset(c)).sum::<i64>();
                corners[y * (columns + 1) + x] = corners[(y - 1) * (columns + 1) + x] + row;
            }
        }
        Ok(Inside { columns, corners })
    }

    fn sum(&self, rows: Span, columns: Span) -> i64 {
        let at = |y: usize, x: usize| self.corners[y * (self.columns + 1) + x];
        at(rows.1, columns.1) - at(rows.0, columns.1) - at(rows.1, columns.0) + at(rows.0, columns.0)
    }
}
