//! The names in a bucket, from one complete list.

use std::collections::{BTreeMap, BTreeSet};

use super::{FIRST_PAUSE, Findings, TRIES, may_pass};
use crate::base::time::Timestamp;
use crate::engine::ports::{Bucket, BucketResult, ObjectInfo, ObjectPage};
use crate::store::replica::ObjectName;

/// A segment of content: its bucket and its number.
pub(super) type Segment = (Timestamp, u32);

/// The objects of a replica by kind, with their sizes.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) slots: BTreeMap<u64, u64>,
    pub(super) parts: BTreeMap<(u64, u32), u64>,
    pub(super) manifests: BTreeSet<u64>,
    pub(super) contents: BTreeMap<(Segment, u64), u64>,
    pub(super) keys: BTreeMap<Segment, u64>,
}

impl Inventory {
    /// Lists the bucket. Names that don't belong to a replica are findings.
    pub(super) async fn take(bucket: &dyn Bucket, findings: &mut Findings) -> BucketResult<Self> {
        let mut inventory = Self::default();
        let mut after = String::new();
        loop {
            let page = page(bucket, &after).await?;
            for object in &page.objects {
                inventory.add(object, findings);
            }
            match page.objects.last() {
                Some(last) if !page.is_last => after.clone_from(&last.name),
                Some(_) | None => return Ok(inventory),
            }
        }
    }

    /// Returns whether the bucket is empty, except perhaps for the object `store`.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.parts.is_empty() && self.contents.is_empty() && self.keys.is_empty()
    }

    fn add(&mut self, object: &ObjectInfo, findings: &mut Findings) {
        match object.name.parse() {
            Ok(ObjectName::Slot(slot)) => drop(self.slots.insert(slot, object.size)),
            Ok(ObjectName::Part { slot, part }) => drop(self.parts.insert((slot, part), object.size)),
            Ok(ObjectName::Manifest(slot)) => drop(self.manifests.insert(slot)),
            Ok(ObjectName::Content { bucket, segment, offset }) => {
                self.contents.insert(((bucket, segment), offset), object.size);
            }
            Ok(ObjectName::Key { bucket, segment }) => drop(self.keys.insert((bucket, segment), object.size)),
            Ok(ObjectName::Store | ObjectName::Probe(_)) => {}
            Err(_) => findings.add(&object.name, "is not the name of an object of a replica"),
        }
    }
}

async fn page(bucket: &dyn Bucket, after: &str) -> BucketResult<ObjectPage> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match bucket.list("", after).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(pause).await,
            other => return other,
        }
        pause *= 2;
    }
    bucket.list("", after).await
}
