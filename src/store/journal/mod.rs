//! The journal: what was committed since the database's last checkpoint, row by row, in one file.
//!
//! A commit of the database writes every page that it touched, most of which the next commit touches again. So a batch
//! is made durable by one record here and one sync; the database takes the batch into its pages in memory, and writes
//! them at a checkpoint, when the journal is full or has grown old. After a crash the database stands as the last
//! checkpoint left it, and the records are laid over it again. A record may carry the bodies that its rows name
//! ([`super::content`]).
//!
//! Each checkpoint draws an epoch at random, names it in the file ([`epoch`]), and keeps it in the same transaction;
//! from then on records are written from the first place again, under the new epoch. A record counts only if its
//! checksums, which are keyed with the epoch and bind the place, fit ([`record`]). A start replays the records up to
//! the first that does not verify ([`replay`]). Where later ones of the same epoch follow, or the file neither names
//! the epoch nor has a record of it, the file is damaged ([`scan`]). The file is written over and seldom cut, because a
//! sync that changes no length is a cheaper one. At a start, and where bodies that it may have carried have come to
//! their end, no record is left in it.

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
use super::content::Carried;
use super::content::segment::Segment;
use super::disk::{Disk, DiskFile, Opening};
use super::error::StoreError;
use super::limits::Limits;
use super::migrate;
use super::schema::{Table, meta};
use crate::base::entropy::Entropy;

/// Its file in the data directory.
pub(super) const FILE: &str = "journal";
/// The journal of a store that runs.
pub(super) struct Journal {
    file: Arc<dyn DiskFile>,
    epoch: Epoch,
    end: u64,
    /// The number of the next record in this epoch.
    number: u32,
    /// When a checkpoint is due by monotonic time, where there is a record.
    due: Option<Duration>,
    /// The segments of which only records have all bodies for certain.
    owed: Vec<Arc<Segment>>,
    limits: Limits,
}

/// Makes the file where there is none, durably: before the database names an epoch, for then a missing file is damage.
///
/// # Errors
/// File system errors.
pub(super) fn make(disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    if disk.exists(&directory.join(FILE)) {
        return Ok(());
    }
    let made = disk.open(&directory.join(FILE), Opening::Kept).and_then(|_| disk.sync_directory(directory));
    made.map_err(|error| failed("make", &error))
}

/// Names the epoch of `database` in the file if its store has format 1, whose journals name none: after the migration
/// a file without the name is damage. The records must have been replayed.
///
/// # Errors
/// Those of the database and of the file system.
pub(super) fn name_epoch_of_format_1(database: &Database, disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    let Some((epoch, Values::Plain)) = replay::epoch_of(database)? else { return Ok(()) };
    make(disk, directory)?;
    let named = disk.open(&directory.join(FILE), Opening::Kept).and_then(|file| epoch::write(&*file, &epoch));
    named.map_err(|error| failed("name the epoch in", &error))
}

/// The record of a batch: room for its header, and its payload.
pub(super) struct Record(Vec<u8>);

impl Record {
    /// The record of `changes`, which carries `bodies`.
    pub(super) fn of(changes: &Changes, bodies: &[Carried]) -> Self {
        let mut record = vec![0; record::HEAD];
        redo::encode(changes, bodies, &mut record);
        Self(record)
    }

    /// The payload.
    pub(super) fn payload(&self) -> &[u8] {
        &self.0[record::HEAD..]
    }
}

/// The changes in the payload of a record.
///
/// # Errors
/// A malformed payload; one of a later version.
pub(super) fn decode_record(payload: &[u8]) -> Result<Vec<Change<'_>>, StoreError> {
    redo::decode(record::Layout::Second, payload)
}

/// Whether a batch is durable by its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is.
    Record,
    /// There is no room for its record: only a checkpoint makes it durable.
    NoRoom,
}

