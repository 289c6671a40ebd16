//! Which buffer each value has and which step each operation becomes.

use super::buffer::{Format, Layout};
use super::pool::{MaxPool, Pointwise};
use super::real::Real;
use super::team::Claims;
use super::whole::Whole;
use super::{Budget, Context, EngineOptions, Scratch};
use crate::error::Result;
use crate::kernels::Kernels;
use crate::memory;
use crate::model::{Codec, Conv, Kind, Model, Op, Preprocessing, Stage, Value};

/// An operation, ready to run.
pub(super) enum Step {
    Whole(Whole),
    Real(Real),
    MaxPool(MaxPool),
    Pointwise(Pointwise),
}

impl Step {
    /// Into how many units the work is cut.
    pub(super) fn units(&self, context: &Context<'_>) -> usize {
        match self {
            Step::Whole(whole) => whole.units(context),
            Step::Real(real) => real.units(context),
            Step::MaxPool(pool) => pool.units(context),
            Step::Pointwise(pointwise) => pointwise.units(context),
        }
    }

    /// Does the units it can claim.
    ///
    /// # Safety
    /// Nobody may write the step's inputs, or touch its output but by claiming other units.
    pub(super) unsafe fn run(&self, context: &Context<'_>, claims: &Claims, scratch: &mut Scratch) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match self {
                Step::Whole(whole) => whole.run(context, claims, scratch),
                Step::Real(real) => real.run(context, claims, scratch),
                Step::MaxPool(pool) => pool.run(context, claims),
                Step::Pointwise(pointwise) => pointwise.run(context, claims, scratch),
            }
        }
    }
}

/// A model made ready for some kernels and a number of images at a time.
pub(super) struct Plan {
    pub(super) layouts: Vec<Layout>,
    pub(super) steps: Vec<Step>,
    pub(super) about: Preprocessing,
    pub(super) classes: usize,
    /// Reals of scratch for copied taps.
    pub(super) taps: usize,
    /// The most channels of a value.
    pub(super) channels: usize,
}

impl Plan {
    pub(super) fn new(
        model: &Model<'_>,
        options: &EngineOptions,
        kernels: Kernels,
        images: usize,
        threads: usize,
        budget: &mut Budget,
    ) -> Result<Self> {
        let values = model.check()?;
        let about = &model.preprocessing;
        let readers = readers(model, &values);
        let formats = formats(model, &values, &readers, options.tables, kernels);
        let pads = pads(model, &values);
        let mut layouts = Vec::new();
        for ((value, format), pad) in values.iter().zip(formats).zip(pads) {
            layouts.push(Layout::new(format, value.shape, pad, images, budget)?);
        }
        // Each thread has buffers of its own; all are asked for before weights are packed.
        budget.take(layouts.iter().map(Layout::bytes).sum::<u128>() * (threads as u128 - 1))?;
        let mut steps = Vec::new();
        let mut taps = 0;
        for (number, op) in model.ops.iter().enumerate() {
            let output = number + 1;
            steps.push(match op {
                Op::Conv { input, conv } => {
                    let size = needed(model, &values, &readers[output], output);
                    let (ends, kind) = ([*input, output], values[*input].kind);
                    match (model.scale_of(kind).filter(|_| in_integers(conv, kind)), &conv.stage) {
                        (Some(scale), _) => Step::Whole(Whole::new(conv, &scale, ends, size, &layouts, budget)?),
                        (None, Stage::Affine(affine)) => {
                            let real = Real::new(conv, affine, kind, about, ends, size, &layouts, budget)?;
                            taps = taps.max(real.taps());
                            Step::Real(real)
                        }
                        (None, Stage::Thresholds { .. }) => unreachable!("refused by Model::check"),
                    }
                }
                Op::MaxPool { input, window, inverted } => {
                    let kind = values[*input].kind;
                    Step::MaxPool(MaxPool::new([*input, output], *window, inverted, kind, &layouts, budget)?)
                }
                Op::AveragePool { input, window } => {
                    let kind = values[*input].kind;
                    Step::Pointwise(Pointwise::average([*input, output], *window, kind, about, budget)?)
                }
                Op::Map { input, affine } => {
                    Step::Pointwise(Pointwise::map([*input, output], affine, values[*input].kind, about, budget)?)
                }
                Op::Add { inputs, activation } => {
                    let kinds = inputs.map(|input| values[input].kind);
                    Step::Pointwise(Pointwise::add(*inputs, output, kinds, *activation, about, budget)?)
                }
            });
        }
        let channels = values.iter().map(|value| value.shape.channels).max().unwrap_or(0);
        let classes = values[values.len() - 1].shape.channels;
        let about = Preprocessing { mean: memory::copy(&about.mean)?, std: memory::copy(&about.std)?, ..*about };
        Ok(Plan { layouts, steps, about, classes, taps, channels })
    }
}

