//! The service's part in replication: before the store is opened it catches up with the log and claims it, and while it
//! serves it ships what is committed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::exit::Exit;
use super::replica_bucket;
use super::supervisor;
use super::trouble::Trouble;
use crate::base::time::Timestamp;
use crate::engine::bucket::meters::{BucketMeters, MeteredBucket};
use crate::engine::bucket::probe::{self, Unfit};
use crate::engine::keeping::BESIDE;
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, Clock};
use crate::engine::replica::{self, Active, BasePolicy, Joined, ReplicaError, ReplicaWorld};
use crate::net::entropy::OsEntropy;
use crate::net::s3::S3;
use crate::store::Store;
use crate::store::open::ReplicaStart;
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::holder;

/// The wait after which the way without a replica is named.
const NAME_WAY_OUT: Duration = Duration::from_secs(60);
/// Files beside the store that come along with a base: the certificate and the account of its authority too.
const WITH_BASE: &[&str] =
    &[BESIDE[0], "acme/account.key", "acme/certificate.pem", "acme/order.json", "acme/status.json"];

/// A log that was claimed for the store that is about to be opened.
pub struct Claim {
    joined: Joined,
    interval: Duration,
    policy: BasePolicy,
    backlog_bytes: u64,
    meters: Arc<BucketMeters>,
    /// Time during which the previous holder of the log may still send mail.
    pub mail_wait: Duration,
}

/// Files beside the store that come along with a base.
pub(super) const fn with_base() -> &'static [&'static str] {
    WITH_BASE
}

/// The way to the replica of `config`, from the data directory; none without `[replica]`.
///
/// # Errors
/// A client that can't be made; a directory that can't be written to.
pub(super) fn world(config: &Config, directory: &Path, clock: Arc<dyn Clock>) -> Result<Option<World>, Trouble> {
    let Some(url) = &config.replica.url else { return Ok(None) };
    let bucket = replica_bucket::open(config, url)?;
    let entropy = Arc::new(OsEntropy);
    let host = config.hostname.to_string();
    let host = host.split('.').next().unwrap_or_default();
    let name = holder(directory, host, &*entropy).map_err(|error| {
        let what = format!("cannot write to {}", directory.display());
        Trouble::new(Exit::Failed, what, error.to_string(), "Check the disk and the directory's owner.")
    })?;
    let (meters, time) = (Arc::new(BucketMeters::default()), Arc::clone(&clock));
    let metered = MeteredBucket::new(Arc::clone(&bucket), Arc::clone(&meters), move || time.monotonic());
    let (metered, encrypts) = (Arc::new(metered) as Arc<dyn Bucket>, config.replica.encrypt);
    let replica = ReplicaWorld { bucket: metered, holder: name, clock, entropy, encrypts };
    Ok(Some(World { replica, bucket, meters }))
}

/// The way to a replica, and to the settings of its bucket.
pub(super) struct World {
    /// The replica.
    pub(super) replica: ReplicaWorld,
    bucket: Arc<S3>,
    /// Counts of the requests to it.
    pub(super) meters: Arc<BucketMeters>,
}

/// Has the store in `directory` catch up with the log of `config`, and claims it. Waits for a bucket that does not
/// answer. None without `[replica]`.
///
/// # Errors
/// Why the log is not to be claimed, with the exit code of the contract.
pub(super) async fn claim(
    config: &Config,
    directory: &Path,
    clock: Arc<dyn Clock>,
    cause: ClaimCause,
) -> Result<Option<Claim>, Trouble> {
    let Some(world) = world(config, directory, clock)? else { return Ok(None) };
    let mut waiting = Waiting::default();
    admit(config, &world, &mut waiting).await?;
    let mut on_wait = |error: &BucketError, waited| waiting.report(error, waited);
    let joined = replica::join(&world.replica, directory, cause, &mut on_wait).await;
    let joined = joined.map_err(|error| cannot_join(&error))?;
    tracing::info!(
        epoch = joined.claim.epoch,
        slot = joined.claim.slot,
        holder = %world.replica.holder,
        "claimed the log of the replica"
    );
    let lease = config.replica.lease;
    let mail_wait = if joined.must_wait() { lease.mul_f64(1.05) + Duration::from_millis(500) } else { Duration::ZERO };
    let policy = BasePolicy {
        age: config.replica.base_age,
        log_bytes: config.replica.base_log_bytes,
        retention: config.replica.retention,
        beside: WITH_BASE,
    };
    let (interval, backlog_bytes) = (config.replica.interval, config.replica.backlog_bytes);
    Ok(Some(Claim { joined, interval, policy, backlog_bytes, meters: world.meters, mail_wait }))
}

impl Claim {
    /// Position in the log at which the store is opened.
    pub(super) const fn start(&self) -> ReplicaStart {
        ReplicaStart { confirmed: self.joined.claim, backlog_bytes_max: self.backlog_bytes }
    }

