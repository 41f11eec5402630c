//! Following the log: each slot is read from the bucket and applied to a store that does not run operations.

use super::error::ReplicaError;
use super::holder_lease::HolderLease;
use super::objects::{ReplicaObjects, Slot};
use super::read_ahead::ReadAhead;
use crate::base::digest::Digest;
use crate::base::time::Timestamp;
use crate::store::replica::claim::Claim;
use crate::store::replica::payload::Assembler;
use crate::store::replica::slot::SlotBody;
use crate::store::replica::{Follower, Head, Kind, OwnClaim, Position};

/// A position in the log: the slot that was read last.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    /// Number of the slot; 0 before the first.
    pub slot: u64,
    /// SHA-256 of the slot.
    pub digest: Digest,
    /// The epoch.
    pub epoch: u64,
    /// First line of the slot, if this process has read it.
    pub head: Option<Head>,
}

impl Cursor {
    /// Returns the cursor at `position`.
    pub const fn of(position: Position) -> Self {
        Self { slot: position.slot, digest: position.hash, epoch: position.epoch, head: None }
    }
}

/// Result of looking for the next slot.
#[derive(Debug, PartialEq, Eq)]
pub enum FollowStep {
    /// A slot of this kind was applied.
    Applied(Kind),
    /// The log ends here.
    End,
    /// The next batch is later than the requested time.
    Reached,
}

/// A store that follows the log.
pub struct LogFollower {
    /// The store.
    pub follower: Follower,
    /// The last slot that was read.
    pub cursor: Cursor,
    pub(super) assembler: Assembler,
    slots: ReadAhead,
    /// Whether the log is known to have the slot at the cursor.
    pub(super) is_position_known: bool,
    /// Whether slots that the bucket lost were skipped.
    pub(super) has_skipped: bool,
    /// Sequence of the last batch that the log had when the store last knew its position.
    pub(super) confirmed: u64,
    /// Sequence of the last batch in the log up to the cursor.
    pub(super) logged: u64,
    /// Time of its commit, if this process has read it.
    pub(super) logged_at: Option<Timestamp>,
    /// The lease of the log's holder, once it is known.
    lease: Option<HolderLease>,
    /// Time after which no batch is applied.
    pub until: Option<Timestamp>,
}

impl LogFollower {
    /// Continues from the position of `follower`.
    pub fn new(follower: Follower) -> Self {
        let cursor = follower.position().map_or_else(Cursor::default, Cursor::of);
        Self::at(follower, cursor)
    }

    /// Continues from `cursor`.
    pub fn at(follower: Follower, cursor: Cursor) -> Self {
        let position = follower.position().filter(|position| position.slot == cursor.slot);
        let logged = position.map_or(0, |position| position.sequence);
        Self {
            follower,
            cursor,
            assembler: Assembler::default(),
            slots: ReadAhead::default(),
            is_position_known: false,
            has_skipped: false,
            confirmed: logged,
            logged,
            logged_at: None,
            lease: None,
            until: None,
        }
    }

    /// Returns the sequence of the last batch in the log up to the cursor.
    pub const fn logged(&self) -> u64 {
        self.logged
    }

    /// Returns the lease of the log's holder, as far as it is known from the slots that were read.
    pub fn lease(&self) -> HolderLease {
        self.lease.unwrap_or(HolderLease::UNKNOWN)
    }

    /// Reads the facts about the log's holder from the slots up to the cursor, unless this process has read those
    /// slots.
    ///
    /// # Errors
    /// Errors of the bucket; a claim that does not open.
    pub(super) async fn learn_holder(&mut self, objects: &ReplicaObjects) -> Result<(), ReplicaError> {
        if self.cursor.head.is_none() && self.cursor.slot > 0 {
            self.cursor.head = objects.slot_head(self.cursor.slot).await?;
        }
        if self.lease.is_none() {
            self.lease = Some(objects.holder_lease(&self.cursor).await?.unwrap_or(HolderLease::UNKNOWN));
        }
        Ok(())
    }

    /// Returns the position that the store has reached in the log.
    pub fn position(&self, objects: &ReplicaObjects) -> Position {
        Position {
            store: objects.sealer.store(),
            epoch: self.cursor.epoch,
            slot: self.cursor.slot,
            hash: self.cursor.digest,
            sequence: self.logged,
        }
    }

