//! The start of an active machine: its store catches up with the log, and claims the log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::claim::{Claimed, PendingClaim};
use super::error::ReplicaError;
use super::follow::{Cursor, FollowStep, LogFollower};
use super::lease::Lease;
use super::objects::ReplicaObjects;
use crate::base::entropy::{self, Entropy};
use crate::base::id::Ulid;
use crate::base::secret::MasterKey;
use crate::engine::bucket::probe;
use crate::engine::executor::Executor;
use crate::engine::ports::{Bucket, BucketError, BucketErrorKind, Clock};
use crate::machine::replica_lease::{LeaseRules, Predecessor, wait_for};
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::identity::Identity;
use crate::store::replica::name::ObjectName;
use crate::store::replica::{
    Follower, Head, Holder, Kind, ObjectFault, Position, ReplicaDisk, Sealer, clear_marks, is_fork,
};
use crate::store::schema::FORMAT;

/// Ports and settings that a process needs to work on a replica.
#[derive(Clone)]
pub struct ReplicaWorld {
    /// The bucket.
    pub bucket: Arc<dyn Bucket>,
    /// The disk of the data directory.
    pub disk: ReplicaDisk,
    /// The place where blocking work runs.
    pub executor: Executor,
    /// The name of the data directory in the log.
    pub holder: Holder,
    /// The service's time, for timestamps and content deadlines.
    pub clock: Arc<dyn Clock>,
    /// The machine's own time, for the lease: the unadjusted wall clock and the continuous clock.
    pub real: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Whether objects are sealed.
    pub encrypts: bool,
    /// The rules of the lease.
    pub lease: LeaseRules,
}

/// A claimed log.
pub struct Joined {
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

impl Joined {
    /// Returns how long the previous holder may still send mail.
    pub fn wait(&self) -> Duration {
        match self.predecessor {
            Predecessor::Other { lease } => wait_for(lease),
            Predecessor::Released | Predecessor::Own => Duration::ZERO,
        }
    }

    /// Returns the lease that starts with the claim.
    pub(super) fn begin_lease(&self) -> Lease {
        Lease::new(self.lease, Arc::clone(&self.real), self.asked_at, self.predecessor)
    }
}

/// Called when the bucket did not answer, with the time since the first failure.
pub type OnWait<'a> = dyn FnMut(&BucketError, Duration) + Send + 'a;

impl ReplicaWorld {
    /// Returns the objects of the store `store`, sealed under `master`.
    pub fn objects(&self, master: Arc<MasterKey>, store: Ulid) -> ReplicaObjects {
        ReplicaObjects {
            bucket: Arc::clone(&self.bucket),
            disk: self.disk.clone(),
            executor: self.executor,
            sealer: Sealer::new(master, store, self.encrypts),
            holder: self.holder.clone(),
            clock: Arc::clone(&self.clock),
            real: Arc::clone(&self.real),
            entropy: Arc::clone(&self.entropy),
        }
    }

    /// Checks that this machine's clock is near the bucket's, after the bucket has answered.
    ///
    /// # Errors
    /// [`ReplicaError::Clock`].
    pub fn check_clock(&self) -> Result<(), ReplicaError> {
        probe::clock(self.bucket.date(), self.real.now()).map_err(ReplicaError::Clock)
    }

    /// Returns the identity of the store in the bucket, if there is one.
    ///
    /// # Errors
    /// The bucket; [`ReplicaError::OtherStore`] if another master key wrote it.
    pub async fn identity(&self, master: &MasterKey) -> Result<Option<Identity>, ReplicaError> {
        let name = ObjectName::Store;
        let Some(bytes) = self.bucket.read(&name.to_string()).await? else { return Ok(None) };
        match Identity::decode(&bytes, master) {
            Ok(identity) => Ok(Some(identity)),
            Err(ObjectFault::Unsealable) => Err(ReplicaError::OtherStore),
            Err(fault) => Err(super::objects::unreadable(&name, fault)),
        }
    }
}

impl ReplicaObjects {
    /// Writes the object `store` unless it exists.
    ///
    /// # Errors
    /// The bucket.
    pub(super) async fn write_identity(&self, claim: &Position) -> Result<(), ReplicaError> {
        let head = self.head(Kind::Store, 0, claim.epoch);
        let identity = Identity { store: claim.store, row_format: FORMAT, head };
        let bytes = identity.encode(self.sealer.master_key());
        self.bucket.create(&ObjectName::Store.to_string(), bytes.into()).await?;
        Ok(())
    }
}

/// Waits while the bucket does not answer. Refused credentials end the wait.
pub struct BucketRetry<'a> {
    on_wait: &'a mut OnWait<'a>,
    since: Option<Instant>,
    backoff: Backoff,
}

