//! Reading a message's body. If its key is missing, the read decides whether the key was destroyed on time or was lost.

use super::Store;
use super::clock_doubts::end_of;
use super::content::{Place, Unreadable};
use super::error::StoreError;
use super::read::Read;
use super::row::restored::Restored;
use super::schema::{Table, meta};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;

/// Returns the time up to which content was destroyed before the store was restored from a replica.
///
/// # Errors
/// Database errors.
pub(super) fn expired_to(read: &impl Read) -> Result<Timestamp, StoreError> {
    let stored = read.get(Table::Meta, meta::EXPIRED_TO)?.and_then(|bytes| bytes.try_into().ok());
    Ok(Timestamp::from_millis(stored.map_or(0, u64::from_be_bytes)))
}

impl Store {
    /// Returns the body of `message` at `place`. Deadlines are judged at `now`.
    ///
    /// # Errors
    /// [`Unreadable::Gone`] if the body's deadline has passed, here or before the store was restored from a replica, or
    /// if the store was restored from a backup without bodies. A key that is missing before its deadline is a failure,
    /// like a damaged body.
    pub fn body(&self, place: Place, message: MessageId, now: Timestamp) -> Result<Vec<u8>, Unreadable> {
        match self.content().read(place, message) {
            Err(Unreadable::Gone) if !self.may_lack_key(place, message, now)? => {
                Err(StoreError::Content("its key is missing".to_owned()).into())
            }
            read => read,
        }
    }

    fn may_lack_key(&self, place: Place, message: MessageId, now: Timestamp) -> Result<bool, StoreError> {
        let snapshot = self.snapshot()?;
        if end_of(&snapshot, Bucket { end: place.bucket })? <= now.max(expired_to(&snapshot)?) {
            return Ok(true);
        }
        let restored: Option<Restored> = snapshot.row(meta::RESTORED)?;
        Ok(restored.is_some_and(|restored| restored.lacks_content_of(message.0)))
    }
}
