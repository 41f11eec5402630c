//! The messages in batches that only this directory has, because another machine claimed the log without them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::Follower;
use super::backlog::Backlog;
use crate::base::id::{MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::machine::transfer::Status;
use crate::store::error::StoreError;
use crate::store::journal;
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::Row as _;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::Table;
use crate::store::snapshot::Snapshot;

/// The part of a message that the log lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrandedKind {
    /// The whole message.
    Accepted,
    /// The outcome of an attempt.
    Outcome,
}

impl StrandedKind {
    /// Returns the name in the list.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Outcome => "outcome",
        }
    }
}

/// A message that the log lacks, or whose outcome it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrandedMessage {
    /// Identifier.
    pub id: MessageId,
    /// The part that the log lacks.
    pub kind: StrandedKind,
    /// The recipient.
    pub to: Address,
    /// Status in this directory.
    pub status: Status,
    /// Time of its creation.
    pub created_at: Timestamp,
}

/// Batches whose records are not kept any more, because the backlog was dropped or a base replaced them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedBatches {
    /// The first of the batches after the log. Records of some later ones may be kept.
    pub from: u64,
    /// The last of the batches after the log.
    pub to: u64,
    /// Number of batches without a record.
    pub count: u64,
    /// Commit time of the last batch that the log has. From then on, messages are listed by their time. `None` if it is
    /// not known, so that the messages of these batches are not listed.
    pub after: Option<Timestamp>,
    /// Commit time of the store's last batch.
    pub until: Timestamp,
}

/// The messages in batches that the log lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stranded {
    /// The messages, oldest first.
    pub messages: Vec<StrandedMessage>,
    /// The batches without a record, if there are any.
    pub dropped: Option<DroppedBatches>,
}

/// Time between the creation of a message and its commit, at most. A listing by time begins that much earlier, so it
/// may contain some messages that the log has.
const COMMIT_WAIT: Duration = Duration::from_secs(60);

impl Follower {
    /// Returns the messages of the batches after `logged`, which was committed at `logged_at`.
    ///
    /// # Errors
    /// File system and database errors; damaged records and rows.
    pub fn stranded_after(&self, logged: u64, logged_at: Option<Timestamp>) -> Result<Stranded, StoreError> {
        let last = self.sequence();
        let (mut kinds, records) = self.recorded_after(logged)?;
        let count = last.number.saturating_sub(logged).saturating_sub(records);
        let dropped = (count > 0).then_some(DroppedBatches {
            from: logged + 1,
            to: last.number,
            count,
            after: logged_at,
            until: last.committed_at,
        });
        let found = self.snapshot()?;
        if let Some(after) = dropped.and_then(|dropped| dropped.after) {
            changed_since(&found, after - COMMIT_WAIT, &mut kinds)?;
        }
        Ok(Stranded { messages: listed(&found, kinds)?, dropped })
    }

    /// Returns the messages in the records of the batches after `logged`, and the number of these records.
    fn recorded_after(&self, logged: u64) -> Result<(Kinds, u64), StoreError> {
        let failed =
            |error: io::Error| StoreError::Database(format!("could not read the replication backlog: {error}"));
        let opened = Backlog::open(Arc::clone(&self.disk), &self.directory, self.sequence().number);
        let (backlog, records) = opened.map_err(failed)?;
        let (mut kinds, mut known) = (Kinds::new(), BTreeSet::new());
        for record in records.iter().filter(|record| record.sequence > logged) {
            let payload = backlog.read(record.stored).map_err(failed)?;
            known.insert(record.sequence);
            for journal::Change { table, key, value } in journal::decode_record(&payload)? {
                if value.is_none() {
                    continue;
                }
                if table == Table::Messages.name() {
                    kinds.insert(key.to_vec(), StrandedKind::Accepted);
                } else if table == Table::Transfers.name() {
                    kinds.entry(key.to_vec()).or_insert(StrandedKind::Outcome);
                }
            }
        }
        Ok((kinds, known.len() as u64))
    }
}

/// The part of each message that the log lacks, by the key of its rows.
type Kinds = BTreeMap<Vec<u8>, StrandedKind>;

/// Adds the messages that were created, or whose status changed, at or after `time`.
fn changed_since(found: &Snapshot, time: Timestamp, kinds: &mut Kinds) -> Result<(), StoreError> {
    found.scan_sound(Table::Messages, &[], &after_prefix(&[]), Order::Ascending, &mut |key, bytes| {
        if MessageRow::decode(bytes)?.created_at >= time {
            kinds.insert(key.to_vec(), StrandedKind::Accepted);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.scan_sound(Table::Transfers, &[], &after_prefix(&[]), Order::Ascending, &mut |key, bytes| {
        if TransferRow::decode(bytes)?.status_at >= time {
            kinds.entry(key.to_vec()).or_insert(StrandedKind::Outcome);
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the messages with these keys, oldest first.
fn listed(found: &Snapshot, kinds: Kinds) -> Result<Vec<StrandedMessage>, StoreError> {
    let mut messages = Vec::new();
    for (key, kind) in kinds {
        let (Some(message), Some(transfer)) = (found.get(Table::Messages, &key)?, found.get(Table::Transfers, &key)?)
        else {
            // The message's retention has ended meanwhile.
            continue;
        };
        let (message, transfer) = (MessageRow::decode(&message)?, TransferRow::decode(&transfer)?);
        let Some(id) = key.last_chunk().map(|id| MessageId(Ulid(*id))) else { continue };
        let status = transfer.state.status();
        messages.push(StrandedMessage { id, kind, to: message.to, status, created_at: message.created_at });
    }
    messages.sort_by_key(|message| message.id);
    Ok(messages)
}
