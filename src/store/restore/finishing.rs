//! The end of building a data directory: a copy is marked, everything is synced and moved to its place.

use std::io;
use std::path::Path;

use super::files::{close, sync_below, unwritten};
use super::{CONTENT, DirectoryBuilder, Lineage, RestoreError};
use crate::base::id::Ulid;
use crate::store::archive::Head;
use crate::store::content::segment;
use crate::store::disk::{Disk, Entry};
use crate::store::error::StoreError;
use crate::store::master_key;
use crate::store::open::FILE;
use crate::store::replica::FORK;
use crate::store::restore_hold::TimersOnHold;
use crate::store::row::Row as _;
use crate::store::row::restored::{HoldCause, RestoreOrigin};
use crate::store::schema::{Table, meta};

impl DirectoryBuilder {
    /// Marks a copy, syncs everything, and moves it to its place.
    pub(super) fn finish(mut self, head: &Head, lineage: Lineage) -> Result<TimersOnHold, RestoreError> {
        close(self.segment.take().as_ref().map(|(_, file, _)| &**file))?;
        if let Lineage::Fork { holds_queue } = lineage {
            self.mark_fork(head, holds_queue)?;
        }
        self.complete()
    }

    fn mark_fork(&mut self, head: &Head, holds_queue: bool) -> Result<(), RestoreError> {
        self.write_beside(FORK, b"")?;
        let last = |key| self.facts.get(key).and_then(|bytes| bytes.as_slice().try_into().ok()).map(Ulid);
        let restored = RestoreOrigin {
            backup_at: head.taken_at,
            has_content: head.has_content,
            last_message: last(meta::LAST_MESSAGE_ID).unwrap_or_default(),
            last_id: last(meta::LAST_ID).unwrap_or_default(),
            is_on_hold: holds_queue,
            cause: HoldCause::Restored,
        };
        let stored = self.values().stored(Table::Meta.name(), meta::RESTORED, &restored.encode());
        self.insert(Table::Meta.name(), &[(meta::RESTORED.to_vec(), stored)])
    }

    fn complete(mut self) -> Result<TimersOnHold, RestoreError> {
        if let Some((transaction, _)) = self.inserting.take() {
            transaction.commit().map_err(StoreError::from)?;
        }
        self.database = None;
        if let Some(key) = &self.given {
            // Check again: the first check may have had no proof to compare with.
            self.prove(key)?;
            master_key::write(&*self.disk, &self.aside.join(master_key::FILE), &self.aside, key)
                .map_err(|error| unwritten(&self.aside, io::Error::other(error)))?;
        }
        move_up(&*self.disk, &self.aside, &self.directory, &mut self.moved)?;
        self.is_finished = true;
        Ok(self.on_hold)
    }

    /// Removes an unfinished restore: the database first and the temporary directory last, so that a crash leaves
    /// nothing that is taken for a store.
    pub(super) fn remove(&self) -> io::Result<()> {
        for entry in self.moved.iter().rev() {
            let path = self.directory.join(&entry.name);
            if entry.length.is_some() {
                self.disk.remove_file(&path)?
            } else {
                self.disk.remove_directory(&path)?
            }
            if entry.name == FILE {
                self.disk.sync_directory(&self.directory)?;
            }
        }
        if self.disk.exists(&self.aside) { self.disk.remove_directory(&self.aside) } else { Ok(()) }
    }
}

/// Moves the files of a store from `aside` to `directory`, the database last: without it the directory does not count
/// as a store. `moved` gets each moved entry.
pub(super) fn move_up(
    disk: &dyn Disk,
    aside: &Path,
    directory: &Path,
    moved: &mut Vec<Entry>,
) -> Result<(), RestoreError> {
    sync_below(disk, &aside.join(CONTENT))?;
    let io = |error| unwritten(aside, error);
    let mut entries = disk.list(aside).map_err(io)?;
    entries.sort_by_key(|entry| entry.name == FILE);
    for entry in entries {
        disk.rename(&aside.join(&entry.name), &directory.join(&entry.name)).map_err(io)?;
        moved.push(entry);
    }
    segment::sync_directory(disk, directory)?;
    disk.remove_directory(aside).map_err(io)?;
    Ok(segment::sync_directory(disk, directory)?)
}
