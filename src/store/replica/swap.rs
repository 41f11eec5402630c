//! Replaces a store by a new one that was built next to it. The old store stays until the new one is complete. After a
//! crash at any moment, one of them is in place.

use std::io;
use std::path::{Path, PathBuf};

use super::directory::ReplicaDisk;
use crate::store::disk::Disk;

/// Directory in which the new store is built.
const BUILDING: &str = "resync";
/// Name of the new store's directory once the store is complete.
const WHOLE: &str = "resync.whole";
/// Parts that must all belong to the same store.
const PARTS: [&str; 3] = ["journal", "content", "postrider.redb"];

/// Creates the empty directory for the new store of `data`, and returns it.
///
/// # Errors
/// File system errors.
pub fn prepare(disk: &ReplicaDisk, data: &Path) -> io::Result<PathBuf> {
    let building = data.join(BUILDING);
    remove(&*disk.0, &building)?;
    disk.0.create_directory(&building)?;
    Ok(building)
}

/// Marks the new store of `data` as complete.
///
/// # Errors
/// File system errors.
pub fn seal(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    disk.0.rename(&data.join(BUILDING), &data.join(WHOLE))?;
    disk.0.sync_directory(data)
}

/// Replaces the current store by a complete new one, if there is one. Continues an interrupted earlier call.
///
/// # Errors
/// File system errors.
pub fn finish(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    let disk = &*disk.0;
    let whole = data.join(WHOLE);
    if !disk.exists(&whole) {
        return Ok(());
    }
    move_others(disk, &whole, data)?;
    for name in PARTS {
        // An interrupted call has moved this part already.
        if disk.exists(&whole.join(name)) {
            remove(disk, &data.join(name))?;
            disk.rename(&whole.join(name), &data.join(name))?;
        }
    }
    disk.sync_directory(data)?;
    remove(disk, &whole)?;
    disk.sync_directory(data)
}

/// Removes a new store of `data` that has not replaced the current one: the current one has claimed the log.
///
/// # Errors
/// File system errors.
pub fn abandon(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    for name in [WHOLE, BUILDING] {
        remove(&*disk.0, &data.join(name))?;
    }
    disk.0.sync_directory(data)
}

/// Moves files that `data` lacks and that are not part of the store: the master key and the certificates of a new
/// standby.
fn move_others(disk: &dyn Disk, whole: &Path, data: &Path) -> io::Result<()> {
    for entry in disk.list(whole)? {
        let (from, to) = (whole.join(&entry.name), data.join(&entry.name));
        if !PARTS.contains(&entry.name.as_str()) && !disk.exists(&to) {
            disk.rename(&from, &to)?;
        }
    }
    disk.sync_directory(data)
}

fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    if !disk.exists(path) {
        return Ok(());
    }
    if disk.list(path).is_ok() { disk.remove_directory(path) } else { disk.remove_file(path) }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            let (disk, data) = (&ReplicaDisk::default(), data.path());
            store(data, "old");
            fs::write(data.join("master.key"), "key").unwrap();
            store(&prepare(disk, data).unwrap(), "new");
            fs::write(data.join(BUILDING).join("master.key"), "other").unwrap();
            seal(disk, data).unwrap();
            for part in &PARTS[..moved] {
                remove(&*disk.0, &data.join(part)).unwrap();
                fs::rename(data.join(WHOLE).join(part), data.join(part)).unwrap();
            }
            finish(disk, data).unwrap();
            finish(disk, data).unwrap();
            assert_eq!(words(data), ["new", "new", "new", "key"], "{moved} parts were moved before");
            assert!(!data.join(WHOLE).exists());
        }
    }

    #[test]
    fn a_new_standby_also_gets_the_master_key() {
        let (disk, data) = (&ReplicaDisk::default(), tempfile::tempdir().unwrap());
        let aside = prepare(disk, data.path()).unwrap();
        store(&aside, "new");
        fs::write(aside.join("master.key"), "key").unwrap();
        seal(disk, data.path()).unwrap();
        finish(disk, data.path()).unwrap();
        assert_eq!(words(data.path()), ["new", "new", "new", "key"]);
    }
}