impl Journal {
    /// The journal of `directory`, whose records of earlier epochs count no more.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn open(disk: &dyn Disk, directory: &Path, epoch: Epoch, limits: Limits) -> Result<Self, StoreError> {
        let file = disk.open(&directory.join(FILE), Opening::Kept).map_err(|error| failed("open", &error))?;
        let mut journal = Self { file, epoch, end: epoch::RECORDS, number: 0, due: None, owed: Vec::new(), limits };
        journal.clear()?;
        Ok(journal)
    }

    /// Leaves no record in the file, also none of an earlier epoch. Right after a checkpoint.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        debug_assert_eq!(self.end, epoch::RECORDS, "records that count are not cleared");
        let cleared =
            self.blank().or_else(|_| self.file.set_length(epoch::RECORDS)).and_then(|()| self.file.sync_data());
        cleared.map_err(|error| failed("clear", &error))
    }

    /// Writes zeros over as much as records take where room is short, so that they find it later, and cuts the rest.
    fn blank(&self) -> io::Result<()> {
        let kept = self.file.length()?.saturating_sub(epoch::RECORDS).min(self.limits.journal_bytes_max_short);
        self.file.set_length(epoch::RECORDS + kept)?;
        epoch::blank_other(&*self.file, &self.epoch)?;
        self.file.write_all_at(&vec![0; usize::try_from(kept).unwrap_or_default()], epoch::RECORDS)
    }

    /// Writes and syncs `record` at monotonic time `now`, where `free` bytes are left on the device.
    ///
    /// # Errors
    /// Those of the file system. Nobody knows then what is on the disk: the end of this process.
    pub(super) fn append(
        &mut self,
        Record(record): &mut Record,
        free: Option<u64>,
        now: Duration,
    ) -> Result<Kept, StoreError> {
        let Limits { short_bytes, journal_bytes_max, journal_bytes_max_short, .. } = self.limits;
        let most =
            if free.is_some_and(|free| free < short_bytes) { journal_bytes_max_short } else { journal_bytes_max };
        let end = self.end + record.len() as u64;
        let has_room = end <= epoch::RECORDS + most && self.owed.len() <= self.limits.owed_segments_max;
        if !has_room || !record::seal(&self.epoch, self.end, self.number, record) {
            return Ok(Kept::NoRoom);
        }
        match self.file.write_all_at(record, self.end) {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Ok(Kept::NoRoom),
            Err(error) => return Err(failed("write", &error)),
        }
        self.file.sync_data().map_err(|error| failed("sync", &error))?;
        self.end = end;
        self.number += 1;
        self.due.get_or_insert(now + self.limits.journal_age_max);
        Ok(Kept::Record)
    }

    /// Bodies are only written, not synced: the next checkpoint syncs their segments.
    pub(super) fn owe(&mut self, bodies: &[Carried]) {
        for Carried { segment, .. } in bodies {
            if !self.owed.iter().any(|owed| Arc::ptr_eq(owed, segment)) {
                self.owed.push(Arc::clone(segment));
            }
        }
    }

    /// Number of syncs of the next checkpoint: the segments that it owes, the epoch's name, its pages, and then that
    /// they count.
    pub(super) fn syncs_of_checkpoint(&self) -> u64 {
        self.owed.len() as u64 + 3
    }

    /// When a checkpoint is due for the age of the first record, by monotonic time, where there is one.
    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Commits `transaction` as a checkpoint: with all that the records tell of, which count no more.
    ///
    /// # Errors
    /// Those of the database and of the file system. Nobody knows then what is on the disk: the end of this process.
    pub(super) fn check_in(&mut self, transaction: WriteTransaction, entropy: &dyn Entropy) -> Result<(), StoreError> {
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

/// Commits `transaction` as the checkpoint of a start, while no journal is open yet.
///
/// # Errors
/// Those of the database and of the file system.
pub(super) fn checkpoint_at_start(
    disk: &dyn Disk,
    directory: &Path,
    transaction: WriteTransaction,
    entropy: &dyn Entropy,
) -> Result<Epoch, StoreError> {
    make(disk, directory)?;
    let file = disk.open(&directory.join(FILE), Opening::Kept).map_err(|error| failed("open", &error))?;
    checkpoint(&*file, transaction, entropy)
}

/// Commits `transaction` as a checkpoint, and returns the epoch that begins with it, which `file` names by then.
fn checkpoint(
    file: &dyn DiskFile,
    mut transaction: WriteTransaction,
    entropy: &dyn Entropy,
) -> Result<Epoch, StoreError> {
    let epoch;
    {
        let mut facts = transaction.open_table(Table::Meta.definition())?;
        let values = Values::of_format(migrate::format_in(&facts)?);
        epoch = epoch::following(replay::epoch_in(&facts, values)?.as_ref(), entropy);
        // A journal of format 1 names no epoch. Its records begin where the name would stand.
        if values == Values::Checked {
            epoch::write(file, &epoch).map_err(|error| failed("name the epoch in", &error))?;
        }
        facts.insert(meta::JOURNAL, values.stored(Table::Meta.name(), meta::JOURNAL, &epoch).as_slice())?;
    }
    set(&mut transaction, Durability::Immediate)?;
    // Keeps which pages are free beside the rows, so that a start after a crash need not look through all of them.
    transaction.set_quick_repair(true);
    transaction.commit()?;
    Ok(epoch)
}

/// Commits `transaction`, which is durable already: readers see it, and a checkpoint writes it.
pub(super) fn publish(mut transaction: WriteTransaction) -> Result<(), StoreError> {
    set(&mut transaction, Durability::None)?;
    Ok(transaction.commit()?)
}

fn set(transaction: &mut WriteTransaction, durability: Durability) -> Result<(), StoreError> {
    transaction.set_durability(durability).map_err(|error| StoreError::Database(error.to_string()))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn failed(what: &str, error: &io::Error) -> StoreError {
    StoreError::Database(format!("could not {what} the journal: {error}"))
}

#[cfg(test)]
pub(in crate::store) mod tests;
