//! The built-in font: how wide a text is, and its outlines.
//!
//! The file is DejaVu Sans cut down to Latin, Greek and a few signs; its licence stands beside it. What it has no letter for is
//! a box in PNG, so that nobody takes a name for an empty one; whoever shows the SVG has fonts of their own.

use std::sync::LazyLock;

use ttf_parser::{Face, OutlineBuilder};
use unicode_width::UnicodeWidthChar;

static FACE: LazyLock<Face<'static>> = LazyLock::new(|| {
    Face::parse(include_bytes!("../../assets/DejaVuSans-subset.ttf"), 0).expect("the built-in font is sound")
});

/// The width of `text` in pixels when it is written `size` pixels high.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| advance(character, size)).sum()
}

/// Shortens `text` with an ellipsis until it is at most `room` wide.
pub(super) fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    loop {
        kept.pop();
        let shortened: String = kept.iter().chain(&['…']).collect();
        if kept.is_empty() || width(&shortened, size) <= room {
            return shortened;
        }
    }
}

/// Walks the outlines of `text`, starting at the origin of the base line, in pixels, with `y` growing downwards.
pub(super) fn outline(text: &str, size: f64, pen: &mut dyn OutlineBuilder) {
    let mut scaled = Scaled { pen, scale: scale(size) as f32, x: 0.0 };
    for character in text.chars() {
        match FACE.glyph_index(character) {
            // A glyph without an outline, such as the space, only moves on.
            Some(glyph) => drop(FACE.outline_glyph(glyph, &mut scaled)),
            None => unknown(units(character), &mut scaled),
        }
        scaled.x += advance(character, size) as f32;
    }
}

fn scale(size: f64) -> f64 {
    size / f64::from(FACE.units_per_em())
}

fn advance(character: char, size: f64) -> f64 {
    f64::from(units(character)) * scale(size)
}

/// How far a character moves on, in the font's units.
fn units(character: char) -> u16 {
    let known = |character: char| FACE.glyph_hor_advance(FACE.glyph_index(character)?);
    known(character).unwrap_or_else(|| match character.width() {
        None | Some(0) => 0,
        Some(1) => known('?').unwrap_or(0),
        Some(_) => FACE.units_per_em(),
    })
}

/// A box in the place of a letter, as high as a capital.
fn unknown(advance: u16, pen: &mut dyn OutlineBuilder) {
    if advance == 0 {
        return;
    }
    let (wide, em) = (f32::from(advance), f32::from(FACE.units_per_em()));
    let (line, high) = (0.06 * em, 0.73 * em);
    // The inside goes round the other way, and stays empty.
    let corners = |by: f32| (0.08 * em + by, by, wide - 0.08 * em - by, high - by);
    let (left, low, right, top) = corners(0.0);
    let (inner_left, inner_low, inner_right, inner_top) = corners(line);
    for around in [
        [(left, low), (left, top), (right, top), (right, low)],
        [(inner_left, inner_low), (inner_right, inner_low), (inner_right, inner_top), (inner_left, inner_top)],
    ] {
        pen.move_to(around[0].0, around[0].1);
        around[1..].iter().for_each(|&(x, y)| pen.line_to(x, y));
        pen.close();
    }
}

/// Moves outlines from the font's units to pixels.
struct Scaled<'a> {
    pen: &'a mut dyn OutlineBuilder,
    scale: f32,
    x: f32,
}

impl Scaled<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, -y * self.scale)
    }
}

impl OutlineBuilder for Scaled<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.pen.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.pen.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.pen.curve_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.pen.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_charts_need() {
        let needed = "ABCxyz0189 %()−–…±×αβηλμσφΔΣ≤≥≈∞→²";
        let missing: Vec<char> = needed.chars().filter(|c| FACE.glyph_index(*c).is_none()).collect();
        assert_eq!(missing, []);
    }

    #[test]
    fn widths_add_up_and_scale() {
        assert_eq!(width("", 12.0), 0.0);
        assert!((width("ab", 12.0) - width("a", 12.0) - width("b", 12.0)).abs() < 1e-9);
        assert!((width("ab", 24.0) - 2.0 * width("ab", 12.0)).abs() < 1e-9);
        // DejaVu Sans has digits of 1303 of 2048 units.
        assert!((width("7", 2048.0) - 1303.0).abs() < 1e-9);
    }

    /// Counts what is drawn.
    #[derive(Default)]
    struct Closed(usize);

    impl OutlineBuilder for Closed {
        fn move_to(&mut self, _: f32, _: f32) {}
        fn line_to(&mut self, _: f32, _: f32) {}
        fn quad_to(&mut self, _: f32, _: f32, _: f32, _: f32) {}
        fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, _: f32, _: f32) {}
        fn close(&mut self) {
            self.0 += 1;
        }
    }

    /// They had left no trace in a picture.
    #[test]
    fn letters_that_the_font_has_not_are_boxes() {
        let drawn = |text: &str| {
            let mut pen = Closed::default();
            outline(text, 12.0, &mut pen);
            pen.0
        };
        assert_eq!((drawn("\u{732b}"), drawn("\u{732b}\u{1f431}"), drawn(" ")), (2, 4, 0));
        // As wide as others draw them, and nothing for what only changes the letter before.
        assert_eq!((width("\u{732b}", 12.0), width("\u{fe0f}", 12.0)), (12.0, 0.0));
    }

    #[test]
    fn long_texts_are_shortened_to_the_room_there_is() {
        assert_eq!(fit("short", 12.0, 100.0), "short");
        let fitted = fit("a rather long name of a run", 12.0, 80.0);
        assert!(fitted.ends_with('…') && width(&fitted, 12.0) <= 80.0, "{fitted}");
        assert_eq!(fit("x", 12.0, 0.0), "…");
    }
}
