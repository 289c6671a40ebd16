//! Randomness as a function, not a state.
//!
//! Every random number is a pure function of a [`Stream`] (seed, purpose, epoch) and an index, so crops,
//! shuffles, dropout masks and initial weights are the same for any number of threads, on any device, and
//! after a resume. A checkpoint holds no generator.
//!
//! ```
//! use ftprop_tensor::random::{Purpose, Stream};
//! let flips = Stream::new(7, Purpose::Augment, 3);
//! assert_eq!(flips.uniform(41), flips.uniform(41));
//! assert_ne!(flips.uniform(41), flips.uniform(42));
//! ```

/// What a stream is used for; streams of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Initial weights; the "epoch" is the parameter's number.
    Init = 1,
    /// The order of the examples in an epoch.
    Shuffle = 2,
    /// Crops and flips.
    Augment = 3,
    /// Dropout masks; the "epoch" is the training step.
    Dropout = 4,
    /// Which examples are held out for validation.
    Split = 5,
    /// Made-up problems and anything else outside training.
    Problem = 6,
    /// Target rules that leave something to chance; the "epoch" is the training step.
    Target = 7,
    /// How the examples of a batch are mixed; the "epoch" is the training step.
    Mix = 8,
}

/// An endless table of random numbers, read by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

/// The finaliser of SplitMix64: a bijection that scatters every bit.
pub const fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of a seed, a purpose and an epoch (or whatever counts as one, see [`Purpose`]).
    pub const fn new(seed: u64, purpose: Purpose, epoch: u64) -> Self {
        let key = mix(mix(mix(seed).wrapping_add(purpose as u64)).wrapping_add(epoch));
        Stream { key }
    }

    /// A stream known by one number alone, as the golden cases number theirs.
    pub const fn numbered(stream: u64) -> Self {
        Stream { key: mix(stream) }
    }

    /// A stream of its own for one index: for when one example needs several numbers.
    pub const fn fork(self, index: u64) -> Self {
        Stream { key: mix(self.u64(index)) }
    }

    /// What a device kernel needs to compute the same numbers.
    pub const fn key(self) -> u64 {
        self.key
    }

    /// 64 random bits.
    pub const fn u64(self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index))
    }

    /// Uniform in [0, 1), a multiple of 2⁻²⁴ and so exact in f32.
    pub const fn uniform(self, index: u64) -> f32 {
        (self.u64(index) >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Uniform in 0..n, for n of at most 2³².
    pub const fn below(self, index: u64, n: u64) -> u64 {
        ((self.u64(index) >> 32) * n) >> 32
    }

    /// Standard normal, by Box and Muller's transform of two numbers that only this index uses.
    pub fn normal(self, index: u64) -> f32 {
        let own = self.fork(index);
        // 1 - u is in (0, 1], so the logarithm is finite.
        let u = 1.0 - (own.u64(0) >> 11) as f64 / (1u64 << 53) as f64;
        let v = (own.u64(1) >> 11) as f64 / (1u64 << 53) as f64;
        ((-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()) as f32
    }
}

/// A random permutation of 0..n, read by index in constant time and without a table.
///
/// A Feistel network permutes the smallest square of a power of two that holds n; an index that lands
/// outside 0..n walks on until it is inside. A GPU thread can therefore find its own example.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    stream: Stream,
    n: u64,
    half_bits: u32,
}

impl Permutation {
    const ROUNDS: u64 = 6;

    /// The permutation of 0..n that belongs to a stream, for n of at most 2⁶².
    pub const fn new(stream: Stream, n: usize) -> Self {
        assert!(n as u64 <= 1 << 62, "a permutation of more than 2^62 indices");
        let mut half_bits = 1;
        while (1u64 << (2 * half_bits)) < n as u64 {
            half_bits += 1;
        }
        Permutation { stream, n: n as u64, half_bits }
    }

    /// Where index goes. Panics if index is not below n.
    pub const fn at(&self, index: usize) -> usize {
        assert!((index as u64) < self.n, "index outside the permutation");
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = index as u64;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            let mut round = 0;
            while round < Self::ROUNDS {
                let next = left ^ (self.stream.u64((round << 32) | right) >> 32 & mask);
                left = right;
                right = next;
                round += 1;
            }
            x = (left << self.half_bits) | right;
            if x < self.n {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_hits_every_index_once_and_depends_on_the_epoch() {
        for n in [1, 2, 3, 5, 16, 17, 1000, 4097] {
            let p = Permutation::new(Stream::new(1, Purpose::Shuffle, 0), n);
            let mut seen = vec![false; n];
            (0..n).for_each(|i| seen[p.at(i)] = true);
            assert!(seen.iter().all(|&s| s), "n = {n}");
        }
        let order = |epoch| {
            let p = Permutation::new(Stream::new(1, Purpose::Shuffle, epoch), 1000);
            (0..1000).map(|i| p.at(i)).collect::<Vec<_>>()
        };
        assert_ne!(order(0), order(1));
        // A shuffle leaves about one index in place.
        assert!(order(0).iter().enumerate().filter(|&(i, &p)| i == p).count() < 8);
    }

    #[test]
    #[should_panic(expected = "more than 2^62")]
    fn a_permutation_of_more_indices_than_there_are_is_refused() {
        Permutation::new(Stream::numbered(1), usize::MAX);
    }

    #[test]
    fn permuted_positions_are_spread_evenly() {
        // The first tenth of many shuffles should draw from everywhere alike: a chi-square over 10 bins.
        let mut bins = [0u32; 10];
        for epoch in 0..200 {
            let p = Permutation::new(Stream::new(3, Purpose::Shuffle, epoch), 1000);
            (0..100).for_each(|i| bins[p.at(i) / 100] += 1);
        }
        let expected = 2000.0;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 27.9, "chi-square {chi2} over 9 degrees of freedom, bins {bins:?}");
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let s = Stream::new(11, Purpose::Init, 4);
        let n = 100_000u64;
        let mean = (0..n).map(|i| f64::from(s.uniform(i))).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 5e-3, "{mean}");
        let square = (0..n).map(|i| f64::from(s.normal(i)).powi(2)).sum::<f64>() / n as f64;
        assert!((square - 1.0).abs() < 2e-2, "{square}");
        assert!((0..n).all(|i| s.below(i, 7) < 7));
    }

    #[test]
    fn golden_streams_match_the_script_that_made_the_cases() {
        // numpy: (mix(mix(1000) + [0, 1, 2]) >> 40) / 2**24
        let s = Stream::numbered(1000);
        let expected = [0.491_104_07, 0.200_307_43, 0.136_513_11];
        for (i, e) in expected.iter().enumerate() {
            assert!((s.uniform(i as u64) - e).abs() < 1e-6, "{} {}", s.uniform(i as u64), e);
        }
    }
}
