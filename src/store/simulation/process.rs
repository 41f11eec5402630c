//! The process that has the simulated disk: a store without threads, whose workers take their turns as they are told.
//! What a thread's timing would decide, the story decides, so that a seed repeats.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::base::entropy::SeededEntropy;
use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::disk::simulated::SimulatedDisk;
use crate::store::disk::simulated::chance::Chance;
use crate::store::gather::Announcement;
use crate::store::job::Job;
use crate::store::limits::Limits;
use crate::store::open::{OnJournalDamage, OpenError, StartOptions, Surroundings, Workers};

/// Where the store stands on the disk.
pub(super) const DIRECTORY: &str = "/var/lib/postrider";

/// The time of a run; its clones are the same clock.
#[derive(Clone)]
pub(super) struct Clock {
    now: Arc<AtomicU64>,
    /// Elapsed time, which a wall clock that is set back does not reduce.
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

/// Whether another body is on its way all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// No other body is announced: the caller writes a small body itself.
    None,
    /// Another body is announced: every body waits for the appender's turn.
    Announced,
}

/// A running process.
pub(super) struct Process {
    pub(super) store: Arc<Store>,
    workers: Workers,
    /// Operations whose bodies are durable, on their way to the writer.
    handed: VecDeque<Job>,
    /// With it, no body comes alone: each waits for the appender's turn.
    _company: Option<Announcement>,
}

impl Process {
    /// Opens the store with the randomness and the limits of `seed`.
    pub(super) fn start(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> Result<Self, OpenError> {
        let mut chance = Chance::new(seed ^ 0x0011_4175);
        disk.set_free([4 << 20, 64 << 20, 1 << 30][chance.index(3)]);
        let company = if chance.coin() { Company::Announced } else { Company::None };
        Self::start_with(disk, clock, seed, limits(&mut chance), company)
    }

    /// Opens the store with the randomness of `seed` and these limits.
    pub(super) fn start_with(
        disk: &SimulatedDisk,
        clock: &Clock,
        seed: u64,
        limits: Limits,
        company: Company,
    ) -> Result<Self, OpenError> {
        Self::start_damaged(disk, clock, seed, limits, company, OnJournalDamage::Refuse)
    }

    /// The same, which accepts the damage of a journal where it is told to.
    pub(super) fn start_damaged(
        disk: &SimulatedDisk,
        clock: &Clock,
        seed: u64,
        limits: Limits,
        company: Company,
        on_journal_damage: OnJournalDamage,
    ) -> Result<Self, OpenError> {
        let (now, monotonic) = (clock.clone(), clock.clone());
        let surroundings =
            Surroundings { now: Arc::new(move || now.now().into()), entropy: Arc::new(SeededEntropy::new(seed)) };
        let monotonic = Arc::new(move || monotonic.monotonic());
        let options = StartOptions { on_journal_damage, monotonic, limits, ..StartOptions::default() };
        let (store, workers) =
            Store::open_on(Arc::new(disk.clone()), Path::new(DIRECTORY), surroundings, Duration::ZERO, options)?;
        let company = (company == Company::Announced).then(|| store.announce());
        Ok(Self { store: Arc::new(store), workers, handed: VecDeque::new(), _company: company })
    }

    /// The appender's turn: it takes the bodies that wait.
    pub(super) fn append(&mut self) {
        let waiting: Vec<_> = self.workers.appender_inbox.try_iter().collect();
        if !waiting.is_empty() {
            self.handed.extend(self.workers.appender.append(waiting));
        }
    }

    /// The writer's turn: it takes `most` of the operations that wait.
    pub(super) fn write(&mut self, most: usize) {
        self.workers.writer.rest_if_due();
        self.handed.extend(self.workers.writer_inbox.try_iter());
        let mut batch = self.handed.drain(..most.min(self.handed.len()));
        if let Some(first) = batch.next() {
            self.workers.writer.serve(vec![first], |_| batch.next());
        }
    }

    /// The writer has nothing to do: it leaves nothing in the journal.
    pub(super) fn rest(&mut self) {
        self.workers.writer.rest();
    }

    /// Serves all that waits.
    pub(super) fn settle(&mut self) {
        self.append();
        self.write(usize::MAX);
    }

    /// Whether the journal has records that count.
    pub(super) fn journal_is_dirty(&self) -> bool {
        self.workers.writer.rest_at().is_some()
    }

    /// Whether the process must end: nobody knows any more what is on its disk.
    pub(super) fn has_failed(&self) -> bool {
        self.store.health().failure().is_some()
    }
}

/// Limits by chance: each is so small that it is reached, or as a running store has it.
fn limits(chance: &mut Chance) -> Limits {
    let usual = Limits::default();
    let mut size = |small: [u64; 2], usual: u64| [small[0], small[1], usual][chance.index(3)];
    let count = |size: u64| usize::try_from(size).unwrap();
    Limits {
        lone_rows_max: count(size([0, 8], usual.lone_rows_max as u64)),
        carried_bytes_max: count(size([0, 200], usual.carried_bytes_max as u64)),
        open_files_max: count(size([1, 2], usual.open_files_max as u64)),
        body_cache_bytes_max: count(size([0, 500], usual.body_cache_bytes_max as u64)),
        journal_bytes_max: size([0, 6_000], usual.journal_bytes_max),
        journal_bytes_max_short: size([0, 2_000], usual.journal_bytes_max_short),
        journal_age_max: Duration::from_secs(size([0, 3600], usual.journal_age_max.as_secs())),
        cache_bytes: count(size([0, 64 << 10], usual.cache_bytes as u64)),
        owed_segments_max: count(size([0, 1], usual.owed_segments_max as u64)),
        reserve_bytes: 4096,
        ..usual
    }
}

/// An answer that is waited for.
pub(super) struct Waiting<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> Waiting<T> {
    pub(super) fn new(answer: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// The answer, once it is there; asked again only where it was not.
    pub(super) fn poll(&mut self) -> Option<T> {
        self.poll_by(Waker::noop())
    }

    /// The same for whoever wants to be woken.
    pub(super) fn poll_by(&mut self, waker: &Waker) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}

/// Waker that records whether the machine was off at the moment of an answer.
pub(super) struct Ear {
    disk: SimulatedDisk,
    was_off: AtomicBool,
}

impl Ear {
    pub(super) fn of(disk: &SimulatedDisk) -> Arc<Self> {
        Arc::new(Self { disk: disk.clone(), was_off: AtomicBool::new(false) })
    }

    pub(super) fn heard_after_the_end(&self) -> bool {
        self.was_off.load(Ordering::SeqCst)
    }
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.was_off.store(self.disk.is_off(), Ordering::SeqCst);
    }
}
