//! Read-only access to content, for a check: nothing missing is created.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::keys::{self, KeysFound};
use super::{InJournal, Place, Unreadable, failed, opened, segment, unsealed};
use crate::base::id::MessageId;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::disk::{Disk, DiskFile, OpenMode};
use crate::store::error::StoreError;

/// Identifies a segment: its bucket, and its number there.
type SegmentName = (Timestamp, u32);

/// The content of a data directory that no process has open.
pub(in crate::store) struct SealedContent {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    keys: BTreeMap<SegmentName, Arc<MasterKey>>,
    /// Damage of the key files.
    pub(in crate::store) key_faults: Vec<String>,
    in_journal: InJournal,
    /// The segment that was read last: messages come in the order in which their bodies were written.
    last: RefCell<Option<(SegmentName, Arc<dyn DiskFile>)>>,
}

impl SealedContent {
    /// Opens the content below `directory`, if there is any, with the bodies inlined in the journal.
    pub(in crate::store) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        master: &MasterKey,
        in_journal: InJournal,
    ) -> Result<Self, StoreError> {
        let directory = directory.join("content");
        let KeysFound { keys, faults } = keys::find(&*disk, &directory, master)?;
        Ok(Self { disk, keys, key_faults: faults, in_journal, directory, last: RefCell::new(None) })
    }

    /// Returns the number of segments that have a key.
    pub(in crate::store) fn segments(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Returns the body of `message` at `place`.
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
                self.disk.open(&path, OpenMode::Existing).map_err(|error| failed("open", &path, &error))?
            }
        };
        let body = opened(&*file, key, place, message, &self.directory);
        *last = Some((id, file));
        Ok(body?)
    }
}
