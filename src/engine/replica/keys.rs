//! Content segment keys in the bucket: written before the first slot with a body of the segment, and removed when the
//! content expires. Bodies can't be opened without the key of their segment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::objects::ReplicaObjects;
use super::shared::Shared;
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
    let missing: Vec<Segment> = segments.difference(&*shared.keys()).copied().collect();
    for (bucket, segment) in missing {
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
    let mut sweeps = 0;
    loop {
        if sweeps == 0 || shared.takes_lost_keys() {
            // A failed listing is repeated at the next check.
            sweeps = if list(&objects, &shared).await.is_ok() { SWEEPS_OF_LISTING } else { 1 };
        }
        sweeps -= 1;
        if let Err(error) = remove_over(&objects, &store, &shared).await {
            tracing::warn!(%error, "could not remove content keys from the bucket; trying again");
        }
        sleep(SWEEP).await;
    }
}

/// Reads the keys in the bucket: earlier epochs left some, and no row may name their segments any more.
async fn list(objects: &ReplicaObjects, shared: &Shared) -> BucketResult<()> {
    let found = objects.list(name::KEYS, "").await?;
    let keys = found.iter().filter_map(|object| match object.name.parse() {
        Ok(ObjectName::Key { bucket, segment }) => Some((bucket, segment)),
        Ok(_) | Err(_) => None,
    });
    shared.keys().extend(keys);
    Ok(())
}

/// Overwrites and removes the keys of content that was destroyed here.
pub(super) async fn remove_over(objects: &ReplicaObjects, store: &Store, shared: &Shared) -> BucketResult<()> {
    let now = objects.clock.now();
    let over: Vec<Segment> = shared.keys().iter().take_while(|(bucket, _)| *bucket <= now).copied().collect();
    for (bucket, segment) in over {
        if store.has_content(bucket, segment) {
            // The service's clock is in doubt, so content is not destroyed yet.
            continue;
        }
        remove(objects, (bucket, segment)).await?;
        shared.keys().remove(&(bucket, segment));
    }
    Ok(())
}

/// Overwrites and removes a key, if the bucket has it.
pub(super) async fn remove(objects: &ReplicaObjects, (bucket, segment): Segment) -> BucketResult<()> {
    let key = ObjectName::Key { bucket, segment };
    if objects.has(&key).await? {
        let name = key.to_string();
        objects.bucket.overwrite(&name, Bytes::new()).await?;
        objects.bucket.remove(&name).await?;
    }
    Ok(())
}
