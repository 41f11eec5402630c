//! The key slots: a small file of fixed slots, each with a segment's key sealed under the master key, and its mirror.
//!
//! Slots are overwritten in place and reused, never appended, so that a destroyed key is no longer in the files. (On
//! flash or copy-on-write file systems this is not physical erasure; the promise is that no key is reachable through
//! the file system.)
//!
//! Both files have the same slots in the same places, and every change is durable in both before it counts. A start
//! compares them ([`copies`]). A key that is damaged in one file moves to another place, and its old place is retired.
//! A place that is damaged in both files stays unchanged until its bucket has ended.

mod copies;
mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use copies::Copies;
#[cfg(test)]
use slot::encode_first;
use slot::{Bytes, SLOT, SegmentId};

use super::segment::{self, Segment};
use super::{failed, unsynced};
use crate::base::entropy::Entropy;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, OpenMode};
use crate::store::error::StoreError;

/// Name of the key file below `content`, and of its mirror.
pub(super) const FILE: &str = "keys";
pub(super) const MIRROR: &str = "keys.mirror";

/// The keys of all segments.
pub(super) struct KeySlots {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// The file and its mirror.
    files: [Arc<dyn DiskFile>; 2],
    master: Arc<MasterKey>,
    entropy: Arc<dyn Entropy>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<SegmentId, (u64, Arc<MasterKey>)>,
    free: BTreeSet<u64>,
    slots: u64,
    /// Unreadable places, each with the end of the bucket that it may belong to.
    lost: Vec<(u64, Timestamp)>,
    /// Number of places that are never used again.
    retired: u64,
    /// Number of faults that the start found.
    faults: u64,
    /// Places of keys that may be in only one of the files, because the disk was full.
    unfinished: BTreeMap<SegmentId, u64>,
    /// Reserved numbers of segments with a slot that is not written yet.
    reserved: BTreeMap<Timestamp, u32>,
    /// The lowest number that is reserved.
    first_number: u32,
}

impl State {
    fn place(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }
}

impl KeySlots {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        master: Arc<MasterKey>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, StoreError> {
        let open = |name: &str| {
            let path = directory.join(name);
            disk.open(&path, OpenMode::Kept).map_err(|error| failed("open", &path, &error))
        };
        let (directory, files) = (directory.to_owned(), [open(FILE)?, open(MIRROR)?]);
        let slots = Self { disk, directory, files, master, entropy, state: Mutex::default() };
        let has_file = |segment| has_file(&*slots.disk, &slots.directory, segment);
        let copies = Copies::compare(&slots.write_again(0)?, &slots.write_again(1)?, &slots.master, has_file);
        slots.take(copies)?;
        Ok(slots)
    }

    /// Writes a file again as it was read, and syncs it. If a process was killed before its sync, or the sync failed,
    /// an overwritten key may appear overwritten and still be on the disk. A sync makes durable only what is written
    /// again.
    fn write_again(&self, file: usize) -> Result<Vec<u8>, StoreError> {
        let (path, file) = (self.directory.join([FILE, MIRROR][file]), &self.files[file]);
        let bytes = self.disk.read(&path).map_err(|error| failed("read", &path, &error))?;
        file.write_all_at(&bytes, 0).map_err(|error| failed("write", &path, &error))?;
        self.sync_file(file)?;
        Ok(bytes)
    }

    /// Takes over the content of the files and repairs them.
    fn take(&self, copies: Copies) -> Result<(), StoreError> {
        for fault in &copies.faults {
            tracing::error!(fault, "damaged file of content keys; moving keys that have a copy to another slot");
        }
        let newest = segment::buckets(&*self.disk, &self.directory)?;
        let until = |named: Option<Timestamp>| {
            named.filter(|named| newest.contains(named)).or(newest.last().copied()).unwrap_or(Timestamp::ZERO)
        };
        let mut state = self.state();
        state.slots = copies.places;
        state.free.extend(&copies.free);
        state.lost = copies.lost.iter().map(|(place, named)| (*place, until(*named))).collect();
        state.retired = copies.retired;
        state.faults = copies.faults.len() as u64;
        self.rewrite(&copies)?;
        for (segment, (place, key)) in &copies.keys {
            state.keys.insert(*segment, (*place, Arc::new(MasterKey::new(key))));
        }
        for (segment, key) in &copies.homeless {
            let place = state.place();
            self.write(place, &slot::encode(*segment, key, &self.master, &*self.entropy))?;
            state.keys.insert(*segment, (place, Arc::new(MasterKey::new(key))));
        }
        // The moved keys must be durable before the damaged places are retired.
        if !copies.retire.is_empty() {
            self.sync()?;
            self.retire(&copies.retire)?;
            self.sync()?;
            state.retired += copies.retire.len() as u64;
        }
        Ok(())
    }

