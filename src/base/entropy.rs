//! Randomness as an argument: code that needs random bytes gets a source of them.

use std::sync::Mutex;

/// A source of random bytes. In the service it is the operating system (floor `net`). Tests and the simulator pass a
/// seeded one, so that a run repeats byte for byte.
pub trait Entropy: Send + Sync {
    /// Fills `bytes` with random bytes that are fit for keys and tokens.
    fn fill(&self, bytes: &mut [u8]);
}

/// Returns `N` random bytes from `entropy`.
pub fn bytes<const N: usize>(entropy: &dyn Entropy) -> [u8; N] {
    let mut out = [0; N];
    entropy.fill(&mut out);
    out
}

/// A repeatable source for tests and simulations (splitmix64). Never use it for secrets of a real service.
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    /// Creates the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}
