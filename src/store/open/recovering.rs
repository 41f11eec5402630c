//! The first part of opening a store: its database is opened, the journal replayed into it, and an older format
//! migrated.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::replaying::replay;
use super::verifying::verify;
use super::{FILE, OpenError, StartOptions, StartWork, StoreEnvironment, database};
use crate::base::time::Timestamp;
use crate::store::damage::OpenDatabase;
use crate::store::disk::Disk;
use crate::store::reserve::{self, Reserve};
use crate::store::schema::{self, FORMAT};
use crate::store::{clock_doubts, journal, master_key, migrate, restore};

/// A database of the current format with its journal replayed.
pub(super) struct RecoveredDatabase {
    pub(super) database: Arc<OpenDatabase>,
    pub(super) reserve: Reserve,
    /// Time of the start, by which expired content is recognised.
    pub(super) started_at: Timestamp,
}

/// Opens the database of `directory`, replays the journal and migrates older formats. Waits up to `max_wait` for
/// another process's lock.
pub(super) fn recover(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    surroundings: &StoreEnvironment,
    max_wait: Duration,
    options: &StartOptions,
) -> Result<RecoveredDatabase, OpenError> {
    let StartOptions { progress, limits, .. } = options;
    let uncreated = |error| OpenError::Io { what: format!("creating {}", directory.display()), error };
    database::make_directory(&**disk, directory).map_err(uncreated)?;
    if restore::is_under_way(&**disk, directory) {
        return Err(OpenError::HalfRestored);
    }
    reserve::make_space(&**disk, directory, limits);
    verify(&**disk, directory, options.verified_bytes_max, &**progress)?;
    let open = || database::open(&**disk, &directory.join(FILE), limits.cache_bytes, max_wait, progress);
    let mut database = open()?;
    migrate::refuse_newer(&database, FORMAT)?;
    schema::refuse_renamed(&database)?;
    master_key::refuse_wrong(&**disk, directory, &database)?;
    let mut reserve = Reserve::open(&**disk, directory, limits.clone(), {
        let (disk, directory) = (Arc::clone(disk), directory.to_owned());
        move || disk.free_bytes(&directory).ok()
    });
    // Recovery after a crash may need disk space that other programs have taken since.
    reserve.before_commit();
    let now = (surroundings.now)().now;
    let started_at = clock_doubts::time_of_start(&database, now);
    replay(&database, disk, directory, options.on_journal_damage, now, &*surroundings.entropy)?;
    journal::name_epoch_of_format_1(&database, &**disk, directory)?;
    let migrating = |migration| progress(StartWork::Migrating(migration));
    let environment = migrate::Environment { disk: &**disk, directory, now, progress: &migrating };
    if migrate::migrate(&database, &environment, FORMAT, migrate::STEPS)? {
        drop(database);
        database = open()?;
    }
    Ok(RecoveredDatabase { database: Arc::new(database), reserve, started_at })
}
