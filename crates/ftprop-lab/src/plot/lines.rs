//! The lines of a [`Figure`].

use super::axes::{Axes, Labels};
use super::inset;
use super::scene::{Area, Scene, Shape, group_colour};
use super::ticks;
use super::{Figure, Series, Style};

/// The size of the text along the axes.
pub(super) const TEXT_SIZE: f64 = 13.0;

/// The axes that show all of the figure in `area`; see [`Axes::new`] for `least_left`.
pub(super) fn axes(figure: &Figure, area: Area, least_left: f64) -> Axes<'_> {
    let x_range = ticks::range(figure.series.iter().flat_map(|series| &series.points).map(|point| point.0));
    let x_range = x_range.unwrap_or((0.0, 1.0));
    let y_range = figure.y_range.and_then(ticks::usable).unwrap_or_else(|| y_range_within(&figure.series, x_range));
    let labels = Labels { title: &figure.title, x: &figure.x_label, y: &figure.y_label };
    Axes::new(area, x_range, y_range, least_x_step(&figure.series), least_left, labels, TEXT_SIZE)
}

pub(super) fn draw(figure: &Figure, axes: &Axes<'_>, scene: &mut Scene) {
    axes.draw_grid(scene);
    draw_series(&figure.series, axes, 1.0, scene);
    axes.draw_frame(scene);
    if let Some(inset) = &figure.inset {
        inset::draw(inset, &figure.series, axes, scene);
    }
}

/// The heights of all points over `x_range`, with a little room.
pub(super) fn y_range_within(series: &[Series], (from, to): (f64, f64)) -> (f64, f64) {
    let points = series.iter().flat_map(|series| &series.points);
    let heights = points.filter(|point| (from..=to).contains(&point.0)).map(|point| point.1);
    ticks::with_room(ticks::range(heights).unwrap_or((0.0, 1.0)), 0.04)
}

/// Epochs and steps are whole numbers, and so are the ticks between them.
pub(super) fn least_x_step(series: &[Series]) -> f64 {
    let whole = series.iter().flat_map(|series| &series.points).all(|point| point.0.fract() == 0.0);
    f64::from(u8::from(whole))
}

/// Draws all series, the thin ones below; `weight` scales the width of the lines.
pub(super) fn draw_series(series: &[Series], axes: &Axes<'_>, weight: f64, scene: &mut Scene) {
    for style in [Style::ThinDashed, Style::Solid] {
        for series in series.iter().filter(|series| series.style == style) {
            let colour = group_colour(series.group);
            let width = line_width(style) * weight;
            for points in strokes(series, axes) {
                match points[..] {
                    // A lone point has no line to be seen by.
                    [centre] => scene.shapes.push(Shape::Dot { centre, radius: 1.2 + 1.2 * width, fill: colour }),
                    _ => {
                        let dashed = style == Style::ThinDashed;
                        scene.shapes.push(Shape::Line { points, colour, width, dashed });
                    }
                }
            }
        }
    }
}

pub(super) fn line_width(style: Style) -> f64 {
    match style {
        Style::ThinDashed => 1.2,
        Style::Solid => 1.9,
    }
}

/// The parts of the series that are inside the axes, on the page.
pub(super) fn strokes(series: &Series, axes: &Axes<'_>) -> Vec<Vec<(f64, f64)>> {
    let drawable = |point: &(f64, f64)| ticks::drawable(point.0) && ticks::drawable(point.1);
    let mut strokes = Vec::new();
    for unbroken in series.points.split(|point| !drawable(point)) {
        let points: Vec<_> = unbroken.iter().map(|point| axes.place(*point)).collect();
        match points[..] {
            [point] if axes.plot.holds(point) => strokes.push(points),
            _ => clip(&points, axes.plot, &mut strokes),
        }
    }
    strokes
}

/// Cuts a line off where it leaves `area`, and adds the pieces to `pieces`.
fn clip(points: &[(f64, f64)], area: Area, pieces: &mut Vec<Vec<(f64, f64)>>) {
    let mut piece: Vec<(f64, f64)> = Vec::new();
    for pair in points.windows(2) {
        match clip_segment(pair[0], pair[1], area) {
            Some((from, to)) => {
                if piece.last() != Some(&from) {
                    pieces.extend((piece.len() > 1).then(|| std::mem::take(&mut piece)));
                    piece = vec![from];
                }
                piece.push(to);
            }
            None => pieces.extend((piece.len() > 1).then(|| std::mem::take(&mut piece))),
        }
    }
    pieces.extend((piece.len() > 1).then_some(piece));
}

/// The part of a segment inside `area`, by the method of Liang and Barsky.
fn clip_segment(from: (f64, f64), to: (f64, f64), area: Area) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
    let sides = [
        (-dx, from.0 - area.left),
        (dx, area.right() - from.0),
        (-dy, from.1 - area.top),
        (dy, area.bottom() - from.1),
    ];
    for (towards, distance) in sides {
        if towards == 0.0 {
            if distance < 0.0 {
                return None;
            }
        } else if towards < 0.0 {
            enter = enter.max(distance / towards);
        } else {
            leave = leave.min(distance / towards);
        }
    }
    let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    // Ends inside are kept as they are, so that neighbouring segments meet exactly.
    let start = if enter == 0.0 { from } else { at(enter) };
    let end = if leave == 1.0 { to } else { at(leave) };
    (enter <= leave).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, width: 10.0, height: 10.0 };

    fn clipped(points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = Vec::new();
        clip(points, AREA, &mut pieces);
        pieces
    }

    #[test]
    fn lines_inside_are_left_alone() {
        let line = [(1.0, 1.0), (2.0, 9.0), (10.0, 0.0)];
        assert_eq!(clipped(&line), [line.to_vec()]);
    }

    #[test]
    fn lines_are_cut_where_they_leave_and_enter() {
        let line = [(5.0, 5.0), (5.0, 15.0), (7.0, 15.0), (7.0, 5.0)];
        assert_eq!(clipped(&line), [vec![(5.0, 5.0), (5.0, 10.0)], vec![(7.0, 10.0), (7.0, 5.0)]]);
        assert_eq!(clipped(&[(-5.0, 5.0), (15.0, 5.0)]), [vec![(0.0, 5.0), (10.0, 5.0)]]);
        assert!(clipped(&[(-5.0, -5.0), (15.0, -5.0), (20.0, 4.0)]).is_empty());
    }

    #[test]
    fn whole_numbers_have_whole_ticks() {
        let series = |x| Series { name: String::new(), group: 0, style: Style::Solid, points: vec![(x, 0.0)] };
        assert_eq!(least_x_step(&[series(3.0)]), 1.0);
        assert_eq!(least_x_step(&[series(3.0), series(0.5)]), 0.0);
    }
}
