//! The start of an active machine: its store catches up with the log, and claims the log.
//!
//! The life of a claim:
//!
//! ```text
//!             the store's own log, or none: the bucket is new or was emptied
//!  identify ------------------------------------------------------------------> follow <--------.
//!     | another store's log, or a restored directory                              |             |
//!     '--> OtherStore, Fork                                                       |             |
//!                                                                                 |             |
//!  follow: the next slot                                                          |             |
//!     | is there, and continues this store: applied ------------------------------+-- again ----+
//!     | is another machine's claim --> Claimed                                    |             |
//!     | has other batches than this directory --> Stranded                        |             |
//!     | is lost, and later ones are of this directory's epoch: skipped -----------+-- again ----+
//!     | is lost, and later ones are not --> Broken                                |             |
//!     | does not exist: the log ends                                              |             |
//!     v                                                                           |             |
//!  claim: create the next slot; without an answer, again with the same bytes     |             |
//!     | the slot is taken: the log has grown -------------------------------------+-- again ----'
//!     | a base is at or above the slot: it was collected --> Broken
//!     | created: this machine owns the log
//!     v
//!  record: the hold and the claim's position in the store, then the epoch in a file
//!     |
//!     v
//!  Joined: the store is opened, and accepts at once
//!     | it sends at once if the log was released, or if this directory made the claim before, since the last boot
//!     | of its machine; otherwise after the longest lease that may be valid
//! ```
//!
//! A failover ends with `Moved` instead of "again": a log that grows has an active machine. After a crash between the
//! claim and its record, the next start reads the claim like any other slot.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::bucket_retry::{BucketRetry, OnWait};
use super::claim::{ClaimResult, PendingClaim};
use super::error::ReplicaError;
use super::follow::{Cursor, FollowStep, LogFollower};
use super::lease::Lease;
use super::objects::ReplicaObjects;
use super::world::ReplicaWorld;
use crate::base::entropy;
use crate::base::id::Ulid;
use crate::engine::ports::Clock;
use crate::machine::replica_lease::{LeaseRules, Predecessor};
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::{
    Follower, Head, Kind, OwnClaim, Position, clear_marks, continues_without_bucket, is_fork, swap,
};
use crate::store::schema::FORMAT;

/// Age from which a claim whose outcome is not known is made again: readers rely on its time.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(60);

/// A claimed log.
pub struct ClaimedLog {
    /// The objects of the store.
    pub objects: ReplicaObjects,
    /// The position of the claim.
    pub claim: Position,
    /// The previous holder of the log.
    pub(super) predecessor: Predecessor,
    /// Whether the log before the claim has rows of an earlier format.
    pub was_migrated: bool,
    /// The rules of the lease.
    pub(super) lease: LeaseRules,
    /// Time of the claim's request, on the machine's own clock.
    pub(super) asked_at: Duration,
    real: Arc<dyn Clock>,
}

impl ClaimedLog {
    /// Returns the time for which the previous holder may still send mail.
    pub fn wait(&self) -> Duration {
        self.predecessor.wait()
    }

    /// Returns the lease that starts with the claim.
    pub(super) fn begin_lease(&self) -> Lease {
        Lease::new(self.lease, Arc::clone(&self.real), self.asked_at, self.predecessor)
    }
}

/// Lets the store in `directory` catch up with the log in the bucket, then claims the log. No process may have the
/// store open. Waits while the bucket does not answer.
///
/// # Errors
/// The reason why this directory must not claim the log.
pub async fn join<'a>(
    world: &ReplicaWorld,
    directory: &Path,
    cause: ClaimCause,
    on_wait: &'a mut OnWait<'a>,
) -> Result<ClaimedLog, ReplicaError> {
    let mut retry = BucketRetry::new(on_wait);
    let follower = Follower::open(&world.disk, directory, world.clock.now(), Arc::clone(&world.entropy))?;
    let is_fork = is_fork(&world.disk, directory);
    let (objects, cursor) = loop {
        let identified = identify(world, &follower, is_fork).await;
        if let Some(identified) = retry.take(identified, &*world.entropy).await? {
            break identified;
        }
    };
    let mut joining = JoiningStore {
        log: LogFollower::at(follower, cursor),
        own_claim: OwnClaim::read(&world.disk, directory),
        directory: directory.to_owned(),
        world: world.clone(),
        objects,
        is_fork,
        cause,
        has_asked_for_keys: false,
        is_searched: false,
        pending: None,
    };
    loop {
        let turn = joining.turn().await;
        if let Some(Some(joined)) = retry.take(turn, &*world.entropy).await? {
            return Ok(joined);
        }
    }
}

