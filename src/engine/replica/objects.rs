//! The objects of one replica: sealed, named, and created at most once.

use std::sync::Arc;

use bytes::Bytes;

use super::error::ReplicaError;
use super::retried_bucket::OnRetry;
use crate::base::digest::{Digest, sha256};
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::engine::bucket::probe::CLOCK_DIFFERENCE_MAX;
use crate::engine::executor::Executor;
use crate::engine::ports::{
    Bucket, BucketError, BucketErrorKind, BucketOperation, BucketResult, Clock, Creation, ObjectInfo,
};
use crate::store::replica::manifest::Manifest;
use crate::store::replica::name::{self, ObjectName};
use crate::store::replica::slot::{self, Link, SlotBody};
use crate::store::replica::{Head, Holder, Kind, ObjectFault, ReplicaDisk, Sealer};

/// Result of creating an object with fixed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CreateResult {
    /// The object has these bytes, written now or by an earlier try.
    Own,
    /// Another object has the name.
    Other,
}

/// A slot that was read.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Position in the chain.
    pub link: Link,
    /// Body.
    pub body: SlotBody,
    /// SHA-256 of its bytes, which the next slot contains.
    pub digest: Digest,
}

/// The objects of one replica.
#[derive(Clone)]
pub struct ReplicaObjects {
    /// The bucket.
    pub bucket: Arc<dyn Bucket>,
    /// The disk of the data directory.
    pub disk: ReplicaDisk,
    /// The place where blocking work runs.
    pub executor: Executor,
    /// The key that seals the store's objects.
    pub sealer: Sealer,
    /// This data directory.
    pub holder: Holder,
    /// Identifies this boot of the machine and the directory; see [`ReplicaWorld::place`](super::world::ReplicaWorld).
    pub place: u64,
    /// The service's time.
    pub clock: Arc<dyn Clock>,
    /// The machine's own time.
    pub real: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Called when a read of a build from a base failed and is repeated, and once it is answered.
    pub(super) on_retry: OnRetry,
}

impl ReplicaObjects {
    /// Returns the first line of an object of this process.
    pub(super) fn head(&self, kind: Kind, number: u64, epoch: u64) -> Head {
        Head { kind, number, epoch, holder: self.holder.clone(), time: self.clock.now() }
    }

    /// Returns the time by which content expires here: the service's, or the bucket's if that is more than 5 minutes
    /// earlier. So a clock that is ahead destroys nothing.
    pub(super) fn expiry_time(&self) -> Timestamp {
        let now = self.clock.now();
        self.bucket.date().filter(|date| now.since(*date) > CLOCK_DIFFERENCE_MAX).unwrap_or(now)
    }

    /// Tries once to create an object. Its bytes must be the same for every try.
    pub(super) async fn create_fixed(&self, name: &ObjectName, bytes: &Bytes) -> BucketResult<CreateResult> {
        let name = name.to_string();
        match self.bucket.create(&name, bytes.clone()).await? {
            Creation::Created => Ok(CreateResult::Own),
            Creation::Exists => match self.bucket.read(&name).await? {
                Some(found) if found == *bytes => Ok(CreateResult::Own),
                Some(_) => Ok(CreateResult::Other),
                // The bucket contradicts itself; only the next try shows whose object it is.
                None => Err(BucketError {
                    kind: BucketErrorKind::Conflict,
                    operation: BucketOperation::Create,
                    name,
                    message: "the object exists, but was not found when it was read".to_owned(),
                }),
            },
        }
    }

    /// Returns whether the bucket has an object.
    pub(super) async fn has(&self, name: &ObjectName) -> BucketResult<bool> {
        Ok(self.bucket.read_range(&name.to_string(), 0, 1).await?.is_some())
    }

    /// Reads a slot; `None` if the log ends before it.
    ///
    /// # Errors
    /// Errors of the bucket; an object that does not open.
    pub async fn slot(&self, number: u64) -> Result<Option<Slot>, ReplicaError> {
        let name = ObjectName::Slot(number);
        let Some(bytes) = self.bucket.read(&name.to_string()).await? else { return Ok(None) };
        self.open_slot(number, &bytes).map(Some)
    }

    /// Opens the bytes of a slot.
    pub(super) fn open_slot(&self, number: u64, bytes: &[u8]) -> Result<Slot, ReplicaError> {
        let opened = Link::open(number, bytes, &self.sealer);
        let (link, body) = opened.map_err(|fault| unreadable(&ObjectName::Slot(number), fault))?;
        Ok(Slot { link, body, digest: slot::digest(bytes) })
    }

