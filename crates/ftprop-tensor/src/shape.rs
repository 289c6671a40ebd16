//! The shape of one example.

use std::fmt;

/// Height, width and channels of one example, stored in that order; a vector has height and width 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Numbers a pixel.
    pub channels: usize,
}

impl Shape {
    /// A vector of that length.
    pub fn vector(len: usize) -> Self {
        Shape { height: 1, width: 1, channels: len }
    }

    /// Numbers of one example.
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether it has no numbers at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has one pixel.
    pub fn is_vector(&self) -> bool {
        self.height == 1 && self.width == 1
    }
}

/// Written as the paper's tables do: channels × height × width, a vector as its length.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_vector() {
            write!(f, "{}", self.channels)
        } else {
            write!(f, "{}×{}×{}", self.channels, self.height, self.width)
        }
    }
}
