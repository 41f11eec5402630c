//! Schedule of certificate requests to the authority (RFC 8555), and of retries after a failure.
//!
//! ```text
//! from ........................ renew_at ........... until        renew_at: two thirds of the life
//!                               |- request ---|- failed: 10 s, 5 min, 20 min, 1 h, 3 h, 6 h, 12 h, 24 h, 24 h ...
//! ```
//!
//! Authorities count failed validations per hour: Let's Encrypt blocks a name after five. So at most four attempts that
//! follow a refusal fall into any hour. The second attempt comes early, because it uses the other challenge type. A
//! request that never reached the authority did not count there, so its retry comes sooner. The count is kept across
//! restarts. Otherwise a process that restarts in a loop would use up the limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;

/// Seconds after the first, second, ... refusal. From the eighth refusal on, the last value.
const AFTER_REFUSAL: [u64; 8] = [10, 300, 1_200, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600];
/// Seconds after a failure to reach the authority, doubled each time up to an hour.
const AFTER_SILENCE: u64 = 10;
const AFTER_SILENCE_MAX: u64 = 3_600;

/// Maximum distance of a recorded time from the clock, if that was only corrected.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(3600);

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// `notBefore`.
    pub from: Timestamp,
    /// `notAfter`.
    pub until: Timestamp,
}

impl Validity {
    /// Returns the renewal time: after two thirds of the validity, which leaves a month of three.
    pub fn renew_at(self) -> Timestamp {
        self.from + self.until.since(self.from).mul_f64(2.0 / 3.0)
    }
}

/// Kind of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalFailure {
    /// The authority was not reached, or its answer was unreadable.
    Unreached,
    /// The authority refused.
    Refused,
}

/// Failures since the last certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalFailures {
    /// Number of refusals.
    pub refused: u32,
    /// Number of failures to reach the authority.
    pub unreached: u32,
    /// End of the backoff, in milliseconds since the epoch.
    wait_until: u64,
    /// Time of the last failure, in milliseconds since the epoch.
    #[serde(default)]
    failed_at: u64,
}

impl RenewalFailures {
    /// Adds a failure at `now`. `retry_after` is the authority's Retry-After.
    #[must_use]
    pub fn and(self, setback: RenewalFailure, now: Timestamp, retry_after: Option<Duration>) -> Self {
        let mut next = self;
        let pause = match setback {
            RenewalFailure::Refused => {
                let step = usize::try_from(self.refused).unwrap_or(usize::MAX).min(AFTER_REFUSAL.len() - 1);
                next.refused = self.refused.saturating_add(1);
                AFTER_REFUSAL[step]
            }
            RenewalFailure::Unreached => {
                let doubled = AFTER_SILENCE.checked_shl(self.unreached.min(16)).unwrap_or(u64::MAX);
                next.unreached = self.unreached.saturating_add(1);
                doubled.min(AFTER_SILENCE_MAX)
            }
        };
        let pause = Duration::from_secs(pause).max(retry_after.unwrap_or_default());
        (next.wait_until, next.failed_at) = ((now + pause).as_millis(), now.as_millis());
        next
    }

    /// Returns the end of the backoff.
    pub const fn wait_until(self) -> Timestamp {
        Timestamp::from_millis(self.wait_until)
    }
}

/// Returns the time of the next request. `held` is the validity of the certificate that covers all configured names, if
/// there is one. A failure that is later than `now` was recorded by a clock that was ahead, and delays nothing.
pub fn due(held: Option<Validity>, setbacks: RenewalFailures, now: Timestamp) -> Timestamp {
    let wanted = held.map_or(Timestamp::from_millis(0), Validity::renew_at);
    let is_of_past = setbacks.failed_at <= (now + CLOCK_DIFFERENCE_MAX).as_millis();
    if is_of_past { wanted.max(setbacks.wait_until()) } else { wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life_and_a_missing_one_is_requested_at_once() {
        let day = 24 * HOUR;
        let held = Validity { from: NOW, until: NOW + 90 * day };
        assert_eq!(due(Some(held), RenewalFailures::default(), NOW), NOW + 60 * day);
        assert!(due(None, RenewalFailures::default(), NOW) < NOW);
    }

    #[test]
    fn an_unreachable_authority_is_retried_sooner_than_one_that_refused() {
        let pauses = |setback| {
            let mut setbacks = RenewalFailures::default();
            let mut pause = || {
                setbacks = setbacks.and(setback, NOW, None);
                setbacks.wait_until().since(NOW).as_secs()
            };
            (0..10).map(|_| pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(RenewalFailure::Unreached), [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
        assert_eq!(pauses(RenewalFailure::Refused), [10, 300, 1200, 3600, 10800, 21600, 43200, 86400, 86400, 86400]);
    }

    #[test]
    fn a_longer_retry_after_of_the_authority_is_respected() {
        let setbacks = RenewalFailures::default().and(RenewalFailure::Refused, NOW, Some(2 * HOUR));
        assert_eq!(due(None, setbacks, NOW), NOW + 2 * HOUR);
        assert!(due(None, setbacks, NOW - 5 * 24 * HOUR) < NOW, "the clock was ahead");
        assert_eq!(setbacks.and(RenewalFailure::Refused, NOW, Some(Duration::ZERO)).wait_until(), NOW + HOUR / 12);
    }

    proptest! {
        /// Checks any order of refusals and failures to connect.
        #[test]
        fn any_hour_contains_at_most_four_refusals(order in proptest::collection::vec(any::<bool>(), 1..40)) {
            let (mut now, mut setbacks, mut refusals) = (NOW, RenewalFailures::default(), Vec::new());
            for refused in order {
                let setback = if refused { RenewalFailure::Refused } else { RenewalFailure::Unreached };
                if refused {
                    refusals.push(now);
                }
                setbacks = setbacks.and(setback, now, None);
                let next = due(None, setbacks, now);
                prop_assert!(next > now);
                now = next;
            }
            for five in refusals.windows(5) {
                prop_assert!(five[4].since(five[0]) >= HOUR);
            }
        }
    }
}
