//! What an operation sees: the shared transaction's tables under an overlay of its own changes.
//!
//! redb can't take back one operation of a shared transaction, so an operation writes into the overlay, which is
//! flushed when it succeeds and dropped when it refuses, fails or panics: the batch stays whole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use redb::{ReadableTable, WriteTransaction};

use super::content::Carried;
use super::error::StoreError;
use super::journal::Redo;
use super::key_changes;
use super::meters::Noted;
use super::read::{Each, Order, Read};
use super::row::Row;
use super::schema::Table;
use super::timer::Timer;
use super::waiting::WaitingChange;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;

type Opened<'txn> = redb::Table<'txn, &'static [u8], &'static [u8]>;
type Changes = BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>;

/// The tables of one write transaction, opened as they are needed.
pub(super) struct Batch<'txn> {
    transaction: &'txn WriteTransaction,
    opened: [RefCell<Option<Opened<'txn>>>; Table::ALL.len()],
    /// Whether anything was flushed, so that a batch of refusals costs no sync.
    pub(super) dirty: bool,
    /// What was flushed, for the journal.
    pub(super) redo: Redo,
    /// How many timers of a kind it made more or fewer.
    pub(super) waiting: WaitingChange,
    /// The API keys that were written, for [`key_changes`].
    pub(super) changed_keys: Vec<usize>,
}

impl<'txn> Batch<'txn> {
    pub(super) fn new(transaction: &'txn WriteTransaction) -> Self {
        Self {
            transaction,
            opened: std::array::from_fn(|_| RefCell::new(None)),
            dirty: false,
            redo: Redo::default(),
            waiting: WaitingChange::default(),
            changed_keys: Vec::new(),
        }
    }

    fn with<T>(
        &self,
        table: Table,
        use_it: impl FnOnce(&mut Opened<'txn>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.opened[table as usize].borrow_mut();
        if slot.is_none() {
            *slot = Some(self.transaction.open_table(table.definition())?);
        }
        match slot.as_mut() {
            Some(opened) => use_it(opened),
            None => unreachable!("the table was opened above"),
        }
    }

    /// Has the journal carry the body that an operation of the batch names.
    pub(super) fn carry(&mut self, body: &Carried) {
        self.dirty = true;
        self.redo.carry(body);
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(table, |opened| Ok(opened.get(key)?.map(|guard| guard.value().to_vec())))
    }

    /// Makes sure that every table exists, so that snapshots may open them all.
    pub(super) fn create_all(&self) -> Result<(), StoreError> {
        Table::ALL.iter().try_for_each(|table| self.with(*table, |_| Ok(())))
    }

    pub(super) fn put(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        self.dirty = true;
        self.redo.note(table, key, value);
        self.changed_keys.extend(key_changes::changed(table, key));
        let was_there = self.with(table, |opened| {
            Ok(match value {
                Some(value) => opened.insert(key, value)?.is_some(),
                None => opened.remove(key)?.is_some(),
            })
        })?;
        if table == Table::Timers {
            self.waiting.note(key, was_there, value.is_some());
        }
        Ok(())
    }
}

/// What the writer hands to every operation: when it is, and the chance it was submitted with.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall time of the operation.
    pub now: Timestamp,
    /// The low 80 bits of identifiers made in a fresh millisecond.
    pub chance: [u8; 10],
}

/// The tables as one operation sees and changes them.
pub struct Tables<'batch, 'txn> {
    batch: &'batch mut Batch<'txn>,
    changes: Changes,
    moment: Moment,
    last_id: Ulid,
    armed: Vec<Timer>,
    disarmed: Vec<Timer>,
    noted: Vec<Noted>,
    told: Vec<AccountId>,
    clears_journal: bool,
}

/// What an operation did beside its rows: for the writer, once it succeeded.
pub(super) struct Applied {
    pub(super) last_id: Ulid,
    pub(super) armed: Vec<Timer>,
    pub(super) disarmed: Vec<Timer>,
    pub(super) noted: Vec<Noted>,
    pub(super) told: Vec<AccountId>,
    pub(super) clears_journal: bool,
}

impl<'batch, 'txn> Tables<'batch, 'txn> {
    pub(super) fn new(batch: &'batch mut Batch<'txn>, moment: Moment, last_id: Ulid) -> Self {
        Self {
            batch,
            changes: Changes::new(),
            moment,
            last_id,
            armed: Vec::new(),
            disarmed: Vec::new(),
            told: Vec::new(),
            noted: Vec::new(),
            clears_journal: false,
        }
    }

