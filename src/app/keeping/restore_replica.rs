//! `postrider restore s3://bucket/prefix`: creates a data directory from a replica, in the state of its last batch or
//! of a given time.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::Progress;
use super::restore::{FinishedRestore, master_key, require_empty, unwritable};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::exit::Exit;
use crate::app::lock::DirectoryLock;
use crate::app::replication::{cannot_join, lease_rules, with_base};
use crate::app::{init, replica_bucket, runtime};
use crate::base::entropy::Entropy;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::domain::replication::BucketUrl;
use crate::engine::executor::Executor;
use crate::engine::ports::{Bucket, BucketError, Clock};
use crate::engine::replica::{
    self, OnRetry, ReplicaError, ReplicaObjects, ReplicaWorld, RestorePlan, RestoredReplica, RetriedBucket,
};
use crate::net::clock::{ContinuousClock, SystemClock};
use crate::net::entropy::OsEntropy;
use crate::store::TimersOnHold;
use crate::store::master_key::{Raw, place};
use crate::store::replica::ReplicaDisk;
use crate::store::restore::Lineage;

const WHAT: &str = "cannot restore the replica";
/// Name of the restoring process. It writes nothing to the bucket.
const HOLDER: &str = "restore";
/// Maximum time for which a read is repeated while the bucket does not answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Maximum number of lines that wait to be printed.
const LINES: usize = 16;

/// Arguments of a restore.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaRestore<'a> {
    /// The replica: `s3://bucket/prefix`.
    pub url: &'a str,
    /// Time of the state; `None` for the newest.
    pub at: Option<&'a str>,
    /// File with the master key; `None` for that of the configured data directory.
    pub key: Option<&'a Path>,
    /// Whether the queue is released immediately.
    pub release: bool,
}

/// Restores into `directory`.
///
/// # Errors
/// The error for the operator; exit 3 if there is no state as old as requested, 5 if the bucket refuses the
/// credentials, 6 if the directory is not empty.
pub fn run(
    config: &Config,
    options: &ReplicaRestore<'_>,
    directory: &Path,
    mut progress: Progress<'_>,
) -> Result<FinishedRestore, CliError> {
    let usage = |why: String, remedy| CliError::new(Exit::Usage, WHAT, why, remedy);
    let url: BucketUrl =
        options.url.parse().map_err(|error| usage(format!("{error}"), "Write it as s3://bucket/prefix."))?;
    let parse = |at: &str| at.parse::<Timestamp>();
    let until = options.at.map(parse).transpose();
    let until = until.map_err(|_| usage("--at is not a time".to_owned(), "Write it as 2026-01-31T12:00:00Z."))?;
    require_empty(directory)?;
    let key = match options.key {
        Some(file) => master_key(file)?,
        None => master_key(&place(&config.data_dir))?,
    };
    let is_made = !directory.exists();
    let lock = DirectoryLock::take(directory)?;
    let lineage = Lineage::Fork { holds_queue: !options.release };
    let plan = RestorePlan { directory, key, lineage, beside: with_base(), until };
    let restored = runtime::build()?.block_on(restore(config, &url, plan, options.release, &mut progress));
    match restored {
        Ok(restored) => {
            init::hand_over(directory).map_err(|error| unwritable(directory, &error))?;
            Ok(restored)
        }
        Err(error) => {
            lock.discard();
            if is_made {
                // A directory that is not empty stays: another program has put something in it, or the store was being
                // moved.
                let _ = fs::remove_dir(directory);
            }
            Err(error)
        }
    }
}

async fn restore(
    config: &Config,
    url: &BucketUrl,
    plan: RestorePlan<'_>,
    release: bool,
    progress: &mut Progress<'_>,
) -> Result<FinishedRestore, CliError> {
    let (lines, mut reported) = mpsc::channel(LINES);
    let bucket = replica_bucket::open(config, url)?;
    let restoring = async {
        let objects = objects(config, bucket, &plan.key, lines.clone()).await?;
        // A line may be dropped if the channel is full, because it only repeats an earlier one.
        let report = |line| drop(lines.try_send(line));
        replica::restore(&objects, &plan, &report).await.map(|restored| (objects, restored))
    };
    tokio::pin!(restoring);
    let restored = loop {
        tokio::select! {
            biased;
            Some(line) = reported.recv() => progress.line(&line),
            restored = &mut restoring => break restored,
        }
    };
    while let Ok(line) = reported.try_recv() {
        progress.line(&line);
    }
    let (objects, restored) = restored.map_err(|error| failed(&error))?;
    finish(restored, &objects, &plan, release, progress)
}

