//! Message content: append-only segments outside the database, in buckets by the hour or day of their destruction.
//!
//! A body is compressed (zstd) and sealed under its segment's own key. The key is stored in a slot of `keys` and of its
//! mirror, sealed under the master key. At a bucket's end the slots are overwritten and the files unlinked. Destruction
//! rewrites no row and needs no compaction. Bodies are not stored in the database because its freed pages are never
//! zeroed.
//!
//! `seal` runs on the threads that sign messages. Only `Appender` writes. Any thread may call `read`.

mod appender;
mod body_cache;
pub(crate) mod compression;
mod inlined_body;
mod inspect;
mod keys;
pub(in crate::store) mod segment;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Name of the directory of segments in the data directory.
pub(super) const DIRECTORY: &str = "content";

pub(super) use appender::{Append, Appender, BodyPlacement, PlacedJob};
use body_cache::BodyCache;
pub(super) use inlined_body::{BodyReplay, InJournal, InlinedBody, PlaceKey, key_of as place_key};
pub(super) use inspect::SealedContent;
use keys::KeySlots;
use segment::Segment;

use super::disk::{Disk, DiskFile, OpenMode};
use super::error::{StoreError, is_full};
use super::health::Health;
use super::limits::Limits;
use crate::base::entropy::{self, Entropy};
use crate::base::id::MessageId;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

/// Place of a body in the segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// End of the bucket: from then on the body can't be recovered.
    pub bucket: Timestamp,
    /// Number of the segment in the bucket.
    pub segment: u32,
    /// Start of the sealed bytes.
    pub offset: u64,
    /// Number of sealed bytes.
    pub length: u32,
}

impl Place {
    /// Returns the place of a body that is not on disk yet: only its bucket is known.
    pub const fn unknown(bucket: Timestamp) -> Self {
        Self { bucket, segment: 0, offset: 0, length: 0 }
    }
}

/// A body ready to be appended.
pub struct SealedBody {
    segment: Arc<Segment>,
    message: MessageId,
    bytes: Vec<u8>,
    /// The body as it is sent.
    body: Vec<u8>,
}

impl SealedBody {
    /// Returns the number of bytes that the body takes in its segment.
    pub fn stored_bytes(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }
}

/// The end of a body, compressed before its beginning was created.
pub struct CompressedEnd {
    length: usize,
    compressed: Vec<u8>,
}

impl CompressedEnd {
    /// Compresses `end`.
    pub fn of(end: &[u8]) -> Self {
        Self { length: end.len(), compressed: compression::compress(end) }
    }
}

/// Reason why a body can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The body's bucket has ended, and its key is destroyed.
    #[error("the content is gone")]
    Gone,
    /// The file or the bytes are damaged.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// All content of one data directory.
pub struct Content {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    keys: KeySlots,
    /// Segments that this process appends to, by bucket.
    writing: Mutex<HashMap<Timestamp, Arc<Segment>>>,
    reading: Mutex<HashMap<(Timestamp, u32), Arc<dyn DiskFile>>>,
    fresh: BodyCache,
    health: Arc<Health>,
    entropy: Arc<dyn Entropy>,
    open_files_max: usize,
}

