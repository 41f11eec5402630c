//! A store that follows another one's log. It runs no operations: rows and bodies arrive as the active machine wrote
//! them.
//!
//! Each slot is one transaction that the database keeps in memory. A checkpoint makes the slots before it durable.
//! After a crash the store is at its last checkpoint, and its position gives the next slot.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ReadableDatabase as _, TableDefinition, WriteTransaction};

use super::backlog::Backlog;
use super::directory::ReplicaDisk;
use super::own_records::OwnRecords;
use super::position::{Position, Sequence};
use crate::base::entropy::Entropy;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::bodies::destroyed;
use crate::store::checksum::Values;
use crate::store::clock_doubts::Deadlines;
use crate::store::content::{BodyReplay, Content};
use crate::store::damage::OpenDatabase;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::health::Health;
use crate::store::journal;
use crate::store::limits::Limits;
use crate::store::open::verifying::verify;
use crate::store::open::{
    FILE, LOCK_PATIENCE, OnJournalDamage, OpenError, StartOptions, VERIFIED_AT_START, database, last_id, replaying,
    sequence,
};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::restore_hold::TimersOnHold;
use crate::store::row::Row as _;
use crate::store::row::restored::{HoldCause, RestoreOrigin};
use crate::store::schema::{self, FORMAT, Table, meta};
use crate::store::snapshot::Snapshot;
use crate::store::timer::{Timer, TimerKind};
use crate::store::timer_counts::TimerCounts;
use crate::store::{master_key, migrate, restore};

/// Reason why a batch can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// An earlier batch is missing.
    #[error("the log lacks the batches after {have} up to {next}")]
    Gap {
        /// Sequence of this store.
        have: u64,
        /// Sequence of the batch.
        next: u64,
    },
    /// The log has another batch in the place of one of this store.
    #[error("the log has another batch {from}")]
    Diverged {
        /// Sequence of the first batch that differs.
        from: u64,
        /// Sequence of this store.
        have: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A closed store that follows a log.
pub struct Follower {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) database: OpenDatabase,
    values: Values,
    pub(super) content: Content,
    master: Arc<MasterKey>,
    bodies: Option<BodyReplay>,
    sequence: Sequence,
    position: Option<Position>,
    /// The transaction of the current slot.
    slot: Option<WriteTransaction>,
    /// Whether slots were applied since the last checkpoint.
    is_ahead: bool,
    /// Records of this store's own batches, once a batch of the log is compared with them.
    pub(super) own: Option<OwnRecords>,
}

