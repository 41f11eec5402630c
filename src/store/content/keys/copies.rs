//! Comparison of the two copies of the key file, slot by slot. It finds the existing keys, and the slots to write so
//! that both copies have every key.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::slot::{self, SLOT, SegmentId, Slot};
use super::{FILE, MIRROR};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;

/// A raw key, to be sealed again.
pub(super) type RawKey = Zeroizing<[u8; MasterKey::LENGTH]>;

/// Contents of both copies.
#[derive(Default)]
pub(super) struct Copies {
    /// Keys with their places, which are the same in both copies once [`Self::rewrite`] is done.
    pub(super) keys: BTreeMap<SegmentId, (u64, RawKey)>,
    /// Places of [`Self::keys`] that are missing in one copy, or that use format 1.
    pub(super) rewrite: Vec<(u64, SegmentId)>,
    /// Keys that must move to another place because their slot is damaged in one copy.
    pub(super) homeless: BTreeMap<SegmentId, RawKey>,
    /// Former places of the [`Self::homeless`] keys, and places that may hold a duplicate key.
    pub(super) retire: Vec<u64>,
    /// Places with no readable key in either copy, with the bucket that they name.
    pub(super) lost: Vec<(u64, Option<Timestamp>)>,
    pub(super) free: Vec<u64>,
    /// Number of places that were retired earlier.
    pub(super) retired: u64,
    /// Number of places.
    pub(super) places: u64,
    /// Descriptions of the damage, one sentence for each slot.
    pub(super) faults: Vec<String>,
}

impl Copies {
    /// Compares the two files. The bucket and number of a slot of format 1 are not verified and may be damaged. Such a
    /// slot counts as a key only if `has_file` says that its segment's file exists.
    pub(super) fn compare(
        file: &[u8],
        mirror: &[u8],
        master: &MasterKey,
        has_file: impl Fn(SegmentId) -> bool,
    ) -> Self {
        let mut copies = Self::default();
        let length = file.len().max(mirror.len());
        copies.places = length.div_ceil(SLOT) as u64;
        for place in 0..copies.places {
            let at = |bytes: &[u8]| {
                let begin = usize::try_from(place).unwrap_or(usize::MAX).saturating_mul(SLOT).min(bytes.len());
                match slot::read(&bytes[begin..bytes.len().min(begin + SLOT)], master) {
                    Slot::Key { segment, is_first: true, .. } if !has_file(segment) => Slot::Damaged { named: None },
                    slot => slot,
                }
            };
            copies.judge(place, at(file), at(mirror));
        }
        let keys = &copies.keys;
        copies.homeless.retain(|segment, _| !keys.contains_key(segment));
        copies
    }

    fn judge(&mut self, place: u64, file: Slot, mirror: Slot) {
        match (file, mirror) {
            (Slot::Free, Slot::Free) => self.free.push(place),
            (Slot::Retired, Slot::Retired | Slot::Free) | (Slot::Free, Slot::Retired) => self.retired += 1,
            (Slot::Key { segment, key, is_first }, Slot::Key { segment: other, is_first: is_other_first, .. })
                if segment == other =>
            {
                self.keep(place, segment, *key, is_first || is_other_first);
            }
            (Slot::Key { segment, key, .. }, Slot::Free) | (Slot::Free, Slot::Key { segment, key, .. }) => {
                self.keep(place, segment, *key, true);
            }
            (file, mirror) => self.damaged(place, file, mirror),
        }
    }

    fn keep(&mut self, place: u64, segment: SegmentId, key: [u8; MasterKey::LENGTH], is_rewritten: bool) {
        if let Some((_, known)) = self.keys.get(&segment) {
            if **known == key {
                // A crash interrupted a move.
                self.retire.push(place);
            } else {
                // One of two slots of format 1 names the wrong segment. This key may be the other segment's only copy.
                self.lost.push((place, None));
                self.faults.push(format!("slot {place} of content/{FILE} names a segment that has another key"));
            }
            return;
        }
        if is_rewritten {
            self.rewrite.push((place, segment));
        }
        self.keys.insert(segment, (place, Zeroizing::new(key)));
    }

    /// Handles a place at which the copies differ or are both unreadable.
    fn damaged(&mut self, place: u64, file: Slot, mirror: Slot) {
        let mut named = None;
        let mut has_key = false;
        if matches!((&file, &mirror), (Slot::Key { .. }, Slot::Key { .. })) {
            self.faults.push(format!("slot {place} of content/{FILE} and of content/{MIRROR} hold different keys"));
        }
        for (slot, name, other) in [(file, FILE, MIRROR), (mirror, MIRROR, FILE)] {
            match slot {
                Slot::Key { segment, key, .. } => {
                    has_key = true;
                    self.homeless.insert(segment, Zeroizing::new(*key));
                }
                Slot::Damaged { named: of } => {
                    named = named.max(of);
                    self.faults
                        .push(format!("slot {place} of content/{name} is damaged; its copy is in content/{other}"));
                }
                Slot::Free | Slot::Retired => {}
            }
        }
        if has_key {
            self.retire.push(place);
        } else {
            self.lost.push((place, named));
            self.faults.push(format!("the key in slot {place} of content/{FILE} is lost: neither copy can be read"));
        }
    }
}
