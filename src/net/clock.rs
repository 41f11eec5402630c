//! The real clocks. This is the only place that reads the system's time.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::base::time::Timestamp;
use crate::engine::ports::Clock;
use crate::engine::service_clock::ServiceClock;
use crate::machine::service_clock::Sample;

/// A clock that can't be set and that counts the time while the machine is suspended.
#[cfg(target_os = "linux")]
const CONTINUOUS: ClockId = ClockId::Boottime;
/// A clock that can't be set. The POSIX monotonic clock of macOS counts the time of a suspension too
/// (clock_gettime(3)).
#[cfg(not(target_os = "linux"))]
const CONTINUOUS: ClockId = ClockId::Monotonic;
/// Interval at which the kernel is asked whether the wall clock is synchronised.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// Returns the clock of a service that runs on this machine's time.
pub fn service_clock() -> ServiceClock {
    let asked = Mutex::new(None);
    ServiceClock::new(Box::new(move || {
        // The wall clock is read first: a pause between both readings makes it look late, but never ahead.
        let wall = since_epoch();
        let elapsed = continuous();
        let mut asked = asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_synchronised = match *asked {
            Some((at, answer)) if elapsed.saturating_sub(at) < ASKED_EVERY => answer,
            _ => is_synchronised(),
        };
        if asked.is_none_or(|(at, _)| elapsed.saturating_sub(at) >= ASKED_EVERY) {
            *asked = Some((elapsed, is_synchronised));
        }
        Sample { wall, elapsed, is_synchronised }
    }))
}

/// Returns whether the kernel reports a synchronised wall clock (adjtimex(2)). Reading needs no privilege. If the call
/// is forbidden, the clock counts as not synchronised.
#[cfg(target_os = "linux")]
pub fn is_synchronised() -> bool {
    /// `TIME_ERROR`: the clock is not synchronised.
    const UNSYNCHRONISED: i32 = 5;
    rtime_clock::adjtime::adjtimex(&mut rtime_clock::adjtime::Timex::new()).is_ok_and(|state| state != UNSYNCHRONISED)
}

/// Returns false: this system can't report whether the clock is synchronised.
#[cfg(not(target_os = "linux"))]
pub fn is_synchronised() -> bool {
    false
}

/// Reads the wall clock. A clock set before 1970 reads as the epoch.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn continuous() -> Duration {
    let elapsed = clock_gettime(CONTINUOUS);
    let seconds = u64::try_from(elapsed.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(elapsed.tv_nsec).unwrap_or_default())
}

/// The system's wall clock, and a monotonic clock that can't be set and counts the time while the machine is suspended.
/// For leases.
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

/// The system's wall clock, and its monotonic clock counted from this value's creation. For commands; the service uses
/// [`service_clock`].
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Creates a clock that starts counting now.
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
    fn the_real_clock_is_after_the_build_date_and_never_goes_back() {
        let clock = SystemClock::new();
        let first = clock.monotonic();
        assert!(clock.now() > "2026-01-01T00:00:00Z".parse().unwrap());
        assert!(clock.monotonic() >= first);
    }
}
