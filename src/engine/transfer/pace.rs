//! A pace: so many a minute, in the machine's time like every network deadline (contract 8).

use std::time::Duration;

use tokio::time::Instant;

/// Burst after a silence: a second's worth, and at least one.
const BURST: Duration = Duration::from_secs(1);

/// So many a minute, each at its own moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    interval: Duration,
    /// When the next one is to go, were there no burst.
    next: Option<Instant>,
}

impl Pace {
    pub(super) fn per_minute(count: u32) -> Self {
        Self { interval: Duration::from_secs(60) / count.max(1), next: None }
    }

    /// Returns how long the next message has to wait.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let burst = BURST.saturating_sub(self.interval);
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now + burst))
    }

    /// Counts one, whether or not it waited.
    pub(super) fn count(&mut self, now: Instant) {
        self.next = Some(self.next.map_or(now, |next| next.max(now)) + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of `count` goes, in milliseconds, if it goes as soon as it may.
    fn moments(mut pace: Pace, count: usize) -> Vec<u128> {
        let start = Instant::now();
        let mut now = start;
        let next = |_| {
            now += pace.wait(now);
            pace.count(now);
            (now - start).as_millis()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_slow_pace_is_even_and_a_fast_one_lets_a_second_s_worth_go_at_once() {
        assert_eq!(moments(Pace::per_minute(1), 3), [0, 60_000, 120_000]);
        assert_eq!(moments(Pace::per_minute(30), 3), [0, 2_000, 4_000]);
        assert_eq!(moments(Pace::per_minute(240), 6), [0, 0, 0, 0, 250, 500]);
    }

    #[test]
    fn silence_is_not_saved_up() {
        let (mut pace, start) = (Pace::per_minute(60), Instant::now());
        pace.count(start);
        let later = start + Duration::from_secs(3600);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.count(later);
        assert_eq!(pace.wait(later), Duration::from_secs(1));
    }
}
