//! Batches that only this directory has: it was deposed, or an older copy of it continued the log.

use std::path::Path;
use std::sync::Arc;

use super::error::ReplicaError;
use super::follow::{FollowStep, LogFollower};
use super::objects::ReplicaObjects;
use super::world::ReplicaWorld;
use crate::base::time::Timestamp;
use crate::store::replica::payload;
use crate::store::replica::slot::SlotBody;
use crate::store::replica::stranded::Stranded;
use crate::store::replica::{Follower, Head, Kind, OwnClaim};

/// Maximum number of slots that are read backwards for the last batch: claims and beats may follow it.
const SLOTS_READ: u64 = 1000;

/// Returns the messages of the store in `directory` that the log lacks, because another machine claimed the log without
/// them, or continued the store in another bucket. Nothing is stranded while the log is the directory's own: its next
/// start sends the rest.
///
/// # Errors
/// Errors of the bucket, a directory of another store, or the store.
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
        // The remaining log does not show when the batch was committed.
        Some(branch) => Ok(log.follower.stranded_after(branch, None)?),
        None => {
            let logged_at = logged_at(&log, &objects).await?;
            Ok(log.follower.stranded_after(log.logged(), logged_at)?)
        }
    }
}

/// Returns the commit time of the last batch in the log up to the cursor of `log`, if the log still has it.
async fn logged_at(log: &LogFollower, objects: &ReplicaObjects) -> Result<Option<Timestamp>, ReplicaError> {
    if log.logged_at.is_some() {
        return Ok(log.logged_at);
    }
    let end = log.cursor.slot + 1;
    for number in (end.saturating_sub(SLOTS_READ)..end).rev() {
        let Some(slot) = objects.slot(number).await? else { return Ok(None) };
        let SlotBody::Batches(payload) = &slot.body else { continue };
        let last =
            payload::pieces(payload).filter_map(Result::ok).filter(|piece| piece.sequence == log.logged()).last();
        if let Some(piece) = last {
            return Ok(Some(piece.committed_at));
        }
    }
    Ok(None)
}
