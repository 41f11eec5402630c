//! The writer: the only thread that changes the database. It applies the queued operations and makes them durable with
//! one journal record and one sync. Only then does it release the answers and write the rows into the database, where
//! snapshots see them. The next batch fills during the sync; there is no artificial delay.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use redb::{ReadableDatabase as _, WriteTransaction};

use super::account_notifier::AccountNotifier;
use super::batcher::Batcher;
use super::changes::Changes;
use super::content::InlinedBody;
use super::damage::OpenDatabase;
use super::error::StoreError;
use super::failpoint::Point;
use super::health::Health;
use super::job::{Job, Urgency};
use super::journal::{self, Journal, Record, RecordResult};
use super::key_changes::KeyChanges;
use super::meters::{CountedEvent, StoreMeters};
use super::read_barrier::ReadBarrier;
use super::replica::{Outbox, Sequence};
use super::reserve::Reserve;
use super::schema::{Table, meta};
use super::snapshot::Snapshot;
use super::tables::{Batch, Moment};
use super::timer::Timer;
use super::timer_cache::{TimerCache, TimerChange};
use super::timer_counts::TimerCounts;
use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, Ulid};
use crate::machine::service_clock::ServiceTime;

use recorded_batch::BatchDurability;
pub(super) use recorded_batch::RecordedBatch;

/// Maximum number of operations that share a sync. It limits the wait of the first.
const BATCH_MAX: usize = 512;

/// Time for which operations without a waiting caller are batched.
const PATIENCE: Duration = Duration::from_millis(5);

fn batch_wait(batch: &[Job]) -> Duration {
    if batch.iter().all(|job| job.urgency == Urgency::Patient) { PATIENCE } else { Duration::ZERO }
}

/// The next operation for a batch, if there is one.
type Next = Option<Job>;

/// State of the writer thread.
pub(super) struct Writer {
    pub(super) database: Arc<OpenDatabase>,
    pub(super) timer_cache: Arc<TimerCache>,
    pub(super) notifier: Arc<AccountNotifier>,
    pub(super) read_barrier: Arc<ReadBarrier>,
    pub(super) health: Arc<Health>,
    pub(super) meters: Arc<StoreMeters>,
    pub(super) key_changes: Arc<KeyChanges>,
    pub(super) time: Box<dyn Fn() -> ServiceTime + Send>,
    /// Clock for the age of the journal. Changes of the wall clock must not affect it.
    pub(super) monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) last_id: Ulid,
    /// Whether the store has the row [`meta::TIME`].
    pub(super) keeps_time: bool,
    pub(super) waiting: TimerCounts,
    pub(super) reserve: Reserve,
    pub(super) journal: Journal,
    pub(super) lone_rows_max: usize,
    /// Sequence of the last batch.
    pub(super) sequence: Sequence,
    /// Records on their way to the bucket; `None` without replication.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// Operations without a waiting caller that arrived while a batch waited for the bucket.
    pub(super) deferred: Vec<Job>,
}

/// Effects of a batch beside its rows.
#[derive(Default)]
struct Effects {
    /// Armed timers, without those that a later operation of the batch disarmed.
    armed: BTreeSet<Timer>,
    disarmed: Vec<Timer>,
    counted_events: Vec<CountedEvent>,
    changed_keys: Vec<usize>,
    notified: BTreeSet<AccountId>,
    timer_change: TimerChange,
    clears_journal: bool,
}