impl Follower {
    /// Opens the store in `directory`, which no other process has open. The records of its journal are replayed.
    ///
    /// # Errors
    /// [`OpenError`]: the reason why the store does not open.
    pub fn open(
        disk: &ReplicaDisk,
        directory: &Path,
        now: Timestamp,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, OpenError> {
        let disk = Arc::clone(&disk.0);
        let StartOptions { limits, progress, .. } = StartOptions::default();
        if restore::is_under_way(&*disk, directory) {
            return Err(OpenError::HalfRestored);
        }
        verify(&*disk, directory, VERIFIED_AT_START, &*progress)?;
        let database = database::open(&*disk, &directory.join(FILE), limits.cache_bytes, LOCK_PATIENCE, &progress)?;
        migrate::refuse_newer(&database, FORMAT)?;
        schema::refuse_renamed(&database)?;
        replaying::replay(&database, &disk, directory, OnJournalDamage::Refuse, now, &*entropy)?;
        Self::begin(disk, directory, entropy, database, &limits)
    }

    fn begin(
        disk: Arc<dyn Disk>,
        directory: &Path,
        entropy: Arc<dyn Entropy>,
        database: OpenDatabase,
        limits: &Limits,
    ) -> Result<Self, OpenError> {
        let format = migrate::format_of(&database)?;
        let values = Values::of_format(format);
        if format.is_none_or(|format| format == FORMAT) {
            // A restored store lacks the tables that had no rows.
            let transaction = database.begin_write().map_err(StoreError::from)?;
            schema::make_tables(&transaction)?;
            journal::publish(transaction)?;
        }
        let found = Snapshot::new(database.begin_read().map_err(StoreError::from)?, Arc::default()).with(values);
        let proof = found.get(Table::Meta, meta::MASTER_KEY_PROOF)?.ok_or(OpenError::WrongMasterKey)?;
        let master = Arc::new(master_key::of_store(&*disk, directory, Some(&proof), &*entropy)?);
        let position = found.get(Table::Meta, meta::REPLICA)?.and_then(|bytes| Position::decode(&bytes));
        let sequence = sequence(&found)?;
        drop(found);
        let health = Arc::new(Health::default());
        let content =
            Content::open(Arc::clone(&disk), directory, Arc::clone(&master), health, Arc::clone(&entropy), limits)?;
        let directory = directory.to_owned();
        let (bodies, slot) = (None, None);
        Ok(Self {
            disk,
            directory,
            entropy,
            database,
            values,
            content,
            master,
            bodies,
            sequence,
            position,
            slot,
            is_ahead: false,
            own: None,
        })
    }

    /// Returns the sequence of the last batch.
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Returns the position in the log; `None` if the store was never replicated.
    pub const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns the master key of the store.
    pub const fn master_key(&self) -> &Arc<MasterKey> {
        &self.master
    }

    /// Returns the store's format.
    ///
    /// # Errors
    /// Database errors.
    pub fn format(&self) -> Result<u32, StoreError> {
        let facts = self.database.begin_read()?.open_table(Table::Meta.definition())?;
        Ok(migrate::format_in(&facts)?.unwrap_or(FORMAT))
    }

    /// Writes a sealed body to its place.
    ///
    /// # Errors
    /// File system errors.
    pub fn body(&mut self, key: &[u8], sealed: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let (disk, directory) = (&self.disk, &self.directory);
        let database = &self.database;
        let new = || BodyReplay::new(Arc::clone(disk), directory, Deadlines::read(database, now));
        let bodies = self.bodies.get_or_insert_with(new);
        bodies.write(key, sealed)
    }

    /// Applies a batch. A batch that the store already has is skipped.
    ///
    /// # Errors
    /// [`FollowError::Gap`] if an earlier batch is missing; [`FollowError::Diverged`] if the store has another batch in
    /// its place, as after a start on an older copy of the directory; otherwise store errors.
    pub fn batch(&mut self, payload: &[u8], next: Sequence, now: Timestamp) -> Result<(), FollowError> {
        if next.number <= self.sequence.number {
            let diverged = FollowError::Diverged { from: next.number, have: self.sequence.number };
            return if self.is_other(payload, next)? { Err(diverged) } else { Ok(()) };
        }
        if next.number != self.sequence.number + 1 {
            return Err(FollowError::Gap { have: self.sequence.number, next: next.number });
        }
        let transaction = match self.slot.take() {
            Some(transaction) => transaction,
            None => self.database.begin_write().map_err(StoreError::from)?,
        };
        for journal::Change { table, key, value } in journal::decode_record(payload)? {
            if table == journal::BODIES {
                self.body(key, value.unwrap_or_default(), now)?;
                continue;
            }
            // Skip the position that the active had when it wrote the batch.
            if table == Table::Meta.name() && key == meta::REPLICA {
                continue;
            }
            put(&transaction, self.values, (table, key), value)?;
        }
        self.slot = Some(transaction);
        self.sequence = next;
        Ok(())
    }

    /// Ends a slot: the store is then at `position`.
    ///
    /// # Errors
    /// Database errors.
    pub fn end_slot(&mut self, position: Position) -> Result<(), StoreError> {
        let transaction = match self.slot.take() {
            Some(transaction) => transaction,
            None => self.database.begin_write()?,
        };
        put(&transaction, self.values, (Table::Meta.name(), meta::REPLICA), Some(&position.encode()))?;
        journal::publish(transaction)?;
        self.position = Some(position);
        self.is_ahead = true;
        Ok(())
    }

    /// Makes everything applied so far durable.
    ///
    /// # Errors
    /// Database or file system errors: the store must be opened again.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        // The rows of a batch that the next slot completes are not visible yet.
        if !self.is_ahead || self.slot.is_some() {
            return Ok(());
        }
        if let Some(bodies) = self.bodies.take() {
            bodies.sync()?;
        }
        let transaction = self.database.begin_write()?;
        journal::checkpoint_at_start(&*self.disk, &self.directory, transaction, &*self.entropy)?;
        self.is_ahead = false;
        Ok(())
    }

