//! Content that is only read, for a check: nothing is made where something is missing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{InJournal, Place, Unreadable, failed, keys, opened, segment, unsealed};
use crate::base::id::MessageId;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, FileSystem, Opening};
use crate::store::error::StoreError;

/// Which segment: its bucket, and its number there.
type SegmentName = (Timestamp, u32);

/// The content of a data directory that no process has open.
pub(in crate::store) struct SealedContent {
    directory: PathBuf,
    keys: BTreeMap<SegmentName, Arc<MasterKey>>,
    in_journal: InJournal,
    /// The segment that was read last: messages come in the order in which their bodies were written.
    last: RefCell<Option<(SegmentName, Arc<dyn DiskFile>)>>,
}

impl SealedContent {
    /// The content below `directory`, if there is any, and what the journal carries of it.
    pub(in crate::store) fn open(
        directory: &Path,
        master: &MasterKey,
        in_journal: InJournal,
    ) -> Result<Self, StoreError> {
        let directory = directory.join("content");
        let path = directory.join("keys");
        let slots = match FileSystem.read(&path) {
            Ok(slots) => slots,
            // Restored from a backup without content, and not started since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        Ok(Self { keys: keys::keys_in(&slots, master)?, in_journal, directory, last: RefCell::new(None) })
    }

    /// How many segments have a key.
    pub(in crate::store) fn segments(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The body of `message` at `place`.
    pub(in crate::store) fn read(&self, place: Place, message: MessageId) -> Result<Vec<u8>, Unreadable> {
        let id = (place.bucket, place.segment);
        let key = self.keys.get(&id).ok_or(Unreadable::Gone)?;
        if let Some(sealed) = self.in_journal.get(&place) {
            return Ok(unsealed(sealed, key, message, &self.directory)?);
        }
        let mut last = self.last.borrow_mut();
        let file = match last.take() {
            Some((open, file)) if open == id => file,
            _ => {
                let path = segment::path(&self.directory, id.0, id.1);
                FileSystem.open(&path, Opening::Existing).map_err(|error| failed("open", &path, &error))?
            }
        };
        let body = opened(&*file, key, place, message, &self.directory);
        *last = Some((id, file));
        Ok(body?)
    }
}
