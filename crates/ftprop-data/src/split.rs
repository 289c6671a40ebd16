//! A split: examples with their labels, cheap to clone and to take parts of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ftprop_tensor::random::{Permutation, Purpose, Stream};

use crate::DataError;
use crate::memory::Memory;
use crate::pictures::{PictureFile, Pictures};
use crate::preprocess::Shape;
use crate::sizes::check_sizes;

/// Where the values of the examples are.
#[derive(Debug)]
pub(crate) enum Content {
    /// Pictures in memory, NHWC, one byte a value.
    Pixels { shape: Shape, bytes: Memory<u8> },
    /// Rows of a table, or pictures of floats in memory, NHWC.
    Floats { shape: Shape, values: Memory<f32> },
    /// RGB pictures in files, read when they are needed; the shorter edge is resized to `resize` pixels.
    Files { paths: Vec<PathBuf>, resize: usize },
    /// RGB pictures of a prepared file.
    Pictures(Pictures),
}

#[derive(Debug)]
struct Store {
    content: Content,
    labels: Vec<u32>,
}

/// Examples with their labels.
///
/// Clones and parts share the examples. An example has a *number*, its place among all the examples that were
/// read, and a *position* in this split; the two differ once some examples were held out.
#[derive(Clone, Debug)]
pub struct Split {
    store: Arc<Store>,
    /// The numbers of this split's examples, where it does not hold all of them.
    chosen: Option<Arc<[u32]>>,
    window: Shape,
    /// For photographs: what the shorter edge is resized to, where that is not what they were opened with.
    resize: Option<usize>,
}

/// How many examples to hold out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HoldOut {
    /// So many.
    Count(usize),
    /// Of the examples, rounded to the nearest whole number.
    Fraction(f64),
}

impl Split {
    /// Pictures in memory: bytes in the order NHWC, and a label for each picture. The bytes are not copied, so they may
    /// be anybody's.
    ///
    /// ```
    /// use ftprop_data::{Shape, Split};
    /// let two = Split::from_pixels(Shape::new(1, 2, 1), vec![0, 255, 255, 0], vec![0, 1])?;
    /// assert_eq!((two.len(), two.label(1)), (2, 1));
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn from_pixels(
        shape: Shape,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        labels: Vec<u32>,
    ) -> Result<Split, DataError> {
        let bytes = Memory::new(bytes);
        check_count(bytes.get().len(), shape.size(), labels.len())?;
        Ok(Split::new(Content::Pixels { shape, bytes }, labels, shape))
    }

    /// RGB pictures of different heights and widths in memory, one after the other, a label for each, and the shape in which
    /// a loader delivers them, which fits into each. The bytes are not copied.
    ///
    /// ```
    /// use ftprop_data::{Shape, Split};
    /// let two = Split::from_pictures(&[(2, 3), (4, 2)], vec![9; 42], vec![0, 1], Shape::new(2, 2, 3))?;
    /// assert_eq!(two.len(), 2);
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn from_pictures(
        sizes: &[(usize, usize)],
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        labels: Vec<u32>,
        window: Shape,
    ) -> Result<Split, DataError> {
        let file = Arc::new(PictureFile::in_memory(sizes, Memory::new(bytes))?);
        let fits = |&(height, width): &(usize, usize)| height >= window.height && width >= window.width;
        if labels.len() != sizes.len() || window.channels != 3 || window.size() == 0 || !sizes.iter().all(fits) {
            let why = "there is a label for each picture, and the window is RGB and no larger than any of them";
            return Err(DataError::Option(why.into()));
        }
        let pictures = Pictures { file, first: 0, count: sizes.len(), resize: None };
        Ok(Split::new(Content::Pictures(pictures), labels, window))
    }

    /// A table in memory, row by row, and a label for each row. The numbers are not copied.
    pub fn from_features(
        columns: usize,
        values: impl AsRef<[f32]> + Send + Sync + 'static,
        labels: Vec<u32>,
    ) -> Result<Split, DataError> {
        Split::from_floats(Shape::new(1, 1, columns), values, labels)
    }

    /// Pictures of floats in memory, in the order NHWC, and a label for each. The numbers are not copied.
    pub fn from_floats(
        shape: Shape,
        values: impl AsRef<[f32]> + Send + Sync + 'static,
        labels: Vec<u32>,
    ) -> Result<Split, DataError> {
        let values = Memory::new(values);
        check_count(values.get().len(), shape.size(), labels.len())?;
        if let Some(at) = values.get().iter().position(|value| !value.is_finite()) {
            let (row, column) = (at / shape.size(), at % shape.size());
            return Err(DataError::Option(format!(
                "{} in row {row}, column {column} (counted from 0) is not a finite number",
                values.get()[at]
            )));
        }
        Ok(Split::new(Content::Floats { shape, values }, labels, shape))
    }

    /// The readers have checked that there are as many labels as examples, and that there is one at least.
    pub(crate) fn new(content: Content, labels: Vec<u32>, window: Shape) -> Self {
        Split { store: Arc::new(Store { content, labels }), chosen: None, window, resize: None }
    }