/// Reads the identity of the store in the bucket, and the position of this directory in its log.
async fn identify(
    world: &ReplicaWorld,
    follower: &Follower,
    is_fork: bool,
) -> Result<(ReplicaObjects, Cursor), ReplicaError> {
    let other_store = || if is_fork { ReplicaError::Fork } else { ReplicaError::OtherStore };
    let (master, position) = (follower.master_key(), follower.position());
    let identity = match world.identity(master).await {
        Err(ReplicaError::OtherStore) => return Err(other_store()),
        identity => identity?,
    };
    let Some(identity) = identity else { return begin_log(world, follower, is_fork).await };
    let objects = world.objects(Arc::clone(master), identity.store);
    match position {
        Some(position) if position.store == identity.store => Ok((objects, Cursor::of(position))),
        Some(_) => Err(other_store()),
        // The start that began the log did not claim it.
        None => {
            let first = objects.slot(1).await?.map_or(identity.head, |slot| slot.link.head);
            if first.holder == world.holder { Ok((objects, Cursor::default())) } else { Err(other_store()) }
        }
    }
}

/// Begins a log in an empty bucket: that of the store, which was there before, or a new one.
async fn begin_log(
    world: &ReplicaWorld,
    follower: &Follower,
    is_fork: bool,
) -> Result<(ReplicaObjects, Cursor), ReplicaError> {
    let (master, known) = (follower.master_key(), follower.position().filter(|_| !is_fork));
    if let Some(position) = known {
        tracing::error!(slot = position.slot, "the bucket is empty, but contained a replica before; making a new one");
    }
    let drawn = || Ulid::new(world.clock.now(), entropy::bytes(&*world.entropy));
    let store = known.map_or_else(drawn, |position| position.store);
    let objects = world.objects(Arc::clone(master), store);
    objects.write_identity(&Position { store, ..Position::default() }).await?;
    // Another process may have written the identity first.
    let found = world.identity(master).await?;
    match found.filter(|identity| identity.store == store) {
        Some(_) => Ok((objects, known.map_or_else(Cursor::default, Cursor::of))),
        None => Err(ReplicaError::OtherStore),
    }
}

/// A store that is catching up for a claim.
struct JoiningStore {
    world: ReplicaWorld,
    directory: PathBuf,
    objects: ReplicaObjects,
    log: LogFollower,
    /// The last claim that this directory recorded.
    own_claim: Option<OwnClaim>,
    is_fork: bool,
    cause: ClaimCause,
    /// Whether the bucket was asked for content keys that the store lacks.
    has_asked_for_keys: bool,
    /// Whether the log was searched for slots after a missing one.
    is_searched: bool,
    /// The claim whose outcome is not known. It is retried with the same bytes: if an earlier try without an answer
    /// succeeded, it is the same claim.
    pending: Option<PendingClaim>,
}

impl JoiningStore {
    /// Applies the next slot, or tries once to claim the one after the last. Returns `None` until the claim succeeds.
    async fn turn(&mut self) -> Result<Option<ClaimedLog>, ReplicaError> {
        if !self.has_asked_for_keys {
            // A standby may lack a key because of a wrong answer. An active machine does not ask for keys again.
            self.log.adopt_missing_keys(&self.objects).await?;
            self.has_asked_for_keys = true;
        }
        let asked = match self.pending.take() {
            Some(asked) if self.world.real.monotonic() < asked.asked_at + CLAIM_AGE_MAX => asked,
            // An older claim that succeeded meanwhile is read like any other slot.
            Some(_) | None => match self.prepare_claim().await? {
                Some(asked) => asked,
                None => return Ok(None),
            },
        };
        match asked.attempt(&self.objects).await {
            Ok(claimed) => self.finish(claimed, &asked),
            Err(error) => {
                (self.pending, self.is_searched) = (Some(asked), false);
                Err(error)
            }
        }
    }

    /// Applies the next slot, or returns the claim of the one after the last.
    async fn prepare_claim(&mut self) -> Result<Option<PendingClaim>, ReplicaError> {
        if !self.is_at_end().await? {
            return Ok(None);
        }
        self.log.learn_holder(&self.objects).await?;
        self.log.check_position(&self.objects, self.own_claim).await?;
        self.check_holder()?;
        // Readers of the claim rely on its time.
        self.world.check_clock()?;
        let lease = self.world.lease;
        let began = (self.cause, if lease.stops { lease.lease } else { Duration::ZERO });
        Ok(Some(PendingClaim::new(&self.objects, &self.log.cursor, self.log.logged(), began)))
    }

    /// Handles the outcome of a claim.
    fn finish(&mut self, claimed: ClaimResult, asked: &PendingClaim) -> Result<Option<ClaimedLog>, ReplicaError> {
        match claimed {
            ClaimResult::Moved if self.cause == ClaimCause::Failover => Err(ReplicaError::Moved),
            ClaimResult::Moved => {
                self.log.expect_slots();
                Ok(None)
            }
            ClaimResult::History => {
                let why = "the log starts again after the free slot".to_owned();
                Err(ReplicaError::Broken { slot: self.log.cursor.slot, why })
            }
            ClaimResult::Yes(claim) => {
                let predecessor = self.predecessor();
                self.record(&claim, asked, predecessor.wait())?;
                let was_migrated = self.log.follower.format()? != FORMAT;
                let (objects, real) = (self.objects.clone(), Arc::clone(&self.world.real));
                let (lease, asked_at) = (self.world.lease, asked.asked_at);
                Ok(Some(ClaimedLog { objects, claim, predecessor, was_migrated, lease, asked_at, real }))
            }
        }
    }

