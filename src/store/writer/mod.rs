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
use super::timer_cache::{News, TimerCache};
use super::timer_counts::TimerCounts;
use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, Ulid};
use crate::machine::service_clock::ServiceTime;

/// Maximum number of operations that share a sync. It limits the wait of the first.
const BATCH_MAX: usize = 512;

/// Time for which operations without a waiting caller are batched.
const PATIENCE: Duration = Duration::from_millis(5);

/// Time between two checks for new callers while a batch waits for the bucket.
const REFUSE_EVERY: Duration = Duration::from_millis(50);

fn patience(batch: &[Job]) -> Duration {
    if batch.iter().all(|job| job.urgency == Urgency::Patient) { PATIENCE } else { Duration::ZERO }
}

/// The next operation for a batch, if there is one.
type Next = Option<Job>;

/// State of the writer thread.
pub(super) struct Writer {
    pub(super) database: Arc<OpenDatabase>,
    pub(super) near: Arc<TimerCache>,
    pub(super) bells: Arc<AccountNotifier>,
    pub(super) showing: Arc<ReadBarrier>,
    pub(super) health: Arc<Health>,
    pub(super) meters: Arc<StoreMeters>,
    pub(super) key_changes: Arc<KeyChanges>,
    pub(super) time: Box<dyn Fn() -> ServiceTime + Send>,
    /// Clock for the age of the journal. Changes of the wall clock must not affect it.
    pub(super) monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) last_id: Ulid,
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

/// Way in which a batch became durable.
enum BatchDurability {
    /// By a journal record: the database does not have it yet.
    Recorded,
    /// By a checkpoint: the database has it.
    CheckedIn,
}

