//! Bodies that the journal carries. A sync has its price, however little it makes durable: where few bodies come
//! together, they stand in the same record as the rows that name them, and one sync is enough for both. They are
//! written to their segments all the same, and those are synced before the record counts no more; a start after a crash
//! writes them once more.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::Segment;
use super::{Place, failed, segment, unsynced};
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, Opening};
use crate::store::error::StoreError;

/// A body that was written to its segment, and not synced.
pub(in crate::store) struct Carried {
    pub(in crate::store) place: Place,
    pub(in crate::store) sealed: Vec<u8>,
    pub(in crate::store) segment: Arc<Segment>,
}

/// Where a body stands, as a key: its bucket, its segment, its offset.
pub(in crate::store) type PlaceKey = [u8; 20];

impl Carried {
    /// The key under which the journal carries it.
    pub(in crate::store) fn key(&self) -> PlaceKey {
        key_of(&self.place)
    }
}

/// The key under which the body at `place` is carried.
pub(in crate::store) fn key_of(place: &Place) -> PlaceKey {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&place.bucket.as_millis().to_be_bytes());
    key[8..12].copy_from_slice(&place.segment.to_be_bytes());
    key[12..].copy_from_slice(&place.offset.to_be_bytes());
    key
}

/// The bucket, segment and offset of a key; none where it is none.
fn parts_of(key: &[u8]) -> Option<(Timestamp, u32, u64)> {
    let (bucket, rest) = key.split_first_chunk()?;
    let (segment, offset) = rest.split_first_chunk()?;
    let bucket = Timestamp::from_millis(u64::from_be_bytes(*bucket));
    Some((bucket, u32::from_be_bytes(*segment), u64::from_be_bytes(offset.try_into().ok()?)))
}

/// Writes the bodies that a journal carries to their segments.
pub(in crate::store) struct Returning {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    now: Timestamp,
    files: BTreeMap<(Timestamp, u32), Arc<dyn DiskFile>>,
}

impl Returning {
    /// Those of the data directory `directory`.
    pub(in crate::store) fn new(disk: Arc<dyn Disk>, directory: &Path, now: Timestamp) -> Self {
        Self { disk, directory: directory.join("content"), now, files: BTreeMap::new() }
    }

    /// Writes one to where it belongs, unless its time is over. Also where it can be read there: after a failed sync
    /// the system goes on showing what never came to the disk, and a sync makes durable only what is written again.
    pub(in crate::store) fn write(&mut self, key: &[u8], sealed: &[u8]) -> Result<(), StoreError> {
        let Some((bucket, number, offset)) = parts_of(key) else {
            return Err(StoreError::Content("the journal carries a body without a place".to_owned()));
        };
        let Some(file) = self.file(bucket, number)? else { return Ok(()) };
        file.write_all_at(sealed, offset).map_err(|error| failed("write to", &self.directory, &error))
    }

    /// The file of a segment. A lost one is created again. None if it was removed at its deadline.
    fn file(&mut self, bucket: Timestamp, number: u32) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        if let Some(file) = self.files.get(&(bucket, number)) {
            return Ok(Some(Arc::clone(file)));
        }
        let path = segment::path(&self.directory, bucket, number);
        let is_there = self.disk.open(&path, Opening::Existing).map(drop);
        let file = match is_there.and_then(|()| self.disk.open(&path, Opening::Kept)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && bucket <= self.now => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                segment::make(&*self.disk, &self.directory, bucket, number)?
            }
            Err(error) => return Err(failed("open", &path, &error)),
        };
        self.files.insert((bucket, number), Arc::clone(&file));
        Ok(Some(file))
    }

    /// Makes all of them durable where they belong.
    pub(in crate::store) fn sync(self) -> Result<(), StoreError> {
        let sync = |file: &Arc<dyn DiskFile>| file.sync_data();
        self.files.values().try_for_each(sync).map_err(|error| unsynced(&self.directory, &error))
    }
}

/// Bodies that only a journal has for certain, for who reads a store without mending it.
#[derive(Default)]
pub(in crate::store) struct InJournal(BTreeMap<PlaceKey, Vec<u8>>);

impl InJournal {
    /// Keeps one.
    pub(in crate::store) fn keep(&mut self, key: &[u8], sealed: &[u8]) {
        // Anything else is no place, and is found missing when it is asked for.
        if let Ok(key) = key.try_into() {
            self.0.insert(key, sealed.to_owned());
        }
    }

    /// The body at `place`, where the journal carries it.
    pub(super) fn get(&self, place: &Place) -> Option<&[u8]> {
        self.0.get(&key_of(place)).map(Vec::as_slice)
    }
}
