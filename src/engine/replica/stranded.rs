//! Batches that only this directory has: it was deposed, or an older copy of it continued the log.

use std::path::Path;
use std::sync::Arc;

use super::error::ReplicaError;
use super::follow::{FollowStep, LogFollower};
use super::world::ReplicaWorld;
use crate::store::replica::stranded::Stranded;
use crate::store::replica::{Follower, Head, Kind, OwnClaim};

/// Returns the messages of the store in `directory` that the log lacks, because another machine claimed the log without
/// them, or continued the store in another bucket. Nothing is stranded while the log is the directory's own: its next
/// start sends the rest.
///
/// # Errors
/// The bucket, a directory of another store, or the store.
pub async fn stranded(world: &ReplicaWorld, directory: &Path) -> Result<Stranded, ReplicaError> {
    let follower = Follower::open(&world.disk, directory, world.clock.now(), Arc::clone(&world.entropy))?;
    let Some(position) = follower.position() else { return Ok(Stranded::default()) };
    let master = Arc::clone(follower.master_key());
    let identity = world.identity(&master).await?.ok_or(ReplicaError::OtherStore)?;
    if identity.store != position.store {
        return Err(ReplicaError::OtherStore);
    }
    let objects = world.objects(master, identity.store);
    let mut log = LogFollower::new(follower);
    // The batches of another machine must not be applied to this directory.
    let accepts = |head: &Head| match head.kind == Kind::Claim && head.holder != world.holder {
        true => Err(ReplicaError::Claimed { slot: head.number, holder: head.holder.to_string() }),
        false => Ok(()),
    };
    let own = OwnClaim::read(&world.disk, directory);
    let is_at_end = loop {
        match log.step(&objects, accepts).await {
            Ok(FollowStep::Applied(_)) => {}
            Ok(FollowStep::End | FollowStep::Reached) if !log.lacks_slot(&objects).await? => break true,
            Ok(FollowStep::End | FollowStep::Reached) if log.skip_lost_slots(&objects, own).await? => {}
            Ok(FollowStep::End | FollowStep::Reached) => break false,
            Err(ReplicaError::Claimed { .. } | ReplicaError::Stranded { .. }) => break false,
            Err(error) if error.needs_base() => break false,
            Err(error) => return Err(error),
        }
    };
    match log.branch(&objects, own).await? {
        None if is_at_end => Ok(Stranded::default()),
        branch => Ok(log.follower.stranded_after(branch.unwrap_or(log.logged()))?),
    }
}
