//! A smaller pair of axes inside a figure's, that zooms in on a part of its lines.

use super::axes::{Axes, Labels};
use super::lines;
use super::scene::{Area, Colour, Scene, Shape};
use super::ticks;
use super::{Inset, Series};

/// Free space around an inset.
const MARGIN: f64 = 10.0;
const TEXT_SIZE: f64 = 11.0;

/// Draws `inset` over the figure whose lines and axes these are.
pub(super) fn draw(inset: &Inset, series: &[Series], axes: &Axes<'_>, scene: &mut Scene) {
    let Some(x_range) = ticks::usable(inset.x_range) else { return };
    let shown: Vec<Series> =
        series.iter().filter(|series| inset.only.is_none_or(|style| style == series.style)).cloned().collect();
    let y_range = inset.y_range.and_then(ticks::usable).unwrap_or_else(|| lines::y_range_within(&shown, x_range));

    let (zoomed_from, zoomed_to) = (axes.place((x_range.0, y_range.1)), axes.place((x_range.1, y_range.0)));
    let zoomed = Area {
        left: zoomed_from.0.max(axes.plot.left),
        top: zoomed_from.1.max(axes.plot.top),
        width: zoomed_to.0.min(axes.plot.right()) - zoomed_from.0.max(axes.plot.left),
        height: zoomed_to.1.min(axes.plot.bottom()) - zoomed_from.1.max(axes.plot.top),
    };
    let mut covered: Vec<(f64, f64)> =
        series.iter().flat_map(|series| lines::strokes(series, axes)).flat_map(dense).collect();
    // Its frame should stay in sight too.
    let (left, top, right, bottom) = (zoomed.left, zoomed.top, zoomed.right(), zoomed.bottom());
    covered.extend(dense(vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]));
    let outer = place(axes.plot, &covered);

    scene.shapes.push(Shape::Box { area: zoomed, fill: None, outline: Some(Colour::SPINE) });
    scene.shapes.push(Shape::Box { area: outer, fill: Some(Colour::WHITE), outline: Some(Colour::GRID) });
    let labels = Labels { title: &inset.label, ..Labels::default() };
    let inner = outer.without(6.0, 2.0, 6.0, 2.0);
    let axes = Axes::new(inner, x_range, y_range, lines::least_x_step(&shown), 0.0, labels, TEXT_SIZE);
    axes.draw_grid(scene);
    lines::draw_series(&shown, &axes, 0.85, scene);
    axes.draw_frame(scene);
}

/// The line again with points at most a few pixels apart.
fn dense(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    const SPACING: f64 = 4.0;
    let mut all: Vec<(f64, f64)> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        let pieces = (dx.hypot(dy) / SPACING).ceil().max(1.0);
        all.extend((1..=pieces as u32).map(|piece| {
            let share = f64::from(piece) / pieces;
            (pair[0].0 + share * dx, pair[0].1 + share * dy)
        }));
    }
    all
}

/// The largest place in `plot` that covers no point, the lower right first; else the one that covers fewest.
fn place(plot: Area, points: &[(f64, f64)]) -> Area {
    const SHARES: [(f64, f64); 5] = [(0.6, 0.56), (0.52, 0.5), (0.46, 0.44), (0.4, 0.4), (0.34, 0.36)];
    const POSITIONS: u32 = 12;
    let mut best: Option<(usize, Area)> = None;
    for (width, height) in SHARES {
        let (width, height) = (plot.width * width, plot.height * height);
        let free = (plot.width - width - 2.0 * MARGIN, plot.height - height - 2.0 * MARGIN);
        for down in (0..=POSITIONS).rev() {
            for across in (0..=POSITIONS).rev() {
                let share = |position: u32| f64::from(position) / f64::from(POSITIONS);
                let left = (plot.left + MARGIN + share(across) * free.0).round();
                let area = Area { left, top: (plot.top + MARGIN + share(down) * free.1).round(), width, height };
                let around = area.without(-MARGIN, -MARGIN, -MARGIN, -MARGIN);
                let covered = points.iter().filter(|point| around.holds(**point)).count();
                if covered == 0 {
                    return area;
                }
                if best.is_none_or(|(fewest, _)| covered < fewest) {
                    best = Some((covered, area));
                }
            }
        }
    }
    best.map_or(plot, |(_, area)| area)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: Area = Area { left: 50.0, top: 20.0, width: 600.0, height: 400.0 };

    #[test]
    fn an_inset_covers_no_line_where_there_is_room() {
        // Accuracies that rise quickly and stay: the room is below them.
        let rise = |x: f64| (50.0 + x, 420.0 - 330.0 * (1.0 - (-x / 60.0).exp()));
        let line = dense((0..=600).map(|x| rise(f64::from(x))).collect());
        let area = place(PLOT, &line);
        assert!(!line.iter().any(|point| area.holds(*point)));
        assert!(area.right() > 600.0 && area.bottom() > 370.0 && area.width > 200.0, "{area:?}");
    }

    #[test]
    fn without_room_it_still_lies_inside() {
        let everywhere: Vec<_> =
            (0..600).flat_map(|x| (0..80).map(move |y| (50.0 + f64::from(x), 20.0 + 5.0 * f64::from(y)))).collect();
        let area = place(PLOT, &everywhere);
        assert!(area.left >= PLOT.left && area.right() <= PLOT.right());
        assert!(area.top >= PLOT.top && area.bottom() <= PLOT.bottom());
    }
}
