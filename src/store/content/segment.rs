//! One segment: a file of sealed bodies, one after the other, under one key. Appended to by one process only.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use zeroize::Zeroizing;

use super::failed;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::error::StoreError;

/// A segment that this process appends to.
pub(super) struct Segment {
    /// The end of its bucket.
    pub(super) bucket: Timestamp,
    /// Its number within the bucket.
    pub(super) number: u32,
    /// The key that seals its bodies.
    pub(super) key: MasterKey,
    /// The same key as bytes, until its slot is written.
    pub(super) key_bytes: Zeroizing<[u8; MasterKey::LENGTH]>,
    /// Its file, once the appender made it.
    pub(super) file: OnceLock<File>,
}

impl Segment {
    pub(super) fn new(bucket: Timestamp, number: u32, key: [u8; MasterKey::LENGTH]) -> Self {
        let key_bytes = Zeroizing::new(key);
        Self { bucket, number, key: MasterKey::new(&key_bytes), key_bytes, file: OnceLock::new() }
    }

    /// Makes the segment's file, durable as a name.
    pub(super) fn create(&self, directory: &Path) -> Result<File, StoreError> {
        let path = path(directory, self.bucket, self.number);
        let bucket = bucket_directory(directory, self.bucket);
        if !bucket.exists() {
            fs::create_dir(&bucket).map_err(|error| failed("create", &bucket, &error))?;
            sync_directory(directory)?;
        }
        // The number is this process's alone; a file that is there is what a full disk left of an earlier try.
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed("create", &path, &error))?;
        sync_directory(&bucket)?;
        Ok(file)
    }
}

fn bucket_directory(directory: &Path, bucket: Timestamp) -> PathBuf {
    directory.join(format!("{:013}", bucket.as_millis()))
}

/// Where a segment's file stands.
pub(in crate::store) fn path(directory: &Path, bucket: Timestamp, number: u32) -> PathBuf {
    bucket_directory(directory, bucket).join(format!("{number:06}.segment"))
}

/// The greatest number of a segment file in `bucket`, or none.
pub(super) fn greatest_number(directory: &Path, bucket: Timestamp) -> Option<u32> {
    let names = fs::read_dir(bucket_directory(directory, bucket)).ok()?;
    names.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str()?.parse().ok()).max()
}

/// The buckets that have a directory.
pub(super) fn buckets(directory: &Path) -> Result<BTreeSet<Timestamp>, StoreError> {
    let names = fs::read_dir(directory).map_err(|error| failed("list", directory, &error))?;
    let millis = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(millis.map(Timestamp::from_millis).collect())
}

/// Unlinks a bucket's files and makes that durable. A bucket that is not there is done.
pub(super) fn remove_bucket(directory: &Path, bucket: Timestamp) -> Result<(), StoreError> {
    let path = bucket_directory(directory, bucket);
    match fs::remove_dir_all(&path) {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", &path, &error)),
    }
}

/// Makes the names in `directory` durable.
pub(in crate::store) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory).and_then(|handle| handle.sync_all()).map_err(|error| failed("sync", directory, &error))
}
