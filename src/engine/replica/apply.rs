//! Applying the batches of a slot to a store that follows the log.

use super::error::ReplicaError;
use super::follow::LogFollower;
use super::objects::ReplicaObjects;
use crate::store::replica::name::ObjectName;
use crate::store::replica::payload::{self, BatchPiece};
use crate::store::replica::record::{self, Record};
use crate::store::replica::{ObjectFault, Sequence};

impl LogFollower {
    /// Applies the batches of a payload. Returns false if one is later than the requested time.
    pub(super) async fn apply(
        &mut self,
        objects: &ReplicaObjects,
        payload: &[u8],
        is_own: bool,
    ) -> Result<bool, ReplicaError> {
        let damaged = |number| {
            let fault = ObjectFault::Damaged("its payload can't be read");
            ReplicaError::Object { name: ObjectName::Slot(number).to_string(), fault }
        };
        let number = self.cursor.slot + 1;
        for piece in payload::pieces(payload) {
            let piece = piece.map_err(|_| damaged(number))?;
            if self.until.is_some_and(|until| piece.sequence > 0 && piece.committed_at > until) {
                return Ok(false);
            }
            let batch = match self.assembler.take(&piece) {
                Ok(batch) => batch,
                Err(_) if self.is_known_rest(&piece) => None,
                Err(_) => return Err(damaged(number)),
            };
            let Some(batch) = batch else { continue };
            let sequence = Sequence { number: piece.sequence, committed_at: piece.committed_at };
            let have = self.follower.sequence().number;
            if !is_own && (self.confirmed + 1..=have).contains(&sequence.number) {
                // This directory continued without the log, and so did the log's holder.
                return Err(ReplicaError::Stranded { from: sequence.number, to: have });
            }
            self.apply_batch(objects, &batch, sequence).await?;
        }
        Ok(true)
    }

    /// Returns whether `piece` is the rest of a batch that this store has, whose beginning was in a lost slot.
    fn is_known_rest(&self, piece: &BatchPiece<'_>) -> bool {
        self.has_skipped && piece.from > 0 && piece.sequence <= self.follower.sequence().number
    }

    async fn apply_batch(
        &mut self,
        objects: &ReplicaObjects,
        batch: &[u8],
        sequence: Sequence,
    ) -> Result<(), ReplicaError> {
        let now = objects.expiry_time();
        if sequence.number > 0 {
            if sequence.number > self.follower.sequence().number {
                self.adopt_keys(objects, batch).await?;
            }
            self.follower.batch(batch, sequence, now).map_err(|error| match error.into() {
                ReplicaError::Broken { why, .. } => ReplicaError::Broken { slot: self.cursor.slot, why },
                error => error,
            })?;
            (self.logged, self.logged_at) = (sequence.number, Some(sequence.committed_at));
            if self.follower.sequence().number == sequence.number {
                // The log contains every batch up to here.
                self.confirmed = sequence.number;
            }
            return Ok(());
        }
        for record in record::ahead(batch)? {
            match record {
                Record::Body { key, sealed } => self.follower.body(key, sealed, now)?,
                // The log continues after a gap.
                Record::Resumed(sequence) if sequence > self.follower.sequence().number => {
                    return Err(self.broken("batches before it were dropped"));
                }
                Record::Resumed(sequence) => (self.logged, self.logged_at) = (sequence, None),
            }
        }
        Ok(())
    }
}
