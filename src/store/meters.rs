//! What the store counts: its commits and syncs, the events that they made true, and how many timers wait.
//!
//! The writer and the appender count after the sync, so that nothing is counted which was not kept.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::error::StoreError;
use super::read::{Order, Read};
use super::schema::Table;
use super::snapshot::Snapshot;
use super::timer::TimerKind;
use crate::base::meter::{COMPANIES, Counter, Histogram};
use crate::domain::event::{BounceKind, EventType};
use crate::domain::stream::Stream;

/// The meters of one store.
#[derive(Debug)]
pub struct StoreMeters {
    /// How many operations each commit had.
    pub commit_operations: Histogram,
    /// How long each commit took with its sync, in microseconds.
    pub commit_duration: Histogram,
    /// How many bodies were synced together.
    pub append_bodies: Histogram,
    /// How long writing and syncing them took, in microseconds.
    pub append_duration: Histogram,
    events: [[Counter; Stream::ALL.len()]; EventType::ALL.len()],
    bounces: [[Counter; Stream::ALL.len()]; BounceKind::ALL.len()],
    transfers: AtomicI64,
    deliveries: AtomicI64,
    /// Whether what waited when the store was opened is counted too.
    is_complete: AtomicBool,
}

/// An event that an operation recorded, as far as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) kind: EventType,
    pub(super) stream: Stream,
    pub(super) bounce: Option<BounceKind>,
}

/// How many timers of a kind are more, or fewer, than before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WaitingChange {
    transfers: i64,
    deliveries: i64,
}

/// How many timers wait, due or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Messages whose transfer has not ended.
    pub transfers: u64,
    /// Webhook deliveries that are not settled; those of disabled endpoints are parked and not among them.
    pub deliveries: u64,
}

impl WaitingChange {
    /// Notes that the timer at `key` of the timers table is there now, where it was before as `was_there` says.
    pub(super) fn note(&mut self, key: &[u8], was_there: bool, is_there: bool) {
        let change = i64::from(is_there) - i64::from(was_there);
        match key.get(8) {
            Some(&kind) if kind == TimerKind::Transfer as u8 => self.transfers += change,
            Some(&kind) if kind == TimerKind::Delivery as u8 => self.deliveries += change,
            Some(_) | None => {}
        }
    }
}

impl Default for StoreMeters {
    fn default() -> Self {
        Self {
            commit_operations: Histogram::new(COMPANIES),
            commit_duration: Histogram::of_durations(),
            append_bodies: Histogram::new(COMPANIES),
            append_duration: Histogram::of_durations(),
            events: Default::default(),
            bounces: Default::default(),
            transfers: AtomicI64::new(0),
            deliveries: AtomicI64::new(0),
            is_complete: AtomicBool::new(false),
        }
    }
}

impl StoreMeters {
    /// Counts a commit that took so long.
    pub(super) fn committed(&self, operations: usize, took: Duration, noted: &[Noted], waiting: WaitingChange) {
        self.commit_operations.observe(operations as u64);
        self.commit_duration.observe_duration(took);
        for Noted { kind, stream, bounce } in noted {
            self.events[*kind as usize][*stream as usize].count();
            if let Some(bounce) = bounce.filter(|_| *kind == EventType::Bounced) {
                self.bounces[bounce as usize][*stream as usize].count();
            }
        }
        self.wait(waiting);
    }

    /// Counts bodies that were written and synced together.
    pub(super) fn appended(&self, bodies: usize, took: Duration) {
        self.append_bodies.observe(bodies as u64);
        self.append_duration.observe_duration(took);
    }

    /// Counts what waited in `snapshot`, which was taken before the first commit.
    pub(super) fn count_waiting(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut found = WaitingChange::default();
        snapshot.scan(Table::Timers, &[], &[u8::MAX; 9], Order::Ascending, &mut |key, _| {
            found.note(key, false, true);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        self.wait(found);
        self.is_complete.store(true, Relaxed);
        Ok(())
    }

    fn wait(&self, change: WaitingChange) {
        self.transfers.fetch_add(change.transfers, Relaxed);
        self.deliveries.fetch_add(change.deliveries, Relaxed);
    }

    /// How many timers wait; none until those from before the start are counted, which takes a moment in a store with
    /// millions of them.
    pub fn waiting(&self) -> Option<Waiting> {
        let read = |count: &AtomicI64| u64::try_from(count.load(Relaxed)).unwrap_or(0);
        let waiting = Waiting { transfers: read(&self.transfers), deliveries: read(&self.deliveries) };
        self.is_complete.load(Relaxed).then_some(waiting)
    }

    /// How many events of this type were recorded on a stream since the start.
    pub fn events(&self, kind: EventType, stream: Stream) -> u64 {
        self.events[kind as usize][stream as usize].read()
    }

    /// How many bounces of this kind were recorded on a stream since the start.
    pub fn bounces(&self, kind: BounceKind, stream: Stream) -> u64 {
        self.bounces[kind as usize][stream as usize].read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{START, TestStore};
    use crate::store::timer::Timer;

    #[test]
    fn a_bounce_is_counted_by_its_kind_and_every_event_by_its_stream() {
        let meters = StoreMeters::default();
        let noted = |kind, stream, bounce| Noted { kind, stream, bounce };
        let events = [
            noted(EventType::Queued, Stream::Marketing, None),
            noted(EventType::Bounced, Stream::Marketing, Some(BounceKind::Hard)),
            // A deferral says what it means too, and is no bounce.
            noted(EventType::Deferred, Stream::Transactional, Some(BounceKind::Soft)),
        ];
        meters.committed(3, Duration::from_millis(4), &events, WaitingChange::default());
        assert_eq!(meters.events(EventType::Queued, Stream::Marketing), 1);
        assert_eq!(meters.events(EventType::Queued, Stream::Transactional), 0);
        assert_eq!(meters.bounces(BounceKind::Hard, Stream::Marketing), 1);
        assert_eq!(meters.bounces(BounceKind::Soft, Stream::Transactional), 0);
        assert_eq!((meters.commit_operations.read().sum, meters.commit_duration.read().sum), (3, 4_000));
    }

    #[test]
    fn a_timer_is_counted_once_however_often_it_is_armed() {
        let timer = Timer::of_store(START, TimerKind::Transfer).encode();
        let mut change = WaitingChange::default();
        change.note(&timer, false, true);
        change.note(&timer, true, true);
        change.note(&Timer::of_store(START, TimerKind::Content).encode(), false, true);
        assert_eq!(change, WaitingChange { transfers: 1, deliveries: 0 });
        change.note(&timer, true, false);
        change.note(&timer, false, false);
        assert_eq!(change, WaitingChange::default());
    }

    #[test]
    fn what_waited_before_a_restart_is_counted_after_it() {
        let mut store = TestStore::new();
        store.sender().accept("ann@receiver.test");
        store.close();
        store.open().unwrap();
        // The counting thread is one of the store's: it has ended when the store is closed.
        let meters = std::sync::Arc::clone(store.store().meters());
        store.close();
        assert_eq!(meters.waiting(), Some(Waiting { transfers: 1, deliveries: 0 }));
    }
}
