//! Verification of a replica's objects: their names, the order and chain of the log, sizes and hashes of bases, and the
//! removal of expired keys. `deep` also opens every object with the master key.
//!
//! The bucket may be written to meanwhile. Lists are taken first, and objects created or collected later are not
//! reported. Memory use is a few bytes per object, plus one object per concurrent request.

mod base;
mod inventory;
mod log;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use self::inventory::Inventory;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, BucketResult};
use crate::store::replica::identity::Identity;
use crate::store::replica::{ObjectName, Sealer};

/// Maximum number of findings listed; further ones are only counted.
const FINDINGS_MAX: usize = 1000;
/// Maximum number of concurrent reads.
const READS_AT_ONCE: usize = 8;
/// Maximum number of tries of a call, with a delay that doubles.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 200 });

/// A problem of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name below the prefix.
    pub object: String,
    /// The problem.
    pub problem: String,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the verification found no problems.
    pub ok: bool,
    /// Number of slots in the log.
    pub slots: u64,
    /// Number of bases with a manifest.
    pub bases: u64,
    /// The problems.
    pub findings: Vec<Finding>,
}

/// Depth and time of a verification.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// Whether to open every object.
    pub deep: bool,
    /// Current time.
    pub now: Timestamp,
    /// Time for which a key may still exist after its deadline.
    pub key_grace: Duration,
}

/// Problems found so far.
#[derive(Debug, Default)]
struct Findings {
    listed: Vec<Finding>,
    beyond: u64,
}

impl Findings {
    fn add(&mut self, object: impl ToString, problem: impl Into<String>) {
        if self.listed.len() < FINDINGS_MAX {
            self.listed.push(Finding { object: object.to_string(), problem: problem.into() });
        } else {
            self.beyond += 1;
        }
    }

    fn into_list(mut self) -> Vec<Finding> {
        if self.beyond > 0 {
            let problem = format!("{} more problems were found and are not listed", self.beyond);
            self.listed.push(Finding { object: String::new(), problem });
        }
        self.listed
    }
}

/// Shared state of a verification's parts.
struct Verification<'a> {
    bucket: &'a dyn Bucket,
    sealer: Sealer,
    depth: Depth,
    inventory: Inventory,
    findings: Findings,
}

/// Verifies the replica in `bucket`, whose store has the master key `master`.
///
/// # Errors
/// A call to the bucket failed, after retries if they can help.
pub async fn verify(bucket: &dyn Bucket, master: Arc<MasterKey>, depth: Depth) -> BucketResult<Report> {
    let mut findings = Findings::default();
    let inventory = Inventory::take(bucket, &mut findings).await?;
    let Some(sealer) = sealer(bucket, master, &inventory, &mut findings).await? else {
        return Ok(report(&inventory, findings));
    };
    let mut verification = Verification { bucket, sealer, depth, inventory, findings };
    let bases = verification.bases().await?;
    verification.log(&bases).await?;
    verification.keys().await?;
    if depth.deep {
        verification.contents().await?;
    }
    let Verification { inventory, findings, .. } = verification;
    Ok(report(&inventory, findings))
}

fn report(inventory: &Inventory, findings: Findings) -> Report {
    let findings = findings.into_list();
    let (slots, bases) = (inventory.slots.len() as u64, inventory.manifests.len() as u64);
    Report { ok: findings.is_empty(), slots, bases, findings }
}

/// Returns the key that opens the store's objects; `None` if the object `store` is unreadable.
async fn sealer(
    bucket: &dyn Bucket,
    master: Arc<MasterKey>,
    inventory: &Inventory,
    findings: &mut Findings,
) -> BucketResult<Option<Sealer>> {
    let name = ObjectName::Store.to_string();
    let Some(bytes) = read(bucket, &name).await? else {
        if !inventory.is_empty() {
            findings.add(name, "is missing, but other objects exist");
        }
        return Ok(None);
    };
    match Identity::decode(&bytes, &master) {
        Ok(identity) => Ok(Some(Sealer::new(master, identity.store, true))),
        Err(error) => {
            findings.add(name, error.to_string());
            Ok(None)
        }
    }
}

/// Reads an object, and retries transient failures.
async fn read(bucket: &dyn Bucket, name: &str) -> BucketResult<Option<Bytes>> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match bucket.read(name).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(pause).await,
            other => return other,
        }
        pause *= 2;
    }
    bucket.read(name).await
}

fn may_pass(error: &BucketError) -> bool {
    matches!(
        error.kind,
        BucketErrorKind::Unknown
            | BucketErrorKind::Throttled
            | BucketErrorKind::Unreachable
            | BucketErrorKind::Conflict
    )
}

/// Reads objects concurrently, and returns them in the order of their names.
async fn read_all(bucket: &dyn Bucket, names: &[ObjectName]) -> BucketResult<Vec<Option<Bytes>>> {
    let reads = names.iter().map(|name| async move { read(bucket, &name.to_string()).await });
    super::join_all(reads).await.into_iter().collect()
}
