//! History of a run as seen from outside: requests and answers. The invariants are judged by it and by the store as it
//! is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use super::start::HOURLY;
use crate::base::id::{AccountId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::transfer::Status;
use crate::store::content::Place;
use crate::store::disk::simulated::LastWrite;
use crate::store::op::admission::IdempotencyClaim;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::event::EventLogRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table, meta};
use crate::store::snapshot::Snapshot;

/// Whether something is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It was acknowledged, or seen after a start.
    Yes,
    /// It was refused, or never came as far as the commit, or was seen to be missing after a start.
    No,
    /// The commit that it was in failed: either, until the store is opened again.
    InDoubt,
}

/// A message that the story submitted.
pub(super) struct Submitted {
    pub(super) account: AccountId,
    /// Without its place.
    pub(super) row: MessageRow,
    pub(super) body: Vec<u8>,
    pub(super) claim: Option<IdempotencyClaim>,
    pub(super) answer: Vec<u8>,
    /// Whether its address was known to be suppressed, with nothing on its way that changes it.
    pub(super) to_suppressed: bool,
    pub(super) accepted: Known,
}

/// All rows, by table: how many, and a digest.
pub(super) type Rows = BTreeMap<&'static str, (u64, [u8; 32])>;

/// The history.
#[derive(Default)]
pub(super) struct History {
    /// Account that sends.
    pub(super) account: AccountId,
    pub(super) messages: BTreeMap<MessageId, Submitted>,
    /// Messages that were submitted together.
    pub(super) groups: Vec<Vec<MessageId>>,
    /// Addresses in matching form, and whether they are suppressed.
    pub(super) suppressed: BTreeMap<String, Known>,
    /// Buckets that were destroyed.
    pub(super) destroyed: BTreeMap<Timestamp, Known>,
    /// All rows after the last commit that was answered.
    pub(super) rows: Rows,
    /// The rows after each commit that was answered, with the last write to the journal by then.
    pub(super) states: Vec<(Rows, Option<LastWrite>)>,
    /// The events seen after it, and the greatest identifier given out by then.
    pub(super) events: BTreeSet<EventId>,
    pub(super) last_id: Ulid,
    /// The messages that had ended by then.
    pub(super) ended: BTreeMap<MessageId, Status>,
    /// Whether a commit failed since.
    pub(super) is_in_doubt: bool,
    /// Whether one that failed had been answered before: then a start finds more.
    pub(super) is_promised: bool,
    /// Addresses that were suppressed at some time, or may have been.
    pub(super) touched: BTreeSet<String>,
    /// Whether the disk did not keep what was written to a segment: some bodies may be lost.
    pub(super) is_damaged: bool,
    /// Whether the clock was set back: then windows of quotas move along with it.
    pub(super) clock_went_back: bool,
}

impl History {
    /// Notes the store as it is after a commit that was answered, or after a start.
    pub(super) fn look(&mut self, snapshot: &Snapshot) {
        self.rows = rows(snapshot);
        let log = snapshot.rows::<EventLogRow>(&[], usize::MAX).unwrap();
        self.events = log.iter().filter_map(|(key, _)| key.last_chunk::<16>()).map(|id| EventId(Ulid(*id))).collect();
        let last = snapshot.get(Table::Meta, meta::LAST_ID).unwrap().unwrap_or_default();
        self.last_id = last.try_into().map(Ulid).unwrap_or_default();
        for (id, submitted) in &self.messages {
            let transfer = snapshot.row::<TransferRow>(&schema::message(submitted.account, *id)).unwrap();
            if let Some(transfer) = transfer.filter(|transfer| transfer.due.is_none()) {
                self.ended.insert(*id, transfer.state.status());
            }
        }
    }

    /// Notes the state that was looked at last.
    pub(super) fn note_state(&mut self, journal: Option<LastWrite>) {
        self.states.push((self.rows.clone(), journal));
    }

