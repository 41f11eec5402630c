//! A disk in memory, for simulated crashes. It separates durable data from the system's page cache and counts the
//! operations that change it. At planned operations it fails, is full, or loses power and randomly drops unsynced data.
//! The page cache outlives a failed sync and the process; only a power cut drops it. The same seed and the same calls
//! give the same disk.

mod file;
mod node;
pub(in crate::store) mod rng;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Builder, Database, DatabaseError, StorageError};

use super::{Disk, DiskFile, Entry, OpenMode};
use file::{SimulatedDatabase, SimulatedFile};
use node::{Change, FileNode, Naming, Node};
pub(in crate::store) use node::{LastWrite, Loss};
use state::{State, Touch, not_found};

/// Fault at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Fault {
    /// The machine loses power.
    Off(Loss),
    /// The operation fails. A write may have been partly done, and a sync may have made some of the data durable.
    Error,
    /// The next sync fails and reports a full disk.
    FullAtSync,
    /// The next write to a segment goes to another offset of it and reports success.
    Misdirected,
    /// The disk is full for this operation and this number of further ones. A write may have been partly done.
    Full(u64),
}

/// Whether syncs work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum FsyncMode {
    /// Synced data is durable.
    Honored,
    /// Syncs do nothing, like those of a disk that answers from its cache.
    Ignored,
}

