//! Opening a data directory: its lock, its format, and its threads.

mod assembling;
pub(super) mod database;
mod options;
mod pinned_pages;
mod preparing;
mod recovering;
pub(super) mod replaying;
pub(super) mod verifying;

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use redb::ReadableDatabase as _;

use super::bodies::destroyed;
use super::content::{self, Append, Appender, Content};
use super::damage::guarded;
use super::disk::{Disk, FileSystem};
use super::error::StoreError;
use super::health::Health;
use super::job::Job;
use super::journal::{self, Damage, Journal};
use super::replica;
use super::schema::FORMAT;
use super::snapshot::Snapshot;
use super::writer::Writer;
use super::{Channels, Store, master_key, reserve};
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::machine::service_clock::ServiceTime;

use assembling::{StoreParts, assemble};
pub use options::{ReplicaStart, StartOptions, StartWork, SyncRule};
use pinned_pages::PinnedPages;
use preparing::prepare;
pub(super) use preparing::{last_id, sequence};
use recovering::{RecoveredDatabase, recover};
pub use replaying::OnJournalDamage;

/// Name of the database file in the data directory.
pub(super) const FILE: &str = "postrider.redb";
/// Maximum size of a database whose pages a start verifies first. The verification takes a few seconds at most.
pub const VERIFIED_AT_START: u64 = 1 << 30;
/// Maximum wait for another process's lock. A killed process may hold it for a moment.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of operations in each thread's queue. When it is full, callers wait.
const QUEUE: usize = 4096;

/// Reason why a data directory does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("another process has the data directory open")]
    Locked,
    /// A later version of Postrider wrote the store.
    #[error(
        "the data directory has format {found}, and this version supports formats up to {FORMAT}; use a newer version"
    )]
    Newer {
        /// The format found.
        found: u32,
    },
    /// An earlier version wrote the store, and it could not be migrated.
    #[error("the data directory has format {found}, and could not be migrated to format {FORMAT}: {error}")]
    NotMigrated {
        /// The format found, which is unchanged.
        found: u32,
        /// The reason.
        error: String,
    },
    /// The store was sealed with another master key.
    #[error("the master key does not belong to this store")]
    WrongMasterKey,
    /// A file of the store is too damaged for the service to run.
    #[error("{} is damaged: {fault}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Description of the error.
        fault: String,
    },
    /// A restore into the directory has not finished.
    #[error("a restore into the data directory was not finished")]
    HalfRestored,
    /// A record inside the journal can't be read, and later ones depend on it.
    #[error("{0}")]
    JournalDamaged(Damage),
    /// The loss of a damaged journal was accepted, but the journal is not damaged.
    #[error("the journal is not damaged")]
    JournalWhole,
    /// The directory or the master key can't be accessed.
    #[error("{what}: {error}")]
    Io {
        /// The operation that was tried.
        what: String,
        /// The error.
        error: std::io::Error,
    },
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// The store's inputs from the world: disk, clock and randomness.
pub struct StoreEnvironment {
    /// The service's clock.
    pub now: Arc<dyn Fn() -> ServiceTime + Send + Sync>,
    /// Source of randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// Workers of a store with their queues. They run on threads; in crash simulations one driver decides which runs next.
pub(super) struct Workers {
    pub(super) writer: Writer,
    pub(super) writer_inbox: Receiver<Job>,
    pub(super) appender: Arc<Appender>,
    pub(super) appender_inbox: Receiver<Append>,
    /// Pages to verify while the service runs.
    pub(super) pinned_pages: Option<PinnedPages>,
}

impl Store {
    /// Opens the store in `directory` and starts its threads. Creates the directory and the store if they are missing.
    ///
    /// # Errors
    /// [`OpenError`]: the reason why the store does not open.
    pub fn open(directory: &Path, surroundings: StoreEnvironment) -> Result<Self, OpenError> {
        Self::open_with(directory, surroundings, StartOptions::default())
    }

    /// Opens the store with other options.
    ///
    /// # Errors
    /// [`OpenError::JournalWhole`] if the loss of a damaged journal is accepted and the journal is not damaged;
    /// otherwise as [`Store::open`].
    pub fn open_with(
        directory: &Path,
        surroundings: StoreEnvironment,
        options: StartOptions,
    ) -> Result<Self, OpenError> {
        Self::open_within(directory, surroundings, LOCK_PATIENCE, options)
    }

    /// Creates a data directory and its missing parents durably, accessible only to the owner. An existing one is kept.
    ///
    /// # Errors
    /// File system errors.
    pub fn create_directory(directory: &Path) -> std::io::Result<()> {
        database::make_directory(&FileSystem, directory)
    }

    /// Returns whether there is a store in `directory`.
    pub fn exists(directory: &Path) -> bool {
        directory.join(FILE).exists()
    }

    /// Removes an unused new store in `directory` and its master key. Returns the errors.
    pub fn remove_unfinished(directory: &Path) -> Vec<std::io::Error> {
        let removed = [
            FileSystem.remove_file(&directory.join(FILE)),
            FileSystem.remove_file(&directory.join(database::HALF_MADE)),
            FileSystem.remove_directory(&directory.join(content::DIRECTORY)),
            FileSystem.remove_file(&directory.join(master_key::FILE)),
            FileSystem.remove_file(&directory.join(reserve::FILE)),
            FileSystem.remove_file(&directory.join(journal::FILE)),
        ];
        let failures = removed.into_iter().filter_map(Result::err);
        failures.filter(|error| error.kind() != std::io::ErrorKind::NotFound).collect()
    }

