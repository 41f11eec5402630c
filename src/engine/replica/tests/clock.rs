//! The clocks of a machine in a test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::engine::ports::Clock;
use crate::store::testing::START;

/// A machine's clocks, in milliseconds: the time since its boot, and the time by which its wall clock is ahead.
#[derive(Default)]
pub(super) struct TestClock {
    elapsed: AtomicU64,
    ahead: AtomicU64,
}

impl TestClock {
    /// Advances time in steps that are too short to look like a frozen process.
    pub(super) fn advance(&self, by: Duration) {
        self.elapsed.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Sets the wall clock ahead.
    pub(super) fn set_ahead(&self, by: Duration) {
        self.ahead.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        START + self.monotonic() + Duration::from_millis(self.ahead.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::SeqCst))
    }
}
