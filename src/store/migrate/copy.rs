//! The copy of the database that a migration writes: a separate file, which becomes the database when it is complete.
//! Each transaction has a bounded number of rows. The same commit stores the progress and the state of the original. A
//! start after a kill continues the copy, unless the original has changed since.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::{Database, Durability, ReadTransaction, ReadableDatabase, TableDefinition, TableHandle, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::{Environment, Migration};
use crate::store::checksum;
use crate::store::damage::guarded;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::limits::CACHE_BYTES;
use crate::store::schema::{self, Table, meta};

/// Name of the copy in the data directory.
pub(super) const FILE: &str = "postrider.redb.migrating";
/// Maximum number of rows in one transaction, and number of bytes after which it ends.
const ROWS_MAX: u64 = 5_000;
const BYTES_MAX: usize = 4 << 20;

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// Progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// State of the copied original: the epoch of its last checkpoint.
    source: Vec<u8>,
    /// Table and key of the last copied row.
    last: Option<(String, Vec<u8>)>,
    rows: u64,
}

/// A copy that is being written.
pub(super) struct Copying {
    original: ReadTransaction,
    copy: Database,
    progress: Progress,
}

/// Returns the path of the copy.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Removes an unusable copy.
pub(super) fn discard(disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    match disk.remove_file(&path(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Database(format!("could not remove {}: {error}", path(directory).display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Copying {
    /// Returns the copy of the current state of `database` that an earlier process began. A copy of another state is
    /// removed.
    pub(super) fn resume(database: &Database, environment: &Environment<'_>) -> Result<Option<Self>, StoreError> {
        let Environment { disk, directory, .. } = *environment;
        let (original, source) = original(database)?;
        if disk.exists(&path(directory))
            && let Ok(Ok(Some((copy, progress)))) = guarded(|| open(disk, directory))
            && progress.source == source
        {
            tracing::info!(rows = progress.rows, "resuming an interrupted migration");
            return Ok(Some(Self { original, copy, progress }));
        }
        discard(disk, directory)?;
        Ok(None)
    }

    /// Creates an empty copy of `database`.
    pub(super) fn begin(database: &Database, environment: &Environment<'_>) -> Result<Self, StoreError> {
        let Environment { disk, directory, .. } = *environment;
        let (original, source) = original(database)?;
        let copy = disk.open_database(&path(directory), Database::builder().set_cache_size(CACHE_BYTES))?;
        Ok(Self { original, copy, progress: Progress { source, last: None, rows: 0 } })
    }

    /// Copies the remaining rows, each with the value that `change` returns, and completes the copy as a store of
    /// format `current`.
    pub(super) fn run(
        mut self,
        environment: &Environment<'_>,
        total: u64,
        current: u32,
        change: impl Fn((&str, &[u8], Vec<u8>)) -> Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        for name in tables_of(&self.original)? {
            let begun = self.progress.last.as_ref().map(|(table, key)| (table.clone(), key.clone()));
            let mut from = match begun {
                Some((table, _)) if name < table => continue,
                Some((table, key)) if name == table => Bound::Excluded(key),
                Some(_) | None => Bound::Unbounded,
            };
            while let Some(last) = self.copy_some(&name, from, &change)? {
                (environment.progress)(Migration { rows: total + self.progress.rows, of: 2 * total });
                from = Bound::Excluded(last);
            }
        }
        let transaction = begin_write(&self.copy)?;
        schema::make_tables(&transaction)?;
        {
            let mut facts = transaction.open_table(Table::Meta.definition())?;
            facts.remove(meta::MIGRATION)?;
            facts.insert(meta::FORMAT, current.to_be_bytes().as_slice())?;
        }
        Ok(transaction.commit()?)
    }

    /// Copies rows of a table in one transaction, and returns the key of the last; `None` if no rows are left.
    fn copy_some(
        &mut self,
        name: &str,
        from: Bound<Vec<u8>>,
        change: &impl Fn((&str, &[u8], Vec<u8>)) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let original = self.original.open_table(Definition::new(name))?;
        let transaction = begin_write(&self.copy)?;
        let (mut last, mut rows, mut bytes) = (None, 0, 0);
        {
            let mut copied = transaction.open_table(Definition::new(name))?;
            let from = from.as_ref().map(Vec::as_slice);
            for row in original.range::<&[u8]>((from, Bound::Unbounded))? {
                let (key, value) = row?;
                let (key, value) = (key.value(), value.value().to_vec());
                (rows, bytes) = (rows + 1, bytes + key.len() + value.len());
                last = Some(key.to_vec());
                if !is_written_last(name, key)
                    && let Some(value) = change((name, key, value))
                {
                    copied.insert(key, value.as_slice())?;
                }
                if rows == ROWS_MAX || bytes >= BYTES_MAX {
                    break;
                }
            }
        }
        let Some(last) = last else {
            transaction.abort()?;
            return Ok(None);
        };
        self.progress.rows += rows;
        self.progress.last = Some((name.to_owned(), last.clone()));
        transaction.open_table(Table::Meta.definition())?.insert(meta::MIGRATION, self.progress.encode().as_slice())?;
        transaction.commit()?;
        Ok(Some(last))
    }
}

/// Returns the current rows of `database`, and the state to which they belong.
fn original(database: &Database) -> Result<(ReadTransaction, Vec<u8>), StoreError> {
    let original = database.begin_read()?;
    let source = original.open_table(Table::Meta.definition())?.get(meta::JOURNAL)?;
    let source = source.map(|epoch| epoch.value().to_vec()).unwrap_or_default();
    Ok((original, source))
}

/// Returns whether a row is written last: a copy must not count as a store before it is complete.
fn is_written_last(table: &str, key: &[u8]) -> bool {
    table == Table::Meta.name() && key == meta::FORMAT
}

impl Progress {
    fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(self).unwrap_or_else(|_| unreachable!("postcard can encode strings and bytes"));
        checksum::stored(Table::Meta.name(), meta::MIGRATION, &bytes)
    }

    fn decode(stored: &[u8]) -> Option<Self> {
        postcard::from_bytes(checksum::open(Table::Meta.name(), meta::MIGRATION, stored)?).ok()
    }
}

/// Opens an unfinished copy with its progress; `None` if the progress can't be read.
fn open(disk: &dyn Disk, directory: &Path) -> Result<Option<(Database, Progress)>, StoreError> {
    let copy = disk.open_database(&path(directory), Database::builder().set_cache_size(CACHE_BYTES))?;
    let stored = match copy.begin_read()?.open_table(Table::Meta.definition()) {
        Ok(facts) => facts.get(meta::MIGRATION)?.map(|stored| stored.value().to_vec()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(stored.and_then(|stored| Progress::decode(&stored)).map(|progress| (copy, progress)))
}

fn begin_write(copy: &Database) -> Result<WriteTransaction, StoreError> {
    let mut transaction = copy.begin_write()?;
    transaction.set_durability(Durability::Immediate).map_err(|error| StoreError::Database(error.to_string()))?;
    // After a kill, the copy opens without a full scan.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Returns the names of the tables, in ascending order.
fn tables_of(original: &ReadTransaction) -> Result<Vec<String>, StoreError> {
    let mut names: Vec<_> = original.list_tables()?.map(|table| table.name().to_owned()).collect();
    names.sort();
    Ok(names)
}
