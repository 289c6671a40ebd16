//! The plain shapes a picture is made of, between its description and the two file formats.

/// Red, green and blue, 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    pub(super) const WHITE: Self = Self(255, 255, 255);
    pub(super) const TEXT: Self = Self(34, 34, 34);
    pub(super) const QUIET_TEXT: Self = Self(85, 85, 85);
    pub(super) const SPINE: Self = Self(136, 136, 136);
    pub(super) const GRID: Self = Self(230, 230, 230);

    /// Mixes with `other`: 0 is this colour, 1 the other.
    pub(super) fn mix(self, other: Self, share: f64) -> Self {
        let channel = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Self(channel(self.0, other.0), channel(self.1, other.1), channel(self.2, other.2))
    }
}

/// The colour of a group of series or of a class. The first seven are those of Okabe and Ito, without their yellow,
/// which is too light for lines on white; readers with any common colour blindness can tell them apart. Further
/// groups go through the same hues again, darker and then lighter.
pub fn group_colour(group: usize) -> Colour {
    const PALETTE: [Colour; 7] = [
        Colour(0, 114, 178),
        Colour(213, 94, 0),
        Colour(0, 158, 115),
        Colour(204, 121, 167),
        Colour(230, 159, 0),
        Colour(86, 180, 233),
        Colour(60, 60, 60),
    ];
    let hue = PALETTE[group % PALETTE.len()];
    match group / PALETTE.len() % 3 {
        0 => hue,
        1 => hue.mix(Colour(0, 0, 0), 0.45),
        _ => hue.mix(Colour::WHITE, 0.45),
    }
}

/// A rectangle, with `y` growing downwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The rectangle without a border of these widths; never of negative size.
    pub(super) fn without(&self, left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            left: self.left + left,
            top: self.top + top,
            width: (self.width - left - right).max(1.0),
            height: (self.height - top - bottom).max(1.0),
        }
    }

    pub(super) fn holds(&self, (x, y): (f64, f64)) -> bool {
        (self.left..=self.right()).contains(&x) && (self.top..=self.bottom()).contains(&y)
    }
}

/// Which point of a text its position means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// A filled rectangle, an outlined one, or both.
    Box { area: Area, fill: Option<Colour>, outline: Option<Colour> },
    /// A line through points.
    Line { points: Vec<(f64, f64)>, colour: Colour, width: f64, dashed: bool },
    /// A filled circle with a white rim.
    Dot { centre: (f64, f64), radius: f64, fill: Colour },
    /// A grid of coloured cells without seams, row by row from the top.
    Cells { area: Area, columns: usize, colours: Vec<Colour> },
    /// One line of text; `at` is on its base line. `upwards` turns it by a quarter.
    Text { at: (f64, f64), text: String, size: f64, anchor: Anchor, colour: Colour, upwards: bool },
}

/// Dash and gap of a dashed line.
pub(super) const DASHES: (f64, f64) = (5.0, 3.0);

/// Shapes in the order in which they are painted, on white.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64) {
        self.shapes.push(Shape::Line { points, colour, width, dashed: false });
    }

    pub(super) fn text(&mut self, at: (f64, f64), text: &str, size: f64, anchor: Anchor, colour: Colour) {
        self.shapes.push(Shape::Text { at, text: text.to_owned(), size, anchor, colour, upwards: false });
    }
}
