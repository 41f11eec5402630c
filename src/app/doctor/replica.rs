//! Checks whether the bucket of `[replica]` can hold a replica. It must be reachable and fast enough, support
//! conditional writes, keep no deleted objects, delete nothing automatically, and have the right time. Test objects are
//! removed again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Check, DoctorInputs, Verdict};
use crate::app::replica_bucket;
use crate::base::entropy::Entropy;
use crate::engine::bucket::probe::{self, Unfit};
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, BucketResult, BucketSettings as _, Clock as _};
use crate::net::clock::SystemClock;
use crate::net::entropy::OsEntropy;
use crate::net::s3::S3;
use crate::store::replica::{Holder, ObjectName};

const ACCESS: &str = "replica access";
const CONDITIONS: &str = "replica conditional writes";
const CLOCK: &str = "replica clock";
const VERSIONING: &str = "replica versioning";
const LIFECYCLE: &str = "replica lifecycle";
const SPEED: &str = "replica speed";
const OBJECTS: &str = "replica objects";

/// Maximum number of pages of names that are read, with 1,000 names each.
const PAGES_MAX: usize = 100;
/// Maximum number of foreign names that are shown, and their length in characters.
const NAMES_SHOWN: usize = 3;
const NAME_CHARACTERS: usize = 60;
/// Number of small creates that are timed.
const SMALL_CREATES: usize = 5;
/// Size of the object that is timed.
const LARGE_BYTES: usize = 1 << 20;
/// Maximum duration of a small create; slower buckets can't keep up with two objects a second.
const SMALL_MAX: Duration = Duration::from_millis(500);
const LARGE_MAX: Duration = Duration::from_secs(2);

/// Reason why the check did not run.
enum SkippedCheck {
    /// There is no `url`.
    Off,
    /// The bucket could not be opened.
    Failed(String),
}

fn open(patient: &DoctorInputs) -> Result<Arc<S3>, SkippedCheck> {
    let url = patient.config.replica.url.as_ref().ok_or(SkippedCheck::Off)?;
    replica_bucket::open(&patient.config, url).map_err(|cli_error| SkippedCheck::Failed(cli_error.to_string()))
}

/// Runs the check `name` with `look`; `None` without a `url`.
async fn check<F: Future<Output = Check>>(
    patient: &DoctorInputs,
    name: &'static str,
    look: impl FnOnce(Arc<S3>) -> F,
) -> Vec<Check> {
    match open(patient) {
        Ok(bucket) => vec![look(bucket).await],
        Err(SkippedCheck::Off) => Vec::new(),
        Err(SkippedCheck::Failed(why)) => vec![Check::new(name, Verdict::Fail, why, "Correct [replica].")],
    }
}

pub(super) async fn access(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, ACCESS, |bucket| async move {
        let url = patient.config.replica.url.as_ref().map(ToString::to_string).unwrap_or_default();
        match reached(&*bucket).await {
            Ok(()) => {
                Check::new(ACCESS, Verdict::Ok, format!("{url}: an object was written, read, listed and removed"), "")
            }
            Err(error) => failed(ACCESS, &error),
        }
    })
    .await
}

async fn reached(bucket: &dyn Bucket) -> BucketResult<()> {
    let name = probe::random_name(&OsEntropy);
    bucket.create(&name, probe::object(&holder(), 0, now())).await?;
    let seen = bucket.read(&name).await.map(drop);
    let listed = bucket.list(&name, "").await.map(drop);
    bucket.remove(&name).await?;
    seen.and(listed)
}

pub(super) async fn conditional_writes(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, CONDITIONS, |bucket| async move {
        let (holder, entropy) = (holder(), OsEntropy);
        let found = match probe::conditional_writes(&*bucket, &holder, &entropy, now()).await {
            Ok(()) => probe::race(&*bucket, &holder, &entropy, now()).await,
            Err(unfit) => Err(unfit),
        };
        match found {
            Ok(()) => {
                let seen =
                    format!("a name was created only once, and one of {} concurrent creates succeeded", probe::RACE);
                Check::new(CONDITIONS, Verdict::Ok, seen, "")
            }
            Err(Unfit::Failed(error)) => failed(CONDITIONS, &error),
            Err(unfit) => {
                let remedy = "Use another store: with this one two machines could both own the log. \
                              docs/replication.md lists suitable stores.";
                Check::new(CONDITIONS, Verdict::Fail, unfit.to_string(), remedy)
            }
        }
    })
    .await
}

