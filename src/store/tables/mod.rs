//! Tables as seen by an operation: its own changes, over the changes of its batch, over the committed rows.
//!
//! An operation writes into its own changes. They join the batch's when it succeeds, and are dropped when it is
//! refused, fails or panics, so the batch stays intact. A batch is written into the database only after it is durable.

use super::changes::Changes;
use super::content::InlinedBody;
use super::error::StoreError;
use super::key_changes;
use super::meters::CountedEvent;
use super::read::{OnDamage, Order, Read, RowCallback, sound};
use super::row::Row;
use super::schema::Table;
use super::snapshot::Snapshot;
use super::timer::Timer;
use super::timer_counts::WaitingChange;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::service_clock::ServiceTime;

/// Changes of a batch's operations so far, over the committed rows.
pub(super) struct Batch {
    pub(super) committed: Snapshot,
    /// Rows to write.
    pub(super) changes: Changes,
    /// Bodies to be inlined in the journal record.
    pub(super) bodies: Vec<InlinedBody>,
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

    /// Adds all changes of an operation. Everything that can fail comes first.
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
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        self.changes.scan_over(&self.committed, table, range, order, on_damage, each)
    }
}

/// Inputs that the writer passes to every operation: the time, and the randomness that was drawn at submission.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time of the operation.
    pub time: ServiceTime,
    /// The low 80 bits of identifiers that are created in a new millisecond.
    pub random: [u8; 10],
}

/// The tables as one operation sees and changes them.
pub struct Tables<'batch> {
    batch: &'batch mut Batch,
    changes: Changes,
    moment: Moment,
    last_id: Ulid,
    armed: Vec<Timer>,
    disarmed: Vec<Timer>,
    counted_events: Vec<CountedEvent>,
    notified: Vec<AccountId>,
    clears_journal: bool,
}

/// Effects of a successful operation on the writer, beside its rows.
pub(super) struct OpEffects {
    pub(super) last_id: Ulid,
    pub(super) armed: Vec<Timer>,
    pub(super) disarmed: Vec<Timer>,
    pub(super) counted_events: Vec<CountedEvent>,
    pub(super) notified: Vec<AccountId>,
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
            notified: Vec::new(),
            counted_events: Vec::new(),
            clears_journal: false,
        }
    }

    /// Returns the service's time of this operation, for stamps and timers.
    pub const fn now(&self) -> Timestamp {
        self.moment.time.now
    }

    /// Returns the time by which deadlines are judged. It is frozen while the wall clock is doubtful.
    pub const fn expiry(&self) -> Timestamp {
        self.moment.time.expiry
    }

    /// Returns all clocks of this operation.
    pub const fn time(&self) -> ServiceTime {
        self.moment.time
    }

    /// Returns a new identifier, greater than every earlier one in commit order, even if the clock steps back.
    pub fn next_id<T: From<Ulid>>(&mut self) -> T {
        let wanted = Ulid::new(self.now(), self.moment.random);
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

    /// Removes the row at `key`.
    pub fn remove(&mut self, table: Table, key: &[u8]) {
        self.changes.put(table, key.to_vec(), None);
    }

    /// Arms `timer`: it fires at its due time, and again after every crash, until it is disarmed.
    pub fn arm(&mut self, timer: Timer) {
        self.put_bytes(Table::Timers, &timer.encode(), Vec::new());
        self.armed.push(timer);
    }

    /// Arms `timer`, unless it is armed and its row can be read.
    ///
    /// # Errors
    /// Database errors.
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

    /// Counts an event once it is committed.
    pub(super) fn count_event(&mut self, event: CountedEvent) {
        self.counted_events.push(event);
    }

    /// Notifies the followers of `account` after the commit.
    pub fn notify_followers(&mut self, account: AccountId) {
        self.notified.push(account);
    }

    /// Removes all earlier records from the journal after the commit, with the data that they contain.
    pub fn clear_journal(&mut self) {
        self.clears_journal = true;
    }

    /// Adds the changes and their inlined bodies to the batch.
    pub(super) fn join(self, bodies: Vec<InlinedBody>) -> Result<OpEffects, StoreError> {
        self.batch.join(self.changes)?;
        self.batch.bodies.extend(bodies);
        let Self { last_id, armed, disarmed, notified, counted_events, clears_journal, .. } = self;
        Ok(OpEffects { last_id, armed, disarmed, notified, counted_events, clears_journal })
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
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        self.changes.scan_over(self.batch, table, range, order, on_damage, each)
    }
}

#[cfg(test)]
mod tests;