    /// Returns all objects below `prefix` whose names are greater than `after`, ascending.
    pub(super) async fn list(&self, prefix: &str, after: &str) -> BucketResult<Vec<ObjectInfo>> {
        let mut found: Vec<ObjectInfo> = Vec::new();
        loop {
            let after = found.last().map_or(after, |last| &last.name).to_owned();
            let page = self.bucket.list(prefix, &after).await?;
            let is_over = page.is_last || page.objects.is_empty();
            found.extend(page.objects);
            if is_over {
                return Ok(found);
            }
        }
    }

    /// Returns the number of the first existing slot after `number`.
    pub(super) async fn slot_after(&self, number: u64) -> BucketResult<Option<u64>> {
        let slot_of = |name: ObjectName| match name {
            ObjectName::Slot(slot) => Some(slot),
            _ => None,
        };
        self.find_after(name::LOG, ObjectName::Slot(number).to_string(), slot_of).await
    }

    /// Returns the number of the last existing slot before `number`, by bisection.
    pub(super) async fn slot_before(&self, number: u64) -> BucketResult<Option<u64>> {
        let (Some(mut found), mut end) = (self.slot_after(0).await?.filter(|first| *first < number), number) else {
            return Ok(None);
        };
        while found + 1 < end {
            let middle = found + (end - found) / 2;
            match self.slot_after(middle - 1).await?.filter(|next| *next < end) {
                Some(next) => found = next,
                None => end = middle,
            }
        }
        Ok(Some(found))
    }

    /// Returns whether the bucket has an object of a base at slot `number` or above.
    pub(super) async fn has_base_from(&self, number: u64) -> BucketResult<bool> {
        // `~` is greater than every name of the previous base.
        let after = format!("{}~", ObjectName::base_prefix(number.saturating_sub(1)));
        let base_of = |name: ObjectName| match name {
            ObjectName::Part { slot, .. } | ObjectName::Manifest(slot) => Some(slot).filter(|slot| *slot >= number),
            _ => None,
        };
        Ok(self.find_after(name::BASE, after, base_of).await?.is_some())
    }

    /// Returns the number of the first matching object below `prefix` after the name `after`. Objects of other programs
    /// are skipped.
    async fn find_after(
        &self,
        prefix: &str,
        mut after: String,
        number_of: impl Fn(ObjectName) -> Option<u64>,
    ) -> BucketResult<Option<u64>> {
        loop {
            let page = self.bucket.list(prefix, &after).await?;
            let found = page.objects.iter().find_map(|object| number_of(object.name.parse().ok()?));
            match page.objects.last() {
                Some(last) if found.is_none() && !page.is_last => after.clone_from(&last.name),
                Some(_) | None => return Ok(found),
            }
        }
    }

    /// Returns the slots that have a base with a manifest, ascending.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub async fn bases(&self) -> BucketResult<Vec<u64>> {
        let objects = self.list(name::BASE, "").await?;
        let manifests = objects.iter().filter_map(|object| match object.name.parse() {
            Ok(ObjectName::Manifest(slot)) => Some(slot),
            Ok(_) | Err(_) => None,
        });
        Ok(manifests.collect())
    }

    /// Returns the manifest of the base at `slot`, if it exists.
    ///
    /// # Errors
    /// Errors of the bucket; an object that does not open.
    pub async fn manifest(&self, slot: u64) -> Result<Option<Manifest>, ReplicaError> {
        let name = ObjectName::Manifest(slot);
        let Some(bytes) = self.bucket.read(&name.to_string()).await? else { return Ok(None) };
        Ok(Some(Manifest::open(slot, &bytes, &self.sealer).map_err(|fault| unreadable(&name, fault))?))
    }

    /// Reads an object and checks its digest.
    ///
    /// # Errors
    /// Errors of the bucket; an object that is missing or has other bytes.
    pub(super) async fn read_exact(&self, name: &ObjectName, digest: &Digest) -> Result<Bytes, ReplicaError> {
        let bytes = self.read_existing(name).await?;
        match sha256(&bytes) == *digest {
            true => Ok(bytes),
            false => Err(unreadable(name, ObjectFault::Damaged("its SHA-256 is not the manifest's"))),
        }
    }

    /// Reads an object that must exist.
    ///
    /// # Errors
    /// Errors of the bucket; a missing object.
    pub(super) async fn read_existing(&self, name: &ObjectName) -> Result<Bytes, ReplicaError> {
        let found = self.bucket.read(&name.to_string()).await?;
        found.ok_or_else(|| ReplicaError::Missing { name: name.to_string() })
    }
}

/// Returns the error for an unreadable object.
pub(super) fn unreadable(name: &ObjectName, fault: ObjectFault) -> ReplicaError {
    ReplicaError::Object { name: name.to_string(), fault }
}
