//! The content of a store that follows a log: keys come from the bucket, and expired content is destroyed.

use super::Follower;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;
use crate::store::clock_doubts::Deadlines;
use crate::store::error::StoreError;

impl Follower {
    /// Returns whether this store lacks the key of a content segment.
    pub fn lacks_key(&self, bucket: Timestamp, segment: u32) -> bool {
        !self.content.has((bucket, segment))
    }

    /// Returns the segments that have bodies but no key, although they have not expired at `now`.
    ///
    /// # Errors
    /// File system errors.
    pub fn segments_without_key(&self, now: Timestamp) -> Result<Vec<(Timestamp, u32)>, StoreError> {
        let deadlines = Deadlines::at(&self.database, now);
        self.content.segments_without_key(|end| deadlines.have_passed(Bucket { end }))
    }

    /// Adds the key of a content segment, in the form of the active's key file.
    ///
    /// # Errors
    /// A key that is malformed or of another segment; file system errors.
    pub fn adopt_key(&self, bucket: Timestamp, segment: u32, slot: &[u8]) -> Result<(), StoreError> {
        self.content.adopt_key((bucket, segment), slot)
    }

    /// Destroys content whose deadline has passed at `now`, which was compared with the bucket's time. This includes
    /// the content of stores that were set aside.
    ///
    /// # Errors
    /// File system errors.
    pub fn destroy_until(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let deadlines = Deadlines::at(&self.database, now);
        let buckets = self.content.buckets_until(Timestamp::MAX)?;
        for end in buckets.into_iter().filter(|end| deadlines.have_passed(Bucket { end: *end })) {
            self.content.destroy(end)?;
        }
        if let Err(error) = self.destroy_aside(&deadlines) {
            tracing::warn!(%error, "could not destroy expired content of a store that was set aside; trying again");
        }
        Ok(())
    }
}