    /// Opens the store with another maximum wait for a lock.
    pub(super) fn open_within(
        directory: &Path,
        surroundings: StoreEnvironment,
        max_wait: Duration,
        options: StartOptions,
    ) -> Result<Self, OpenError> {
        let lower_priority = options.lower_priority;
        let (store, workers) = Self::open_on(Arc::new(FileSystem), directory, surroundings, max_wait, options)?;
        store.start(workers, lower_priority)?;
        Ok(store)
    }

    /// Opens the store on any disk, without starting its workers. Damage that makes redb panic is reported as damage of
    /// its file.
    pub(super) fn open_on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        surroundings: StoreEnvironment,
        max_wait: Duration,
        options: StartOptions,
    ) -> Result<(Self, Workers), OpenError> {
        let damaged = |fault| OpenError::Damaged { file: directory.join(FILE), fault };
        match guarded(|| Self::open_files(disk, directory, surroundings, max_wait, options)) {
            Ok(Err(OpenError::Failed(StoreError::Corrupted(fault)))) | Err(fault) => Err(damaged(fault)),
            Ok(Err(OpenError::Failed(error))) if error.is_of_row() => Err(damaged(error.to_string())),
            Ok(opened) => opened,
        }
    }

    fn open_files(
        disk: Arc<dyn Disk>,
        directory: &Path,
        surroundings: StoreEnvironment,
        max_wait: Duration,
        options: StartOptions,
    ) -> Result<(Self, Workers), OpenError> {
        let RecoveredDatabase { database, reserve, started_at } =
            recover(&disk, directory, &surroundings, max_wait, &options)?;
        let StartOptions { monotonic, progress, limits, replica, verified_bytes_max, .. } = options;
        let entropy = Arc::clone(&surroundings.entropy);
        let prepared = prepare(&database, &*disk, directory, &*entropy, &*progress)?;
        let is_closing = Arc::default();
        let pinned_pages =
            PinnedPages::of_large(&database, &disk, directory, verified_bytes_max, Arc::clone(&is_closing))?;
        let health = Arc::new(Health::default());
        let master = Arc::clone(&prepared.master);
        let content = Content::open(Arc::clone(&disk), directory, master, Arc::clone(&health), entropy, &limits)?;
        let found = Snapshot::new(database.begin_read().map_err(StoreError::from)?, Arc::default());
        report_missing_keys(&content, &found, started_at)?;
        drop(found);
        let open_outbox = |start| replica::open_outbox(&disk, directory, prepared.sequence, &content, &start);
        let outbox = replica.map(open_outbox).transpose()?;
        let content = Arc::new(content);
        let journal = Journal::open(&*disk, directory, prepared.epoch, limits.clone())?;
        // The directory entries of database, journal, key and content must be as durable as the data in them.
        disk.sync_directory(directory)
            .map_err(|error| OpenError::Io { what: format!("syncing {}", directory.display()), error })?;
        Ok(assemble(StoreParts {
            disk,
            directory,
            surroundings,
            monotonic,
            limits,
            database,
            reserve,
            prepared,
            health,
            content,
            journal,
            outbox,
            is_closing,
            pinned_pages,
        }))
    }

    /// Starts a thread for each worker.
    fn start(&self, workers: Workers, lower_priority: fn()) -> Result<(), OpenError> {
        let Workers { writer, writer_inbox, appender, appender_inbox, pinned_pages } = workers;
        let Some(Channels { writer: after_append, .. }) = self.channels() else {
            return Err(StoreError::Closed.into());
        };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(self.spawn("appender", move || {
            appender.run(&appender_inbox, &after_append);
            Ok(())
        })?);
        threads.push(self.spawn("writer", move || {
            writer.run(&writer_inbox);
            Ok(())
        })?);
        if let Some(pages) = pinned_pages {
            threads.push(self.spawn("verifier", move || {
                lower_priority();
                pages.verify()
            })?);
        }
        Ok(())
    }

    /// Starts a thread. Its error, or a panic anywhere in it, counts as a failure of the store.
    fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) -> Result<thread::JoinHandle<()>, OpenError> {
        let health = Arc::clone(&self.health);
        // The failure is latched by then, and every caller that waits for the store gets it from there.
        let watched = move || drop(health.watch(name, work));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(watched);
        thread.map_err(|error| OpenError::Io { what: format!("starting the {name} thread"), error })
    }
}

/// Logs keys of content that are missing before their deadline.
fn report_missing_keys(content: &Content, found: &Snapshot, now: Timestamp) -> Result<(), StoreError> {
    let now = now.max(destroyed(found)?.latest());
    let segments = content.segments_without_key(|bucket| bucket <= now)?.len();
    if segments > 0 {
        tracing::error!(
            segments,
            "the keys of content segments are missing, so their messages can't be read and fail after an hour; stop \
             the service and put content/keys and content/keys.mirror back as they were, or restore a backup"
        );
    }
    Ok(())
}

#[cfg(test)]
mod missing;
#[cfg(test)]
mod stale_pages;
#[cfg(test)]
mod tests;
