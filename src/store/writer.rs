//! The writer: the one thread that changes the database. It applies whatever operations wait, makes them durable with
//! one record of the journal and one sync, and only then shows them and releases the answers. While it syncs, the next
//! batch gathers; there is no artificial delay.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use redb::{Database, ReadableTable, WriteTransaction};

use super::bells::Bells;
use super::error::StoreError;
use super::gather::Gathering;
use super::health::Health;
use super::job::{Job, Urgency};
use super::journal::{self, Journal, Kept, Redo};
use super::key_changes::KeyChanges;
use super::meters::{Noted, StoreMeters};
use super::near::NearTimers;
use super::reserve::Reserve;
use super::schema::{Table, meta};
use super::tables::{Batch, Moment};
use super::timer::Timer;
use super::waiting::Waiting;
use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;

/// How many operations share a sync at most: bounds the wait of the first.
const BATCH_MAX: usize = 512;

/// How long operations that nobody waits for gather.
const PATIENCE: Duration = Duration::from_millis(5);

fn patience(batch: &[Box<dyn Job>]) -> Duration {
    if batch.iter().all(|job| job.urgency() == Urgency::Patient) { PATIENCE } else { Duration::ZERO }
}

/// One more operation for a batch, where there is one.
type Next = Option<Box<dyn Job>>;

/// The writing thread's state.
pub(super) struct Writer {
    pub(super) database: Arc<Database>,
    pub(super) near: Arc<NearTimers>,
    pub(super) bells: Arc<Bells>,
    pub(super) health: Arc<Health>,
    pub(super) meters: Arc<StoreMeters>,
    pub(super) key_changes: Arc<KeyChanges>,
    pub(super) now: Box<dyn Fn() -> Timestamp + Send>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) last_id: Ulid,
    pub(super) waiting: Waiting,
    pub(super) reserve: Reserve,
    pub(super) journal: Journal,
}

/// What a batch changed beside rows.
#[derive(Default)]
struct Effects {
    /// Without what a later operation of the batch disarmed.
    armed: BTreeSet<Timer>,
    disarmed: Vec<Timer>,
    noted: Vec<Noted>,
    changed_keys: Vec<usize>,
    told: BTreeSet<AccountId>,
    clears_journal: bool,
}