    /// How many examples there are.
    pub fn len(&self) -> usize {
        self.chosen.as_ref().map_or(self.store.labels.len(), |c| c.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape in which a loader delivers the examples.
    pub fn shape(&self) -> Shape {
        self.window
    }

    /// The number of the example at a position. Panics if there is none.
    pub fn number(&self, position: usize) -> usize {
        match &self.chosen {
            Some(chosen) => chosen[position] as usize,
            None => position,
        }
    }

    /// The label of the example at a position. Panics if there is none.
    pub fn label(&self, position: usize) -> u32 {
        self.store.labels[self.number(position)]
    }

    /// The examples' numbers, where this split does not simply hold all of them in order.
    pub fn numbers(&self) -> Option<&[u32]> {
        self.chosen.as_deref()
    }

    /// The labels of *all* examples, by number.
    pub fn labels(&self) -> &[u32] {
        &self.store.labels
    }

    /// The pixels of *all* examples, by number, NHWC, and the shape of one; `None` where they are not bytes
    /// in memory. Enough, with [`numbers`](Split::numbers), to keep a data set on a device.
    pub fn bytes(&self) -> Option<(&[u8], Shape)> {
        match &self.store.content {
            Content::Pixels { shape, bytes } => Some((bytes.get(), *shape)),
            _ => None,
        }
    }

    /// The pictures of *all* examples, by number, where they have different sizes.
    pub fn pictures(&self) -> Option<Pictures> {
        match &self.store.content {
            Content::Pictures(pictures) => Some(Pictures { resize: self.resized_to(), ..pictures.clone() }),
            _ => None,
        }
    }

    /// The same photographs for a square window of another side, resized in proportion: what was seen of each is seen.
    ///
    /// ```
    /// use ftprop_data::{Shape, Split};
    /// let one = Split::from_pictures(&[(8, 12)], vec![9; 288], vec![0], Shape::new(6, 6, 3))?;
    /// let half = one.at_side(3)?;
    /// assert_eq!((half.shape().height, half.pictures().unwrap().resize()), (3, Some(4)));
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn at_side(&self, side: usize) -> Result<Split, DataError> {
        let photographs = matches!(self.store.content, Content::Files { .. } | Content::Pictures(_));
        let (Some(edge), true) = (self.shorter_edge(), photographs) else {
            return Err(DataError::Option(
                "only photographs are shown at several sizes; these pictures have one".into(),
            ));
        };
        let before = self.window.height.max(1);
        let resize = (edge * side + before / 2) / before;
        let window = Shape::new(side, side, self.window.channels);
        check_sizes(resize, window)?;
        if side == 0 {
            return Err(DataError::Option("a window has at least one pixel".into()));
        }
        Ok(Split { window, resize: Some(resize.max(side)), ..self.clone() })
    }

    /// Whether the examples are pictures in files, to be decoded whenever they are needed.
    pub fn is_encoded(&self) -> bool {
        matches!(self.store.content, Content::Files { .. })
    }

    /// The rows of *all* examples of a table, by number, before they are standardised, and how many numbers a row has;
    /// `None` for pictures.
    pub fn features(&self) -> Option<(&[f32], usize)> {
        match &self.store.content {
            Content::Floats { shape, values } if shape.height * shape.width == 1 => {
                Some((values.get(), shape.channels))
            }
            _ => None,
        }
    }

    /// Divides the split at random into what remains and what is held out, each in its old order.
    ///
    /// The examples at `Permutation::at(0), …, at(count - 1)` of `Stream::new(seed, Purpose::Split, 0)` are
    /// held out.
    pub fn hold_out(&self, amount: HoldOut, seed: u64) -> Result<(Split, Split), DataError> {
        Ok(self.parts(&held(self.len(), amount, Stream::new(seed, Purpose::Split, 0))?))
    }

    /// The examples at these positions, in this order; one that is named several times is learned from as often.
    ///
    /// ```
    /// use ftprop_data::Split;
    /// let three = Split::from_features(1, vec![7.0, 8.0, 9.0], vec![0, 1, 2])?;
    /// let drawn = three.select(&[2, 0, 2])?;
    /// assert_eq!((0..3).map(|i| drawn.label(i)).collect::<Vec<_>>(), [2, 0, 2]);
    /// assert!(three.select(&[3]).is_err());
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn select(&self, positions: &[u32]) -> Result<Split, DataError> {
        let examples = self.len();
        let Some(outside) = positions.iter().find(|&&position| position as usize >= examples) else {
            let numbers = positions.iter().map(|&position| self.number(position as usize) as u32);
            return Ok(Split { chosen: Some(numbers.collect()), ..self.clone() });
        };
        Err(DataError::Option(format!("there is no example {outside} (counted from 0) among {examples}")))
    }

    /// Divides data that comes in one piece into training and test parts, always alike: a run's seed moves its
    /// validation split, never its test part. Epoch 1 of seed 0 keeps this apart from every validation split.
    pub fn divide_for_test(&self, amount: HoldOut) -> Result<(Split, Split), DataError> {
        Ok(self.parts(&held_for_test(self.len(), amount)?))
    }

    /// Divides the split at random into what remains and what is held out, the same part of each class.
    ///
    /// Of the examples of class c, which are in their own order, those at `Permutation::at(0), …` of
    /// `Stream::new(seed, Purpose::Split, 0).fork(c)` are held out: the fraction rounded to a whole number, but at least
    /// one, and none of a class that has a single example.
    pub fn hold_out_of_each_class(&self, fraction: f64, seed: u64) -> Result<(Split, Split), DataError> {
        self.divide_each_class(fraction, Stream::new(seed, Purpose::Split, 0))
    }

    pub(crate) fn divide_each_class(&self, fraction: f64, stream: Stream) -> Result<(Split, Split), DataError> {
        let examples = self.len();
        let mut of_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        (0..examples).for_each(|i| of_class.entry(self.label(i)).or_default().push(i));
        let mut held = vec![false; examples];
        for (class, members) in of_class {
            let count = ((fraction * members.len() as f64).round() as usize).max(1);
            if members.len() < 2 || count >= members.len() {
                continue;
            }
            let order = Permutation::new(stream.fork(u64::from(class)), members.len());
            (0..count).for_each(|i| held[members[order.at(i)]] = true);
        }
        let wanted = || format!("a fraction of {fraction} of each class");
        if !(fraction > 0.0 && fraction < 1.0 && held.contains(&true)) {
            return Err(DataError::HoldOut { wanted: wanted(), examples });
        }
        Ok(self.parts(&held))
    }

    /// What remains, and what is held out.
    pub(crate) fn parts(&self, held: &[bool]) -> (Split, Split) {
        let part = |side: bool| {
            let numbers = (0..held.len()).filter(|&i| held[i] == side).map(|i| self.number(i) as u32);
            Split { chosen: Some(numbers.collect()), ..self.clone() }
        };
        (part(false), part(true))
    }

    /// Whether another split holds the same examples in the same order.
    pub fn same_examples(&self, other: &Split) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && self.chosen == other.chosen
    }

    /// Whether another split was taken from the same examples.
    pub fn shares_examples(&self, other: &Split) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    pub(crate) fn content(&self) -> &Content {
        &self.store.content
    }

    /// What the shorter edge of photographs is resized to, if it is.
    pub(crate) fn resized_to(&self) -> Option<usize> {
        self.resize.or(match &self.store.content {
            Content::Files { resize, .. } => Some(*resize),
            Content::Pictures(pictures) => pictures.resize,
            _ => None,
        })
    }

    /// The shorter edge that pictures from elsewhere are resized to; `None` for a table.
    pub(crate) fn shorter_edge(&self) -> Option<usize> {
        match &self.store.content {
            Content::Pixels { shape, .. } => Some(shape.height.min(shape.width)),
            Content::Files { .. } => self.resized_to(),
            Content::Pictures(pictures) => Some(self.resized_to().unwrap_or(pictures.file.edge)),
            Content::Floats { shape, .. } => (shape.height * shape.width > 1).then(|| shape.height.min(shape.width)),
        }
    }

    pub(crate) fn crop_to(&mut self, side: usize) -> Result<(), DataError> {
        let Some(edge) = self.shorter_edge() else {
            return Err(DataError::Option("a crop needs pictures; a table of features has none".into()));
        };
        if side == 0 || side > edge {
            return Err(DataError::Option(format!(
                "a crop of {side} pixels does not fit pictures whose shorter edge has {edge}"
            )));
        }
        self.window = Shape::new(side, side, self.window.channels);
        Ok(())
    }
}

/// Which of so many examples are held out of data that come in one piece, see [`Split::divide_for_test`].
pub(crate) fn held_for_test(examples: usize, amount: HoldOut) -> Result<Vec<bool>, DataError> {
    held(examples, amount, Stream::new(0, Purpose::Split, 1))
}

fn held(examples: usize, amount: HoldOut, stream: Stream) -> Result<Vec<bool>, DataError> {
    let (count, wanted) = match amount {
        HoldOut::Count(count) => (count, count.to_string()),
        HoldOut::Fraction(fraction) => {
            ((fraction * examples as f64).round() as usize, format!("a fraction of {fraction}"))
        }
    };
    if count == 0 || count >= examples {
        return Err(DataError::HoldOut { wanted, examples });
    }
    let order = Permutation::new(stream, examples);
    let mut held = vec![false; examples];
    (0..count).for_each(|i| held[order.at(i)] = true);
    Ok(held)
}

fn check_count(values: usize, size: usize, labels: usize) -> Result<(), DataError> {
    if labels == 0 || size == 0 {
        return Err(DataError::Empty { what: "the split".into() });
    }
    if Some(values) != size.checked_mul(labels) {
        return Err(DataError::Option(format!("{values} values are not {labels} examples of {size} each")));
    }
    Ok(())
}
