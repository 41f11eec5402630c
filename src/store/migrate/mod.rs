//! Migration of a store of an earlier format when it is opened (contract 8).
//!
//! Every format except the first has one [`Step`] from the format before it: a function of one row. All necessary steps
//! run in one pass. It copies the database row by row into a new file, in transactions of bounded size, and then
//! renames the new file over the old one. Until the rename the store is unchanged, so an earlier version still opens
//! it. A process that is killed during the migration continues at the next start, because the copy stores its progress.
//! The original rows are kept in a backup. Bodies are not stored in tables, so no step changes them.

mod copy;
#[cfg(test)]
mod tests;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::backup::{self, BackupError};
use super::checksum;
use super::disk::{Disk, DiskFile, OpenMode};
use super::error::StoreError;
use super::open::{FILE, OpenError};
use super::schema::{FORMAT, Table, meta};
use crate::base::time::Timestamp;
use copy::Copying;

/// Returns the value that the row of a table and key has in the next format, or `None` if the row is removed.
type NextValue = fn(&str, &[u8], Vec<u8>) -> Option<Vec<u8>>;

/// A migration step from one format to the next.
pub(super) struct Step {
    /// Format that the step reads; it writes the next one.
    pub(super) from: u32,
    /// Description of the change, for the log.
    pub(super) what: &'static str,
    /// Function that returns the value of each row in the next format.
    pub(super) value: NextValue,
}

/// All steps, in order. `schema::FORMAT` is the format after the last.
pub(super) const STEPS: &[Step] = &[Step {
    from: 1,
    what: "every row gets a checksum",
    value: |table, key, value| Some(checksum::stored(table, key, &value)),
}];

/// Progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Number of finished rows, in the backup and in the copy.
    pub rows: u64,
    /// Total number of rows of backup and copy.
    pub of: u64,
}

/// Inputs of a migration.
pub(super) struct Environment<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) directory: &'a Path,
    pub(super) now: Timestamp,
    /// Callback for each finished part of the work.
    pub(super) progress: &'a dyn Fn(Migration),
}

/// Returns the value in the format `current` of a row of the format `found`.
pub(super) fn forward(
    steps: &[Step],
    (found, current): (u32, u32),
    (table, key, value): (&str, &[u8], Vec<u8>),
) -> Option<Vec<u8>> {
    steps
        .iter()
        .filter(|step| (found..current).contains(&step.from))
        .try_fold(value, |value, step| (step.value)(table, key, value))
}

/// Migrates the store in `database` to the format `current`, if that is later. Returns whether it did. In that case the
/// file of `database` has been replaced, and the store must be opened again.
///
/// # Errors
/// [`OpenError::Newer`]; [`OpenError::NotMigrated`], which leaves the store unchanged.
pub(super) fn migrate(
    database: &Database,
    environment: &Environment<'_>,
    current: u32,
    steps: &[Step],
) -> Result<bool, OpenError> {
    refuse_newer(database, current)?;
    let Some(found) = format_of(database)?.filter(|found| *found < current) else {
        // A copy may be left by a process that was killed after the rename, or from before a downgrade to an earlier
        // version.
        copy::discard(environment.disk, environment.directory)?;
        return Ok(false);
    };
    let failed = |error: String| OpenError::NotMigrated { found, error };
    if let Some(gap) = (found..current).find(|from| !steps.iter().any(|step| step.from == *from)) {
        return Err(failed(format!("there is no migration from format {gap}")));
    }
    let migrated = bring_forward(database, environment, (found, current), steps);
    if let Err(error) = migrated {
        // A useless copy must not keep the disk full.
        copy::discard(environment.disk, environment.directory)?;
        return Err(failed(error.to_string()));
    }
    tracing::warn!(format = current, "store migrated; earlier versions can't open it any more");
    Ok(true)
}

/// Reason why a migration failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not back up its rows: {0}")]
    Backup(#[from] BackupError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{} MiB must be free, but only {} MiB are", .needed >> 20, .free >> 20)]
    NoRoom { needed: u64, free: u64 },
}

