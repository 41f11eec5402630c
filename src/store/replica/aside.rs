//! Stores that were set aside: each is a directory `deposed-EPOCH` below the data directory, with a copy of the master
//! key. The operator reads them and removes them. Their content expires like that of the current store.
//!
//! A store moves in four steps: its directory is created as `deposed-EPOCH.part`, its `replica` directory moves, the
//! rest moves, and the suffix is removed. From the second step on the store counts as set aside, and the next call of
//! [`finish`] completes an interrupted move. Before, the store has not changed, and [`finish`] removes the rest of the
//! attempt.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Follower;
use super::backlog::DIRECTORY as REPLICA;
use super::directory::ReplicaDisk;
use crate::base::entropy::Entropy;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;
use crate::store::Store;
use crate::store::clock_doubts::Deadlines;
use crate::store::content::{Content, DIRECTORY as CONTENT};
use crate::store::disk::{Disk, OpenMode};
use crate::store::error::StoreError;
use crate::store::limits::Limits;
use crate::store::master_key;

const PREFIX: &str = "deposed-";
const UNFINISHED: &str = ".part";
/// The parts that follow the `replica` directory. Without the database a directory does not look like a store, so the
/// database is last.
const REST: [&str; 3] = ["journal", CONTENT, "postrider.redb"];

/// Moves the store of `data` into a new directory below it.
///
/// # Errors
/// File system errors; the next start completes the move.
pub fn set_aside(disk: &ReplicaDisk, data: &Path, epoch: u64) -> io::Result<PathBuf> {
    finish(disk, data)?;
    let disk = &*disk.0;
    let unfinished = free_name(disk, data, epoch);
    disk.create_directory(&unfinished)?;
    // Without the master key the store could not be read there.
    let key = data.join(master_key::FILE);
    if disk.exists(&key) {
        let copy = disk.open(&unfinished.join(master_key::FILE), OpenMode::Fresh)?;
        copy.write_all_at(&disk.read(&key)?, 0)?;
        copy.sync_data()?;
    }
    disk.create_directory(&data.join(REPLICA))?;
    disk.sync_directory(data)?;
    disk.rename(&data.join(REPLICA), &unfinished.join(REPLICA))?;
    complete(disk, data, &unfinished)
}

/// Completes an interrupted [`set_aside`], or removes it if the store has not begun to move.
///
/// # Errors
/// File system errors.
pub fn finish(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    let disk = &*disk.0;
    for unfinished in directories(disk, data)?.into_iter().filter(|directory| is_unfinished(directory)) {
        if has_begun(disk, &unfinished) {
            let aside = complete(disk, data, &unfinished)?;
            tracing::warn!(
                directory = %aside.display(),
                "completed an interrupted move of a store; remove its directory when you no longer need it"
            );
        } else {
            disk.remove_directory(&unfinished)?;
            disk.sync_directory(data)?;
        }
    }
    Ok(())
}

/// Returns whether a part of the store of `data` was moved by an interrupted [`set_aside`], so that the rest must not
/// be used.
pub fn is_unfinished_in(disk: &ReplicaDisk, data: &Path) -> bool {
    let found = directories(&*disk.0, data).unwrap_or_default();
    found.iter().any(|directory| is_unfinished(directory) && has_begun(&*disk.0, directory))
}

fn complete(disk: &dyn Disk, data: &Path, unfinished: &Path) -> io::Result<PathBuf> {
    disk.sync_directory(unfinished)?;
    disk.sync_directory(data)?;
    for name in REST {
        // An interrupted call may have moved this part already.
        if disk.exists(&data.join(name)) && !disk.exists(&unfinished.join(name)) {
            disk.rename(&data.join(name), &unfinished.join(name))?;
        }
    }
    disk.sync_directory(unfinished)?;
    disk.sync_directory(data)?;
    let aside = unfinished.with_extension("");
    disk.rename(unfinished, &aside)?;
    disk.sync_directory(data)?;
    Ok(aside)
}

/// Returns the unfinished directory for a store of `epoch`. An epoch can be set aside more than once.
fn free_name(disk: &dyn Disk, data: &Path, epoch: u64) -> PathBuf {
    let numbered = (2_u32..).map(|number| format!("{PREFIX}{epoch}-{number}"));
    let mut names = std::iter::once(format!("{PREFIX}{epoch}")).chain(numbered);
    let free = names.find(|name| !disk.exists(&data.join(name))).unwrap_or_default();
    data.join(free + UNFINISHED)
}

fn directories(disk: &dyn Disk, data: &Path) -> io::Result<Vec<PathBuf>> {
    if !disk.exists(data) {
        return Ok(Vec::new());
    }
    let names = disk.list(data)?.into_iter().map(|entry| entry.name);
    Ok(names.filter(|name| name.starts_with(PREFIX)).map(|name| data.join(name)).collect())
}

fn is_unfinished(directory: &Path) -> bool {
    directory.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes())
}

