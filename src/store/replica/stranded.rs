//! The messages in batches that only this directory has, because another machine claimed the log without them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::Follower;
use super::backlog::Backlog;
use crate::base::id::{MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::machine::transfer::Status;
use crate::store::error::StoreError;
use crate::store::journal;
use crate::store::read::Read as _;
use crate::store::row::Row as _;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::Table;

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

/// The messages in batches that the log lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stranded {
    /// The messages, oldest first.
    pub messages: Vec<StrandedMessage>,
    /// Number of batches whose records are not kept any more, so that their messages are unknown.
    pub unknown_batches: u64,
}

impl Follower {
    /// Returns the messages of the batches after `logged`.
    ///
    /// # Errors
    /// File system and database errors; damaged records and rows.
    pub fn stranded_after(&self, logged: u64) -> Result<Stranded, StoreError> {
        let last = self.sequence().number;
        let failed =
            |error: io::Error| StoreError::Database(format!("could not read the replication backlog: {error}"));
        let (backlog, records) = Backlog::open(Arc::clone(&self.disk), &self.directory, last).map_err(failed)?;
        let (mut kinds, mut known) = (BTreeMap::new(), BTreeSet::new());
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
        let found = self.snapshot()?;
        let mut messages = Vec::new();
        for (key, kind) in kinds {
            let (Some(message), Some(transfer)) =
                (found.get(Table::Messages, &key)?, found.get(Table::Transfers, &key)?)
            else {
                // Its retention has ended meanwhile.
                continue;
            };
            let (message, transfer) = (MessageRow::decode(&message)?, TransferRow::decode(&transfer)?);
            let Some(id) = key.last_chunk().map(|id| MessageId(Ulid(*id))) else { continue };
            let status = transfer.state.status();
            messages.push(StrandedMessage { id, kind, to: message.to, status, created_at: message.created_at });
        }
        messages.sort_by_key(|message| message.id);
        let unknown_batches = last.saturating_sub(logged).saturating_sub(known.len() as u64);
        Ok(Stranded { messages, unknown_batches })
    }
}
