//! The loss of the machine that serves: it ends, or it can't reach the bucket.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fence::{has_standby, judge_loss, takeover};
use super::{Failover, Promotion};
use crate::app::simulation::world::{End, World};
use crate::engine::Engine;
use crate::engine::replica::ReplicaError;

/// Loses the machine that serves. Returns the end of its process, unless it is only cut off from the bucket.
pub(in crate::app::simulation) fn fail_over(world: &Arc<World>, failover: Failover) -> Option<End> {
    match failover {
        Failover::CutOff(length, promoted_after) => {
            // The machine is cut off at once: the faults may end before the task runs.
            let (node, now) = (world.state().main, world.clocks.elapsed());
            world.state().nodes[node].cut_at = Some(now);
            tokio::spawn(cut_off(Arc::clone(world), node, length, promoted_after));
            None
        }
        Failover::DiskLost(promotion) => {
            succeed_by(world, promotion, world.clocks.elapsed());
            let (seed, mut state) = (world.plan.seed, world.state());
            let old = 1 - state.main;
            state.nodes[old].lose_disk(seed);
            Some(End::Lost)
        }
        Failover::Off(promotion) => {
            succeed_by(world, promotion, world.clocks.elapsed());
            Some(End::Lost)
        }
    }
}

/// Lets the next process begin on the other machine. The bucket has nothing of the current process after `at`.
fn succeed_by(world: &World, promotion: Promotion, at: Duration) {
    let Some(plan) = &world.plan.replica else { return };
    let (life, old) = (world.life(), world.state().main);
    let cut_at = world.state().nodes[old].cut_at.unwrap_or(at);
    let takeover = takeover(world, plan, cut_at);
    let mut state = world.state();
    state.takeovers.insert(life, takeover);
    state.nodes[old].is_deposed = true;
    (state.main, state.promotion) = (1 - old, Some(promotion));
}

/// Lets a machine reach the bucket again after `length`. An operator may promote the standby meanwhile, or later.
async fn cut_off(world: Arc<World>, node: usize, length: Duration, promoted_after: Option<Duration>) {
    let connected = async {
        sleep(length).await;
        connect(&world, node);
    };
    let promoted = async {
        let Some(after) = promoted_after else { return };
        sleep(after).await;
        if world.state().is_hostile {
            world.promotion.notify_one();
        }
    };
    tokio::join!(connected, promoted);
}

/// Lets all machines reach the bucket again.
pub(in crate::app::simulation) fn connect_all(world: &World) {
    for node in [0, 1] {
        connect(world, node);
    }
}

fn connect(world: &World, node: usize) {
    let now = world.clocks.elapsed();
    let mut state = world.state();
    if state.nodes[node].cut_at.take().is_some() {
        state.bucket_failed_at = Some(now);
    }
}

/// Judges the store of a standby that serves after a promotion.
pub(in crate::app::simulation) fn promoted(world: &Arc<World>, engine: &Engine) {
    if world.state().promotion.take().is_none() {
        return;
    }
    let takeover = world.state().takeovers.values().next_back().copied();
    if let Some(takeover) = takeover {
        judge_loss(world, engine, &takeover);
    }
    let mut state = world.state();
    let main = state.main;
    state.nodes[main].is_deposed = false;
}

/// Returns whether a process could not start because the standby had claimed the log before both ended. The standby
/// begins next.
pub(in crate::app::simulation) fn has_successor(world: &World, error: &ReplicaError) -> bool {
    let is_claimed = matches!(error, ReplicaError::Claimed { .. } | ReplicaError::Stranded { .. });
    let claiming_at = world.state().claiming_at.take();
    match claiming_at.filter(|_| is_claimed && has_standby(world)) {
        Some(at) => {
            succeed_by(world, Promotion::ByHand, at);
            true
        }
        None => false,
    }
}
