//! Following the log: each slot is read from the bucket and applied to a store that does not run operations.

use super::error::ReplicaError;
use super::holder_lease::HolderLease;
use super::objects::{ReplicaObjects, Slot};
use super::read_ahead::ReadAhead;
use crate::base::digest::Digest;
use crate::base::time::Timestamp;
use crate::store::replica::name::ObjectName;
use crate::store::replica::payload::{self, Assembler};
use crate::store::replica::record::{self, Record};
use crate::store::replica::slot::SlotBody;
use crate::store::replica::{Follower, Head, Kind, ObjectFault, Position, Sequence, content};

/// A position in the log: the slot that was read last.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    /// Its number; 0 before the first.
    pub slot: u64,
    /// Its SHA-256.
    pub digest: Digest,
    /// The epoch.
    pub epoch: u64,
    /// Its first line, if this process has read it.
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
    assembler: Assembler,
    slots: ReadAhead,
    /// Sequence of the last batch that the log had when the store last knew its position.
    confirmed: u64,
    /// Sequence of the last batch in the log up to the cursor.
    logged: u64,
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
            confirmed: logged,
            logged,
            lease: None,
            until: None,
        }
    }

    /// Returns the sequence of the last batch in the log up to the cursor.
    pub const fn logged(&self) -> u64 {
        self.logged
    }

    /// Returns the lease of the log's holder, as far as the log that was read tells.
    pub fn lease(&self) -> HolderLease {
        self.lease.unwrap_or(HolderLease::UNKNOWN)
    }

    /// Reads what the slots up to the cursor tell about the log's holder, unless this process has read those slots.
    ///
    /// # Errors
    /// The bucket; a claim that does not open.
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
        let mut hold = None;
        match &slot.body {
            SlotBody::Claim(claim) => {
                // Drops parts of a batch that the previous holder did not finish.
                self.assembler = Assembler::default();
                let is_own = slot.link.head.holder == objects.holder;
                if claim.sequence < self.follower.sequence().number && !is_own {
                    return Err(self.broken("another machine claimed it without batches that this directory has"));
                }
                let is_wanted = self.until.is_none_or(|until| slot.link.head.time <= until);
                // With later batches, this directory has the hold already, and an operator may have released it.
                let is_new = claim.sequence >= self.follower.sequence().number;
                if claim.cause.holds_queue() && is_wanted && is_new {
                    hold = Some(slot.link.head.time);
                }
            }
            SlotBody::Batches(payload) => {
                let is_own = slot.link.head.holder == objects.holder;
                if !self.apply(objects, payload, is_own).await? {
                    self.follower.end_slot(self.position(objects))?;
                    return Ok(FollowStep::Reached);
                }
            }
            SlotBody::Beat | SlotBody::Release => {}
        }
        self.lease = HolderLease::after(self.lease, self.cursor.head.as_ref(), &slot);
        self.cursor =
            Cursor { slot: number, digest: slot.digest, epoch: slot.link.head.epoch, head: Some(slot.link.head) };
        if self.assembler.is_at_rest() {
            self.follower.end_slot(self.position(objects))?;
        }
        if let Some(claimed_at) = hold {
            self.follower.hold_queue(claimed_at)?;
        }
        Ok(FollowStep::Applied(kind))
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

    fn broken(&self, why: &str) -> ReplicaError {
        ReplicaError::Broken { slot: self.cursor.slot, why: why.to_owned() }
    }

    /// Applies the batches of a payload. Returns false if one is later than the requested time.
    async fn apply(&mut self, objects: &ReplicaObjects, payload: &[u8], is_own: bool) -> Result<bool, ReplicaError> {
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
            let Some(batch) = self.assembler.take(&piece).map_err(|_| damaged(number))? else { continue };
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
            self.logged = sequence.number;
            if self.follower.sequence().number == sequence.number {
                // Every batch up to here is the log's.
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
                Record::Resumed(sequence) => self.logged = sequence,
            }
        }
        Ok(())
    }

    /// Fetches the keys of the segments that contain a batch's bodies. A missing key belongs to an expired body. No
    /// clock decides that: a key that is not fetched now is never fetched.
    async fn adopt_keys(&self, objects: &ReplicaObjects, batch: &[u8]) -> Result<(), ReplicaError> {
        for (bucket, segment) in record::segments(batch)? {
            if !self.follower.lacks_key(bucket, segment) {
                continue;
            }
            let name = ObjectName::Key { bucket, segment };
            let Some(bytes) = objects.bucket.read(&name.to_string()).await?.filter(|bytes| !bytes.is_empty()) else {
                continue;
            };
            let slot = content::open_key(&name, &bytes, &objects.sealer)
                .map_err(|fault| ReplicaError::Object { name: name.to_string(), fault })?;
            self.follower.adopt_key(bucket, segment, slot.expose())?;
        }
        Ok(())
    }

    /// Keeps the complete batches of a last slot that ends within a batch. Nothing completes that batch any more.
    ///
    /// # Errors
    /// The store.
    pub fn end(&mut self, objects: &ReplicaObjects) -> Result<(), ReplicaError> {
        if !self.assembler.is_at_rest() {
            self.assembler = Assembler::default();
            self.follower.end_slot(self.position(objects))?;
        }
        Ok(())
    }

    /// If the log does not continue from this directory, adds to the error the batches that only this directory has.
    pub(super) fn stranded(&self, error: ReplicaError) -> ReplicaError {
        let (logged, have) = (self.logged, self.follower.sequence().number);
        match error.needs_base() && have > logged {
            true => ReplicaError::Stranded { from: logged + 1, to: have },
            false => error,
        }
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
    /// The bucket.
    pub async fn lacks_slot(&self, objects: &ReplicaObjects) -> Result<bool, ReplicaError> {
        Ok(objects.has_slot_after(self.cursor.slot + 1).await? && objects.slot(self.cursor.slot + 1).await?.is_none())
    }
}
