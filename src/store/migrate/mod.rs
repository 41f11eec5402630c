//! Migrating a store of an earlier format (contract 8 "Running"), when it is opened.
//!
//! Every format but the first has one [`Step`], from the format before it: a function of one row. All steps that a
//! store needs run in one pass, which copies the database row by row into a new file, in transactions of bounded size,
//! and then renames the new file over the old one. Until the rename the store is what it was, so an earlier version
//! still opens it; afterwards it is of the new format. A process that is killed meanwhile goes on where it was: the
//! copy holds how far it came. The rows as they were are kept in a backup. Bodies are in no table, and no step touches
//! them.

mod copy;
#[cfg(test)]
mod tests;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::backup::{self, BackupError};
use super::checksum;
use super::disk::{Disk, DiskFile, Opening};
use super::error::StoreError;
use super::open::{FILE, OpenError};
use super::schema::{FORMAT, Table, meta};
use crate::base::time::Timestamp;
use copy::Copying;

/// Returns the value that the row of a table and key has in the next format, or none where the row is removed.
type NextValue = fn(&str, &[u8], Vec<u8>) -> Option<Vec<u8>>;

/// The way from one format to the next.
pub(super) struct Step {
    /// The format that it begins with; it ends with the next.
    pub(super) from: u32,
    /// Description of the change, for the log.
    pub(super) what: &'static str,
    /// The value of each row in the next format.
    pub(super) value: NextValue,
}

/// Every step, in order. `schema::FORMAT` is the format after the last.
pub(super) const STEPS: &[Step] = &[Step {
    from: 1,
    what: "every row gets a checksum",
    value: |table, key, value| Some(checksum::stored(table, key, &value)),
}];

/// Progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The rows that are done, in the backup and in the copy.
    pub rows: u64,
    /// All of both.
    pub of: u64,
}

/// Inputs of a migration.
pub(super) struct Environment<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) directory: &'a Path,
    pub(super) now: Timestamp,
    /// Hears of every part of the work that is done.
    pub(super) progress: &'a dyn Fn(Migration),
}

/// The value that a row of the format `found` has in the format `current`.
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

/// Migrates the store in `database` from its format to `current`, if that is later. Returns whether it did: then
/// `database` is a file that has no name any more, and the store is to be opened again.
///
/// # Errors
/// [`OpenError::Newer`]; [`OpenError::NotMigrated`] where the store is as it was.
pub(super) fn migrate(
    database: &Database,
    environment: &Environment<'_>,
    current: u32,
    steps: &[Step],
) -> Result<bool, OpenError> {
    refuse_newer(database, current)?;
    let Some(found) = format_of(database)?.filter(|found| *found < current) else {
        // Left by a process that was killed after the rename, or before the operator went back to an earlier version.
        copy::discard(environment.disk, environment.directory)?;
        return Ok(false);
    };
    let failed = |error: String| OpenError::NotMigrated { found, error };
    if let Some(gap) = (found..current).find(|from| !steps.iter().any(|step| step.from == *from)) {
        return Err(failed(format!("this program knows no way from format {gap}")));
    }
    let migrated = bring_forward(database, environment, (found, current), steps);
    if let Err(error) = migrated {
        // The disk must not stay full because of a copy that helps nobody.
        copy::discard(environment.disk, environment.directory)?;
        return Err(failed(error.to_string()));
    }
    tracing::warn!(format = current, "store migrated");
    Ok(true)
}

/// Why a migration did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the backup of its rows: {0}")]
    Backup(#[from] BackupError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{} MiB must be free, and {} MiB are", .needed >> 20, .free >> 20)]
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
        check_room(disk, directory)?;
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

/// Whether there is room for a copy of the database and for the backup of its rows, which is compressed. Nothing is
/// written before.
fn check_room(disk: &dyn Disk, directory: &Path) -> Result<(), Failure> {
    let database = disk.open(&directory.join(FILE), Opening::Existing)?.length()?;
    let (needed, free) = (database + database / 2, disk.free_bytes(directory)?);
    if free < needed { Err(Failure::NoRoom { needed, free }) } else { Ok(()) }
}

/// Refuses what a later version of this program wrote, before anything in it is touched.
///
/// # Errors
/// [`OpenError::Newer`].
pub(super) fn refuse_newer(database: &Database, current: u32) -> Result<(), OpenError> {
    match format_of(database)? {
        Some(found) if found > current => Err(OpenError::Newer { found }),
        Some(_) | None => Ok(()),
    }
}

/// The format of a store; none where nothing is in it yet.
///
/// # Errors
/// Those of the database; a format that can't be read.
pub(super) fn format_of(database: &Database) -> Result<Option<u32>, StoreError> {
    match database.begin_read()?.open_table(Table::Meta.definition()) {
        Ok(facts) => format_in(&facts),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The format that a store's facts name; none where it has no facts yet.
///
/// # Errors
/// Those of the database; a format that can't be read, or is missing among other facts.
pub(super) fn format_in(facts: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Option<u32>, StoreError> {
    let damaged =
        |fault: &str| StoreError::Damaged { table: Table::Meta, row: "format".to_owned(), fault: fault.to_owned() };
    match facts.get(meta::FORMAT)? {
        Some(stored) => match stored.value().try_into().map(u32::from_be_bytes) {
            Ok(0) | Err(_) => Err(damaged("no store has such a format")),
            Ok(format) => Ok(Some(format)),
        },
        None if facts.first()?.is_none() => Ok(None),
        None => Err(damaged("it is missing")),
    }
}

/// Keeps the rows as they are beside the store, and returns the file's name. A backup of an earlier try is replaced:
/// the earlier version may have gone on since.
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
        let mut out = Appending { file: disk.open(&unfinished, Opening::Fresh)?, end: 0 };
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
            // The disk must not stay full because of it.
            drop(disk.remove_file(&unfinished));
            Err(error)
        }
    }
}

/// A file that is written from its beginning to its end.
struct Appending {
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Write for Appending {
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
