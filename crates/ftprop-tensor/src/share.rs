//! How several processes divide examples among them.

use std::ops::Range;

/// One of several processes that each take a part of every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Share {
    /// Everything.
    pub const WHOLE: Share = Share { rank: 0, ranks: 1 };

    /// This one's of `n` examples: the parts of all ranks follow each other and differ by one example at most.
    pub const fn of(self, n: usize) -> Range<usize> {
        n * self.rank / self.ranks..n * (self.rank + 1) / self.ranks
    }

    /// The most that any rank has of `n` examples.
    pub const fn most(self, n: usize) -> usize {
        n.div_ceil(self.ranks)
    }

    /// Whether there are no others.
    pub const fn is_whole(self) -> bool {
        self.ranks == 1
    }
}

impl Default for Share {
    fn default() -> Self {
        Share::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_are_about_equal() {
        for ranks in 1..9 {
            for n in 0..40 {
                let mut next = 0;
                for rank in 0..ranks {
                    let share = Share { rank, ranks };
                    let part = share.of(n);
                    assert_eq!(part.start, next);
                    assert!(part.len() <= share.most(n) && part.len() + 1 >= n / ranks);
                    next = part.end;
                }
                assert_eq!(next, n);
            }
        }
        assert_eq!(Share::default().of(7), 0..7);
    }
}
