//! Half-spaces, as sets of points: all that there are, or those of which the best intersections are made.

use super::costs::Wish;
use super::hyperplanes::{Bits, Flat, holds, points_of, put, trim};
use super::visit::visit;
use super::{Stopped, Watch};

/// Half-spaces, as sets of points, of which the best intersections are made: to have a point inside that should be, or
/// outside that should be, never makes an intersection worse, so of several ways to divide the points on a hyperplane
/// only the best are listed. Only those with a regret below the limit for what they leave out.
pub(super) fn half_spaces(flat: &Flat, wish: &Wish, limit: usize, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    list(flat, Ways::Best { wish, limit }, watch)
}

/// All half-spaces, as sets of points.
pub(crate) fn dichotomies(flat: &Flat, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    list(flat, Ways::All, watch)
}

/// Which half-spaces are listed.
#[derive(Clone, Copy)]
enum Ways<'a> {
    /// The best ones for a wish with a regret below the limit.
    Best { wish: &'a Wish, limit: usize },
    /// Every one.
    All,
}

/// Half-spaces in order, none of them twice.
fn list(flat: &Flat, ways: Ways<'_>, watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
    if flat.dimension() == 0 {
        return Ok(match ways {
            Ways::Best { wish, .. } => vec![wish.inside.clone()],
            Ways::All => vec![vec![0], vec![1]],
        });
    }
    let list = || List { flat, ways, found: vec![] };
    let lists = visit(flat, watch, list, |list, through| list.look(through, watch))?;
    let mut listed: Vec<Bits> = lists.into_iter().flat_map(|list| list.found).collect();
    watch.ask(0)?;
    listed.sort_unstable();
    listed.dedup();
    Ok(listed)
}

struct List<'a> {
    flat: &'a Flat,
    ways: Ways<'a>,
    found: Vec<Bits>,
}

impl List<'_> {
    fn look(&mut self, through: &[usize], watch: &Watch<'_>) -> Result<(), Stopped> {
        if let Ways::Best { wish, limit } = self.ways
            && let Some(tally) = self.flat.tally(through, [&wish.weights, &wish.weights])
        {
            let (up, down) = (wish.missing.total - tally.above[0] - tally.near[0], tally.above[0]);
            if up.min(down) >= limit {
                return Ok(());
            }
        }
        let words = self.flat.len().div_ceil(64);
        let (mut above, mut on) = (vec![0; words], vec![0; words]);
        if !self.flat.sides(through, &mut above, &mut on) {
            return Ok(());
        }
        let touching = points_of(&on);
        if touching.iter().zip(through).take(2).any(|(a, b)| a != b) {
            return Ok(());
        }
        let mut below: Bits = above.iter().zip(&on).map(|(above, on)| !above & !on).collect();
        trim(&mut below, self.flat.len());
        let mut divided: Option<Vec<Bits>> = None;
        for beside in [above, below] {
            let hopeless = |half: &dyn Fn(usize) -> u64| match self.ways {
                Ways::Best { wish, limit } => wish.missing.sum(|at| !half(at)) >= limit,
                Ways::All => false,
            };
            if hopeless(&|at| beside[at] | on[at]) {
                continue;
            }
            if divided.is_none() {
                divided = Some(self.divide(&touching, watch)?);
            }
            for way in divided.iter().flatten() {
                let mut half = beside.clone();
                (0..touching.len()).filter(|&at| holds(way, at)).for_each(|at| put(&mut half, touching[at]));
                if !hopeless(&|at| half[at]) {
                    self.found.push(half);
                }
            }
        }
        // Each set as it is listed, and once more in what is made of the list.
        watch.room(self.found.len() * (words * 8 + 24) * 2 * watch.threads)
    }

    /// How the points on a hyperplane can be divided.
    fn divide(&self, touching: &[usize], watch: &Watch<'_>) -> Result<Vec<Bits>, Stopped> {
        // As many points as dimensions are independent, and can be divided in every way.
        let independent = touching.len() == self.flat.dimension();
        match self.ways {
            Ways::Best { wish, .. } if independent => Ok(vec![wish.part(touching).inside]),
            Ways::Best { wish, .. } => {
                half_spaces(&self.flat.part(touching), &wish.part(touching), usize::MAX, &watch.alone())
            }
            Ways::All if independent => Ok((0..1u64 << touching.len()).map(|way| vec![way]).collect()),
            Ways::All => dichotomies(&self.flat.part(touching), &watch.alone()),
        }
    }
}
