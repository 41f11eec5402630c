//! Content of the simulated disk: files and directories, each with its visible state, its durable state, and the
//! changes between them. Two rules hold after a loss. A sector has its content at the last sync or after any later
//! write. A name exists or not as at the last sync or after any later change.

use std::collections::BTreeMap;
use std::ops::Range;

use super::rng::Rng;

/// Unit that a disk writes atomically.
pub(super) const SECTOR: usize = 512;

/// Extent of a loss of unsynced data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Loss {
    /// No loss: the process was killed, and the system kept its page cache.
    Nothing,
    /// All unsynced data.
    Everything,
    /// Each sector and each name at random, regardless of the order of the writes.
    Some,
}

/// A change of a file.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    /// Returns the number of bytes written by the change.
    pub(super) const fn length(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Length(_) => 0,
        }
    }

    /// Returns the same write at another place.
    pub(super) fn moved(self, by: usize) -> Self {
        match self {
            Self::Write { offset, bytes } => Self::Write { offset: offset + by, bytes },
            length @ Self::Length(_) => length,
        }
    }

    /// Returns the write with only `part` of its bytes, up to the end of a sector.
    pub(super) fn cut(mut self, part: usize) -> Self {
        if let Self::Write { offset, bytes } = &mut self
            && part < bytes.len()
        {
            bytes.truncate(((*offset + part) / SECTOR * SECTOR).saturating_sub(*offset));
        }
        self
    }

    fn apply(&self, to: &mut Vec<u8>) {
        self.reach(to);
        if let Self::Write { offset, bytes } = self {
            to[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Extends `of` to its length after the change.
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
    /// Whether the file is a segment of bodies.
    pub(super) is_segment: bool,
    pub(super) last_write: Option<LastWrite>,
}

/// The last write to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct LastWrite {
    /// Number of writes so far, including this one.
    pub(in crate::store) number: u64,
    /// Range of the written bytes.
    pub(in crate::store) range: Range<usize>,
}

impl FileNode {
    /// Creates an empty file of this name.
    pub(super) fn named(name: &str) -> Self {
        Self { is_segment: name.ends_with(".segment"), ..Self::default() }
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        if let Change::Write { offset, bytes } = &change {
            let number = self.last_write.as_ref().map_or(1, |last| last.number + 1);
            self.last_write = Some(LastWrite { number, range: *offset..offset + bytes.len() });
        }
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Makes a random part of the unsynced data durable. The system counts the other pages as written: reads still show
    /// them, and no later sync writes them. Only the length is still to be written.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable = self.survivors(rng);
        self.unsynced = vec![Change::Length(self.bytes.len())];
    }

    /// Applies a power loss.
    pub(super) fn lose(&mut self, loss: Loss, rng: &mut Rng) {
        match loss {
            Loss::Nothing => return,
            Loss::Everything => {}
            Loss::Some => self.durable = self.survivors(rng),
        }
        self.bytes.clone_from(&self.durable);
        self.unsynced.clear();
    }

    fn survivors(&self, rng: &mut Rng) -> Vec<u8> {
        let (mut survivors, mut seen) = (self.durable.clone(), self.durable.clone());
        let lengths_kept = rng.below(self.unsynced.len() as u64 + 1);
        let odds = [1, 4, 7][rng.index(3)];
        for (number, change) in (0..).zip(&self.unsynced) {
            change.apply(&mut seen);
            if number < lengths_kept {
                change.reach(&mut survivors);
            }
            let Change::Write { offset, bytes } = change else { continue };
            let is_torn = rng.below(3) == 0;
            let is_kept = rng.below(8) < odds;
            let end = (offset + bytes.len()).next_multiple_of(SECTOR).min(survivors.len()).min(seen.len());
            let mut sector = offset / SECTOR * SECTOR;
            while sector < end {
                let next = (sector + SECTOR).min(end);
                if if is_torn { rng.below(8) < odds } else { is_kept } {
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

    /// Makes some names durable. The others are still to be written, because they are in the file system's own journal.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        let written = rng.index(self.unsynced.len() + 1);
        for naming in self.unsynced.drain(..written) {
            naming.apply(&mut self.durable);
        }
    }

    /// Applies a power loss.
    pub(super) fn lose(&mut self, loss: Loss, rng: &mut Rng) {
        if loss == Loss::Nothing {
            return;
        }
        for naming in self.unsynced.drain(..) {
            if loss == Loss::Some && rng.coin() {
                naming.apply(&mut self.durable);
            }
        }
        self.names.clone_from(&self.durable);
    }
}

/// A file or a directory.
#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}