pub(super) async fn clock(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, CLOCK, |bucket| async move {
        // Every answer contains the date.
        let asked = bucket.read("store").await;
        match (bucket.date(), asked) {
            (None, Err(error)) => failed(CLOCK, &error),
            (None, Ok(_)) => Check::new(CLOCK, Verdict::Warn, "the bucket's answers have no date", ""),
            (Some(date), _) => match probe::clock(Some(date), now()) {
                Ok(()) => Check::new(CLOCK, Verdict::Ok, format!("the bucket's clock says {date}"), ""),
                Err(unfit) => {
                    let remedy =
                        "Run a time service such as systemd-timesyncd or chrony. The start is refused until then.";
                    Check::new(CLOCK, Verdict::Fail, unfit.to_string(), remedy)
                }
            },
        }
    })
    .await
}

pub(super) async fn versioning(patient: &DoctorInputs) -> Vec<Check> {
    let is_allowed = patient.config.replica.allow_versioned;
    check(patient, VERSIONING, |bucket| async move {
        match probe::keeps_nothing(&*bucket).await {
            Ok(()) => Check::new(VERSIONING, Verdict::Ok, "the bucket keeps no removed objects", ""),
            Err(Unfit::Failed(error)) => {
                let seen = format!("could not be read: {error}");
                let remedy = "Allow these credentials s3:GetBucketVersioning and \
                              s3:GetBucketObjectLockConfiguration, or check the bucket yourself.";
                Check::new(VERSIONING, Verdict::Warn, seen, remedy)
            }
            Err(unfit) if is_allowed => {
                Check::new(VERSIONING, Verdict::Warn, unfit.to_string(), "replica.allow_versioned accepts this.")
            }
            Err(unfit) => {
                let remedy = "Use a bucket without versioning and object lock, or set replica.allow_versioned. The \
                              start is refused until then.";
                Check::new(VERSIONING, Verdict::Fail, unfit.to_string(), remedy)
            }
        }
    })
    .await
}

pub(super) async fn lifecycle(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, LIFECYCLE, |bucket| async move {
        match bucket.expiries().await {
            Ok(rules) if rules.is_empty() => {
                Check::new(LIFECYCLE, Verdict::Ok, "no rule removes objects below the prefix", "")
            }
            Ok(rules) => {
                let named: Vec<_> =
                    rules.iter().map(|rule| format!("\"{}\" (prefix \"{}\")", rule.id, rule.prefix)).collect();
                let seen = format!("these rules remove objects below the prefix: {}", named.join(", "));
                Check::new(LIFECYCLE, Verdict::Fail, seen, "Remove the rules; Postrider removes old objects.")
            }
            Err(error) if matches!(error.kind, BucketErrorKind::Unsupported | BucketErrorKind::Refused) => {
                Check::new(LIFECYCLE, Verdict::Ok, "the store has no lifecycle rules", "")
            }
            Err(error) => {
                let remedy = "Allow these credentials s3:GetLifecycleConfiguration, or check the bucket yourself.";
                Check::new(LIFECYCLE, Verdict::Warn, format!("could not be read: {error}"), remedy)
            }
        }
    })
    .await
}

pub(super) async fn objects(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, OBJECTS, |bucket| async move {
        match foreign(&*bucket).await {
            Ok((names, count)) => judge_objects(&names, count),
            Err(error) => failed(OBJECTS, &error),
        }
    })
    .await
}

/// Returns the first names below the prefix that are not those of a replica's objects, and their number.
async fn foreign(bucket: &dyn Bucket) -> BucketResult<(Vec<String>, usize)> {
    let (mut after, mut names, mut count) = (String::new(), Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let page = bucket.list("", &after).await?;
        for object in &page.objects {
            if object.name.parse::<ObjectName>().is_err() {
                count += 1;
                if names.len() < NAMES_SHOWN {
                    names.push(object.name.clone());
                }
            }
        }
        match page.objects.last() {
            Some(last) if !page.is_last => after.clone_from(&last.name),
            Some(_) | None => break,
        }
    }
    Ok((names, count))
}

fn judge_objects(names: &[String], count: usize) -> Check {
    if count == 0 {
        return Check::new(OBJECTS, Verdict::Ok, "no other program's objects are below the prefix", "");
    }
    let shown: Vec<_> =
        names.iter().map(|name| format!("{:?}", name.chars().take(NAME_CHARACTERS).collect::<String>())).collect();
    let more = if count > names.len() { ", ..." } else { "" };
    let seen = format!("{count} objects below the prefix are not Postrider's: {}{more}", shown.join(", "));
    let remedy =
        "They are ignored. Use a separate prefix for the replica: a program that writes here may also remove objects.";
    Check::new(OBJECTS, Verdict::Warn, seen, remedy)
}