    /// Whether a snapshot has all messages that were acknowledged.
    pub(super) fn is_shown(&self, snapshot: &Snapshot) -> bool {
        let accepted = self.messages.iter().filter(|(_, submitted)| submitted.accepted == Known::Yes);
        let key = |(id, submitted): (&MessageId, &Submitted)| schema::message(submitted.account, *id);
        accepted.map(key).all(|key| snapshot.get(Table::Messages, &key).unwrap().is_some())
    }

    /// Settles what was in doubt by what a start shows, once that is judged.
    pub(super) fn resolve(&mut self, snapshot: &Snapshot) {
        let known = |is_there| if is_there { Known::Yes } else { Known::No };
        for (id, submitted) in &mut self.messages {
            let key = schema::message(submitted.account, *id);
            submitted.accepted = known(snapshot.get(Table::Messages, &key).unwrap().is_some());
        }
        for (address, suppressed) in &mut self.suppressed {
            let key = schema::named(self.account, address.as_bytes());
            *suppressed = known(snapshot.get(Table::Suppressions, &key).unwrap().is_some());
        }
        (self.is_in_doubt, self.is_promised) = (false, false);
        self.look(snapshot);
    }

    /// Notes a submission. An identifier that never came to a commit may be given out again after a start.
    pub(super) fn submit(&mut self, id: MessageId, submitted: Submitted) {
        self.groups.retain(|group| !group.contains(&id));
        self.messages.insert(id, submitted);
    }

    /// Whether a submission could have been refused, had its commit come to it: itself, or one submitted with it.
    pub(super) fn could_be_refused(&self, id: MessageId, submitted: &Submitted) -> bool {
        let group = self.groups.iter().find(|group| group.contains(&id)).into_iter().flatten();
        let mut group = group.filter_map(|id| self.messages.get(id));
        self.could_be_refused_alone(submitted) || group.any(|other| self.could_be_refused_alone(other))
    }

    fn could_be_refused_alone(&self, submitted: &Submitted) -> bool {
        let of_key = |claim: IdempotencyClaim| {
            let claims = self.messages.values().filter_map(|other| other.claim);
            claims.filter(|other| other.key_hash == claim.key_hash).count()
        };
        submitted.claim.is_some_and(|claim| of_key(claim) > 1)
            || self.touched.contains(&submitted.row.to.match_key())
            || self.messages.len() >= HOURLY
    }

    /// The bound key's message, where one was accepted.
    pub(super) fn bound(&self, key_hash: &[u8; 32]) -> Option<&Submitted> {
        let accepted = self.messages.values().filter(|submitted| submitted.accepted == Known::Yes);
        accepted.into_iter().find(|submitted| submitted.claim.is_some_and(|claim| claim.key_hash == *key_hash))
    }
}

impl Submitted {
    /// Whether `row` is what was submitted, wherever its body stands.
    pub(super) fn is(&self, row: &MessageRow) -> bool {
        let place: Place = self.row.place;
        MessageRow { place, ..row.clone() }.encode() == self.row.encode()
    }
}

/// Counts and digests all rows.
pub(super) fn rows(snapshot: &Snapshot) -> Rows {
    let of = |table: Table| {
        let (mut count, mut bytes) = (0, Vec::new());
        let mut each = |key: &[u8], value: &[u8]| {
            // Each start draws another epoch.
            if (table, key) == (Table::Meta, meta::JOURNAL) {
                return Ok(ControlFlow::Continue(()));
            }
            for part in [key, value] {
                bytes.extend_from_slice(&part.len().to_be_bytes());
                bytes.extend_from_slice(part);
            }
            count += 1;
            Ok(ControlFlow::Continue(()))
        };
        snapshot.scan(table, &[], &after_prefix(&[]), Order::Ascending, &mut each).unwrap();
        (table.name(), (count, Sha256::digest(&bytes).into()))
    };
    Table::ALL.iter().map(|table| of(*table)).collect()
}
