//! Spacing of messages or connections at a rate per minute, on the monotonic clock like every network deadline
//! (contract 8).

use std::time::Duration;

/// Burst after a pause: the number for one second, and at least one.
const BURST: Duration = Duration::from_secs(1);

/// Rate per minute, with each item at its own time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spacing {
    interval: Duration,
    /// Time of the next item without a burst.
    next: Option<Duration>,
}

impl Spacing {
    pub(super) fn per_minute(count: u32) -> Self {
        Self { interval: Duration::from_secs(60) / count.max(1), next: None }
    }

    /// Returns the time for which the next item must wait.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        let burst = BURST.saturating_sub(self.interval);
        self.next.map_or(Duration::ZERO, |next| next.saturating_sub(now + burst))
    }

    /// Counts an item, whether or not it waited.
    pub(super) fn count(&mut self, now: Duration) {
        self.next = Some(self.next.map_or(now, |next| next.max(now)) + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    /// Returns the time of each of `count` items, in milliseconds, if each goes as soon as possible.
    fn moments(mut spacing: Spacing, count: usize) -> Vec<u128> {
        let mut now = START;
        let next = |_| {
            now += spacing.wait(now);
            spacing.count(now);
            (now - START).as_millis()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_slow_spacing_is_even_and_a_fast_one_lets_a_second_s_worth_go_at_once() {
        assert_eq!(moments(Spacing::per_minute(1), 3), [0, 60_000, 120_000]);
        assert_eq!(moments(Spacing::per_minute(30), 3), [0, 2_000, 4_000]);
        assert_eq!(moments(Spacing::per_minute(240), 6), [0, 0, 0, 0, 250, 500]);
    }

    #[test]
    fn silence_is_not_saved_up() {
        let mut spacing = Spacing::per_minute(60);
        spacing.count(START);
        let later = START + Duration::from_secs(3600);
        assert_eq!(spacing.wait(later), Duration::ZERO);
        spacing.count(later);
        assert_eq!(spacing.wait(later), Duration::from_secs(1));
    }
}
