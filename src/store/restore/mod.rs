//! Creating a data directory from a backup (contract 8 `restore`).
//!
//! Everything is built in a temporary directory inside the target. It is moved to its place only after the backup was
//! read to its end, every checksum matched and the master key opened the proof. Until the last move the temporary
//! directory exists, and [`super::Store::open`] refuses the target.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, Durability, TableDefinition, WriteTransaction};

use super::archive::{ArchiveError, Head, Part, Reader, Totals};
use super::checksum::Values;
use super::content::{DIRECTORY as CONTENT, segment};
use super::disk::{Disk, DiskFile, Entry, FileSystem};
use super::error::StoreError;
use super::limits::CACHE_BYTES;
use super::master_key::{self, Raw};
use super::migrate;
use super::open::FILE;
use super::replica::ReplicaDisk;
use super::restore_hold::TimersOnHold;
use super::schema::{FORMAT, Table, meta};
use super::timer::{Timer, TimerKind};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

mod base;
mod files;
mod finishing;
mod staging;

pub use base::{BaseContent, restore_base};
use files::{close, create_new, make_directory, unwritten, write_new};
pub use staging::StagedRestore;

/// Name of the temporary directory.
const ASIDE: &str = "restoring";
/// Name of the key file in the content directory.
const KEYS: &str = "keys";
/// Names that may exist in a directory that counts as empty: a lock file that no process holds, and the file system's
/// own directory.
const NOTHING: [&str; 2] = ["postrider.pid", "lost+found"];
/// Number of parts of rows that share a transaction.
const PARTS: usize = 64;

/// Relation of the restored directory to the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// A copy, which must not continue the original's log.
    Fork {
        /// Whether the restored queue is on hold until the operator releases it.
        holds_queue: bool,
    },
    /// A standby, which follows the original's log.
    Standby,
}

/// Result of a restore.
#[derive(Debug, Clone)]
pub struct Restoration {
    /// Description of the backup.
    pub head: Head,
    /// Totals of the backup.
    pub totals: Totals,
    /// Timers on hold.
    pub on_hold: TimersOnHold,
}