impl Writer {
    /// Runs until all senders are dropped. After a failure of the database every operation is refused.
    pub(super) fn run(mut self, inbox: &Receiver<Job>) {
        let health = Arc::clone(&self.health);
        loop {
            health.pass(Point::Idle);
            self.checkpoint_if_due();
            if !self.deferred.is_empty() {
                let _turn = health.writer.begin();
                let batcher = Batcher::new(inbox, BATCH_MAX, batch_wait);
                let deferred = std::mem::take(&mut self.deferred);
                self.serve(deferred, |batch| batcher.next(batch));
                continue;
            }
            let next = match self.checkpoint_at() {
                Some(due) => inbox.recv_timeout(due.saturating_sub((self.monotonic)())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(first) => {
                    let _turn = health.writer.begin();
                    let batcher = Batcher::new(inbox, BATCH_MAX, batch_wait);
                    self.serve(vec![first], |batch| batcher.next(batch));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.checkpoint_now(),
            }
        }
    }

    /// Returns the time at which the journal is old enough for a checkpoint; `None` while it is empty.
    pub(super) fn checkpoint_at(&self) -> Option<Duration> {
        self.journal.due().filter(|_| self.health.failure().is_none())
    }

    /// Makes a checkpoint if the journal is old enough.
    pub(super) fn checkpoint_if_due(&mut self) {
        if self.checkpoint_at().is_some_and(|due| due <= (self.monotonic)()) {
            self.checkpoint_now();
        }
    }

    /// Commits a batch, with the jobs that `next_job` adds to it, and releases its answers.
    pub(super) fn serve(&mut self, jobs: Vec<Job>, mut next_job: impl FnMut(&[Job]) -> Next) {
        let Some(mut batch) = self.begin(jobs, &mut next_job) else { return };
        self.wait_for_bucket(&mut batch, &mut next_job);
        self.finish(batch);
    }

    /// Applies and records a batch. Returns it, to be finished once it counts; `None` if it failed.
    pub(super) fn begin(
        &mut self,
        mut jobs: Vec<Job>,
        mut next_job: impl FnMut(&[Job]) -> Next,
    ) -> Option<RecordedBatch> {
        let health = Arc::clone(&self.health);
        let recorded = match health.failure() {
            Some(_) => Err(StoreError::Closed),
            None => health.watch("writer", || self.record(&mut jobs, &mut next_job)),
        };
        match recorded {
            Ok(batch) => Some(RecordedBatch { jobs, ..batch }),
            Err(error) => {
                jobs.into_iter().for_each(|job| job.release(Err(error.clone())));
                None
            }
        }
    }

    /// Makes a recorded batch visible, and releases its answers.
    pub(super) fn finish(&mut self, mut batch: RecordedBatch) {
        let health = Arc::clone(&self.health);
        let finished = health.watch("writer", || self.complete(&mut batch));
        for job in batch.jobs {
            job.release(finished.clone());
        }
        // Notify last: answered callers should get a processor first.
        if finished.is_err() {
            return;
        }
        let effects = batch.effects;
        self.timer_cache.notify(effects.timer_change);
        self.notifier.notify(&effects.notified);
        for event in &effects.counted_events {
            tracing::debug!(message_id = %event.message, event = event.kind.as_str(), "event recorded");
        }
    }

    /// Makes a checkpoint, so that a start has no records to replay.
    pub(super) fn checkpoint_now(&mut self) {
        if self.checkpoint_at().is_none() {
            return;
        }
        let health = Arc::clone(&self.health);
        let _turn = health.writer.begin();
        // The failure is latched; later operations are refused.
        drop(health.watch("writer", || {
            let transaction = self.database.begin_write()?;
            self.checkpoint(transaction)
        }));
    }

    /// Applies and records `jobs`, which stay there.
    fn record(
        &mut self,
        jobs: &mut Vec<Job>,
        next_job: &mut impl FnMut(&[Job]) -> Next,
    ) -> Result<RecordedBatch, StoreError> {
        self.health.pass(Point::Commit);
        let committed = Snapshot::new(self.database.begin_read()?, Arc::clone(&self.meters.damage));
        let mut batch = Batch::new(committed);
        let mut effects = self.apply_all(&mut batch, jobs, next_job)?;
        let Batch { committed, mut changes, bodies, waiting, changed_keys } = batch;
        // The open snapshot would keep a checkpoint from freeing pages.
        drop(committed);
        effects.changed_keys = changed_keys;
        let (mut durability, mut sequence) = (BatchDurability::Unchanged, self.sequence);
        let waiting = self.waiting.changed(waiting);
        let began = Instant::now();
        if !changes.is_empty() {
            changes.put(Table::Meta, meta::LAST_ID.to_vec(), Some(self.last_id.0.to_vec()));
            let now = (self.time)().now;
            self.keep_time(now, &mut changes);
            sequence = self.number(now, &mut changes);
            if waiting != self.waiting {
                changes.put(Table::Meta, meta::WAITING.to_vec(), Some(waiting.encode().to_vec()));
            }
            durability = self.keep(sequence, &changes, &bodies, &effects)?;
        }
        Ok(RecordedBatch { jobs: Vec::new(), sequence, changes, waiting, effects, durability, began })
    }

    /// Completes a batch that counts. Its answers that are not released yet stay in it.
    fn complete(&mut self, batch: &mut RecordedBatch) -> Result<(), StoreError> {
        let RecordedBatch { jobs, sequence, changes, waiting, effects, durability, began } = batch;
        match durability {
            BatchDurability::Unchanged => return Ok(()),
            BatchDurability::Recorded => {}
            BatchDurability::Checkpoint => self.checkpoint_with(changes, effects.clears_journal)?,
        }
        (self.sequence, self.waiting) = (*sequence, *waiting);
        self.meters.committed(jobs.len(), began.elapsed(), &effects.counted_events, *waiting);
        self.health.pass(Point::Recorded);
        match durability {
            BatchDurability::Recorded => self.make_visible(changes, jobs, effects)?,
            BatchDurability::Checkpoint | BatchDurability::Unchanged => self.publish_effects(effects),
        }
        self.health.pass(Point::Published);
        Ok(())
    }

    /// Applies operations as they arrive, so that only the last one is left to apply when the batch closes.
    fn apply_all(
        &mut self,
        batch: &mut Batch,
        jobs: &mut Vec<Job>,
        next_job: &mut impl FnMut(&[Job]) -> Next,
    ) -> Result<Effects, StoreError> {
        let mut effects = Effects::default();
        let mut applied = 0;
        loop {
            for job in &mut jobs[applied..] {
                self.apply(job, batch, &mut effects)?;
            }
            applied = jobs.len();
            let Some(next) = next_job(jobs) else { return Ok(effects) };
            jobs.push(next);
        }
    }

    /// Records a batch and sends its record to the bucket. A batch without room in the journal becomes durable by the
    /// checkpoint that finishes it.
    fn keep(
        &mut self,
        sequence: Sequence,
        changes: &Changes,
        bodies: &[InlinedBody],
        effects: &Effects,
    ) -> Result<BatchDurability, StoreError> {
        let free = self.reserve.before_commit();
        self.journal.owe(bodies);
        let mut record = Record::of(changes, bodies);
        if !effects.clears_journal
            && self.journal.append(&mut record, free, (self.monotonic)())? == RecordResult::Record
        {
            self.meters.syncs.count();
            if let Some(outbox) = &self.outbox {
                outbox.add(sequence, record.payload());
            }
            return Ok(BatchDurability::Recorded);
        }
        if let Some(outbox) = &self.outbox {
            outbox.stage(sequence, record.payload());
            if outbox.sync().is_some() {
                // A checkpoint makes the rows visible, so the bucket must have them first. The log covers a crash in
                // between.
                outbox.store();
                outbox.release_staged();
            }
        }
        Ok(BatchDurability::Checkpoint)
    }

    /// Writes the changes of a batch without a journal record, and makes a checkpoint.
    fn checkpoint_with(&mut self, changes: &Changes, clears_journal: bool) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        changes.write_to(&transaction)?;
        self.checkpoint(transaction)?;
        if let Some(outbox) = &self.outbox {
            outbox.release_staged();
        }
        if clears_journal {
            self.journal.clear()?;
        }
        Ok(())
    }

    /// Writes the durable changes into the database, where snapshots see them. If there are few changes and only one
    /// waiting caller, that caller is answered first.
    fn make_visible(&self, changes: &Changes, jobs: &mut Vec<Job>, effects: &mut Effects) -> Result<(), StoreError> {
        let awaited = jobs.iter().filter(|job| job.urgency == Urgency::Awaited).count();
        if awaited != 1 || changes.count() > self.lone_rows_max {
            self.publish(changes)?;
            self.publish_effects(effects);
            return Ok(());
        }
        self.read_barrier.block_reads(|| {
            self.publish_effects(effects);
            jobs.extract_if(.., |job| job.urgency == Urgency::Awaited).for_each(|job| job.release(Ok(())));
            self.publish(changes)
        })
    }

    fn publish(&self, changes: &Changes) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        changes.write_to(&transaction)?;
        journal::publish(transaction)
    }

