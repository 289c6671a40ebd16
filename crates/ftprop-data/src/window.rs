//! Cutting a normalised window out of a picture: the loader's inner loop.

use crate::augment::{Augment, Placement, Room};
use crate::{DataError, Normalize, Shape};

/// How windows of one shape are cut: one table of normalised values a channel.
#[derive(Debug)]
pub(crate) struct Cutter {
    window: Shape,
    pad: usize,
    /// Whether the padding is the picture mirrored at its edge, not black.
    reflect: bool,
    /// The side of what is blanked.
    cutout: usize,
    tables: Vec<[f32; 256]>,
    /// For pictures whose colours change, which no table can have.
    normalize: Normalize,
    /// A row of the window, black.
    black: Vec<f32>,
}

impl Cutter {
    pub(crate) fn new(window: Shape, augment: &Augment, normalize: &Normalize) -> Result<Self, DataError> {
        normalize.check(window.channels)?;
        let tables = normalize.tables();
        let black = (0..window.width * window.channels).map(|i| tables[i % window.channels][0]).collect();
        let &Augment { pad, reflect, cutout, .. } = augment;
        Ok(Cutter { window, pad, reflect, cutout, tables, normalize: normalize.clone(), black })
    }

    pub(crate) fn window(&self) -> Shape {
        self.window
    }

    /// How far the window can move in a padded picture of this height and width, which is at least as large.
    pub(crate) fn room(&self, height: usize, width: usize) -> Room {
        Room { x: width + 2 * self.pad - self.window.width, y: height + 2 * self.pad - self.window.height }
    }

    /// Writes the window at `placed` to `out`, which has the window's size.
    pub(crate) fn cut(&self, pixels: &[u8], height: usize, width: usize, placed: Placement, out: &mut [f32]) {
        let Some(colours) = placed.colours else {
            let write = |pixels: &[u8], out: &mut [f32]| self.look_up(pixels, placed.flip, out);
            return self.cut_by(pixels, height, width, placed, &self.black, out, write);
        };
        let write = |pixels: &[u8], out: &mut [f32]| {
            let write = |(out, pixel): (&mut [f32; 3], &[u8; 3])| *out = colours.apply(*pixel, &self.normalize);
            let (pixels, out) = (pixels.as_chunks().0.iter(), out.as_chunks_mut().0.iter_mut());
            if placed.flip { out.rev().zip(pixels).for_each(write) } else { out.zip(pixels).for_each(write) }
        };
        let black =
            if self.pad > 0 { colours.apply([0; 3], &self.normalize).repeat(self.window.width) } else { vec![] };
        self.cut_by(pixels, height, width, placed, &black, out, write);
    }

    /// The same of a picture of floats, for which there are no tables.
    pub(crate) fn cut_floats(
        &self,
        values: &[f32],
        height: usize,
        width: usize,
        placed: Placement,
        normalize: &Normalize,
        out: &mut [f32],
    ) {
        let channels = self.window.channels;
        self.cut_by(values, height, width, placed, &self.black, out, |values, out| {
            let write = |(out, pixel): (&mut [f32], &[f32])| {
                out.iter_mut().zip(pixel).enumerate().for_each(|(c, (o, &x))| *o = normalize.apply(x, c));
            };
            let (out, pixels) = (out.chunks_exact_mut(channels), values.chunks_exact(channels));
            if placed.flip { out.rev().zip(pixels).for_each(write) } else { out.zip(pixels).for_each(write) }
        });
    }

