//! The request rate of one API key: an exact sliding window (contract 3 "Request rate").
//!
//! ```text
//!            60 s ago                            now
//!  forgotten |  o   o  ooo      o     oo   o      |    admit while fewer than the limit are in between
//!               ^ its expiry frees the next place
//! ```
//!
//! Kept in memory, in monotonic time, so a restart starts empty. It stores one timestamp per request admitted in the
//! last 60 seconds, at most the limit.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Length of the window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// The timestamps of one key. Grows with use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Nanoseconds of monotonic time, oldest first. Whole milliseconds would free a place up to a millisecond too
    /// early.
    stamps: VecDeque<u64>,
}

/// Values of the `RateLimit` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateView {
    /// Number of requests that the window allows.
    pub limit: u32,
    /// Number of requests that the window still allows: `r`.
    pub remaining: u32,
    /// Whole seconds until one more request is allowed: `t`; 0 if no request counts.
    pub reset_secs: u64,
}

/// Error: the window is full (429 `rate_limited`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request rate limit exceeded")]
pub struct RateLimited {
    /// Whole seconds until a request will be admitted, at least 1.
    pub retry_after_secs: u64,
    /// The current window.
    pub view: RateView,
}

impl Rate {
    /// Admits one request at `now`. A refused request does not count.
    ///
    /// # Errors
    /// [`RateLimited`] if `limit` requests were admitted in the last 60 seconds.
    pub fn admit(&mut self, limit: u32, now: Duration) -> Result<RateView, RateLimited> {
        let now_ns = nanos(now);
        while self.stamps.front().is_some_and(|stamp| has_left(*stamp, now_ns)) {
            self.stamps.pop_front();
        }
        if self.stamps.len() >= places(limit) {
            let view = self.view(limit, now);
            return Err(RateLimited { retry_after_secs: view.reset_secs.max(1), view });
        }
        self.stamps.push_back(now_ns);
        Ok(self.view(limit, now))
    }

    /// Admits `count` requests at `now`, all or none. More than `limit` never fit; then the wait is the whole window.
    ///
    /// # Errors
    /// [`RateLimited`] if they do not fit.
    pub fn admit_all(&mut self, count: u32, limit: u32, now: Duration) -> Result<RateView, RateLimited> {
        let now_ns = nanos(now);
        let left = self.stamps.partition_point(|stamp| has_left(*stamp, now_ns));
        let taken = self.stamps.len() - left;
        let excess = (taken + places(count)).saturating_sub(places(limit));
        if excess > 0 {
            let last = self.stamps.get(left + excess - 1).copied().unwrap_or(now_ns);
            let wait_ns = (last + nanos(WINDOW)).saturating_sub(now_ns);
            let retry_after_secs = wait_ns.div_ceil(1_000_000_000).max(1);
            return Err(RateLimited { retry_after_secs, view: self.view(limit, now) });
        }
        self.stamps.extend(std::iter::repeat_n(now_ns, places(count)));
        Ok(self.view(limit, now))
    }

    /// Removes the newest `count` requests, which were not admitted in the end.
    pub fn take_back(&mut self, count: u32) {
        self.stamps.truncate(self.stamps.len().saturating_sub(places(count)));
    }

    /// Returns the window at `now`.
    pub fn view(&self, limit: u32, now: Duration) -> RateView {
        let now_ns = nanos(now);
        let left = self.stamps.partition_point(|stamp| has_left(*stamp, now_ns));
        let taken = self.stamps.len() - left;
        // If the limit was lowered below the current use, a place is free only after that many requests have expired.
        let next = left + (taken + 1).saturating_sub(places(limit).max(1)).saturating_sub(1);
        let wait_ns = self.stamps.get(next).map_or(0, |stamp| (stamp + nanos(WINDOW)).saturating_sub(now_ns));
        RateView {
            limit,
            remaining: limit.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)),
            reset_secs: wait_ns.div_ceil(1_000_000_000),
        }
    }

    /// Returns whether no request is stored at `now`, so that the key's entry may be dropped.
    pub fn is_idle(&self, now: Duration) -> bool {
        self.stamps.back().is_none_or(|stamp| has_left(*stamp, nanos(now)))
    }
}

