//! The account's quota: fixed UTC-aligned hour and day windows. Every new 202 counts in both (contract 3).
//!
//! ```text
//! window 7            window 8                    window 9 ...
//! |--admit--admit-----|--admit--exhausted: 429----|--admit--
//! used 1    2          used 1   = limit           used 1
//! ```
//!
//! A clock that steps back never resets a count. If it steps back over one boundary, the newest window keeps counting.
//! If it steps back further, the count moves into the current window. Otherwise one jump into the far future could
//! block the account for years.

use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// One of the two windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// A UTC hour.
    Hour,
    /// A UTC day.
    Day,
}

impl Window {
    /// Returns the name in `X-Service-Quota-Window`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    const fn length_ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }
}

/// The quota state of one account. Windows are numbered from the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// The hour of `hour_used`.
    pub hour_window: u64,
    /// Messages accepted in that hour.
    pub hour_used: u64,
    /// The day of `day_used`.
    pub day_window: u64,
    /// Messages accepted in that day.
    pub day_used: u64,
}

/// One window as `GET /v1/me` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WindowView {
    /// Maximum number of messages in the window.
    pub limit: u64,
    /// Number of messages accepted in the window.
    pub used: u64,
    /// Number of messages that the window still allows.
    pub remaining: u64,
    /// End of the window, in seconds since the epoch.
    pub reset: u64,
}

/// Both windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotaView {
    /// The current hour.
    pub hour: WindowView,
    /// The current day.
    pub day: WindowView,
}

/// Error: a window is exhausted (429 `quota_exceeded`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the account's quota of this {} is used up", .window.as_str())]
pub struct QuotaExhausted {
    /// The exhausted window; if both are, the one that ends later.
    pub window: Window,
    /// Whole seconds until the window ends, at least 1.
    pub retry_after_secs: u64,
}

impl Quota {
    /// Counts one more message. The returned view includes it.
    ///
    /// # Errors
    /// [`QuotaExhausted`]; the state is unchanged.
    pub fn admit(&self, limits: QuotaLimits, now: Timestamp) -> Result<(Self, QuotaView), QuotaExhausted> {
        self.check(1, limits, now)?;
        let mut quota = self.at(now);
        quota.hour_used += 1;
        quota.day_used += 1;
        Ok((quota, quota.show(limits)))
    }

    /// Checks that both windows allow this many more messages.
    ///
    /// # Errors
    /// [`QuotaExhausted`] with the window that does not.
    pub fn check(&self, messages: u64, limits: QuotaLimits, now: Timestamp) -> Result<(), QuotaExhausted> {
        let view = self.view(limits, now);
        let exhausted = |window: Window, view: WindowView| QuotaExhausted {
            window,
            retry_after_secs: (view.reset * 1000).saturating_sub(now.as_millis()).div_ceil(1000).max(1),
        };
        // The day never ends before the current hour, so it is the window to wait for.
        if view.day.remaining < messages {
            return Err(exhausted(Window::Day, view.day));
        }
        if view.hour.remaining < messages {
            return Err(exhausted(Window::Hour, view.hour));
        }
        Ok(())
    }

    /// Returns both windows at `now`.
    pub fn view(&self, limits: QuotaLimits, now: Timestamp) -> QuotaView {
        self.at(now).show(limits)
    }

    /// Returns the state moved into the windows of `now`.
    fn at(self, now: Timestamp) -> Self {
        let (hour_window, hour_used) = moved(self.hour_window, self.hour_used, now.as_millis() / HOUR_MS);
        let (day_window, day_used) = moved(self.day_window, self.day_used, now.as_millis() / DAY_MS);
        Self { hour_window, hour_used, day_window, day_used }
    }

    fn show(self, limits: QuotaLimits) -> QuotaView {
        let view = |window: Window, index: u64, used: u64, limit: u64| WindowView {
            limit,
            used,
            remaining: limit.saturating_sub(used),
            reset: (index + 1) * window.length_ms() / 1000,
        };
        QuotaView {
            hour: view(Window::Hour, self.hour_window, self.hour_used, limits.per_hour),
            day: view(Window::Day, self.day_window, self.day_used, limits.per_day),
        }
    }
}

impl QuotaView {
    /// Returns the window that the quota headers show: the one with fewer remaining messages. On a tie it is the window
    /// that ends later, or the day if both end at midnight.
    pub const fn tightest(&self) -> (Window, WindowView) {
        let hour_is_tighter = self.hour.remaining < self.day.remaining
            || (self.hour.remaining == self.day.remaining && self.hour.reset > self.day.reset);
        if hour_is_tighter { (Window::Hour, self.hour) } else { (Window::Day, self.day) }
    }
}

