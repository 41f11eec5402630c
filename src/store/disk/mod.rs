//! The disk as used by the store: the few file operations that it needs, behind one trait.
//!
//! [`FileSystem`] is the real one. Crash tests run the same store on a simulated disk, which loses, tears and reorders
//! unsynced data and can fail at any operation. Promises that involve the database, the bodies and their keys together
//! can only be tested on one disk at one instant. This module does not know the content of the store's files.

mod file_system;
#[cfg(test)]
pub(in crate::store) mod simulated;

use std::io;
use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database, DatabaseError};

pub(in crate::store) use file_system::FileSystem;

/// Way in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum OpenMode {
    /// Opens for reading; the file must exist.
    Existing,
    /// Opens for reading and writing. A missing file is created, accessible only to its owner.
    Kept,
    /// Opens for reading and writing. A missing file is created, and an existing one is truncated.
    Fresh,
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Entry {
    /// Name. Names that are not UTF-8 do not belong to the store and are skipped.
    pub(in crate::store) name: String,
    /// A file's length in bytes; `None` for anything else.
    pub(in crate::store) length: Option<u64>,
}

/// Storage for the store's files. Names are durable once their directory is synced, bytes once their file is.
pub(in crate::store) trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a database as `builder` would, and locks it. Only its owner can access a new one.
    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError>;

    /// Returns whether a file or a directory of that name exists.
    fn exists(&self, path: &Path) -> bool;

    /// Lists a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Creates a directory and its missing parents, accessible only to the owner. An existing one is kept.
    fn create_directory(&self, directory: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with its content.
    fn remove_directory(&self, directory: &Path) -> io::Result<()>;

    /// Renames a file, replacing any file of the new name, or a directory. Both names are durable once their
    /// directories are synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Implements [`Disk::sync_directory`], with the error as the device reports it.
    fn flush_directory(&self, directory: &Path) -> io::Result<()>;

    /// Syncs the names in a directory.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.flush_directory(directory).map_err(unsynced)
    }

    /// Returns the free space on the device of `directory`, in bytes.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;

    /// Returns the whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenMode::Existing)?;
        let mut bytes = vec![0; usize::try_from(file.length()?).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// An open file. Every method may be called from any thread.
pub(in crate::store) trait DiskFile: Send + Sync {
    /// Returns the file's length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros that take no space.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Extends the file to at least `length` bytes, and allocates space for writes to them.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Implements [`DiskFile::sync_data`], with the error as the device reports it.
    fn flush(&self) -> io::Result<()>;

    /// Syncs the written bytes and the length. After a failure the state of the disk is unknown.
    fn sync_data(&self) -> io::Result<()> {
        self.flush().map_err(unsynced)
    }
}

/// Makes sure that a failed sync never looks like a full disk, from which a store recovers. File systems that allocate
/// late report ENOSPC and EDQUOT at the sync, when written data is already lost.
fn unsynced(error: io::Error) -> io::Error {
    io::Error::other(format!("the sync failed: {error}"))
}
