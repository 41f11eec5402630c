//! The state of the simulated disk, and the one place where its operations are counted and go wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::path::{Component, Path, PathBuf};

use super::chance::Chance;
use super::node::{Change, DirectoryNode, FileNode, Loss, Naming, Node};
use super::{Fault, Honesty};

/// What an operation does to the disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch {
    /// It writes to a file, which may take room.
    Room { node: usize },
    /// It makes or changes a name, which may take room.
    Names,
    /// It removes a name.
    Unlink,
    /// It makes a file or a directory durable.
    Sync { node: usize },
}

/// The disk.
pub(super) struct State {
    /// Files and directories; the first is the root.
    pub(super) nodes: Vec<Node>,
    pub(super) operations: u64,
    pub(super) trace: u64,
    pub(super) faults: BTreeMap<u64, Fault>,
    /// Which process has the disk: what an earlier one opened is closed.
    pub(super) run: u64,
    pub(super) is_off: bool,
    /// Until which operation there is no room.
    full_until: u64,
    chance: Chance,
    honesty: Honesty,
}

pub(super) fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl State {
    pub(super) fn new(seed: u64, honesty: Honesty) -> Self {
        Self::of(vec![Node::Directory(DirectoryNode::default())], seed, honesty)
    }

    pub(super) fn copy(&self, seed: u64, honesty: Honesty) -> Self {
        Self::of(self.nodes.clone(), seed, honesty)
    }

    const fn of(nodes: Vec<Node>, seed: u64, honesty: Honesty) -> Self {
        Self {
            nodes,
            operations: 0,
            trace: 0,
            faults: BTreeMap::new(),
            run: 0,
            is_off: false,
            full_until: 0,
            chance: Chance::new(seed),
            honesty,
        }
    }

    /// Whether a process of `run` still has the disk.
    pub(super) fn check(&self, run: u64) -> io::Result<()> {
        if self.is_off || run != self.run { Err(io::Error::other("the machine is off")) } else { Ok(()) }
    }

    /// Counts one operation, and does it, or what was planned for it.
    pub(super) fn perform<T>(
        &mut self,
        run: u64,
        touch: Touch,
        act: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        self.check(run)?;
        self.operations += 1;
        self.note(touch);
        match self.faults.remove(&self.operations) {
            None if self.operations < self.full_until && touch.takes_room() => Err(io::ErrorKind::StorageFull.into()),
            None => act(self),
            Some(Fault::Off(loss)) => {
                if !matches!(touch, Touch::Sync { .. }) && self.chance.coin() {
                    drop(act(self));
                }
                self.turn_off(loss);
                Err(io::Error::other("the machine went off"))
            }
            Some(Fault::Error) => {
                match touch {
                    Touch::Sync { node } => self.fail_sync(node),
                    // Some of it may have been done.
                    Touch::Room { .. } if self.chance.coin() => drop(act(self)),
                    Touch::Room { .. } | Touch::Names | Touch::Unlink => {}
                }
                Err(io::Error::other("an error of the device"))
            }
            Some(Fault::Full(more)) if touch.takes_room() => {
                self.full_until = self.operations + 1 + more;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(Fault::Full(more)) => {
                self.full_until = self.operations + 1 + more;
                act(self)
            }
        }
    }

    fn note(&mut self, touch: Touch) {
        let of = match touch {
            Touch::Room { node } => 4 * node as u64,
            Touch::Names => 1,
            Touch::Unlink => 2,
            Touch::Sync { node } => 4 * node as u64 + 3,
        };
        self.trace = Chance::new(self.trace ^ of).next();
    }

    fn fail_sync(&mut self, node: usize) {
        match &mut self.nodes[node] {
            Node::File(file) => file.fail_sync(&mut self.chance),
            Node::Directory(directory) => directory.fail_sync(&mut self.chance),
        }
    }

    pub(super) fn sync(&mut self, node: usize) -> io::Result<()> {
        match (&mut self.nodes[node], self.honesty) {
            (_, Honesty::SyncsNothing) => {}
            (Node::File(file), Honesty::Honest) => file.sync(),
            (Node::Directory(directory), Honesty::Honest) => directory.sync(),
        }
        Ok(())
    }

    pub(super) fn turn_off(&mut self, loss: Loss) {
        self.is_off = true;
        for node in &mut self.nodes {
            match node {
                Node::File(file) => file.lose(loss, &mut self.chance),
                Node::Directory(directory) => directory.lose(loss, &mut self.chance),
            }
        }
    }

    pub(super) fn restart(&mut self) {
        self.is_off = false;
        self.run += 1;
        for node in &mut self.nodes {
            match node {
                Node::File(file) => file.restart(),
                Node::Directory(directory) => directory.restart(),
            }
        }
        self.forgive();
    }

    pub(super) fn forgive(&mut self) {
        self.full_until = 0;
        self.faults.clear();
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
    const fn takes_room(self) -> bool {
        match self {
            Self::Room { .. } | Self::Names => true,
            Self::Unlink | Self::Sync { .. } => false,
        }
    }
}