    /// Cuts a window out of a picture of any kind; `write` puts a run of pixels in place, normalised, and `black` is a row
    /// of the padding.
    fn cut_by<P>(
        &self,
        pixels: &[P],
        height: usize,
        width: usize,
        placed: Placement,
        black: &[f32],
        out: &mut [f32],
        write: impl Fn(&[P], &mut [f32]),
    ) {
        let (channels, columns) = (self.window.channels, self.window.width);
        // Columns `from..to` of the unmirrored window show the picture, those beside them the padding.
        let from = self.pad.saturating_sub(placed.x).min(columns);
        let to = (width + self.pad).saturating_sub(placed.x).clamp(from, columns);
        let first = (placed.x + from).saturating_sub(self.pad);
        let (left, right) = if placed.flip { (columns - to, columns - from) } else { (from, to) };
        for (row, out) in out.chunks_exact_mut(columns * channels).enumerate() {
            let y = placed.y + row;
            let inside = y >= self.pad && y < height + self.pad;
            if !inside && !self.reflect {
                out.copy_from_slice(black);
                continue;
            }
            let y = if inside { y - self.pad } else { mirrored(y, self.pad, height) };
            let start = y * width + first;
            let shown = &pixels[start * channels..(start + to - from) * channels];
            write(shown, &mut out[left * channels..right * channels]);
            if !self.reflect && (left, right) != (0, columns) {
                out[..left * channels].copy_from_slice(&black[..left * channels]);
                out[right * channels..].copy_from_slice(&black[right * channels..]);
            }
            if !self.reflect {
                continue;
            }
            for column in (0..from).chain(to..columns) {
                let at = (y * width + mirrored(placed.x + column, self.pad, width)) * channels;
                let column = if placed.flip { columns - 1 - column } else { column };
                let out = &mut out[column * channels..(column + 1) * channels];
                write(&pixels[at..at + channels], out);
            }
        }
        if let Some([row, column]) = placed.blank {
            self.blank(row, column, out);
        }
    }

    /// Blanks a square around a place of the window.
    fn blank(&self, row: usize, column: usize, out: &mut [f32]) {
        let (channels, columns) = (self.window.channels, self.window.width);
        let span = |middle: usize, end: usize| {
            let first = middle.saturating_sub(self.cutout / 2);
            first..(middle + self.cutout - self.cutout / 2).min(end)
        };
        let across = span(column, columns);
        for row in span(row, self.window.height) {
            out[(row * columns + across.start) * channels..(row * columns + across.end) * channels].fill(0.0);
        }
    }

    fn look_up(&self, pixels: &[u8], flip: bool, out: &mut [f32]) {
        // With the number of channels known the compiler drops every check from the loop.
        match self.tables.as_slice() {
            [grey] => look_up([grey], pixels, flip, out),
            [red, green, blue] => look_up([red, green, blue], pixels, flip, out),
            tables => {
                let pixels = pixels.chunks_exact(tables.len());
                let write = |(out, pixel): (&mut [f32], &[u8])| {
                    out.iter_mut().zip(tables).zip(pixel).for_each(|((o, t), &p)| *o = t[usize::from(p)]);
                };
                let out = out.chunks_exact_mut(tables.len());
                if flip { out.rev().zip(pixels).for_each(write) } else { out.zip(pixels).for_each(write) }
            }
        }
    }
}

/// The row or column of a picture that stands in the padding at a place of the padded one: the edge is a mirror, and not
/// repeated.
fn mirrored(at: usize, pad: usize, len: usize) -> usize {
    if at < pad {
        pad - at
    } else if at - pad < len {
        at - pad
    } else {
        2 * len - 2 - (at - pad)
    }
}

