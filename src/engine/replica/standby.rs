//! A standby: a data directory that follows the log, and claims it when it is promoted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::ReplicaError;
use super::follow::{FollowStep, LogFollower};
use super::objects::ReplicaObjects;
use super::rebuild::{self, Rebuild};
use super::status::BaseStatus;
use super::world::ReplicaWorld;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::master_key::Raw;
use crate::store::open::OpenError;
use crate::store::replica::{Follower, Head, ObjectName, OwnClaim, Position, aside, swap};
use crate::store::restore::{Lineage, is_unfinished};

/// Interval between two checkpoints of a standby.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// Interval between two sweeps, which destroy expired content, and between two checks for missing slots.
const SWEEP: Duration = Duration::from_secs(60);

/// A standby's store that follows the log.
pub struct Standby {
    objects: ReplicaObjects,
    log: LogFollower,
    directory: PathBuf,
    key: Raw,
    beside: &'static [&'static str],
    checkpoint_at: Instant,
    sweep_at: Instant,
    /// Time of the next check for missing slots at the end of the log.
    loss_at: Instant,
    /// Names of the content keys that the bucket lacked at the last sweep, before their deadline.
    missing_keys: Vec<String>,
}

impl Standby {
    /// Opens the standby in `directory`. An empty directory is built from the newest base.
    ///
    /// # Errors
    /// Errors of the bucket, a wrong clock, a directory of another store, or a bucket without a base.
    /// [`ReplicaError::Emptied`] if this directory owned the log that an empty bucket had.
    pub async fn open(
        world: &ReplicaWorld,
        directory: &Path,
        key: Raw,
        beside: &'static [&'static str],
    ) -> Result<Self, ReplicaError> {
        if is_unfinished(&world.disk, directory) {
            return Err(OpenError::HalfRestored.into());
        }
        finish_moves(world, directory)?;
        let master = Arc::new(MasterKey::new(&key));
        let Some(identity) = world.identity(&master).await? else { return Err(no_identity(world, directory)?) };
        world.check_clock()?;
        let objects = world.objects(master, identity.store);
        if !world.disk.has_store(directory) {
            build_aside(&objects, directory, &key, beside).await?;
            swap::finish(&world.disk, directory).map_err(unmoved)?;
        }
        let follower = Follower::open(&world.disk, directory, world.clock.now(), Arc::clone(&world.entropy))?;
        let log = match follower.position() {
            Some(position) if position.store == identity.store => LogFollower::new(follower),
            Some(_) | None => return Err(ReplicaError::OtherStore),
        };
        let now = Instant::now();
        let directory = directory.to_owned();
        let (checkpoint_at, sweep_at, loss_at, missing_keys) = (now, now, now, Vec::new());
        Ok(Self { objects, log, directory, key, beside, checkpoint_at, sweep_at, loss_at, missing_keys })
    }

    /// Applies the next slot. Returns false at the end of the log.
    ///
    /// # Errors
    /// Errors of the bucket or the store. [`ReplicaError::needs_base`] shows whether a new base helps.
    pub async fn follow(&mut self) -> Result<bool, ReplicaError> {
        match self.advance().await {
            Ok(has_more) => Ok(has_more),
            Err(error) => Err(self.log.stranded(&self.objects, self.own_claim(), error).await),
        }
    }

    /// Applies the next slot. Returns false at the end of the log.
    async fn advance(&mut self) -> Result<bool, ReplicaError> {
        let step = self.log.step(&self.objects, |_| Ok(())).await;
        if step.is_err() {
            // The next slots may be collected until the bucket answers again.
            self.loss_at = Instant::now();
        }
        let step = step?;
        if step == FollowStep::End {
            self.log.learn_holder(&self.objects).await?;
        }
        let now = Instant::now();
        if now >= self.checkpoint_at {
            self.log.follower.checkpoint()?;
            self.checkpoint_at = now + CHECKPOINT;
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP;
            self.log.follower.destroy_until(self.objects.expiry_time())?;
            let missing = self.log.adopt_missing_keys(&self.objects).await?;
            if !missing.is_empty() && missing != self.missing_keys {
                tracing::error!(?missing, "the bucket lacks keys of content that has not expired; asking again");
            }
            self.missing_keys = missing;
        }
        if now >= self.loss_at && step == FollowStep::End {
            let slot = self.log.cursor.slot;
            self.check_for_loss().await?;
            self.loss_at = now + SWEEP;
            if self.log.cursor.slot > slot {
                // Lost slots of this directory's own epoch were skipped.
                return Ok(true);
            }
        }
        Ok(step != FollowStep::End)
    }

    /// Fails if the log is another one, or if the next slot is missing, but later ones exist. Only a base above it
    /// helps.
    async fn check_for_loss(&mut self) -> Result<(), ReplicaError> {
        let own = self.own_claim();
        self.log.check_position(&self.objects, own).await?;
        if !self.log.lacks_slot(&self.objects).await? || self.log.skip_lost_slots(&self.objects, own).await? {
            return Ok(());
        }
        let slot = self.log.cursor.slot;
        if self.objects.bases().await?.last().is_some_and(|base| *base > slot) {
            let why = "a slot is missing, but later slots exist".to_owned();
            return Err(ReplicaError::Broken { slot, why });
        }
        Err(ReplicaError::Missing { name: ObjectName::Slot(slot + 1).to_string() })
    }

    /// Returns the last claim that this directory recorded.
    fn own_claim(&self) -> Option<OwnClaim> {
        OwnClaim::read(&self.objects.disk, &self.directory)
    }

    /// Builds a store from the newest base next to the current one. The current store stays until [`Standby::open`]
    /// replaces it.
    ///
    /// # Errors
    /// Errors of the bucket or the file system.
    pub async fn prepare_resync(&self) -> Result<(), ReplicaError> {
        build_aside(&self.objects, &self.directory, &self.key, self.beside).await
    }

    /// Moves a store with batches that the log lacks to a directory named after its last epoch.
    ///
    /// # Errors
    /// File system errors.
    pub fn discard(self) -> Result<PathBuf, ReplicaError> {
        let (disk, directory, epoch) = (self.objects.disk.clone(), self.directory.clone(), self.log.cursor.epoch);
        drop(self);
        aside::set_aside(&disk, &directory, epoch).map_err(not_set_aside)
    }

    /// Makes all applied batches durable.
    ///
    /// # Errors
    /// Store errors.
    pub fn checkpoint(&mut self) -> Result<(), ReplicaError> {
        Ok(self.log.follower.checkpoint()?)
    }

    /// Returns the names of content keys that the bucket lacks before their deadline. Without them the content can't be
    /// read here.
    pub fn missing_keys(&self) -> &[String] {
        &self.missing_keys
    }

    /// Returns the last slot that this standby has applied.
    pub fn position(&self) -> Position {
        self.log.position(&self.objects)
    }

    /// Returns the first line of the last applied slot, once the end of the log was reached.
    pub const fn head(&self) -> Option<&Head> {
        self.log.cursor.head.as_ref()
    }

    /// Returns whether this directory made the last claim, once the end of the log was reached. A copy of a standby did
    /// not, although it has the same name.
    pub fn owns_log(&self) -> bool {
        let is_named = self.head().is_some_and(|head| head.holder == self.objects.holder);
        // The machine may have started again since the claim, which changes the place.
        let has_recorded = || self.own_claim().is_some_and(|claim| claim.epoch == self.log.cursor.epoch);
        is_named && (self.log.lease().is_of_place(self.objects.place) || has_recorded())
    }

    /// Returns the longest lease of the log's holders that may still be valid.
    pub fn lease(&self) -> Duration {
        self.log.lease().longest(self.objects.clock.now())
    }

    /// Returns the time of the last applied batch.
    pub fn committed_at(&self) -> Timestamp {
        self.log.follower.sequence().committed_at
    }

    /// Returns the newest base in the bucket, and the earliest time that can be restored.
    ///
    /// # Errors
    /// Errors of the bucket; a manifest that does not open.
    pub async fn bases(&self) -> Result<(Option<BaseStatus>, Option<Timestamp>), ReplicaError> {
        let slots = self.objects.bases().await?;
        let newest = match slots.last() {
            Some(slot) => self.objects.manifest(*slot).await?,
            None => None,
        };
        let oldest = match slots.first() {
            Some(slot) if slots.len() > 1 => self.objects.manifest(*slot).await?.map(|oldest| oldest.taken_at),
            Some(_) | None => newest.as_ref().map(|newest| newest.taken_at),
        };
        Ok((newest.as_ref().map(BaseStatus::of), oldest))
    }

    /// Closes the standby. Returns its store, which continues without the log.
    pub fn into_follower(self) -> Follower {
        self.log.follower
    }

    /// Returns the number of queued messages, and of those that are due.
    ///
    /// # Errors
    /// Store errors.
    pub fn queued(&self) -> Result<(u64, u64), ReplicaError> {
        Ok(self.log.follower.queued(self.objects.clock.now())?)
    }
}