fn has_begun(disk: &dyn Disk, unfinished: &Path) -> bool {
    disk.exists(&unfinished.join(REPLICA))
}

/// The stores that were set aside below one data directory.
struct StoresAside<'a> {
    disk: &'a Arc<dyn Disk>,
    data: &'a Path,
    master: &'a Arc<MasterKey>,
    entropy: &'a Arc<dyn Entropy>,
}

impl StoresAside<'_> {
    /// Destroys the content whose deadline `is_over`.
    fn destroy(&self, is_over: impl Fn(Bucket) -> Result<bool, StoreError>) -> Result<(), StoreError> {
        let failed = |error: io::Error| StoreError::Content(format!("could not list the data directory: {error}"));
        for directory in directories(&**self.disk, self.data).map_err(failed)? {
            if !self.disk.exists(&directory.join(CONTENT)) {
                continue;
            }
            // One damaged store does not keep the content of the others.
            if let Err(error) = self.destroy_in(&directory, &is_over) {
                let directory = directory.display();
                tracing::warn!(%error, %directory, "could not destroy expired content; trying again later");
            }
        }
        Ok(())
    }

    fn destroy_in(
        &self,
        directory: &Path,
        is_over: &impl Fn(Bucket) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let (disk, master, entropy) = (Arc::clone(self.disk), Arc::clone(self.master), Arc::clone(self.entropy));
        let content = Content::open(disk, directory, master, Arc::default(), entropy, &Limits::default())?;
        for end in content.buckets_until(Timestamp::MAX)? {
            if is_over(Bucket { end })? {
                content.destroy(end)?;
            }
        }
        Ok(())
    }
}

impl Follower {
    /// Destroys the expired content of stores that were set aside.
    pub(super) fn destroy_aside(&self, deadlines: &Deadlines) -> Result<(), StoreError> {
        let (disk, data, master) = (&self.disk, &*self.directory, self.master_key());
        StoresAside { disk, data, master, entropy: &self.entropy }.destroy(|bucket| Ok(deadlines.have_passed(bucket)))
    }
}

impl Store {
    /// Destroys the content, expired at `now`, of stores that were set aside.
    ///
    /// # Errors
    /// File system or database errors.
    pub fn destroy_aside(&self, now: Timestamp) -> Result<(), StoreError> {
        let Self { disk, directory: data, master, entropy, .. } = self;
        StoresAside { disk, data, master, entropy }.destroy(|bucket| self.is_over(bucket, now))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn store(data: &Path, word: &str) {
        for name in ["replica", "content"] {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        for name in ["replica/holder", "journal", "content/keys", "postrider.redb"] {
            fs::write(data.join(name), word).unwrap();
        }
    }

    fn words(aside: &Path) -> Vec<String> {
        let read = |name: &&str| fs::read_to_string(aside.join(name)).unwrap();
        ["replica/holder", "journal", "content/keys", "postrider.redb", "master.key"].iter().map(read).collect()
    }

    #[test]
    fn a_store_of_the_same_epoch_can_be_set_aside_again() {
        let (disk, data) = (&ReplicaDisk::default(), tempfile::tempdir().unwrap());
        fs::write(data.path().join("master.key"), "key").unwrap();
        for (word, name) in [("one", "deposed-3"), ("two", "deposed-3-2"), ("three", "deposed-3-3")] {
            store(data.path(), word);
            assert_eq!(set_aside(disk, data.path(), 3).unwrap(), data.path().join(name));
            assert_eq!(words(&data.path().join(name)), [word, word, word, word, "key"]);
            assert!(!data.path().join("postrider.redb").exists());
        }
        assert_eq!(words(&data.path().join("deposed-3"))[0], "one");
    }

    #[test]
    fn an_interrupted_move_is_completed_even_if_a_later_start_chose_a_name() {
        for moved in 0..=3 {
            let (disk, data) = (&ReplicaDisk::default(), tempfile::tempdir().unwrap());
            let (data, unfinished) = (data.path(), data.path().join("deposed-3.part"));
            store(data, "old");
            fs::create_dir(&unfinished).unwrap();
            fs::write(unfinished.join("master.key"), "key").unwrap();
            for name in ["replica", "journal", "content"].iter().take(moved) {
                fs::rename(data.join(name), unfinished.join(name)).unwrap();
            }
            fs::create_dir_all(data.join("replica")).unwrap();
            fs::write(data.join("replica/holder"), "new").unwrap();
            assert_eq!(is_unfinished_in(disk, data), moved > 0);
            for _ in 0..2 {
                finish(disk, data).unwrap();
            }
            assert!(!unfinished.exists() && !is_unfinished_in(disk, data));
            if moved == 0 {
                assert!(data.join("postrider.redb").exists(), "nothing had happened");
                continue;
            }
            assert_eq!(words(&data.join("deposed-3")), ["old", "old", "old", "old", "key"]);
            assert!(!data.join("postrider.redb").exists());
            assert_eq!(fs::read_to_string(data.join("replica/holder")).unwrap(), "new");
        }
    }
}
