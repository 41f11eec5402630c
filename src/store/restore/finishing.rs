//! The end of building a data directory: a copy is marked, everything is synced and moved to its place.

use std::fs;
use std::io;

use super::files::{close, sync_below, unwritten};
use super::{Building, CONTENT, Lineage, RestoreError};
use crate::base::id::Ulid;
use crate::store::archive::Head;
use crate::store::checksum;
use crate::store::content::segment;
use crate::store::disk::FileSystem;
use crate::store::error::StoreError;
use crate::store::master_key;
use crate::store::open::FILE;
use crate::store::replica::FORK;
use crate::store::restore_hold::TimersOnHold;
use crate::store::row::Row as _;
use crate::store::row::restored::{HoldCause, Restored};
use crate::store::schema::{Table, meta};

impl Building {
    /// Marks a copy, syncs everything, and moves it to its place.
    pub(super) fn finish(mut self, head: &Head, lineage: Lineage) -> Result<TimersOnHold, RestoreError> {
        close(self.segment.take().as_ref().map(|(_, file, _)| file))?;
        if let Lineage::Fork { holds_queue } = lineage {
            self.mark_fork(head, holds_queue)?;
        }
        self.complete()
    }

    fn mark_fork(&mut self, head: &Head, holds_queue: bool) -> Result<(), RestoreError> {
        self.write_beside(FORK, b"")?;
        let last = |key| self.facts.get(key).and_then(|bytes| bytes.as_slice().try_into().ok()).map(Ulid);
        let restored = Restored {
            backup_at: head.taken_at,
            has_content: head.has_content,
            last_message: last(meta::LAST_MESSAGE_ID).unwrap_or_default(),
            last_id: last(meta::LAST_ID).unwrap_or_default(),
            stands_still: holds_queue,
            cause: HoldCause::Restored,
        };
        let stored = checksum::stored(Table::Meta.name(), meta::RESTORED, &restored.encode());
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
            master_key::write(&FileSystem, &self.aside.join(master_key::FILE), &self.aside, key)
                .map_err(|error| unwritten(&self.aside, io::Error::other(error)))?;
        }
        self.move_up()?;
        self.is_finished = true;
        Ok(self.standing)
    }

    /// Moves the files up, the database last: without it the directory does not count as a store.
    fn move_up(&self) -> Result<(), RestoreError> {
        let io = |error| unwritten(&self.aside, error);
        sync_below(&self.aside.join(CONTENT))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.aside).map_err(io)? {
            names.push(entry.map_err(io)?.file_name());
        }
        names.sort_by_key(|name| name == FILE);
        for name in names {
            fs::rename(self.aside.join(&name), self.directory.join(&name)).map_err(io)?;
        }
        segment::sync_directory(&FileSystem, &self.directory)?;
        fs::remove_dir(&self.aside).map_err(io)?;
        Ok(segment::sync_directory(&FileSystem, &self.directory)?)
    }
}
