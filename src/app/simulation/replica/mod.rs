//! The replica of a run: the claim of the log, the tasks of the active machine, and the checks of what the bucket has.

mod bucket;
mod failover;
pub(super) mod fence;
mod judge;
mod plan;
pub(super) mod shred;
mod standby;

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::clock::SimulatedClock;
use super::process::Host;
use super::service::{self, Workers};
use super::world::World;
use crate::base::entropy::SeededEntropy;
use crate::engine::executor::Executor;
use crate::engine::ports::{BucketErrorKind, Clock};
use crate::engine::replica::{self, Active, ClaimedLog, ReplicaError, ReplicaWorld};
use crate::machine::replica_lease::{LEASE_MAX, LeaseRules};
use crate::store::Store;
use crate::store::open::{OpenError, ReplicaStart};
use crate::store::replica::claim::ClaimCause;
use crate::store::single_threaded::{DIRECTORY, Machine, Turns};

pub(super) use failover::{connect_all, fail_over, has_successor, promoted};
pub(super) use fence::Takeover;
pub(super) use judge::{after_end, at_the_end, wait_for_base};
pub(super) use plan::{Failover, ReplicaPlan};
pub(super) use standby::{Promotion, stand_by};

/// Time within which a machine catches up with the log and claims it. No outage of the bucket takes as long.
const CLAIM: Duration = Duration::from_secs(3600);

/// A claimed log, for the start of a process.
pub(super) struct Claim(pub(super) ClaimedLog);

/// Creates the replica's ports for a process on a machine.
fn ports_of(world: &Arc<World>, node: usize, salt: u64) -> ReplicaWorld {
    ports(world, &world.machine(node), Some(node), salt)
}

/// Creates the replica's ports for a process on the disk of `machine`.
fn ports(world: &Arc<World>, machine: &Machine, node: Option<usize>, salt: u64) -> ReplicaWorld {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(&world.clocks));
    let seed = world.plan.seed.wrapping_mul(1_000) + u64::from(world.life());
    let plan = world.plan.replica.as_ref();
    // A new disk has another name.
    let lost_disks = |node: usize| world.state().nodes[node].lost_disks;
    let (holder, place) = match node {
        None => ("restore".to_owned(), 1),
        Some(0) if lost_disks(0) == 0 => ("first".to_owned(), 1),
        Some(node) => (format!("machine-{node}-{}", lost_disks(node)), 2 + node as u64 + 10 * lost_disks(node)),
    };
    ReplicaWorld {
        bucket: Arc::new(bucket::connect(world, node)),
        disk: machine.disk(),
        executor: Executor::Inline,
        holder: holder.parse().unwrap(),
        place,
        clock,
        real: Arc::new(world.clocks.clone()),
        entropy: Arc::new(SeededEntropy::new(seed ^ salt)),
        encrypts: plan.is_none_or(|plan| plan.encrypts),
        lease: plan.map_or(LeaseRules { lease: LEASE_MAX, stops: false, is_automatic: false }, |plan| plan.lease),
        on_retry: Arc::new(|_| {}),
    }
}

/// Claims the log for the next process of the machine `node`, which may be a standby that is promoted. `None` without a
/// replica.
///
/// # Errors
/// The reason why the log can't be claimed.
pub(super) async fn claim_at_start(
    world: &Arc<World>,
    node: usize,
    workers: &Workers,
) -> Result<Option<Claim>, ReplicaError> {
    let Some(promotion) = world.state().promotion else { return claim(world, node, workers, ClaimCause::Start).await };
    // Frequent failures of the bucket may hide for ever that the log is abandoned.
    let patience = if promotion == Promotion::ByHand { Duration::ZERO } else { LEASE_MAX * 20 };
    let promoted_at = Some(world.clocks.elapsed() + patience);
    loop {
        let cause = standby::follow(world, node, promoted_at).await;
        match claim(world, node, workers, cause).await {
            Err(error @ (ReplicaError::Moved | ReplicaError::Claimed { .. } | ReplicaError::Broken { .. })) => {
                world.note(format!("the log was not claimed: {error}"));
            }
            claimed => return claimed,
        }
    }
}

/// Creates the store if there is none, lets it catch up with the log, and claims the log. `None` without a replica.
///
/// # Errors
/// The reason why the log can't be claimed.
async fn claim(
    world: &Arc<World>,
    node: usize,
    workers: &Workers,
    cause: ClaimCause,
) -> Result<Option<Claim>, ReplicaError> {
    if world.plan.replica.is_none() {
        return Ok(None);
    }
    let machine = world.machine(node);
    if !machine.disk().has_store(Path::new(DIRECTORY)) {
        let (store, _) = service::open(world, node, workers, None)?;
        store.close();
        settle(workers);
        // The database must be closed before another process of the machine opens it.
        drop(store);
        *workers.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    world.state().master_key = Some(machine.master_key()?);
    let ports = ports_of(world, node, 0xc1a1);
    let joining =
        timeout(CLAIM, replica::join(&ports, Path::new(DIRECTORY), cause, &mut |error| error.kind.is_transient()))
            .await;
    let Ok(joined) = joining else {
        world.find("liveness: the log is not claimed".to_owned());
        return Err(ReplicaError::NoBase);
    };
    let joined = joined?;
    world.note(format!("claimed slot {} in epoch {}", joined.claim.slot, joined.claim.epoch));
    Ok(Some(Claim(joined)))
}

/// Closes a store, and serves its workers to their end. A batch waits for the bucket for at most `grace`.
pub(super) async fn close(world: &World, store: &Store, host: &Host, grace: Duration) {
    store.close();
    let workers = &host.workers;
    let landed = async {
        while workers.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Turns::is_landing) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        biased;
        _ = timeout(grace, landed) => {}
        () = service::serve_workers(world, host) => unreachable!("workers never end"),
    }
    store.outbox().into_iter().for_each(|outbox| outbox.end_waits());
    settle(workers);
}

/// Serves everything that is queued, and makes a checkpoint.
fn settle(workers: &Workers) {
    if let Some(turns) = &mut *workers.lock().unwrap_or_else(PoisonError::into_inner) {
        turns.settle();
        turns.checkpoint_now();
    }
}

impl Claim {
    /// Returns the position at which the store is opened.
    pub(super) fn start(&self, world: &World) -> Option<ReplicaStart> {
        let plan = world.plan.replica.as_ref()?;
        let (confirmed, backlog_bytes_max, sync) = (self.0.claim, plan.backlog_bytes_max, plan.sync);
        Some(ReplicaStart { confirmed, backlog_bytes_max, sync })
    }

    /// Starts shipping the store's batches.
    ///
    /// # Errors
    /// The store does not replicate.
    pub(super) async fn ship(self, world: &World, store: &Arc<Store>) -> Result<Option<Active>, ReplicaError> {
        let Some(plan) = &world.plan.replica else { return Ok(None) };
        Active::start(self.0, store, plan.pace(), plan.bases()).await.map(Some)
    }
}

/// Returns whether a start may fail with this error while the disk or the bucket has faults.
pub(super) fn is_of_faults(error: &ReplicaError) -> bool {
    match error {
        ReplicaError::Bucket(error) => error.kind != BucketErrorKind::Unsupported,
        ReplicaError::Open(OpenError::Failed(_) | OpenError::Io { .. } | OpenError::Damaged { .. })
        | ReplicaError::Store(_)
        | ReplicaError::Io { .. } => true,
        _ => false,
    }
}
