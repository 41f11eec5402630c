//! The operating system's randomness: the source of every key, token and identifier of a real service.

use crate::base::entropy::Entropy;

/// Random bytes from the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    /// # Panics
    /// The system has no randomness. A predictable key would be worse than no service, and no caller could handle the
    /// error.
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(why) = getrandom::fill(bytes) {
            panic!("the operating system returned no random bytes ({why}); keys and tokens can't be generated safely");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::bytes;

    #[test]
    fn two_draws_differ() {
        assert_ne!(bytes::<32>(&OsEntropy), bytes::<32>(&OsEntropy));
    }
}
