//! Ports and settings of a process that works on a replica.

use std::sync::Arc;

use super::error::ReplicaError;
use super::objects::{ReplicaObjects, unreadable};
use super::retried_bucket::{OnRetry, RetriedBucket};
use crate::base::entropy::Entropy;
use crate::base::id::Ulid;
use crate::base::secret::MasterKey;
use crate::engine::bucket::probe;
use crate::engine::executor::Executor;
use crate::engine::ports::{Bucket, Clock};
use crate::machine::replica_lease::LeaseRules;
use crate::store::replica::identity::Identity;
use crate::store::replica::name::ObjectName;
use crate::store::replica::{Holder, Kind, ObjectFault, Position, ReplicaDisk, Sealer};
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
    /// Identifies this boot of the machine and the data directory on it. A copy of the directory has another number,
    /// and a reboot changes it. 0 if it is not known.
    pub place: u64,
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
    /// Called when a read of a build from a base failed and is repeated, and once it is answered.
    pub on_retry: OnRetry,
}

impl ReplicaWorld {
    /// Returns the objects of the store `store`, sealed under `master`.
    pub fn objects(&self, master: Arc<MasterKey>, store: Ulid) -> ReplicaObjects {
        ReplicaObjects {
            bucket: Arc::clone(&self.bucket),
            disk: self.disk.clone(),
            executor: self.executor,
            sealer: Sealer::new(master, store, self.encrypts),
            holder: self.holder.clone(),
            place: self.place,
            clock: Arc::clone(&self.clock),
            real: Arc::clone(&self.real),
            entropy: Arc::clone(&self.entropy),
            on_retry: Arc::clone(&self.on_retry),
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
    /// Errors of the bucket; [`ReplicaError::OtherStore`] if another master key wrote it.
    pub async fn identity(&self, master: &MasterKey) -> Result<Option<Identity>, ReplicaError> {
        let name = ObjectName::Store;
        let Some(bytes) = self.bucket.read(&name.to_string()).await? else { return Ok(None) };
        match Identity::decode(&bytes, master) {
            Ok(identity) => Ok(Some(identity)),
            Err(ObjectFault::Unsealable) => Err(ReplicaError::OtherStore),
            Err(fault) => Err(unreadable(&name, fault)),
        }
    }
}

impl ReplicaObjects {
    /// Returns these objects with reads that are repeated until the bucket answers.
    pub(super) fn retried(&self) -> Self {
        let (bucket, entropy) = (Arc::clone(&self.bucket), Arc::clone(&self.entropy));
        let bucket = Arc::new(RetriedBucket::new(bucket, entropy, Arc::clone(&self.on_retry), None));
        Self { bucket, ..self.clone() }
    }

    /// Writes the object `store` unless it exists.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub(super) async fn write_identity(&self, claim: &Position) -> Result<(), ReplicaError> {
        let head = self.head(Kind::Store, 0, claim.epoch);
        let identity = Identity { store: claim.store, row_format: FORMAT, head };
        let bytes = identity.encode(self.sealer.master_key());
        self.bucket.create(&ObjectName::Store.to_string(), bytes.into()).await?;
        Ok(())
    }
}
