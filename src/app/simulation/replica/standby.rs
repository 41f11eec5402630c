//! The standby: it follows the log on the disk of the other machine until an operator promotes it or the log is
//! abandoned. Then it serves, and the old process becomes a standby once it sees the claim.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fence::{self, judge_loss};
use super::{Claim, is_of_faults, ports_of};
use crate::app::simulation::invariants;
use crate::app::simulation::process::{Front, Hosts, Process};
use crate::app::simulation::service::{self, Service};
use crate::app::simulation::world::{End, World};
use crate::engine::replica::{self, ReplicaError, ReplicaWorld, Standby};
use crate::machine::replica_lease::{LeaseInput, LeaseRules, LeaseState};
use crate::store::replica::claim::ClaimCause;
use crate::store::single_threaded::{DIRECTORY, Machine};

/// Interval between two checks for new slots.
const POLL: Duration = Duration::from_secs(1);
/// Interval between polls once faults have ended. It is longer, so that a run takes less time.
const POLL_AT_REST: Duration = Duration::from_secs(30);

/// The way in which a standby takes over from a machine that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app::simulation) enum Promotion {
    /// An operator promotes the standby.
    ByHand,
    /// Automatic promotion: the standby sees that the log is abandoned.
    ByLease,
}

/// Follows the log on the disk of `node` until it is promoted, and returns the cause of its claim. At the elapsed time
/// `promoted_at` an operator promotes it.
pub(super) async fn follow(world: &Arc<World>, node: usize, promoted_at: Option<Duration>) -> ClaimCause {
    let ports = ports_of(world, node, 0x57a9);
    let (mut standby, mut lease) = (None, LeaseState::Following { unchanged_since: None });
    loop {
        let asked_at = ports.real.monotonic();
        let turn = turn(world, (&ports, &world.machine(node)), &mut standby).await;
        let input = match &turn {
            Ok(true) => LeaseInput::Moved,
            Ok(false) => LeaseInput::Still(asked_at),
            Err(_) => LeaseInput::Unanswered,
        };
        let longest = standby.as_ref().map_or(ports.lease.lease, |open| ports.lease.lease.max(open.lease()));
        lease = lease.step(input, asked_at, &LeaseRules { lease: longest, ..ports.lease });
        let is_abandoned = lease == LeaseState::Claiming;
        if is_abandoned {
            lease = LeaseState::Following { unchanged_since: None };
        }
        let cause = match turn {
            _ if is_abandoned => Some(ClaimCause::Failover),
            Ok(false) if promoted_at.is_some_and(|at| at <= world.clocks.elapsed()) => Some(ClaimCause::Promotion),
            Ok(false) if standby.as_ref().is_some_and(Standby::owns_log) => Some(ClaimCause::Promotion),
            Ok(_) => None,
            Err(error) => {
                survive(world, &error);
                None
            }
        };
        if let Some(cause) = cause
            && close(&mut standby)
        {
            return cause;
        }
        let pause = match input {
            LeaseInput::Moved => Duration::ZERO,
            _ if world.state().is_hostile => POLL,
            _ => POLL_AT_REST,
        };
        tokio::select! {
            biased;
            () = world.promotion.notified(), if standby.is_some() => {
                if close(&mut standby) {
                    return ClaimCause::Promotion;
                }
            }
            () = sleep(pause) => {}
        }
    }
}

/// Closes the standby for its claim. Returns whether there is one.
fn close(standby: &mut Option<Standby>) -> bool {
    standby.take().is_some_and(|mut open| open.checkpoint().is_ok())
}

/// Judges a failure after which the standby tries again.
fn survive(world: &World, error: &ReplicaError) {
    world.note(format!("the standby failed: {error}"));
    if !matches!(error, ReplicaError::NoBase | ReplicaError::Missing { .. }) && !is_of_faults(error) {
        world.find(format!("liveness: the standby can't follow: {error}"));
    }
}

