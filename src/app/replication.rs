//! The service's part in replication. Before the store is opened it catches up with the log and claims it; while it
//! serves, it ships new commits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::bucket_wait::BucketWait;
use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::locked_store::LockedStore;
use super::replica_bucket;
use super::replica_place;
use super::signals::Signals;
use super::store_open_report::{Start, remedy_of_replicated};
use super::supervisor;
use crate::base::time::Timestamp;
use crate::domain::replication::{Failover, ReplicaMode, WhenUnreachable};
use crate::engine::Engine;
use crate::engine::backup::BESIDE;
use crate::engine::bucket::meters::{BucketMeters, MeteredBucket};
use crate::engine::bucket::probe::{self, Unfit};
use crate::engine::executor::Executor;
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, Clock};
use crate::engine::replica::{
    self, Active, BasePolicy, ClaimedLog, ModeWords, OnRetry, Pace, ReplicaError, ReplicaStatus, ReplicaWorld, Role,
    State,
};
use crate::machine::replica_lease::LeaseRules;
use crate::net::clock::ContinuousClock;
use crate::net::entropy::OsEntropy;
use crate::net::s3::S3;
use crate::store::Store;
use crate::store::open::{OnJournalDamage, ReplicaStart, SyncRule};
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::{HolderError, ReplicaDisk, aside, holder};

/// Files next to the store that a base includes, with the certificate and the account of its authority.
const WITH_BASE: &[&str] =
    &[BESIDE[0], "acme/account.key", "acme/certificate.pem", "acme/order.json", "acme/status.json"];

/// A log claimed for the store that is about to be opened.
pub struct Claim {
    joined: ClaimedLog,
    pace: Pace,
    policy: BasePolicy,
    backlog_bytes: u64,
    sync: Option<SyncRule>,
    meters: Arc<BucketMeters>,
}

/// An open store.
pub(super) struct OpenedStore {
    /// The store.
    pub(super) ground: LockedStore,
    /// The claim of its log, if it has one.
    pub(super) claim: Option<Claim>,
    /// The signals, if the start has waited for the bucket and listened to them since. One that arrived meanwhile is
    /// not lost.
    pub(super) signals: Option<Signals>,
}

/// Returns the files next to the store that a base includes.
pub(super) const fn with_base() -> &'static [&'static str] {
    WITH_BASE
}

/// Returns the access to the replica of `config` for the data directory; `None` without `[replica]`.
///
/// # Errors
/// A client that can't be created; a directory that can't be written.
pub(super) fn world(config: &Config, directory: &Path, clock: Arc<dyn Clock>) -> Result<Option<World>, CliError> {
    let Some(url) = &config.replica.url else { return Ok(None) };
    let bucket = replica_bucket::open(config, url)?;
    let entropy = Arc::new(OsEntropy);
    let host = config.hostname.to_string();
    let host = host.split('.').next().unwrap_or_default();
    let disk = ReplicaDisk::default();
    let name = holder(&disk, directory, host, &*entropy).map_err(|error| cannot_name(directory, &error))?;
    // The bucket's clock and the lease use real time, even if `dev` has a virtual clock.
    let real: Arc<dyn Clock> = Arc::new(ContinuousClock);
    let (meters, time) = (Arc::new(BucketMeters::default()), Arc::clone(&real));
    let metered = MeteredBucket::new(Arc::clone(&bucket), Arc::clone(&meters), move || time.monotonic());
    let (metered, encrypts) = (Arc::new(metered) as Arc<dyn Bucket>, config.replica.encrypt);
    let (executor, lease) = (Executor::Threads, lease_rules(config));
    let place = replica_place::of(directory);
    let holder = name;
    let on_retry: OnRetry = Arc::new(|_| {});
    let replica = ReplicaWorld {
        bucket: metered,
        disk,
        executor,
        holder,
        place,
        clock,
        real,
        entropy,
        encrypts,
        lease,
        on_retry,
    };
    Ok(Some(World { replica, bucket, meters }))
}

