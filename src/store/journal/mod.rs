//! The journal: a write-ahead log with the row changes since the database's last checkpoint, in one file.
//!
//! A database commit writes every page that it touched, and the next commit touches most of them again. So a batch
//! becomes durable by one record here and one sync. The database takes the batch into its pages in memory and writes
//! them at a checkpoint, when the journal is full or old. After a crash the database is in the state of the last
//! checkpoint, and the records are replayed. A record may contain the bodies that its rows name ([`super::content`]).
//!
//! Each checkpoint draws a random epoch, names it in the file ([`epoch`]), and stores it in the same transaction. From
//! then on records are written from the first place again, under the new epoch. A record counts only if its checksums
//! match. They are keyed with the epoch and bound to the place ([`record`]). A start replays the records up to the
//! first that does not verify ([`replay`]). The file is damaged if later records of the same epoch follow. It is also
//! damaged if it does not name the epoch and has no record of it ([`scan`]). The file is overwritten and seldom
//! truncated, because a sync that changes no length is cheaper. At a start, and when bodies that it may contain reach
//! their deadline, all records are removed from it.

mod epoch;
mod record;
mod redo;
mod replay;
mod scan;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redb::{Database, Durability, WriteTransaction};

pub(super) use epoch::Epoch;
pub(super) use redo::{BODIES, Change, encode_body};
pub(super) use replay::Replay;
pub use scan::Damage;

use super::changes::Changes;
use super::checksum::Values;
use super::content::InlinedBody;
use super::content::segment::Segment;
use super::disk::{Disk, DiskFile, OpenMode};
use super::error::{StoreError, is_full};
use super::limits::Limits;
use super::migrate;
use super::schema::{Table, meta};
use crate::base::entropy::Entropy;

/// Name of the journal in the data directory.
pub(super) const FILE: &str = "journal";
/// The journal of a running store.
pub(super) struct Journal {
    file: Arc<dyn DiskFile>,
    epoch: Epoch,
    end: u64,
    /// Number of the next record in this epoch.
    number: u32,
    /// Monotonic time at which a checkpoint is due, if there is a record.
    due: Option<Duration>,
    /// Segments with bodies that are durable only in the records.
    owed: Vec<Arc<Segment>>,
    limits: Limits,
}

/// Creates the file durably if it is missing. This comes before the database names an epoch, because afterwards a
/// missing file is damage.
///
/// # Errors
/// File system errors.
pub(super) fn make(disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    if disk.exists(&directory.join(FILE)) {
        return Ok(());
    }
    let made = disk.open(&directory.join(FILE), OpenMode::Kept).and_then(|_| disk.sync_directory(directory));
    made.map_err(|error| failed("make", &error))
}

/// Names the epoch of `database` in the file if its store has format 1, whose journals do not name it. After the
/// migration a file without the name is damage. The records must have been replayed before.
///
/// # Errors
/// Database and file system errors.
pub(super) fn name_epoch_of_format_1(database: &Database, disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    let Some((epoch, Values::Plain)) = replay::epoch_of(database)? else { return Ok(()) };
    make(disk, directory)?;
    let named = disk.open(&directory.join(FILE), OpenMode::Kept).and_then(|file| epoch::write(&*file, &epoch));
    named.map_err(|error| failed("name the epoch in", &error))
}

/// The record of a batch: space for its header, and its payload.
pub(super) struct Record(Vec<u8>);

impl Record {
    /// Creates the record of `changes` with the inlined `bodies`.
    pub(super) fn of(changes: &Changes, bodies: &[InlinedBody]) -> Self {
        let mut record = vec![0; record::HEAD];
        redo::encode(changes, bodies, &mut record);
        Self(record)
    }

    /// Returns the payload.
    pub(super) fn payload(&self) -> &[u8] {
        &self.0[record::HEAD..]
    }
}

/// Returns the changes in the payload of a record.
///
/// # Errors
/// A malformed payload, or one of a later version.
pub(super) fn decode_record(payload: &[u8]) -> Result<Vec<Change<'_>>, StoreError> {
    redo::decode(record::Layout::Second, payload)
}

/// Whether a batch became durable by its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordResult {
    /// The batch is durable.
    Record,
    /// The record is too large for the journal: only a checkpoint makes the batch durable.
    NoRoom,
}

