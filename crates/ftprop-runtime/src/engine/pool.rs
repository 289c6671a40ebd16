//! Max-pooling of anything, and the operations that work on reals pixel by pixel.

use super::buffer::{Buffer, Format, Layout, Shared};
use super::finish::{self, Reader};
use super::team::Claims;
use super::{Budget, Context, Scratch};
use crate::error::Result;
use crate::memory;
use crate::model::{Activation, Affine, Kind, Preprocessing, Window};

pub(super) struct MaxPool {
    pub(super) input: usize,
    pub(super) output: usize,
    window: Window,
    /// What turns a channel's element round: steps − element, or for bits a mask. Empty where none is.
    turn: Vec<u8>,
}

impl MaxPool {
    pub(super) fn new(
        [input, output]: [usize; 2],
        window: Window,
        inverted: &[bool],
        kind: Kind,
        layouts: &[Layout],
        budget: &mut Budget,
    ) -> Result<Self> {
        budget.take(inverted.len() as u128)?;
        let steps = match kind {
            Kind::Levels(activation) => activation.steps().unwrap_or(0),
            _ => 0,
        };
        let turn = if layouts[input].format == Format::Bits {
            let mask = |four: &[bool]| four.iter().enumerate().fold(0, |mask, (bit, &on)| mask | (on as u8) << bit);
            memory::collect(inverted.chunks(4).map(mask))?
        } else {
            // A level that stays is taken from nothing, see `turn_levels`.
            memory::collect(inverted.iter().map(|&on| if on { steps } else { u8::MAX }))?
        };
        Ok(MaxPool { input, output, window, turn })
    }

    /// Into how many units the work is cut: rows.
    pub(super) fn units(&self, context: &Context<'_>) -> usize {
        context.images * context.layouts[self.output].shape.height
    }

    /// Computes the units it can claim.
    ///
    /// # Safety
    /// Nobody may write the input, or touch the output but by claiming other units.
    pub(super) unsafe fn run(&self, context: &Context<'_>, claims: &Claims) {
        let (from, to) = (&context.layouts[self.input], &context.layouts[self.output]);
        for unit in claims.of(self.units(context)) {
            let (image, y) = (unit / to.shape.height, unit % to.shape.height);
            // SAFETY: the caller's promise is passed on; an output row belongs to one unit.
            unsafe {
                match (&context.buffers[self.input], &context.buffers[self.output]) {
                    (Buffer::Bytes(input), Buffer::Bytes(output)) if from.format == Format::Bits => {
                        self.row(input, output, from, to, image, y, |most, next| most | next);
                        self.turn_row(output, to, image, y, |bits, mask| bits ^ mask);
                    }
                    (Buffer::Bytes(input), Buffer::Bytes(output)) => {
                        self.row(input, output, from, to, image, y, u8::max);
                        self.turn_row(
                            output,
                            to,
                            image,
                            y,
                            |level, steps| {
                                if steps == u8::MAX { level } else { steps - level }
                            },
                        );
                    }
                    (Buffer::Words(input), Buffer::Words(output)) => {
                        self.row(input, output, from, to, image, y, i16::max);
                    }
                    (Buffer::Reals(input), Buffer::Reals(output)) => {
                        self.row(input, output, from, to, image, y, |most, next| if next > most { next } else { most });
                    }
                    _ => unreachable!("a pool's input and output have one format"),
                }
            }
        }
    }

    unsafe fn row<T: Copy + Default>(
        &self,
        input: &Shared<T>,
        output: &Shared<T>,
        from: &Layout,
        to: &Layout,
        image: usize,
        y: usize,
        larger: impl Fn(T, T) -> T,
    ) {
        let span = |axis: usize, o: usize, side: usize| {
            let start = o * self.window.stride[axis];
            let pad = self.window.pad[axis];
            start.saturating_sub(pad)..(start + self.window.kernel[axis]).saturating_sub(pad).min(side)
        };
        // SAFETY: the caller's promise.
        let input = unsafe { input.all() };
        for x in 0..to.shape.width {
            let at = to.at(image, y, x);
            // SAFETY: as above.
            let most = unsafe { output.part(at..at + to.pixel) };
            let (rows, columns) = (span(0, y, from.shape.height), span(1, x, from.shape.width));
            if rows.len() == 2 && columns.len() == 2 {
                // The usual window, in one pass.
                let tap = |y: usize, x: usize| &input[from.at(image, rows.start + y, columns.start + x)..][..to.pixel];
                let (a, b, c, d) = (tap(0, 0), tap(0, 1), tap(1, 0), tap(1, 1));
                for ((((most, &a), &b), &c), &d) in most.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    *most = larger(larger(a, b), larger(c, d));
                }
                continue;
            }
            let mut first = true;
            for row in rows {
                for column in columns.clone() {
                    let next = &input[from.at(image, row, column)..][..to.pixel];
                    if std::mem::take(&mut first) {
                        most.copy_from_slice(next);
                    } else {
                        most.iter_mut().zip(next).for_each(|(most, &next)| *most = larger(*most, next));
                    }
                }
            }
        }
    }

    unsafe fn turn_row(&self, output: &Shared<u8>, to: &Layout, image: usize, y: usize, turn: impl Fn(u8, u8) -> u8) {
        if self.turn.is_empty() {
            return;
        }
        for x in 0..to.shape.width {
            let at = to.at(image, y, x);
            // SAFETY: the caller's promise.
            let pixel = unsafe { output.part(at..at + self.turn.len()) };
            pixel.iter_mut().zip(&self.turn).for_each(|(element, &by)| *element = turn(*element, by));
        }
    }
}