/// Returns whether a timestamp is at least 60 seconds old: a request exactly at the edge belongs to the next window.
fn has_left(stamp: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(stamp) >= nanos(WINDOW)
}

fn places(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refused_request_gets_the_time_until_the_oldest_expires() {
        let mut rate = Rate::default();
        for second in 0..3 {
            assert_eq!(rate.admit(3, Duration::from_secs(second)).unwrap().remaining, 2 - second as u32);
        }
        let refused = rate.admit(3, Duration::from_millis(10_500)).unwrap_err();
        assert_eq!((refused.retry_after_secs, refused.view.remaining), (50, 0));
        assert!(rate.admit(3, WINDOW - Duration::from_nanos(1)).is_err());
        assert!(rate.admit(3, WINDOW).is_ok());
        assert!(!rate.is_idle(WINDOW) && rate.is_idle(WINDOW * 2));
        assert_eq!(rate.view(3, WINDOW * 2), RateView { limit: 3, remaining: 3, reset_secs: 0 });
    }

    #[test]
    fn after_a_lower_limit_requests_wait_until_enough_have_expired() {
        let mut rate = Rate::default();
        for second in 0..5 {
            rate.admit(5, Duration::from_secs(second)).unwrap();
        }
        let refused = rate.admit(2, Duration::from_secs(10)).unwrap_err();
        assert_eq!(refused.retry_after_secs, 53);
        assert!(rate.admit(2, Duration::from_secs(63)).is_ok());
    }

    #[test]
    fn admit_all_admits_all_requests_or_none() {
        let mut rate = Rate::default();
        assert_eq!(rate.admit_all(3, 5, Duration::from_secs(1)).unwrap().remaining, 2);
        rate.admit(5, Duration::from_secs(2)).unwrap();
        let refused = rate.admit_all(3, 5, Duration::from_secs(10)).unwrap_err();
        assert_eq!((refused.retry_after_secs, refused.view.remaining), (51, 1), "refused requests do not count");
        assert_eq!(rate.admit_all(5, 5, Duration::from_secs(10)).unwrap_err().retry_after_secs, 52);
        assert_eq!(rate.admit_all(6, 5, Duration::from_secs(10)).unwrap_err().retry_after_secs, 60);
        rate.take_back(1);
        assert_eq!(rate.admit_all(2, 5, Duration::from_secs(10)).unwrap().remaining, 0);
        assert!(rate.admit_all(0, 5, Duration::from_secs(10)).is_ok());
    }

    proptest! {
        #[test]
        fn any_sixty_seconds_contain_at_most_the_limit(
            limit in 1_u32..12, gaps_ms in proptest::collection::vec(0_u64..20_000, 0..300),
        ) {
            let (mut rate, mut now, mut admitted) = (Rate::default(), Duration::ZERO, Vec::new());
            for gap in gaps_ms {
                now += Duration::from_millis(gap);
                let expected = rate.view(limit, now).remaining;
                match rate.admit(limit, now) {
                    Ok(view) => {
                        admitted.push(now);
                        prop_assert_eq!(view.remaining + 1, expected);
                    }
                    Err(refused) => {
                        prop_assert_eq!(expected, 0);
                        let then = now + Duration::from_secs(refused.retry_after_secs);
                        prop_assert!(rate.clone().admit(limit, then).is_ok(), "a retry at that time is admitted");
                    }
                }
                prop_assert!(rate.stamps.len() <= limit as usize);
            }
            for window in admitted.windows(limit as usize + 1) {
                prop_assert!(window[limit as usize] - window[0] >= WINDOW);
            }
        }
    }
}