/// Returns the reason why an empty bucket can't be followed.
fn no_identity(world: &ReplicaWorld, directory: &Path) -> Result<ReplicaError, ReplicaError> {
    let Some(claim) = OwnClaim::read(&world.disk, directory) else { return Ok(ReplicaError::NoBase) };
    let position = open_without_bucket(world, directory)?.and_then(|follower| follower.position());
    let is_own = position.is_some_and(|position| position.epoch == claim.epoch);
    Ok(if is_own { ReplicaError::Emptied } else { ReplicaError::NoBase })
}

fn unmoved(error: io::Error) -> ReplicaError {
    ReplicaError::Io { what: "replacing the store by a newer base".to_owned(), error }
}

fn not_set_aside(error: io::Error) -> ReplicaError {
    ReplicaError::Io { what: "setting the store aside".to_owned(), error }
}

/// Completes moves of stores that an earlier process began.
fn finish_moves(world: &ReplicaWorld, directory: &Path) -> Result<(), ReplicaError> {
    aside::finish(&world.disk, directory).map_err(not_set_aside)?;
    swap::finish(&world.disk, directory).map_err(unmoved)
}

/// Opens the store of a standby whose bucket is lost; `None` if the standby was never built.
///
/// # Errors
/// Store or file system errors.
pub fn open_without_bucket(world: &ReplicaWorld, directory: &Path) -> Result<Option<Follower>, ReplicaError> {
    finish_moves(world, directory)?;
    if !world.disk.has_store(directory) {
        return Ok(None);
    }
    Ok(Some(Follower::open(&world.disk, directory, world.clock.now(), Arc::clone(&world.entropy))?))
}