    /// Publishes the effects outside the database on which answered callers rely.
    fn publish_effects(&self, effects: &mut Effects) {
        self.key_changes.committed(&effects.changed_keys);
        effects.timer_change = self.timer_cache.committed(&effects.armed, &effects.disarmed);
    }

    fn checkpoint(&mut self, transaction: WriteTransaction) -> Result<(), StoreError> {
        self.health.pass(Point::Checkpoint);
        let began = Instant::now();
        // A record that is missing in the journal and in the backlog could never reach the bucket.
        if let Some(outbox) = &self.outbox {
            outbox.store();
        }
        self.meters.syncs.add(self.journal.syncs_of_checkpoint());
        self.journal.checkpoint(transaction, &*self.entropy)?;
        self.meters.checkpointed(began.elapsed(), (self.time)().now);
        Ok(())
    }

    fn apply(&mut self, job: &mut Job, batch: &mut Batch, effects: &mut Effects) -> Result<(), StoreError> {
        let moment = Moment { time: (self.time)(), random: entropy::bytes(&*self.entropy) };
        // A panic is a defect of that operation alone. Its changes are dropped, its caller gets the error, and the
        // batch continues.
        let applied = catch_unwind(AssertUnwindSafe(|| job.apply(batch, moment, self.last_id)));
        let Ok(applied) = applied else {
            tracing::error!("store operation panicked; none of its changes were applied");
            return Ok(());
        };
        if let Some(mut applied) = applied? {
            self.last_id = applied.last_id;
            for timer in &applied.disarmed {
                effects.armed.remove(timer);
            }
            effects.armed.extend(applied.armed);
            effects.disarmed.append(&mut applied.disarmed);
            effects.counted_events.append(&mut applied.counted_events);
            effects.notified.extend(applied.notified);
            effects.clears_journal |= applied.clears_journal;
        }
        Ok(())
    }
}

mod landing;
mod numbering;
mod recorded_batch;
#[cfg(test)]
mod tests;
