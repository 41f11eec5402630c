//! Detects that the log in the bucket is not the one that a directory has followed: after the loss of a bucket another
//! machine continued the store from an earlier position, in a new bucket or prefix. Both logs have the same store, and
//! their slots have the same numbers.

use super::error::ReplicaError;
use super::follow::{Cursor, LogFollower};
use super::objects::{ReplicaObjects, Slot};
use crate::store::replica::slot::SlotBody;
use crate::store::replica::{Head, OwnClaim};

impl LogFollower {
    /// Fails if the log is not the one that this directory has followed up to its position, unless it is known to be.
    /// `own` is the last claim of this directory.
    ///
    /// # Errors
    /// [`ReplicaError::Stranded`], or [`ReplicaError::Broken`] if nothing is stranded; errors of the bucket.
    pub(super) async fn check_position(
        &mut self,
        objects: &ReplicaObjects,
        own: Option<OwnClaim>,
    ) -> Result<(), ReplicaError> {
        if self.is_position_known {
            return Ok(());
        }
        if self.branch(objects, own).await?.is_some() {
            let broken = self.broken("it branched off before the last slot of this directory");
            return Err(self.stranded(objects, own, broken).await);
        }
        // If the bucket lost that slot, the next one shows whether the log continues from here.
        self.is_position_known = self.cursor.head.is_some();
        Ok(())
    }

    /// Returns the sequence of the last batch that both logs have, if the log is not the one that this directory has
    /// followed. `None` if it may be the same log.
    ///
    /// # Errors
    /// Errors of the bucket; an object that does not open.
    pub(super) async fn branch(
        &self,
        objects: &ReplicaObjects,
        own: Option<OwnClaim>,
    ) -> Result<Option<u64>, ReplicaError> {
        let Cursor { slot, epoch, .. } = &self.cursor;
        let at_cursor = objects.slot_head(*slot).await?;
        let last = match at_cursor {
            Some(_) => at_cursor,
            None => match objects.slot_before(*slot).await? {
                Some(last) => objects.slot_head(last).await?,
                None => None,
            },
        };
        // Epochs rise with the slots, and the slots of an epoch have one holder. Claims are never removed, so the claim
        // of this directory's own epoch is in its log.
        let is_own_epoch = own.is_some_and(|own| own.epoch == *epoch);
        let is_other = |head: &Head| head.epoch > *epoch || is_own_epoch && head.holder != objects.holder;
        let Some(head) = last.filter(is_other) else { return Ok(None) };
        // A log that begins after slot 1 begins with the claim that continued the store.
        let claim = match objects.slot_after(0).await?.filter(|first| *first > 1) {
            Some(first) => objects.slot(first).await?,
            None => objects.claim_of(&head).await?,
        };
        let sequence = match claim {
            Some(Slot { body: SlotBody::Claim(claim), .. }) => claim.sequence,
            Some(_) | None => 0,
        };
        Ok(Some(sequence.min(self.logged)))
    }

    /// Adds the batches that only this directory has to an error that needs a new base.
    pub(super) async fn stranded(
        &self,
        objects: &ReplicaObjects,
        own: Option<OwnClaim>,
        error: ReplicaError,
    ) -> ReplicaError {
        if !error.needs_base() {
            return error;
        }
        let logged = match self.branch(objects, own).await {
            Ok(branch) => branch.unwrap_or(self.logged),
            Err(error) => return error,
        };
        let have = self.follower.sequence().number;
        if have > logged { ReplicaError::Stranded { from: logged + 1, to: have } } else { error }
    }
}
