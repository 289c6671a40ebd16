//! Charts as SVG and PNG, drawn from one description.
//!
//! A [`Picture`] is a grid of panels with one legend below them. A panel is a [`Figure`] (lines over one pair of
//! axes, with an optional inset that zooms in on a part of them), a [`Regions`] (which class a classifier gives to
//! each point of a plane) or a [`Heat`] (which classes it takes for which). [`curves`] makes the picture of one run's training, or of many runs compared.
//!
//! A picture becomes a list of plain shapes, and one small writer for each format draws those. Text in the PNG comes
//! from a font that is built in, so a machine without any fonts draws the same bytes.
//!
//! ```
//! use ftprop_lab::plot::{Figure, Picture, Series, Style};
//!
//! let points = (1..=10).map(|epoch| (f64::from(epoch), 90.0 - 40.0 / f64::from(epoch))).collect();
//! let figure = Figure {
//!     x_label: "epoch".into(),
//!     y_label: "accuracy (%)".into(),
//!     series: vec![Series { name: "test".into(), group: 0, style: Style::Solid, points }],
//!     ..Figure::default()
//! };
//! let picture = Picture::of(figure);
//! assert!(picture.svg().starts_with("<svg "));
//! assert!(picture.png()?.starts_with(b"\x89PNG"));
//! # Ok::<(), ftprop_lab::plot::PlotError>(())
//! ```

mod axes;
mod curves;
mod font;
mod heat;
mod inset;
mod layout;
mod legend;
mod lines;
mod raster;
mod regions;
mod scene;
mod svg;
mod ticks;

use std::path::{Path, PathBuf};

pub use curves::{CurveOptions, Curves, EpochPoint, curves};
pub use scene::{Colour, group_colour};

use ftprop_train::files::{self, FileError};

/// Why a picture could not be drawn or kept.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of a kind that is not written.
    #[error("{path}: pictures are written as .svg and .png, not as .{ending}; leave the ending out")]
    Ending {
        /// Where the picture was to be.
        path: PathBuf,
        /// The ending.
        ending: String,
    },
    /// A picture is too large.
    #[error("a picture of {width} by {height} pixels cannot be drawn: {why}; draw fewer or smaller panels")]
    Raster {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
        /// What the painter says.
        why: String,
    },
}

/// Panels in a grid, row by row, over one legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Above everything; empty for none.
    pub title: String,
    /// Row by row.
    pub panels: Vec<Panel>,
    /// Panels side by side.
    pub columns: usize,
    /// Width and height of one panel, with its title and labels, in pixels at normal size.
    pub panel_size: (f64, f64),
    /// Whether the names of all panels' series and classes are explained below them.
    pub legend: bool,
}

/// One field of a [`Picture`].
#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    /// Lines over a pair of axes.
    Lines(Figure),
    /// A plane coloured by class.
    Regions(Regions),
    /// Which of some classes are taken for which.
    Heat(Heat),
}

/// Lines over one pair of axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Above the axes; empty for none.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// The lines, later ones on top.
    pub series: Vec<Series>,
    /// What the vertical axis spans; the data with a little room when not given.
    pub y_range: Option<(f64, f64)>,
    /// A part of the lines, larger.
    pub inset: Option<Inset>,
    /// Explains the two line styles in the legend, as (thin dashed, solid), for when names stand for colours only.
    pub style_names: Option<(String, String)>,
}

/// One line of a [`Figure`].
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend; a series without one is not listed.
    pub name: String,
    /// Series of one group share a colour.
    pub group: usize,
    /// How it is drawn.
    pub style: Style,
    /// Where a coordinate is not a finite number, the line is interrupted.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Thin and dashed, for what matters less.
    ThinDashed,
    /// Thick and solid.
    Solid,
}