    /// Refuses the start of a directory that has followed another machine's log since its own last claim: that machine
    /// may serve. Only a released log has no holder. A directory that continued without the bucket has batches that the
    /// log lacks.
    fn check_holder(&self) -> Result<(), ReplicaError> {
        let is_own = self.own_claim.is_some_and(|claim| claim.epoch == self.log.cursor.epoch);
        let is_ahead = continues_without_bucket(&self.world.disk, &self.directory)
            || self.log.follower.sequence().number > self.log.logged();
        let follows = self.cause == ClaimCause::Start && !is_own && !is_ahead && !self.is_fork;
        let other = self.log.cursor.head.as_ref().filter(|head| head.holder != self.objects.holder);
        match other.filter(|head| follows && head.kind != Kind::Release) {
            Some(head) => Err(ReplicaError::Followed { holder: head.holder.to_string() }),
            None => Ok(()),
        }
    }

    /// Applies the next slot. Returns whether the log ends before it.
    async fn is_at_end(&mut self) -> Result<bool, ReplicaError> {
        if self.is_searched && self.log.is_at_end() {
            // Another request before the claim would lose the slot to a busy holder.
            return Ok(true);
        }
        let (own, is_fork) = (self.objects.holder.clone(), self.is_fork);
        let accepts = |head: &Head| match () {
            () if is_fork => Err(ReplicaError::Fork),
            () if head.kind == Kind::Claim && head.holder != own => {
                Err(ReplicaError::Claimed { slot: head.number, holder: head.holder.to_string() })
            }
            () => Ok(()),
        };
        let step = self.log.step(&self.objects, accepts).await;
        // The log grew, so its holder is alive. A standby that claims automatically continues to follow.
        let is_moved = matches!(step, Ok(FollowStep::Applied(_)) | Err(ReplicaError::Claimed { .. }));
        if is_moved && self.cause == ClaimCause::Failover {
            return Err(ReplicaError::Moved);
        }
        if step? != FollowStep::End {
            return Ok(false);
        }
        if !self.is_searched && self.log.lacks_slot(&self.objects).await? {
            if self.log.skip_lost_slots(&self.objects, self.own_claim).await? {
                return Ok(false);
            }
            let why = "slots that this directory lacks were removed by collection".to_owned();
            let broken = ReplicaError::Broken { slot: self.log.cursor.slot, why };
            return Err(self.log.stranded(&self.objects, self.own_claim, broken).await);
        }
        self.is_searched = true;
        Ok(true)
    }

    /// Returns the holder of the log up to the cursor, for a claim after it.
    fn predecessor(&self) -> Predecessor {
        let Cursor { slot, epoch, head, .. } = &self.log.cursor;
        if *slot == 0 || head.as_ref().is_some_and(|head| head.kind == Kind::Release) {
            return Predecessor::Released;
        }
        let (lease, place) = (self.log.lease(), self.objects.place);
        // A copy of this directory has the same name, but another place. Without a slot, the bucket was emptied.
        let is_named = head.as_ref().is_none_or(|head| head.holder == self.objects.holder);
        let recorded = self.own_claim.filter(|claim| claim.is_of(*epoch, place));
        let is_own = is_named && (recorded.is_some() || lease.is_of_place(place));
        let now = self.objects.clock.now();
        let has_waited = recorded.is_some_and(|claim| claim.waits_until <= self.world.real.monotonic());
        let longest = match is_own {
            true if has_waited || lease.of_others(now).is_zero() => return Predecessor::Own,
            // This directory claimed the log from another machine, and has not waited for that machine's lease.
            true => lease.of_others(now),
            false => lease.longest(now),
        };
        Predecessor::Other { lease: longest.max(self.world.lease.lease) }
    }

    /// Records the claim in the directory: the store is at its position, with its hold, and the directory knows that
    /// it has claimed this epoch and waits for earlier leases.
    fn record(&mut self, claim: &Position, asked: &PendingClaim, wait: Duration) -> Result<(), ReplicaError> {
        let waits_until = self.world.real.monotonic() + wait;
        self.log.end(&self.objects)?;
        let follower = &mut self.log.follower;
        if self.cause.holds_queue() {
            follower.hold_queue(asked.time)?;
        }
        follower.end_slot(*claim)?;
        follower.checkpoint()?;
        let own = OwnClaim { epoch: claim.epoch, place: self.world.place, waits_until };
        let written = own.write(&self.world.disk, &self.directory);
        written
            .and_then(|()| clear_marks(&self.world.disk, &self.directory))
            // From now on, this store is newer than the base that was to replace it.
            .and_then(|()| swap::abandon(&self.world.disk, &self.directory))
            .map_err(|error| ReplicaError::Io { what: "recording the claim in the directory".to_owned(), error })
    }
}