/// Returns the error for a directory whose name in the log can't be read or drawn.
fn cannot_name(directory: &Path, error: &HolderError) -> CliError {
    let what = format!("cannot read the name of {} in the log of the replica", directory.display());
    let remedy = match error {
        HolderError::Damaged => {
            "Check the disk, and run `postrider check`. Then write the name of this machine into the file: it is the \
             `holder` of the last `postrider replica status` here, and in the first line of each object that this \
             machine has written to the bucket."
        }
        HolderError::Io(_) => "Check the disk and the directory's owner.",
    };
    CliError::new(Exit::Failed, what, error.to_string(), remedy)
}

/// Returns the rules of the lease from `config`.
pub(super) fn lease_rules(config: &Config) -> LeaseRules {
    LeaseRules {
        lease: config.replica.lease,
        stops: config.replica.when_unreachable() == WhenUnreachable::Stop,
        is_automatic: config.replica.failover == Failover::Automatic,
    }
}

/// Returns the status of a process that has not reached the bucket yet.
pub(super) fn waiting_status(config: &Config, role: Role) -> ReplicaStatus {
    let (mode, failover) = (config.replica.mode.as_str(), config.replica.failover.as_str());
    ReplicaStatus { role, state: State::Waiting, mode, failover, ..ReplicaStatus::off() }
}

/// Access to a replica and its bucket.
pub(super) struct World {
    /// The replica.
    pub(super) replica: ReplicaWorld,
    bucket: Arc<S3>,
    /// Counts of the requests to the bucket.
    pub(super) meters: Arc<BucketMeters>,
}

/// Opens the store in the locked `directory`. With `[replica]` it first catches up with the log, and claims it for
/// `cause`. `None` if a signal stopped it while it waited for the bucket.
///
/// # Errors
/// The error for the operator.
pub(super) async fn open(
    config: &Config,
    directory: &Path,
    mut lock: DirectoryLock,
    clock: Arc<dyn Clock>,
    start: Start,
    cause: ClaimCause,
) -> Result<Option<OpenedStore>, CliError> {
    if aside::is_unfinished_in(&ReplicaDisk::default(), directory) {
        let why = "a part of the store was moved to a directory deposed-EPOCH, and the move was interrupted";
        let remedy = "Run `postrider standby` on this directory: it completes the move.";
        return Err(CliError::new(Exit::Conflict, WHAT, why, remedy));
    }
    if config.replica.url.is_none() {
        let ground = LockedStore::open(directory, lock, clock, start)?;
        return Ok(Some(OpenedStore { ground, claim: None, signals: None }));
    }
    if !Store::exists(directory) || start.on_journal_damage() == OnJournalDamage::Accept {
        // Catching up needs an existing store with a sound journal.
        lock = LockedStore::open(directory, lock, Arc::clone(&clock), start)?.close();
    }
    let mut waiting = BucketWait::of_start(config, directory, Arc::clone(&clock));
    let (began, mut signals) = (waiting.began(), None);
    let claimed = tokio::select! {
        claimed = claim(config, directory, Arc::clone(&clock), cause, &mut waiting) => Some(claimed),
        () = stopped(&began, &mut signals) => None,
    };
    waiting.end().await;
    let Some(claimed) = claimed else {
        supervisor::stopping();
        return Ok(None);
    };
    let claim = claimed?.map(|claimed| claimed.map_err(|error| cannot_join(&error))).transpose()?;
    let ground = LockedStore::open_claimed(directory, lock, clock, start.on_whole_journal(), claim.as_ref())?;
    Ok(Some(OpenedStore { ground, claim, signals }))
}

/// Resolves when a signal stops a start that waits for the bucket.
async fn stopped(began: &Notify, signals: &mut Option<Signals>) {
    began.notified().await;
    match Signals::listen() {
        Ok(listening) => signals.insert(listening).stop().await,
        // Signals end the process as before.
        Err(_) => std::future::pending().await,
    }
}

