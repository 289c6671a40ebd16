//! How large the photographs of a data set are, as far as a look at some of them tells.

use crate::decode;
use crate::split::{Content, Split};

/// Photographs that are looked at, evenly over all of them.
const LOOKED_AT: usize = 256;

impl Split {
    /// The median of some photographs' shorter edges, from their headers alone; none for other examples, and where none of them
    /// can be read.
    ///
    /// ```
    /// use ftprop_data::{Shape, Split};
    /// let three = Split::from_pictures(&[(2, 3), (4, 5), (9, 7)], vec![0; 267], vec![0, 1, 0], Shape::new(2, 2, 3))?;
    /// assert_eq!(three.typical_edge(), Some(4));
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn typical_edge(&self) -> Option<usize> {
        let edge = |number: usize| match self.content() {
            Content::Files { paths, .. } => decode::size(&paths[number]),
            Content::Pictures(pictures) => Some(pictures.size(number)),
            Content::Pixels { .. } | Content::Floats { .. } => None,
        };
        let some = LOOKED_AT.min(self.len());
        let numbers = (0..some).map(|i| self.number(i * self.len() / some));
        let mut edges: Vec<usize> = numbers.filter_map(edge).map(|(height, width)| height.min(width)).collect();
        edges.sort_unstable();
        edges.get(edges.len() / 2).copied()
    }
}
