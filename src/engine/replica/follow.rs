//! Following the log: each slot is read from the bucket and applied to a store that does not run operations.

use super::error::ReplicaError;
use super::holder_lease::HolderLease;
use super::objects::{ReplicaObjects, Slot};
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
        Self { follower, cursor, assembler: Assembler::default(), logged, lease: None, until: None }
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
        let Some(slot) = objects.slot(number).await? else { return Ok(FollowStep::End) };
        accepts(&slot.link.head)?;
        self.check(&slot)?;
        let kind = slot.link.head.kind;
        match &slot.body {
            SlotBody::Claim(claim) => {
                // Drops parts of a batch that the previous holder did not finish.
                self.assembler = Assembler::default();
                let is_own = slot.link.head.holder == objects.holder;
                if claim.sequence < self.follower.sequence().number && !is_own {
                    return Err(self.broken("another machine claimed it without batches that this directory has"));
                }
            }
            SlotBody::Batches(payload) => {
                if !self.apply(objects, payload).await? {
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
    async fn apply(&mut self, objects: &ReplicaObjects, payload: &[u8]) -> Result<bool, ReplicaError> {
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
        let now = objects.clock.now();
        if sequence.number > 0 {
            if sequence.number > self.follower.sequence().number {
                self.adopt_keys(objects, batch).await?;
            }
            self.follower.batch(batch, sequence, now).map_err(|error| match error.into() {
                ReplicaError::Broken { why, .. } => ReplicaError::Broken { slot: self.cursor.slot, why },
                error => error,
            })?;
            self.logged = sequence.number;
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

    /// Fetches the keys of the segments that contain a batch's bodies. A missing key belongs to an expired body.
    async fn adopt_keys(&self, objects: &ReplicaObjects, batch: &[u8]) -> Result<(), ReplicaError> {
        for (bucket, segment) in record::segments(batch)? {
            if bucket <= objects.clock.now() || !self.follower.lacks_key(bucket, segment) {
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

    /// Returns whether the log continues after a missing slot.
    ///
    /// # Errors
    /// The bucket.
    pub async fn lacks_slot(&self, objects: &ReplicaObjects) -> Result<bool, ReplicaError> {
        Ok(objects.has_slot_after(self.cursor.slot + 1).await? && objects.slot(self.cursor.slot + 1).await?.is_none())
    }
}
