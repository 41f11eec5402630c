//! Bodies inlined in the journal. Every sync has a fixed price, even for few bytes. A small batch of bodies is
//! therefore stored in the same record as the rows that name them, and one sync covers both. The bodies are also
//! written to their segments, which are synced before the record stops counting. A start after a crash writes them to
//! the segments again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::Segment;
use super::{Place, failed, segment, unsynced};
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;
use crate::store::clock_doubts::Deadlines;
use crate::store::disk::{Disk, DiskFile, OpenMode};
use crate::store::error::StoreError;

/// A body that was written to its segment but not synced.
pub(in crate::store) struct InlinedBody {
    pub(in crate::store) place: Place,
    pub(in crate::store) sealed: Vec<u8>,
    pub(in crate::store) segment: Arc<Segment>,
}

/// Place of a body as a key: bucket, segment and offset.
pub(in crate::store) type PlaceKey = [u8; 20];

impl InlinedBody {
    /// Returns the key of the body in the journal.
    pub(in crate::store) fn key(&self) -> PlaceKey {
        key_of(&self.place)
    }
}

/// Returns the journal key of the body at `place`.
pub(in crate::store) fn key_of(place: &Place) -> PlaceKey {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&place.bucket.as_millis().to_be_bytes());
    key[8..12].copy_from_slice(&place.segment.to_be_bytes());
    key[12..].copy_from_slice(&place.offset.to_be_bytes());
    key
}

/// Returns the bucket, segment and offset of a key; `None` if it is malformed.
fn parts_of(key: &[u8]) -> Option<(Timestamp, u32, u64)> {
    let (bucket, rest) = key.split_first_chunk()?;
    let (segment, offset) = rest.split_first_chunk()?;
    let bucket = Timestamp::from_millis(u64::from_be_bytes(*bucket));
    Some((bucket, u32::from_be_bytes(*segment), u64::from_be_bytes(offset.try_into().ok()?)))
}

/// Writes the bodies in a journal to their segments.
pub(in crate::store) struct BodyReplay {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    deadlines: Deadlines,
    files: BTreeMap<(Timestamp, u32), Arc<dyn DiskFile>>,
}

impl BodyReplay {
    /// Creates a writer for the segments of `directory`.
    pub(in crate::store) fn new(disk: Arc<dyn Disk>, directory: &Path, deadlines: Deadlines) -> Self {
        Self { disk, directory: directory.join("content"), deadlines, files: BTreeMap::new() }
    }

    /// Writes a body to its place, unless its deadline has passed. It writes even if the body can be read there: after
    /// a failed sync the system may show data that never reached the disk, and a sync makes durable only what is
    /// written again.
    pub(in crate::store) fn write(&mut self, key: &[u8], sealed: &[u8]) -> Result<(), StoreError> {
        let Some((bucket, number, offset)) = parts_of(key) else {
            return Err(StoreError::Content("the journal carries a body without a place".to_owned()));
        };
        let Some(file) = self.file(bucket, number)? else { return Ok(()) };
        file.write_all_at(sealed, offset).map_err(|error| failed("write to", &self.directory, &error))
    }

    /// Returns the file of a segment. A lost one is created again. `None` if it was removed at its deadline.
    fn file(&mut self, bucket: Timestamp, number: u32) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        if let Some(file) = self.files.get(&(bucket, number)) {
            return Ok(Some(Arc::clone(file)));
        }
        let path = segment::path(&self.directory, bucket, number);
        let is_there = self.disk.open(&path, OpenMode::Existing).map(drop);
        let file = match is_there.and_then(|()| self.disk.open(&path, OpenMode::Kept)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.deadlines.have_passed(Bucket { end: bucket }) {
                    return Ok(None);
                }
                segment::make(&*self.disk, &self.directory, bucket, number)?
            }
            Err(error) => return Err(failed("open", &path, &error)),
        };
        self.files.insert((bucket, number), Arc::clone(&file));
        Ok(Some(file))
    }

    /// Syncs all bodies in their segments.
    pub(in crate::store) fn sync(self) -> Result<(), StoreError> {
        let sync = |file: &Arc<dyn DiskFile>| file.sync_data();
        self.files.values().try_for_each(sync).map_err(|error| unsynced(&self.directory, &error))
    }
}

/// Inlined bodies of a journal, for reading a store without repairing it.
#[derive(Default)]
pub(in crate::store) struct InJournal(BTreeMap<PlaceKey, Vec<u8>>);

impl InJournal {
    /// Adds a body.
    pub(in crate::store) fn keep(&mut self, key: &[u8], sealed: &[u8]) {
        // Other keys are malformed; their bodies are found missing when they are read.
        if let Ok(key) = key.try_into() {
            self.0.insert(key, sealed.to_owned());
        }
    }

    /// Returns the body at `place` if the journal has it.
    pub(super) fn get(&self, place: &Place) -> Option<&[u8]> {
        self.0.get(&key_of(place)).map(Vec::as_slice)
    }
}
