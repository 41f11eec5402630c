//! Timer cache: all timers of the table before a horizon, in due order. The horizon moves on as time passes, and comes
//! nearer when memory is full. [`super::NearTimers`] holds this under its lock, and reads the table for it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::store::row::restored::Restored;
use crate::store::timer::{Timer, TimerKind};

/// Distance of the horizon from now.
pub(super) const HORIZON: Duration = Duration::from_secs(300);
/// Maximum number of timers in memory. Later ones are read from the table when their time comes.
pub(super) const WAITING_MAX: usize = 32_768;
/// Number of timers that are read from the table at once.
pub(super) const REFILL: usize = 8_192;

/// The timers before the horizon that nobody has taken.
pub(super) struct Ahead {
    pub(super) waiting: BTreeSet<Timer>,
    /// All persisted timers strictly before this one wait here or are in hand.
    pub(super) horizon: Timer,
    /// Whether what is before the horizon is only just being read.
    is_refilling: bool,
    /// The restore whose timers are on hold.
    restored: Option<Restored>,
    /// Whether deadlines stand still, and the timers that serve them.
    is_frozen: bool,
}

/// The first of all timers that can be due at `moment`.
fn first_at(moment: Timestamp) -> Timer {
    Timer::of_store(moment, TimerKind::Transfer)
}

impl Ahead {
    /// Nothing is known yet; what `restored` holds stands still.
    pub(super) fn new(restored: Option<Restored>) -> Self {
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

    /// Whether the timer lies before the horizon and does not wait here.
    pub(super) fn has_passed(&self, timer: &Timer) -> bool {
        self.is_before_horizon(timer) && !self.waiting.contains(timer)
    }

    /// Deadlines stand still, or move on: then their timers are read from the table again. Says whether that is new.
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

    /// Adds those of the timers that are near, and says whether there were any.
    pub(super) fn add(&mut self, armed: &BTreeSet<Timer>) -> bool {
        let mut is_news = false;
        for timer in armed {
            is_news |= self.is_before_horizon(timer) && self.waiting.insert(*timer);
        }
        while self.waiting.len() > WAITING_MAX {
            if let Some(last) = self.waiting.pop_last() {
                // A released timer may already have made it due earlier.
                self.horizon = self.horizon.min(last);
            }
        }
        is_news
    }

    /// A timer that was settled before anybody took it.
    pub(super) fn remove(&mut self, timer: &Timer) {
        self.waiting.remove(timer);
    }

    /// A timer that was taken waits again, wherever the horizon is by now.
    pub(super) fn put_back(&mut self, timer: Timer) {
        // One that stands still is read from the table again.
        if !(self.is_frozen && timer.kind.ends_things()) {
            self.waiting.insert(timer);
        }
    }

    /// Takes out up to `limit` timers that are due.
    pub(super) fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<Timer> {
        let mut timers = Vec::new();
        while timers.len() < limit && self.waiting.first().is_some_and(|timer| timer.due <= now) {
            timers.extend(self.waiting.pop_first());
        }
        timers
    }

    /// Whether the table has to be read for more.
    pub(super) fn is_dry(&self, now: Timestamp) -> bool {
        self.horizon.due <= now + HORIZON / 2 && !self.has_enough()
    }

    fn has_enough(&self) -> bool {
        self.waiting.len() >= WAITING_MAX / 2
    }

    /// When there is something to do: a timer is due, or the table is to be read. Where enough waits, the first that
    /// is due brings the next look.
    pub(super) fn next_look(&self) -> Timestamp {
        let refill_at = if self.has_enough() { Timestamp::MAX } else { self.horizon.due - HORIZON / 2 };
        self.waiting.first().map_or(refill_at, |first| first.due.min(refill_at))
    }

    /// Whether nothing that is due at `now` waits, here or unread.
    pub(super) fn is_past(&self, now: Timestamp) -> bool {
        let is_due = self.waiting.first().is_some_and(|timer| timer.due <= now);
        !is_due && !self.is_refilling && self.horizon.due > now
    }

    /// Moves the horizon on, where memory is dry: from where and to where the table is to be read.
    pub(super) fn begin_refill(&mut self, now: Timestamp) -> Option<(Timer, Timer)> {
        if !self.is_dry(now) {
            return None;
        }
        let goal = first_at(now + HORIZON);
        self.is_refilling = true;
        Some((std::mem::replace(&mut self.horizon, goal), goal))
    }

    /// The table could not be read.
    pub(super) fn abandon_refill(&mut self, from: Timer) {
        self.is_refilling = false;
        self.horizon = self.horizon.min(from);
    }

    /// Takes over the keys that were read, at most [`REFILL`]; `is_known` names the timers that others hold.
    pub(super) fn end_refill(&mut self, keys: &[Vec<u8>], is_known: impl Fn(&Timer) -> bool) {
        self.is_refilling = false;
        let timers: Vec<_> = keys.iter().filter_map(|key| Timer::decode(key)).collect();
        if keys.len() == REFILL
            && let Some(last) = timers.last()
        {
            // There is more, and from there on it is unread. Commits may have drawn the horizon nearer than that.
            self.waiting.split_off(last);
            self.horizon = self.horizon.min(*last);
        }
        for timer in timers {
            if self.is_before_horizon(&timer) && !is_known(&timer) {
                self.waiting.insert(timer);
            }
        }
    }

    /// No timer is on hold any more, so the table is read again.
    pub(super) fn let_go(&mut self) {
        if self.restored.take().is_some() {
            self.horizon = first_at(Timestamp::ZERO);
        }
    }
}