fn look_up<const C: usize>(tables: [&[f32; 256]; C], pixels: &[u8], flip: bool, out: &mut [f32]) {
    let (pixels, out) = (pixels.as_chunks::<C>().0.iter(), out.as_chunks_mut::<C>().0.iter_mut());
    let write = |(out, pixel): (&mut [f32; C], &[u8; C])| {
        for c in 0..C {
            out[c] = tables[c][usize::from(pixel[c])];
        }
    };
    if flip { out.rev().zip(pixels).for_each(write) } else { out.zip(pixels).for_each(write) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Colours;
    use ftprop_tensor::random::Stream;

    /// One value at a time, straight from the definition.
    fn slow(
        pixels: &[u8],
        shape: Shape,
        window: Shape,
        augment: &Augment,
        placed: Placement,
        n: &Normalize,
    ) -> Vec<f32> {
        let mut out = Vec::new();
        let (pad, half) = (augment.pad as isize, (augment.cutout / 2) as isize);
        let across = |at: isize, len: usize| match at {
            at if at < 0 => -at,
            at if at >= len as isize => 2 * (len as isize - 1) - at,
            at => at,
        };
        for row in 0..window.height {
            for shown in 0..window.width {
                let column = if placed.flip { window.width - 1 - shown } else { shown };
                let (mut y, mut x) = ((placed.y + row) as isize - pad, (placed.x + column) as isize - pad);
                if augment.reflect {
                    (y, x) = (across(y, shape.height), across(x, shape.width));
                }
                let inside = (0..shape.height as isize).contains(&y) && (0..shape.width as isize).contains(&x);
                let blank = placed.blank.is_some_and(|[r, c]| {
                    let near = |at: usize, middle: usize| {
                        let from = at as isize - (middle as isize - half);
                        (0..augment.cutout as isize).contains(&from)
                    };
                    near(row, r) && near(shown, c)
                });
                let raw = |c: usize| match inside {
                    true => pixels[(y as usize * shape.width + x as usize) * shape.channels + c],
                    false => 0,
                };
                for c in 0..shape.channels {
                    let value = match placed.colours {
                        Some(colours) => colours.apply([raw(0), raw(1), raw(2)], n)[c],
                        None => (f32::from(raw(c)) / n.full - n.mean[c]) / n.std[c],
                    };
                    out.push(if blank { 0.0 } else { value });
                }
            }
        }
        out
    }

    #[test]
    fn every_placement_of_odd_shapes_equals_the_slow_cut_bit_for_bit() {
        let random = Stream::numbered(5);
        let cases = [
            (1, 1, 1, 1, 1, 0, false),
            (3, 5, 1, 3, 5, 0, false),
            (4, 3, 3, 4, 3, 2, false),
            (4, 3, 3, 4, 3, 2, true),
            (5, 7, 3, 2, 3, 1, true),
            (6, 4, 2, 3, 9, 4, false),
            (6, 5, 2, 3, 9, 4, true),
        ];
        for (number, (height, width, channels, window_height, window_width, pad, reflect)) in
            cases.into_iter().enumerate()
        {
            let (shape, window) =
                (Shape::new(height, width, channels), Shape::new(window_height, window_width, channels));
            let normalize = Normalize::pixels(&[0.5, 0.25, 0.1][..channels], &[0.3, 0.2, 0.7][..channels]);
            let pixels: Vec<u8> = (0..shape.size()).map(|i| random.below(i as u64, 256) as u8).collect();
            let augment = Augment { pad, reflect, cutout: number, ..Augment::CIFAR };
            let cutter = Cutter::new(window, &augment, &normalize).unwrap();
            let room = cutter.room(height, width);
            for (x, y) in (0..=room.x).flat_map(|x| (0..=room.y).map(move |y| (x, y))) {
                for flip in [false, true] {
                    let blank = (number > 0).then_some([y % window_height, x % window_width]);
                    let placed = Placement { x, y, flip, blank, colours: None };
                    let mut fast = vec![f32::NAN; window.size()];
                    cutter.cut(&pixels, height, width, placed, &mut fast);
                    let expected = slow(&pixels, shape, window, &augment, placed, &normalize);
                    assert_eq!(fast, expected, "{shape:?} {placed:?}");
                    let floats: Vec<f32> = pixels.iter().map(|&byte| f32::from(byte)).collect();
                    cutter.cut_floats(&floats, height, width, placed, &normalize, &mut fast);
                    assert_eq!(fast, expected, "floats, {shape:?} {placed:?}");
                    if channels == 3 && number % 2 == 1 {
                        let colours = Colours { brightness: 1.3, contrast: 0.7, saturation: 0.4 };
                        let placed = Placement { colours: Some(colours), ..placed };
                        cutter.cut(&pixels, height, width, placed, &mut fast);
                        let expected = slow(&pixels, shape, window, &augment, placed, &normalize);
                        assert_eq!(fast, expected, "colours, {shape:?} {placed:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn normalising_must_fit_the_channels() {
        let shape = Shape::new(2, 2, 3);
        assert!(Cutter::new(shape, &Augment::default(), &Normalize::pixels(&[0.5], &[0.5])).is_err());
        assert!(Cutter::new(shape, &Augment::default(), &Normalize::pixels(&[0.5; 3], &[0.5, 0.0, 0.5])).is_err());
    }
}
