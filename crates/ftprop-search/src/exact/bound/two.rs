//! Two units: the least errors of any network of two hidden units and one output.
//!
//! A threshold function of two signs is constant, one of the signs, or says one class exactly where both units have
//! certain signs. So one of the classes, the *inner* one, is the intersection of two half-spaces (of which one may hold
//! everything).

use super::costs::Wish;
use super::hyperplanes::{Bits, Flat};
use super::list::half_spaces;
use super::tree::Tree;
use super::tuples::{Hunt, Rule, Tuples, limit, race};
use super::{Stopped, Watch};

/// Two half-spaces whose intersection has the inner class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wedge {
    pub(crate) errors: usize,
    pub(crate) inner: usize,
    pub(crate) sides: [Bits; 2],
}

/// Inside is what lies in both.
struct Both;

impl Rule<2> for Both {
    const ALIKE_FROM: usize = 0;

    fn inside([a, b]: [u64; 2]) -> u64 {
        a & b
    }
}

/// The best wedge with fewer than `below` errors; none if there is none.
pub(crate) fn least(
    flat: &Flat,
    counts: &[[usize; 2]],
    below: usize,
    watch: &Watch<'_>,
) -> Result<Option<Wedge>, Stopped> {
    let wishes = [0, 1].map(|inner| Wish::new(counts, inner));
    let floor = wishes[0].floor;
    let Some(limit) = limit(counts, below, floor) else { return Ok(None) };
    let tree = |wish: &Wish| Tree::new(half_spaces(flat, wish, limit, watch)?, watch);
    let trees = [tree(&wishes[0])?, tree(&wishes[1])?];
    let hunt =
        |inner: usize| -> Box<dyn Tuples + '_> { Box::new(Hunt::<2, Both>::new(&trees[inner], &wishes[inner], limit)) };
    let best = race(&[hunt(0), hunt(1)], limit, floor, watch)?;
    Ok(best.map(|(inner, regret, of)| {
        let side = |at: usize| trees[inner].members[of[at]].clone();
        Wedge { errors: floor + regret, inner, sides: [side(0), side(1)] }
    }))
}
