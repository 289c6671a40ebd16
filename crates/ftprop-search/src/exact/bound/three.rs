//! Three units: the least errors of any network of three hidden units and one output.
//!
//! A threshold function of three signs that needs all of them is, but for negated units and which class is the inner
//! one, one of three: all three, one and either of the others, or the majority. (x or y or z is the complement of all
//! three, x or both of the others that of one and either.) Those that need fewer units are *all three* with
//! half-spaces that hold everything.

use super::costs::Wish;
use super::hyperplanes::{Bits, Flat};
use super::list::half_spaces;
use super::tree::Tree;
use super::tuples::{Hunt, Rule, Tuples, limit, race};
use super::{Stopped, Watch};

/// Three half-spaces, and which points have the inner class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trio {
    pub(crate) errors: usize,
    pub(crate) inner: usize,
    pub(crate) sides: [Bits; 3],
    /// Weights and bias of an output unit that says +1 for the inner class.
    pub(crate) output: [f64; 4],
}

/// Inside is what lies in all three.
struct All;

impl Rule<3> for All {
    const ALIKE_FROM: usize = 0;

    fn inside([a, b, c]: [u64; 3]) -> u64 {
        a & b & c
    }
}

/// Inside is what lies in the first and in one of the others.
struct OneAndEither;

impl Rule<3> for OneAndEither {
    const ALIKE_FROM: usize = 1;

    fn inside([a, b, c]: [u64; 3]) -> u64 {
        a & (b | c)
    }
}

/// Inside is what lies in two at least.
struct Majority;

impl Rule<3> for Majority {
    const ALIKE_FROM: usize = 0;

    fn inside([a, b, c]: [u64; 3]) -> u64 {
        (a & (b | c)) | (b & c)
    }
}

/// The rules' output units.
const OUTPUTS: [[f64; 4]; 3] = [[1.0, 1.0, 1.0, -2.0], [2.0, 1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 0.0]];

/// The best trio with fewer than `below` errors; none if there is none.
pub(crate) fn least(
    flat: &Flat,
    counts: &[[usize; 2]],
    below: usize,
    watch: &Watch<'_>,
) -> Result<Option<Trio>, Stopped> {
    let wishes = [0, 1].map(|inner| Wish::new(counts, inner));
    let floor = wishes[0].floor;
    let Some(limit) = limit(counts, below, floor) else { return Ok(None) };
    let tree = |wish: &Wish, limit: usize| Tree::new(half_spaces(flat, wish, limit, watch)?, watch);
    // What lies in all three may leave out little in each; the other rules make good what one leaves out.
    let few = [tree(&wishes[0], limit)?, tree(&wishes[1], limit)?];
    let all = [tree(&wishes[0], usize::MAX)?, tree(&wishes[1], usize::MAX)?];
    let mut hunts: Vec<Box<dyn Tuples + '_>> = vec![];
    for (inner, wish) in wishes.iter().enumerate() {
        hunts.push(Box::new(Hunt::<3, All>::new(&few[inner], wish, limit)));
        hunts.push(Box::new(Hunt::<3, OneAndEither>::new(&all[inner], wish, limit)));
        hunts.push(Box::new(Hunt::<3, Majority>::new(&all[inner], wish, limit)));
    }
    let best = race(&hunts, limit, floor, watch)?;
    Ok(best.map(|(hunt, regret, of)| {
        let (inner, rule) = (hunt / 3, hunt % 3);
        let tree = if rule == 0 { &few[inner] } else { &all[inner] };
        let side = |at: usize| tree.members[of[at]].clone();
        Trio { errors: floor + regret, inner, sides: [side(0), side(1), side(2)], output: OUTPUTS[rule] }
    }))
}