impl Content {
    /// Opens the content below `directory`. Creates the directory if it is missing.
    ///
    /// # Errors
    /// File system errors; a key file that the master key does not open.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        master: Arc<MasterKey>,
        health: Arc<Health>,
        entropy: Arc<dyn Entropy>,
        limits: &Limits,
    ) -> Result<Self, StoreError> {
        let inner = directory.join(DIRECTORY);
        disk.create_directory(&inner).map_err(|error| failed("create", &inner, &error))?;
        let keys = KeySlots::open(Arc::clone(&disk), &inner, master, Arc::clone(&entropy))?;
        segment::sync_directory(&*disk, &inner)?;
        let (writing, reading) = (Mutex::default(), Mutex::default());
        let (fresh, open_files_max) = (BodyCache::new(limits.body_cache_bytes_max), limits.open_files_max);
        Ok(Self { disk, directory: inner, keys, writing, reading, fresh, health, entropy, open_files_max })
    }

    /// Sets the lowest number of new segments.
    pub(super) fn begin_segments_at(&self, first: u32) {
        self.keys.begin_numbers_at(first);
    }

    /// Compresses and seals `body` for `bucket`. Nothing is written yet.
    pub fn seal(&self, bucket: Timestamp, message: MessageId, body: Vec<u8>) -> SealedBody {
        let compressed = compression::compress(&body);
        self.seal_compressed(bucket, message, body, &compressed)
    }

    /// Seals a `body` with an end that was compressed before.
    pub fn seal_with(&self, bucket: Timestamp, message: MessageId, body: Vec<u8>, end: &CompressedEnd) -> SealedBody {
        let mut compressed = compression::compress(&body[..body.len() - end.length]);
        compressed.extend_from_slice(&end.compressed);
        self.seal_compressed(bucket, message, body, &compressed)
    }

    fn seal_compressed(&self, bucket: Timestamp, message: MessageId, body: Vec<u8>, compressed: &[u8]) -> SealedBody {
        let segment = self.segment_for(bucket);
        let bytes = segment.key.seal(message.as_bytes(), compressed, &*self.entropy).0;
        SealedBody { segment, message, bytes, body }
    }

    /// Returns the segment of `bucket` that this process appends to. The appender creates its file and key slot before
    /// the first body in it can be named.
    fn segment_for(&self, bucket: Timestamp) -> Arc<Segment> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.len() >= self.open_files_max && !writing.contains_key(&bucket) {
            // Drop the segments of earlier buckets: an ended bucket gets no more bodies, and any other continues in a
            // new segment.
            writing.clear();
        }
        Arc::clone(writing.entry(bucket).or_insert_with(|| {
            // Never reuse a segment of an earlier process: its tail may be torn.
            let number = self.keys.reserve_number(bucket);
            Arc::new(Segment::new(bucket, number, entropy::bytes(&*self.entropy)))
        }))
    }

    /// Removes and returns the body of `message` from the body cache.
    pub fn fresh(&self, message: MessageId) -> Option<Vec<u8>> {
        self.fresh.take(message)
    }

    /// Returns the body of `message` at `place` from the disk.
    ///
    /// # Errors
    /// [`Unreadable::Gone`] once the bucket's key is destroyed; otherwise damage or an I/O error.
    pub fn read(&self, place: Place, message: MessageId) -> Result<Vec<u8>, Unreadable> {
        let key = self.keys.get(place.bucket, place.segment).ok_or_else(|| self.missing(place.bucket))?;
        let file = self.file(place.bucket, place.segment)?;
        Ok(opened(&*file, &key, place, message, &self.directory)?)
    }

    /// Returns the reason why there is no key for a segment of `bucket`.
    fn missing(&self, bucket: Timestamp) -> Unreadable {
        if self.keys.may_have_lost(bucket) {
            return StoreError::Content("the key of this content is damaged".to_owned()).into();
        }
        Unreadable::Gone
    }

    /// Returns the segments, of buckets that have not ended, that have bodies but no key. A segment is created before
    /// its key, so an empty file without a key is not a loss.
    ///
    /// # Errors
    /// File system errors.
    pub(super) fn segments_without_key(
        &self,
        has_ended: impl Fn(Timestamp) -> bool,
    ) -> Result<Vec<(Timestamp, u32)>, StoreError> {
        let mut found = Vec::new();
        for bucket in segment::buckets(&*self.disk, &self.directory)?.into_iter().filter(|bucket| !has_ended(*bucket)) {
            let with_bodies = segment::with_bodies(&*self.disk, &self.directory, bucket);
            let segments = with_bodies.into_iter().map(|number| (bucket, number));
            found.extend(segments.filter(|segment| !self.has(*segment)));
        }
        Ok(found)
    }

    /// Returns the number of content key slots that are or were damaged. They are never reused.
    pub fn damaged_key_slots(&self) -> u64 {
        self.keys.damaged()
    }

    /// Returns the number of faults that the last start found in the files of content keys. Faults that an earlier
    /// start repaired do not count.
    pub fn key_faults(&self) -> u64 {
        self.keys.faults()
    }

    fn file(&self, bucket: Timestamp, number: u32) -> Result<Arc<dyn DiskFile>, StoreError> {
        let mut open = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&(bucket, number)) {
            return Ok(Arc::clone(file));
        }
        let path = segment::path(&self.directory, bucket, number);
        let file = self.disk.open(&path, OpenMode::Existing).map_err(|error| failed("open", &path, &error))?;
        if open.len() >= self.open_files_max {
            open.clear();
        }
        open.insert((bucket, number), Arc::clone(&file));
        Ok(file)
    }

    /// Reads a sealed segment's bytes from `offset` into `buffer`, for a backup.
    ///
    /// # Errors
    /// [`Unreadable::Gone`] once its key or its file is destroyed; otherwise I/O errors.
    pub(in crate::store) fn read_sealed(
        &self,
        (bucket, number): (Timestamp, u32),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Unreadable> {
        let gone = || self.keys.get(bucket, number).is_none();
        if gone() {
            return Err(Unreadable::Gone);
        }
        let read = self.file(bucket, number).and_then(|file| {
            file.read_exact_at(buffer, offset).map_err(|error| failed("read", &self.directory, &error))
        });
        // The bucket may have ended in between: its keys are destroyed before its files.
        read.map_err(|error| if gone() { Unreadable::Gone } else { error.into() })
    }

    /// Adds the key slot of another machine's segment, in its stored form.
    pub(in crate::store) fn adopt_key(&self, segment: (Timestamp, u32), slot: &[u8]) -> Result<(), StoreError> {
        self.keys.adopt(segment, slot)
    }

    /// Returns whether a segment still has its key.
    pub(in crate::store) fn has(&self, (bucket, number): (Timestamp, u32)) -> bool {
        self.keys.get(bucket, number).is_some()
    }

    /// Returns the stored key slots of these segments, sealed under the master key. Segments that are gone are skipped.
    pub(in crate::store) fn sealed_keys(&self, segments: impl Iterator<Item = (Timestamp, u32)>) -> Vec<u8> {
        segments.filter_map(|(bucket, number)| self.keys.slot(bucket, number)).flatten().collect()
    }

    /// Returns the size of the bodies and their keys on disk. Each hour has one or two files, so this reads the sizes
    /// of some hundred files at most.
    pub fn size_bytes(&self) -> u64 {
        segment::size_bytes(&*self.disk, &self.directory)
    }

    /// Returns the buckets with a key or a file that end at `now` or earlier. This includes buckets that no message
    /// names, because the process ended or the message was refused between body and commit.
    ///
    /// # Errors
    /// File system errors.
    pub fn buckets_until(&self, now: Timestamp) -> Result<BTreeSet<Timestamp>, StoreError> {
        let mut buckets = segment::buckets(&*self.disk, &self.directory)?;
        buckets.append(&mut self.keys.buckets());
        buckets.retain(|bucket| *bucket <= now);
        Ok(buckets)
    }

    /// Destroys everything in `bucket`: its keys first, then its files. May be repeated.
    ///
    /// # Errors
    /// File system errors; the next call finishes the work. A failed sync ends the process.
    pub fn destroy(&self, bucket: Timestamp) -> Result<(), StoreError> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).remove(&bucket);
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| *of != bucket);
        self.fresh.forget(bucket);
        let destroyed = self.keys.destroy(bucket);
        let destroyed = destroyed.and_then(|()| segment::remove_bucket(&*self.disk, &self.directory, bucket));
        destroyed.map_err(|error| match error {
            // A second sync might succeed although the keys can still be read from the disk.
            StoreError::Unsynced(_) => self.health.fail(&error),
            error => error,
        })
    }
}

/// Returns the body at `place` of its segment's `file`.
fn opened(
    file: &dyn DiskFile,
    key: &MasterKey,
    place: Place,
    message: MessageId,
    directory: &Path,
) -> Result<Vec<u8>, StoreError> {
    let mut sealed = vec![0; place.length as usize];
    file.read_exact_at(&mut sealed, place.offset).map_err(|error| failed("read", directory, &error))?;
    unsealed(&sealed, key, message, directory)
}

/// Opens and decompresses the stored bytes of a body.
fn unsealed(sealed: &[u8], key: &MasterKey, message: MessageId, directory: &Path) -> Result<Vec<u8>, StoreError> {
    let compressed = key.open(message.as_bytes(), sealed).map_err(|error| StoreError::Content(error.to_string()))?;
    compression::decompress(compressed.expose()).map_err(|error| failed("decompress", directory, &error))
}

/// Returns the error of a failed sync, regardless of the file system's error kind.
fn unsynced(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unsynced(format!("{}: {error}", path.display()))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> StoreError {
    if is_full(error) {
        return StoreError::Full;
    }
    StoreError::Content(format!("could not {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
