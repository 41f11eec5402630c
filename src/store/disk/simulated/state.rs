//! State of the simulated disk, and the only place where its operations are counted and fail.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::path::{Component, Path, PathBuf};

use super::node::{Change, DirectoryNode, FileNode, Loss, Naming, Node, SECTOR};
use super::rng::Rng;
use super::{Fault, FsyncMode};

/// Effect of an operation on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch {
    /// Writes this number of bytes to a file, which may need space.
    Room { node: usize, length: usize },
    /// Creates or changes a name, which may need space.
    Names,
    /// Removes a name.
    Unlink,
    /// Syncs a file or a directory.
    Sync { node: usize },
}

/// The disk.
pub(super) struct State {
    /// Files and directories; the first is the root.
    pub(super) nodes: Vec<Node>,
    pub(super) operations: u64,
    pub(super) trace: u64,
    pub(super) faults: BTreeMap<u64, Fault>,
    pub(super) reads: u64,
    pub(super) read_errors: BTreeSet<u64>,
    /// Whether a file differs from the data written to it.
    pub(super) is_damaged: bool,
    /// Distance by which the current write is misdirected.
    pub(super) misdirected_by: usize,
    /// Number of failed syncs since the last restart.
    pub(super) failed_syncs: u64,
    /// Number of the current process. Files that an earlier one opened are closed.
    pub(super) run: u64,
    pub(super) is_off: bool,
    /// Whether planned faults are suspended.
    pub(super) is_quiet: bool,
    /// Free space that the disk reports.
    pub(super) free_bytes: u64,
    /// Number of the operation until which the disk is full.
    full_until: u64,
    rng: Rng,
    fsync_mode: FsyncMode,
}