/// Opens the standby, or applies the next slot. Returns whether there was one. Batches that the log lacks are set
/// aside.
async fn turn(
    world: &Arc<World>,
    (ports, machine): (&ReplicaWorld, &Machine),
    standby: &mut Option<Standby>,
) -> Result<bool, ReplicaError> {
    let mut open = match standby.take() {
        Some(open) => open,
        None => {
            let key = world.state().master_key.clone().ok_or(ReplicaError::NoBase)?;
            machine.create_directory().map_err(|error| ReplicaError::Io { what: "starting".to_owned(), error })?;
            Standby::open(ports, Path::new(DIRECTORY), key, &[]).await?
        }
    };
    match open.follow().await {
        Err(error) if error.needs_base() => {
            world.note(format!("the standby begins with the newest base: {error}"));
            open.prepare_resync().await?;
            Ok(true)
        }
        Err(ReplicaError::Stranded { from, to }) => {
            world.note(format!("the standby sets batches {from} to {to} aside"));
            open.discard()?;
            Ok(true)
        }
        followed => {
            *standby = Some(open);
            followed
        }
    }
}

/// Lets the machine that does not serve follow the log, and take over when it is promoted or the log is abandoned.
pub(in crate::app::simulation) async fn stand_by(world: Arc<World>, front: Front, hosts: Hosts) {
    wake_deposed(&world, 1 - front.main().node).await;
    loop {
        let old = front.main();
        let node = 1 - old.node;
        let cause = follow(&world, node, None).await;
        world.state().claiming_at = Some(world.clocks.elapsed());
        let claim = match super::claim(&world, node, &hosts[node].workers, cause).await {
            Ok(claim) => claim,
            Err(error) => {
                world.note(format!("the log was not claimed: {error}"));
                if world.state().findings.is_empty() {
                    continue;
                }
                return;
            }
        };
        take_over(&world, &front, &hosts, (node, claim)).await;
        old.deposed().await;
        world.note(format!("process {} is deposed", old.life));
        fence::fence(&world, old.life, world.clocks.elapsed());
        old.stop(&world, &hosts).await;
        front.retire();
        world.machine(old.node).restart();
        hosts[old.node].clear();
        wake_deposed(&world, old.node).await;
    }
}

/// Starts a successor beside the process whose log it has claimed.
async fn take_over(world: &Arc<World>, front: &Front, hosts: &Hosts, (node, claim): (usize, Option<Claim>)) {
    let (Some(plan), Some(claim), old) = (&world.plan.replica, claim, front.main()) else { return };
    let now = world.clocks.elapsed();
    world.note(format!("process {} is succeeded on machine {node}", old.life));
    let claiming_at = world.state().claiming_at.take();
    let cut_at = world.state().nodes[old.node].cut_at.or(claiming_at).unwrap_or(now);
    let takeover = fence::takeover(world, plan, cut_at);
    world.state().takeovers.insert(old.life, takeover);
    if plan.lease.stops {
        fence::fence(world, old.life, now + claim.0.wait());
    }
    world.machine(old.node).forgive();
    {
        let mut state = world.state();
        state.lives.push(End::Deposed);
        (state.nodes[old.node].is_deposed, state.nodes[node].is_deposed) = (true, false);
        (state.main, state.served_at) = (node, now);
    }
    let opened = service::open(world, node, &hosts[node].workers, claim.start(world));
    let started = match opened {
        Ok(opened) => Service::start(world, opened, Some(claim)).await,
        Err(error) => Err(error.into()),
    };
    match started {
        Ok(started) => {
            let process = Process::new(world, node, started);
            judge_loss(world, &process.service.engine, &takeover);
            invariants::after_start(world, &process.service.engine);
            front.push(process);
        }
        Err(error) => world.find(format!("liveness: the successor does not start: {error}")),
    }
}

/// The old machine starts again after its log was claimed: it must not serve.
async fn wake_deposed(world: &Arc<World>, node: usize) {
    if !world.state().nodes[node].is_deposed {
        return;
    }
    let ports = ports_of(world, node, 0x01d);
    match replica::join(&ports, Path::new(DIRECTORY), ClaimCause::Start, &mut |error| error.kind.is_transient()).await {
        Ok(joined) => {
            world.find(format!("one holder: a deposed machine claimed the log again in epoch {}", joined.claim.epoch));
        }
        Err(error) => world.note(format!("the deposed machine does not start: {error}")),
    }
    world.state().nodes[node].is_deposed = false;
}