/// A second pair of axes inside the first, placed where it covers the least, that shows a part of the same lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Inset {
    /// The part of the horizontal axis that it shows.
    pub x_range: (f64, f64),
    /// The data in `x_range` with a little room when not given.
    pub y_range: Option<(f64, f64)>,
    /// Shows the lines of this style only, where one is given.
    pub only: Option<Style>,
    /// Written above the inset; empty for none.
    pub label: String,
}

/// A plane whose cells are coloured by class, with points on top: a classifier's decision regions, or what one
/// hidden unit answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Regions {
    /// Above the plane; empty for none.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// What the cells span.
    pub x_range: (f64, f64),
    /// What the cells span upwards.
    pub y_range: (f64, f64),
    /// Cells in a row.
    pub columns: usize,
    /// The class of each cell, row by row from the lowest `y` upwards.
    pub cells: Vec<usize>,
    /// `(x, y, class)` of points to draw on top.
    pub points: Vec<(f64, f64, usize)>,
    /// Names of the classes for the legend.
    pub class_names: Vec<String>,
}

/// A square of shares of classes, a row for each class from the top, darker where they are larger.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heat {
    /// Below the square.
    pub x_label: String,
    /// Beside the square.
    pub y_label: String,
    /// The classes, for rows and columns.
    pub names: Vec<String>,
    /// 0 to 1, row by row.
    pub shares: Vec<f64>,
    /// What is written into the cells, row by row; nothing for 0.
    pub counts: Vec<u64>,
}

impl Picture {
    /// A picture of one figure, 800 pixels wide.
    pub fn of(figure: Figure) -> Self {
        Self {
            title: String::new(),
            panels: vec![Panel::Lines(figure)],
            columns: 1,
            panel_size: (776.0, 440.0),
            legend: true,
        }
    }

    /// The picture as the text of an SVG file.
    pub fn svg(&self) -> String {
        svg::write(&layout::scene(self), &self.description())
    }

    /// The picture as the bytes of a PNG file, at two pixels for each pixel of normal size.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        raster::write(&layout::scene(self), 2.0)
    }

    /// Writes two files, `path` with `.svg` and with `.png`; one of these endings that `path` already has is not
    /// doubled. Gives the path without it.
    pub fn save(&self, path: &Path) -> Result<PathBuf, PlotError> {
        let base = base_path(path)?;
        let with_ending = |ending: &str| {
            let mut whole = base.clone().into_os_string();
            whole.push(ending);
            PathBuf::from(whole)
        };
        files::write(&with_ending(".svg"), self.svg().as_bytes())?;
        files::write(&with_ending(".png"), &self.png()?)?;
        Ok(base)
    }

    /// The picture in words, for readers who cannot see it.
    fn description(&self) -> String {
        let titles = self.panels.iter().map(|panel| match panel {
            Panel::Lines(figure) if figure.title.is_empty() => format!("{} by {}", figure.y_label, figure.x_label),
            Panel::Lines(figure) => figure.title.clone(),
            Panel::Regions(regions) => regions.title.clone(),
            Panel::Heat(heat) => format!("{} by {}", heat.y_label, heat.x_label),
        });
        let all: Vec<String> = std::iter::once(self.title.clone()).chain(titles).filter(|t| !t.is_empty()).collect();
        all.join("; ")
    }
}

/// What pictures and papers are often called by other programs.
const NOT_WRITTEN: [&str; 13] =
    ["pdf", "eps", "ps", "jpg", "jpeg", "gif", "webp", "tif", "tiff", "bmp", "html", "emf", "tex"];

/// A picture's path without one of the endings that are written; refuses an ending that is another kind of file's.
pub fn base_path(path: &Path) -> Result<PathBuf, PlotError> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if NOT_WRITTEN.contains(&ending.to_ascii_lowercase().as_str()) {
        return Err(PlotError::Ending { path: path.to_owned(), ending: ending.to_owned() });
    }
    Ok(if ending == "svg" || ending == "png" { path.with_extension("") } else { path.to_owned() })
}

#[cfg(test)]
mod tests;
