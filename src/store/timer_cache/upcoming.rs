//! Timer cache: all timers of the table before a horizon, in due order. The horizon moves forward as time passes, and
//! back when memory is full. [`super::TimerCache`] holds this under its lock and reads the table for it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::store::row::restored::RestoreOrigin;
use crate::store::timer::{Timer, TimerKind};

/// Distance of the horizon from now.
pub(super) const HORIZON: Duration = Duration::from_secs(300);
/// Maximum number of timers in memory. Later ones are read from the table when their time comes.
pub(super) const WAITING_MAX: usize = 32_768;
/// Number of timers that are read from the table at once.
pub(super) const REFILL: usize = 8_192;

/// Timers before the horizon that no worker has taken.
pub(super) struct UpcomingTimers {
    pub(super) waiting: BTreeSet<Timer>,
    /// All persisted timers strictly before this one are waiting here or taken.
    pub(super) horizon: Timer,
    /// Whether a refill is reading timers before the horizon.
    is_refilling: bool,
    /// The restore whose timers are on hold.
    restored: Option<RestoreOrigin>,
    /// Whether deadlines are frozen, with the timers that serve them.
    is_frozen: bool,
}

/// Returns the first of all timers that can be due at `moment`.
fn first_at(moment: Timestamp) -> Timer {
    Timer::of_store(moment, TimerKind::Transfer)
}

impl UpcomingTimers {
    /// Creates an empty cache. The timers that `restored` holds stay on hold.
    pub(super) fn new(restored: Option<RestoreOrigin>) -> Self {
        Self {
            waiting: BTreeSet::new(),
            horizon: first_at(Timestamp::ZERO),
            is_refilling: false,
            restored,
            is_frozen: false,
        }
    }

    fn is_before_horizon(&self, timer: &Timer) -> bool {
        *timer < self.horizon
            && !self.restored.as_ref().is_some_and(|restored| restored.holds(timer))
            && !(self.is_frozen && timer.kind.ends_things())
    }

    /// Returns whether the timer is before the horizon and not waiting here.
    pub(super) fn has_passed(&self, timer: &Timer) -> bool {
        self.is_before_horizon(timer) && !self.waiting.contains(timer)
    }

    /// Freezes or unfreezes deadlines; unfreezing reads their timers from the table again. Returns whether this is a
    /// change.
    pub(super) fn freeze(&mut self, is_frozen: bool) -> bool {
        let is_new = self.is_frozen != is_frozen;
        self.is_frozen = is_frozen;
        if is_new && is_frozen {
            self.waiting.retain(|timer| !timer.kind.ends_things());
        } else if is_new {
            self.horizon = first_at(Timestamp::ZERO);
        }
        is_new
    }

    /// Adds the timers that are before the horizon, and returns whether there were any.
    pub(super) fn add(&mut self, armed: &BTreeSet<Timer>) -> bool {
        let mut is_relevant = false;
        for timer in armed {
            is_relevant |= self.is_before_horizon(timer) && self.waiting.insert(*timer);
        }
        while self.waiting.len() > WAITING_MAX {
            if let Some(last) = self.waiting.pop_last() {
                // A timer that was given back may already have moved the horizon.
                self.horizon = self.horizon.min(last);
            }
        }
        is_relevant
    }

    /// Removes a timer that was settled before it was taken.
    pub(super) fn remove(&mut self, timer: &Timer) {
        self.waiting.remove(timer);
    }

    /// Puts a taken timer back, regardless of the horizon.
    pub(super) fn put_back(&mut self, timer: Timer) {
        // A frozen timer is read from the table again later.
        if !(self.is_frozen && timer.kind.ends_things()) {
            self.waiting.insert(timer);
        }
    }

    /// Takes up to `limit` timers that are due.
    pub(super) fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<Timer> {
        let mut timers = Vec::new();
        while timers.len() < limit && self.waiting.first().is_some_and(|timer| timer.due <= now) {
            timers.extend(self.waiting.pop_first());
        }
        timers
    }

    /// Returns whether more timers must be read from the table.
    pub(super) fn needs_refill(&self, now: Timestamp) -> bool {
        self.horizon.due <= now + HORIZON / 2 && !self.has_enough()
    }

    fn has_enough(&self) -> bool {
        self.waiting.len() >= WAITING_MAX / 2
    }

    /// Returns the time of the next check: a timer is due, or the table must be read. If enough timers are cached, this
    /// is the first due time.
    pub(super) fn next_look(&self) -> Timestamp {
        let refill_at = if self.has_enough() { Timestamp::MAX } else { self.horizon.due - HORIZON / 2 };
        self.waiting.first().map_or(refill_at, |first| first.due.min(refill_at))
    }

    /// Returns whether no timer that is due at `now` is waiting here or unread.
    pub(super) fn is_past(&self, now: Timestamp) -> bool {
        let is_due = self.waiting.first().is_some_and(|timer| timer.due <= now);
        !is_due && !self.is_refilling && self.horizon.due > now
    }

    /// Moves the horizon if it is empty. Returns the range of the table to read.
    pub(super) fn begin_refill(&mut self, now: Timestamp) -> Option<(Timer, Timer)> {
        if !self.needs_refill(now) {
            return None;
        }
        let goal = first_at(now + HORIZON);
        self.is_refilling = true;
        Some((std::mem::replace(&mut self.horizon, goal), goal))
    }

    /// Undoes a refill whose table read failed.
    pub(super) fn abandon_refill(&mut self, from: Timer) {
        self.is_refilling = false;
        self.horizon = self.horizon.min(from);
    }

    /// Adds the keys that were read, at most [`REFILL`]. `is_known` decides whether a timer is already taken.
    pub(super) fn end_refill(&mut self, keys: &[Vec<u8>], is_known: impl Fn(&Timer) -> bool) {
        self.is_refilling = false;
        let timers: Vec<_> = keys.iter().filter_map(|key| Timer::decode(key)).collect();
        if keys.len() == REFILL
            && let Some(last) = timers.last()
        {
            // Timers after the last one read are still unread. Commits may have moved the horizon before it.
            self.waiting.split_off(last);
            self.horizon = self.horizon.min(*last);
        }
        for timer in timers {
            if self.is_before_horizon(&timer) && !is_known(&timer) {
                self.waiting.insert(timer);
            }
        }
    }

    /// Releases the timers on hold: the table is read again.
    pub(super) fn release(&mut self) {
        if self.restored.take().is_some() {
            self.horizon = first_at(Timestamp::ZERO);
        }
    }
}
