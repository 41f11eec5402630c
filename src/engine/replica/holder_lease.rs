//! The lease of the log's holder, from the claims in the log. A successor waits for it, so a machine that was started
//! after the claim reads the claim again: claims are never removed.

use std::time::Duration;

use super::error::ReplicaError;
use super::follow::Cursor;
use super::objects::{ReplicaObjects, Slot};
use crate::base::time::Timestamp;
use crate::engine::ports::BucketResult;
use crate::machine::replica_lease::LEASE_MAX;
use crate::store::replica::name::ObjectName;
use crate::store::replica::slot::SlotBody;
use crate::store::replica::{Head, Kind};

/// Maximum number of claims that are read again.
const CLAIMS_MAX: usize = 16;
/// Time after a claim from which all earlier leases are over. The clocks of its writer and of its reader each differ
/// from the bucket's by at most 5 minutes, which is checked before each claim. The wait takes about a minute.
const OVER_AFTER: Duration = Duration::from_secs(15 * 60);

/// Leases that may still be valid at a position of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderLease {
    /// The lease of the holder; zero if it has no end.
    own: Duration,
    /// The longest lease of the holders before it that may not be over yet.
    earlier: Duration,
    /// Time of the first claim after those holders, on its writer's clock.
    claimed_at: Timestamp,
    /// The place of the directory that made the last claim; 0 if it is not known.
    place: u64,
}

impl HolderLease {
    /// The assumption if no claim can be read: every lease is as long as possible, and began just now.
    pub const UNKNOWN: Self = Self { own: LEASE_MAX, earlier: LEASE_MAX, claimed_at: Timestamp::MAX, place: 0 };

    /// Returns the longest lease that may be valid at `now`.
    pub fn longest(&self, now: Timestamp) -> Duration {
        self.own.max(self.of_others(now))
    }

    /// Returns whether the last claim was made by a process of the directory at `place`. A copy of the directory has
    /// the same name, but another place.
    pub const fn is_of_place(&self, place: u64) -> bool {
        self.place == place && place != 0
    }

    /// Returns the longest lease of holders before the last one that may be valid at `now`. The wall clock of one
    /// machine may be set while it waits for them, so they count for longer than that wait.
    pub fn of_others(&self, now: Timestamp) -> Duration {
        if is_over(self.claimed_at, now) { Duration::ZERO } else { self.earlier }
    }

    /// Returns the leases after `slot`, which follows a slot with the first line `before`. `None` if they are not
    /// known.
    pub(super) fn after(known: Option<Self>, before: Option<&Head>, slot: &Slot) -> Option<Self> {
        let head = &slot.link.head;
        let SlotBody::Claim(claim) = &slot.body else { return known };
        let own = Duration::from_millis(claim.lease_millis);
        let begun = Self { own, earlier: Duration::ZERO, claimed_at: head.time, place: claim.place };
        match before {
            _ if head.number == 1 => Some(begun),
            Some(before) if before.kind == Kind::Release => Some(begun),
            // A new start in the same place does not shorten the wait. In another place the directory may be a copy,
            // while its original is active.
            Some(before) if before.holder == head.holder && known.is_none_or(|known| known.place == claim.place) => {
                known.map(|known| Self { own, ..known })
            }
            Some(_) | None => known.map(|known| Self { earlier: known.longest(head.time), ..begun }),
        }
    }
}

/// Returns whether all leases from before a claim at `claimed_at` have ended.
fn is_over(claimed_at: Timestamp, now: Timestamp) -> bool {
    now.since(claimed_at) > OVER_AFTER
}

impl ReplicaObjects {
    /// Returns the leases that may be valid at `cursor`, from the claims up to it. `None` if a claim can't be read.
    ///
    /// # Errors
    /// Errors of the bucket; a claim that does not open.
    pub(super) async fn holder_lease(&self, cursor: &Cursor) -> Result<Option<HolderLease>, ReplicaError> {
        let Some(last) = cursor.head.clone() else { return Ok(None) };
        let mut claims = Vec::new();
        let mut at = last.clone();
        loop {
            let Some(claim) = self.claim_of(&at).await? else { return Ok(None) };
            let (number, time) = (claim.link.head.number, claim.link.head.time);
            let before = if number > 1 { self.slot_head(number - 1).await? } else { None };
            let is_first = number == 1 || before.as_ref().is_some_and(|before| before.kind == Kind::Release);
            let is_over = is_over(time, self.clock.now());
            let next = before.clone().filter(|_| !is_first && !is_over);
            claims.push((claim, before));
            match next {
                Some(next) if claims.len() < CLAIMS_MAX => at = next,
                None if is_first || is_over => break,
                Some(_) | None => return Ok(None),
            }
        }
        let mut known = None;
        for (claim, before) in claims.into_iter().rev() {
            let SlotBody::Claim(content) = &claim.body else { return Ok(None) };
            let own = Duration::from_millis(content.lease_millis);
            let (claimed_at, place) = (claim.link.head.time, content.place);
            let alone = HolderLease { own, earlier: Duration::ZERO, claimed_at, place };
            known = HolderLease::after(known, before.as_ref(), &claim).or(Some(alone));
        }
        Ok(known)
    }

    /// Returns the first line of a slot, if the slot exists and its line can be read.
    ///
    /// # Errors
    /// Errors of the bucket.
    pub(super) async fn slot_head(&self, number: u64) -> BucketResult<Option<Head>> {
        let name = ObjectName::Slot(number).to_string();
        let line = self.bucket.read_range(&name, 0, crate::store::replica::head::LINE_BYTES_MAX as u64).await?;
        let head = line.and_then(|line| Head::decode(&line).ok().map(|(head, _)| head));
        Ok(head.filter(|head| head.number == number))
    }

    /// Returns the claim that began the epoch of the slot `last`. Epochs rise with the slots, so its place is found by
    /// bisection. Below the first slot that collection kept, only claims are left.
    pub(super) async fn claim_of(&self, last: &Head) -> Result<Option<Slot>, ReplicaError> {
        let (mut low, mut high) = (1, last.number);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.slot_head(middle).await? {
                Some(head) if head.epoch >= last.epoch => high = middle,
                Some(_) | None => low = middle + 1,
            }
        }
        let is_claim = |slot: &Slot| slot.link.head.epoch == last.epoch && slot.link.head.kind == Kind::Claim;
        if let Some(slot) = self.slot(high).await?.filter(is_claim) {
            return Ok(Some(slot));
        }
        match self.slot_before(high).await? {
            Some(number) => Ok(self.slot(number).await?.filter(is_claim)),
            None => Ok(None),
        }
    }
}
