//! The key slots: one small file of fixed slots, each a segment's key sealed under the master key.
//!
//! Slots are overwritten in place and reused, never appended to, so that a destroyed key leaves nothing behind in the
//! file. (In-place overwriting is not physical erasure on flash or copy-on-write file systems; what is promised is that
//! no key is reachable through the file system.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::failed;
use super::segment::{self, Segment};
use crate::base::entropy::Entropy;
use crate::base::secret::{MasterKey, Sealed};
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, Opening};
use crate::store::error::StoreError;

/// Room for version, bucket, number and a sealed key.
const SLOT: usize = 128;
const VERSION: u8 = 1;
const CONTEXT: &[u8] = b"content segment";

/// What a slot says.
#[derive(Serialize, Deserialize)]
struct Slot {
    version: u8,
    bucket: Timestamp,
    number: u32,
    key: Sealed,
}

/// The keys of all segments.
pub(super) struct KeySlots {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    directory: PathBuf,
    file: Arc<dyn DiskFile>,
    master: Arc<MasterKey>,
    entropy: Arc<dyn Entropy>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<(Timestamp, u32), (u64, Arc<MasterKey>)>,
    free: BTreeSet<u64>,
    slots: u64,
    /// Numbers given out for segments whose slot is not written yet.
    reserved: BTreeMap<Timestamp, u32>,
}

impl KeySlots {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        master: Arc<MasterKey>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, StoreError> {
        let (directory, path) = (directory.to_owned(), directory.join("keys"));
        let file = disk.open(&path, Opening::Kept).map_err(|error| failed("open", &path, &error))?;
        // A key may have been overwritten by a process that was killed before it synced: then it is gone for us, and
        // not for the disk.
        file.sync_data().map_err(|error| failed("sync", &path, &error))?;
        let bytes = disk.read(&path).map_err(|error| failed("read", &path, &error))?;
        let state = State::load(&bytes, &master)?;
        Ok(Self { disk, path, directory, file, master, entropy, state: Mutex::new(state) })
    }

    /// A number for a new segment of `bucket`, greater than every one before it.
    pub(super) fn reserve_number(&self, bucket: Timestamp) -> u32 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let with_key = state.keys.range((bucket, 0)..=(bucket, u32::MAX)).next_back().map(|((_, number), _)| *number);
        let with_file = segment::greatest_number(&*self.disk, &self.directory, bucket);
        let reserved = state.reserved.get(&bucket).copied();
        let number = with_key.max(with_file).max(reserved).map_or(0, |number| number + 1);
        state.reserved.insert(bucket, number);
        number
    }

    /// Writes a new segment's key, durably.
    pub(super) fn put(&self, segment: &Segment) -> Result<(), StoreError> {
        let key = self.master.seal(CONTEXT, &*segment.key_bytes, &*self.entropy);
        let bytes = encode(&Slot { version: VERSION, bucket: segment.bucket, number: segment.number, key });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = state.free.pop_first().unwrap_or_else(|| {
            state.slots += 1;
            state.slots - 1
        });
        if let Err(error) = self.write(place, &bytes).and_then(|()| self.sync()) {
            state.free.insert(place);
            return Err(error);
        }
        let key = Arc::new(MasterKey::new(&segment.key_bytes));
        state.keys.insert((segment.bucket, segment.number), (place, key));
        Ok(())
    }

    /// The key of a segment, unless it is destroyed.
    pub(super) fn get(&self, bucket: Timestamp, number: u32) -> Option<Arc<MasterKey>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.keys.get(&(bucket, number)).map(|(_, key)| Arc::clone(key))
    }

    /// The slot of a segment as it stands in the file, unless it is destroyed.
    pub(super) fn slot(&self, bucket: Timestamp, number: u32) -> Option<[u8; SLOT]> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, _) = state.keys.get(&(bucket, number))?;
        // Under the lock, so that no slot is read while it is overwritten.
        let mut slot = [0; SLOT];
        self.file.read_exact_at(&mut slot, place * SLOT as u64).ok()?;
        Some(slot)
    }

    /// The buckets that have a key.
    pub(super) fn buckets(&self) -> BTreeSet<Timestamp> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.keys.keys().map(|(bucket, _)| *bucket).collect()
    }

    /// Overwrites every key of `bucket`, durably, then frees the slots.
    pub(super) fn destroy(&self, bucket: Timestamp) -> Result<(), StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reserved.remove(&bucket);
        let doomed: Vec<_> =
            state.keys.range((bucket, 0)..=(bucket, u32::MAX)).map(|(key, (place, _))| (*key, *place)).collect();
        if doomed.is_empty() {
            return Ok(());
        }
        for (_, place) in &doomed {
            self.write(*place, &[0; SLOT])?;
        }
        self.sync()?;
        for (key, place) in doomed {
            state.keys.remove(&key);
            state.free.insert(place);
        }
        Ok(())
    }

    fn write(&self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, place * SLOT as u64).map_err(|error| failed("write", &self.path, &error))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| failed("sync", &self.path, &error))
    }
}

/// The keys in a file of slots, by bucket and number.
pub(super) fn keys_in(
    slots: &[u8],
    master: &MasterKey,
) -> Result<BTreeMap<(Timestamp, u32), Arc<MasterKey>>, StoreError> {
    let state = State::load(slots, master)?;
    Ok(state.keys.into_iter().map(|(segment, (_, key))| (segment, key)).collect())
}

impl State {
    fn load(bytes: &[u8], master: &MasterKey) -> Result<Self, StoreError> {
        let mut state = Self::default();
        for slot in bytes.chunks(SLOT) {
            let place = state.slots;
            state.slots += 1;
            // A torn slot was never named by a commit: it is free like an empty one.
            let Some((slot, key)) = open(slot, master)? else {
                state.free.insert(place);
                continue;
            };
            state.keys.insert((slot.bucket, slot.number), (place, Arc::new(key)));
        }
        Ok(state)
    }
}

fn encode(slot: &Slot) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(slot).unwrap_or_default();
    bytes.resize(SLOT, 0);
    bytes
}

fn open(bytes: &[u8], master: &MasterKey) -> Result<Option<(Slot, MasterKey)>, StoreError> {
    let Ok((slot, _)) = postcard::take_from_bytes::<Slot>(bytes) else { return Ok(None) };
    if slot.version != VERSION {
        return Ok(None);
    }
    let key = master.open(CONTEXT, &slot.key.0).map_err(|error| StoreError::Content(error.to_string()))?;
    let key: &[u8; MasterKey::LENGTH] =
        key.expose().try_into().map_err(|_| StoreError::Content("a content key has the wrong length".into()))?;
    Ok(Some((slot, MasterKey::new(key))))
}
