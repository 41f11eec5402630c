//! Read-only access to a store (contract 8 `check`). Nothing is written to its directory, even if it needs repair
//! before it can be read. Pages that redb would write, for example after a crash, go to memory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase};

use super::check::{self, Failure, Rule};
use super::content::{InJournal, SealedContent};
use super::damage::{OpenDatabase, guarded};
use super::disk::{Disk, FileSystem, OpenMode};
use super::error::StoreError;
use super::journal::{Damage, Replay};
use super::limits::CACHE_BYTES;
use super::master_key;
use super::migrate;
use super::open::{FILE, OpenError, database};
use super::overlay::Overlay;
use super::read::Read;
use super::replica::existing_holder;
use super::restore;
use super::schema::{self, FORMAT, Table, meta};
use super::snapshot::Snapshot;
use crate::base::secret::MasterKey;

/// An opened store.
pub(super) struct Inspection {
    database: OpenDatabase,
    /// Whether every page had a correct checksum and was accounted for before any repair, or the reason why that is
    /// unknown.
    pub(super) soundness: Result<bool, String>,
    /// The bodies, if the master key is available.
    pub(super) content: Option<SealedContent>,
    /// Error of the master key, if there is one.
    pub(super) key_fault: Option<String>,
    /// Error of the directory's name in the log of its replica, if there is one.
    pub(super) holder_fault: Option<String>,
    /// Damage of the journal, if any. Only the records before it are visible.
    pub(super) journal_damage: Option<Damage>,
}

/// Reason why a store can't be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The directory contains no store.
    #[error("it contains no store")]
    NoStore,
    /// A restore into the directory was interrupted.
    #[error("a restore into it was interrupted, so its store is incomplete")]
    HalfRestored,
    /// Another process has the store open.
    #[error("a process has the store open")]
    Locked,
    /// A later version of Postrider wrote the store.
    #[error("the store has format {found}, and this version supports formats up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// An earlier version of Postrider wrote the store.
    #[error("the store has format {found}, and this version checks only format {FORMAT}")]
    Older {
        /// The format found.
        found: u32,
        /// Failures that can be found without the rows.
        failures: Vec<Failure>,
    },
    /// The database can't be read at all: the worst result of a check.
    #[error("the database can't be read: {0}")]
    Unreadable(String),
    /// The database is missing or empty, but other files of the store exist.
    #[error("postrider.redb is damaged: {0}")]
    Lost(String),
    /// The file system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<StoreError> for InspectError {
    fn from(error: StoreError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl Inspection {
    /// Opens the store in `directory`. No process may have it open.
    pub(super) fn open(directory: &Path) -> Result<Self, InspectError> {
        let path = directory.join(FILE);
        if restore::is_under_way(&FileSystem, directory) {
            return Err(InspectError::HalfRestored);
        }
        if let Some(fault) = database::loss(&FileSystem, &path)? {
            return Err(InspectError::Lost(fault));
        }
        if !path.exists() {
            return Err(InspectError::NoStore);
        }
        // Opening read-only takes the lock or finds it taken. redb refuses a database that needs repair, without
        // locking it.
        let locked = guarded(|| matches!(ReadOnlyDatabase::open(&path), Err(DatabaseError::DatabaseAlreadyOpen)));
        if locked.unwrap_or(false) {
            return Err(InspectError::Locked);
        }
        Self::open_on(Arc::new(FileSystem), directory)
    }

    /// Opens a store on any disk, without checking whether a process has it open.
    pub(super) fn open_on(disk: Arc<dyn Disk>, directory: &Path) -> Result<Self, InspectError> {
        let overlay = Overlay::over(disk.open(&directory.join(FILE), OpenMode::Existing)?)?;
        let opened = guarded(|| Self::open_over(overlay, disk, directory));
        opened.unwrap_or_else(|fault| Err(InspectError::Unreadable(fault)))
    }

    /// Opens the store as a start would, with all its repairs.
    fn open_over(overlay: Overlay, disk: Arc<dyn Disk>, directory: &Path) -> Result<Self, InspectError> {
        let opened = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(overlay);
        let mut database = OpenDatabase::new(opened.map_err(|error| InspectError::Unreadable(error.to_string()))?);
        // Check before any write, because rewriting a page gives it a correct checksum for any content.
        let soundness = guarded(|| database.check_integrity().map_err(|error| error.to_string())).flatten();
        check_format(&database, directory, &soundness)?;
        let mut in_journal = InJournal::default();
        let replay = Replay::read(&database, &*disk, directory)?;
        let journal_damage = replay.damage().copied();
        if let Some(transaction) = replay.apply(&database)? {
            transaction.commit().map_err(StoreError::from)?;
        }
        replay.bodies(|key, sealed| {
            in_journal.keep(key, sealed);
            Ok(())
        })?;
        make_tables(&database)?;
        let holder_fault = existing_holder(&*disk, directory).err().map(|error| error.to_string());
        let mut inspection = Self { database, soundness, content: None, key_fault: None, holder_fault, journal_damage };
        inspection.open_content(disk, directory, in_journal)?;
        Ok(inspection)
    }

    fn open_content(
        &mut self,
        disk: Arc<dyn Disk>,
        directory: &Path,
        in_journal: InJournal,
    ) -> Result<(), InspectError> {
        let proof = self.snapshot()?.get(Table::Meta, meta::MASTER_KEY_PROOF)?.unwrap_or_default();
        match master_key::raw_of_store(&*disk, directory, &proof) {
            Ok(raw) => self.content = Some(SealedContent::open(disk, directory, &MasterKey::new(&raw), in_journal)?),
            Err(error @ (OpenError::WrongMasterKey | OpenError::Io { .. })) => {
                self.key_fault = Some(error.to_string());
            }
            Err(error) => return Err(InspectError::Unreadable(error.to_string())),
        }
        Ok(())
    }

    /// Returns a snapshot of the readable rows.
    pub(super) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::new(self.database.begin_read().map_err(StoreError::from)?, Arc::default()))
    }
}

/// Checks that this version of Postrider can check a store of this format.
fn check_format(database: &Database, directory: &Path, soundness: &Result<bool, String>) -> Result<(), InspectError> {
    let found = migrate::format_of(database)?.unwrap_or(FORMAT);
    if found > FORMAT {
        return Err(InspectError::Newer { found });
    }
    if found == FORMAT {
        return Ok(());
    }
    // Check the pages and the journal, as a start would do before it migrates the store.
    let pages = check::page_failure(soundness);
    let damage = Replay::read(database, &FileSystem, directory)?.damage().map(ToString::to_string);
    let journal = damage.map(|what| Failure { rule: Rule::Journal, what });
    Err(InspectError::Older { found, failures: pages.into_iter().chain(journal).collect() })
}

/// Creates the missing empty tables: a restored store that was never opened lacks them.
fn make_tables(database: &Database) -> Result<(), StoreError> {
    let transaction = database.begin_write()?;
    schema::make_tables(&transaction)?;
    Ok(transaction.commit()?)
}
