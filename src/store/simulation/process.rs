//! The process on the simulated disk: a store without threads, whose workers run when the run decides. Thread timing is
//! thus part of the run, so that a seed is reproducible.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::base::entropy::SeededEntropy;
use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::batcher::PendingGuard;
use crate::store::disk::simulated::SimulatedDisk;
use crate::store::disk::simulated::rng::Rng;
use crate::store::limits::Limits;
use crate::store::open::{OnJournalDamage, OpenError, StartOptions, StoreEnvironment};
use crate::store::single_threaded::{Turns, draw_limits};

pub(super) use crate::store::single_threaded::DIRECTORY;

/// Clock of a run; its clones are the same clock.
#[derive(Clone)]
pub(super) struct Clock {
    now: Arc<AtomicU64>,
    /// Elapsed time, which does not go back with the wall clock.
    passed: Arc<AtomicU64>,
}

impl Clock {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now: Arc::new(AtomicU64::new(now.as_millis())), passed: Arc::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    pub(super) fn set(&self, now: Timestamp) {
        let before = self.now.swap(now.as_millis(), Ordering::SeqCst);
        self.passed.fetch_add(now.as_millis().saturating_sub(before), Ordering::SeqCst);
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.passed.load(Ordering::SeqCst))
    }
}

/// Whether another body is always announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherWriters {
    /// No other body is announced: the caller writes a small body itself.
    None,
    /// Another body is announced: every body waits for the appender's turn.
    Announced,
}

/// A running process.
pub(super) struct Process {
    pub(super) store: Arc<Store>,
    turns: Turns,
    /// Guard that makes every body wait for the appender's turn.
    _guard: Option<PendingGuard>,
}

impl Process {
    /// Opens the store with the randomness and the limits of `seed`.
    pub(super) fn start(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> Result<Self, OpenError> {
        let mut rng = Rng::new(seed ^ 0x0011_4175);
        disk.set_free([4 << 20, 64 << 20, 1 << 30][rng.index(3)]);
        let writers = if rng.coin() { OtherWriters::Announced } else { OtherWriters::None };
        Self::start_with(disk, clock, seed, draw_limits(&mut rng), writers)
    }

    /// Opens the store with the randomness of `seed` and these limits.
    pub(super) fn start_with(
        disk: &SimulatedDisk,
        clock: &Clock,
        seed: u64,
        limits: Limits,
        writers: OtherWriters,
    ) -> Result<Self, OpenError> {
        Self::start_damaged(disk, clock, seed, limits, writers, OnJournalDamage::Refuse)
    }

    /// Opens the store, with `on_damage` as the policy for a damaged journal.
    pub(super) fn start_damaged(
        disk: &SimulatedDisk,
        clock: &Clock,
        seed: u64,
        limits: Limits,
        writers: OtherWriters,
        on_journal_damage: OnJournalDamage,
    ) -> Result<Self, OpenError> {
        let (now, monotonic) = (clock.clone(), clock.clone());
        let surroundings =
            StoreEnvironment { now: Arc::new(move || now.now().into()), entropy: Arc::new(SeededEntropy::new(seed)) };
        let monotonic = Arc::new(move || monotonic.monotonic());
        let options = StartOptions { on_journal_damage, monotonic, limits, ..StartOptions::default() };
        let (store, workers) =
            Store::open_on(Arc::new(disk.clone()), Path::new(DIRECTORY), surroundings, Duration::ZERO, options)?;
        let guard = (writers == OtherWriters::Announced).then(|| store.announce());
        Ok(Self { store: Arc::new(store), turns: Turns::new(workers), _guard: guard })
    }

    /// Runs the appender: it takes the waiting bodies.
    pub(super) fn append(&mut self) {
        self.turns.append();
    }

    /// Runs the writer: it takes at most `most` waiting operations.
    pub(super) fn write(&mut self, most: usize) {
        self.turns.write(most);
    }

    /// Runs the idle writer, which empties the journal by a checkpoint.
    pub(super) fn checkpoint_now(&mut self) {
        self.turns.checkpoint_now();
    }

    /// Runs all waiting work.
    pub(super) fn settle(&mut self) {
        self.turns.settle();
    }

    /// Returns whether the journal has records that are not in the database.
    pub(super) fn journal_is_dirty(&self) -> bool {
        self.turns.due_at().is_some()
    }

    /// Returns whether the process must end, because the state of its disk is unknown.
    pub(super) fn has_failed(&self) -> bool {
        self.store.health().failure().is_some()
    }
}

/// An outstanding answer.
pub(super) struct Waiting<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> Waiting<T> {
    pub(super) fn new(answer: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// Returns the answer, once it exists. Call it again only after `None`.
    pub(super) fn poll(&mut self) -> Option<T> {
        self.poll_by(Waker::noop())
    }

    /// Polls for the answer with this waker.
    pub(super) fn poll_by(&mut self, waker: &Waker) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}

/// Waker that records whether the machine was off when the answer arrived.
pub(super) struct AnswerWaker {
    disk: SimulatedDisk,
    was_off: AtomicBool,
}

impl AnswerWaker {
    pub(super) fn of(disk: &SimulatedDisk) -> Arc<Self> {
        Arc::new(Self { disk: disk.clone(), was_off: AtomicBool::new(false) })
    }

    pub(super) fn answered_after_end(&self) -> bool {
        self.was_off.load(Ordering::SeqCst)
    }
}

impl Wake for AnswerWaker {
    fn wake(self: Arc<Self>) {
        self.was_off.store(self.disk.is_off(), Ordering::SeqCst);
    }
}