    /// Marks durably that the log has a gap, which only a new base closes.
    ///
    /// # Errors
    /// File system errors.
    pub fn owe_base(&self) -> io::Result<()> {
        Backlog::open(Arc::clone(&self.disk), &self.directory, self.sequence.number)?.0.mark_base_owed()
    }

    /// Keeps the batches of an unfinished slot. The store then continues without the log.
    ///
    /// # Errors
    /// Database errors.
    pub fn leave_log(&mut self) -> Result<(), StoreError> {
        if let Some(transaction) = self.slot.take() {
            journal::publish(transaction)?;
            self.is_ahead = true;
        }
        Ok(())
    }

    /// Puts everything queued at `now` on hold, until the operator releases it.
    ///
    /// # Errors
    /// Database errors.
    pub fn hold_queue(&mut self, now: Timestamp) -> Result<TimersOnHold, StoreError> {
        let found = self.snapshot()?;
        let earlier: Option<RestoreOrigin> = found.row(meta::RESTORED)?;
        let hold = RestoreOrigin {
            backup_at: self.sequence.committed_at.max(Timestamp::from_millis(1)).min(now),
            has_content: earlier.is_none_or(|earlier| earlier.has_content),
            last_message: last_id(&found, meta::LAST_MESSAGE_ID)?,
            last_id: last_id(&found, meta::LAST_ID)?,
            is_on_hold: true,
            cause: HoldCause::Restored,
        };
        let mut on_hold = TimersOnHold::default();
        found.scan_sound(Table::Timers, &[], &after_prefix(&[]), Order::Ascending, &mut |key, _| {
            if let Some(timer) = Timer::decode(key).filter(|timer| hold.holds(timer)) {
                on_hold.messages += u64::from(timer.kind == TimerKind::Transfer);
                on_hold.deliveries += u64::from(timer.kind == TimerKind::Delivery);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        drop(found);
        self.put_fact(meta::RESTORED, &hold.encode())?;
        Ok(on_hold)
    }

    /// Releases the hold of everything queued, if there is one.
    ///
    /// # Errors
    /// Database errors.
    pub fn release_queue(&mut self) -> Result<(), StoreError> {
        let held: Option<RestoreOrigin> = self.snapshot()?.row(meta::RESTORED)?;
        let Some(held) = held.filter(|row| row.is_on_hold) else { return Ok(()) };
        self.put_fact(meta::RESTORED, &RestoreOrigin { is_on_hold: false, ..held }.encode())
    }

    /// Records that content with a deadline up to `time` was destroyed before this store was restored.
    ///
    /// # Errors
    /// Database errors.
    pub fn content_was_destroyed(&mut self, time: Timestamp) -> Result<(), StoreError> {
        let found = self.snapshot()?;
        let mut content = destroyed(&found)?;
        content.add(time, last_id(&found, meta::LAST_MESSAGE_ID)?);
        self.put_fact(meta::DESTROYED, &content.encode())
    }

    fn put_fact(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        put(&transaction, self.values, (Table::Meta.name(), key), Some(value))?;
        journal::publish(transaction)?;
        self.is_ahead = true;
        Ok(())
    }

    /// Returns the number of queued messages, and of those that are due at `now`.
    ///
    /// # Errors
    /// Database errors.
    pub fn queued(&self, now: Timestamp) -> Result<(u64, u64), StoreError> {
        let found = self.snapshot()?;
        let waiting = found.get(Table::Meta, meta::WAITING)?.and_then(|bytes| TimerCounts::decode(&bytes));
        let mut due = 0;
        let end = now.moved_by(1).as_millis().to_be_bytes();
        found.scan(Table::Timers, &[], &end, Order::Ascending, &mut |key, _| {
            due += u64::from(Timer::decode(key).is_some_and(|timer| timer.kind == TimerKind::Transfer));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((waiting.unwrap_or_default().transfers, due))
    }

    /// Returns a snapshot of the store as it is now.
    ///
    /// # Errors
    /// Database errors.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::new(self.database.begin_read()?, Arc::default()).with(self.values))
    }
}

/// Writes a row as the store's format has it, or removes it.
fn put(
    transaction: &WriteTransaction,
    values: Values,
    (table, key): (&str, &[u8]),
    value: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut opened = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(table))?;
    match value {
        Some(value) => drop(opened.insert(key, values.stored(table, key, value).as_slice())?),
        None => drop(opened.remove(key)?),
    }
    Ok(())
}
