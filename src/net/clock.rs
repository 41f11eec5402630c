//! The real clocks. The only place that reads the system's time for the rest of the program.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::base::time::Timestamp;
use crate::engine::ports::Clock;
use crate::engine::service_clock::ServiceClock;
use crate::machine::service_clock::Sample;

/// The clock that can't be set and counts the time of a suspended machine.
#[cfg(target_os = "linux")]
const CONTINUOUS: ClockId = ClockId::Boottime;
/// On macOS the POSIX monotonic clock does (clock_gettime(3)).
#[cfg(not(target_os = "linux"))]
const CONTINUOUS: ClockId = ClockId::Monotonic;
/// Interval at which the kernel is asked whether the wall clock is synchronised.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// The clock of a service that runs on this machine's time.
pub fn service_clock() -> ServiceClock {
    let asked = Mutex::new(None);
    ServiceClock::new(Box::new(move || {
        let elapsed = continuous();
        let mut asked = asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_synchronised = match *asked {
            Some((at, answer)) if elapsed.saturating_sub(at) < ASKED_EVERY => answer,
            _ => is_synchronised(),
        };
        if asked.is_none_or(|(at, _)| elapsed.saturating_sub(at) >= ASKED_EVERY) {
            *asked = Some((elapsed, is_synchronised));
        }
        Sample { wall: since_epoch(), elapsed, is_synchronised }
    }))
}

/// Whether the kernel reports that a time service keeps the wall clock (adjtimex(2)). Reading needs no privilege; where
/// it is forbidden, nothing vouches for the clock.
#[cfg(target_os = "linux")]
pub fn is_synchronised() -> bool {
    /// `TIME_ERROR`: the clock is not synchronised.
    const UNSYNCHRONISED: i32 = 5;
    rtime_clock::adjtime::adjtimex(&mut rtime_clock::adjtime::Timex::new()).is_ok_and(|state| state != UNSYNCHRONISED)
}

/// Nothing vouches for the clock here.
#[cfg(not(target_os = "linux"))]
pub fn is_synchronised() -> bool {
    false
}

/// The wall clock. One set before 1970 reads as the epoch.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn continuous() -> Duration {
    let elapsed = clock_gettime(CONTINUOUS);
    let seconds = u64::try_from(elapsed.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(elapsed.tv_nsec).unwrap_or_default())
}

/// The system's wall clock as it is, and the clock that can't be set and counts the time of a suspended machine. For
/// leases.
#[derive(Debug, Clone, Copy)]
pub struct ContinuousClock;

impl Clock for ContinuousClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        continuous()
    }
}

/// The system's wall clock, and its monotonic one counted from when this was made. For commands; the service follows
/// [`service_clock`].
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
        Timestamp::from_millis(u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX))
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