impl Journal {
    /// Opens the journal of `directory`. Records of earlier epochs do not count.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn open(disk: &dyn Disk, directory: &Path, epoch: Epoch, limits: Limits) -> Result<Self, StoreError> {
        let file = disk.open(&directory.join(FILE), OpenMode::Kept).map_err(|error| failed("open", &error))?;
        let mut journal = Self { file, epoch, end: epoch::RECORDS, number: 0, due: None, owed: Vec::new(), limits };
        journal.clear()?;
        Ok(journal)
    }

    /// Removes all records from the file, including those of earlier epochs. Called right after a checkpoint.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        debug_assert_eq!(self.end, epoch::RECORDS, "records that count are not cleared");
        let cleared =
            self.blank().or_else(|_| self.file.set_length(epoch::RECORDS)).and_then(|()| self.file.sync_data());
        cleared.map_err(|error| failed("clear", &error))
    }

    /// Overwrites the place of records with zeros if space is short, so that later records have space. Truncates the
    /// rest.
    fn blank(&self) -> io::Result<()> {
        let kept = self.file.length()?.saturating_sub(epoch::RECORDS).min(self.limits.journal_bytes_max_short);
        self.file.set_length(epoch::RECORDS + kept)?;
        epoch::blank_other(&*self.file, &self.epoch)?;
        self.file.write_all_at(&vec![0; usize::try_from(kept).unwrap_or_default()], epoch::RECORDS)
    }

    /// Writes and syncs `record` at monotonic time `now`. `free` is the free space of the device.
    ///
    /// # Errors
    /// File system errors. The state of the disk is then unknown, and the process must end.
    pub(super) fn append(
        &mut self,
        Record(record): &mut Record,
        free: Option<u64>,
        now: Duration,
    ) -> Result<RecordResult, StoreError> {
        let Limits { short_bytes, journal_bytes_max, journal_bytes_max_short, .. } = self.limits;
        let most =
            if free.is_some_and(|free| free < short_bytes) { journal_bytes_max_short } else { journal_bytes_max };
        let end = self.end + record.len() as u64;
        let has_room = end <= epoch::RECORDS + most && self.owed.len() <= self.limits.owed_segments_max;
        if !has_room || !record::seal(&self.epoch, self.end, self.number, record) {
            return Ok(RecordResult::NoRoom);
        }
        match self.file.write_all_at(record, self.end) {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Ok(RecordResult::NoRoom),
            Err(error) => return Err(failed("write", &error)),
        }
        self.file.sync_data().map_err(|error| failed("sync", &error))?;
        self.end = end;
        self.number += 1;
        self.due.get_or_insert(now + self.limits.journal_age_max);
        Ok(RecordResult::Record)
    }

    /// Remembers the segments of bodies that are written but not synced; the next checkpoint syncs them.
    pub(super) fn owe(&mut self, bodies: &[InlinedBody]) {
        for InlinedBody { segment, .. } in bodies {
            if !self.owed.iter().any(|owed| Arc::ptr_eq(owed, segment)) {
                self.owed.push(Arc::clone(segment));
            }
        }
    }

    /// Returns the number of syncs of the next checkpoint: the outstanding segments, the epoch's name, the pages, and
    /// the commit.
    pub(super) fn syncs_of_checkpoint(&self) -> u64 {
        self.owed.len() as u64 + 3
    }

    /// Returns the monotonic time at which the first record is old enough for a checkpoint, if there is a record.
    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Commits `transaction` as a checkpoint. It contains everything in the records, which then stop counting.
    ///
    /// # Errors
    /// Database and file system errors. The state of the disk is then unknown, and the process must end.
    pub(super) fn checkpoint(
        &mut self,
        transaction: WriteTransaction,
        entropy: &dyn Entropy,
    ) -> Result<(), StoreError> {
        for segment in self.owed.drain(..) {
            segment.sync().map_err(|error| failed("sync a segment of", &error))?;
        }
        self.epoch = checkpoint(&*self.file, transaction, entropy)?;
        self.end = epoch::RECORDS;
        self.number = 0;
        self.due = None;
        Ok(())
    }
}

/// Commits `transaction` as the checkpoint of a start, before a journal is open.
///
/// # Errors
/// Database and file system errors.
pub(super) fn checkpoint_at_start(
    disk: &dyn Disk,
    directory: &Path,
    transaction: WriteTransaction,
    entropy: &dyn Entropy,
) -> Result<Epoch, StoreError> {
    make(disk, directory)?;
    let file = disk.open(&directory.join(FILE), OpenMode::Kept).map_err(|error| failed("open", &error))?;
    checkpoint(&*file, transaction, entropy)
}

/// Commits `transaction` as a checkpoint, and returns the epoch that begins with it. `file` names that epoch before the
/// commit.
fn checkpoint(file: &dyn DiskFile, transaction: WriteTransaction, entropy: &dyn Entropy) -> Result<Epoch, StoreError> {
    let epoch;
    {
        let mut facts = transaction.open_table(Table::Meta.definition())?;
        let values = Values::of_format(migrate::format_in(&facts)?);
        epoch = epoch::following(replay::epoch_in(&facts, values)?.as_ref(), entropy);
        // A journal of format 1 does not name its epoch: its records begin where the name would be.
        if values == Values::Checked {
            epoch::write(file, &epoch).map_err(|error| failed("name the epoch in", &error))?;
        }
        facts.insert(meta::JOURNAL, values.stored(Table::Meta.name(), meta::JOURNAL, &epoch).as_slice())?;
    }
    commit_durably(transaction)?;
    Ok(epoch)
}

/// Commits `transaction` to the database file itself.
pub(super) fn commit_durably(mut transaction: WriteTransaction) -> Result<(), StoreError> {
    set(&mut transaction, Durability::Immediate)?;
    // Stores the list of free pages too, so that a start after a crash need not scan all pages.
    transaction.set_quick_repair(true);
    Ok(transaction.commit()?)
}

/// Commits `transaction`, which is already durable in the journal: snapshots see it, and a checkpoint writes it.
pub(super) fn publish(mut transaction: WriteTransaction) -> Result<(), StoreError> {
    set(&mut transaction, Durability::None)?;
    Ok(transaction.commit()?)
}

fn set(transaction: &mut WriteTransaction, durability: Durability) -> Result<(), StoreError> {
    transaction.set_durability(durability).map_err(|error| StoreError::Database(error.to_string()))
}

fn failed(what: &str, error: &io::Error) -> StoreError {
    StoreError::Database(format!("could not {what} the journal: {error}"))
}

#[cfg(test)]
pub(in crate::store) mod tests;