impl Writer {
    /// Runs until every sender is gone; once the database has failed, everything is refused.
    pub(super) fn run(mut self, inbox: &Receiver<Box<dyn Job>>) {
        loop {
            self.rest_if_due();
            let next = match self.rest_at() {
                Some(due) => inbox.recv_timeout(due.since((self.now)())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(first) => {
                    let company = Gathering::new(inbox, BATCH_MAX, patience);
                    self.serve(vec![first], |batch| company.next(batch));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.rest(),
            }
        }
    }

    /// When the journal is old enough for a checkpoint, where anything is in it.
    fn rest_at(&self) -> Option<Timestamp> {
        self.journal.due().filter(|_| self.health.failure().is_none())
    }

    /// Makes a checkpoint where one is due for the age of the journal.
    pub(super) fn rest_if_due(&mut self) {
        if self.rest_at().is_some_and(|due| due <= (self.now)()) {
            self.rest();
        }
    }

    /// Commits a batch, with what `company` adds to it, and releases its answers.
    pub(super) fn serve(&mut self, mut batch: Vec<Box<dyn Job>>, company: impl FnMut(&[Box<dyn Job>]) -> Next) {
        let committed = match self.health.failure() {
            Some(_) => Err(StoreError::Closed),
            None => self.commit(&mut batch, company).map_err(|error| self.health.fail(&error)),
        };
        let news = committed.as_ref().map(|effects| {
            self.key_changes.committed(&effects.changed_keys);
            self.near.committed(&effects.armed, &effects.disarmed)
        });
        for job in batch {
            job.release(news.as_ref().map(|_| ()).map_err(|error| (*error).clone()));
        }
        // Last, for those who waited for an answer are first in the queue for a processor.
        if let (Ok(news), Ok(effects)) = (news, &committed) {
            self.near.tell(news);
            self.bells.ring(&effects.told);
        }
        for noted in committed.iter().flat_map(|effects| &effects.noted) {
            tracing::debug!(message_id = %noted.message, event = noted.kind.as_str(), "an event was recorded");
        }
    }

    /// Leaves nothing in the journal that a start would have to lay over the database.
    pub(super) fn rest(&mut self) {
        if self.rest_at().is_none() {
            return;
        }
        let transaction = self.database.begin_write().map_err(StoreError::from);
        if let Err(error) = transaction.and_then(|transaction| self.check_in(transaction)) {
            self.health.fail(&error);
        }
    }

    /// Each operation is applied as it comes: whoever is waited for finds the others done.
    fn commit(
        &mut self,
        jobs: &mut Vec<Box<dyn Job>>,
        mut company: impl FnMut(&[Box<dyn Job>]) -> Next,
    ) -> Result<Effects, StoreError> {
        let transaction = self.database.begin_write()?;
        let mut batch = Batch::new(&transaction);
        let mut effects = Effects::default();
        let mut applied = 0;
        loop {
            for job in &mut jobs[applied..] {
                self.apply(&mut **job, &mut batch, &mut effects)?;
            }
            applied = jobs.len();
            let Some(next) = company(jobs) else { break };
            jobs.push(next);
        }
        if !batch.dirty {
            drop(batch);
            transaction.abort()?;
            return Ok(effects);
        }
        batch.put(Table::Meta, meta::LAST_ID, Some(&self.last_id.0))?;
        let waiting = self.waiting.changed(batch.waiting);
        if waiting != self.waiting {
            batch.put(Table::Meta, meta::WAITING, Some(&waiting.encode()))?;
        }
        effects.changed_keys = std::mem::take(&mut batch.changed_keys);
        let redo = std::mem::take(&mut batch.redo);
        drop(batch);
        let free = self.reserve.before_commit();
        let began = Instant::now();
        if effects.clears_journal {
            self.check_in(transaction)?;
            self.journal.clear()?;
        } else {
            self.keep(transaction, &redo, free)?;
        }
        self.waiting = waiting;
        self.meters.committed(jobs.len(), began.elapsed(), &effects.noted, waiting);
        Ok(effects)
    }

    /// Makes a batch durable, and only then has it seen.
    fn keep(&mut self, transaction: WriteTransaction, redo: &Redo, free: Option<u64>) -> Result<(), StoreError> {
        match self.journal.append(redo, free, (self.now)())? {
            Kept::Record => {
                self.meters.syncs.count();
                journal::publish(transaction)
            }
            Kept::NoRoom => self.check_in(transaction),
        }
    }

    fn check_in(&mut self, transaction: WriteTransaction) -> Result<(), StoreError> {
        let began = Instant::now();
        self.meters.syncs.add(self.journal.syncs_of_checkpoint());
        self.journal.check_in(transaction, &*self.entropy)?;
        self.meters.checkpoint_duration.observe_duration(began.elapsed());
        Ok(())
    }

    fn apply(&mut self, job: &mut dyn Job, batch: &mut Batch<'_>, effects: &mut Effects) -> Result<(), StoreError> {
        let moment = Moment { now: (self.now)(), chance: entropy::bytes(&*self.entropy) };
        // A panic is a defect of that operation alone: its overlay is gone, its caller is told, the batch goes on.
        let applied = catch_unwind(AssertUnwindSafe(|| job.apply(batch, moment, self.last_id)));
        let Ok(applied) = applied else {
            tracing::error!("an operation of the store panicked and was dropped whole");
            return Ok(());
        };
        if let Some(mut applied) = applied? {
            if let Some(body) = job.carried() {
                batch.carry(body);
                self.journal.owe(body);
            }
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

/// Reads the last identifier given out, so that the next is greater.
pub(super) fn last_id(transaction: &WriteTransaction, key: &[u8]) -> Result<Ulid, StoreError> {
    let table = transaction.open_table(Table::Meta.definition())?;
    let stored = table.get(key)?;
    Ok(stored.and_then(|bytes| bytes.value().try_into().ok()).map(Ulid).unwrap_or_default())
}

#[cfg(test)]
mod tests;
