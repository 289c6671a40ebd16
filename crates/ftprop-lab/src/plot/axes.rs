//! A pair of axes: where data goes on the page, grid, ticks and labels.

use super::font;
use super::scene::{Anchor, Area, Colour, Scene, Shape};
use super::ticks::Ticks;

/// What is written around a pair of axes; empty texts take no room.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Labels<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

#[derive(Debug, Clone)]
pub(super) struct Axes<'a> {
    /// Where the data is drawn.
    pub(super) plot: Area,
    outer: Area,
    x_range: (f64, f64),
    y_range: (f64, f64),
    x_ticks: Ticks,
    y_ticks: Ticks,
    labels: Labels<'a>,
    /// The size of the ticks' text; labels and title are larger.
    size: f64,
}

impl<'a> Axes<'a> {
    /// Axes that fill `outer` with all that is written around them. Ticks along x are at least `least_x_step` apart,
    /// and the data begins at least `least_left` from the left, so that panels below each other can line up.
    pub(super) fn new(
        outer: Area,
        x_range: (f64, f64),
        y_range: (f64, f64),
        least_x_step: f64,
        least_left: f64,
        labels: Labels<'a>,
        size: f64,
    ) -> Self {
        let line = |text: &str, room: f64| if text.is_empty() { 0.0 } else { room };
        let top = line(labels.title, 2.1 * size).max(0.6 * size);
        let bottom = 1.7 * size + line(labels.x, 1.6 * size);
        let y_ticks = Ticks::new(y_range, (outer.height - top - bottom) / (2.5 * size), 0.0);
        let left = (widest(&y_ticks, size) + 0.6 * size + line(labels.y, 1.8 * size)).ceil().max(least_left);
        let x_ticks = x_ticks(x_range, outer.width - left, least_x_step, size);
        // Half of the last label hangs over the end of the axis.
        let right = x_ticks.values.last().map_or(0.0, |last| font::width(&x_ticks.label(*last), size) / 2.0);
        let plot = outer.without(left, top.ceil(), right.ceil().max(4.0), bottom.ceil());
        Self { plot, outer, x_range, y_range, x_ticks, y_ticks, labels, size }
    }

    /// The room to the left of the data.
    pub(super) fn left(&self) -> f64 {
        self.plot.left - self.outer.left
    }

    /// Where a point of the data lies on the page.
    pub(super) fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, (low, high): (f64, f64)| (value - low) / (high - low);
        (
            self.plot.left + share(x, self.x_range) * self.plot.width,
            self.plot.bottom() - share(y, self.y_range) * self.plot.height,
        )
    }

    /// Grid lines, which belong below the data.
    pub(super) fn draw_grid(&self, scene: &mut Scene) {
        for (from, to) in self.grid() {
            scene.line(vec![from, to], Colour::GRID, 1.0);
        }
    }

    fn grid(&self) -> impl Iterator<Item = ((f64, f64), (f64, f64))> {
        let plot = self.plot;
        let upright = self.x_ticks.values.iter().map(move |value| {
            let x = self.place((*value, self.y_range.0)).0.round();
            ((x, plot.top), (x, plot.bottom()))
        });
        let level = self.y_ticks.values.iter().map(move |value| {
            let y = self.place((self.x_range.0, *value)).1.round();
            ((plot.left, y), (plot.right(), y))
        });
        upright.chain(level)
    }

    /// The lines of the axes and all texts, which belong above the data.
    pub(super) fn draw_frame(&self, scene: &mut Scene) {
        let Self { plot, outer, labels, size, .. } = *self;
        let corners = vec![(plot.left, plot.top), (plot.left, plot.bottom()), (plot.right(), plot.bottom())];
        scene.line(corners, Colour::SPINE, 1.0);
        for value in &self.x_ticks.values {
            let at = (self.place((*value, 0.0)).0.round(), plot.bottom() + 1.4 * size);
            scene.text(at, &self.x_ticks.label(*value), size, Anchor::Middle, Colour::QUIET_TEXT);
        }
        for value in &self.y_ticks.values {
            let at = (plot.left - 0.5 * size, self.place((0.0, *value)).1.round() + 0.36 * size);
            scene.text(at, &self.y_ticks.label(*value), size, Anchor::End, Colour::QUIET_TEXT);
        }
        let middle = (plot.left + plot.width / 2.0, plot.top + plot.height / 2.0);
        let label_size = 1.05 * size;
        if !labels.x.is_empty() {
            let text = font::fit(labels.x, label_size, plot.width);
            scene.text((middle.0, outer.bottom() - 0.4 * size), &text, label_size, Anchor::Middle, Colour::TEXT);
        }
        if !labels.y.is_empty() {
            scene.shapes.push(Shape::Text {
                at: (outer.left + 1.1 * size, middle.1),
                text: font::fit(labels.y, label_size, plot.height),
                size: label_size,
                anchor: Anchor::Middle,
                colour: Colour::TEXT,
                upwards: true,
            });
        }
        if !labels.title.is_empty() {
            let title_size = 1.15 * size;
            let text = font::fit(labels.title, title_size, outer.width);
            scene.text((middle.0, plot.top - 0.8 * size), &text, title_size, Anchor::Middle, Colour::TEXT);
        }
    }
}

fn widest(ticks: &Ticks, size: f64) -> f64 {
    ticks.values.iter().map(|value| font::width(&ticks.label(*value), size)).fold(0.0, f64::max)
}

/// As many ticks as `width` has room for, with some space between their labels.
fn x_ticks(range: (f64, f64), width: f64, least_step: f64, size: f64) -> Ticks {
    let mut count = width / (4.0 * size);
    loop {
        let ticks = Ticks::new(range, count, least_step);
        let needed = (widest(&ticks, size) + size) * ticks.values.len() as f64;
        if needed <= width || count <= 1.0 {
            return ticks;
        }
        count /= 1.5;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_along_x_do_not_touch() {
        for (range, width) in [((1.0, 300.0), 700.0), ((0.0, 3e9), 200.0), ((-1e-7, 1e-7), 150.0), ((0.0, 1.0), 1.0)] {
            let ticks = x_ticks(range, width, 0.0, 13.0);
            let needed = ticks.values.len() as f64 * (widest(&ticks, 13.0) + 13.0);
            assert!(needed <= width || ticks.values.len() <= 3, "{range:?}: {ticks:?}");
        }
    }
}
