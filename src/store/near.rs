//! The near horizon: the timers that are due soon, in memory. The timers table is the far wheel behind it.
//!
//! Every persisted timer before `horizon` is `waiting` here, `taken` by a worker, or `resting`: taken, and put off in
//! memory alone until an alarm. The writer adds what its commits armed and takes out what they settled; the pump takes
//! what is due, and refills from the table when it runs dry. What is listed here may already be settled (a refill reads
//! a snapshot), so a worker checks the row it serves and [`NearTimers::forget`]s a timer that serves nothing.
//!
//! What stands still in a restored store is not held here at all: to the pump it is as if it were not there.
//!
//! An alarm is a moment at which somebody wants to be woken, known here so that time that is moved stops at it. It is
//! no row: a crash forgets it, together with why it was set.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::error::StoreError;
use super::read::{Order, Read};
use super::row::restored::Restored;
use super::schema::Table;
use super::snapshot::Snapshot;
use super::timer::{Timer, TimerKind};
use crate::base::time::Timestamp;

/// How far ahead of now timers are held in memory.
const HORIZON: Duration = Duration::from_secs(300);
/// How many timers wait in memory at most; later ones are found in the table when their time comes.
const WAITING_MAX: usize = 32_768;
/// How many are read from the table at once.
const REFILL: usize = 8_192;

/// The timers of the near future.
pub struct NearTimers {
    state: Mutex<State>,
    /// Woken when a timer was added, or the last one taken was settled.
    changed: Notify,
    /// How many were taken since the start.
    fired: AtomicU64,
}

struct State {
    waiting: BTreeSet<Timer>,
    taken: HashSet<Timer>,
    resting: HashSet<Timer>,
    alarms: BTreeSet<Alarm>,
    /// All persisted timers strictly before this one are in `waiting` or `taken`.
    horizon: Timer,
    /// Whether what is before the horizon is only just being read.
    is_refilling: bool,
    /// How many [`Hold`]s there are.
    held: usize,
    /// Whose timers stand still.
    restored: Option<Restored>,
}

/// Work beside the timers that has to be done before everything counts as settled; over when it is dropped.
pub struct Hold(Arc<NearTimers>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().held -= 1;
        self.0.changed.notify_waiters();
    }
}

/// When somebody wants to be woken, and who.
pub type Alarm = (Timestamp, u64);

/// What a pump learns from [`NearTimers::take_due`].
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The timers that are due now; each stays taken until its row is gone.
    pub timers: Vec<Timer>,
    /// The alarms that are due now; each stays until it is silenced.
    pub alarms: Vec<Alarm>,
    /// When to look again, unless woken before.
    pub next: Timestamp,
    /// Whether the table has to be read for more.
    pub is_dry: bool,
}

impl State {
    fn is_dry(&self, now: Timestamp) -> bool {
        self.horizon.due <= now + HORIZON / 2 && self.waiting.len() < WAITING_MAX / 2
    }

    fn stands_still(&self, timer: &Timer) -> bool {
        self.restored.as_ref().is_some_and(|restored| restored.holds(timer))
    }
}

fn before(moment: Timestamp) -> Timer {
    Timer { due: moment, ..Timer::of_store(moment, TimerKind::Transfer) }
}

impl Default for NearTimers {
    fn default() -> Self {
        Self::new(None)
    }
}