/// Reason why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup is invalid.
    #[error(transparent)]
    Backup(#[from] ArchiveError),
    /// The backup contains a store of a later format.
    #[error("the backup contains a store of format {found}, and this version supports formats up to {FORMAT}")]
    NewerStore {
        /// The format found.
        found: u32,
    },
    /// The backup contains no master key, and none was given.
    #[error("the backup has no master key; give one with --master-key")]
    NoMasterKey,
    /// The backup was sealed with another key.
    #[error("the master key does not belong to the store")]
    WrongMasterKey,
    /// The directory can't be written.
    #[error("could not write to {}: {error}", .path.display())]
    Io {
        /// Path that was written.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns whether `directory` is missing or empty.
///
/// # Errors
/// The directory can't be read.
pub fn is_empty(directory: &Path) -> io::Result<bool> {
    match fs::read_dir(directory) {
        Ok(names) => {
            let names: io::Result<Vec<_>> = names.map(|entry| Ok(entry?.file_name())).collect();
            Ok(names?.iter().all(|name| NOTHING.iter().any(|nothing| name == nothing)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns whether a restore into `directory` has begun and not finished.
pub fn is_unfinished(disk: &ReplicaDisk, directory: &Path) -> bool {
    is_under_way(&*disk.0, directory)
}

/// Returns whether a restore into `directory` has begun and not finished.
pub(super) fn is_under_way(disk: &dyn Disk, directory: &Path) -> bool {
    disk.exists(&directory.join(ASIDE))
}

/// Restores `backup` into `directory`, which exists, is empty and is locked by the caller. The master key is `given`,
/// or the one in the backup. Files beside the store are restored if their names are in `beside`. `progress` gets the
/// amount read so far.
///
/// # Errors
/// The reason why the restore failed. The directory then contains no files.
pub fn restore(
    backup: impl Read,
    directory: &Path,
    given: Option<Raw>,
    beside: &[&str],
    progress: &mut dyn FnMut(&Head, Totals),
) -> Result<Restoration, RestoreError> {
    restore_on(Arc::new(FileSystem), backup, directory, given, beside, progress)
}

/// Restores on any disk.
pub(super) fn restore_on(
    disk: Arc<dyn Disk>,
    backup: impl Read,
    directory: &Path,
    given: Option<Raw>,
    beside: &[&str],
    progress: &mut dyn FnMut(&Head, Totals),
) -> Result<Restoration, RestoreError> {
    let (reader, head) = Reader::open(backup)?;
    if given.is_none() && !head.has_master_key {
        return Err(RestoreError::NoMasterKey);
    }
    build(reader, head, Target { disk, directory }, given, beside, progress)
}

/// Restores a backup for inspection. If the backup has no master key, none is needed.
///
/// # Errors
/// The reason why the restore failed. The directory then contains no files.
pub fn unpack(
    backup: impl Read,
    directory: &Path,
    progress: &mut dyn FnMut(&Head, Totals),
) -> Result<Restoration, RestoreError> {
    let (reader, head) = Reader::open(backup)?;
    build(reader, head, Target { disk: Arc::new(FileSystem), directory }, None, &[], progress)
}

/// Disk and directory of a new data directory.
struct Target<'a> {
    disk: Arc<dyn Disk>,
    directory: &'a Path,
}

fn build(
    mut reader: Reader<impl Read>,
    head: Head,
    target: Target<'_>,
    given: Option<Raw>,
    beside: &[&str],
    progress: &mut dyn FnMut(&Head, Totals),
) -> Result<Restoration, RestoreError> {
    if head.store_format > FORMAT {
        return Err(RestoreError::NewerStore { found: head.store_format });
    }
    let mut building = DirectoryBuilder::begin(target, given, (head.store_format, FORMAT))?;
    while let Some(part) = reader.next_part()? {
        building.take(part, beside)?;
        progress(&head, reader.totals());
    }
    let on_hold = building.finish(&head, Lineage::Fork { holds_queue: true })?;
    Ok(Restoration { head, totals: reader.totals(), on_hold })
}

/// Bucket and number of a segment.
type SegmentId = (Timestamp, u32);

/// A data directory that is being built. If it is not finished, dropping removes it.
struct DirectoryBuilder {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    aside: PathBuf,
    database: Option<Database>,
    /// The open transaction and the number of parts in it.
    inserting: Option<(WriteTransaction, usize)>,
    /// The segment that is being written: its identifier, its file and its length.
    segment: Option<(SegmentId, Arc<dyn DiskFile>, u64)>,
    given: Option<Raw>,
    /// The format of the rows in the backup.
    format: u32,
    /// The format of the new store.
    target_format: u32,
    facts: BTreeMap<Vec<u8>, Vec<u8>>,
    on_hold: TimersOnHold,
    /// Files and directories that were moved to their place.
    moved: Vec<Entry>,
    is_finished: bool,
}

impl Drop for DirectoryBuilder {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        (self.inserting, self.database) = (None, None);
        if let Err(error) = self.remove() {
            tracing::error!(
                %error,
                directory = %self.directory.display(),
                "could not remove the unfinished restore; it stays in the directory"
            );
        }
    }
}

impl DirectoryBuilder {
    /// Begins a store of the format `formats.1` from rows of the format `formats.0`.
    fn begin(
        Target { disk, directory }: Target<'_>,
        given: Option<Raw>,
        formats: (u32, u32),
    ) -> Result<Self, RestoreError> {
        let aside = directory.join(ASIDE);
        make_directory(&*disk, &aside)?;
        // The subdirectory is made durable first: while it exists, the files next to it never count as a store.
        segment::sync_directory(&*disk, directory)?;
        let database = aside.join(FILE);
        let mut building = Self {
            disk,
            directory: directory.to_owned(),
            aside,
            database: None,
            inserting: None,
            segment: None,
            given,
            format: formats.0,
            target_format: formats.1,
            facts: BTreeMap::new(),
            on_hold: TimersOnHold::default(),
            moved: Vec::new(),
            is_finished: false,
        };
        make_directory(&*building.disk, &building.aside.join(CONTENT))?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        building.database = Some(building.disk.open_database(&database, &builder).map_err(StoreError::from)?);
        Ok(building)
    }

    fn take(&mut self, part: Part, beside: &[&str]) -> Result<(), RestoreError> {
        match part {
            Part::Rows { table, rows } => {
                let rows = self.brought_forward(&table, rows);
                self.insert(&table, &rows)
            }
            Part::MasterKey(key) => {
                self.given.get_or_insert(key);
                Ok(())
            }
            Part::Segment { bucket, number, offset, bytes } => self.append((bucket, number), offset, &bytes),
            Part::Keys(slots) => write_new(&*self.disk, &self.aside.join(CONTENT).join(KEYS), &slots),
            Part::File { name, bytes } if beside.contains(&name.as_str()) => self.write_beside(&name, &bytes),
            // Files of another version are unknown here.
            Part::File { .. } | Part::ContentAhead { .. } | Part::Head(_) | Part::End(_) => Ok(()),
        }
    }

    /// Writes a file that belongs to the store, in its folder.
    fn write_beside(&self, name: &str, bytes: &[u8]) -> Result<(), RestoreError> {
        let path = self.aside.join(name);
        if let Some(folder) = path.parent().filter(|folder| !self.disk.exists(folder)) {
            make_directory(&*self.disk, folder)?;
        }
        write_new(&*self.disk, &path, bytes)
    }

    /// Migrates the rows to the format of the new store.
    fn brought_forward(&self, table: &str, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let formats = (self.format, self.target_format);
        rows.into_iter()
            .filter_map(|(key, value)| {
                let value = match (table == Table::Meta.name(), key.as_slice()) {
                    // A restored store has no journal. If the row stayed, the missing journal would count as damage.
                    (true, meta::JOURNAL) => return None,
                    (true, meta::FORMAT) => self.target_format.to_be_bytes().to_vec(),
                    _ => migrate::forward(migrate::STEPS, formats, (table, &key, value))?,
                };
                Some((key, value))
            })
            .collect()
    }

    /// Writes rows in their stored form.
    fn insert(&mut self, table: &str, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), RestoreError> {
        self.note(table, rows)?;
        let (transaction, parts) = match self.inserting.take() {
            Some(inserting) => inserting,
            None => (self.begin_write()?, 0),
        };
        {
            let definition = TableDefinition::<&[u8], &[u8]>::new(table);
            let mut opened = transaction.open_table(definition).map_err(StoreError::from)?;
            for (key, value) in rows {
                opened.insert(key.as_slice(), value.as_slice()).map_err(StoreError::from)?;
            }
        }
        if parts + 1 == PARTS {
            transaction.commit().map_err(StoreError::from)?;
        } else {
            self.inserting = Some((transaction, parts + 1));
        }
        Ok(())
    }

    fn begin_write(&self) -> Result<WriteTransaction, StoreError> {
        let Some(database) = &self.database else { return Err(StoreError::Closed) };
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate).map_err(|error| StoreError::Database(error.to_string()))?;
        Ok(transaction)
    }

    /// Remembers facts that later steps need. A wrong master key is found before all rows are written.
    fn note(&mut self, table: &str, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), RestoreError> {
        if table == Table::Meta.name() {
            for (key, stored) in rows {
                // A damaged fact counts as missing. Without the proof of its key a store is not restored.
                let value = self.values().open(table, key, stored);
                self.facts.extend(value.map(|value| (key.clone(), value.to_vec())));
            }
            self.given.as_ref().map_or(Ok(()), |key| self.prove(key))?;
        }
        if table == Table::Timers.name() {
            for timer in rows.iter().filter_map(|(key, _)| Timer::decode(key)) {
                self.on_hold.messages += u64::from(timer.kind == TimerKind::Transfer);
                self.on_hold.deliveries += u64::from(timer.kind == TimerKind::Delivery);
            }
        }
        Ok(())
    }

    /// Returns the kind of values in the new store.
    const fn values(&self) -> Values {
        Values::of_format(Some(self.target_format))
    }

    /// Checks that the key opens the store's proof.
    fn prove(&self, key: &Raw) -> Result<(), RestoreError> {
        let proof = self.facts.get(meta::MASTER_KEY_PROOF).ok_or(RestoreError::WrongMasterKey)?;
        if master_key::is_of(&MasterKey::new(key), proof) { Ok(()) } else { Err(RestoreError::WrongMasterKey) }
    }

    fn append(&mut self, id: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), RestoreError> {
        let path = segment::path(&self.aside.join(CONTENT), id.0, id.1);
        let (file, end) = match self.segment.take() {
            Some((open, file, end)) if open == id => (file, end),
            before => {
                close(before.as_ref().map(|(_, file, _)| &**file))?;
                if let Some(bucket) = path.parent().filter(|bucket| !self.disk.exists(bucket)) {
                    make_directory(&*self.disk, bucket)?;
                }
                (create_new(&*self.disk, &path)?, 0)
            }
        };
        if offset != end {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the backup lacks a part of the file");
            return Err(unwritten(&path, error));
        }
        file.write_all_at(bytes, offset).map_err(|error| unwritten(&path, error))?;
        self.segment = Some((id, file, end + bytes.len() as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
