//! A plane whose cells are coloured by class.

use super::Regions;
use super::axes::{Axes, Labels};
use super::lines::TEXT_SIZE;
use super::scene::{Area, Colour, Scene, Shape, group_colour};
use super::ticks;

/// The axes that show the whole plane in `area`; see [`Axes::new`] for `least_left`.
pub(super) fn axes(regions: &Regions, area: Area, least_left: f64) -> Axes<'_> {
    let x_range = ticks::usable(regions.x_range).unwrap_or((0.0, 1.0));
    let y_range = ticks::usable(regions.y_range).unwrap_or((0.0, 1.0));
    let labels = Labels { title: &regions.title, x: &regions.x_label, y: &regions.y_label };
    Axes::new(area, x_range, y_range, 0.0, least_left, labels, TEXT_SIZE)
}

pub(super) fn draw(regions: &Regions, axes: &Axes<'_>, scene: &mut Scene) {
    if regions.columns > 0 {
        // Described from below, drawn from above.
        let rows = regions.cells.chunks_exact(regions.columns).rev();
        let colours = rows.flatten().map(|class| group_colour(*class).mix(Colour::WHITE, 0.68)).collect();
        scene.shapes.push(Shape::Cells { area: axes.plot, columns: regions.columns, colours });
    }
    for (x, y, class) in &regions.points {
        let centre = axes.place((*x, *y));
        if axes.plot.holds(centre) {
            scene.shapes.push(Shape::Dot { centre, radius: 3.2, fill: group_colour(*class) });
        }
    }
    axes.draw_frame(scene);
}
