//! Accepting a message: message, queue entry, event, quota and idempotency record, in one transaction (contract 3
//! "Durability"). The body is on disk before this is applied.

use serde::{Deserialize, Serialize};

use super::admission::{self, Admission, AdmissionRequest, IdempotencyClaim, Refusal, StorageRoom};
use super::event::{self, EventDetails, Subject};
use super::{Op, alert_quota, clock_doubt, message_index, stored_content, waiting};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::stream::Stream;
use crate::machine::idempotency;
use crate::machine::quota::QuotaView;
use crate::store::content::Place;
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::idempotency::IdempotencyRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Expired idempotency records are swept every minute. They stop counting at their exact expiry.
const SWEEP_STEP_MS: u64 = 60_000;

/// Accepts one message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Accept {
    /// The account that sends.
    pub account: AccountId,
    /// Stream to which the API key is limited.
    pub key_stream: Option<Stream>,
    /// The message's identifier, reserved before it was composed.
    pub id: MessageId,
    /// The accepted message.
    pub message: MessageRow,
    /// Bytes of the 202, stored for replays.
    pub answer: Vec<u8>,
    /// The idempotency key.
    pub idempotency: Option<IdempotencyClaim>,
    /// Maximum number of bytes of stored content for the account; 0 for no limit.
    pub stored_bytes_max: u64,
}

impl Accept {
    /// Names the place at which the message's body was appended.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { message: MessageRow { place, ..self.message }, ..self }
    }
}

/// An accepted message.
#[derive(Debug)]
pub struct Accepted {
    /// Bytes of the 202 for this message. A replay has the bytes of the first answer.
    pub answer: Vec<u8>,
    /// Quota after this message.
    pub quota: QuotaView,
    /// Whether the message is a replay: the key was bound to the same body, and nothing was sent.
    pub is_replay: bool,
}

impl Op for Accept {
    type Reply = Accepted;
    type Refusal = Refusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Accepted, OpError<Refusal>> {
        let question = AdmissionRequest {
            account: self.account,
            key_stream: self.key_stream,
            from: &self.message.from,
            to: &self.message.to,
            has_unsubscribe_url: self.message.unsubscribe_url.is_some(),
            idempotency: self.idempotency.as_ref(),
            storage: StorageRoom { max: self.stored_bytes_max, wanted: self.message.place.length.into() },
        };
        let admitted = match admission::check(tables, &question, &tables.time())? {
            Admission::Replay { answer, quota } => return Ok(Accepted { answer, quota, is_replay: true }),
            Admission::Admitted(admitted) => admitted,
        };
        if admitted.domain_id != self.message.domain || admitted.domain.stream != self.message.stream {
            return Err(OpError::Refused(Refusal::DomainChanged));
        }
        tables.put(self.account.as_bytes(), &admitted.quota);
        alert_quota::counted(tables, self.account, &admitted.quota, admitted.account.quota, 1)?;
        self.write_message(tables)?;
        stored_content::add(tables, self.account, self.message.place)?;
        message_index::see_to(tables, self.account, admitted.quota.day_used);
        if let Some(claim) = &self.idempotency {
            bind_idempotency_key(tables, self.account, claim, &self.answer);
        }
        Ok(Accepted { answer: self.answer.clone(), quota: admitted.quota_view, is_replay: false })
    }
}

impl Accept {
    fn write_message(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Refusal>> {
        let now = tables.now();
        let key = schema::message(self.account, self.id);
        let message = clock_doubt::stamped(tables, &key, &self.message)?;
        tables.put(&key, message.as_ref());
        tables.put(&key, &TransferRow::queued(now));
        tables.arm(Timer::new(now, TimerKind::Transfer, self.account, self.id.0));
        waiting::begin(tables, self.account, self.id, &self.message.to);
        if let Some(original) = self.message.original_message_id() {
            let key = schema::message_by_original_id(self.account, original, self.id);
            tables.put_bytes(Table::MessagesByOriginalId, &key, Vec::new());
        }
        let last = tables.get(Table::Meta, meta::LAST_MESSAGE_ID)?.unwrap_or_default();
        if last.as_slice() < self.id.as_bytes().as_slice() {
            tables.put_bytes(Table::Meta, meta::LAST_MESSAGE_ID, self.id.as_bytes().to_vec());
        } else {
            message_index::note_late(tables, self.account, self.id, &self.message)?;
        }
        tables.arm_unless_armed(Timer::of_store(self.message.place.bucket, TimerKind::Content))?;
        let subject = Subject { account: self.account, id: self.id, row: &self.message };
        event::record(tables, &subject, EventType::Queued, &EventDetails::default())?;
        Ok(())
    }
}

/// Binds the key of `claim` to `answer` for the usual time.
pub(super) fn bind_idempotency_key(
    tables: &mut Tables<'_>,
    account: AccountId,
    claim: &IdempotencyClaim,
    answer: &[u8],
) {
    let expires_at = idempotency::expires_at(&tables.time());
    let binding = idempotency::Binding { body_hash: claim.body_hash, expires_at };
    let row = IdempotencyRow { binding, answer: answer.to_vec() };
    tables.put(&schema::named(account, &claim.key_hash), &row);
    let by_expiry = schema::idempotency_expiry(expires_at, account, &claim.key_hash);
    tables.put_bytes(Table::IdempotencyByExpiry, &by_expiry, Vec::new());
    let sweep_at = Timestamp::from_millis(expires_at.as_millis().div_ceil(SWEEP_STEP_MS) * SWEEP_STEP_MS);
    tables.arm(Timer::new(sweep_at, TimerKind::Idempotency, AccountId::default(), Ulid::default()));
}

#[cfg(test)]
mod tests;
