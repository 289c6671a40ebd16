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
}

impl Legend {
    /// Lists what the panels name, each thing once.
    pub(super) fn new(panels: &[Panel], width: f64) -> Self {
        let mut rows: Vec<Vec<Entry>> = Vec::new();
        let mut used = f64::INFINITY;
        for mut entry in entries(panels) {
            entry.name = font::fit(&entry.name, TEXT_SIZE, width - SAMPLE - SAMPLE_GAP);
            used += GAP + entry.width();
            if used > width {
                used = entry.width();
                rows.push(Vec::new());
            }
            rows.last_mut().expect("the first entry opens a row").push(entry);
        }
        Self { rows }
    }

    pub(super) fn height(&self) -> f64 {
        if self.rows.is_empty() { 0.0 } else { self.rows.len() as f64 * LINE_HEIGHT + 6.0 }
    }

    /// Draws the rows into `area`, each in the middle.
    pub(super) fn draw(&self, area: Area, scene: &mut Scene) {
        let mut y = area.top + 6.0 + LINE_HEIGHT / 2.0;
        for row in &self.rows {
            let width = row.iter().map(Entry::width).sum::<f64>() + GAP * (row.len() - 1) as f64;
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
                x += entry.width() + GAP;
            }
            y += LINE_HEIGHT;
        }
    }
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
        assert_eq!(Legend::new(&[figure(&[])], 300.0).height(), 0.0);
    }
}