pub(super) fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl State {
    pub(super) fn new(seed: u64, fsync_mode: FsyncMode) -> Self {
        Self::of(vec![Node::Directory(DirectoryNode::default())], seed, fsync_mode)
    }

    pub(super) fn copy(&self, seed: u64, fsync_mode: FsyncMode) -> Self {
        Self::of(self.nodes.clone(), seed, fsync_mode)
    }

    const fn of(nodes: Vec<Node>, seed: u64, fsync_mode: FsyncMode) -> Self {
        Self {
            nodes,
            operations: 0,
            trace: 0,
            faults: BTreeMap::new(),
            reads: 0,
            read_errors: BTreeSet::new(),
            is_damaged: false,
            misdirected_by: 0,
            failed_syncs: 0,
            run: 0,
            is_off: false,
            is_quiet: false,
            free_bytes: 64 << 20,
            full_until: 0,
            rng: Rng::new(seed),
            fsync_mode,
        }
    }

    /// Checks that the process of `run` still has the disk.
    pub(super) fn check(&self, run: u64) -> io::Result<()> {
        if self.is_off || run != self.run { Err(io::Error::other("the machine is off")) } else { Ok(()) }
    }

    /// Counts one read, which fails if that was planned.
    pub(super) fn read(&mut self, run: u64) -> io::Result<()> {
        self.check(run)?;
        if self.is_quiet {
            return Ok(());
        }
        self.reads += 1;
        if self.read_errors.remove(&self.reads) { Err(io::Error::other("a sector can't be read")) } else { Ok(()) }
    }

    /// Counts one operation, and performs it or its planned fault. `act` gets the length of the write to perform.
    pub(super) fn perform<T>(
        &mut self,
        run: u64,
        touch: Touch,
        act: impl FnOnce(&mut Self, usize) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check(run)?;
        if self.is_quiet {
            return act(self, touch.length());
        }
        self.operations += 1;
        self.note(touch);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let length = touch.length();
        match self.faults.remove(&self.operations) {
            None if self.operations < self.full_until && touch.needs_space() => Err(full()),
            None => act(self, length),
            Some(Fault::Off(loss)) => {
                if !matches!(touch, Touch::Sync { .. }) && self.rng.coin() {
                    drop(act(self, length));
                }
                self.turn_off(loss);
                Err(io::Error::other("the machine went off"))
            }
            Some(Fault::Error) => {
                self.fail(touch, act);
                Err(io::Error::other("an error of the device"))
            }
            Some(Fault::FullAtSync) if matches!(touch, Touch::Sync { .. }) => {
                self.fail(touch, act);
                Err(full())
            }
            Some(Fault::Misdirected) if length > 0 && self.is_segment(touch) => {
                self.is_damaged = true;
                self.misdirected_by = SECTOR * (1 + self.rng.index(4));
                let done = act(self, length);
                self.misdirected_by = 0;
                done
            }
            Some(Fault::Misdirected) => {
                self.faults.insert(self.operations + 1, Fault::Misdirected);
                act(self, length)
            }
            Some(Fault::FullAtSync) => {
                self.faults.insert(self.operations + 1, Fault::FullAtSync);
                act(self, length)
            }
            Some(Fault::Full(more)) => {
                self.full_until = self.operations + 1 + more;
                if !touch.needs_space() {
                    return act(self, length);
                }
                self.fail(touch, act);
                Err(full())
            }
        }
    }

    /// Performs a random part of an operation that fails.
    fn fail<T>(&mut self, touch: Touch, act: impl FnOnce(&mut Self, usize) -> io::Result<T>) {
        match touch {
            Touch::Sync { node } => {
                self.failed_syncs += 1;
                match &mut self.nodes[node] {
                    Node::File(file) => file.fail_sync(&mut self.rng),
                    Node::Directory(directory) => directory.fail_sync(&mut self.rng),
                }
            }
            Touch::Room { length, .. } if self.rng.coin() => {
                let part = self.part(length);
                drop(act(self, part));
            }
            Touch::Room { .. } | Touch::Names | Touch::Unlink => {}
        }
    }

    fn is_segment(&self, touch: Touch) -> bool {
        let Touch::Room { node, .. } = touch else { return false };
        matches!(&self.nodes[node], Node::File(file) if file.is_segment)
    }

    /// Returns the length of the part of an interrupted write that is done.
    fn part(&mut self, length: usize) -> usize {
        self.rng.index(length + 1)
    }

    /// Flips a bit of one of the files whose path `is_meant`, in every state of the file.
    pub(super) fn rot(&mut self, is_meant: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let mut files = Vec::new();
        let mut waiting = vec![(PathBuf::from("/"), 0)];
        while let Some((path, node)) = waiting.pop() {
            match &self.nodes[node] {
                Node::File(file) if is_meant(&path) && !file.bytes.is_empty() => files.push((path, node)),
                Node::File(_) => {}
                Node::Directory(directory) => {
                    waiting.extend(directory.names.iter().map(|(name, node)| (path.join(name), *node)));
                }
            }
        }
        if files.is_empty() {
            return None;
        }
        let (path, node) = files.swap_remove(self.rng.index(files.len()));
        let Ok(FileNode { bytes, durable, .. }) = self.file_mut(node) else { return None };
        let (mut bytes, mut durable) = (std::mem::take(bytes), std::mem::take(durable));
        let (at, bit) = (self.rng.index(bytes.len()), 1 << self.rng.below(8));
        [&mut bytes, &mut durable].into_iter().filter_map(|of| of.get_mut(at)).for_each(|byte| *byte ^= bit);
        let file = self.file_mut(node).ok()?;
        (file.bytes, file.durable) = (bytes, durable);
        self.is_damaged = true;
        Some(path)
    }

    /// Changes the content of a file, on the disk and in the page cache.
    pub(super) fn damage(&mut self, path: &Path, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let node = self.find(path)?;
        let FileNode { bytes: seen, durable, .. } = self.file_mut(node)?;
        for of in [seen, durable] {
            let end = (offset + bytes.len()).min(of.len());
            if let Some(there) = of.get_mut(offset..end) {
                there.copy_from_slice(&bytes[..end - offset]);
            }
        }
        self.is_damaged = true;
        Ok(())
    }

    fn note(&mut self, touch: Touch) {
        let of = match touch {
            Touch::Room { node, .. } => 4 * node as u64,
            Touch::Names => 1,
            Touch::Unlink => 2,
            Touch::Sync { node } => 4 * node as u64 + 3,
        };
        self.trace = Rng::new(self.trace ^ of).next();
    }

    pub(super) fn sync(&mut self, node: usize) -> io::Result<()> {
        match (&mut self.nodes[node], self.fsync_mode) {
            (_, FsyncMode::Ignored) => {}
            (Node::File(file), FsyncMode::Honored) => file.sync(),
            (Node::Directory(directory), FsyncMode::Honored) => directory.sync(),
        }
        Ok(())
    }

    pub(super) fn turn_off(&mut self, loss: Loss) {
        self.is_off = true;
        for node in &mut self.nodes {
            match node {
                Node::File(file) => file.lose(loss, &mut self.rng),
                Node::Directory(directory) => directory.lose(loss, &mut self.rng),
            }
        }
    }

    pub(super) fn restart(&mut self) {
        self.is_off = false;
        self.run += 1;
        self.failed_syncs = 0;
        self.forgive();
    }

    pub(super) fn forgive(&mut self) {
        self.full_until = 0;
        self.faults.clear();
        self.read_errors.clear();
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        let mut node = 0;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let name = name.to_str().ok_or_else(not_found)?;
            node = *self.directory(node)?.names.get(name).ok_or_else(not_found)?;
        }
        Ok(node)
    }

    pub(super) fn create(&mut self, parent: &Path, name: &str, node: Node) -> io::Result<usize> {
        let parent = self.find(parent)?;
        let made = self.nodes.len();
        self.directory_mut(parent)?.change(Naming::Link { name: name.to_owned(), node: made });
        self.nodes.push(node);
        Ok(made)
    }

    pub(super) fn directory(&self, node: usize) -> io::Result<&DirectoryNode> {
        match &self.nodes[node] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn directory_mut(&mut self, node: usize) -> io::Result<&mut DirectoryNode> {
        match &mut self.nodes[node] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file_mut(&mut self, node: usize) -> io::Result<&mut FileNode> {
        match &mut self.nodes[node] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut waiting = vec![(PathBuf::from("/"), 0)];
        while let Some((path, node)) = waiting.pop() {
            match &self.nodes[node] {
                Node::File(file) => {
                    let on_their_way = file.unsynced.iter().filter_map(|change| match change {
                        Change::Write { bytes, .. } => Some(bytes.clone()),
                        Change::Length(_) => None,
                    });
                    let durable = (file.durable != file.bytes).then(|| file.durable.clone());
                    let all = iter::once(file.bytes.clone()).chain(durable).chain(on_their_way);
                    found.extend(all.map(|bytes| (path.clone(), bytes)));
                }
                Node::Directory(directory) => {
                    let names: BTreeSet<_> = directory.names.iter().chain(&directory.durable).collect();
                    waiting.extend(names.into_iter().map(|(name, node)| (path.join(name), *node)));
                }
            }
        }
        found
    }
}

impl Touch {
    /// Returns the number of bytes written by the operation.
    const fn length(self) -> usize {
        match self {
            Self::Room { length, .. } => length,
            Self::Names | Self::Unlink | Self::Sync { .. } => 0,
        }
    }

    const fn needs_space(self) -> bool {
        match self {
            Self::Room { .. } | Self::Names => true,
            Self::Unlink | Self::Sync { .. } => false,
        }
    }
}
