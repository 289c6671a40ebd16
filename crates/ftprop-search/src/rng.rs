//! A small seeded generator (SplitMix64), so that every search can be run again.

/// A stream of random numbers that depends on its seed alone.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng { state: seed ^ 0x5DEE_CE66_D1CE_4E5B };
        rng.next_u64();
        rng
    }

    /// A stream of its own for the `index`-th part of something.
    pub fn fork(&self, index: u64) -> Self {
        let mut parent = self.clone();
        Rng::new(parent.next_u64() ^ index.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n; n must not be zero.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A fair coin.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_reproducible_and_differ_by_seed_and_fork() {
        let mut a = Rng::new(3);
        let mut b = Rng::new(3);
        assert_eq!(a.next_u64(), b.next_u64());
        assert_ne!(Rng::new(3).next_u64(), Rng::new(4).next_u64());
        assert_ne!(Rng::new(3).fork(0).next_u64(), Rng::new(3).fork(1).next_u64());
    }

    #[test]
    fn moments_are_about_right() {
        let mut rng = Rng::new(1);
        let draws: Vec<f64> = (0..20_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mut counts = [0; 5];
        (0..10_000).for_each(|_| counts[rng.below(5)] += 1);
        assert!(counts.iter().all(|c| (1800..2200).contains(c)), "{counts:?}");
    }
}
