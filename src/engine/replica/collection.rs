//! Collection: removes the objects that no restore within the retention needs, from the lowest slot on. Claims are kept
//! forever, because a writer that was stalled must still find the claim that deposed it.
//!
//! It runs after each base. A collection that failed is repeated at its own pace: unneeded objects do no harm, and
//! another base would not help.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::error::ReplicaError;
use super::keys;
use super::objects::ReplicaObjects;
use super::shared::{Removal, Shared};
use crate::base::time::Timestamp;
use crate::engine::ports::ObjectInfo;
use crate::store::Store;
use crate::store::replica::name::{self, ObjectName};
use crate::store::replica::{Head, Kind};

/// Minimum size of an object that is not a claim, in bytes.
const CLAIM_BYTES_MAX: u64 = 4096;
/// Size of the first line, in bytes.
const LINE_BYTES: u64 = 256;
/// Wait after the first failure. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// Maximum wait. Each collection lists the log, which is not free of charge.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The collector of one active machine.
pub(super) struct Collector {
    objects: ReplicaObjects,
    shared: Arc<Shared>,
    /// Claims of earlier epochs.
    claims: BTreeSet<u64>,
    retention: Duration,
    store: Arc<Store>,
    retry: Option<Retry>,
}

/// The next try of a collection that failed.
struct Retry {
    /// The time of the next try, on the machine's continuous clock.
    at: Duration,
    /// The wait before the next try.
    wait: Duration,
    /// Number of the log's recoveries before the failure. After the next recovery the collection is tried early,
    /// because the bucket had failed as a whole. `None` after that try, so that an unsteady bucket isn't listed every
    /// second.
    recoveries: Option<u64>,
}

impl Collector {
    pub(super) const fn new(
        objects: ReplicaObjects,
        store: Arc<Store>,
        shared: Arc<Shared>,
        retention: Duration,
    ) -> Self {
        Self { objects, shared, claims: BTreeSet::new(), retention, store, retry: None }
    }

    /// Returns the time of the oldest of `bases`.
    pub(super) async fn oldest(&self, bases: &[u64]) -> Result<Option<Timestamp>, ReplicaError> {
        let Some(slot) = bases.first() else { return Ok(None) };
        Ok(self.objects.manifest(*slot).await?.map(|manifest| manifest.taken_at))
    }

    /// Removes objects that are no longer needed.
    pub(super) async fn collect(&mut self) {
        let recoveries = Some(self.shared.recoveries());
        let wait = self.retry.as_ref().map_or(FIRST_WAIT, |retry| (retry.wait * 2).min(LONGEST_WAIT));
        self.collect_or_retry(wait, recoveries).await;
    }

    /// Repeats a collection that failed, once it is time or the log has recovered.
    pub(super) async fn collect_again(&mut self) {
        let Some(Retry { at, wait, recoveries }) = self.retry else { return };
        if at <= self.objects.real.monotonic() {
            self.collect().await;
        } else if recoveries.is_some_and(|before| before != self.shared.recoveries()) {
            self.collect_or_retry(wait, None).await;
        }
    }

    async fn collect_or_retry(&mut self, wait: Duration, recoveries: Option<u64>) {
        let removed = self.remove_unneeded().await;
        let retry = || Retry { at: self.objects.real.monotonic() + wait, wait, recoveries };
        self.retry = removed.is_err().then(retry);
        self.shared.removed(Removal::Unneeded, removed.err().as_ref());
    }

    async fn remove_unneeded(&mut self) -> Result<(), ReplicaError> {
        let now = self.objects.clock.now();
        let mut kept = None;
        // Use the newest base that is old enough for every time within the retention, or else the oldest one.
        for slot in self.objects.bases().await?.into_iter().rev() {
            let Some(manifest) = self.objects.manifest(slot).await? else { continue };
            kept = Some((slot, manifest.taken_at));
            if now.since(manifest.taken_at) >= self.retention {
                break;
            }
        }
        let Some((slot, taken_at)) = kept else { return Ok(()) };
        // Earlier times can't be restored once the first slot is removed.
        self.shared.set_restorable_from(taken_at);
        self.remove_slots(slot).await?;
        self.remove_bases(slot).await?;
        self.remove_unfinished_bases().await?;
        self.remove_content(now).await
    }