    /// Starts to ship what `store` commits.
    ///
    /// # Errors
    /// A migrated store whose base could not be made.
    pub(super) async fn ship(self, store: &Arc<Store>) -> Result<Active, Trouble> {
        let Self { joined, interval, policy, .. } = self;
        Active::start(joined, store, interval, policy).await.map_err(|error| cannot_join(&error))
    }

    /// The meters of requests to the bucket.
    pub(super) fn meters(&self) -> Arc<BucketMeters> {
        Arc::clone(&self.meters)
    }
}

/// Reports of a start that waits for the bucket.
#[derive(Default)]
struct Waiting {
    is_logged: bool,
    is_way_out_named: bool,
}

impl Waiting {
    fn report(&mut self, error: &BucketError, waited: Duration) {
        supervisor::waiting_for_bucket();
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(%error, "waiting for the bucket of the replica; the service starts once it answers");
        }
        if waited >= NAME_WAY_OUT && !std::mem::replace(&mut self.is_way_out_named, true) {
            tracing::error!(
                %error,
                "the bucket of the replica has not answered for a minute; if it is lost and no standby was promoted, \
                 start once with `postrider serve --without-replica`"
            );
        }
    }
}

/// Checks that the bucket is fit for a log, and waits for one that does not answer.
async fn admit(config: &Config, world: &World, waiting: &mut Waiting) -> Result<(), Trouble> {
    let World { replica, bucket, .. } = world;
    let mut waited = Duration::ZERO;
    loop {
        let now = || replica.clock.now();
        let asked =
            probe::admit(&**bucket, &replica.holder, &*replica.entropy, now, config.replica.allow_versioned).await;
        match asked {
            Ok(warnings) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                return Ok(());
            }
            Err(Unfit::Failed(error)) if is_passing(error.kind) => {
                waiting.report(&error, waited);
                tokio::time::sleep(Duration::from_secs(1)).await;
                waited += Duration::from_secs(1);
            }
            Err(Unfit::Failed(error)) => return Err(cannot_join(&ReplicaError::Bucket(error))),
            Err(unfit) => {
                let remedy = match unfit {
                    Unfit::Keeps(_) => "Use a bucket that keeps no versions, or set replica.allow_versioned = true.",
                    _ => "Use a bucket that fits, or correct [replica]; `postrider doctor` shows each check.",
                };
                return Err(Trouble::new(Exit::Failed, WHAT, unfit.to_string(), remedy));
            }
        }
    }
}

const fn is_passing(kind: BucketErrorKind) -> bool {
    matches!(
        kind,
        BucketErrorKind::Unknown
            | BucketErrorKind::Throttled
            | BucketErrorKind::Unreachable
            | BucketErrorKind::Conflict
    )
}

const WHAT: &str = "cannot replicate the store";

/// The error of a replica, with its exit code and what to do.
pub(super) fn cannot_join(error: &ReplicaError) -> Trouble {
    let (exit, remedy) = match error {
        ReplicaError::Bucket(error) if error.kind == BucketErrorKind::Forbidden => {
            (Exit::NotPermitted, "Correct the credentials of [replica], or their rights to the bucket.")
        }
        ReplicaError::Bucket(_) => {
            (Exit::Failed, "Check [replica] and the bucket; `postrider doctor` shows each check.")
        }
        ReplicaError::Claimed { .. } => {
            (Exit::Conflict, "That machine serves now. Run `postrider standby` here to follow it.")
        }
        ReplicaError::Fork => (
            Exit::Conflict,
            "Choose a new prefix in replica.url to serve this directory apart, or run `postrider standby` on an empty \
             one.",
        ),
        ReplicaError::OtherStore => {
            (Exit::Conflict, "Name the bucket and prefix of this store in replica.url, or a prefix that is empty.")
        }
        ReplicaError::Broken { .. } => {
            (Exit::Conflict, "Run `postrider standby --discard` on this directory: it begins with the newest base.")
        }
        ReplicaError::Stranded { .. } => (
            Exit::Conflict,
            "Run `postrider standby --discard` to set the directory aside and begin with the newest base.",
        ),
        ReplicaError::NoBase => (Exit::NotFound, "Name a bucket and prefix that an active has written a base to."),
        ReplicaError::Newer { .. } => (Exit::Failed, "Upgrade this standby first."),
        ReplicaError::Object { .. } | ReplicaError::Missing { .. } => {
            (Exit::Failed, "Run `postrider replica verify`; a new base replaces damaged objects.")
        }
        ReplicaError::Open(_) | ReplicaError::Store(_) | ReplicaError::Restore(_) | ReplicaError::Io { .. } => {
            (Exit::Failed, "Check the disk and the directory's owner, and try again.")
        }
    };
    Trouble::new(exit, WHAT, error.to_string(), remedy)
}

/// When the machine that claims at `at` begins to mail.
pub(super) fn mailing_from(at: Timestamp, wait: Duration) -> Timestamp {
    at + wait
}
