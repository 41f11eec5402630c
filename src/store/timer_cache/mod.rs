//! Timer cache: the timers that are due soon, in memory. Later ones are only in the timers table.
//!
//! Every persisted timer before the horizon is either waiting here ([`upcoming`]) or taken by a worker ([`in_flight`]).
//! The writer adds the timers that its commits armed and removes the disarmed ones. The dispatcher takes the due timers
//! and refills the cache from the table when it is empty. A cached timer may already be settled, because a refill reads
//! a snapshot. A worker therefore checks the row that it serves, and calls [`TimerCache::forget`] for a stale timer.
//!
//! Timers of a restored store that are on hold are not cached: the dispatcher does not see them.

mod alarms;
mod in_flight;
mod upcoming;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::checksum;
use super::error::StoreError;
use super::read::{Order, Read, sound};
use super::row::delivery::DeliveryRow;
use super::row::domain::DomainRow;
use super::row::message::TransferRow;
use super::row::notice::NoticeRow;
use super::row::restored::RestoreOrigin;
use super::schema::{self, Table};
use super::snapshot::Snapshot;
use super::timer::{Timer, TimerKind};
use crate::base::id::{DeliveryId, DomainId, MessageId};
use crate::base::time::Timestamp;
pub use alarms::Alarm;
use alarms::Alarms;
pub use in_flight::QueueNumber;
use in_flight::TimersInFlight;
use upcoming::{REFILL, UpcomingTimers};

/// The timers of the next minutes.
pub struct TimerCache {
    state: Mutex<State>,
    /// Notified when a timer was added, or when the last taken one was settled.
    changed: Notify,
    /// Number of timers taken since the start.
    fired: AtomicU64,
}

struct State {
    upcoming: UpcomingTimers,
    in_flight: TimersInFlight,
    alarms: Alarms,
    /// Number of active [`Hold`]s.
    held: usize,
}

/// Whether a commit changed something relevant to waiters.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TimerChange {
    /// A relevant change: notify the waiters.
    Relevant,
    /// No relevant change.
    #[default]
    Irrelevant,
}

/// Work without a timer that must end before everything counts as settled. It ends when the guard is dropped.
pub struct Hold(Arc<TimerCache>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().held -= 1;
        self.0.changed.notify_waiters();
    }
}

/// Result of [`TimerCache::take_due`].
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The timers that are due now. Each stays taken until its row is removed.
    pub timers: Vec<Timer>,
    /// The alarms that are due now. Each stays until it is silenced.
    pub alarms: Vec<Alarm>,
    /// Time of the next check, unless a change comes first.
    pub next: Timestamp,
    /// Whether more timers must be read from the table.
    pub needs_refill: bool,
}

impl Default for TimerCache {
    fn default() -> Self {
        Self::new(None)
    }
}