pub(super) async fn speed(patient: &DoctorInputs) -> Vec<Check> {
    check(patient, SPEED, |bucket| async move {
        match timed(&*bucket).await {
            Ok((small, write, read)) => judge_speed(small, write, read),
            Err(error) => failed(SPEED, &error),
        }
    })
    .await
}

/// Returns the median duration of small creates, and that of writing and reading a large object.
async fn timed(bucket: &dyn Bucket) -> BucketResult<(Duration, Duration, Duration)> {
    let mut small = Vec::new();
    for number in 0..SMALL_CREATES as u64 {
        small.push(timed_create(bucket, probe::object(&holder(), number, now()), |_| async { Ok(()) }).await?.0);
    }
    small.sort_unstable();
    let mut noise = vec![0; LARGE_BYTES];
    OsEntropy.fill(&mut noise);
    let large = [&probe::object(&holder(), 0, now())[..], &noise].concat();
    let read = |name: String| async move { bucket.read(&name).await.map(drop) };
    let (write, read) = timed_create(bucket, large.into(), read).await?;
    Ok((small[SMALL_CREATES / 2], write, read))
}

/// Returns the duration of a create, and the result of the check that ran before the object was removed again.
async fn timed_create<F: Future<Output = BucketResult<()>>>(
    bucket: &dyn Bucket,
    bytes: Bytes,
    then: impl FnOnce(String) -> F,
) -> BucketResult<(Duration, Duration)> {
    let name = probe::random_name(&OsEntropy);
    let began = Instant::now();
    bucket.create(&name, bytes).await?;
    let created = began.elapsed();
    let began = Instant::now();
    let followed = then(name.clone()).await;
    let duration = began.elapsed();
    bucket.remove(&name).await?;
    followed.map(|()| (created, duration))
}

fn judge_speed(small: Duration, write: Duration, read: Duration) -> Check {
    let millis = Duration::as_millis;
    let seen = format!(
        "a small object is created in {} ms; 1 MiB is written in {} ms and read in {} ms",
        millis(&small),
        millis(&write),
        millis(&read)
    );
    if small <= SMALL_MAX && write <= LARGE_MAX {
        return Check::new(SPEED, Verdict::Ok, seen, "");
    }
    let remedy =
        "Use a bucket closer to this machine. These times add to the loss after a crash, and to each 202 in sync mode.";
    Check::new(SPEED, Verdict::Warn, seen, remedy)
}

fn failed(name: &str, error: &BucketError) -> Check {
    let remedy = match error.kind {
        BucketErrorKind::Forbidden => {
            "Correct the credentials, and allow them s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket."
        }
        BucketErrorKind::Unreachable | BucketErrorKind::Unknown => {
            "Check replica.endpoint, the network and the store's own status."
        }
        BucketErrorKind::Throttled | BucketErrorKind::Conflict => "Try again later.",
        BucketErrorKind::Refused | BucketErrorKind::Unsupported => {
            "Correct replica.url, endpoint, region and path_style."
        }
    };
    Check::new(name, Verdict::Fail, error.to_string(), remedy)
}

fn holder() -> Holder {
    "doctor".parse().unwrap_or_else(|_| unreachable!("the word is a holder"))
}

fn now() -> crate::base::time::Timestamp {
    SystemClock::new().now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn objects_of_other_programs_are_a_warning_with_harmless_names() {
        let store = crate::engine::memory_bucket::MemoryStore::default();
        for name in ["store", "log/000000000001", "probe/abc"] {
            store.set_object(name, Some(Bytes::from_static(b"x")));
        }
        let (names, count) = foreign(&store.bucket()).await.unwrap();
        assert_eq!(judge_objects(&names, count).verdict, Verdict::Ok);
        let long = "x".repeat(500);
        for name in ["README", "log/000000000001.bak", "base/\u{1b}[2J", long.as_str()] {
            store.set_object(name, Some(Bytes::from_static(b"x")));
        }
        let (names, count) = foreign(&store.bucket()).await.unwrap();
        let check = judge_objects(&names, count);
        assert_eq!((check.verdict, count, names.len()), (Verdict::Warn, 4, NAMES_SHOWN));
        assert!(check.seen.contains("README") && !check.seen.contains('\u{1b}'), "{}", check.seen);
    }

    #[test]
    fn a_slow_bucket_is_a_warning() {
        let millis = Duration::from_millis;
        assert_eq!(judge_speed(millis(40), millis(120), millis(90)).verdict, Verdict::Ok);
        assert_eq!(judge_speed(millis(501), millis(120), millis(90)).verdict, Verdict::Warn);
        assert_eq!(judge_speed(millis(40), millis(2001), millis(90)).verdict, Verdict::Warn);
    }
}
