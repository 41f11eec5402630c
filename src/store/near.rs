//! The near horizon: the timers that are due soon, in memory. The timers table is the far wheel behind it.
//!
//! Every persisted timer before `horizon` is either `waiting` here or `taken` by a worker. The writer adds what its
//! commits armed and takes out what they settled; the pump takes what is due, and refills from the table when it runs
//! dry. What is listed here may already be settled (a refill reads a snapshot), so a worker checks the row it serves
//! and [`NearTimers::forget`]s a timer that serves nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::error::StoreError;
use super::read::{Order, Read};
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
    /// All persisted timers strictly before this one are in `waiting` or `taken`.
    horizon: Timer,
    /// Whether what is before the horizon is only just being read.
    is_refilling: bool,
    /// How many [`Hold`]s there are.
    held: usize,
}

/// Work beside the timers that has to be done before everything counts as settled; over when it is dropped.
pub struct Hold(Arc<NearTimers>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().held -= 1;
        self.0.changed.notify_waiters();
    }
}

/// What a pump learns from [`NearTimers::take_due`].
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The timers that are due now; each stays taken until its row is gone.
    pub timers: Vec<Timer>,
    /// When to look again, unless woken before.
    pub next: Timestamp,
    /// Whether the table has to be read for more.
    pub is_dry: bool,
}

impl State {
    fn is_dry(&self, now: Timestamp) -> bool {
        self.horizon.due <= now + HORIZON / 2 && self.waiting.len() < WAITING_MAX / 2
    }
}

fn before(moment: Timestamp) -> Timer {
    Timer { due: moment, ..Timer::of_store(moment, TimerKind::Transfer) }
}

impl Default for NearTimers {
    fn default() -> Self {
        Self::new()
    }
}

impl NearTimers {
    /// Nothing known yet: the first look refills.
    pub fn new() -> Self {
        let state = State {
            waiting: BTreeSet::new(),
            taken: HashSet::new(),
            horizon: before(Timestamp::ZERO),
            is_refilling: false,
            held: 0,
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
            news |= state.taken.remove(timer) && state.taken.is_empty();
        }
        for timer in armed {
            if *timer < state.horizon && state.waiting.insert(*timer) {
                news = true;
            }
        }
        while state.waiting.len() > WAITING_MAX {
            if let Some(last) = state.waiting.pop_last() {
                state.horizon = last;
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
        let refill_at = state.horizon.due - HORIZON / 2;
        let next = state.waiting.first().map_or(refill_at, |timer| timer.due.min(refill_at));
        Due { timers, next, is_dry }
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
            if timer < state.horizon && !state.taken.contains(&timer) {
                state.waiting.insert(timer);
            }
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// When the first timer after `now` is due, as far as memory knows; the table knows the rest.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.state().waiting.first().map(|timer| timer.due)
    }

    /// A taken timer that can't be served yet: it fires again.
    pub fn give_back(&self, timer: Timer) {
        let mut state = self.state();
        if state.taken.remove(&timer) {
            state.waiting.insert(timer);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A taken timer that serves nothing any more.
    pub fn forget(&self, timer: &Timer) {
        let mut state = self.state();
        state.taken.remove(timer);
        let idle = state.taken.is_empty();
        drop(state);
        if idle {
            self.changed.notify_waiters();
        }
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
        let first_due = state.waiting.first().is_some_and(|timer| timer.due <= now);
        state.held == 0 && state.taken.is_empty() && !first_due && state.horizon.due > now && !state.is_refilling
    }

    /// Resolves at the next change.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

#[cfg(test)]
mod tests;
