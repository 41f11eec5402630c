//! The disk as the store sees it: the few things that it does with files, behind one trait.
//!
//! [`FileSystem`] is the real one. Stories of crashes run the same store on a simulated one, which forgets, tears and
//! reorders what was not synced and fails at any operation: what the database, the bodies and their keys promise
//! together can only be broken at one instant of one disk. Nothing in here knows what the store keeps.

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
pub(in crate::store) enum Opening {
    /// To be read; it must be there.
    Existing,
    /// To be read and written; made where it is missing, for its owner alone.
    Kept,
    /// To be read and written; made where it is missing, emptied where it is there.
    Fresh,
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Entry {
    /// The name; one that is no UTF-8 is none of the store's, and is left out.
    pub(in crate::store) name: String,
    /// A file's length in bytes; none for anything else.
    pub(in crate::store) length: Option<u64>,
}

/// Where a store keeps its files. Names are durable once their directory is synced, bytes once their file is.
pub(in crate::store) trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, opening: Opening) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a database as `builder` would, and locks it. A new one is its owner's alone.
    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError>;

    /// Whether there is a file or a directory of that name.
    fn exists(&self, path: &Path) -> bool;

    /// Lists a directory, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Makes a directory, with those above it where they are missing, for its owner alone. One that is there stays.
    fn create_directory(&self, directory: &Path) -> io::Result<()>;

    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it.
    fn remove_directory(&self, directory: &Path) -> io::Result<()>;

    /// Gives a file another name in its directory, in place of the file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Implements [`Disk::sync_directory`], with the error as the device reports it.
    fn flush_directory(&self, directory: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.flush_directory(directory).map_err(unsynced)
    }

    /// Returns the free space on the device of `directory`, in bytes.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;

    /// The whole of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Opening::Existing)?;
        let mut bytes = vec![0; usize::try_from(file.length()?).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// An open file. Every method may be called from any thread.
pub(in crate::store) trait DiskFile: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file off, or makes it longer by zeros that take no room.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Sees to it that the file is `length` bytes long at least, and that what is written there finds room.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Implements [`DiskFile::sync_data`], with the error as the device reports it.
    fn flush(&self) -> io::Result<()>;

    /// Makes durable what was written, and the length. After a failure nobody knows what is on the disk.
    fn sync_data(&self) -> io::Result<()> {
        self.flush().map_err(unsynced)
    }
}

/// A failed sync never looks like a full disk, from which a store recovers: file systems that allocate late report
/// ENOSPC and EDQUOT there, when what was written is lost already.
fn unsynced(error: io::Error) -> io::Error {
    io::Error::other(format!("the sync failed: {error}"))
}
