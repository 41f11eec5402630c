//! Replication. The active machine ships its batches to a bucket, and a standby follows them. The machine that creates
//! the next slot of the log owns it.
//!
//! The log is the fence: an object is created only if its name is free, so two machines can't both write a slot. Each
//! slot contains the hash of its predecessor.

mod active;
mod apply;
mod backoff;
mod base;
mod base_requests;
mod branch;
mod bucket_retry;
mod chunks;
mod claim;
mod collection;
mod error;
mod follow;
mod holder_lease;
mod join;
mod keys;
mod lease;
mod loss;
mod missing_keys;
mod objects;
mod permits;
mod read_ahead;
mod rebuild;
mod replication;
mod restore;
mod retried_bucket;
mod shared;
mod shipper;
mod standby;
mod status;
mod stranded;
#[cfg(test)]
mod tests;
mod world;

pub use active::{Active, Pace};
pub use base::BasePolicy;
pub use bucket_retry::{BucketRetry, OnWait};
pub use claim::{ClaimResult, PendingClaim};
pub use error::ReplicaError;
pub use follow::{Cursor, LogFollower};
pub use holder_lease::HolderLease;
pub use join::{ClaimedLog, join};
pub use lease::Lease;
pub use objects::{ReplicaObjects, Slot};
pub use replication::Replication;
pub use restore::{RestorePlan, RestoredReplica, restore};
pub use retried_bucket::{OnRetry, RetriedBucket};
pub use shared::{ModeWords, Shared};
pub use standby::{Standby, open_without_bucket, set_aside};
pub use status::{BaseStatus, ReplicaStatus, Role, State};
pub use stranded::stranded;
pub use world::ReplicaWorld;
