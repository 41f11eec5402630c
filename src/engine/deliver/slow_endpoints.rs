//! Endpoints that answered slowly. Each stays slow for some minutes after its last slow answer. If one fast answer were
//! enough, an endpoint that is slow every other time would hold permits of the fast ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Key;

/// Maximum duration of a fast answer.
pub(super) const PROMPT: Duration = Duration::from_secs(2);
/// Time for which an endpoint is slow after a slow answer.
const SLOW_FOR: Duration = Duration::from_secs(5 * 60);
/// Maximum number of endpoints remembered.
const ENDPOINTS_MAX: usize = 65_536;

/// The endpoints, with the end of their time on the monotonic clock.
#[derive(Default)]
pub(super) struct SlowEndpoints(Mutex<BTreeMap<Key, Duration>>);

impl SlowEndpoints {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<Key, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the endpoint has answered slowly within the last minutes.
    pub(super) fn contains(&self, endpoint: Key, now: Duration) -> bool {
        self.ends().get(&endpoint).is_some_and(|end| now < *end)
    }

    /// Records an answer at `now` and its duration.
    pub(super) fn answered(&self, endpoint: Key, took: Duration, now: Duration) {
        if took <= PROMPT {
            return;
        }
        let mut ends = self.ends();
        if ends.len() >= ENDPOINTS_MAX {
            ends.retain(|_, end| now < *end);
        }
        if ends.len() < ENDPOINTS_MAX {
            ends.insert(endpoint, now + SLOW_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_slow_every_other_time_stays_slow() {
        let (slow, endpoint, mut now) = (SlowEndpoints::default(), Key::default(), Duration::ZERO);
        slow.answered(endpoint, PROMPT, now);
        assert!(!slow.contains(endpoint, now));
        for _ in 0..3 {
            slow.answered(endpoint, PROMPT + Duration::from_millis(1), now);
            slow.answered(endpoint, Duration::ZERO, now);
            now += SLOW_FOR - Duration::from_secs(1);
            assert!(slow.contains(endpoint, now));
        }
        assert!(!slow.contains(endpoint, now + Duration::from_secs(1)), "a fast endpoint becomes sound again");
    }
}