impl TimerCache {
    /// Creates an empty cache, which the first check refills. The timers that `restored` holds stay on hold.
    pub fn new(restored: Option<RestoreOrigin>) -> Self {
        let state = State {
            upcoming: UpcomingTimers::new(restored),
            in_flight: TimersInFlight::default(),
            alarms: Alarms::default(),
            held: 0,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), fired: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the taken timers and notifies the waiters if all are settled.
    fn update_in_flight(&self, put: impl FnOnce(&mut TimersInFlight)) {
        let mut state = self.state();
        put(&mut state.in_flight);
        let is_idle = state.in_flight.is_idle();
        drop(state);
        if is_idle {
            self.changed.notify_waiters();
        }
    }

    /// Adds and removes the timers of a durable batch. The writer calls this, and notifies the waiters if the result
    /// says so.
    pub(super) fn committed(&self, armed: &BTreeSet<Timer>, disarmed: &[Timer]) -> TimerChange {
        let mut state = self.state();
        let mut is_relevant = false;
        for timer in disarmed {
            state.upcoming.remove(timer);
            is_relevant |= state.in_flight.forget(timer) && state.in_flight.is_idle();
        }
        is_relevant |= state.upcoming.add(armed);
        if is_relevant { TimerChange::Relevant } else { TimerChange::Irrelevant }
    }

    /// Notifies the waiters after a relevant change.
    pub(super) fn notify(&self, change: TimerChange) {
        match change {
            TimerChange::Relevant => self.changed.notify_waiters(),
            TimerChange::Irrelevant => {}
        }
    }

    /// Suspends the timers that end things while deadlines are frozen, and resumes them afterwards.
    pub fn freeze(&self, is_frozen: bool) {
        if self.state().upcoming.freeze(is_frozen) {
            self.changed.notify_waiters();
        }
    }

    /// Takes up to `limit` timers that are due at `now`, in due order.
    pub fn take_due(&self, now: Timestamp, limit: usize) -> Due {
        let mut state = self.state();
        let timers = state.upcoming.take_due(now, limit);
        state.in_flight.take(&timers);
        self.fired.fetch_add(timers.len() as u64, Ordering::Relaxed);
        let alarm = state.alarms.next_after(now).unwrap_or(Timestamp::MAX);
        Due {
            timers,
            alarms: state.alarms.due(now),
            next: state.upcoming.next_look().min(alarm),
            needs_refill: state.upcoming.needs_refill(now),
        }
    }

    /// Reads the next timers from the table if [`Due::needs_refill`].
    ///
    /// # Errors
    /// Database errors.
    pub fn refill(
        &self,
        now: Timestamp,
        snapshot: impl FnOnce() -> Result<Snapshot, StoreError>,
    ) -> Result<(), StoreError> {
        // Move the horizon before taking the snapshot. Timers committed in between are added by their commit. If the
        // snapshot has them too, they are the same timers.
        let Some((from, goal)) = self.state().upcoming.begin_refill(now) else { return Ok(()) };
        let read = snapshot().and_then(|snapshot| timers_between(&snapshot, &from, &goal));
        let mut state = self.state();
        let State { upcoming, in_flight, .. } = &mut *state;
        match read {
            Ok(keys) => upcoming.end_refill(&keys, |timer| in_flight.knows(timer)),
            Err(error) => {
                upcoming.abandon_refill(from);
                return Err(error);
            }
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Releases the timers on hold: they are read from the table again.
    pub(super) fn release(&self) {
        self.state().upcoming.release();
        self.changed.notify_waiters();
    }

    /// Gives back a taken timer that can't be served yet; it fires again.
    pub fn give_back(&self, timer: Timer) {
        self.give_back_all([timer]);
    }

    /// Gives back several timers.
    pub fn give_back_all(&self, timers: impl IntoIterator<Item = Timer>) {
        let mut state = self.state();
        for timer in timers {
            if state.in_flight.forget(&timer) {
                state.upcoming.put_back(timer);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Drops a taken timer that is stale.
    pub fn forget(&self, timer: &Timer) {
        self.update_in_flight(|in_flight| {
            in_flight.forget(timer);
        });
    }

    /// Drops taken timers from memory. If their rows stay, [`TimerCache::claim`] takes them again.
    pub fn forget_all(&self, timers: impl IntoIterator<Item = Timer>) {
        self.update_in_flight(|in_flight| {
            timers.into_iter().for_each(|timer| {
                in_flight.forget(&timer);
            });
        });
    }

    /// Returns whether a timer that was read from the table is cached or taken, or will be read from the table later.
    pub fn knows(&self, timer: &Timer) -> bool {
        let state = self.state();
        !state.upcoming.has_passed(timer) || state.in_flight.knows(timer)
    }

    /// Takes a timer that was read from the table, unless [`TimerCache::knows`] it.
    pub fn claim(&self, timer: &Timer) -> bool {
        let mut state = self.state();
        let is_free = state.upcoming.has_passed(timer) && !state.in_flight.knows(timer);
        if is_free {
            state.in_flight.take(&[*timer]);
        }
        is_free
    }

    /// Assigns a message's taken timer to `queue`. It counts as settled while the queue is suspended.
    pub fn enqueue(&self, timer: &Timer, queue: QueueNumber) {
        self.update_in_flight(|in_flight| in_flight.move_to(timer, Some(queue)));
    }

    /// Removes messages' timers from their queues.
    pub fn dequeue(&self, timers: impl IntoIterator<Item = Timer>) {
        let mut state = self.state();
        timers.into_iter().for_each(|timer| state.in_flight.move_to(&timer, None));
    }

    /// Suspends a queue of any length in one step.
    pub fn suspend(&self, queue: QueueNumber) {
        self.update_in_flight(|in_flight| in_flight.suspend(queue, true));
    }

    /// Resumes a queue.
    pub fn resume(&self, queue: QueueNumber) {
        self.state().in_flight.suspend(queue, false);
    }

    /// Notifies the dispatcher when `alarm` is due. From then on the cache is unsettled until the alarm is silenced.
    pub fn set_alarm(&self, alarm: Alarm) {
        self.state().alarms.set(alarm);
        self.changed.notify_waiters();
    }

    /// Removes an alarm, due or not.
    pub fn silence(&self, alarm: &Alarm) {
        self.state().alarms.silence(alarm);
        self.changed.notify_waiters();
    }

    /// Returns the time of the first alarm after `now`.
    pub fn next_alarm(&self, now: Timestamp) -> Option<Timestamp> {
        self.state().alarms.next_after(now)
    }

    /// Returns the number of timers that fired since the start.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Begins current work that has no timer.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.state().held += 1;
        Hold(Arc::clone(self))
    }

    /// Returns whether no timer due at `now` is waiting or taken.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.held == 0 && state.in_flight.is_idle() && state.upcoming.is_past(now) && !state.alarms.rings(now)
    }

    /// Returns whether no timer of `kind` is taken.
    #[cfg(test)]
    pub(crate) fn is_idle(&self, kind: TimerKind) -> bool {
        self.state().in_flight.is_idle_at(kind)
    }

    /// Resolves at the next change.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

/// Returns up to [`REFILL`] timers between two keys. A timer's key contains all of its data. If its row is damaged, the
/// key still counts if the row that it serves agrees.
fn timers_between(snapshot: &Snapshot, from: &Timer, to: &Timer) -> Result<Vec<Vec<u8>>, StoreError> {
    let (mut keys, (from, to)) = (Vec::new(), (from.encode(), to.encode()));
    snapshot.scan_stored(Table::Timers, (&from, &to), Order::Ascending, &mut |key, stored| {
        if checksum::open(Table::Timers.name(), key, stored).is_some() || is_confirmed(snapshot, key)? {
            keys.push(key.to_vec());
        }
        Ok(if keys.len() < REFILL { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(keys)
}

/// Returns whether the key of a damaged timer can be trusted, although the damage may be in the key. It can if the
/// object it serves is due then, or if its handler checks for itself. Reading the row logs its damage.
fn is_confirmed(snapshot: &Snapshot, key: &[u8]) -> Result<bool, StoreError> {
    drop(sound(snapshot.get(Table::Timers, key))?);
    let Some(timer) = Timer::decode(key) else { return Ok(false) };
    let Timer { due, kind, account, id } = timer;
    let is_account = || snapshot.has(Table::Accounts, account.as_bytes());
    Ok(match kind {
        TimerKind::Transfer => {
            let row = snapshot.sound_row::<TransferRow>(&schema::message(account, MessageId(id)))?;
            row.and_then(|row| row.due) == Some(due)
        }
        TimerKind::Delivery => {
            let row = snapshot.sound_row::<DeliveryRow>(&schema::delivery(account, DeliveryId(id)))?;
            row.and_then(|row| row.state.due(Timestamp::ZERO)) == Some(due)
        }
        TimerKind::DomainCheck => {
            let row = snapshot.sound_row::<DomainRow>(&schema::domain(account, DomainId(id)))?;
            row.and_then(|row| row.next_check_at) == Some(due)
        }
        TimerKind::DkimRotation => {
            let row = snapshot.sound_row::<DomainRow>(&schema::domain(account, DomainId(id)))?;
            row.and_then(|row| row.rotation.timer) == Some(due)
        }
        // Deliveries of an existing endpoint must not end.
        TimerKind::EndpointEnd => is_account()? && !snapshot.has(Table::Endpoints, &schema::owned(account, &id.0))?,
        TimerKind::Unpark | TimerKind::Reputation | TimerKind::MessageIndex | TimerKind::SuppressionImport => {
            is_account()?
        }
        // These kinds settle their timer by its time alone.
        TimerKind::Idempotency | TimerKind::Content | TimerKind::EventLog | TimerKind::TlsReports => {
            timer == Timer::of_store(due, kind)
        }
        TimerKind::Deliveries | TimerKind::StsPolicy | TimerKind::TlsReport | TimerKind::ViewEnd => true,
        TimerKind::AlertAnnouncement | TimerKind::AlertReminder | TimerKind::AlertExpiry => {
            snapshot.has(Table::Alerts, &schema::owned(account, &id.0))?
        }
        TimerKind::Notice => {
            let row = snapshot.sound_row::<NoticeRow>(&id.0)?;
            row.map(|row| row.due) == Some(due)
        }
    })
}

#[cfg(test)]
mod tests;
