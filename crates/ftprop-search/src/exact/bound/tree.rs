//! Half-spaces, grouped in a tree by the points that they share.

use super::hyperplanes::{Bits, holds, points_of};
use super::{Stopped, Watch};

/// Members of a group that need no further division.
const SMALL_GROUP: usize = 8;
/// Members that are asked which point divides a group best.
const SAMPLE: usize = 48;

/// Half-spaces in groups of groups; the first group is that of all.
pub(super) struct Tree {
    pub(super) members: Vec<Bits>,
    pub(super) groups: Vec<Group>,
    words: usize,
}

/// A range of the members.
pub(super) struct Group {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Points in some member.
    pub(super) some: Bits,
    /// Points in every member.
    pub(super) every: Bits,
    pub(super) parts: Option<(usize, usize)>,
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.to - self.from
    }
}

impl Tree {
    pub(super) fn new(members: Vec<Bits>, watch: &Watch<'_>) -> Result<Self, Stopped> {
        let words = members.first().map_or(0, Vec::len);
        let mut tree = Tree { members, groups: vec![], words };
        if !tree.members.is_empty() {
            tree.divide(0, tree.members.len(), watch)?;
        }
        Ok(tree)
    }

    /// Makes the group of a range and all below it; returns its place.
    fn divide(&mut self, from: usize, to: usize, watch: &Watch<'_>) -> Result<usize, Stopped> {
        watch.ask(0)?;
        let (mut some, mut every) = (vec![0; self.words], vec![u64::MAX; self.words]);
        for member in &self.members[from..to] {
            for at in 0..self.words {
                some[at] |= member[at];
                every[at] &= member[at];
            }
        }
        let place = self.groups.len();
        let split = if to - from > SMALL_GROUP { self.splitting_point(from, to, &some, &every) } else { None };
        self.groups.push(Group { from, to, some, every, parts: None });
        if let Some(point) = split {
            self.members[from..to].sort_by_key(|member| holds(member, point));
            let middle = from + self.members[from..to].partition_point(|member| !holds(member, point));
            self.groups[place].parts = Some((self.divide(from, middle, watch)?, self.divide(middle, to, watch)?));
        }
        Ok(place)
    }

    /// A point that about half of the members hold, judged by some of them.
    fn splitting_point(&self, from: usize, to: usize, some: &Bits, every: &Bits) -> Option<usize> {
        let step = ((to - from) / SAMPLE).max(1);
        let sample: Vec<&Bits> = self.members[from..to].iter().step_by(step).collect();
        let open: Bits = some.iter().zip(every).map(|(some, every)| some & !every).collect();
        let holders = |point: &usize| sample.iter().filter(|member| holds(member, *point)).count();
        points_of(&open).into_iter().min_by_key(|point| holders(point).abs_diff(sample.len() / 2))
    }
}
