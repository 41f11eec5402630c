//! A disk in memory, for simulated crashes. It keeps apart what is durable and what the system's page cache has, counts
//! the operations that change it, and at those that the run names it fails, is full, or goes off and forgets by chance
//! what was not synced. The page cache outlives a failed sync and the process; only a power cut drops it. The same seed
//! and the same calls make the same disk.

pub(in crate::store) mod chance;
mod file;
mod node;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Builder, Database, DatabaseError, StorageError};

use super::{Disk, DiskFile, Entry, Opening};
use file::{SimulatedDatabase, SimulatedFile};
use node::{Change, FileNode, Naming, Node};
pub(in crate::store) use node::{LastWrite, Loss};
use state::{State, Touch, not_found};

/// Fault at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Fault {
    /// The machine goes off.
    Off(Loss),
    /// The operation fails. A write may have been done in part, and a sync may have kept some of it.
    Error,
    /// The next sync fails, and says that there is no room.
    FullAtSync,
    /// The next write to a segment goes to another place in it, and says that it was done.
    Misdirected,
    /// There is no room, now and for so many operations more. A write may have been done in part.
    Full(u64),
}

/// Whether the disk does what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Honesty {
    /// Synced data is durable.
    Honest,
    /// Syncs do nothing: what a disk does that answers from its cache.
    SyncsNothing,
}

/// The disk; its clones are the same disk.
#[derive(Clone)]
pub(in crate::store) struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk of the chance of `seed`.
    pub(in crate::store) fn new(seed: u64, honesty: Honesty) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed, honesty))))
    }

    /// Another disk with the same content, chance of its own, and nothing planned.
    pub(in crate::store) fn copy(&self, seed: u64, honesty: Honesty) -> Self {
        Self(Arc::new(Mutex::new(self.state().copy(seed, honesty))))
    }

    /// Plans a fault for the `after`th operation from now, the next one being 0.
    pub(in crate::store) fn plan(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.operations + 1 + after;
        state.faults.insert(at, fault);
    }

    /// Has the `after`th read of a file from now fail, the next one being 0.
    pub(in crate::store) fn plan_read_error(&self, after: u64) {
        let mut state = self.state();
        let at = state.reads + 1 + after;
        state.read_errors.insert(at);
    }

    /// Has the disk say that it has so many bytes left.
    pub(in crate::store) fn set_free(&self, bytes: u64) {
        self.state().free_bytes = bytes;
    }

    /// Does `look` while nothing that was planned comes: what looks at a store may have its cache write pages.
    pub(in crate::store) fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> T {
        self.state().is_quiet = true;
        let seen = look();
        self.state().is_quiet = false;
        seen
    }

    /// Forgets which reads were to fail.
    pub(in crate::store) fn forgive_reads(&self) {
        self.state().read_errors.clear();
    }

    /// Whether a file does not hold what was written to it.
    pub(in crate::store) fn is_damaged(&self) -> bool {
        self.state().is_damaged
    }

    /// Returns the number of failed syncs of the process that has the disk.
    pub(in crate::store) fn failed_syncs(&self) -> u64 {
        self.state().failed_syncs
    }

    /// Flips a bit of a file whose path `is_meant`, on the disk and in the page cache. The path, where there was one.
    pub(in crate::store) fn rot(&self, is_meant: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        self.state().rot(is_meant)
    }

    /// Has the disk hold `bytes` at `offset` of a file, though nobody wrote them there.
    pub(in crate::store) fn damage(&self, path: &Path, offset: usize, bytes: &[u8]) {
        self.state().damage(path, offset, bytes).expect("the file is there");
    }

    /// The last write to a file, where there was one.
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

    /// Forgets what was planned.
    pub(in crate::store) fn forgive(&self) {
        self.state().forgive();
    }

    /// Returns the number of operations.
    pub(in crate::store) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// A digest of the operations until now, to see whether two runs are the same.
    pub(in crate::store) fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Whether the machine went off.
    pub(in crate::store) fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Turns the machine off now.
    pub(in crate::store) fn turn_off(&self, loss: Loss) {
        self.state().turn_off(loss);
    }

    /// Ends the process that had the disk, and turns the machine on where it is off. What was planned is forgotten.
    pub(in crate::store) fn restart(&self) {
        self.state().restart();
    }

    /// All that could be read from the disk by somebody who takes it apart: of every file that has a name, or had one
    /// when its directory was synced last, the bytes as they are seen, as they are durable, and as they are on their
    /// way.
    pub(in crate::store) fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.state().everything()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, opening: Opening) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.open_file(path, opening)?))
    }

    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError> {
        let file = self.open_file(path, Opening::Kept).map_err(StorageError::from)?;
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
        let ((parent, old), (_, new)) = (split(from)?, split(to)?);
        assert_eq!(from.parent(), to.parent(), "nothing is moved between directories");
        self.change(Touch::Names, |state| {
            let (node, parent) = (state.find(from)?, state.find(parent)?);
            let naming = Naming::Rename { from: old.to_owned(), to: new.to_owned(), node };
            state.directory_mut(parent)?.change(naming);
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
    fn open_file(&self, path: &Path, opening: Opening) -> io::Result<SimulatedFile> {
        let run = self.state().run;
        let found = self.state().find(path);
        let node = match (found, opening) {
            (Ok(node), Opening::Existing | Opening::Kept) => node,
            (Ok(node), Opening::Fresh) => {
                self.change(Touch::Room { node, length: 0 }, |state| {
                    state.file_mut(node)?.change(Change::Length(0));
                    Ok(())
                })?;
                node
            }
            (Err(error), Opening::Existing) => return Err(error),
            (Err(_), Opening::Kept | Opening::Fresh) => {
                let (parent, name) = split(path)?;
                self.change(Touch::Names, |state| state.create(parent, name, Node::File(FileNode::named(name))))?
            }
        };
        self.state().check(run)?;
        Ok(SimulatedFile { disk: self.clone(), run, node, opening })
    }

    /// One operation of whoever runs now.
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