/// Lets the store in `directory` catch up with the log of `config`, and claims it. Waits while the bucket does not
/// answer. Returns `None` without `[replica]`. Returns an inner error if a standby must follow the log again: it has
/// new slots, does not continue from this directory, or the bucket refuses the claim.
///
/// # Errors
/// The reason why the log must not be claimed, with the exit code of the contract.
pub(super) async fn claim(
    config: &Config,
    directory: &Path,
    clock: Arc<dyn Clock>,
    cause: ClaimCause,
    waiting: &mut BucketWait<'_>,
) -> Result<Option<Result<Claim, ReplicaError>>, CliError> {
    let Some(world) = world(config, directory, clock)? else { return Ok(None) };
    if let Err(error) = admit(config, &world, waiting).await? {
        return Ok(Some(Err(error)));
    }
    let mut on_wait = |error: &BucketError| waiting.report(error);
    let joined = replica::join(&world.replica, directory, cause, &mut on_wait).await;
    let joined = match joined {
        Err(error @ (ReplicaError::Moved | ReplicaError::Broken { .. } | ReplicaError::Bucket(_))) => {
            return Ok(Some(Err(error)));
        }
        joined => joined.map_err(|error| cannot_join(&error))?,
    };
    tracing::info!(
        epoch = joined.claim.epoch,
        slot = joined.claim.slot,
        holder = %world.replica.holder,
        "claimed the log of the replica"
    );
    let policy = BasePolicy {
        age: config.replica.base_age,
        log_bytes: config.replica.base_log_bytes,
        retention: config.replica.retention,
        beside: WITH_BASE,
    };
    let replica = &config.replica;
    let stops = replica.when_unreachable() == WhenUnreachable::Stop;
    let sync = (replica.mode == ReplicaMode::Sync).then_some(SyncRule { timeout: replica.timeout, stops });
    let words = ModeWords { mode: replica.mode.as_str(), failover: replica.failover.as_str() };
    // If each batch waits for its slot, slots follow each other without a delay.
    let interval = if sync.is_some() { Duration::ZERO } else { replica.interval };
    let (pace, backlog_bytes) = (Pace { interval, words }, replica.backlog_bytes);
    Ok(Some(Ok(Claim { joined, pace, policy, backlog_bytes, sync, meters: world.meters })))
}

impl Claim {
    /// Returns the position in the log at which the store is opened.
    pub(super) const fn start(&self) -> ReplicaStart {
        ReplicaStart { confirmed: self.joined.claim, backlog_bytes_max: self.backlog_bytes, sync: self.sync }
    }

    /// Returns the time for which the previous holder of the log may still send mail.
    pub(super) fn wait(&self) -> Duration {
        self.joined.wait()
    }

    /// Starts shipping the commits of `store`.
    ///
    /// # Errors
    /// A base of a migrated store could not be made.
    pub(super) async fn ship(self, store: &Arc<Store>) -> Result<Active, CliError> {
        let Self { joined, pace, policy, .. } = self;
        Active::start(joined, store, pace, policy).await.map_err(|error| cannot_join(&error))
    }

    /// Returns the metrics of requests to the bucket.
    pub(super) fn meters(&self) -> Arc<BucketMeters> {
        Arc::clone(&self.meters)
    }
}

/// Checks that the bucket is suitable for a log, and waits while it does not answer. Returns an inner error if the
/// bucket refuses.
async fn admit(
    config: &Config,
    world: &World,
    waiting: &mut BucketWait<'_>,
) -> Result<Result<(), ReplicaError>, CliError> {
    let World { replica, bucket, .. } = world;
    loop {
        let now = || replica.real.now();
        let asked =
            probe::admit(&**bucket, &replica.holder, &*replica.entropy, now, config.replica.allow_versioned).await;
        match asked {
            Ok(warnings) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                return Ok(Ok(()));
            }
            Err(Unfit::Failed(error)) if waiting.report(&error) => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(Unfit::Failed(error)) => return Ok(Err(ReplicaError::Bucket(error))),
            Err(unfit) => {
                let remedy = match unfit {
                    Unfit::Keeps(_) => "Use a bucket that keeps no versions, or set replica.allow_versioned = true.",
                    _ => "Use a bucket that fits, or correct [replica]; `postrider doctor` shows each check.",
                };
                return Err(CliError::new(Exit::Failed, WHAT, unfit.to_string(), remedy));
            }
        }
    }
}

