//! Repeatable randomness for crash tests, from one seed.

/// A sequence of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates the sequence of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub(crate) const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a random index below `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// Returns a random boolean.
    pub(crate) const fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}
