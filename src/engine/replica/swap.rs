//! Replaces a store by a new one that was built next to it. The old store stays until the new one is complete. After a
//! crash at any moment, one of them is in place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::ReplicaError;
use crate::store::master_key;

/// Directory in which the new store is built.
const BUILDING: &str = "resync";
/// Its name once the store is complete.
const WHOLE: &str = "resync.whole";
/// Parts that must all belong to the same store.
const PARTS: [&str; 3] = ["journal", "content", "postrider.redb"];

/// Creates the empty directory for the new store of `data`, and returns it.
pub(super) fn prepare(data: &Path) -> Result<PathBuf, ReplicaError> {
    let building = data.join(BUILDING);
    remove(&building)?;
    fs::create_dir(&building).map_err(failed)?;
    Ok(building)
}

/// Marks the new store of `data` as complete.
pub(super) fn seal(data: &Path) -> Result<(), ReplicaError> {
    fs::rename(data.join(BUILDING), data.join(WHOLE)).map_err(failed)?;
    sync(data)
}

/// Replaces the current store by a complete new one, if there is one. Continues an interrupted earlier call.
pub(super) fn finish(data: &Path) -> Result<(), ReplicaError> {
    let whole = data.join(WHOLE);
    if !whole.exists() {
        return Ok(());
    }
    move_others(&whole, data)?;
    for name in PARTS {
        // An interrupted call has moved this part already.
        if whole.join(name).exists() {
            remove(&data.join(name))?;
            fs::rename(whole.join(name), data.join(name)).map_err(failed)?;
        }
    }
    sync(data)?;
    remove(&whole)?;
    sync(data)
}

/// Moves files that `data` lacks and that are not part of the store: the master key and the certificates of a new
/// standby.
fn move_others(whole: &Path, data: &Path) -> Result<(), ReplicaError> {
    for entry in fs::read_dir(whole).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (from, to) = (entry.path(), data.join(entry.file_name()));
        let is_part = PARTS.iter().any(|part| entry.file_name() == *part);
        if !is_part && !to.exists() {
            fs::rename(from, to).map_err(failed)?;
        }
    }
    sync(data)
}

/// Moves the store of `data` into a new directory below it.
pub(super) fn set_aside(data: &Path, epoch: u64) -> Result<PathBuf, ReplicaError> {
    let aside = data.join(format!("deposed-{epoch}"));
    fs::create_dir_all(&aside).map_err(failed)?;
    // Without the master key the store could not be read there.
    let key = data.join(master_key::FILE);
    if key.exists() {
        fs::copy(&key, aside.join(master_key::FILE)).map_err(failed)?;
    }
    // The database is moved last: without it, a directory does not look like a store.
    for name in ["replica", "journal", "content", "postrider.redb"] {
        if data.join(name).exists() {
            fs::rename(data.join(name), aside.join(name)).map_err(failed)?;
        }
    }
    sync(&aside)?;
    sync(data)?;
    Ok(aside)
}

fn remove(path: &Path) -> Result<(), ReplicaError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

fn sync(directory: &Path) -> Result<(), ReplicaError> {
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

fn failed(error: io::Error) -> ReplicaError {
    ReplicaError::Io { what: "replacing the store by a newer base".to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(directory: &Path, word: &str) {
        fs::create_dir_all(directory.join("content")).unwrap();
        for name in ["journal", "content/keys", "postrider.redb"] {
            fs::write(directory.join(name), word).unwrap();
        }
    }

    fn words(data: &Path) -> Vec<String> {
        let read = |name: &&str| fs::read_to_string(data.join(name)).unwrap();
        ["journal", "content/keys", "postrider.redb", "master.key"].iter().map(read).collect()
    }

    #[test]
    fn an_interrupted_swap_is_completed_and_keeps_existing_files() {
        for moved in 0..=PARTS.len() {
            let data = tempfile::tempdir().unwrap();
            let data = data.path();
            store(data, "old");
            fs::write(data.join("master.key"), "key").unwrap();
            store(&prepare(data).unwrap(), "new");
            fs::write(data.join(BUILDING).join("master.key"), "other").unwrap();
            seal(data).unwrap();
            for part in &PARTS[..moved] {
                remove(&data.join(part)).unwrap();
                fs::rename(data.join(WHOLE).join(part), data.join(part)).unwrap();
            }
            finish(data).unwrap();
            finish(data).unwrap();
            assert_eq!(words(data), ["new", "new", "new", "key"], "{moved} parts were moved before");
            assert!(!data.join(WHOLE).exists());
        }
    }

    #[test]
    fn a_new_standby_also_gets_the_master_key() {
        let data = tempfile::tempdir().unwrap();
        let aside = prepare(data.path()).unwrap();
        store(&aside, "new");
        fs::write(aside.join("master.key"), "key").unwrap();
        seal(data.path()).unwrap();
        finish(data.path()).unwrap();
        assert_eq!(words(data.path()), ["new", "new", "new", "key"]);
    }
}
