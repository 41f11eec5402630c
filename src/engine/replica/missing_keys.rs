//! Content keys that a store lacks although their content has not expired. A single answer of the bucket can be wrong,
//! for example a proxy's 404, so such a key is never taken for a destroyed one: it is asked for again, and reported.

use super::error::ReplicaError;
use super::follow::LogFollower;
use super::objects::{ReplicaObjects, unreadable};
use crate::base::time::Timestamp;
use crate::engine::bucket::probe::CLOCK_DIFFERENCE_MAX;
use crate::machine::retention::Bucket;
use crate::store::replica::name::{ObjectName, SLOT_MAX};
use crate::store::replica::{content, record};

impl ReplicaObjects {
    /// Returns the latest of three times: this machine's, the bucket's, and that of the log's holder. Content with an
    /// earlier deadline may have been destroyed. The service's clock may differ from both others, as in `dev`.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub async fn latest_time(&self) -> Result<Timestamp, ReplicaError> {
        let newest = match self.slot_before(SLOT_MAX + 1).await? {
            Some(number) => self.slot_head(number).await?.map(|head| head.time),
            None => None,
        };
        Ok(self.near_time().max(newest.unwrap_or_default()))
    }

    /// Returns the later one of the clock here and the bucket's.
    fn near_time(&self) -> Timestamp {
        self.clock.now().max(self.bucket.date().unwrap_or_default())
    }

    /// Returns whether the content of `bucket` may have been destroyed because its deadline has passed. A doubt about
    /// the clock moves deadlines; the rows with the offset can't be read here.
    pub(super) async fn may_have_expired(&self, bucket: Timestamp) -> Result<bool, ReplicaError> {
        let has_passed = |time: Timestamp| bucket <= time + CLOCK_DIFFERENCE_MAX;
        Ok(Bucket { end: bucket }.doubt().is_some()
            || has_passed(self.near_time())
            || has_passed(self.latest_time().await?))
    }
}

impl LogFollower {
    /// Fetches the keys that the store lacks although their content has not expired. Returns the names of those that
    /// the bucket lacks too.
    ///
    /// # Errors
    /// Errors of the bucket; a key that does not open; the store.
    pub async fn adopt_missing_keys(&self, objects: &ReplicaObjects) -> Result<Vec<String>, ReplicaError> {
        let lacking = |time: Timestamp| self.follower.segments_without_key(time + CLOCK_DIFFERENCE_MAX);
        if lacking(objects.near_time())?.is_empty() {
            return Ok(Vec::new());
        }
        let mut missing = Vec::new();
        for (bucket, segment) in lacking(objects.latest_time().await?)? {
            if !self.adopt_key(objects, (bucket, segment)).await? {
                missing.push(ObjectName::Key { bucket, segment }.to_string());
            }
        }
        Ok(missing)
    }

    /// Fetches the keys of the segments that contain a batch's bodies. A key that the bucket lacks belongs to expired
    /// content, or is asked for again later.
    pub(super) async fn adopt_keys(&self, objects: &ReplicaObjects, batch: &[u8]) -> Result<(), ReplicaError> {
        for (bucket, segment) in record::segments(batch)? {
            if self.follower.lacks_key(bucket, segment) {
                self.adopt_key(objects, (bucket, segment)).await?;
            }
        }
        Ok(())
    }

    /// Fetches the key of a segment. Returns whether the bucket has it.
    async fn adopt_key(
        &self,
        objects: &ReplicaObjects,
        (bucket, segment): (Timestamp, u32),
    ) -> Result<bool, ReplicaError> {
        let name = ObjectName::Key { bucket, segment };
        let found = objects.bucket.read(&name.to_string()).await?;
        let Some(bytes) = found.filter(|bytes| !bytes.is_empty()) else { return Ok(false) };
        let slot = content::open_key(&name, &bytes, &objects.sealer).map_err(|fault| unreadable(&name, fault))?;
        self.follower.adopt_key(bucket, segment, slot.expose())?;
        Ok(true)
    }
}
