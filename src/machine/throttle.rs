//! Limit on failed sign-ins: a number of failures in 15 minutes, per name and per client.
//!
//! ```text
//!          15 min ago                       now
//! forgotten |   x    x  x        x           |     try while fewer than the limit are in between
//! ```
//!
//! An attempt counts as failed from its start, so that many concurrent attempts can't bypass the limit. A success
//! removes it, and so does an attempt that ends without checking the password. Kept in memory
//! ([`super::throttle_table`]), in monotonic time; a restart starts empty.

use std::collections::VecDeque;
use std::time::Duration;

/// Time for which a failure counts.
pub const WINDOW: Duration = Duration::from_secs(15 * 60);

/// The failures of one name or address, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttle(VecDeque<Duration>);

/// Error: too many failures (429).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many failures; wait {retry_after_secs} s")]
pub struct TooManyFailures {
    /// Whole seconds until the next attempt, at least 1.
    pub retry_after_secs: u64,
}

impl Throttle {
    /// Starts an attempt at `now`.
    ///
    /// # Errors
    /// [`TooManyFailures`] if `limit` attempts have failed or are in progress.
    pub fn attempt(&mut self, limit: usize, now: Duration) -> Result<(), TooManyFailures> {
        self.forget(now);
        match self.0.front() {
            Some(oldest) if self.0.len() >= limit => {
                let wait = (*oldest + WINDOW).saturating_sub(now);
                Err(TooManyFailures { retry_after_secs: wait.as_secs() + u64::from(wait.subsec_nanos() > 0) })
            }
            Some(_) | None => {
                self.0.push_back(now);
                Ok(())
            }
        }
    }

    /// Removes the attempt that started at `begun`: it succeeded, or was never checked.
    pub fn take_back(&mut self, begun: Duration) {
        if let Some(place) = self.0.iter().position(|stamp| *stamp == begun) {
            self.0.remove(place);
        }
    }

    /// Returns whether no attempt is stored at `now`.
    pub fn is_idle(&self, now: Duration) -> bool {
        self.0.back().is_none_or(|last| now.saturating_sub(*last) >= WINDOW)
    }

    /// Returns the number of attempts that have failed or are in progress.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the time of the newest attempt.
    pub fn newest(&self) -> Duration {
        self.0.back().copied().unwrap_or_default()
    }

    /// Returns the time at which fewer than `limit` attempts are stored.
    pub fn free_at(&self, limit: usize) -> Duration {
        let surplus = self.0.len().saturating_sub(limit);
        self.0.get(surplus).map_or(Duration::ZERO, |stamp| *stamp + WINDOW)
    }

    /// Removes the attempts that have expired at `now`.
    pub fn forget(&mut self, now: Duration) {
        while self.0.front().is_some_and(|oldest| now.saturating_sub(*oldest) >= WINDOW) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn at_the_limit_attempts_wait_until_the_oldest_failure_expires() {
        let mut throttle = Throttle::default();
        for second in 0..3 {
            throttle.attempt(3, at(second)).unwrap();
        }
        let refused = throttle.attempt(3, at(10)).unwrap_err();
        assert_eq!(refused.retry_after_secs, 890);
        assert!(throttle.attempt(3, at(899)).is_err());
        assert!(throttle.attempt(3, at(900)).is_ok());
        assert!(!throttle.is_idle(at(1799)) && throttle.is_idle(at(1800)));
    }

    #[test]
    fn a_successful_attempt_does_not_count() {
        let mut throttle = Throttle::default();
        for second in 0..100 {
            throttle.attempt(1, at(second)).unwrap();
            assert!(throttle.attempt(1, at(second)).is_err(), "an attempt in progress counts");
            throttle.take_back(at(second));
        }
        assert!(throttle.is_idle(at(100)));
    }
}
