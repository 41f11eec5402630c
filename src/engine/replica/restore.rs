//! A restore: builds a store from a base and the log after it, beside the active machine, whose collection may remove
//! what is being read. The restore then begins again with the newer base.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use super::error::ReplicaError;
use super::follow::{FollowStep, LogFollower};
use super::objects::ReplicaObjects;
use super::rebuild::{Rebuild, base_before, build};
use crate::base::time::Timestamp;
use crate::store::master_key::Raw;
use crate::store::replica::ObjectName;
use crate::store::replica::manifest::Manifest;
use crate::store::restore::{Lineage, StagedRestore};

/// Waits before missing content keys are asked for again.
const KEY_WAITS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// Arguments of a restore.
pub struct RestorePlan<'a> {
    /// The data directory, which exists and is empty.
    pub directory: &'a Path,
    /// The master key of the store.
    pub key: Raw,
    /// Relation of the copy to the original.
    pub lineage: Lineage,
    /// Names of further files of the data directory.
    pub beside: &'static [&'static str],
    /// Time of the state; `None` for the newest.
    pub until: Option<Timestamp>,
}

/// A restored store that is not in its place yet. Dropping it removes it.
pub struct RestoredReplica {
    /// The store, at the requested time.
    pub log: LogFollower,
    /// The base that it was built from.
    pub manifest: Manifest,
    /// The gap at which the log ends before the requested time.
    pub gap: Option<ReplicaError>,
    /// Names of the content keys that the bucket lacks before their deadline.
    pub missing_keys: Vec<String>,
    staged: StagedRestore,
}

impl RestoredReplica {
    /// Closes the store, and moves it to the data directory.
    ///
    /// # Errors
    /// File system errors.
    pub fn install(self) -> Result<(), ReplicaError> {
        let Self { mut log, staged, .. } = self;
        log.follower.checkpoint()?;
        drop(log);
        Ok(staged.install()?)
    }
}

/// Restores the state of the last batch at or before the requested time. `report` gets a line for each step.
///
/// # Errors
/// Errors of the bucket; [`ReplicaError::NoBase`] if no base is as old as the time; the directory.
pub async fn restore(
    objects: &ReplicaObjects,
    plan: &RestorePlan<'_>,
    report: &(dyn Fn(String) + Sync),
) -> Result<RestoredReplica, ReplicaError> {
    loop {
        let manifest = base_before(objects, plan.until).await?;
        report(format!("restoring the base of {}", manifest.taken_at));
        let slot = manifest.slot;
        let restored = from_base(objects, plan, manifest, report).await;
        if matches!(&restored, Ok(RestoredReplica { gap: None, .. })) {
            return restored;
        }
        match base_before(objects, plan.until).await {
            Ok(newest) if newest.slot > slot => report("a newer base replaced this one; starting again".to_owned()),
            Ok(_) => return restored,
            Err(error) => return Err(error),
        }
    }
}

async fn from_base(
    objects: &ReplicaObjects,
    plan: &RestorePlan<'_>,
    manifest: Manifest,
    report: &(dyn Fn(String) + Sync),
) -> Result<RestoredReplica, ReplicaError> {
    let staged = StagedRestore::begin(&objects.disk, plan.directory)?;
    let directory = staged.path();
    let rebuild = Rebuild { directory: &directory, key: plan.key.clone(), lineage: plan.lineage, beside: plan.beside };
    let mut log = build(objects, &manifest, rebuild, |_, _| {}).await?;
    log.until = plan.until;
    report("applying the log".to_owned());
    let gap = apply(&mut log, objects).await?;
    log.end(objects)?;
    let missing_keys = missing_keys(&log, objects).await?;
    let latest = objects.latest_time().await?;
    if latest > objects.clock.now() {
        log.follower.content_was_destroyed(latest)?;
    }
    Ok(RestoredReplica { log, manifest, gap, missing_keys, staged })
}

/// Applies the log up to the requested time, or to its end. Returns the gap at which the log ends before that.
async fn apply(log: &mut LogFollower, objects: &ReplicaObjects) -> Result<Option<ReplicaError>, ReplicaError> {
    loop {
        match log.step(objects, |_| Ok(())).await {
            Ok(FollowStep::Applied(_)) => {}
            Ok(FollowStep::Reached) => return Ok(None),
            Ok(FollowStep::End) if log.lacks_slot(objects).await? => {
                let name = ObjectName::Slot(log.cursor.slot + 1).to_string();
                return Ok(Some(ReplicaError::Missing { name }));
            }
            Ok(FollowStep::End) => return Ok(None),
            Err(error) if error.needs_base() => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the names of the content keys that the bucket lacks before their deadline, after it was asked several times.
async fn missing_keys(log: &LogFollower, objects: &ReplicaObjects) -> Result<Vec<String>, ReplicaError> {
    for wait in KEY_WAITS {
        if log.adopt_missing_keys(objects).await?.is_empty() {
            return Ok(Vec::new());
        }
        sleep(wait).await;
    }
    log.adopt_missing_keys(objects).await
}