impl<'a> BucketRetry<'a> {
    /// Reports each failure to `on_wait`.
    pub fn new(on_wait: &'a mut OnWait<'a>) -> Self {
        Self { on_wait, since: None, backoff: Backoff::default() }
    }

    /// Returns the result, or waits after a transient failure.
    ///
    /// # Errors
    /// Any other failure.
    pub async fn take<T>(
        &mut self,
        asked: Result<T, ReplicaError>,
        entropy: &dyn Entropy,
    ) -> Result<Option<T>, ReplicaError> {
        match asked {
            Ok(answer) => {
                (self.since, self.backoff) = (None, Backoff::default());
                Ok(Some(answer))
            }
            Err(ReplicaError::Bucket(error))
                if !matches!(error.kind, BucketErrorKind::Forbidden | BucketErrorKind::Refused) =>
            {
                let since = *self.since.get_or_insert_with(Instant::now);
                (self.on_wait)(&error, since.elapsed());
                sleep(self.backoff.next(entropy)).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
) -> Result<Joined, ReplicaError> {
    let mut retry = BucketRetry::new(on_wait);
    let entropy = Arc::clone(&world.entropy);
    let follower = Follower::open(&world.disk, directory, world.clock.now(), Arc::clone(&entropy))?;
    let mut joining = loop {
        let begun = Joining::identify(world, directory, &follower).await;
        if let Some((objects, cursor)) = retry.take(begun, &*entropy).await? {
            let log = LogFollower::at(follower, cursor);
            let (is_fork, lease, real) = (is_fork(&world.disk, directory), world.lease, Arc::clone(&world.real));
            break Joining { objects, log, is_fork, cause, lease, real, is_searched: false };
        }
    };
    let joined = loop {
        let turn = joining.turn().await;
        if let Some(Some(joined)) = retry.take(turn, &*entropy).await? {
            break joined;
        }
    };
    joining.log.follower.checkpoint()?;
    clear_marks(&world.disk, directory)
        .map_err(|error| ReplicaError::Io { what: "removing the marks of the directory".to_owned(), error })?;
    Ok(joined)
}

/// A store that is catching up for a claim.
struct Joining {
    objects: ReplicaObjects,
    log: LogFollower,
    is_fork: bool,
    cause: ClaimCause,
    lease: LeaseRules,
    real: Arc<dyn Clock>,
    /// Whether the log was searched for slots after a missing one.
    is_searched: bool,
}

impl Joining {
    /// Reads the identity of the store in the bucket, and the position of this directory in its log.
    async fn identify(
        world: &ReplicaWorld,
        directory: &Path,
        follower: &Follower,
    ) -> Result<(ReplicaObjects, Cursor), ReplicaError> {
        let master = follower.master_key();
        let position = follower.position();
        let fork = is_fork(&world.disk, directory);
        let Some(identity) = world.identity(master).await.map_err(|error| of_fork(error, fork))? else {
            let known = position.filter(|_| !fork);
            if let Some(position) = known {
                tracing::error!(
                    slot = position.slot,
                    "the bucket is empty, but contained a replica before; making a new one"
                );
            }
            let drawn = || Ulid::new(world.clock.now(), entropy::bytes(&*world.entropy));
            let store = known.map_or_else(drawn, |position| position.store);
            let objects = world.objects(Arc::clone(master), store);
            let begin = Position { store, ..Position::default() };
            objects.write_identity(&begin).await?;
            // Another process may have written the identity first.
            let found = world.identity(master).await?;
            return match found.filter(|identity| identity.store == store) {
                Some(_) => Ok((objects, known.map_or_else(Cursor::default, Cursor::of))),
                None => Err(ReplicaError::OtherStore),
            };
        };
        let objects = world.objects(Arc::clone(master), identity.store);
        match position {
            Some(position) if position.store == identity.store => Ok((objects, Cursor::of(position))),
            Some(_) => Err(of_fork(ReplicaError::OtherStore, fork)),
            None => {
                let first = objects.slot(1).await?.map_or(identity.head, |slot| slot.link.head);
                let is_own = first.holder == world.holder;
                if is_own { Ok((objects, Cursor::default())) } else { Err(of_fork(ReplicaError::OtherStore, fork)) }
            }
        }
    }

    /// Returns the holder of the log up to the cursor, for a claim after it.
    fn predecessor(&self) -> Predecessor {
        let lease = self.log.lease();
        let of_other = |lease: Duration| Predecessor::Other { lease: lease.max(self.lease.lease) };
        match &self.log.cursor.head {
            Some(head) if head.kind == Kind::Release => Predecessor::Released,
            Some(head) if head.holder == self.objects.holder => match lease.of_others(self.objects.clock.now()) {
                Duration::ZERO => Predecessor::Own,
                // This directory claimed the log from another machine, and has not waited for that machine's lease.
                earlier => of_other(earlier),
            },
            Some(_) => of_other(lease.longest()),
            // The bucket was emptied, or the log is new.
            None if self.cause == ClaimCause::Start || self.log.cursor.slot == 0 => Predecessor::Released,
            None => of_other(lease.longest()),
        }
    }

    /// Applies the next slot. Returns whether the log ends before it.
    async fn is_at_end(&mut self) -> Result<bool, ReplicaError> {
        let (own, is_fork) = (self.objects.holder.clone(), self.is_fork);
        let accepts = |head: &Head| match () {
            () if is_fork => Err(ReplicaError::Fork),
            () if head.kind == Kind::Claim && head.holder != own => {
                Err(ReplicaError::Claimed { slot: head.number, holder: head.holder.to_string() })
            }
            () => Ok(()),
        };
        let step = match self.is_searched && self.log.is_at_end() {
            // Another request before the claim would lose the slot to a busy holder.
            true => Ok(FollowStep::End),
            false => self.log.step(&self.objects, accepts).await,
        };
        // The log grew, so its holder is alive. A standby that claims automatically continues to follow.
        let is_moved = matches!(step, Ok(FollowStep::Applied(_)) | Err(ReplicaError::Claimed { .. }));
        if is_moved && self.cause == ClaimCause::Failover {
            return Err(ReplicaError::Moved);
        }
        if step? != FollowStep::End {
            return Ok(false);
        }
        if !self.is_searched && self.log.lacks_slot(&self.objects).await? {
            let why = "slots that this directory lacks were removed by collection".to_owned();
            let broken = ReplicaError::Broken { slot: self.log.cursor.slot, why };
            return Err(self.log.stranded(broken));
        }
        self.is_searched = true;
        Ok(true)
    }

    /// Applies the next slot, or claims the one after the last. Returns `None` until the claim succeeds.
    async fn turn(&mut self) -> Result<Option<Joined>, ReplicaError> {
        if !self.is_at_end().await? {
            return Ok(None);
        }
        self.log.learn_holder(&self.objects).await?;
        let began = (self.cause, if self.lease.stops { self.lease.lease } else { Duration::ZERO });
        let asked = PendingClaim::new(&self.objects, &self.log.cursor, self.log.logged(), began);
        let mut backoff = Backoff::default();
        let claimed = loop {
            match asked.attempt(&self.objects).await {
                Err(ReplicaError::Bucket(error)) if error.kind.is_in_doubt() => {
                    // Retries with the same bytes: if an earlier claim without an answer succeeded, this claim is the
                    // same.
                    sleep(backoff.next(&*self.objects.entropy)).await;
                }
                claimed => {
                    self.is_searched = claimed.is_ok();
                    break claimed?;
                }
            }
        };
        match claimed {
            Claimed::Moved if self.cause == ClaimCause::Failover => Err(ReplicaError::Moved),
            Claimed::Moved => {
                self.log.expect_slots();
                Ok(None)
            }
            Claimed::History => {
                let why = "the log starts again after the free slot".to_owned();
                Err(ReplicaError::Broken { slot: self.log.cursor.slot, why })
            }
            Claimed::Yes(claim) => {
                self.log.end(&self.objects)?;
                if self.cause.holds_queue() {
                    self.log.follower.hold_queue(asked.time)?;
                }
                let was_migrated = self.log.follower.format()? != FORMAT;
                Ok(Some(Joined {
                    objects: self.objects.clone(),
                    claim,
                    predecessor: self.predecessor(),
                    was_migrated,
                    lease: self.lease,
                    asked_at: asked.asked_at,
                    real: Arc::clone(&self.real),
                }))
            }
        }
    }
}

fn of_fork(error: ReplicaError, is_fork: bool) -> ReplicaError {
    if is_fork && matches!(error, ReplicaError::OtherStore) { ReplicaError::Fork } else { error }
}