    /// Writes the keys that one file lacks, or that use format 1, to both files. The files are written one after the
    /// other, so that one complete copy is durable at every moment.
    fn rewrite(&self, copies: &Copies) -> Result<(), StoreError> {
        if copies.rewrite.is_empty() {
            return Ok(());
        }
        let of = |segment: &SegmentId| copies.keys.get(segment).map(|(_, key)| key);
        let sealed = |(place, segment): &(u64, SegmentId)| {
            let key = of(segment)?;
            Some((*place, slot::encode(*segment, key, &self.master, &*self.entropy)))
        };
        let slots: Vec<(u64, Bytes)> = copies.rewrite.iter().filter_map(sealed).collect();
        for file in self.files.iter().rev() {
            for (place, bytes) in &slots {
                self.write_to(file, *place, bytes)?;
            }
            self.sync_file(file)?;
        }
        Ok(())
    }

    fn retire(&self, places: &[u64]) -> Result<(), StoreError> {
        places.iter().try_for_each(|place| self.write(*place, &slot::retired()))
    }

    /// Sets the lowest number that is reserved from now on.
    pub(super) fn begin_numbers_at(&self, first: u32) {
        self.state().first_number = first;
    }

    /// Reserves a number for a new segment of `bucket`, greater than every earlier one.
    pub(super) fn reserve_number(&self, bucket: Timestamp) -> u32 {
        let mut state = self.state();
        let with_key = state.keys.range((bucket, 0)..=(bucket, u32::MAX)).next_back().map(|((_, number), _)| *number);
        let with_file = segment::greatest_number(&*self.disk, &self.directory, bucket);
        let reserved = state.reserved.get(&bucket).copied();
        let number = with_key.max(with_file).max(reserved).map_or(0, |number| number + 1).max(state.first_number);
        state.reserved.insert(bucket, number);
        number
    }

    /// Writes a new segment's key durably.
    pub(super) fn put(&self, segment: &Segment) -> Result<(), StoreError> {
        let id = (segment.bucket, segment.number);
        let bytes = slot::encode(id, &segment.key_bytes, &self.master, &*self.entropy);
        let mut state = self.state();
        // A retry for the same segment uses the same place.
        let place = state.unfinished.remove(&id).unwrap_or_else(|| state.place());
        if let Err(error) = self.write(place, &bytes).and_then(|()| self.sync()) {
            // One of the files may hold the key. The place stays reserved, and is overwritten at the bucket's end.
            state.unfinished.insert(id, place);
            return Err(error);
        }
        state.keys.insert(id, (place, Arc::new(MasterKey::new(&segment.key_bytes))));
        Ok(())
    }

    /// Writes the slot of a segment that another machine created, durably. An existing slot is kept.
    pub(super) fn adopt(&self, id: SegmentId, bytes: &[u8]) -> Result<(), StoreError> {
        let foreign = || StoreError::Content("a segment's key is malformed, or of another segment".to_owned());
        let slot::Slot::Key { segment, key, is_first: false } = slot::read(bytes, &self.master) else {
            return Err(foreign());
        };
        let bytes = bytes.try_into().map_err(|_| foreign())?;
        if segment != id {
            return Err(foreign());
        }
        let mut state = self.state();
        if state.keys.contains_key(&id) {
            return Ok(());
        }
        let place = state.unfinished.remove(&id).unwrap_or_else(|| state.place());
        if let Err(error) = self.write(place, bytes).and_then(|()| self.sync()) {
            state.unfinished.insert(id, place);
            return Err(error);
        }
        state.keys.insert(id, (place, Arc::new(MasterKey::new(&key))));
        Ok(())
    }

    /// Returns the key of a segment, unless it is destroyed.
    pub(super) fn get(&self, bucket: Timestamp, number: u32) -> Option<Arc<MasterKey>> {
        self.state().keys.get(&(bucket, number)).map(|(_, key)| Arc::clone(key))
    }

    /// Returns the stored slot of a segment, from the mirror if the file's slot is damaged, unless it is destroyed.
    pub(super) fn slot(&self, bucket: Timestamp, number: u32) -> Option<Bytes> {
        let state = self.state();
        let (place, _) = state.keys.get(&(bucket, number))?;
        // The lock keeps the slot from being overwritten while it is read.
        self.files.iter().find_map(|file| {
            let mut bytes = [0; SLOT];
            file.read_exact_at(&mut bytes, place * SLOT as u64).ok()?;
            match slot::read(&bytes, &self.master) {
                slot::Slot::Key { segment, .. } if segment == (bucket, number) => Some(bytes),
                slot::Slot::Key { .. } | slot::Slot::Free | slot::Slot::Retired | slot::Slot::Damaged { .. } => None,
            }
        })
    }