const WHAT: &str = "cannot replicate the store";

/// Returns the error of a replica, with its exit code and the remedy.
pub(super) fn cannot_join(error: &ReplicaError) -> CliError {
    let (exit, remedy) = match error {
        ReplicaError::Bucket(error) if error.kind == BucketErrorKind::Forbidden => {
            (Exit::NotPermitted, "Correct the credentials of [replica], or their rights to the bucket.")
        }
        ReplicaError::Bucket(_) => {
            (Exit::Failed, "Check [replica] and the bucket; `postrider doctor` shows each check.")
        }
        ReplicaError::Clock(_) => (Exit::Failed, "Correct this machine's clock, and start again."),
        ReplicaError::Moved => (Exit::Conflict, "The active machine is alive; run `postrider standby` to follow it."),
        ReplicaError::Claimed { .. } => {
            (Exit::Conflict, "That machine serves now. Run `postrider standby` here to follow it.")
        }
        ReplicaError::Followed { .. } => {
            (Exit::Conflict, "Run `postrider standby` here, and `postrider promote` if that machine is lost.")
        }
        ReplicaError::Fork => (
            Exit::Conflict,
            "Choose a new prefix in replica.url to serve this directory separately, or run `postrider standby` on an \
             empty one.",
        ),
        ReplicaError::OtherStore => (
            Exit::Conflict,
            "Check replica.url, and whether master.key is that of the active machine. A standby needs a data directory \
             without a store: don't run `postrider init` there.",
        ),
        ReplicaError::Broken { .. } => {
            (Exit::Conflict, "Run `postrider standby --discard` on this directory: it begins with the newest base.")
        }
        ReplicaError::Stranded { .. } => (
            Exit::Conflict,
            "Run `postrider standby --discard` to set the directory aside and begin with the newest base.",
        ),
        ReplicaError::Emptied => (Exit::Failed, "Check whether another machine serves, and with which replica.url."),
        ReplicaError::NoBase => (Exit::NotFound, "Set a bucket and prefix that contain a base of an active machine."),
        ReplicaError::Newer { .. } => (Exit::Failed, "Upgrade this standby first."),
        ReplicaError::Object { .. } | ReplicaError::Missing { .. } => {
            (Exit::Failed, "Run `postrider replica verify`; a new base replaces damaged objects.")
        }
        ReplicaError::Open(open) => {
            let (exit, remedy) = remedy_of_replicated(open);
            return CliError::new(exit, WHAT, error.to_string(), remedy);
        }
        ReplicaError::Store(_) | ReplicaError::Restore(_) | ReplicaError::Io { .. } => {
            (Exit::Failed, "Check the disk and the directory's owner, and try again.")
        }
    };
    CliError::new(exit, WHAT, error.to_string(), remedy)
}

/// Closes the store. Its writer may wait up to `grace` for the bucket of the replica.
pub(super) async fn close(engine: &Arc<Engine>, grace: Duration) {
    let store = Arc::clone(&engine.store);
    let mut closing = tokio::task::spawn_blocking(move || store.close());
    let closed = match tokio::time::timeout(grace, &mut closing).await {
        Ok(closed) => closed,
        Err(_) => {
            engine.store.outbox().into_iter().for_each(|outbox| outbox.end_waits());
            closing.await
        }
    };
    if closed.is_err() {
        tracing::error!("could not close the store; the next start repairs it");
    }
}

/// Returns the time at which the machine that claims at `at` may send mail.
pub(super) fn mailing_from(at: Timestamp, wait: Duration) -> Timestamp {
    at + wait
}
