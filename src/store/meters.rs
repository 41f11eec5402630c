//! Metrics of the store: commits and syncs, the events they recorded, and the number of waiting timers.
//!
//! The writer and the appender count after the sync, so that only durable work is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::damage::Damage;
use super::timer_counts::TimerCounts;
use crate::base::id::MessageId;
use crate::base::meter::{BATCH_SIZES, Counter, Histogram};
use crate::base::time::Timestamp;
use crate::domain::event::{BounceKind, EventType};
use crate::domain::stream::Stream;

/// Metrics of one store.
#[derive(Debug)]
pub struct StoreMeters {
    /// Number of operations in each commit.
    pub commit_operations: Histogram,
    /// Duration of each commit with its sync, in microseconds.
    pub commit_duration: Histogram,
    /// Duration of each checkpoint, in microseconds.
    pub checkpoint_duration: Histogram,
    /// End of the last checkpoint, in milliseconds since the epoch; 0 before the first.
    checkpoint_at: AtomicU64,
    /// Number of bodies that were synced together.
    pub append_bodies: Histogram,
    /// Duration of writing and syncing bodies, in microseconds.
    pub append_duration: Histogram,
    /// Number of syncs of the device: bodies, records of the journal, checkpoints.
    pub syncs: Counter,
    /// Damaged rows that were found.
    pub damage: Arc<Damage>,
    events: [[Counter; Stream::ALL.len()]; EventType::ALL.len()],
    bounces: [[Counter; Stream::ALL.len()]; BounceKind::ALL.len()],
    transfers: AtomicU64,
    deliveries: AtomicU64,
}

/// The part of a recorded event that is counted and logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedEvent {
    pub(super) message: MessageId,
    pub(super) kind: EventType,
    pub(super) stream: Stream,
    pub(super) bounce: Option<BounceKind>,
}

impl Default for StoreMeters {
    fn default() -> Self {
        Self {
            commit_operations: Histogram::new(BATCH_SIZES),
            commit_duration: Histogram::of_durations(),
            checkpoint_duration: Histogram::of_durations(),
            checkpoint_at: AtomicU64::new(0),
            append_bodies: Histogram::new(BATCH_SIZES),
            append_duration: Histogram::of_durations(),
            syncs: Counter::default(),
            damage: Arc::default(),
            events: Default::default(),
            bounces: Default::default(),
            transfers: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
        }
    }
}

impl StoreMeters {
    /// Counts a commit and its duration.
    pub(super) fn committed(&self, operations: usize, took: Duration, events: &[CountedEvent], waiting: TimerCounts) {
        self.commit_operations.observe(operations as u64);
        self.commit_duration.observe_duration(took);
        for CountedEvent { kind, stream, bounce, .. } in events {
            self.events[*kind as usize][*stream as usize].count();
            if let Some(bounce) = bounce.filter(|_| *kind == EventType::Bounced) {
                self.bounces[bounce as usize][*stream as usize].count();
            }
        }
        self.wait(waiting);
    }

    /// Counts a checkpoint, its duration and its end at `now`.
    pub(super) fn checkpointed(&self, took: Duration, now: Timestamp) {
        self.checkpoint_duration.observe_duration(took);
        self.checkpoint_at.store(now.as_millis(), Relaxed);
    }

    /// Returns the end of the last checkpoint since the start.
    pub fn last_checkpoint(&self) -> Option<Timestamp> {
        Some(self.checkpoint_at.load(Relaxed)).filter(|millis| *millis > 0).map(Timestamp::from_millis)
    }

    /// Counts bodies that were written and synced together.
    pub(super) fn appended(&self, bodies: usize, took: Duration) {
        self.append_bodies.observe(bodies as u64);
        self.append_duration.observe_duration(took);
    }

    /// Records the number of waiting timers.
    pub(super) fn wait(&self, waiting: TimerCounts) {
        self.transfers.store(waiting.transfers, Relaxed);
        self.deliveries.store(waiting.deliveries, Relaxed);
    }

    /// Returns the number of waiting timers, due or not.
    pub fn waiting(&self) -> TimerCounts {
        TimerCounts { transfers: self.transfers.load(Relaxed), deliveries: self.deliveries.load(Relaxed) }
    }

    /// Returns the number of events of this type that were recorded on a stream since the start.
    pub fn events(&self, kind: EventType, stream: Stream) -> u64 {
        self.events[kind as usize][stream as usize].read()
    }

    /// Returns the number of bounces of this kind that were recorded on a stream since the start.
    pub fn bounces(&self, kind: BounceKind, stream: Stream) -> u64 {
        self.bounces[kind as usize][stream as usize].read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_bounces_by_kind_and_all_events_by_stream() {
        let meters = StoreMeters::default();
        let event = |kind, stream, bounce| CountedEvent { message: MessageId::default(), kind, stream, bounce };
        let events = [
            event(EventType::Queued, Stream::Marketing, None),
            event(EventType::Bounced, Stream::Marketing, Some(BounceKind::Hard)),
            // A deferral has a bounce kind too, but is not counted as a bounce.
            event(EventType::Deferred, Stream::Transactional, Some(BounceKind::Soft)),
        ];
        meters.committed(3, Duration::from_millis(4), &events, TimerCounts::default());
        assert_eq!(meters.events(EventType::Queued, Stream::Marketing), 1);
        assert_eq!(meters.events(EventType::Queued, Stream::Transactional), 0);
        assert_eq!(meters.bounces(BounceKind::Hard, Stream::Marketing), 1);
        assert_eq!(meters.bounces(BounceKind::Soft, Stream::Transactional), 0);
        assert_eq!((meters.commit_operations.read().sum, meters.commit_duration.read().sum), (3, 4_000));
    }
}
