//! The writer: the one thread that changes the database. It applies whatever operations wait, makes them durable with
//! one record of the journal and one sync, and only then releases the answers and writes the rows into the database,
//! where they are seen. While it syncs, the next batch gathers; there is no artificial delay.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use redb::{ReadableDatabase as _, WriteTransaction};

use super::bells::Bells;
use super::changes::Changes;
use super::content::Carried;
use super::damage::OpenDatabase;
use super::error::StoreError;
use super::gather::Gathering;
use super::health::Health;
use super::job::{Job, Urgency};
use super::journal::{self, Journal, Kept, Record};
use super::key_changes::KeyChanges;
use super::meters::{Noted, StoreMeters};
use super::near::{NearTimers, News};
use super::replica::{Outbox, Sequence};
use super::reserve::Reserve;
use super::schema::{Table, meta};
use super::showing::Showing;
use super::snapshot::Snapshot;
use super::tables::{Batch, Moment};
use super::timer::Timer;
use super::tripwire::Point;
use super::waiting::Waiting;
use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, Ulid};
use crate::machine::service_clock::ServiceTime;

/// Maximum number of operations that share a sync: bounds the wait of the first.
const BATCH_MAX: usize = 512;

/// Time for which operations that nobody waits for are batched.
const PATIENCE: Duration = Duration::from_millis(5);

/// The time between two looks at callers that come while a batch waits for the bucket.
const REFUSE_EVERY: Duration = Duration::from_millis(50);

fn patience(batch: &[Job]) -> Duration {
    if batch.iter().all(|job| job.urgency == Urgency::Patient) { PATIENCE } else { Duration::ZERO }
}

/// One more operation for a batch, where there is one.
type Next = Option<Job>;

/// The writing thread's state.
pub(super) struct Writer {
    pub(super) database: Arc<OpenDatabase>,
    pub(super) near: Arc<NearTimers>,
    pub(super) bells: Arc<Bells>,
    pub(super) showing: Arc<Showing>,
    pub(super) health: Arc<Health>,
    pub(super) meters: Arc<StoreMeters>,
    pub(super) key_changes: Arc<KeyChanges>,
    pub(super) time: Box<dyn Fn() -> ServiceTime + Send>,
    /// For the age of the journal, which the wall clock must not change.
    pub(super) monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) last_id: Ulid,
    pub(super) waiting: Waiting,
    pub(super) reserve: Reserve,
    pub(super) journal: Journal,
    pub(super) lone_rows_max: usize,
    /// The sequence of the last batch.
    pub(super) sequence: Sequence,
    /// Where records go on to the bucket; none without replication.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// Operations that came while a batch waited for the bucket, and that nobody waits for.
    pub(super) deferred: Vec<Job>,
}

/// Way in which a batch was made durable.
enum Durable {
    /// By a record of the journal: the database has yet to take it.
    Recorded,
    /// By a checkpoint: the database has it.
    CheckedIn,
}

/// Effects of a batch beside rows.
#[derive(Default)]
struct Effects {
    /// Without what a later operation of the batch disarmed.
    armed: BTreeSet<Timer>,
    disarmed: Vec<Timer>,
    noted: Vec<Noted>,
    changed_keys: Vec<usize>,
    told: BTreeSet<AccountId>,
    news: News,
    clears_journal: bool,
}

