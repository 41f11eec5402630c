//! Backoff for failed requests to the bucket: 100 ms, doubled up to 10 s, with jitter.

use std::time::Duration;

use crate::base::entropy::{self, Entropy};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The backoff of one request: its number of tries so far.
#[derive(Debug, Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    /// Returns the delay before the next try: at least half of the step.
    pub(super) fn next(&mut self, entropy: &dyn Entropy) -> Duration {
        self.next_within(LONGEST, entropy)
    }

    /// Returns the delay before the next try, at most `longest`.
    pub(super) fn next_within(&mut self, longest: Duration, entropy: &dyn Entropy) -> Duration {
        let step = FIRST.saturating_mul(1 << self.0.min(10)).min(LONGEST).min(longest);
        self.0 = self.0.saturating_add(1);
        let [random] = entropy::bytes::<1>(entropy);
        step / 2 + step / 2 * u32::from(random) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    #[test]
    fn delays_grow_to_ten_seconds_with_jitter() {
        let entropy = SeededEntropy::new(3);
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| backoff.next(&entropy)).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST);
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[20..].iter().all(|wait| *wait >= LONGEST / 2));
        assert!(waits[20..].windows(2).any(|pair| pair[0] != pair[1]));
    }
}
