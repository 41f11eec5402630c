//! Claiming the log: the process that creates the next slot owns the log from that slot on.

use std::time::Duration;

use bytes::Bytes;

use super::error::ReplicaError;
use super::follow::Cursor;
use super::objects::{CreateResult, ReplicaObjects};
use crate::base::time::Timestamp;
use crate::store::replica::claim::{Claim, ClaimCause};
use crate::store::replica::name::ObjectName;
use crate::store::replica::slot::{self, Link, SlotBody};
use crate::store::replica::{Kind, Position};
use crate::store::schema::FORMAT;

/// An unconfirmed claim. Its bytes are fixed, so that it can be retried.
pub struct PendingClaim {
    bytes: Bytes,
    position: Position,
    /// Time of its first try, on the clock of the lease.
    pub asked_at: Duration,
    /// Time in the claim's first line.
    pub time: Timestamp,
}

/// Result of a try to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimResult {
    /// This process owns the log; its claim is at this position.
    Yes(Position),
    /// The slot was taken: the log has grown, and must be followed.
    Moved,
    /// The slot was removed by collection: the log starts again at a base above it.
    History,
}

impl PendingClaim {
    /// Creates the claim of the slot after `cursor`, for a store whose log contains everything up to `sequence`.
    pub fn new(
        objects: &ReplicaObjects,
        cursor: &Cursor,
        sequence: u64,
        (cause, lease): (ClaimCause, Duration),
    ) -> Self {
        let (slot, epoch) = (cursor.slot + 1, cursor.epoch + 1);
        let head = objects.head(Kind::Claim, slot, epoch);
        let time = head.time;
        let link = Link { head, row_format: FORMAT, previous: cursor.digest };
        let lease_millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let (program, place) = (env!("CARGO_PKG_VERSION").to_owned(), objects.place);
        let claim = Claim { program, cause, lease_millis, sequence, place };
        let bytes: Bytes = link.seal(&SlotBody::Claim(claim), &objects.sealer, &*objects.entropy).into();
        let position = Position { store: objects.sealer.store(), epoch, slot, hash: slot::digest(&bytes), sequence };
        Self { bytes, position, asked_at: objects.real.monotonic(), time }
    }

    /// Tries once to create the slot.
    ///
    /// # Errors
    /// Errors of the bucket; the same claim may be retried.
    pub async fn attempt(&self, objects: &ReplicaObjects) -> Result<ClaimResult, ReplicaError> {
        let slot = self.position.slot;
        if objects.create_fixed(&ObjectName::Slot(slot), &self.bytes).await? == CreateResult::Other {
            return Ok(ClaimResult::Moved);
        }
        match objects.has_base_from(slot).await? {
            true => Ok(ClaimResult::History),
            false => Ok(ClaimResult::Yes(self.position)),
        }
    }
}
