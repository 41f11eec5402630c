//! Detection of objects that the bucket lost: the identity, the newest base, and the log since that base. Lost content
//! keys are written again at once, because the rows and the log are complete without them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::ReplicaError;
use super::keys;
use super::objects::ReplicaObjects;
use super::shared::Shared;
use crate::store::Store;
use crate::store::replica::manifest::Manifest;
use crate::store::replica::name::{self, ObjectName};

/// The check for lost objects, which an active machine makes while its log grows.
pub(super) struct LossCheck {
    objects: ReplicaObjects,
    store: Arc<Store>,
    shared: Arc<Shared>,
    /// Last slot at the last check.
    looked_at: u64,
}

impl LossCheck {
    pub(super) fn new(objects: ReplicaObjects, store: Arc<Store>, shared: Arc<Shared>) -> Self {
        let looked_at = shared.claim.slot;
        Self { objects, store, shared, looked_at }
    }

    /// Returns the lost objects, after which a new base is needed. Checks nothing if the log has not grown since the
    /// last check.
    pub(super) async fn look(&mut self, newest: Option<&Manifest>) -> Result<Vec<String>, ReplicaError> {
        let position = self.shared.position();
        if std::mem::replace(&mut self.looked_at, position.slot) == position.slot {
            return Ok(Vec::new());
        }
        let manifest = newest.map(|newest| ObjectName::Manifest(newest.slot));
        let needed = [Some(ObjectName::Store), Some(ObjectName::Slot(position.slot)), manifest];
        let mut lost = Vec::new();
        for name in needed.into_iter().flatten() {
            if !self.objects.has(&name).await? {
                lost.push(name.to_string());
            }
        }
        if let Some(newest) = newest {
            lost.append(&mut self.parts(newest).await?);
            lost.extend(self.slot(newest.slot, position.slot).await?);
        }
        if lost.is_empty() {
            // If anything is lost, a new base writes all keys again.
            let named = newest.iter().flat_map(|newest| &newest.content).map(|range| (range.bucket, range.segment));
            keys::send_lost(&self.objects, &self.store, &self.shared, named).await?;
        }
        Ok(lost)
    }

    /// Returns the lost parts of a base.
    async fn parts(&self, base: &Manifest) -> Result<Vec<String>, ReplicaError> {
        let prefix = ObjectName::base_prefix(base.slot);
        let objects = self.objects.list(&prefix, &prefix).await?.into_iter();
        let found: BTreeMap<_, _> = objects.map(|object| (object.name, object.size)).collect();
        let named = (1..).zip(&base.parts);
        let named = named.map(|(part, info)| (ObjectName::Part { slot: base.slot, part }.to_string(), info.bytes));
        Ok(named.filter(|(name, bytes)| found.get(name) != Some(bytes)).map(|(name, _)| name).collect())
    }

    /// Returns the first lost slot from `first` to `last`. Every check reads all names, because a slot can be lost at
    /// any time: one request for each 1000 slots since the base.
    async fn slot(&self, first: u64, last: u64) -> Result<Option<String>, ReplicaError> {
        let begun = first.saturating_sub(1);
        let (mut after, mut seen) = (ObjectName::Slot(begun).to_string(), begun);
        while seen < last {
            let page = self.objects.bucket.list(name::LOG, &after).await?;
            for object in &page.objects {
                match object.name.parse() {
                    Ok(ObjectName::Slot(slot)) if slot == seen + 1 => seen = slot,
                    Ok(ObjectName::Slot(_)) => return Ok(Some(ObjectName::Slot(seen + 1).to_string())),
                    // Other programs' objects are not part of the log.
                    Ok(_) | Err(_) => {}
                }
            }
            match page.objects.last() {
                Some(object) if !page.is_last => after.clone_from(&object.name),
                Some(_) | None => break,
            }
        }
        Ok((seen < last).then(|| ObjectName::Slot(seen + 1).to_string()))
    }
}