    /// Wall time of this operation.
    pub const fn now(&self) -> Timestamp {
        self.moment.now
    }

    /// A fresh identifier: greater than every one before it, in commit order, whatever the clock does.
    pub fn next_id<T: From<Ulid>>(&mut self) -> T {
        let wanted = Ulid::new(self.moment.now, self.moment.chance);
        self.last_id = wanted.max(self.last_id.next());
        T::from(self.last_id)
    }

    /// Writes `row` at `key`.
    pub fn put<R: Row>(&mut self, key: &[u8], row: &R) {
        self.put_bytes(R::TABLE, key, row.encode());
    }

    /// Writes bytes at `key`.
    pub fn put_bytes(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        self.changes.insert((table, key.to_vec()), Some(value));
    }

    /// Removes what is at `key`.
    pub fn remove(&mut self, table: Table, key: &[u8]) {
        self.changes.insert((table, key.to_vec()), None);
    }

    /// Arms `timer`: it fires at its due time, after every crash again, until it is disarmed.
    pub fn arm(&mut self, timer: Timer) {
        self.put_bytes(Table::Timers, &timer.encode(), Vec::new());
        self.armed.push(timer);
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

    /// Flushes the overlay into the shared transaction.
    pub(super) fn flush(self) -> Result<Applied, StoreError> {
        for ((table, key), value) in &self.changes {
            self.batch.put(*table, key, value.as_deref())?;
        }
        let Self { last_id, armed, disarmed, told, noted, clears_journal, .. } = self;
        Ok(Applied { last_id, armed, disarmed, told, noted, clears_journal })
    }
}

impl Read for Tables<'_, '_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        // The overlay is small; a lookup by borrowed key would need a second map level for nothing.
        if let Some(changed) = self.changes.get(&(table, key.to_vec())) {
            return Ok(changed.clone());
        }
        self.batch.get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8], order: Order, each: &mut Each<'_>) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        let changed: Vec<_> = self
            .changes
            .range((table, from.to_vec())..(table, to.to_vec()))
            .map(|((_, key), value)| (key.as_slice(), value.as_deref()))
            .collect();
        self.batch.with(table, |opened| {
            let mut stored = opened.range::<&[u8]>(from..to)?;
            let mut changed = Turn::new(changed, order);
            let mut next_stored = step(&mut stored, order)?;
            loop {
                let flow = match (&next_stored, changed.peek()) {
                    (None, None) => return Ok(()),
                    // Both sides have the key: the overlay's value counts, and comes up next.
                    (Some((key, _)), Some((changed_key, _))) if key.value() == changed_key => {
                        next_stored = step(&mut stored, order)?;
                        continue;
                    }
                    (Some((key, value)), overlay)
                        if overlay.is_none_or(|(changed_key, _)| order.is_before(key.value(), changed_key)) =>
                    {
                        let flow = each(key.value(), value.value())?;
                        next_stored = step(&mut stored, order)?;
                        flow
                    }
                    (_, _) => match changed.next() {
                        Some((key, Some(value))) => each(key, value)?,
                        Some((_, None)) | None => ControlFlow::Continue(()),
                    },
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        })
    }
}

type Guard<'a> = redb::AccessGuard<'a, &'static [u8]>;

fn step<'a>(
    range: &mut redb::Range<'a, &'static [u8], &'static [u8]>,
    order: Order,
) -> Result<Option<(Guard<'a>, Guard<'a>)>, StoreError> {
    let next = match order {
        Order::Ascending => range.next(),
        Order::Descending => range.next_back(),
    };
    Ok(next.transpose()?)
}

/// The overlay's part of a scan, in the scan's order.
struct Turn<'a> {
    entries: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Turn<'a> {
    fn new(mut entries: Vec<(&'a [u8], Option<&'a [u8]>)>, order: Order) -> Self {
        // Taken from the end, so ascending scans need the reverse.
        if order == Order::Ascending {
            entries.reverse();
        }
        Self { entries }
    }

    fn peek(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        self.entries.last().copied()
    }

    fn next(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        self.entries.pop()
    }
}

#[cfg(test)]
mod tests;
