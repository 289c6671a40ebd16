//! Shapes as a PNG file.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::scene::{Anchor, Area, Colour, DASHES, Scene, Shape};
use super::{PlotError, font};

/// The bytes of the file, with `scale` pixels for each pixel of the scene.
pub(super) fn write(scene: &Scene, scale: f64) -> Result<Vec<u8>, PlotError> {
    let (width, height) = ((scene.width * scale).ceil() as u32, (scene.height * scale).ceil() as u32);
    let fail = |why: String| PlotError::Raster { width, height, why };
    let pixmap = Pixmap::new(width, height).ok_or_else(|| fail("it is too large".to_owned()))?;
    let mut canvas = Canvas { pixmap, transform: Transform::from_scale(scale as f32, scale as f32) };
    canvas.pixmap.fill(Color::WHITE);
    for shape in &scene.shapes {
        canvas.draw(shape);
    }
    canvas.pixmap.encode_png().map_err(|error| fail(error.to_string()))
}

struct Canvas {
    pixmap: Pixmap,
    transform: Transform,
}

impl Canvas {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Box { area, fill, outline } => {
                let Some(path) = rectangle(area).map(PathBuilder::from_rect) else { return };
                if let Some(fill) = fill {
                    self.fill(&path, *fill, self.transform);
                }
                if let Some(outline) = outline {
                    self.stroke(&path, *outline, 1.0, false);
                }
            }
            Shape::Line { points, colour, width, dashed } => {
                let mut pen = PathBuilder::new();
                for (index, (x, y)) in points.iter().enumerate() {
                    match index {
                        0 => pen.move_to(*x as f32, *y as f32),
                        _ => pen.line_to(*x as f32, *y as f32),
                    }
                }
                if let Some(path) = pen.finish() {
                    self.stroke(&path, *colour, *width, *dashed);
                }
            }
            Shape::Dot { centre, radius, fill } => {
                if let Some(path) = PathBuilder::from_circle(centre.0 as f32, centre.1 as f32, *radius as f32) {
                    self.fill(&path, *fill, self.transform);
                    self.stroke(&path, Colour::WHITE, 0.8, false);
                }
            }
            Shape::Cells { area, columns, colours } => self.cells(area, *columns, colours),
            Shape::Text { at, text, size, anchor, colour, upwards } => {
                let back = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => font::width(text, *size) / 2.0,
                    Anchor::End => font::width(text, *size),
                };
                let mut pen = Pen(PathBuilder::new());
                font::outline(text, *size, &mut pen);
                if let Some(path) = pen.0.finish() {
                    let turn = Transform::from_rotate(if *upwards { -90.0 } else { 0.0 });
                    let place = Transform::from_translate(-back as f32, 0.0)
                        .post_concat(turn)
                        .post_translate(at.0 as f32, at.1 as f32)
                        .post_concat(self.transform);
                    self.fill(&path, *colour, place);
                }
            }
        }
    }

    fn fill(&mut self, path: &Path, colour: Colour, transform: Transform) {
        self.pixmap.fill_path(path, &paint(colour), FillRule::Winding, transform, None);
    }

    fn stroke(&mut self, path: &Path, colour: Colour, width: f64, dashed: bool) {
        let dash = dashed.then(|| StrokeDash::new(vec![DASHES.0 as f32, DASHES.1 as f32], 0.0)).flatten();
        let line_cap = if dashed { LineCap::Butt } else { LineCap::Round };
        let stroke = Stroke { width: width as f32, line_cap, line_join: LineJoin::Round, dash, ..Stroke::default() };
        self.pixmap.stroke_path(path, &paint(colour), &stroke, self.transform, None);
    }

    /// Without smoothing, so that no seams show between cells.
    fn cells(&mut self, area: &Area, columns: usize, colours: &[Colour]) {
        let rows = colours.len() / columns;
        let (width, height) = (area.width / columns as f64, area.height / rows as f64);
        for (row, cells) in colours.chunks_exact(columns).enumerate() {
            let mut column = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                let cell = Area {
                    left: area.left + column as f64 * width,
                    top: area.top + row as f64 * height,
                    width: run.len() as f64 * width,
                    height,
                };
                let hard = Paint { anti_alias: false, ..paint(run[0]) };
                if let Some(rectangle) = rectangle(&cell) {
                    self.pixmap.fill_rect(rectangle, &hard, self.transform, None);
                }
                column += run.len();
            }
        }
    }
}

fn rectangle(area: &Area) -> Option<Rect> {
    Rect::from_xywh(area.left as f32, area.top as f32, area.width as f32, area.height as f32)
}

fn paint(colour: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, 255);
    paint
}

/// Draws a font's outlines as a path.
struct Pen(PathBuilder);

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