fn bring_forward(
    database: &Database,
    environment: &Environment<'_>,
    (found, current): (u32, u32),
    steps: &[Step],
) -> Result<(), Failure> {
    let Environment { disk, directory, .. } = *environment;
    let total = backup::count_rows(&database.begin_read().map_err(StoreError::from)?)?;
    let begun = Copying::resume(database, environment)?;
    if begun.is_none() {
        check_space(disk, directory)?;
        let file = back_up(database, environment, found, total)?;
        tracing::warn!(
            from = found, to = current, rows = total, backup = %file.display(),
            "store of an earlier version: backing up its rows, then migrating it"
        );
    }
    for step in steps.iter().filter(|step| (found..current).contains(&step.from)) {
        tracing::info!(from = step.from, step = step.what, "migrating the store");
    }
    let copying = begun.map_or_else(|| Copying::begin(database, environment), Ok)?;
    copying.run(environment, total, current, |row| forward(steps, (found, current), row))?;
    disk.rename(&copy::path(directory), &directory.join(FILE))?;
    disk.sync_directory(directory)?;
    Ok(())
}

/// Checks that there is space for a copy of the database and for the compressed backup of its rows, before anything is
/// written.
fn check_space(disk: &dyn Disk, directory: &Path) -> Result<(), Failure> {
    let database = disk.open(&directory.join(FILE), OpenMode::Existing)?.length()?;
    let (needed, free) = (database + database / 2, disk.free_bytes(directory)?);
    if free < needed { Err(Failure::NoRoom { needed, free }) } else { Ok(()) }
}

/// Refuses a database that a later version of Postrider wrote, before anything in it is changed.
///
/// # Errors
/// [`OpenError::Newer`].
pub(super) fn refuse_newer(database: &Database, current: u32) -> Result<(), OpenError> {
    match format_of(database)? {
        Some(found) if found > current => Err(OpenError::Newer { found }),
        Some(_) | None => Ok(()),
    }
}

/// Returns the format of a store; `None` if the store is empty.
///
/// # Errors
/// Database errors; a format that can't be read.
pub(super) fn format_of(database: &Database) -> Result<Option<u32>, StoreError> {
    match database.begin_read()?.open_table(Table::Meta.definition()) {
        Ok(facts) => format_in(&facts),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the format among a store's facts; `None` if it has no facts yet.
///
/// # Errors
/// Database errors; a format that can't be read, or is missing while there are other facts.
pub(super) fn format_in(facts: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Option<u32>, StoreError> {
    let damaged =
        |fault: &str| StoreError::Damaged { table: Table::Meta, row: "format".to_owned(), fault: fault.to_owned() };
    match facts.get(meta::FORMAT)? {
        Some(stored) => match stored.value().try_into().map(u32::from_be_bytes) {
            Ok(0) | Err(_) => Err(damaged("there is no such format")),
            Ok(format) => Ok(Some(format)),
        },
        None if facts.first()?.is_none() => Ok(None),
        None => Err(damaged("it is missing")),
    }
}

/// Keeps the original rows in a backup beside the store, and returns the file name. A backup of an earlier try is
/// replaced, because the earlier version may have been used since.
fn back_up(
    database: &Database,
    environment: &Environment<'_>,
    format: u32,
    total: u64,
) -> Result<PathBuf, BackupError> {
    let Environment { disk, directory, now, progress } = *environment;
    let name = format!("format-{format}.backup");
    let (file, unfinished) = (directory.join(&name), directory.join(format!("{name}.unfinished")));
    let written = (|| {
        let mut out = SequentialFile { file: disk.open(&unfinished, OpenMode::Fresh)?, end: 0 };
        let mut buffered = BufWriter::with_capacity(1 << 20, &mut out);
        let mut report = |rows| progress(Migration { rows, of: 2 * total });
        backup::rows_of(&database.begin_read().map_err(StoreError::from)?, now, format, &mut buffered, &mut report)?;
        buffered.flush()?;
        drop(buffered);
        Ok(out.file.sync_data()?)
    })();
    match written {
        Ok(()) => {
            disk.rename(&unfinished, &file)?;
            disk.sync_directory(directory)?;
            Ok(file)
        }
        Err(error) => {
            // An unfinished backup must not keep the disk full.
            drop(disk.remove_file(&unfinished));
            Err(error)
        }
    }
}

/// A file that is written sequentially.
struct SequentialFile {
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Write for SequentialFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const _: () = assert!(FORMAT as usize == STEPS.len() + 1, "every format but the first has its step");