    /// Returns the buckets that have, or may have, a key in one of the files.
    pub(super) fn buckets(&self) -> BTreeSet<Timestamp> {
        let state = self.state();
        state.keys.keys().chain(state.unfinished.keys()).map(|(bucket, _)| *bucket).collect()
    }

    /// Returns the number of slots that are or were damaged. They are never reused.
    pub(super) fn damaged(&self) -> u64 {
        let state = self.state();
        state.retired + state.lost.len() as u64
    }

    /// Returns the number of faults that the last start found in the files. Those that it repaired are not found again.
    pub(super) fn faults(&self) -> u64 {
        self.state().faults
    }

    /// Returns whether a segment of `bucket` may have a key that is lost in both files.
    pub(super) fn may_have_lost(&self, bucket: Timestamp) -> bool {
        self.state().lost.iter().any(|(_, until)| bucket <= *until)
    }

    /// Overwrites every key of `bucket` durably in both files, then frees the slots.
    pub(super) fn destroy(&self, bucket: Timestamp) -> Result<(), StoreError> {
        let mut state = self.state();
        state.reserved.remove(&bucket);
        let of_bucket = (bucket, 0)..=(bucket, u32::MAX);
        let with_key = state.keys.range(of_bucket.clone()).map(|(key, (place, _))| (*key, *place));
        let unfinished = state.unfinished.range(of_bucket).map(|(key, place)| (*key, *place));
        let doomed: Vec<_> = with_key.chain(unfinished).collect();
        let lost: Vec<u64> = state.lost.iter().filter(|(_, until)| *until <= bucket).map(|(place, _)| *place).collect();
        if doomed.is_empty() && lost.is_empty() {
            return Ok(());
        }
        for (_, place) in &doomed {
            self.write(*place, &[0; SLOT])?;
        }
        self.retire(&lost)?;
        self.sync()?;
        for (key, place) in doomed {
            state.keys.remove(&key);
            state.unfinished.remove(&key);
            state.free.insert(place);
        }
        state.lost.retain(|(place, _)| !lost.contains(place));
        state.retired += lost.len() as u64;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, place: u64, bytes: &Bytes) -> Result<(), StoreError> {
        self.files.iter().try_for_each(|file| self.write_to(file, place, bytes))
    }

    fn write_to(&self, file: &Arc<dyn DiskFile>, place: u64, bytes: &Bytes) -> Result<(), StoreError> {
        let written = file.write_all_at(bytes, place * SLOT as u64);
        written.map_err(|error| failed("write the keys in", &self.directory, &error))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.files.iter().try_for_each(|file| self.sync_file(file))
    }

    fn sync_file(&self, file: &Arc<dyn DiskFile>) -> Result<(), StoreError> {
        file.sync_data().map_err(|error| unsynced(&self.directory.join(FILE), &error))
    }
}

fn has_file(disk: &dyn Disk, directory: &Path, (bucket, number): SegmentId) -> bool {
    disk.exists(&segment::path(directory, bucket, number))
}

/// Keys in a content directory that no process has open, and the damage of its key files.
pub(super) struct KeysFound {
    pub(super) keys: BTreeMap<SegmentId, Arc<MasterKey>>,
    pub(super) faults: Vec<String>,
}

/// Reads the keys below `directory` without changing anything. A missing file counts as empty: a restored store has no
/// mirror before its first start, and one without content has no keys.
pub(super) fn find(disk: &dyn Disk, directory: &Path, master: &MasterKey) -> Result<KeysFound, StoreError> {
    let read = |name: &str| {
        let path = directory.join(name);
        match disk.read(&path) {
            Ok(slots) => Ok(slots),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed("read", &path, &error)),
        }
    };
    let Copies { keys, homeless, faults, .. } =
        Copies::compare(&read(FILE)?, &read(MIRROR)?, master, |segment| has_file(disk, directory, segment));
    let housed = keys.into_iter().map(|(segment, (_, key))| (segment, key));
    let keys = housed.chain(homeless).map(|(segment, key)| (segment, Arc::new(MasterKey::new(&key)))).collect();
    Ok(KeysFound { keys, faults })
}

#[cfg(test)]
mod tests;