/// Returns the applicable window number and its use, if the clock is in window `present`.
const fn moved(window: u64, used: u64, present: u64) -> (u64, u64) {
    if present > window {
        (present, 0)
    } else if present + 1 >= window {
        (window, used)
    } else {
        (present, used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const LIMITS: QuotaLimits = QuotaLimits { per_hour: 3, per_day: 5 };
    /// 22:00:00.500 of some day.
    const START: Timestamp = Timestamp::from_millis(19_000 * DAY_MS + 22 * HOUR_MS + 500);

    fn admit(quota: &mut Quota, now: Timestamp) -> Result<QuotaView, QuotaExhausted> {
        let (next, view) = quota.admit(LIMITS, now)?;
        *quota = next;
        Ok(view)
    }

    #[test]
    fn the_tightest_window_is_reported_and_on_a_tie_the_one_that_resets_later() {
        let mut quota = Quota::default();
        assert_eq!(admit(&mut quota, START).unwrap().tightest().0, Window::Hour);
        admit(&mut quota, START).unwrap();
        let last = admit(&mut quota, START).unwrap();
        assert_eq!((last.hour.remaining, last.day.remaining), (0, 2));
        let full = admit(&mut quota, START).unwrap_err();
        assert_eq!(full, QuotaExhausted { window: Window::Hour, retry_after_secs: 3600 });
        let later = START + Duration::from_secs(3600);
        let view = admit(&mut quota, later).unwrap();
        assert_eq!((view.hour.remaining, view.day.remaining, view.tightest().0), (2, 1, Window::Day));
        admit(&mut quota, later).unwrap();
        assert_eq!(admit(&mut quota, later).unwrap_err().window, Window::Day);
        let tie = QuotaLimits { per_hour: 5, per_day: 5 };
        assert_eq!(Quota::default().view(tie, START).tightest().0, Window::Day);
    }

    #[test]
    fn retry_after_is_at_least_one_second() {
        let end = Timestamp::from_millis(19_001 * DAY_MS - 1);
        let none = QuotaLimits { per_hour: 0, per_day: 9 };
        assert_eq!(Quota::default().admit(none, end).unwrap_err().retry_after_secs, 1);
    }

    #[test]
    fn a_clock_that_steps_around_a_boundary_opens_the_new_window_once() {
        let boundary = Timestamp::from_millis(19_000 * DAY_MS + 23 * HOUR_MS);
        let before = boundary - Duration::from_millis(1);
        let mut quota = Quota::default();
        let admitted = (0..20).filter(|n| admit(&mut quota, if n % 2 == 0 { boundary } else { before }).is_ok());
        assert_eq!(admitted.count(), 3);
    }

    #[test]
    fn a_far_step_back_moves_the_count_into_the_current_window() {
        let mut quota = Quota::default();
        admit(&mut quota, START + Duration::from_secs(86_400 * 400)).unwrap();
        let view = quota.view(LIMITS, START);
        assert_eq!((view.hour.used, view.hour.reset), (1, (START.as_millis() / HOUR_MS + 1) * 3600));
    }

    proptest! {
        #[test]
        fn no_window_admits_more_than_its_limit(gaps_ms in proptest::collection::vec(0_u64..2_000_000, 0..300)) {
            let (mut quota, mut now) = (Quota::default(), START);
            let (mut hours, mut days) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
            for gap in gaps_ms {
                now = now + Duration::from_millis(gap);
                match admit(&mut quota, now) {
                    Ok(view) => {
                        *hours.entry(now.as_millis() / HOUR_MS).or_default() += 1;
                        *days.entry(now.as_millis() / DAY_MS).or_default() += 1;
                        prop_assert_eq!(view.hour.used + view.hour.remaining, LIMITS.per_hour);
                    }
                    Err(full) => {
                        prop_assert!(full.retry_after_secs >= 1);
                        // Waiting exactly that long is enough for the named window.
                        let then = quota.view(LIMITS, now + Duration::from_secs(full.retry_after_secs));
                        let named = match full.window { Window::Hour => then.hour, Window::Day => then.day };
                        prop_assert!(named.remaining > 0);
                    }
                }
            }
            prop_assert!(hours.values().all(|used| *used <= LIMITS.per_hour));
            prop_assert!(days.values().all(|used| *used <= LIMITS.per_day));
        }

        #[test]
        fn a_step_back_never_increases_the_remaining_quota(used in 0_usize..8, ahead_ms in 0_u64..90_000_000, back_ms in 0_u64..200_000_000) {
            let now = START + Duration::from_millis(ahead_ms);
            let mut quota = Quota::default();
            for _ in 0..used { let _ = admit(&mut quota, now); }
            let (before, after) = (quota.view(LIMITS, now), quota.view(LIMITS, now - Duration::from_millis(back_ms)));
            prop_assert!(after.hour.remaining <= before.hour.remaining && after.day.remaining <= before.day.remaining);
        }
    }
}
