//! `postrider restore s3://bucket/prefix`: creates a data directory from a replica, in the state of its last batch or
//! of a given time.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::Progress;
use super::restore::{FinishedRestore, master_key, require_empty, unwritable};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::exit::Exit;
use crate::app::lock::DirectoryLock;
use crate::app::replication::{cannot_join, lease_rules, with_base};
use crate::app::{init, replica_bucket, runtime};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::domain::replication::BucketUrl;
use crate::engine::executor::Executor;
use crate::engine::ports::Clock;
use crate::engine::replica::{
    FollowStep, LogFollower, Rebuild, ReplicaError, ReplicaObjects, ReplicaWorld, base_before, build,
};
use crate::net::clock::{ContinuousClock, SystemClock};
use crate::net::entropy::OsEntropy;
use crate::store::master_key::{Raw, place};
use crate::store::replica::{ObjectName, ReplicaDisk};
use crate::store::restore::Lineage;
use crate::store::{Store, TimersOnHold};

const WHAT: &str = "cannot restore the replica";

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
    progress: Progress<'_>,
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
    let restored =
        runtime::build()?.block_on(restore(config, &url, directory, key, (until, options.release), progress));
    match restored {
        Ok(restored) => {
            init::hand_over(directory).map_err(|error| unwritable(directory, &error))?;
            Ok(restored)
        }
        Err(error) => {
            remove(directory);
            lock.discard();
            if is_made {
                // If another program has put something in it, the directory stays.
                let _ = fs::remove_dir(directory);
            }
            Err(error)
        }
    }
}

/// Removes what a failed restore has built in `directory`, which was empty before.
fn remove(directory: &Path) {
    for error in Store::remove_unfinished(directory) {
        tracing::warn!(%error, directory = %directory.display(), "could not remove the unfinished restore");
    }
    // The next try reports remaining files, because it needs an empty directory.
    let _ = fs::remove_dir_all(directory.join("replica"));
    for path in with_base().iter().map(|name| directory.join(name)) {
        let _ = fs::remove_file(&path);
        if let Some(folder) = path.parent().filter(|folder| *folder != directory) {
            let _ = fs::remove_dir(folder);
        }
    }
}

async fn restore(
    config: &Config,
    url: &BucketUrl,
    directory: &Path,
    key: Raw,
    (until, release): (Option<Timestamp>, bool),
    mut progress: Progress<'_>,
) -> Result<FinishedRestore, CliError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let holder = "restore".parse().map_err(|_| CliError::new(Exit::Failed, WHAT, "", ""))?;
    let bucket = replica_bucket::open(config, url)?;
    let real: Arc<dyn Clock> = Arc::new(ContinuousClock);
    let world = ReplicaWorld {
        bucket,
        disk: ReplicaDisk::default(),
        executor: Executor::Threads,
        holder,
        place: 0,
        clock,
        real,
        entropy: Arc::new(OsEntropy),
        encrypts: true,
        lease: lease_rules(config),
    };
    let master = Arc::new(MasterKey::new(&key));
    let identity = world.identity(&master).await.map_err(|error| failed(&error))?;
    world.check_clock().map_err(|error| failed(&error))?;
    let identity = identity.ok_or_else(|| failed(&ReplicaError::NoBase))?;
    let objects = world.objects(master, identity.store);
    let manifest = base_before(&objects, until).await.map_err(|error| failed(&error))?;
    progress.line(&format!("restoring the base of {}", manifest.taken_at));
    let lineage = Lineage::Fork { holds_queue: !release };
    let plan = Rebuild { directory, key, lineage, beside: with_base() };
    let rows = manifest.rows;
    let mut log = build(&objects, &manifest, plan, |_, _| {}).await.map_err(|error| failed(&error))?;
    log.until = until;
    progress.line("applying the log");
    let gap = apply(&mut log, &objects).await.map_err(|error| failed(&error))?;
    log.end(&objects).map_err(|error| failed(&error))?;
    if let Some(gap) = &gap {
        let last = log.follower.sequence().committed_at;
        if let Some(until) = until {
            return Err(within_gap(gap, last, until));
        }
        progress.line(&format!("the log has a gap, and no base is newer: restored the state of {last} ({gap})"));
    }
    let failed_store = |error| failed(&ReplicaError::Store(error));
    let now = objects.clock.now();
    let on_hold = match release {
        // The log may have a hold of its own, from a promotion.
        true => log.follower.release_queue().map(|()| TimersOnHold::default()),
        false => log.follower.hold_queue(now),
    };
    let on_hold = on_hold.map_err(failed_store)?;
    let backup_at = log.follower.sequence().committed_at;
    log.follower.checkpoint().map_err(failed_store)?;
    let content = manifest.content.iter().map(|range| range.length).sum();
    Ok(FinishedRestore {
        data_dir: directory.to_owned(),
        backup_at,
        rows,
        content_bytes: content,
        with_content: true,
        messages: on_hold.messages,
        deliveries: on_hold.deliveries,
        gap: gap.map(|gap| gap.to_string()),
    })
}

/// Applies the log up to the requested time, or to its end. Returns the gap at which the log ends before that.
pub(in crate::app) async fn apply(
    log: &mut LogFollower,
    objects: &ReplicaObjects,
) -> Result<Option<ReplicaError>, ReplicaError> {
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
        ReplicaError::NoBase => "Choose a replica, and a time that is not before its `restorable_from`.",
        ReplicaError::OtherStore => "Give the master.key of the store with --master-key FILE.",
        ReplicaError::Clock(_) => "Correct this machine's clock, and try again.",
        _ => "Check [replica] and the bucket, empty the directory, and try again.",
    };
    CliError::new(exit, WHAT, error.to_string(), remedy)
}
