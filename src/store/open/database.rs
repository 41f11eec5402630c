//! The database file and its directory during the opening of a store.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, StorageError};

use super::{OpenError, StartWork};
use crate::store::content;
use crate::store::damage::OpenDatabase;
use crate::store::disk::{Disk, OpenMode};
use crate::store::error::StoreError;
use crate::store::journal;

/// Name of the database while it is created.
pub(super) const HALF_MADE: &str = "postrider.redb.new";

/// Creates the data directory durably if it is missing.
pub(in crate::store) fn make_directory(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !disk.exists(path);
    let missing: Vec<_> = directory.ancestors().take_while(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    disk.create_directory(directory)?;
    // The file's directory entry must be as durable as the data in it.
    missing
        .iter()
        .filter_map(|made| made.parent())
        .try_for_each(|above| disk.sync_directory(if above.as_os_str().is_empty() { Path::new(".") } else { above }))
}

/// Describes the fault if the database file at `path` is missing or empty while other files of a store exist. A new
/// database in its place would have no accounts, and its first checkpoint would clear the old journal.
pub(in crate::store) fn loss(disk: &dyn Disk, path: &Path) -> io::Result<Option<String>> {
    let state = match disk.open(path, OpenMode::Existing) {
        Ok(file) if file.length()? > 0 => return Ok(None),
        Ok(_) => "empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
        Err(error) => return Err(error),
    };
    let mut others = [journal::FILE, content::DIRECTORY].into_iter();
    let other = others.find(|name| disk.exists(&path.with_file_name(name)));
    Ok(other.map(|other| format!("it is {state}, and {other:?} beside it belongs to a store")))
}

/// Opens the database at `path`, or creates it. Waits up to `max_wait` for another process's lock. Reports a repair to
/// `progress`.
pub(in crate::store) fn open(
    disk: &dyn Disk,
    path: &Path,
    cache_bytes: usize,
    max_wait: Duration,
    progress: &Rc<dyn Fn(StartWork)>,
) -> Result<OpenDatabase, OpenError> {
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    if let Some(fault) = loss(disk, path).map_err(io)? {
        return Err(OpenError::Damaged { file: path.to_owned(), fault });
    }
    if !disk.exists(path) {
        make_database(disk, path)?;
    }
    let deadline = Instant::now() + max_wait;
    loop {
        let mut builder = Database::builder();
        let progress = Rc::clone(progress);
        builder.set_cache_size(cache_bytes).set_repair_callback(move |_| progress(StartWork::Repairing));
        match disk.open_database(path, &builder) {
            Ok(database) => return Ok(OpenDatabase::new(database)),
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(OpenError::Locked),
            Err(error) if is_damage(&error) => {
                return Err(OpenError::Damaged { file: path.to_owned(), fault: error.to_string() });
            }
            Err(error) => return Err(StoreError::from(error).into()),
        }
    }
}

/// Returns whether an error of opening means that the file is damaged.
pub(super) fn is_damage(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::Storage(StorageError::Corrupted(_)) | DatabaseError::UpgradeRequired(_) => true,
        DatabaseError::Storage(StorageError::Io(error)) => {
            matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

/// Creates an empty database under a temporary name first, because a partial database would prevent every later start.
fn make_database(disk: &dyn Disk, path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { what: format!("creating {}", path.display()), error };
    let half_made = path.with_file_name(HALF_MADE);
    // Discard the file of an earlier try.
    drop(disk.open(&half_made, OpenMode::Fresh).map_err(io)?);
    drop(disk.open_database(&half_made, &Database::builder()).map_err(StoreError::from)?);
    disk.rename(&half_made, path).map_err(io)
}
