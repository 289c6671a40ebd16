//! The shape of one example.

use std::fmt;

/// Height, width and channels of one example, stored in that order; a vector has height and width 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl Shape {
    pub fn vector(len: usize) -> Self {
        Shape { height: 1, width: 1, channels: len }
    }

    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

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
