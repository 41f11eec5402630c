//! The real disk: files of the operating system. Simulations and tests use another one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database, DatabaseError, StorageError};
use rustix::fs::{FallocateFlags, fallocate};

use super::{Disk, DiskFile, Entry, OpenMode};
use crate::store::private_file;

const DIRECTORY_MODE: u32 = 0o700;

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct FileSystem;

impl Disk for FileSystem {
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        if opening != OpenMode::Existing {
            options.write(true).create(true).truncate(opening == OpenMode::Fresh).mode(private_file::MODE);
        }
        Ok(Arc::new(private_file::open(&mut options, path)?))
    }

    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError> {
        // The database opens the file itself, and would wait for the other end of a pipe.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(StorageError::Io(private_file::not_regular()).into());
        }
        let database = builder.create(path)?;
        private_file::restrict(path).map_err(StorageError::from)?;
        Ok(database)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Skip an entry that was removed in the meantime.
            let Ok(metadata) = entry.metadata() else { continue };
            entries.push(Entry { name, length: metadata.is_file().then_some(metadata.len()) });
        }
        Ok(entries)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir_all(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn flush_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        // On systems other than Linux this sets the length, and would truncate a longer file.
        if cfg!(not(target_os = "linux")) && self.metadata()?.len() >= length {
            return Ok(());
        }
        Ok(fallocate(self, FallocateFlags::empty(), 0, length)?)
    }

    fn flush(&self) -> io::Result<()> {
        Self::sync_data(self)
    }
}
