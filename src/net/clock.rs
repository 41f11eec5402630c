//! The real clock. The only place that reads the system's time for the rest of the program.

use std::time::{Duration, Instant, SystemTime};

use crate::base::time::Timestamp;
use crate::engine::ports::Clock;

/// The system's wall clock, and its monotonic one counted from when this was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Starts counting now.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as the epoch: the store's identifiers rise all the same (house, Storage).
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_clock_is_past_this_programs_making_and_never_goes_back() {
        let clock = SystemClock::new();
        let first = clock.monotonic();
        assert!(clock.now() > "2026-01-01T00:00:00Z".parse().unwrap());
        assert!(clock.monotonic() >= first);
    }
}