/// The disk; clones share it.
#[derive(Clone)]
pub(in crate::store) struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// Creates an empty disk with the randomness of `seed`.
    pub(in crate::store) fn new(seed: u64, fsync_mode: FsyncMode) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed, fsync_mode))))
    }

    /// Returns another disk with the same content, its own randomness and no planned faults.
    pub(in crate::store) fn copy(&self, seed: u64, fsync_mode: FsyncMode) -> Self {
        Self(Arc::new(Mutex::new(self.state().copy(seed, fsync_mode))))
    }

    /// Plans a fault for the `after`th operation from now; the next one is 0.
    pub(in crate::store) fn plan(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.operations + 1 + after;
        state.faults.insert(at, fault);
    }

    /// Plans a failure of the `after`th file read from now; the next one is 0.
    pub(in crate::store) fn plan_read_error(&self, after: u64) {
        let mut state = self.state();
        let at = state.reads + 1 + after;
        state.read_errors.insert(at);
    }

    /// Sets the free space that the disk reports.
    pub(in crate::store) fn set_free(&self, bytes: u64) {
        self.state().free_bytes = bytes;
    }

    /// Runs `look` without planned faults: reading a store may make its cache write pages.
    pub(in crate::store) fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> T {
        self.state().is_quiet = true;
        let seen = look();
        self.state().is_quiet = false;
        seen
    }

    /// Removes the planned read failures.
    pub(in crate::store) fn forgive_reads(&self) {
        self.state().read_errors.clear();
    }

    /// Returns whether a file differs from the data written to it.
    pub(in crate::store) fn is_damaged(&self) -> bool {
        self.state().is_damaged
    }

    /// Returns the number of failed syncs of the current process.
    pub(in crate::store) fn failed_syncs(&self) -> u64 {
        self.state().failed_syncs
    }

    /// Flips a bit of a file whose path `is_meant`, on the disk and in the page cache. Returns the path, if there was
    /// such a file.
    pub(in crate::store) fn rot(&self, is_meant: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        self.state().rot(is_meant)
    }

    /// Overwrites `bytes` at `offset` of a file without the store's knowledge.
    pub(in crate::store) fn damage(&self, path: &Path, offset: usize, bytes: &[u8]) {
        self.state().damage(path, offset, bytes).expect("the file is there");
    }

    /// Returns the last write to a file, if any.
    pub(in crate::store) fn last_write(&self, path: &Path) -> Option<LastWrite> {
        let mut state = self.state();
        let node = state.find(path).ok()?;
        state.file_mut(node).ok()?.last_write.clone()
    }

    /// Returns the number of planned faults that have not occurred yet.
    pub(in crate::store) fn planned(&self) -> usize {
        let state = self.state();
        state.faults.len() + state.read_errors.len()
    }

    /// Removes the planned faults.
    pub(in crate::store) fn forgive(&self) {
        self.state().forgive();
    }

    /// Returns the number of operations.
    pub(in crate::store) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns a digest of the operations so far, to compare two runs.
    pub(in crate::store) fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Returns whether the machine is off.
    pub(in crate::store) fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Turns the machine off now.
    pub(in crate::store) fn turn_off(&self, loss: Loss) {
        self.state().turn_off(loss);
    }

    /// Ends the process, and turns the machine on if it is off. Planned faults are removed.
    pub(in crate::store) fn restart(&self) {
        self.state().restart();
    }

    /// Returns everything that a forensic reader could find on the disk: the visible bytes, the durable bytes and the
    /// unsynced writes of every file. This includes files that had a name when their directory was last synced.
    pub(in crate::store) fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.state().everything()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.open_file(path, opening)?))
    }

    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError> {
        let file = self.open_file(path, OpenMode::Kept).map_err(StorageError::from)?;
        builder.create_with_backend(SimulatedDatabase(file))
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().find(path).is_ok()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        let names = &state.directory(state.find(directory)?)?.names;
        let length = |node: usize| match &state.nodes[node] {
            Node::File(file) => Some(file.bytes.len() as u64),
            Node::Directory(_) => None,
        };
        Ok(names.iter().map(|(name, node)| Entry { name: name.clone(), length: length(*node) }).collect())
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        if self.exists(directory) {
            return Ok(());
        }
        let (parent, name) = split(directory)?;
        self.create_directory(parent)?;
        self.change(Touch::Names, |state| state.create(parent, name, Node::Directory(Default::default())).map(|_| ()))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = split(path)?;
        self.change(Touch::Unlink, |state| {
            state.find(path)?;
            let parent = state.find(parent)?;
            state.directory_mut(parent)?.change(Naming::Unlink { name: name.to_owned() });
            Ok(())
        })
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        for entry in self.list(directory)? {
            let path = directory.join(entry.name);
            if entry.length.is_some() { self.remove_file(&path)? } else { self.remove_directory(&path)? }
        }
        self.remove_file(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old_parent, old), (new_parent, new)) = (split(from)?, split(to)?);
        self.change(Touch::Names, |state| {
            let (node, old_parent, new_parent) = (state.find(from)?, state.find(old_parent)?, state.find(new_parent)?);
            let (old, new) = (old.to_owned(), new.to_owned());
            if old_parent == new_parent {
                state.directory_mut(new_parent)?.change(Naming::Rename { from: old, to: new, node });
            } else {
                state.directory_mut(new_parent)?.change(Naming::Link { name: new, node });
                state.directory_mut(old_parent)?.change(Naming::Unlink { name: old });
            }
            Ok(())
        })
    }

    fn flush_directory(&self, directory: &Path) -> io::Result<()> {
        let node = self.state().find(directory)?;
        self.change(Touch::Sync { node }, |state| state.sync(node))
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(self.state().free_bytes)
    }
}

impl SimulatedDisk {
    fn open_file(&self, path: &Path, opening: OpenMode) -> io::Result<SimulatedFile> {
        let run = self.state().run;
        let found = self.state().find(path);
        let node = match (found, opening) {
            (Ok(node), OpenMode::Existing | OpenMode::Kept) => node,
            (Ok(node), OpenMode::Fresh) => {
                self.change(Touch::Room { node, length: 0 }, |state| {
                    state.file_mut(node)?.change(Change::Length(0));
                    Ok(())
                })?;
                node
            }
            (Err(error), OpenMode::Existing) => return Err(error),
            (Err(_), OpenMode::Kept | OpenMode::Fresh) => {
                let (parent, name) = split(path)?;
                self.change(Touch::Names, |state| state.create(parent, name, Node::File(FileNode::named(name))))?
            }
        };
        self.state().check(run)?;
        Ok(SimulatedFile { disk: self.clone(), run, node, opening })
    }

    /// Performs one operation of the current process.
    fn change<T>(&self, touch: Touch, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let run = state.run;
        state.perform(run, touch, |state, _| act(state))
    }
}

fn split(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent().zip(name).ok_or_else(not_found)
}
