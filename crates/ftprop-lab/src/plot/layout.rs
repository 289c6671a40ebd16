//! From a picture's description to shapes on a page.

use super::axes::Axes;
use super::legend::Legend;
use super::scene::{Anchor, Area, Colour, Scene};
use super::{Panel, Picture, font, heat, lines, regions};

const MARGIN: f64 = 12.0;
const GAP: f64 = 16.0;
const TITLE_SIZE: f64 = 17.0;

/// Lays the whole picture out.
pub(super) fn scene(picture: &Picture) -> Scene {
    let columns = picture.columns.clamp(1, picture.panels.len().max(1));
    let rows = picture.panels.len().div_ceil(columns).max(1);
    let panel = (sound(picture.panel_size.0), sound(picture.panel_size.1));
    let width = columns as f64 * (panel.0 + GAP) - GAP;
    let title_height = if picture.title.is_empty() { 0.0 } else { 1.9 * TITLE_SIZE };
    let legend = Legend::new(if picture.legend { &picture.panels } else { &[] }, width);
    let panels_height = rows as f64 * (panel.1 + GAP) - GAP;
    let height = title_height + panels_height + legend.height();

    let mut scene = Scene { width: width + 2.0 * MARGIN, height: height + 2.0 * MARGIN, shapes: Vec::new() };
    if !picture.title.is_empty() {
        let at = (MARGIN + width / 2.0, MARGIN + TITLE_SIZE);
        let text = font::fit(&picture.title, TITLE_SIZE, width);
        scene.text(at, &text, TITLE_SIZE, Anchor::Middle, Colour::TEXT);
    }
    let place = |index: usize| Area {
        left: MARGIN + (index % columns) as f64 * (panel.0 + GAP),
        top: MARGIN + title_height + (index / columns) as f64 * (panel.1 + GAP),
        width: panel.0,
        height: panel.1,
    };
    // Labels differ in width; the widest of a column decides where all its axes begin.
    let mut lefts = vec![0.0_f64; columns];
    for (index, content) in picture.panels.iter().enumerate() {
        let left = &mut lefts[index % columns];
        *left = left.max(axes(content, place(index), 0.0).map_or(0.0, |axes| axes.left()));
    }
    for (index, content) in picture.panels.iter().enumerate() {
        let axes = axes(content, place(index), lefts[index % columns]);
        match (content, &axes) {
            (Panel::Lines(figure), Some(axes)) => lines::draw(figure, axes, &mut scene),
            (Panel::Regions(plane), Some(axes)) => regions::draw(plane, axes, &mut scene),
            (Panel::Heat(heat), _) => heat::draw(heat, place(index), &mut scene),
            _ => {}
        }
    }
    let below = Area { left: MARGIN, top: MARGIN + title_height + panels_height, width, height: legend.height() };
    legend.draw(below, &mut scene);
    scene
}

/// The axes of a panel that has some.
fn axes(panel: &Panel, area: Area, least_left: f64) -> Option<Axes<'_>> {
    match panel {
        Panel::Lines(figure) => Some(lines::axes(figure, area, least_left)),
        Panel::Regions(plane) => Some(regions::axes(plane, area, least_left)),
        Panel::Heat(_) => None,
    }
}

/// A size that can be laid out: large enough for labels, whole so that lines are sharp.
fn sound(size: f64) -> f64 {
    if size.is_finite() { size.round().clamp(120.0, 4000.0) } else { 400.0 }
}