impl Writer {
    /// Runs until every sender is gone; once the database has failed, everything is refused.
    pub(super) fn run(mut self, inbox: &Receiver<Job>) {
        let health = Arc::clone(&self.health);
        loop {
            health.pass(Point::Idle);
            self.rest_if_due();
            if !self.deferred.is_empty() {
                let _turn = health.writer.begin();
                let company = Gathering::new(inbox, BATCH_MAX, patience);
                let deferred = std::mem::take(&mut self.deferred);
                self.serve(deferred, |batch| company.next(batch));
                continue;
            }
            let next = match self.rest_at() {
                Some(due) => inbox.recv_timeout(due.saturating_sub((self.monotonic)())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(first) => {
                    let _turn = health.writer.begin();
                    let company = Gathering::new(inbox, BATCH_MAX, patience);
                    self.serve(vec![first], |batch| company.next(batch));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.rest(),
            }
        }
    }

    /// When the journal is old enough for a checkpoint, where anything is in it.
    pub(super) fn rest_at(&self) -> Option<Duration> {
        self.journal.due().filter(|_| self.health.failure().is_none())
    }

    /// Makes a checkpoint where one is due for the age of the journal.
    pub(super) fn rest_if_due(&mut self) {
        if self.rest_at().is_some_and(|due| due <= (self.monotonic)()) {
            self.rest();
        }
    }

    /// Commits a batch, with what `company` adds to it, and releases its answers.
    pub(super) fn serve(&mut self, mut jobs: Vec<Job>, company: impl FnMut(&[Job]) -> Next) {
        let health = Arc::clone(&self.health);
        let committed = match health.failure() {
            Some(_) => Err(StoreError::Closed),
            None => health.watch("writer", || self.commit(&mut jobs, company)),
        };
        for job in jobs {
            job.release(committed.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        // Last, for those who waited for an answer are first in the queue for a processor.
        let Ok(effects) = committed else { return };
        self.near.tell(effects.news);
        self.bells.ring(&effects.told);
        for noted in &effects.noted {
            tracing::debug!(message_id = %noted.message, event = noted.kind.as_str(), "an event was recorded");
        }
    }

    /// Leaves nothing in the journal that a start would have to lay over the database.
    pub(super) fn rest(&mut self) {
        if self.rest_at().is_none() {
            return;
        }
        let health = Arc::clone(&self.health);
        let _turn = health.writer.begin();
        // Latched where it fails; whoever comes next is refused.
        drop(health.watch("writer", || {
            let transaction = self.database.begin_write()?;
            self.check_in(transaction)
        }));
    }

    /// Leaves in `jobs` those that are not answered yet.
    fn commit(&mut self, jobs: &mut Vec<Job>, mut company: impl FnMut(&[Job]) -> Next) -> Result<Effects, StoreError> {
        self.health.pass(Point::Commit);
        let committed = Snapshot::new(self.database.begin_read()?, Arc::clone(&self.meters.damage));
        let mut batch = Batch::new(committed);
        let mut effects = self.apply_all(&mut batch, jobs, &mut company)?;
        let Batch { committed, mut changes, bodies, waiting, changed_keys } = batch;
        // It would keep a checkpoint from giving pages back.
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
            Durable::Recorded => self.show(&changes, jobs, &mut effects)?,
            Durable::CheckedIn => self.make_known(&mut effects),
        }
        self.health.pass(Point::Published);
        Ok(effects)
    }

    /// Each operation is applied as it comes: whoever is waited for finds the others done.
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

    /// Gives a batch its sequence, and records what the bucket has confirmed since the batch before.
    fn number(&self, changes: &mut Changes) -> Sequence {
        let sequence = self.sequence.next((self.time)().now);
        changes.put(Table::Meta, meta::SEQUENCE.to_vec(), Some(sequence.encode()));
        if let Some(position) = self.outbox.as_ref().and_then(|outbox| outbox.take_unrecorded()) {
            changes.put(Table::Meta, meta::REPLICA.to_vec(), Some(position.encode()));
        }
        sequence
    }

    /// Makes a batch durable, and passes its record on. A store that is synchronous waits until the bucket has it.
    fn keep(
        &mut self,
        sequence: Sequence,
        changes: &Changes,
        bodies: &[Carried],
        effects: &Effects,
        (jobs, company): (&mut Vec<Job>, &mut impl FnMut(&[Job]) -> Next),
    ) -> Result<Durable, StoreError> {
        let free = self.reserve.before_commit();
        self.journal.owe(bodies);
        let mut record = Record::of(changes, bodies);
        if !effects.clears_journal && self.journal.append(&mut record, free, (self.monotonic)())? == Kept::Record {
            self.meters.syncs.count();
            if let Some(outbox) = &self.outbox {
                outbox.add(sequence, record.payload());
            }
            self.land(sequence, jobs, company);
            return Ok(Durable::Recorded);
        }
        if let Some(outbox) = &self.outbox {
            outbox.stage(sequence, record.payload());
            if outbox.sync().is_some() {
                // The checkpoint shows the rows, so the bucket must have them before. A crash in between is made good
                // by the log.
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
        Ok(Durable::CheckedIn)
    }

    /// Waits for the bucket, where the store is synchronous. Callers that wait for longer than the rule says are told
    /// that their change is in doubt; it is shown to nobody before the bucket has it. Callers behind them are refused.
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

    /// Writes what is durable into the database, where it is seen. Where that is little and one caller waits, that one
    /// is answered before.
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

    /// Publishes the effects that answered callers rely on beside rows.
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
        // A panic is a defect of that operation alone: its changes are gone, its caller is told, the batch goes on.
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