/// Returns the objects of the replica in `bucket`. Reads are repeated while the bucket does not answer, with a line in
/// `lines` for the first failure.
async fn objects(
    config: &Config,
    bucket: Arc<dyn Bucket>,
    key: &Raw,
    lines: mpsc::Sender<String>,
) -> Result<ReplicaObjects, ReplicaError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let entropy: Arc<dyn Entropy> = Arc::new(OsEntropy);
    let is_waiting = AtomicBool::new(false);
    let on_retry: OnRetry = Arc::new(move |error| {
        let was_waiting = is_waiting.swap(error.is_some(), Ordering::Relaxed);
        if let Some(error) = error.filter(|_| !was_waiting) {
            drop(lines.try_send(format!("{error}; trying again")));
        }
    });
    let bucket = RetriedBucket::new(bucket, Arc::clone(&entropy), Arc::clone(&on_retry), Some(PATIENCE));
    let world = ReplicaWorld {
        bucket: Arc::new(bucket),
        disk: ReplicaDisk::default(),
        executor: Executor::Threads,
        holder: HOLDER.parse().unwrap_or_else(|_| unreachable!("it has only letters")),
        place: 0,
        clock,
        real: Arc::new(ContinuousClock),
        entropy,
        encrypts: true,
        lease: lease_rules(config),
        on_retry,
    };
    let master = Arc::new(MasterKey::new(key));
    let identity = world.identity(&master).await?;
    world.check_clock()?;
    Ok(world.objects(master, identity.ok_or(ReplicaError::NoBase)?.store))
}

/// Puts the queue of a restored store on hold or releases it, and moves the store to its place.
fn finish(
    mut restored: RestoredReplica,
    objects: &ReplicaObjects,
    plan: &RestorePlan<'_>,
    release: bool,
    progress: &mut Progress<'_>,
) -> Result<FinishedRestore, CliError> {
    let follower = &mut restored.log.follower;
    let backup_at = follower.sequence().committed_at;
    if let Some(gap) = &restored.gap {
        if let Some(until) = plan.until {
            return Err(within_gap(gap, backup_at, until));
        }
        progress.line(&format!("the log has a gap, and no base is newer: restored the state of {backup_at} ({gap})"));
    }
    if let Some(first) = restored.missing_keys.first() {
        let count = restored.missing_keys.len();
        progress.line(&format!(
            "the bucket lacks {count} content keys before their deadline, the first is {first}: messages with this \
             content can't be read or sent"
        ));
    }
    let on_hold = match release {
        // The log may have a hold of its own, from a promotion.
        true => follower.release_queue().map(|()| TimersOnHold::default()),
        false => follower.hold_queue(objects.clock.now()),
    };
    let on_hold = on_hold.map_err(|error| failed(&ReplicaError::Store(error)))?;
    let finished = FinishedRestore {
        data_dir: plan.directory.to_owned(),
        backup_at,
        rows: restored.manifest.rows,
        content_bytes: restored.manifest.content.iter().map(|range| range.length).sum(),
        with_content: true,
        messages: on_hold.messages,
        deliveries: on_hold.deliveries,
        gap: restored.gap.as_ref().map(ToString::to_string),
        missing_keys: std::mem::take(&mut restored.missing_keys),
    };
    restored.install().map_err(|error| failed(&error))?;
    Ok(finished)
}

/// Returns the error for a time after the last batch before a gap in the log.
fn within_gap(gap: &ReplicaError, last: Timestamp, until: Timestamp) -> CliError {
    let why = format!("the log has a gap after {last}, and no state of {until} exists: {gap}");
    let remedy =
        format!("Choose a time up to {last}, or one after the next base; without --at the newest state is restored.");
    CliError::new(Exit::NotFound, WHAT, why, remedy)
}

fn failed(error: &ReplicaError) -> CliError {
    let cli_error = cannot_join(error);
    let exit = match error {
        ReplicaError::NoBase => Exit::NotFound,
        _ => cli_error.exit(),
    };
    let remedy = match error {
        ReplicaError::Bucket(BucketError { kind, .. }) if kind.is_transient() => {
            "The bucket has not answered for 5 minutes. Check it, and try again."
        }
        ReplicaError::NoBase => "Choose a replica, and a time that is not before its `restorable_from`.",
        ReplicaError::OtherStore => "Give the master.key of the store with --master-key FILE.",
        ReplicaError::Clock(_) => "Correct this machine's clock, and try again.",
        _ => "Check [replica] and the bucket, and try again.",
    };
    CliError::new(exit, WHAT, error.to_string(), remedy)
}
