//! What stands on the simulated disk: files and directories, each as the running system sees it, as it is durable, and
//! what is between the two. The law: a sector holds, after a loss, what it held at the last sync or after any write
//! since; a name is there or not, as it was at the last sync or after any change since.

use std::collections::BTreeMap;

use super::chance::Chance;

/// What a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;

/// How much of what was not synced is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Loss {
    /// Nothing: the process was killed, and the system went on.
    Nothing,
    /// All of it.
    Everything,
    /// Each sector and each name by chance, whatever the order in which they were written.
    Some,
}

/// A change of a file.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        self.reach(to);
        if let Self::Write { offset, bytes } = self {
            to[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Makes `of` as long as it is after the change.
    fn reach(&self, of: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => of.resize(of.len().max(offset + bytes.len()), 0),
            Self::Length(length) => of.resize(*length, 0),
        }
    }
}

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<Change>,
    /// Whether a sync failed: what is seen is not what is durable, and no later sync makes it so.
    is_doubtful: bool,
}

impl FileNode {
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Some of what was not synced is durable now, nobody knows what, and no later sync makes up for the rest.
    pub(super) fn fail_sync(&mut self, chance: &mut Chance) {
        self.durable = self.survivors(chance);
        self.unsynced.clear();
        self.is_doubtful = true;
    }

    /// Another process begins. What a failed sync left in the system's memory alone, it does not find: nobody could
    /// tell that from what is durable.
    pub(super) fn restart(&mut self) {
        if std::mem::take(&mut self.is_doubtful) {
            self.bytes.clone_from(&self.durable);
            self.unsynced.clear();
        }
    }

    /// The machine went off.
    pub(super) fn lose(&mut self, loss: Loss, chance: &mut Chance) {
        match loss {
            // Not even what a failed sync kept from the disk: the system has it still.
            Loss::Nothing => return,
            Loss::Everything => {}
            Loss::Some => self.durable = self.survivors(chance),
        }
        self.bytes.clone_from(&self.durable);
        self.unsynced.clear();
    }

    fn survivors(&self, chance: &mut Chance) -> Vec<u8> {
        let (mut survivors, mut seen) = (self.durable.clone(), self.durable.clone());
        let lengths_kept = chance.below(self.unsynced.len() as u64 + 1);
        let odds = [1, 4, 7][chance.index(3)];
        for (number, change) in (0..).zip(&self.unsynced) {
            change.apply(&mut seen);
            if number < lengths_kept {
                change.reach(&mut survivors);
            }
            let Change::Write { offset, bytes } = change else { continue };
            let is_torn = chance.below(3) == 0;
            let is_kept = chance.below(8) < odds;
            let end = (offset + bytes.len()).next_multiple_of(SECTOR).min(survivors.len()).min(seen.len());
            let mut sector = offset / SECTOR * SECTOR;
            while sector < end {
                let next = (sector + SECTOR).min(end);
                if if is_torn { chance.below(8) < odds } else { is_kept } {
                    survivors[sector..next].copy_from_slice(&seen[sector..next]);
                }
                sector = next;
            }
        }
        survivors
    }
}

/// A change of a directory.
#[derive(Debug, Clone)]
pub(super) enum Naming {
    Link { name: String, node: usize },
    Unlink { name: String },
    Rename { from: String, to: String, node: usize },
}

impl Naming {
    fn apply(&self, to: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link { name, node } => drop(to.insert(name.clone(), *node)),
            Self::Unlink { name } => drop(to.remove(name)),
            Self::Rename { from, to: name, node } => {
                to.remove(from);
                to.insert(name.clone(), *node);
            }
        }
    }
}

/// A directory.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryNode {
    pub(super) names: BTreeMap<String, usize>,
    pub(super) durable: BTreeMap<String, usize>,
    pub(super) unsynced: Vec<Naming>,
    is_doubtful: bool,
}

impl DirectoryNode {
    pub(super) fn change(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.unsynced.push(naming);
    }

    pub(super) fn sync(&mut self) {
        for naming in self.unsynced.drain(..) {
            naming.apply(&mut self.durable);
        }
    }

    pub(super) fn fail_sync(&mut self, chance: &mut Chance) {
        for naming in self.unsynced.drain(..) {
            if chance.coin() {
                naming.apply(&mut self.durable);
            }
        }
        self.is_doubtful = true;
    }

    /// As with a file.
    pub(super) fn restart(&mut self) {
        if std::mem::take(&mut self.is_doubtful) {
            self.names.clone_from(&self.durable);
            self.unsynced.clear();
        }
    }

    /// The machine went off.
    pub(super) fn lose(&mut self, loss: Loss, chance: &mut Chance) {
        if loss == Loss::Nothing {
            return;
        }
        for naming in self.unsynced.drain(..) {
            if loss == Loss::Some && chance.coin() {
                naming.apply(&mut self.durable);
            }
        }
        self.names.clone_from(&self.durable);
    }
}

/// Either.
#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}
