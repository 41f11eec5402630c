//! The minimum rate of a stream that arrives in pieces, measured over a sliding window. So a fast start does not allow
//! a slow remainder.
//!
//! ```text
//! start          now - window                    now
//!   |  XXXXXXXXXX      |   x    x   xx    x       |   too slow if fewer bytes than rate x window are in between
//! ```
//!
//! Within the first window a stream may be arbitrarily slow. Times are counted from the start of the stream.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of steps of a window. The bytes of one step are stored as one piece, so memory is bounded.
const STEPS: u32 = 20;

/// The recent pieces of one stream.
#[derive(Debug)]
pub struct Pace {
    window: Duration,
    /// Minimum number of bytes in every window.
    least: usize,
    /// The pieces, oldest first: the end of the step, and the number of bytes.
    pieces: VecDeque<(Duration, usize)>,
}

impl Pace {
    /// Creates the pace of a stream that starts now and must deliver `rate` bytes per second, measured over `window`.
    pub fn new(rate: usize, window: Duration) -> Self {
        let millis = usize::try_from(window.as_millis()).unwrap_or(usize::MAX);
        Self { window, least: rate.saturating_mul(millis) / 1000, pieces: VecDeque::new() }
    }

    /// Records that `bytes` arrived at `at`.
    pub fn received(&mut self, bytes: usize, at: Duration) {
        while self.pieces.front().is_some_and(|(end, _)| *end + self.window < at) {
            self.pieces.pop_front();
        }
        match self.pieces.back_mut() {
            Some((end, sum)) if at <= *end => *sum = sum.saturating_add(bytes),
            Some(_) | None => self.pieces.push_back((at + self.window / STEPS, bytes)),
        }
    }

    /// Returns the time at which the stream becomes too slow, unless more bytes arrive before.
    pub fn deadline(&self) -> Duration {
        let mut sum = 0_usize;
        for (end, bytes) in self.pieces.iter().rev() {
            sum = sum.saturating_add(*bytes);
            if sum >= self.least {
                return (*end + self.window).max(self.window);
            }
        }
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pace() -> Pace {
        Pace::new(KIB, at(20))
    }

    #[test]
    fn a_stream_without_data_ends_after_one_window() {
        let mut pace = pace();
        assert_eq!(pace.deadline(), at(20));
        pace.received(KIB, at(5));
        assert_eq!(pace.deadline(), at(20));
    }

    #[test]
    fn a_fast_start_extends_the_deadline_by_at_most_one_window() {
        let mut pace = pace();
        pace.received(25 * KIB * KIB, at(0));
        assert!(pace.deadline() <= at(21));
        for second in 1..=20 {
            pace.received(1, at(second));
        }
        assert!(pace.deadline() <= at(21));
    }

    #[test]
    fn a_stream_at_the_minimum_rate_continues_and_a_slower_one_ends_within_a_window() {
        let mut pace = pace();
        for second in 0..600 {
            assert!(pace.deadline() >= at(second), "at {second} s");
            pace.received(KIB, at(second));
        }
        let deadline = pace.deadline();
        assert!(deadline >= at(599) && deadline <= at(602), "{deadline:?}");
        assert!(pace.pieces.len() <= 22);
    }

    #[test]
    fn a_stream_just_below_the_rate_is_too_slow() {
        let mut pace = pace();
        let too_slow = (0..60).find(|second| {
            let is_late = pace.deadline() < at(*second);
            pace.received(KIB - 64, at(*second));
            is_late
        });
        assert!(too_slow.is_some_and(|second| second <= 22), "{too_slow:?}");
    }
}
