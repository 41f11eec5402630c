//! One segment: a file of sealed bodies under one key. Only one process ever appends to it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use zeroize::Zeroizing;

use super::{failed, unsynced};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, OpenMode};
use crate::store::error::StoreError;

/// A segment that this process appends to.
pub(in crate::store) struct Segment {
    /// End of its bucket.
    pub(super) bucket: Timestamp,
    /// Number in the bucket.
    pub(super) number: u32,
    /// Key that seals the segment's bodies.
    pub(super) key: MasterKey,
    /// The key as bytes, until its slot is written.
    pub(super) key_bytes: Zeroizing<[u8; MasterKey::LENGTH]>,
    /// File, once the appender has created it.
    pub(super) file: OnceLock<Arc<dyn DiskFile>>,
    /// Whether a sync has failed.
    is_doubtful: Mutex<bool>,
}

impl Segment {
    pub(super) fn new(bucket: Timestamp, number: u32, key: [u8; MasterKey::LENGTH]) -> Self {
        let key_bytes = Zeroizing::new(key);
        let (file, is_doubtful) = (OnceLock::new(), Mutex::new(false));
        Self { bucket, number, key: MasterKey::new(&key_bytes), key_bytes, file, is_doubtful }
    }

    /// Syncs the bytes written to its file. Appender and writer both call this. The system reports a lost write only
    /// once, so a failure is remembered and returned to every later caller.
    pub(in crate::store) fn sync(&self) -> io::Result<()> {
        let Some(file) = self.file.get() else { return Ok(()) };
        let mut is_doubtful = self.is_doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_doubtful {
            return Err(io::Error::other("an earlier sync failed"));
        }
        file.sync_data().inspect_err(|_| *is_doubtful = true)
    }

    /// Creates the segment's file durably, even while it is empty: a start writes inlined bodies only to an existing
    /// file.
    pub(super) fn create(&self, disk: &dyn Disk, directory: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        // Only this process uses the number; an existing file is left from an earlier try on a full disk.
        make(disk, directory, self.bucket, self.number)
    }
}

/// Creates an empty file for a segment, durable with its directory entry.
pub(super) fn make(
    disk: &dyn Disk,
    directory: &Path,
    bucket: Timestamp,
    number: u32,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    let (path, bucket) = (path(directory, bucket, number), bucket_directory(directory, bucket));
    disk.create_directory(&bucket).map_err(|error| failed("create", &bucket, &error))?;
    sync_directory(disk, directory)?;
    let file = disk.open(&path, OpenMode::Fresh).map_err(|error| failed("create", &path, &error))?;
    file.sync_data().map_err(|error| unsynced(&path, &error))?;
    sync_directory(disk, &bucket)?;
    Ok(file)
}

fn bucket_directory(directory: &Path, bucket: Timestamp) -> PathBuf {
    directory.join(format!("{:013}", bucket.as_millis()))
}

/// Returns the path of a segment's file.
pub(in crate::store) fn path(directory: &Path, bucket: Timestamp, number: u32) -> PathBuf {
    bucket_directory(directory, bucket).join(format!("{number:06}.segment"))
}

/// Returns the greatest number of a segment file in `bucket`.
pub(super) fn greatest_number(disk: &dyn Disk, directory: &Path, bucket: Timestamp) -> Option<u32> {
    let entries = disk.list(&bucket_directory(directory, bucket)).ok()?;
    entries.iter().filter_map(|entry| entry.name.strip_suffix(".segment")?.parse().ok()).max()
}

/// Returns the numbers of the segment files in `bucket` that are not empty.
pub(super) fn with_bodies(disk: &dyn Disk, directory: &Path, bucket: Timestamp) -> Vec<u32> {
    let entries = disk.list(&bucket_directory(directory, bucket)).unwrap_or_default();
    let filled = entries.iter().filter(|entry| entry.length.is_some_and(|length| length > 0));
    filled.filter_map(|entry| entry.name.strip_suffix(".segment")?.parse().ok()).collect()
}

/// Returns the buckets that have a directory.
pub(super) fn buckets(disk: &dyn Disk, directory: &Path) -> Result<BTreeSet<Timestamp>, StoreError> {
    let entries = disk.list(directory).map_err(|error| failed("list", directory, &error))?;
    Ok(entries.iter().filter_map(|entry| entry.name.parse().ok()).map(Timestamp::from_millis).collect())
}

/// Returns the size of everything below `directory` in bytes; unknown sizes count as 0.
pub(super) fn size_bytes(disk: &dyn Disk, directory: &Path) -> u64 {
    let entries = disk.list(directory).unwrap_or_default();
    let size = |entry: crate::store::disk::Entry| match entry.length {
        Some(length) => length,
        None => size_bytes(disk, &directory.join(entry.name)),
    };
    entries.into_iter().map(size).sum()
}

/// Unlinks a bucket's files durably. Does nothing if the bucket does not exist.
pub(super) fn remove_bucket(disk: &dyn Disk, directory: &Path, bucket: Timestamp) -> Result<(), StoreError> {
    let path = bucket_directory(directory, bucket);
    match disk.remove_directory(&path) {
        Ok(()) => sync_directory(disk, directory),
        // The file is unlinked, but perhaps not durably.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sync_directory(disk, directory),
        Err(error) => Err(failed("remove", &path, &error)),
    }
}

/// Syncs the entries of `directory`.
pub(in crate::store) fn sync_directory(disk: &dyn Disk, directory: &Path) -> Result<(), StoreError> {
    disk.sync_directory(directory).map_err(|error| unsynced(directory, &error))
}