    /// Removes the slots below `end`, except claims.
    async fn remove_slots(&mut self, end: u64) -> Result<(), ReplicaError> {
        for object in self.objects.list(name::LOG, "").await? {
            let Ok(ObjectName::Slot(slot)) = object.name.parse() else { continue };
            if slot >= end {
                break;
            }
            if !self.is_claim(slot, &object).await? {
                self.objects.bucket.remove(&object.name).await?;
            }
        }
        Ok(())
    }

    async fn is_claim(&mut self, slot: u64, object: &ObjectInfo) -> Result<bool, ReplicaError> {
        // This process's claim. Later slots are not claims.
        let claim = self.shared.claim.slot;
        if slot == claim || self.claims.contains(&slot) {
            return Ok(true);
        }
        if slot > claim || object.size > CLAIM_BYTES_MAX {
            return Ok(false);
        }
        let Some(line) = self.objects.bucket.read_range(&object.name, 0, LINE_BYTES).await? else { return Ok(false) };
        // A slot that can't be read is kept.
        let is_claim = Head::decode(&line).map_or(true, |(head, _)| head.kind == Kind::Claim);
        if is_claim {
            self.claims.insert(slot);
        }
        Ok(is_claim)
    }

    /// Removes the bases below `end`. Each manifest is removed first, so that an incomplete base never looks complete.
    async fn remove_bases(&self, end: u64) -> Result<(), ReplicaError> {
        let objects = self.objects.list(name::BASE, "").await?;
        let below = |object: &&ObjectInfo| match object.name.parse() {
            Ok(ObjectName::Manifest(slot) | ObjectName::Part { slot, .. }) => slot < end,
            Ok(_) | Err(_) => false,
        };
        let mut over: Vec<_> = objects.iter().filter(below).collect();
        over.sort_by_key(|object| !matches!(object.name.parse(), Ok(ObjectName::Manifest(_))));
        for object in over {
            self.objects.bucket.remove(&object.name).await?;
        }
        Ok(())
    }

    /// Removes the parts of interrupted bases before the newest complete one. Nothing continues them.
    async fn remove_unfinished_bases(&self) -> Result<(), ReplicaError> {
        let objects = self.objects.list(name::BASE, "").await?;
        let slot_of = |object: &ObjectInfo| match object.name.parse() {
            Ok(ObjectName::Part { slot, .. }) => Some(slot),
            Ok(_) | Err(_) => None,
        };
        let bases = self.objects.bases().await?;
        let Some(newest) = bases.last() else { return Ok(()) };
        for object in &objects {
            let Some(slot) = slot_of(object).filter(|slot| slot < newest && !bases.contains(slot)) else { continue };
            if !self.objects.has(&ObjectName::Manifest(slot)).await? {
                self.objects.bucket.remove(&object.name).await?;
            }
        }
        Ok(())
    }

    /// Removes expired content, each segment's key first: a reader that finds a key expects the content. Content that
    /// the store still has is kept: a doubt about the clock moved its deadline.
    async fn remove_content(&self, now: Timestamp) -> Result<(), ReplicaError> {
        let mut without_key = None;
        for object in self.objects.list(name::CONTENT, "").await? {
            let Ok(ObjectName::Content { bucket, segment, .. }) = object.name.parse() else { continue };
            if bucket > now {
                break;
            }
            if self.store.has_content(bucket, segment) {
                continue;
            }
            if without_key.replace((bucket, segment)) != Some((bucket, segment)) {
                keys::remove(&self.objects, (bucket, segment)).await?;
            }
            self.objects.bucket.remove(&object.name).await?;
        }
        Ok(())
    }
}