/// An operation that makes each output pixel from reals.
pub(super) struct Pointwise {
    kind: PointwiseKind,
    output: usize,
}

enum PointwiseKind {
    Average { input: usize, reader: Reader, window: Window },
    Map { input: usize, reader: Reader, affine: Affine },
    Add { inputs: [usize; 2], readers: [Reader; 2], activation: Option<Activation> },
}

impl Pointwise {
    pub(super) fn average(
        [input, output]: [usize; 2],
        window: Window,
        kind: Kind,
        about: &Preprocessing,
        budget: &mut Budget,
    ) -> Result<Self> {
        budget.take(Reader::size(kind, about))?;
        Ok(Pointwise { kind: PointwiseKind::Average { input, reader: Reader::new(kind, about)?, window }, output })
    }

    pub(super) fn map(
        [input, output]: [usize; 2],
        affine: &Affine,
        kind: Kind,
        about: &Preprocessing,
        budget: &mut Budget,
    ) -> Result<Self> {
        budget.take(Reader::size(kind, about))?;
        let affine = affine.copy()?;
        Ok(Pointwise { kind: PointwiseKind::Map { input, reader: Reader::new(kind, about)?, affine }, output })
    }

    pub(super) fn add(
        inputs: [usize; 2],
        output: usize,
        kinds: [Kind; 2],
        activation: Option<Activation>,
        about: &Preprocessing,
        budget: &mut Budget,
    ) -> Result<Self> {
        kinds.iter().try_for_each(|&kind| budget.take(Reader::size(kind, about)))?;
        let readers = [Reader::new(kinds[0], about)?, Reader::new(kinds[1], about)?];
        Ok(Pointwise { kind: PointwiseKind::Add { inputs, readers, activation }, output })
    }

    /// Into how many units the work is cut: rows.
    pub(super) fn units(&self, context: &Context<'_>) -> usize {
        context.images * context.layouts[self.output].shape.height
    }

    /// Computes the units it can claim.
    ///
    /// # Safety
    /// Nobody may write the inputs, or touch the output but by claiming other units.
    pub(super) unsafe fn run(&self, context: &Context<'_>, claims: &Claims, scratch: &mut Scratch) {
        let to = &context.layouts[self.output];
        let [reals, other] = &mut scratch.pixels;
        let (reals, other) = (&mut reals[..to.shape.channels], &mut other[..to.shape.channels]);
        for unit in claims.of(self.units(context)) {
            let (image, y) = (unit / to.shape.height, unit % to.shape.height);
            for x in 0..to.shape.width {
                // SAFETY: the caller's promise is passed on; an output row belongs to one unit.
                unsafe {
                    let activation = self.pixel(context, image, y, x, reals, other);
                    finish::write(reals, activation, to, &context.buffers[self.output], to.at(image, y, x), 0);
                }
            }
        }
    }

    unsafe fn pixel(
        &self,
        context: &Context<'_>,
        image: usize,
        y: usize,
        x: usize,
        reals: &mut [f32],
        other: &mut [f32],
    ) -> Option<Activation> {
        let read = |reader: &Reader, value: usize, y: usize, x: usize, to: &mut [f32]| {
            let at = context.layouts[value].at(image, y, x);
            // SAFETY: nobody writes the inputs, says the caller.
            unsafe { reader.read(&context.buffers[value], at, 0, to) }
        };
        match &self.kind {
            PointwiseKind::Average { input, reader, window } => {
                let shape = context.layouts[*input].shape;
                reals.fill(0.0);
                let span = |axis: usize, o: usize, side: usize| {
                    let (start, pad) = (o * window.stride[axis], window.pad[axis]);
                    start.saturating_sub(pad)..(start + window.kernel[axis]).saturating_sub(pad).min(side)
                };
                for row in span(0, y, shape.height) {
                    for column in span(1, x, shape.width) {
                        read(reader, *input, row, column, other);
                        reals.iter_mut().zip(&*other).for_each(|(sum, &next)| *sum += next);
                    }
                }
                let count = (window.kernel[0] * window.kernel[1]) as f32;
                reals.iter_mut().for_each(|sum| *sum /= count);
                None
            }
            PointwiseKind::Map { input, reader, affine } => {
                read(reader, *input, y, x, reals);
                for ((real, scale), bias) in reals.iter_mut().zip(&affine.scale).zip(&affine.bias) {
                    *real = *real * scale + bias;
                }
                affine.activation
            }
            PointwiseKind::Add { inputs, readers, activation } => {
                read(&readers[0], inputs[0], y, x, reals);
                read(&readers[1], inputs[1], y, x, other);
                reals.iter_mut().zip(&*other).for_each(|(sum, &next)| *sum += next);
                *activation
            }
        }
    }
}