impl NearTimers {
    /// Nothing known yet: the first look refills. What `restored` holds stands still.
    pub fn new(restored: Option<Restored>) -> Self {
        let state = State {
            waiting: BTreeSet::new(),
            taken: HashSet::new(),
            resting: HashSet::new(),
            alarms: BTreeSet::new(),
            horizon: before(Timestamp::ZERO),
            is_refilling: false,
            held: 0,
            restored,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), fired: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by the writer after a commit.
    pub(super) fn committed(&self, armed: &BTreeSet<Timer>, disarmed: &[Timer]) {
        let mut state = self.state();
        let mut news = false;
        for timer in disarmed {
            state.waiting.remove(timer);
            state.resting.remove(timer);
            news |= state.taken.remove(timer) && state.taken.is_empty();
        }
        for timer in armed {
            if *timer < state.horizon && !state.stands_still(timer) && state.waiting.insert(*timer) {
                news = true;
            }
        }
        while state.waiting.len() > WAITING_MAX {
            if let Some(last) = state.waiting.pop_last() {
                // What was let go may have drawn it nearer already.
                state.horizon = state.horizon.min(last);
            }
        }
        drop(state);
        if news {
            self.changed.notify_waiters();
        }
    }

    /// Takes up to `limit` timers that are due at `now`, in due order.
    pub fn take_due(&self, now: Timestamp, limit: usize) -> Due {
        let mut state = self.state();
        let mut timers = Vec::new();
        while timers.len() < limit {
            let Some(first) = state.waiting.first().copied().filter(|timer| timer.due <= now) else { break };
            state.waiting.remove(&first);
            state.taken.insert(first);
            timers.push(first);
        }
        self.fired.fetch_add(timers.len() as u64, Ordering::Relaxed);
        let is_dry = state.is_dry(now);
        // Where enough waits, the first that is due brings the next look.
        let has_enough = state.waiting.len() >= WAITING_MAX / 2;
        let refill_at = if has_enough { Timestamp::MAX } else { state.horizon.due - HORIZON / 2 };
        let alarms: Vec<_> = state.alarms.iter().take_while(|(at, _)| *at <= now).copied().collect();
        let alarm = state.alarms.iter().map(|(at, _)| *at).find(|at| *at > now);
        let next =
            state.waiting.first().map(|timer| timer.due).into_iter().chain(alarm).fold(refill_at, Timestamp::min);
        Due { timers, alarms, next, is_dry }
    }

    /// Reads the next timers from the table, when [`Due::is_dry`].
    ///
    /// # Errors
    /// Those of the database.
    pub fn refill(
        &self,
        now: Timestamp,
        snapshot: impl FnOnce() -> Result<Snapshot, StoreError>,
    ) -> Result<(), StoreError> {
        let goal = before(now + HORIZON);
        // The horizon moves before the snapshot is taken: what commits in between is added by its commit, and what the
        // snapshot holds too is the same timer.
        let from = {
            let mut state = self.state();
            let from = state.horizon;
            if !state.is_dry(now) {
                return Ok(());
            }
            state.horizon = goal;
            state.is_refilling = true;
            from
        };
        let read = snapshot().and_then(|snapshot| {
            snapshot.keys(Table::Timers, &from.encode(), &goal.encode(), Order::Ascending, REFILL)
        });
        let mut state = self.state();
        state.is_refilling = false;
        let keys = read.inspect_err(|_| state.horizon = state.horizon.min(from))?;
        let full = keys.len() == REFILL;
        let timers: Vec<_> = keys.iter().filter_map(|key| Timer::decode(key)).collect();
        if full && let Some(last) = timers.last() {
            let beyond = state.waiting.split_off(last);
            drop(beyond);
            // Commits may have filled memory meanwhile, and drawn the horizon nearer than this.
            state.horizon = state.horizon.min(*last);
        }
        for timer in timers {
            let is_known = state.taken.contains(&timer) || state.resting.contains(&timer);
            if timer < state.horizon && !is_known && !state.stands_still(&timer) {
                state.waiting.insert(timer);
            }
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Nothing stands still any more: what did is read from the table again, with all else that is due.
    pub(super) fn let_go(&self) {
        let mut state = self.state();
        if state.restored.take().is_some() {
            state.horizon = before(Timestamp::ZERO);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A taken timer that can't be served yet: it fires again.
    pub fn give_back(&self, timer: Timer) {
        self.give_back_all([timer]);
    }

    /// The same for many at once.
    pub fn give_back_all(&self, timers: impl IntoIterator<Item = Timer>) {
        let mut state = self.state();
        for timer in timers {
            if state.taken.remove(&timer) | state.resting.remove(&timer) {
                state.waiting.insert(timer);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A taken timer that serves nothing any more.
    pub fn forget(&self, timer: &Timer) {
        let mut state = self.state();
        state.resting.remove(timer);
        state.taken.remove(timer);
        let idle = state.taken.is_empty();
        drop(state);
        if idle {
            self.changed.notify_waiters();
        }
    }

    /// Taken timers that nobody works on until an alarm: they count as settled meanwhile. Those that were settled for
    /// good by now are left out.
    pub fn rest(&self, timers: impl IntoIterator<Item = Timer>) {
        let mut state = self.state();
        for timer in timers {
            if state.taken.remove(&timer) {
                state.resting.insert(timer);
            }
        }
        let idle = state.taken.is_empty();
        drop(state);
        if idle {
            self.changed.notify_waiters();
        }
    }

    /// Resting timers that are worked on again.
    pub fn rouse(&self, timers: impl IntoIterator<Item = Timer>) {
        let mut state = self.state();
        for timer in timers {
            if state.resting.remove(&timer) {
                state.taken.insert(timer);
            }
        }
    }

    /// Has the pump told when `alarm` has come; until it is silenced, nothing counts as settled from then on.
    pub fn set_alarm(&self, alarm: Alarm) {
        self.state().alarms.insert(alarm);
        self.changed.notify_waiters();
    }

    /// Takes an alarm back, rung or not.
    pub fn silence(&self, alarm: &Alarm) {
        self.state().alarms.remove(alarm);
        self.changed.notify_waiters();
    }

    /// The first alarm after `now`.
    pub fn next_alarm(&self, now: Timestamp) -> Option<Timestamp> {
        self.state().alarms.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// How many timers fired since the start.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Begins work that belongs to this moment, though no timer stands for it.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.state().held += 1;
        Hold(Arc::clone(self))
    }

    /// Whether nothing due at `now` waits or is being worked on.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let state = self.state();
        let first_due = state.waiting.first().is_some_and(|timer| timer.due <= now)
            || state.alarms.first().is_some_and(|(at, _)| *at <= now);
        state.held == 0 && state.taken.is_empty() && !first_due && state.horizon.due > now && !state.is_refilling
    }

    /// Resolves at the next change.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

#[cfg(test)]
mod tests;
