//! A square of shares, darker where they are larger.

use super::Heat;
use super::font;
use super::lines::TEXT_SIZE;
use super::scene::{Anchor, Area, Colour, Scene, Shape};

/// The most room that names take beside and below the square.
const MOST_ROOM: f64 = 150.0;
/// Cells smaller than this have no numbers in them.
const READABLE: f64 = 18.0;
const FULL: Colour = Colour(0, 90, 150);

pub(super) fn draw(heat: &Heat, area: Area, scene: &mut Scene) {
    let classes = heat.names.len();
    if classes == 0 {
        return;
    }
    let widest = heat.names.iter().map(|name| font::width(name, TEXT_SIZE)).fold(0.0, f64::max).min(MOST_ROOM);
    let room = widest + 2.6 * TEXT_SIZE;
    let inside = area.without(room, 4.0, 4.0, room);
    let side = inside.width.min(inside.height);
    let square = Area { width: side, height: side, ..inside };
    let cell = side / classes as f64;
    let colours = heat.shares.iter().map(|&share| Colour::WHITE.mix(FULL, share.clamp(0.0, 1.0).sqrt())).collect();
    scene.shapes.push(Shape::Cells { area: square, columns: classes, colours });
    numbers(heat, square, cell, scene);
    // Where there are many classes, only as many names as can stand beside each other.
    let every = (1.3 * TEXT_SIZE / cell).ceil().max(1.0) as usize;
    for (number, name) in heat.names.iter().enumerate().step_by(every) {
        let (name, middle) = (font::fit(name, TEXT_SIZE, widest + 1.0), (number as f64 + 0.5) * cell);
        let at = (square.left - 0.5 * TEXT_SIZE, square.top + middle + 0.35 * TEXT_SIZE);
        scene.text(at, &name, TEXT_SIZE, Anchor::End, Colour::QUIET_TEXT);
        let at = (square.left + middle + 0.35 * TEXT_SIZE, square.bottom() + 0.5 * TEXT_SIZE);
        upwards(at, &name, Anchor::End, scene);
    }
    let below = (square.left + side / 2.0, square.bottom() + room - 0.4 * TEXT_SIZE);
    scene.text(below, &heat.x_label, TEXT_SIZE, Anchor::Middle, Colour::TEXT);
    upwards((square.left - room + TEXT_SIZE, square.top + side / 2.0), &heat.y_label, Anchor::Middle, scene);
    scene.shapes.push(Shape::Box { area: square, fill: None, outline: Some(Colour::SPINE) });
}

/// How often, in each cell that has room for it.
fn numbers(heat: &Heat, square: Area, cell: f64, scene: &mut Scene) {
    if cell < READABLE {
        return;
    }
    let size = (0.45 * cell).min(TEXT_SIZE);
    let classes = heat.names.len();
    for (at, (&count, &share)) in heat.counts.iter().zip(&heat.shares).enumerate().filter(|(_, (c, _))| **c > 0) {
        let (row, column) = ((at / classes) as f64, (at % classes) as f64);
        let place = (square.left + (column + 0.5) * cell, square.top + (row + 0.5) * cell + 0.35 * size);
        let colour = if share > 0.4 { Colour::WHITE } else { Colour::TEXT };
        scene.text(place, &count.to_string(), size, Anchor::Middle, colour);
    }
}

fn upwards(at: (f64, f64), text: &str, anchor: Anchor, scene: &mut Scene) {
    let (text, size, colour) = (text.to_owned(), TEXT_SIZE, Colour::QUIET_TEXT);
    scene.shapes.push(Shape::Text { at, text, size, anchor, colour, upwards: true });
}