    /// Applies the next slot, if the log has one. `accepts` may refuse it by its first line.
    ///
    /// # Errors
    /// [`ReplicaError::Broken`] if the log does not continue from this store; those of `accepts`, the bucket and the
    /// store.
    pub async fn step(
        &mut self,
        objects: &ReplicaObjects,
        accepts: impl Fn(&Head) -> Result<(), ReplicaError>,
    ) -> Result<FollowStep, ReplicaError> {
        let number = self.cursor.slot + 1;
        let Some(slot) = self.slots.next(objects, number).await? else { return Ok(FollowStep::End) };
        accepts(&slot.link.head)?;
        self.check(&slot)?;
        let kind = slot.link.head.kind;
        let is_own = slot.link.head.holder == objects.holder;
        match &slot.body {
            SlotBody::Claim(claim) => self.begin_epoch(claim, &slot.link.head, is_own)?,
            SlotBody::Batches(payload) => {
                let begun = self.assembler.clone();
                let applied = self.apply(objects, payload, is_own).await;
                if applied.is_err() {
                    // The slot is applied again from its start, which may be the rest of a batch.
                    self.assembler = begun;
                }
                if !applied? {
                    self.follower.end_slot(self.position(objects))?;
                    return Ok(FollowStep::Reached);
                }
            }
            SlotBody::Beat | SlotBody::Release => {}
        }
        self.lease = HolderLease::after(self.lease, self.cursor.head.as_ref(), &slot);
        self.cursor =
            Cursor { slot: number, digest: slot.digest, epoch: slot.link.head.epoch, head: Some(slot.link.head) };
        self.is_position_known = true;
        if self.assembler.is_at_rest() {
            self.follower.end_slot(self.position(objects))?;
        }
        Ok(FollowStep::Applied(kind))
    }

    /// Applies a claim. Its hold precedes its position: a position without the hold would lose the hold.
    fn begin_epoch(&mut self, claim: &Claim, head: &Head, is_own: bool) -> Result<(), ReplicaError> {
        // Drops parts of a batch that the previous holder did not finish.
        self.assembler = Assembler::default();
        let have = self.follower.sequence().number;
        if claim.sequence < have && !is_own {
            return Err(self.broken("another machine claimed it without batches that this directory has"));
        }
        let is_wanted = self.until.is_none_or(|until| head.time <= until);
        // With later batches, this directory has the hold already, and an operator may have released it.
        if claim.cause.holds_queue() && is_wanted && claim.sequence >= have {
            self.follower.leave_log()?;
            self.follower.hold_queue(head.time)?;
        }
        Ok(())
    }

    fn check(&self, slot: &Slot) -> Result<(), ReplicaError> {
        let format = self.follower.format()?;
        if slot.link.row_format > crate::store::schema::FORMAT {
            return Err(ReplicaError::Newer { found: slot.link.row_format });
        }
        if slot.link.previous != self.cursor.digest {
            return Err(self.broken("the next slot does not follow the last slot of this directory"));
        }
        if slot.link.row_format != format && slot.link.head.kind == Kind::Batches {
            return Err(self.broken("store migrated"));
        }
        Ok(())
    }

    pub(super) fn broken(&self, why: &str) -> ReplicaError {
        ReplicaError::Broken { slot: self.cursor.slot, why: why.to_owned() }
    }

    /// Keeps the complete batches of a last slot that ends within a batch. Nothing completes that batch any more.
    ///
    /// # Errors
    /// Store errors.
    pub fn end(&mut self, objects: &ReplicaObjects) -> Result<(), ReplicaError> {
        if !self.assembler.is_at_rest() {
            self.assembler = Assembler::default();
            self.follower.end_slot(self.position(objects))?;
        }
        Ok(())
    }

    /// Returns whether the log ended after the cursor when it was last read.
    pub(super) fn is_at_end(&self) -> bool {
        self.slots.ended_at(self.cursor.slot + 1)
    }

    /// Reads several slots at once next, because another process is writing them.
    pub(super) fn expect_slots(&mut self) {
        self.slots.widen();
    }

    /// Returns whether the log continues after a missing slot.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub async fn lacks_slot(&self, objects: &ReplicaObjects) -> Result<bool, ReplicaError> {
        let next = self.cursor.slot + 1;
        Ok(objects.slot_after(next).await?.is_some() && objects.slot(next).await?.is_none())
    }

    /// Continues after slots that the bucket lost, if this directory wrote them: the next existing slot is of the epoch
    /// `own`, which this directory claimed. This store then has their batches. The log has a gap that only a new base
    /// closes. Returns whether it continues.
    ///
    /// # Errors
    /// Errors of the bucket or the file system.
    pub(super) async fn skip_lost_slots(
        &mut self,
        objects: &ReplicaObjects,
        own: Option<OwnClaim>,
    ) -> Result<bool, ReplicaError> {
        if own.is_none_or(|own| own.epoch != self.cursor.epoch) {
            return Ok(false);
        }
        let Some(number) = objects.slot_after(self.cursor.slot + 1).await? else { return Ok(false) };
        let Some(slot) = objects.slot(number).await? else { return Ok(false) };
        let Head { kind, epoch, holder, .. } = &slot.link.head;
        if *kind == Kind::Claim || *epoch != self.cursor.epoch || *holder != objects.holder {
            return Ok(false);
        }
        let (first, last) = (self.cursor.slot + 1, number - 1);
        tracing::error!(first, last, "the bucket lost slots of this directory; continuing after them with a new base");
        self.follower.owe_base().map_err(|error| ReplicaError::Io {
            what: "marking that the replica needs a new base".to_owned(),
            error,
        })?;
        self.cursor = Cursor { slot: last, digest: slot.link.previous, epoch: *epoch, head: None };
        self.assembler = Assembler::default();
        self.has_skipped = true;
        Ok(true)
    }
}
