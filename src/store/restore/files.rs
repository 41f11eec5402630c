//! Files of a data directory that is being built.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{CONTENT, RestoreError};
use crate::store::content::segment;
use crate::store::disk::{Disk, DiskFile, OpenMode};

/// Syncs the names in `directory` and in its directories.
pub(super) fn sync_below(disk: &dyn Disk, directory: &Path) -> Result<(), RestoreError> {
    for entry in disk.list(directory).map_err(|error| unwritten(directory, error))? {
        if entry.length.is_none() {
            segment::sync_directory(disk, &directory.join(entry.name))?;
        }
    }
    Ok(segment::sync_directory(disk, directory)?)
}

/// Syncs a finished file.
pub(super) fn close(file: Option<&dyn DiskFile>) -> Result<(), RestoreError> {
    let Some(file) = file else { return Ok(()) };
    file.sync_data().map_err(|error| unwritten(Path::new(CONTENT), error))
}

/// Creates a directory that does not exist yet.
pub(super) fn make_directory(disk: &dyn Disk, path: &Path) -> Result<(), RestoreError> {
    refuse_existing(disk, path)?;
    disk.create_directory(path).map_err(|error| unwritten(path, error))
}

/// Creates a file that does not exist yet.
pub(super) fn create_new(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, RestoreError> {
    refuse_existing(disk, path)?;
    disk.open(path, OpenMode::Fresh).map_err(|error| unwritten(path, error))
}

/// Creates a file with this content, and syncs it.
pub(super) fn write_new(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), RestoreError> {
    let file = create_new(disk, path)?;
    file.write_all_at(bytes, 0).and_then(|()| file.sync_data()).map_err(|error| unwritten(path, error))
}

fn refuse_existing(disk: &dyn Disk, path: &Path) -> Result<(), RestoreError> {
    if disk.exists(path) { Err(unwritten(path, io::ErrorKind::AlreadyExists.into())) } else { Ok(()) }
}

pub(super) fn unwritten(path: &Path, error: io::Error) -> RestoreError {
    RestoreError::Io { path: path.to_owned(), error }
}