/// Effects of a batch beside its rows.
#[derive(Default)]
struct Effects {
    /// Armed timers, without those that a later operation of the batch disarmed.
    armed: BTreeSet<Timer>,
    disarmed: Vec<Timer>,
    noted: Vec<CountedEvent>,
    changed_keys: Vec<usize>,
    told: BTreeSet<AccountId>,
    news: News,
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
                let company = Batcher::new(inbox, BATCH_MAX, patience);
                let deferred = std::mem::take(&mut self.deferred);
                self.serve(deferred, |batch| company.next(batch));
                continue;
            }
            let next = match self.checkpoint_at() {
                Some(due) => inbox.recv_timeout(due.saturating_sub((self.monotonic)())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(first) => {
                    let _turn = health.writer.begin();
                    let company = Batcher::new(inbox, BATCH_MAX, patience);
                    self.serve(vec![first], |batch| company.next(batch));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.rest(),
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
            self.rest();
        }
    }

    /// Commits a batch, with the jobs that `company` adds to it, and releases its answers.
    pub(super) fn serve(&mut self, mut jobs: Vec<Job>, company: impl FnMut(&[Job]) -> Next) {
        let health = Arc::clone(&self.health);
        let committed = match health.failure() {
            Some(_) => Err(StoreError::Closed),
            None => health.watch("writer", || self.commit(&mut jobs, company)),
        };
        for job in jobs {
            job.release(committed.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        // Notify last: answered callers should get a processor first.
        let Ok(effects) = committed else { return };
        self.near.tell(effects.news);
        self.bells.notify(&effects.told);
        for noted in &effects.noted {
            tracing::debug!(message_id = %noted.message, event = noted.kind.as_str(), "event recorded");
        }
    }

    /// Makes a checkpoint, so that a start has no records to replay.
    pub(super) fn rest(&mut self) {
        if self.checkpoint_at().is_none() {
            return;
        }
        let health = Arc::clone(&self.health);
        let _turn = health.writer.begin();
        // The failure is latched; later operations are refused.
        drop(health.watch("writer", || {
            let transaction = self.database.begin_write()?;
            self.check_in(transaction)
        }));
    }

    /// Commits `jobs`. Those that are not answered yet stay in `jobs`.
    fn commit(&mut self, jobs: &mut Vec<Job>, mut company: impl FnMut(&[Job]) -> Next) -> Result<Effects, StoreError> {
        self.health.pass(Point::Commit);
        let committed = Snapshot::new(self.database.begin_read()?, Arc::clone(&self.meters.damage));
        let mut batch = Batch::new(committed);
        let mut effects = self.apply_all(&mut batch, jobs, &mut company)?;
        let Batch { committed, mut changes, bodies, waiting, changed_keys } = batch;
        // The open snapshot would keep a checkpoint from freeing pages.
        drop(committed);
        if changes.is_empty() {
            return Ok(effects);
        }
        effects.changed_keys = changed_keys;
        changes.put(Table::Meta, meta::LAST_ID.to_vec(), Some(self.last_id.0.to_vec()));
        let sequence = self.number(&mut changes);
        let waiting = self.waiting.changed(waiting);
        if waiting != self.waiting {
            changes.put(Table::Meta, meta::WAITING.to_vec(), Some(waiting.encode().to_vec()));
        }
        let began = Instant::now();
        let durable = self.keep(sequence, &changes, &bodies, &effects, (jobs, &mut company))?;
        self.sequence = sequence;
        self.waiting = waiting;
        self.meters.committed(jobs.len(), began.elapsed(), &effects.noted, waiting);
        self.health.pass(Point::Recorded);
        match durable {
            BatchDurability::Recorded => self.show(&changes, jobs, &mut effects)?,
            BatchDurability::CheckedIn => self.make_known(&mut effects),
        }
        self.health.pass(Point::Published);
        Ok(effects)
    }

    /// Applies operations as they arrive, so that only the last one is left to apply when the batch closes.
    fn apply_all(
        &mut self,
        batch: &mut Batch,
        jobs: &mut Vec<Job>,
        company: &mut impl FnMut(&[Job]) -> Next,
    ) -> Result<Effects, StoreError> {
        let mut effects = Effects::default();
        let mut applied = 0;
        loop {
            for job in &mut jobs[applied..] {
                self.apply(job, batch, &mut effects)?;
            }
            applied = jobs.len();
            let Some(next) = company(jobs) else { return Ok(effects) };
            jobs.push(next);
        }
    }

    /// Gives a batch its sequence number, and records the bucket's confirmations since the last batch.
    fn number(&self, changes: &mut Changes) -> Sequence {
        let sequence = self.sequence.next((self.time)().now);
        changes.put(Table::Meta, meta::SEQUENCE.to_vec(), Some(sequence.encode()));
        if let Some(position) = self.outbox.as_ref().and_then(|outbox| outbox.take_unrecorded()) {
            changes.put(Table::Meta, meta::REPLICA.to_vec(), Some(position.encode()));
        }
        sequence
    }

    /// Makes a batch durable and sends its record to the bucket. A synchronous store waits until the bucket has it.
    fn keep(
        &mut self,
        sequence: Sequence,
        changes: &Changes,
        bodies: &[InlinedBody],
        effects: &Effects,
        (jobs, company): (&mut Vec<Job>, &mut impl FnMut(&[Job]) -> Next),
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
            self.land(sequence, jobs, company);
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
        self.land(sequence, jobs, company);
        let transaction = self.database.begin_write()?;
        changes.write_to(&transaction)?;
        self.check_in(transaction)?;
        if let Some(outbox) = &self.outbox {
            outbox.release_staged();
        }
        if effects.clears_journal {
            self.journal.clear()?;
        }
        Ok(BatchDurability::CheckedIn)
    }

    /// Waits for the bucket if the store is synchronous. Callers that wait longer than the configured timeout are
    /// answered that their change is in doubt. Snapshots see the change only once the bucket has it. Later callers are
    /// refused.
    fn land(&mut self, sequence: Sequence, jobs: &mut Vec<Job>, company: &mut impl FnMut(&[Job]) -> Next) {
        let Some((outbox, rule)) = self.outbox.as_ref().and_then(|outbox| Some((Arc::clone(outbox), outbox.sync()?)))
        else {
            return;
        };
        let health = Arc::clone(&self.health);
        let _pause = health.writer.pause();
        if outbox.has_landed(sequence.number, Some(rule.timeout)) {
            return;
        }
        let awaited = |job: &mut Job| job.urgency == Urgency::Awaited;
        jobs.extract_if(.., awaited).for_each(|job| job.release(Err(StoreError::InDoubt)));
        while !outbox.has_ended() && !outbox.has_landed(sequence.number, Some(REFUSE_EVERY)) {
            while let Some(job) = company(&[]) {
                match job.urgency {
                    Urgency::Awaited => job.release(Err(StoreError::Unconfirmed)),
                    Urgency::Patient => self.deferred.push(job),
                }
            }
        }
    }

    /// Writes the durable changes into the database, where snapshots see them. If there are few changes and only one
    /// waiting caller, that caller is answered first.
    fn show(&self, changes: &Changes, jobs: &mut Vec<Job>, effects: &mut Effects) -> Result<(), StoreError> {
        let awaited = jobs.iter().filter(|job| job.urgency == Urgency::Awaited).count();
        if awaited != 1 || changes.count() > self.lone_rows_max {
            self.publish(changes)?;
            self.make_known(effects);
            return Ok(());
        }
        self.showing.show(|| {
            self.make_known(effects);
            jobs.extract_if(.., |job| job.urgency == Urgency::Awaited).for_each(|job| job.release(Ok(())));
            self.publish(changes)
        })
    }

    fn publish(&self, changes: &Changes) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        changes.write_to(&transaction)?;
        journal::publish(transaction)
    }

    /// Publishes those effects beside the rows on which answered callers rely.
    fn make_known(&self, effects: &mut Effects) {
        self.key_changes.committed(&effects.changed_keys);
        effects.news = self.near.committed(&effects.armed, &effects.disarmed);
    }

    fn check_in(&mut self, transaction: WriteTransaction) -> Result<(), StoreError> {
        self.health.pass(Point::Checkpoint);
        let began = Instant::now();
        // A record that is neither in the journal nor in the backlog could never reach the bucket.
        if let Some(outbox) = &self.outbox {
            outbox.store();
        }
        self.meters.syncs.add(self.journal.syncs_of_checkpoint());
        self.journal.check_in(transaction, &*self.entropy)?;
        self.meters.checked_in(began.elapsed(), (self.time)().now);
        Ok(())
    }

    fn apply(&mut self, job: &mut Job, batch: &mut Batch, effects: &mut Effects) -> Result<(), StoreError> {
        let moment = Moment { time: (self.time)(), chance: entropy::bytes(&*self.entropy) };
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
            effects.noted.append(&mut applied.noted);
            effects.told.extend(applied.told);
            effects.clears_journal |= applied.clears_journal;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
