//! The directory in which a store is restored from a replica, inside the data directory. It has the name that marks an
//! unfinished restore. So a restore that is killed while it applies the log leaves no directory that looks whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{make_directory, unwritten};
use super::finishing::move_up;
use super::{ASIDE, RestoreError};
use crate::store::content::segment;
use crate::store::disk::Disk;
use crate::store::replica::ReplicaDisk;

/// A directory for a store that is being restored. Dropping it removes the directory.
pub struct StagedRestore {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    /// Whether files are in the data directory, so that the directory must stay as the mark.
    is_moving: bool,
}

impl StagedRestore {
    /// Creates the directory inside the data directory `data`. An earlier one is removed.
    ///
    /// # Errors
    /// File system errors.
    pub fn begin(disk: &ReplicaDisk, data: &Path) -> Result<Self, RestoreError> {
        let staged = Self { disk: Arc::clone(&disk.0), data: data.to_owned(), is_moving: false };
        staged.remove();
        make_directory(&*staged.disk, &staged.path())?;
        segment::sync_directory(&*staged.disk, data)?;
        Ok(staged)
    }

    /// Returns the directory.
    pub fn path(&self) -> PathBuf {
        self.data.join(ASIDE)
    }

    /// Moves the finished store, which is closed, to the data directory.
    ///
    /// # Errors
    /// File system errors. The data directory then counts as an unfinished restore.
    pub fn install(mut self) -> Result<(), RestoreError> {
        self.is_moving = true;
        let entries = self.disk.list(&self.path()).map_err(|error| unwritten(&self.path(), error))?;
        for directory in entries.into_iter().filter(|entry| entry.length.is_none()) {
            segment::sync_directory(&*self.disk, &self.path().join(directory.name))?;
        }
        move_up(&*self.disk, &self.path(), &self.data, &mut Vec::new())
    }

    fn remove(&self) {
        if self.disk.exists(&self.path())
            && let Err(error) = self.disk.remove_directory(&self.path())
        {
            tracing::warn!(
                %error,
                directory = %self.path().display(),
                "could not remove the unfinished restore; it stays in the directory"
            );
        }
    }
}

impl Drop for StagedRestore {
    fn drop(&mut self) {
        if !self.is_moving {
            self.remove();
        }
    }
}