/// Moves the store of a machine that continued without the bucket to a directory named after its last epoch.
///
/// # Errors
/// Store or file system errors.
pub fn set_aside(world: &ReplicaWorld, directory: &Path) -> Result<PathBuf, ReplicaError> {
    let follower = open_without_bucket(world, directory)?;
    let epoch = follower.as_ref().and_then(Follower::position).map_or(0, |position| position.epoch);
    drop(follower);
    aside::set_aside(&world.disk, directory, epoch).map_err(not_set_aside)
}

/// Builds a store from the newest base next to the store in `data`. Waits while the bucket does not answer, and starts
/// again if the active machine removes that base meanwhile, after making a newer one.
async fn build_aside(
    objects: &ReplicaObjects,
    data: &Path,
    key: &Raw,
    beside: &'static [&'static str],
) -> Result<(), ReplicaError> {
    let objects = &objects.retried();
    loop {
        let aside = swap::prepare(&objects.disk, data).map_err(unmoved)?;
        let manifest = rebuild::base_before(objects, None).await?;
        let plan = Rebuild { directory: &aside, key: key.clone(), lineage: Lineage::Standby, beside };
        match rebuild::build(objects, &manifest, plan, |_, _| {}).await {
            Ok(log) => {
                drop(log);
                return swap::seal(&objects.disk, data).map_err(unmoved);
            }
            Err(error) if rebuild::base_before(objects, None).await?.slot == manifest.slot => return Err(error),
            Err(error) => {
                tracing::info!(%error, "a newer base replaced the current one while it was read; starting again");
            }
        }
    }
}
