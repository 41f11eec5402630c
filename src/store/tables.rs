//! Tables as an operation sees them: its own changes, over those of its batch, over the committed rows.
//!
//! An operation writes into changes of its own, which join the batch's when it succeeds and are dropped when it
//! refuses, fails or panics: the batch stays whole. The database hears of a batch when that is durable.

use super::changes::Changes;
use super::content::Carried;
use super::error::StoreError;
use super::key_changes;
use super::meters::Noted;
use super::read::{Each, OnDamage, Order, Read, sound};
use super::row::Row;
use super::schema::Table;
use super::snapshot::Snapshot;
use super::timer::Timer;
use super::waiting::WaitingChange;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::service_clock::ServiceTime;

/// Changes of a batch's operations so far, over the committed rows.
pub(super) struct Batch {
    pub(super) committed: Snapshot,
    /// Rows to write.
    pub(super) changes: Changes,
    /// The bodies that the journal is to carry.
    pub(super) bodies: Vec<Carried>,
    /// Change in the number of timers of each kind.
    pub(super) waiting: WaitingChange,
    /// The API keys that were written, for [`key_changes`].
    pub(super) changed_keys: Vec<usize>,
}

impl Batch {
    pub(super) fn new(committed: Snapshot) -> Self {
        Self {
            committed,
            changes: Changes::default(),
            bodies: Vec::new(),
            waiting: WaitingChange::default(),
            changed_keys: Vec::new(),
        }
    }

    /// Takes what an operation changed: all of it, for what can fail comes first.
    fn join(&mut self, changes: Changes) -> Result<(), StoreError> {
        let mut waiting = self.waiting;
        for (key, value) in changes.of(Table::Timers).into_iter().flatten() {
            let was_armed = match self.changes.get(Table::Timers, key) {
                Some(changed) => changed.is_some(),
                None => self.committed.finds(Table::Timers, key)?,
            };
            waiting.note(key, was_armed, value.is_some());
        }
        self.waiting = waiting;
        for (table, key, value) in changes.into_rows() {
            self.changed_keys.extend(key_changes::changed(table, &key));
            self.changes.put(table, key, value);
        }
        Ok(())
    }
}

impl Read for Batch {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(table, key) {
            Some(changed) => Ok(changed.map(<[u8]>::to_vec)),
            None => self.committed.get(table, key),
        }
    }

    fn scan_with(
        &self,
        table: Table,
        range: (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut Each<'_>,
    ) -> Result<(), StoreError> {
        self.changes.scan_over(&self.committed, table, range, order, on_damage, each)
    }
}

/// Inputs that the writer passes to every operation: the time, and the randomness that it was submitted with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time of the operation.
    pub time: ServiceTime,
    /// The low 80 bits of identifiers made in a fresh millisecond.
    pub chance: [u8; 10],
}

/// The tables as one operation sees and changes them.
pub struct Tables<'batch> {
    batch: &'batch mut Batch,
    changes: Changes,
    moment: Moment,
    last_id: Ulid,
    armed: Vec<Timer>,
    disarmed: Vec<Timer>,
    noted: Vec<Noted>,
    told: Vec<AccountId>,
    clears_journal: bool,
}

/// Effects of a successful operation beside its rows, for the writer.
pub(super) struct Applied {
    pub(super) last_id: Ulid,
    pub(super) armed: Vec<Timer>,
    pub(super) disarmed: Vec<Timer>,
    pub(super) noted: Vec<Noted>,
    pub(super) told: Vec<AccountId>,
    pub(super) clears_journal: bool,
}

impl<'batch> Tables<'batch> {
    pub(super) fn new(batch: &'batch mut Batch, moment: Moment, last_id: Ulid) -> Self {
        Self {
            batch,
            changes: Changes::default(),
            moment,
            last_id,
            armed: Vec::new(),
            disarmed: Vec::new(),
            told: Vec::new(),
            noted: Vec::new(),
            clears_journal: false,
        }
    }

    /// The service's time at this operation, for stamps and timers.
    pub const fn now(&self) -> Timestamp {
        self.moment.time.now
    }

    /// The time by which deadlines are judged. It stands still while the wall clock is doubtful.
    pub const fn expiry(&self) -> Timestamp {
        self.moment.time.expiry
    }

    /// The whole time of this operation.
    pub const fn time(&self) -> ServiceTime {
        self.moment.time
    }

    /// A fresh identifier: greater than every one before it, in commit order, whatever the clock does.
    pub fn next_id<T: From<Ulid>>(&mut self) -> T {
        let wanted = Ulid::new(self.now(), self.moment.chance);
        self.last_id = wanted.max(self.last_id.next());
        T::from(self.last_id)
    }

    /// Writes `row` at `key`.
    pub fn put<R: Row>(&mut self, key: &[u8], row: &R) {
        self.put_bytes(R::TABLE, key, row.encode());
    }

    /// Writes bytes at `key`.
    pub fn put_bytes(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        self.changes.put(table, key.to_vec(), Some(value));
    }

    /// Removes what is at `key`.
    pub fn remove(&mut self, table: Table, key: &[u8]) {
        self.changes.put(table, key.to_vec(), None);
    }

    /// Arms `timer`: it fires at its due time, after every crash again, until it is disarmed.
    pub fn arm(&mut self, timer: Timer) {
        self.put_bytes(Table::Timers, &timer.encode(), Vec::new());
        self.armed.push(timer);
    }

    /// Arms `timer`, unless it is armed and its row can be read.
    ///
    /// # Errors
    /// Those of the database.
    pub(super) fn arm_unless_armed(&mut self, timer: Timer) -> Result<(), StoreError> {
        if sound(self.get(Table::Timers, &timer.encode()))?.flatten().is_none() {
            self.arm(timer);
        }
        Ok(())
    }

    /// Disarms `timer`, fired or not.
    pub fn disarm(&mut self, timer: Timer) {
        self.remove(Table::Timers, &timer.encode());
        self.armed.retain(|armed| *armed != timer);
        self.disarmed.push(timer);
    }

    /// Has an event counted, once it is committed.
    pub(super) fn note(&mut self, noted: Noted) {
        self.noted.push(noted);
    }

    /// Has the followers of `account` look again after the commit.
    pub fn tell(&mut self, account: AccountId) {
        self.told.push(account);
    }

    /// Has nothing be left in the journal, after this, of what its records carry.
    pub fn clear_journal(&mut self) {
        self.clears_journal = true;
    }

    /// Joins the changes to the batch's, and the bodies that go with them.
    pub(super) fn join(self, bodies: Vec<Carried>) -> Result<Applied, StoreError> {
        self.batch.join(self.changes)?;
        self.batch.bodies.extend(bodies);
        let Self { last_id, armed, disarmed, told, noted, clears_journal, .. } = self;
        Ok(Applied { last_id, armed, disarmed, told, noted, clears_journal })
    }
}

impl Read for Tables<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(table, key) {
            Some(changed) => Ok(changed.map(<[u8]>::to_vec)),
            None => self.batch.get(table, key),
        }
    }

    fn scan_with(
        &self,
        table: Table,
        range: (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut Each<'_>,
    ) -> Result<(), StoreError> {
        self.changes.scan_over(self.batch, table, range, order, on_damage, each)
    }
}

#[cfg(test)]
mod tests;
