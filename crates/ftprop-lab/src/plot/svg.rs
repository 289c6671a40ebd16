//! Shapes as an SVG file.

use std::fmt::Write;

use super::scene::{Anchor, Area, Colour, DASHES, Scene, Shape};
use ftprop_train::words::plain;

/// Fonts as wide as the built-in one come first, so that labels keep their distances.
const FONTS: &str = "DejaVu Sans, Verdana, Bitstream Vera Sans, Helvetica, Arial, sans-serif";

/// The text of the file; `description` is what a screen reader says.
pub(super) fn write(scene: &Scene, description: &str) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FONTS}\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        escape(description)
    );
    for shape in &scene.shapes {
        svg.push_str(&element(shape));
        svg.push('\n');
    }
    svg.push_str("</svg>\n");
    svg
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Box { area, fill, outline } => {
            let colour = |colour: &Option<Colour>| colour.map_or("none".to_owned(), hex);
            format!("<rect {} fill=\"{}\" stroke=\"{}\"/>", place(area), colour(fill), colour(outline))
        }
        Shape::Line { points, colour, width, dashed } => {
            let pairs: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
            // Level and upright lines of the grid would blur between pixels.
            let straight = points.len() == 2 && (points[0].0 == points[1].0 || points[0].1 == points[1].1);
            let manner = match (dashed, straight) {
                (true, _) => format!(" stroke-dasharray=\"{} {}\"", number(DASHES.0), number(DASHES.1)),
                (false, true) => " shape-rendering=\"crispEdges\"".to_owned(),
                (false, false) => " stroke-linecap=\"round\"".to_owned(),
            };
            format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
                 stroke-linejoin=\"round\"{manner}/>",
                pairs.join(" "),
                hex(*colour),
                number(*width)
            )
        }
        Shape::Dot { centre, radius, fill } => format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.8\"/>",
            number(centre.0),
            number(centre.1),
            number(*radius),
            hex(*fill)
        ),
        Shape::Cells { area, columns, colours } => cells(area, *columns, colours),
        Shape::Text { at, text, size, anchor, colour, upwards } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let (x, y) = (number(at.0), number(at.1));
            let turn = if *upwards { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            format!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\"{turn}>{}</text>",
                number(*size),
                hex(*colour),
                escape(text)
            )
        }
    }
}

/// One path a colour, in the units of the grid; runs of equal cells in a row are one rectangle.
fn cells(area: &Area, columns: usize, colours: &[Colour]) -> String {
    let mut paths: Vec<(Colour, String)> = Vec::new();
    for (row, cells) in colours.chunks_exact(columns).enumerate() {
        let mut column = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let path = match paths.iter().position(|(colour, _)| *colour == run[0]) {
                Some(found) => &mut paths[found].1,
                None => {
                    paths.push((run[0], String::new()));
                    &mut paths.last_mut().expect("just pushed").1
                }
            };
            // Writing to a string cannot fail.
            let _ = write!(path, "M{column} {row}h{}v1h-{}z", run.len(), run.len());
            column += run.len();
        }
    }
    let rows = colours.len() / columns;
    let paths: String =
        paths.iter().map(|(colour, path)| format!("<path fill=\"{}\" d=\"{path}\"/>", hex(*colour))).collect();
    format!(
        "<svg {} viewBox=\"0 0 {columns} {rows}\" preserveAspectRatio=\"none\" shape-rendering=\"crispEdges\">{paths}</svg>",
        place(area)
    )
}

fn place(area: &Area) -> String {
    format!(
        "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        number(area.left),
        number(area.top),
        number(area.width),
        number(area.height)
    )
}

fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

/// Two decimals are enough for the eye, and none are written where none are needed.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Makes any text safe inside an element; control characters are not allowed in XML at all.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(10.0), number(0.5), number(1.0 / 3.0), number(-120.004)], ["10", "0.5", "0.33", "-120"]);
    }

    #[test]
    fn names_cannot_break_out_of_the_text() {
        assert_eq!(escape("a<b>&\u{1b}[0m"), "a&lt;b&gt;&amp;\\u{1b}[0m");
    }

    #[test]
    fn equal_cells_share_a_rectangle() {
        let (a, b) = (Colour(1, 1, 1), Colour(2, 2, 2));
        let area = Area { left: 0.0, top: 0.0, width: 30.0, height: 20.0 };
        let text = cells(&area, 3, &[a, a, b, b, a, a]);
        assert!(text.contains("<path fill=\"#010101\" d=\"M0 0h2v1h-2zM1 1h2v1h-2z\"/>"), "{text}");
        assert!(text.contains("<path fill=\"#020202\" d=\"M2 0h1v1h-1zM0 1h1v1h-1z\"/>"), "{text}");
    }
}
