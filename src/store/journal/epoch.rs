//! Epochs, and the two slots at the start of the file that name the current one.
//!
//! The database stores the epoch of the records that count. An emptied, overwritten or older file has no records of
//! that epoch. But a file at the beginning of a new epoch has none either. So the file also names its epoch, durably
//! and before the database does. A file that does not name it is not this database's journal, and a start reports the
//! loss.
//! Epochs use the slots alternately. Until the database has the new epoch, the slot of the old one is unchanged.

use std::io;

use crate::base::entropy::{self, Entropy};
use crate::base::signature::hmac_sha256;
use crate::store::disk::DiskFile;

/// Key for the checksums of the records that count. Its lowest bit is the slot number. An epoch is never drawn twice.
pub(in crate::store) type Epoch = [u8; 16];

/// Size of a slot: a block of the disk, so that writing one can't tear the other.
const SLOT: u64 = 4096;
/// Start of the first record, after the slots.
pub(super) const RECORDS: u64 = 2 * SLOT;
/// First bytes of a slot in use.
const MAGIC: [u8; 4] = *b"PRE\x02";
/// Length of a slot in use: the magic number, and a checksum that only the epoch gives.
const LENGTH: usize = 4 + 16;

/// Draws an epoch to follow `current`, for the other slot.
pub(super) fn following(current: Option<&Epoch>, entropy: &dyn Entropy) -> Epoch {
    let mut epoch: Epoch = entropy::bytes(entropy);
    if let Some(current) = current {
        epoch[0] = epoch[0] & !1 | !current[0] & 1;
    }
    epoch
}

/// Returns the start of the slot of `epoch`.
fn slot(epoch: &Epoch) -> u64 {
    u64::from(epoch[0] & 1) * SLOT
}

fn name(epoch: &Epoch) -> [u8; LENGTH] {
    let digest = hmac_sha256(epoch, &[b"epoch", &slot(epoch).to_le_bytes()]);
    let mut name = [0; LENGTH];
    name[..4].copy_from_slice(&MAGIC);
    name[4..].copy_from_slice(&digest[..LENGTH - 4]);
    name
}

/// Writes the name of `epoch` into `file` durably.
pub(super) fn write(file: &dyn DiskFile, epoch: &Epoch) -> io::Result<()> {
    file.write_all_at(&name(epoch), slot(epoch))?;
    file.sync_data()
}

/// Writes zeros over the slot that `epoch` does not use, so that the next epoch has space there on a full disk.
pub(super) fn blank_other(file: &dyn DiskFile, epoch: &Epoch) -> io::Result<()> {
    file.write_all_at(&[0; SLOT as usize], SLOT - slot(epoch))
}

/// Returns whether a journal's `bytes` name `epoch`.
pub(super) fn is_named(bytes: &[u8], epoch: &Epoch) -> bool {
    usize::try_from(slot(epoch)).is_ok_and(|at| bytes.get(at..at + LENGTH) == Some(&name(epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    #[test]
    fn epochs_alternate_between_the_slots_and_each_is_named_in_its_own() {
        let entropy = SeededEntropy::new(1);
        let mut epoch = following(None, &entropy);
        for _ in 0..20 {
            let next = following(Some(&epoch), &entropy);
            assert_ne!(slot(&epoch), slot(&next));
            let mut bytes = vec![0; usize::try_from(RECORDS).unwrap()];
            for named in [&epoch, &next] {
                let at = usize::try_from(slot(named)).unwrap();
                bytes[at..at + LENGTH].copy_from_slice(&name(named));
            }
            assert!(is_named(&bytes, &epoch) && is_named(&bytes, &next));
            bytes.rotate_left(4096);
            assert!(!is_named(&bytes, &epoch) && !is_named(&bytes, &next), "a name counts only in its own slot");
            assert!(!is_named(&[], &epoch));
            epoch = next;
        }
    }
}
