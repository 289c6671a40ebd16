//! A batch that several engines share.

use ftprop_tensor::Share;

/// Where an engine's examples are in each batch of a [span](crate::engine::StepSpan) that several engines share.
///
/// ```
/// use ftprop_nn::Portion;
/// use ftprop_tensor::Share;
/// let second = Portion::new(Share { rank: 1, ranks: 2 }, 7, 64);
/// assert_eq!((second.first, second.count, second.of), (3, 4, 7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Portion {
    /// The first of them, counted in the batch.
    pub first: usize,
    /// How many they are.
    pub count: usize,
    /// How many the whole batch has.
    pub of: usize,
    /// How many a full batch has.
    pub full: usize,
}

impl Portion {
    /// A share of a batch of `of` examples, where a full one has `full`.
    pub const fn new(share: Share, of: usize, full: usize) -> Self {
        let range = share.of(of);
        Portion { first: range.start, count: range.end - range.start, of, full }
    }
}
