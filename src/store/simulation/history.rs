//! Requests and answers of a run, as seen from outside. The invariants compare them with the store.

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

/// Knowledge about whether a request was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Acknowledged, or seen after a start.
    Yes,
    /// Refused, never in a commit, or missing after a start.
    No,
    /// The commit failed: unknown until the store is opened again.
    InDoubt,
}

/// A submitted message.
pub(super) struct Submitted {
    pub(super) account: AccountId,
    /// The row, without the body's place.
    pub(super) row: MessageRow,
    pub(super) body: Vec<u8>,
    pub(super) claim: Option<IdempotencyClaim>,
    pub(super) answer: Vec<u8>,
    /// Whether the message's address was known to be suppressed, and no operation in progress changes that.
    pub(super) to_suppressed: bool,
    pub(super) accepted: Known,
}

/// The number and a digest of the rows of each table.
pub(super) type Rows = BTreeMap<&'static str, (u64, [u8; 32])>;

/// The history.
#[derive(Default)]
pub(super) struct History {
    /// The sending account.
    pub(super) account: AccountId,
    pub(super) messages: BTreeMap<MessageId, Submitted>,
    /// Messages that were submitted together.
    pub(super) groups: Vec<Vec<MessageId>>,
    /// Addresses in matching form, and whether they are suppressed.
    pub(super) suppressed: BTreeMap<String, Known>,
    /// Buckets whose destruction was requested.
    pub(super) destroyed: BTreeMap<Timestamp, Known>,
    /// All rows after the last acknowledged commit.
    pub(super) rows: Rows,
    /// The rows after each acknowledged commit, with the last write to the journal by then.
    pub(super) states: Vec<(Rows, Option<LastWrite>)>,
    /// Events seen after the last acknowledged commit, and the greatest identifier assigned by then.
    pub(super) events: BTreeSet<EventId>,
    pub(super) last_id: Ulid,
    /// Messages that had ended by then.
    pub(super) ended: BTreeMap<MessageId, Status>,
    /// Whether a commit has failed since.
    pub(super) is_in_doubt: bool,
    /// Whether a commit that failed had been acknowledged before. A start then finds more than the last acknowledged
    /// rows.
    pub(super) is_promised: bool,
    /// Addresses that were suppressed, or may have been, at some time.
    pub(super) touched: BTreeSet<String>,
    /// Whether the disk lost data written to a segment: some bodies may be lost.
    pub(super) is_damaged: bool,
    /// Whether the clock was set back: quota windows move with it.
    pub(super) clock_went_back: bool,
}

impl History {
    /// Records the state of the store after an acknowledged commit or a start.
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

    /// Records the last state that was read.
    pub(super) fn note_state(&mut self, journal: Option<LastWrite>) {
        self.states.push((self.rows.clone(), journal));
    }

    /// Returns whether a snapshot contains all acknowledged messages.
    pub(super) fn is_shown(&self, snapshot: &Snapshot) -> bool {
        let accepted = self.messages.iter().filter(|(_, submitted)| submitted.accepted == Known::Yes);
        let key = |(id, submitted): (&MessageId, &Submitted)| schema::message(submitted.account, *id);
        accepted.map(key).all(|key| snapshot.get(Table::Messages, &key).unwrap().is_some())
    }

    /// Settles doubtful requests by the state after a start, once that state is judged.
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

    /// Records a submission. An identifier that never reached a commit may be assigned again after a start.
    pub(super) fn submit(&mut self, id: MessageId, submitted: Submitted) {
        self.groups.retain(|group| !group.contains(&id));
        self.messages.insert(id, submitted);
    }

    /// Returns whether a submission could have been refused, if it had reached its commit: either it or one submitted
    /// with it.
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

    /// Returns the message of a bound key, if one was accepted.
    pub(super) fn bound(&self, key_hash: &[u8; 32]) -> Option<&Submitted> {
        let accepted = self.messages.values().filter(|submitted| submitted.accepted == Known::Yes);
        accepted.into_iter().find(|submitted| submitted.claim.is_some_and(|claim| claim.key_hash == *key_hash))
    }
}

impl Submitted {
    /// Returns whether `row` is the submitted one, regardless of the body's place.
    pub(super) fn is(&self, row: &MessageRow) -> bool {
        let place: Place = self.row.place;
        MessageRow { place, ..row.clone() }.encode() == self.row.encode()
    }
}

/// Returns counts and digests of all rows.
pub(super) fn rows(snapshot: &Snapshot) -> Rows {
    let of = |table: Table| {
        let (mut count, mut bytes) = (0, Vec::new());
        let mut each = |key: &[u8], value: &[u8]| {
            // Each start chooses another random epoch.
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