/// Whether a layer is summed in integers.
fn in_integers(conv: &Conv<'_>, kind: Kind) -> bool {
    conv.weights.codec != Codec::F32 && kind != Kind::Real
}

/// For each value the operations that read it.
fn readers(model: &Model<'_>, values: &[Value]) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); values.len()];
    for (number, op) in model.ops.iter().enumerate() {
        op.inputs().for_each(|input| readers[input].push(number));
    }
    readers
}

/// Bits where everybody who reads a value takes them, else a byte a level.
fn formats(
    model: &Model<'_>,
    values: &[Value],
    readers: &[Vec<usize>],
    tables: Option<bool>,
    kernels: Kernels,
) -> Vec<Format> {
    let gives_bits = gives_bits(model);
    let mut formats = vec![Format::Reals; values.len()];
    for number in (0..values.len()).rev() {
        formats[number] = match values[number].kind {
            Kind::Real => Format::Reals,
            Kind::Image => Format::Words,
            Kind::Levels(activation) => {
                let all_bits = readers[number].iter().all(|&reader| match &model.ops[reader] {
                    Op::Conv { conv, .. } => takes_bits(conv, values[number], values[reader + 1], tables, kernels),
                    Op::MaxPool { .. } => formats[reader + 1] == Format::Bits,
                    _ => false,
                });
                let read = !readers[number].is_empty();
                let bits = all_bits && read && activation.steps() == Some(1) && gives_bits[number];
                if bits { Format::Bits } else { Format::Levels }
            }
        };
    }
    formats
}

fn takes_bits(conv: &Conv<'_>, from: Value, to: Value, tables: Option<bool>, kernels: Kernels) -> bool {
    let possible = conv.groups == 1 && in_integers(conv, from.kind);
    possible
        && tables.unwrap_or_else(|| {
            let weights = conv.inputs(from.shape.channels) * conv.outputs;
            kernels.prefers_tables(weights, to.shape.height * to.shape.width)
        })
}

/// Whether the operation that makes a value could write it as bits, for each value.
fn gives_bits(model: &Model<'_>) -> Vec<bool> {
    let mut gives = vec![false];
    for op in &model.ops {
        gives.push(match op {
            Op::Conv { conv, .. } => conv.groups == 1 && matches!(conv.stage, Stage::Thresholds { .. }),
            Op::MaxPool { input, .. } => gives[*input],
            _ => false,
        });
    }
    gives
}

/// The border of zeros that the layers in integers want around each value.
fn pads(model: &Model<'_>, values: &[Value]) -> Vec<[usize; 2]> {
    let mut pads = vec![[0; 2]; values.len()];
    for op in &model.ops {
        if let Op::Conv { input, conv } = op
            && in_integers(conv, values[*input].kind)
        {
            pads[*input] = [0, 1].map(|axis| pads[*input][axis].max(conv.window.pad[axis]));
        }
    }
    pads
}

/// Rows and columns of a layer's output that somebody reads: a pool may leave the last ones out.
fn needed(model: &Model<'_>, values: &[Value], readers: &[usize], number: usize) -> [usize; 2] {
    let shape = values[number].shape;
    let [reader] = readers else { return [shape.height, shape.width] };
    let Op::MaxPool { window, .. } = &model.ops[*reader] else { return [shape.height, shape.width] };
    let pooled = values[reader + 1].shape;
    let end = |axis: usize, outputs: usize, side: usize| {
        ((outputs - 1) * window.stride[axis] + window.kernel[axis] - window.pad[axis]).min(side)
    };
    [end(0, pooled.height, shape.height), end(1, pooled.width, shape.width)]
}
