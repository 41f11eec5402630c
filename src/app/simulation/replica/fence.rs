//! Takeovers: the actions that the old process may still take, and the data that its successor may lack.

use std::sync::Arc;
use std::time::Duration;

use super::ReplicaPlan;
use crate::app::simulation::plan::FaultClass;
use crate::app::simulation::world::{Progress, World};
use crate::engine::Engine;

/// A claim of the log by another machine.
#[derive(Debug, Clone, Copy)]
pub(in crate::app::simulation) struct Takeover {
    /// Elapsed time at which the old process lost the bucket.
    cut_at: Duration,
    /// Elapsed time until which faults or the start of the old process could delay its calls to the bucket.
    disturbed_until: Duration,
    /// Maximum time until the bucket has a change, without faults.
    bound: Duration,
    /// Elapsed time after which the old process no longer accepts or sends.
    fenced_at: Duration,
}

impl Takeover {
    /// Returns whether the bucket may lack a change of the old process at `at`.
    fn may_lack(&self, at: Duration) -> bool {
        self.cut_at <= at.max(self.disturbed_until) + self.bound
    }
}

/// Returns the takeover of a process that lost the bucket at `cut_at`, or that still has it.
pub(super) fn takeover(world: &World, plan: &ReplicaPlan, cut_at: Duration) -> Takeover {
    // After an error of the disk a new base may replace the log.
    let is_disk_faulty = [FaultClass::Disk, FaultClass::Full].iter().any(|fault| world.plan.faults.contains(fault));
    let disturbed_until = if is_disk_faulty { cut_at } else { bounded_from(world, plan) };
    Takeover { cut_at, disturbed_until, bound: plan.bound(), fenced_at: Duration::MAX }
}

/// Returns the time from which the bound of the plan applies to the process that serves.
pub(super) fn bounded_from(world: &World, plan: &ReplicaPlan) -> Duration {
    // After a takeover all clients submit at once, which may exceed a small backlog. Then a new base is needed.
    let burst = if has_standby(world) && plan.has_small_backlog() { plan.recovery() } else { Duration::ZERO };
    let state = world.state();
    let recovered_at = state.bucket_failed_at.map_or(Duration::ZERO, |at| at + plan.recovery());
    recovered_at.max(state.served_at + burst)
}

/// Forbids the process `life` to act after `at`.
pub(super) fn fence(world: &World, life: u32, at: Duration) {
    if let Some(takeover) = world.state().takeovers.get_mut(&life) {
        takeover.fenced_at = takeover.fenced_at.min(at);
    }
}

/// Judges the acceptance of a request that came at `at`: only the holder of the log accepts, or one whose lease is not
/// over.
pub(in crate::app::simulation) fn accepts(world: &World, life: u32, at: Duration) {
    let fenced_at = world.state().takeovers.get(&life).map(|takeover| takeover.fenced_at);
    if fenced_at.is_some_and(|fenced_at| at > fenced_at) {
        world.find(format!("one holder: process {life} accepts after its successor may send"));
    }
}

/// Judges a process that begins to send: while a process may stop without the bucket, no two send at the same time.
pub(in crate::app::simulation) fn sends(world: &World, life: u32) {
    let Some(plan) = &world.plan.replica else { return };
    let now = world.clocks.elapsed();
    if plan.lease.stops
        && let Some(before) = life.checked_sub(1)
    {
        fence(world, before, now);
    }
    let fenced_at = world.state().takeovers.get(&life).map(|takeover| takeover.fenced_at);
    if fenced_at.is_some_and(|fenced_at| now > fenced_at) {
        world.find(format!("one holder: process {life} sends after its successor may send"));
    }
}

/// Returns whether a successor may lack changes that the process `life` made at `at`.
pub(in crate::app::simulation) fn may_lack(world: &World, life: u32, at: Duration) -> bool {
    world.state().takeovers.range(life..).next().is_some_and(|(_, takeover)| takeover.may_lack(at))
}

/// Returns whether a successor may lack a message, an event or an outcome that the process `life` recorded at `at`,
/// although it was acknowledged.
pub(in crate::app::simulation) fn may_lose(world: &World, life: u32, at: Duration) -> bool {
    is_lossy(world) && may_lack(world, life, at)
}

/// Returns whether a successor has claimed the log of the process `life`, and may lack changes that it acknowledges.
pub(in crate::app::simulation) fn may_lose_answers(world: &World, life: u32) -> bool {
    is_lossy(world) && world.state().takeovers.contains_key(&life)
}

/// Returns whether the process `life` may send beside its successor, because it continues without the bucket.
pub(in crate::app::simulation) fn may_continue(world: &World, life: u32) -> bool {
    let stops = world.plan.replica.as_ref().is_none_or(|plan| plan.lease.stops);
    !stops && world.state().takeovers.contains_key(&life)
}

fn is_lossy(world: &World) -> bool {
    world.plan.replica.as_ref().is_some_and(|plan| !plan.loses_nothing())
}

/// Returns whether takeovers are part of the run.
pub(in crate::app::simulation) fn has_standby(world: &World) -> bool {
    world.plan.faults.contains(&FaultClass::Failover)
}

/// Judges the store of a successor: it lacks at most the last acknowledged messages. Their submissions are lost.
pub(super) fn judge_loss(world: &Arc<World>, engine: &Engine, takeover: &Takeover) {
    if !is_lossy(world) {
        return;
    }
    let tenants = world.tenants();
    for (number, submission) in world.submissions().iter().enumerate() {
        let Progress::Accepted(ids) = &submission.progress else { continue };
        let account = tenants[submission.tenant].account;
        if ids.iter().all(|id| matches!(engine.message(account, *id), Ok(Some(_)))) {
            continue;
        }
        world.note(format!("the successor lacks {}", submission.subject));
        if !takeover.may_lack(submission.accepted_at) {
            world.find(format!("replica: the successor lacks {}", submission.subject));
        }
        world.state().submissions[number].progress = Progress::Lost;
    }
}
