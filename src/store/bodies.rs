//! Reading a message's body. If its key is missing, the read decides whether the key was destroyed on time or was lost.

use super::Store;
use super::clock_doubts::end_of;
use super::content::{Place, Unreadable};
use super::error::StoreError;
use super::read::Read as _;
use super::row::restored::Restored;
use super::schema::meta;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;

impl Store {
    /// Returns the body of `message` at `place`. Deadlines are judged at `now`.
    ///
    /// # Errors
    /// [`Unreadable::Gone`] if the body's deadline has passed, or if the store was restored from a backup without
    /// bodies. A key that is missing before its deadline is a failure, like a damaged body.
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
        if end_of(&snapshot, Bucket { end: place.bucket })? <= now {
            return Ok(true);
        }
        let restored: Option<Restored> = snapshot.row(meta::RESTORED)?;
        Ok(restored.is_some_and(|restored| restored.lacks_content_of(message.0)))
    }
}
