//! Checks that a bucket is suitable for a log: it honours `If-None-Match`, is strongly consistent, keeps no deleted
//! objects, and has an accurate clock. Runs at each start and in `doctor`.
//!
//! A service that accepts the condition and ignores it is dangerous, because two machines could both own the log.

use std::time::Duration;

use bytes::Bytes;

use crate::base::entropy::{self, Entropy};
use crate::base::time::Timestamp;
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, BucketResult, BucketSettings, Creation, Versioning};
use crate::store::replica::name::PROBE;
use crate::store::replica::{Head, Holder, Kind, ObjectName};

/// Maximum difference between our clock and the bucket's.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(300);
/// Concurrent creates of one name that the race makes.
pub const RACE: usize = 16;
/// Age after which the probe of an interrupted process is removed.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of probes examined for removal.
const LEFT_MAX: usize = 20;
/// Maximum number of tries of a create that conflicts with another one.
const TRIES: usize = 5;

/// Reason why a bucket must not hold a replica.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A call failed; the bucket may be suitable.
    #[error(transparent)]
    Failed(#[from] BucketError),
    /// The condition is ignored or unknown.
    #[error("the bucket does not honour conditional writes (If-None-Match: *): {0}")]
    NoConditions(String),
    /// Written objects are not visible at once.
    #[error("the bucket does not show a new object at once: {0}")]
    Stale(&'static str),
    /// The bucket keeps overwritten or removed objects.
    #[error("the bucket {0}, so deleted content stays recoverable")]
    Keeps(&'static str),
    /// The bucket's clock differs from ours.
    #[error("this machine's clock differs from the bucket's by {difference_seconds} s ({ours} here, {bucket} there)")]
    Clock {
        /// The difference.
        difference_seconds: u64,
        /// Our time.
        ours: Timestamp,
        /// The bucket's time.
        bucket: Timestamp,
    },
}

/// Runs all checks of a start. Returns warnings for the operator.
///
/// # Errors
/// [`Unfit`].
pub async fn admit<B: Bucket + BucketSettings + ?Sized>(
    bucket: &B,
    holder: &Holder,
    entropy: &dyn Entropy,
    now: impl Fn() -> Timestamp,
    allows_versioned: bool,
) -> Result<Vec<String>, Unfit> {
    conditional_writes(bucket, holder, entropy, now()).await?;
    clock(bucket.date(), now())?;
    remove_left(bucket, now()).await;
    let mut warnings = Vec::new();
    match keeps_nothing(bucket).await {
        Ok(()) => {}
        Err(Unfit::Failed(error)) => {
            warnings.push(format!("could not check whether the bucket keeps versions: {error}"))
        }
        Err(unfit) if allows_versioned => warnings.push(unfit.to_string()),
        Err(unfit) => return Err(unfit),
    }
    Ok(warnings)
}

/// Creates a name twice: the second create must fail and leave the first object. Each must be visible at once.
///
/// # Errors
/// [`Unfit`].
pub async fn conditional_writes<B: Bucket + ?Sized>(
    bucket: &B,
    holder: &Holder,
    entropy: &dyn Entropy,
    now: Timestamp,
) -> Result<(), Unfit> {
    let name = random_name(entropy);
    let [first, second] = [1, 2].map(|number| object(holder, number, now));
    let judged = twice(bucket, &name, first, second).await;
    let removed = bucket.remove(&name).await;
    judged?;
    removed?;
    match bucket.read(&name).await? {
        None => Ok(()),
        Some(_) => Err(Unfit::Stale("a deleted object could still be read")),
    }
}

async fn twice<B: Bucket + ?Sized>(bucket: &B, name: &str, first: Bytes, second: Bytes) -> Result<(), Unfit> {
    if create(bucket, name, first.clone()).await? == Creation::Exists {
        return Err(Unfit::NoConditions("an unused name is reported as existing".to_owned()));
    }
    if create(bucket, name, second).await? == Creation::Created {
        return Err(Unfit::NoConditions("a name was created twice".to_owned()));
    }
    match bucket.read(name).await? {
        Some(bytes) if bytes == first => {}
        Some(_) => return Err(Unfit::NoConditions("a refused create replaced the object".to_owned())),
        None => return Err(Unfit::Stale("a created object could not be read")),
    }
    let page = bucket.list(name, "").await?;
    let is_listed = page.objects.iter().any(|object| object.name == name && object.size == first.len() as u64);
    if is_listed { Ok(()) } else { Err(Unfit::Stale("a created object is not in the list")) }
}

/// Creates an object conditionally, and retries on conflicts. If the service does not support the condition, returns
/// [`Unfit::NoConditions`].
async fn create<B: Bucket + ?Sized>(bucket: &B, name: &str, bytes: Bytes) -> Result<Creation, Unfit> {
    let mut tries = 1;
    loop {
        match bucket.create(name, bytes.clone()).await {
            Err(error) if error.kind == BucketErrorKind::Conflict && tries < TRIES => tries += 1,
            Err(error) if error.kind == BucketErrorKind::Unsupported => {
                return Err(Unfit::NoConditions(error.message));
            }
            other => return Ok(other?),
        }
    }
}

/// Creates one name [`RACE`] times concurrently: exactly one create must succeed.
///
/// # Errors
/// [`Unfit`].
pub async fn race<B: Bucket + ?Sized>(
    bucket: &B,
    holder: &Holder,
    entropy: &dyn Entropy,
    now: Timestamp,
) -> Result<(), Unfit> {
    let name = random_name(entropy);
    let runners = (0..RACE as u64).map(|number| {
        let bytes = object(holder, number, now);
        let name = name.as_str();
        async move { (bytes.clone(), bucket.create(name, bytes).await) }
    });
    let results = super::join_all(runners).await;
    let seen = bucket.read(&name).await;
    let removed = bucket.remove(&name).await;
    judge(&results, seen?)?;
    Ok(removed?)
}

fn judge(results: &[(Bytes, BucketResult<Creation>)], seen: Option<Bytes>) -> Result<(), Unfit> {
    let mut winners = results.iter().filter(|(_, result)| *result == Ok(Creation::Created));
    let (winner, others) = (winners.next(), winners.count());
    let failure = results
        .iter()
        .find_map(|(_, result)| result.as_ref().err().filter(|error| error.kind != BucketErrorKind::Conflict));
    match (winner, failure, seen) {
        (Some(_), ..) if others > 0 => {
            Err(Unfit::NoConditions(format!("of {RACE} concurrent creates {} succeeded", others + 1)))
        }
        (Some((bytes, _)), _, Some(seen)) if *bytes != seen => {
            Err(Unfit::NoConditions(format!("after {RACE} concurrent creates, a refused object was kept")))
        }
        (_, Some(failure), _) => Err(failure.clone().into()),
        (Some(_), None, Some(_)) => Ok(()),
        (_, None, None) => Err(Unfit::Stale("a created object could not be read")),
        (None, None, Some(_)) => Err(Unfit::NoConditions(format!("of {RACE} concurrent creates none succeeded"))),
    }
}

/// Checks that removed objects are not kept.
///
/// # Errors
/// [`Unfit::Keeps`], or the settings could not be read.
pub async fn keeps_nothing<B: BucketSettings + ?Sized>(bucket: &B) -> Result<(), Unfit> {
    // A service without such a setting does not keep versions.
    let is_absent = |kind| matches!(kind, BucketErrorKind::Refused | BucketErrorKind::Unsupported);
    let absent = |error: BucketError| if is_absent(error.kind) { None } else { Some(error) };
    match bucket.versioning().await.or_else(|error| absent(error).map_or(Ok(Versioning::Off), Err))? {
        Versioning::Off => {}
        Versioning::Enabled => return Err(Unfit::Keeps("keeps versions")),
        Versioning::Suspended => return Err(Unfit::Keeps("keeps the versions from before versioning was suspended")),
    }
    let is_locked = bucket.has_object_lock().await.or_else(|error| absent(error).map_or(Ok(false), Err))?;
    if is_locked { Err(Unfit::Keeps("locks objects against removal")) } else { Ok(()) }
}

/// Checks that both clocks agree.
///
/// # Errors
/// [`Unfit::Clock`]. A bucket without a clock passes the check.
pub fn clock(bucket: Option<Timestamp>, ours: Timestamp) -> Result<(), Unfit> {
    let Some(bucket) = bucket else { return Ok(()) };
    let difference = bucket.since(ours).max(ours.since(bucket));
    if difference <= CLOCK_DIFFERENCE_MAX {
        return Ok(());
    }
    Err(Unfit::Clock { difference_seconds: difference.as_secs(), ours, bucket })
}

/// Removes probes of interrupted processes. Probes less than a day old may be in use.
async fn remove_left<B: Bucket + ?Sized>(bucket: &B, now: Timestamp) {
    let Ok(page) = bucket.list(PROBE, "").await else { return };
    for object in page.objects.iter().take(LEFT_MAX) {
        let read = bucket.read(&object.name).await;
        let made_at = read.ok().flatten().and_then(|bytes| Head::decode(&bytes).ok().map(|(head, _)| head.time));
        if made_at.is_some_and(|made_at| now.since(made_at) > LEFT_AFTER)
            && let Err(error) = bucket.remove(&object.name).await
        {
            tracing::warn!(%error, "could not remove an old probe from the bucket; the next probe tries again");
        }
    }
}

/// Returns an unused name.
pub fn random_name(entropy: &dyn Entropy) -> String {
    ObjectName::Probe(hex::encode(entropy::bytes::<16>(entropy))).to_string()
}

/// Returns a probe's bytes, which differ for each number.
pub fn object(holder: &Holder, number: u64, time: Timestamp) -> Bytes {
    Head { kind: Kind::Probe, number, epoch: 0, holder: holder.clone(), time }.encode().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;
    use crate::engine::memory_bucket::{BucketFault, MemoryStore};
    use crate::engine::ports::BucketOperation;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn holder() -> Holder {
        "doctor".parse().unwrap()
    }

    async fn admitted(
        store: &MemoryStore,
        fault: Option<(BucketOperation, BucketFault)>,
    ) -> Result<Vec<String>, Unfit> {
        let bucket = store.bucket();
        if let Some((operation, fault)) = fault {
            // The fault skips the first call of the operation, and so affects the second create and the read after it.
            let mut seen = 0;
            bucket.draw(move |call| {
                seen += usize::from(call.operation == operation);
                (call.operation == operation && (operation != BucketOperation::Create || seen == 2)).then_some(fault)
            });
        }
        admit(&bucket, &holder(), &SeededEntropy::new(1), || NOW, false).await
    }

    fn store() -> MemoryStore {
        let store = MemoryStore::default();
        store.set_date(NOW);
        store
    }

    #[tokio::test]
    async fn a_suitable_bucket_is_admitted_and_left_empty() {
        let store = store();
        assert_eq!(admitted(&store, None).await, Ok(Vec::new()));
        assert_eq!(store.names(), [""; 0]);
    }

    #[tokio::test]
    async fn a_bucket_that_ignores_the_condition_is_refused() {
        let store = store();
        let found = admitted(&store, Some((BucketOperation::Create, BucketFault::IgnoredCondition))).await;
        assert!(matches!(found, Err(Unfit::NoConditions(_))), "{found:?}");
        assert_eq!(store.names(), [""; 0]);
    }

    #[tokio::test]
    async fn a_bucket_with_stale_reads_or_lists_is_refused() {
        for operation in [BucketOperation::Read, BucketOperation::List] {
            let found = admitted(&store(), Some((operation, BucketFault::Stale))).await;
            assert!(matches!(found, Err(Unfit::Stale(_))), "{operation}: {found:?}");
        }
    }

    #[tokio::test]
    async fn a_conflict_is_retried_and_other_failures_are_reported() {
        let conflict = admitted(&store(), Some((BucketOperation::Create, BucketFault::Conflict))).await;
        assert_eq!(conflict, Ok(Vec::new()));
        let forbidden = admitted(&store(), Some((BucketOperation::Create, BucketFault::Forbidden))).await;
        assert!(matches!(forbidden, Err(Unfit::Failed(error)) if error.kind == BucketErrorKind::Forbidden));
    }

    #[tokio::test]
    async fn a_bucket_that_keeps_deleted_objects_is_refused_unless_allowed() {
        for (versioning, is_locked) in
            [(Versioning::Enabled, false), (Versioning::Suspended, false), (Versioning::Off, true)]
        {
            let store = store();
            store.set_settings(Some(versioning), is_locked, Vec::new());
            assert!(matches!(admitted(&store, None).await, Err(Unfit::Keeps(_))), "{versioning:?}");
            let allowed = admit(&store.bucket(), &holder(), &SeededEntropy::new(2), || NOW, true).await.unwrap();
            assert_eq!(allowed.len(), 1);
        }
        let unknown = admitted(&store(), Some((BucketOperation::Settings, BucketFault::Forbidden))).await.unwrap();
        assert!(unknown[0].contains("could not check"), "credentials may lack the right to read settings");
    }

    #[tokio::test]
    async fn a_clock_that_differs_by_more_than_five_minutes_is_refused() {
        let store = store();
        for (seconds, is_refused) in [(300, false), (301, true)] {
            for date in [NOW + Duration::from_secs(seconds), NOW - Duration::from_secs(seconds)] {
                store.set_date(date);
                let found = admitted(&store, None).await;
                assert_eq!(matches!(found, Err(Unfit::Clock { .. })), is_refused, "{found:?}");
            }
        }
    }

    #[tokio::test]
    async fn old_probes_are_removed_and_recent_ones_are_kept() {
        let store = store();
        store.set_object("probe/old", Some(object(&holder(), 1, NOW - Duration::from_secs(90_000))));
        store.set_object("probe/new", Some(object(&holder(), 1, NOW - Duration::from_secs(3600))));
        store.set_object("probe/strange", Some(Bytes::from_static(b"of somebody else")));
        admitted(&store, None).await.unwrap();
        assert_eq!(store.names(), ["probe/new", "probe/strange"]);
    }

    #[tokio::test]
    async fn exactly_one_of_many_concurrent_creates_must_succeed() {
        let store = store();
        assert_eq!(race(&store.bucket(), &holder(), &SeededEntropy::new(3), NOW).await, Ok(()));
        let bucket = store.bucket();
        bucket.draw(|call| (call.operation == BucketOperation::Create).then_some(BucketFault::IgnoredCondition));
        let found = race(&bucket, &holder(), &SeededEntropy::new(4), NOW).await;
        assert!(matches!(&found, Err(Unfit::NoConditions(why)) if why.contains("16 succeeded")), "{found:?}");
        let bucket = store.bucket();
        bucket.draw(|call| (call.operation == BucketOperation::Create).then_some(BucketFault::AnswerLost));
        assert!(matches!(race(&bucket, &holder(), &SeededEntropy::new(5), NOW).await, Err(Unfit::Failed(_))));
        assert_eq!(store.names(), [""; 0]);
    }
}
