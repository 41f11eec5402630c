//! Content segment keys in the bucket: written before the first slot with a body of the segment, and removed when the
//! content expires. Bodies can't be opened without the key of their segment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::error::ReplicaError;
use super::objects::ReplicaObjects;
use super::shared::{Removal, Shared};
use crate::base::time::Timestamp;
use crate::engine::ports::BucketResult;
use crate::store::Store;
use crate::store::replica::name::{self, ObjectName};
use crate::store::replica::{Kind, content};

/// Interval between two checks of known deadlines.
const SWEEP: Duration = Duration::from_secs(60);
/// Checks between two listings of all keys. A late write of a deposed machine may bring back a removed key.
const SWEEPS_OF_LISTING: u32 = 60;

/// A segment: its bucket, and its number in it.
type Segment = (Timestamp, u32);

/// Writes the keys of `segments` to the bucket. Keys of expired segments are skipped.
pub(super) async fn send(
    objects: &ReplicaObjects,
    store: &Store,
    shared: &Shared,
    segments: &BTreeSet<Segment>,
) -> BucketResult<()> {
    let missing = segments.difference(&*shared.keys()).copied().collect();
    write(objects, store, shared, &missing).await
}

/// Writes keys again that the bucket lost before their deadline. It had the keys of `named` segments, and those that
/// this process wrote or listed.
pub(super) async fn send_lost(
    objects: &ReplicaObjects,
    store: &Store,
    shared: &Shared,
    named: impl Iterator<Item = Segment>,
) -> BucketResult<()> {
    let now = objects.clock.now();
    // A key that is written while the keys are listed must not look lost.
    let mut lost: BTreeSet<Segment> = shared.keys().iter().copied().chain(named).collect();
    for (segment, _) in listed(objects).await?.iter().filter(|(_, size)| *size > 0) {
        lost.remove(segment);
    }
    lost.retain(|(bucket, segment)| *bucket > now && store.sealed_key(*bucket, *segment).is_some());
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().map(|segment| name_of(*segment)).collect();
        tracing::error!(?names, "the bucket lost keys of content that has not expired; writing them again");
    }
    write(objects, store, shared, &lost).await
}

async fn write(
    objects: &ReplicaObjects,
    store: &Store,
    shared: &Shared,
    segments: &BTreeSet<Segment>,
) -> BucketResult<()> {
    for &(bucket, segment) in segments {
        let Some(slot) = store.sealed_key(bucket, segment) else { continue };
        let name = ObjectName::Key { bucket, segment };
        let head = objects.head(Kind::Key, segment.into(), shared.claim.epoch);
        let bytes = content::seal_key(&name, head, &slot, &objects.sealer, &*objects.entropy);
        objects.bucket.overwrite(&name.to_string(), bytes.into()).await?;
        shared.keys().insert((bucket, segment));
    }
    Ok(())
}

/// Removes the keys of expired content from the bucket, as long as the future is polled.
pub(super) async fn sweep(objects: ReplicaObjects, store: Arc<Store>, shared: Arc<Shared>) {
    let (mut sweeps, mut emptied) = (0, BTreeSet::new());
    loop {
        if sweeps == 0 || shared.takes_lost_keys() {
            // A failed listing is repeated at the next check.
            sweeps = if list(&objects, &shared).await.is_ok() { SWEEPS_OF_LISTING } else { 1 };
        }
        sweeps -= 1;
        let removed = remove_over(&objects, &store, &shared, &mut emptied).await.map_err(ReplicaError::from);
        shared.removed(Removal::Keys, removed.err().as_ref());
        sleep(SWEEP).await;
    }
}

/// Reads the keys in the bucket: earlier epochs left some, and no row may name their segments any more.
async fn list(objects: &ReplicaObjects, shared: &Shared) -> BucketResult<()> {
    let found = listed(objects).await?;
    shared.keys().extend(found.into_iter().map(|(segment, _)| segment));
    Ok(())
}

/// Returns the segments whose keys are in the bucket, each with the size of its key.
async fn listed(objects: &ReplicaObjects) -> BucketResult<Vec<(Segment, u64)>> {
    let found = objects.list(name::KEYS, "").await?;
    let keys = found.iter().filter_map(|object| match object.name.parse() {
        Ok(ObjectName::Key { bucket, segment }) => Some(((bucket, segment), object.size)),
        Ok(_) | Err(_) => None,
    });
    Ok(keys.collect())
}

fn name_of((bucket, segment): Segment) -> String {
    ObjectName::Key { bucket, segment }.to_string()
}

/// Overwrites and removes the keys of content that was destroyed here. First overwrites all of them, which makes the
/// content unreadable, because the bucket may refuse to remove them. `emptied` has the keys that are still to be
/// removed.
pub(super) async fn remove_over(
    objects: &ReplicaObjects,
    store: &Store,
    shared: &Shared,
    emptied: &mut BTreeSet<Segment>,
) -> BucketResult<()> {
    let now = objects.clock.now();
    let over: Vec<Segment> = shared.keys().iter().take_while(|(bucket, _)| *bucket <= now).copied().collect();
    for (bucket, segment) in over {
        if store.has_content(bucket, segment) {
            // The service's clock is in doubt, so content is not destroyed yet.
            continue;
        }
        if empty(objects, (bucket, segment)).await? {
            emptied.insert((bucket, segment));
        }
        shared.keys().remove(&(bucket, segment));
    }
    while let Some(segment) = emptied.first().copied() {
        objects.bucket.remove(&name_of(segment)).await?;
        emptied.remove(&segment);
    }
    Ok(())
}

/// Overwrites and removes a key, if the bucket has it.
pub(super) async fn remove(objects: &ReplicaObjects, segment: Segment) -> BucketResult<()> {
    if empty(objects, segment).await? {
        objects.bucket.remove(&name_of(segment)).await?;
    }
    Ok(())
}

/// Overwrites a key with nothing. Returns whether the bucket has it.
async fn empty(objects: &ReplicaObjects, segment: Segment) -> BucketResult<bool> {
    let name = name_of(segment);
    let Some(beginning) = objects.bucket.read_range(&name, 0, 1).await? else { return Ok(false) };
    if !beginning.is_empty() {
        objects.bucket.overwrite(&name, Bytes::new()).await?;
    }
    Ok(true)
}
