//! The legend: below all panels, where it covers nothing.

use super::lines::line_width;
use super::scene::{Anchor, Area, Colour, Scene, Shape, group_colour};
use super::{Panel, Style, font};

const TEXT_SIZE: f64 = 13.0;
const LINE_HEIGHT: f64 = 21.0;
/// Width of the sample of a line, and the gap between it and its name.
const SAMPLE: f64 = 28.0;
const SAMPLE_GAP: f64 = 7.0;
/// Between two entries.
const GAP: f64 = 24.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mark {
    Line(Style),
    Dot,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    colour: Colour,
    mark: Mark,
}

impl Entry {
    fn width(&self) -> f64 {
        SAMPLE + SAMPLE_GAP + font::width(&self.name, TEXT_SIZE)
    }
}

/// Entries broken into rows of at most a given width.
#[derive(Debug)]
pub(super) struct Legend {
    rows: Vec<Vec<Entry>>,
    /// The width of every entry, where they stand in columns.
    cell: Option<f64>,
}

impl Legend {
    /// Lists what the panels name, each thing once. Where that takes several rows they form columns, unless names
    /// of very different lengths would waste too much room.
    pub(super) fn new(panels: &[Panel], width: f64) -> Self {
        let mut entries = entries(panels);
        for entry in &mut entries {
            entry.name = font::fit(&entry.name, TEXT_SIZE, width - SAMPLE - SAMPLE_GAP);
        }
        let flowing = flow(&entries, width);
        let cell = entries.iter().map(Entry::width).fold(0.0, f64::max);
        let columns = (((width + GAP) / (cell + GAP)) as usize).max(1);
        if flowing.len() > 1 && columns > 1 && entries.len().div_ceil(columns) <= flowing.len() + 1 {
            // Rows of equal length rather than a full one and a rest.
            let columns = entries.len().div_ceil(entries.len().div_ceil(columns));
            let rows = entries.chunks(columns).map(<[Entry]>::to_vec).collect();
            return Self { rows, cell: Some(cell) };
        }
        Self { rows: flowing, cell: None }
    }

    pub(super) fn height(&self) -> f64 {
        if self.rows.is_empty() { 0.0 } else { self.rows.len() as f64 * LINE_HEIGHT + 6.0 }
    }

    /// Draws the rows into the middle of `area`.
    pub(super) fn draw(&self, area: Area, scene: &mut Scene) {
        let row_width = |row: &Vec<Entry>| {
            let widths = row.iter().map(|entry| self.cell.unwrap_or(entry.width()));
            widths.sum::<f64>() + GAP * (row.len() - 1) as f64
        };
        let widest = self.rows.iter().map(row_width).fold(0.0, f64::max);
        let mut y = area.top + 6.0 + LINE_HEIGHT / 2.0;
        for row in &self.rows {
            let width = if self.cell.is_some() { widest } else { row_width(row) };
            let mut x = area.left + (area.width - width) / 2.0;
            for entry in row {
                let colour = entry.colour;
                scene.shapes.push(match entry.mark {
                    Mark::Dot => Shape::Dot { centre: (x + SAMPLE / 2.0, y), radius: 5.0, fill: colour },
                    Mark::Line(style) => Shape::Line {
                        points: vec![(x, y), (x + SAMPLE, y)],
                        colour,
                        width: line_width(style),
                        dashed: style == Style::ThinDashed,
                    },
                });
                let at = (x + SAMPLE + SAMPLE_GAP, y + 0.36 * TEXT_SIZE);
                scene.text(at, &entry.name, TEXT_SIZE, Anchor::Start, Colour::TEXT);
                x += self.cell.unwrap_or(entry.width()) + GAP;
            }
            y += LINE_HEIGHT;
        }
    }
}

/// Fills one row after the other.
fn flow(entries: &[Entry], width: f64) -> Vec<Vec<Entry>> {
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    let mut used = f64::INFINITY;
    for entry in entries {
        used += GAP + entry.width();
        if used > width {
            used = entry.width();
            rows.push(Vec::new());
        }
        rows.last_mut().expect("the first entry opens a row").push(entry.clone());
    }
    rows
}

fn entries(panels: &[Panel]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut add = |name: &str, colour, mark| {
        let entry = Entry { name: name.to_owned(), colour, mark };
        if !name.is_empty() && !entries.contains(&entry) {
            entries.push(entry);
        }
    };
    for panel in panels {
        match panel {
            Panel::Lines(figure) => {
                for series in &figure.series {
                    add(&series.name, group_colour(series.group), Mark::Line(series.style));
                }
            }
            Panel::Heat(_) => {}
            Panel::Regions(regions) => {
                for (class, name) in regions.class_names.iter().enumerate() {
                    add(name, group_colour(class), Mark::Dot);
                }
            }
        }
    }
    // The styles come last: they hold for every name before them.
    for panel in panels {
        if let Panel::Lines(figure) = panel
            && let Some((dashed, solid)) = &figure.style_names
        {
            add(solid, Colour::QUIET_TEXT, Mark::Line(Style::Solid));
            add(dashed, Colour::QUIET_TEXT, Mark::Line(Style::ThinDashed));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Figure, Series};

    fn figure(names: &[&str]) -> Panel {
        let series = names.iter().enumerate().map(|(group, name)| Series {
            name: (*name).to_owned(),
            group,
            style: Style::Solid,
            points: Vec::new(),
        });
        Panel::Lines(Figure { series: series.collect(), ..Figure::default() })
    }

    #[test]
    fn each_thing_is_listed_once() {
        let legend = Legend::new(&[figure(&["a", "", "b"]), figure(&["a", "", "b"])], 1000.0);
        let names: Vec<_> = legend.rows.iter().flatten().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn rows_keep_to_the_width() {
        let legend = Legend::new(&[figure(&["first run", "second run", "third run", &"long ".repeat(99)])], 300.0);
        assert_eq!(legend.rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1]);
        assert!(legend.rows.iter().flatten().all(|entry| entry.width() <= 300.0));
        assert!(legend.cell.is_none());
        assert_eq!(Legend::new(&[figure(&[])], 300.0).height(), 0.0);
    }

    #[test]
    fn names_of_like_length_form_columns() {
        let names = ["run 1", "run 2", "run 3", "run 4", "run 5", "run 6", "run 7"];
        let legend = Legend::new(&[figure(&names)], 320.0);
        let lengths: Vec<usize> = legend.rows.iter().map(Vec::len).collect();
        assert!(legend.cell.is_some_and(|cell| lengths[0] as f64 * (cell + GAP) - GAP <= 320.0));
        assert_eq!(lengths, [3, 3, 1]);
    }
}
