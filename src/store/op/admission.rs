//! Admission: the decision whether a message may be accepted. It makes the account's checks in the order of contract 1,
//! from idempotency to quota.
//!
//! The same request is checked twice: against a snapshot before composing and signing, and inside the accepting
//! operation, where the result counts.

use serde::{Deserialize, Serialize};

use super::domain::domain_by_name;
use super::{stored_content, suppression};
use crate::base::id::{AccountId, DomainId, MessageId};
use crate::domain::account::Account;
use crate::domain::address::Address;
use crate::domain::stream::Stream;
use crate::machine::idempotency::{self, Effect, Progress};
use crate::machine::quota::{Quota, QuotaExhausted, QuotaView};
use crate::machine::service_clock::{DIFFERENCE_MAX, ServiceTime};
use crate::store::clock_doubts;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::domain::DomainRow;
use crate::store::row::idempotency::IdempotencyRow;
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};

/// An idempotency key with the hash of its request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdempotencyClaim {
    /// SHA-256 of the key, so that keys of any length have one size in the store.
    pub key_hash: [u8; 32],
    /// Hash of the parsed body.
    pub body_hash: [u8; 32],
}

/// An admission request.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    /// The account that sends.
    pub account: AccountId,
    /// Stream to which the API key is limited.
    pub key_stream: Option<Stream>,
    /// The sender.
    pub from: &'a Address,
    /// The recipient.
    pub to: &'a Address,
    /// Whether the message has an unsubscribe URL.
    pub has_unsubscribe_url: bool,
    /// The idempotency key, if the request has one.
    pub idempotency: Option<&'a IdempotencyClaim>,
    /// The content that the message adds to the account's storage.
    pub storage: StorageRoom,
}

/// Storage that a message needs in the account.
#[derive(Clone, Copy, Debug)]
pub struct StorageRoom {
    /// Maximum number of bytes of stored content for the account; 0 for no limit.
    pub max: u64,
    /// Bytes of the message's content; 1 while the size is unknown.
    pub wanted: u64,
}

impl StorageRoom {
    /// Checks that the message fits into the account's storage.
    ///
    /// # Errors
    /// [`Refusal::StorageExhausted`] or a store failure.
    pub fn check(&self, read: &impl Read, account: AccountId) -> Result<(), OpError<Refusal>> {
        if self.has_room(read, account)? { Ok(()) } else { Err(OpError::Refused(Refusal::StorageExhausted)) }
    }

    /// Returns whether the message fits into the account's storage.
    ///
    /// # Errors
    /// Store errors.
    pub fn has_room(&self, read: &impl Read, account: AccountId) -> Result<bool, StoreError> {
        Ok(self.max == 0 || stored_content::used(read, account)?.saturating_add(self.wanted) <= self.max)
    }
}

/// Reason for refusing a submission, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The idempotency key is bound to another body.
    IdempotencyMismatch,
    /// The account does not have the domain of `from`.
    DomainUnknown,
    /// The API key is limited to another stream than the domain's.
    StreamForbidden {
        /// The domain's stream.
        stream: Stream,
    },
    /// A message on the marketing stream needs an unsubscribe URL.
    UnsubscribeUrlMissing,
    /// The domain is not verified.
    DomainUnverified,
    /// The recipient is suppressed.
    RecipientSuppressed,
    /// The quota of an hour or a day is used up.
    QuotaExhausted(QuotaExhausted),
    /// The account's storage is full.
    StorageExhausted,
    /// The domain changed between composing and committing: compose again.
    DomainChanged,
}

/// Result of the checks.
#[derive(Debug)]
pub enum Admission {
    /// The key is bound to the same body: return the first answer with the current quota.
    Replay {
        /// The bytes of the 202.
        answer: Vec<u8>,
        /// The current quota.
        quota: QuotaView,
    },
    /// The message may be accepted.
    Admitted(Box<Admitted>),
}

/// Results of the checks, for the next step.
#[derive(Debug)]
pub struct Admitted {
    /// The account.
    pub account: Account,
    /// The sending domain.
    pub domain_id: DomainId,
    /// The domain's row.
    pub domain: DomainRow,
    /// The quota with this message counted.
    pub quota: Quota,
    /// The quota for the response headers.
    pub quota_view: QuotaView,
}

/// Checks in `read` whether the message may be accepted at `time`.
///
/// # Errors
/// The first refusal in the contract's order, or a store failure.
pub fn check(
    read: &impl Read,
    question: &AdmissionRequest<'_>,
    time: &ServiceTime,
) -> Result<Admission, OpError<Refusal>> {
    let account: Account =
        read.row(question.account.as_bytes())?.ok_or_else(|| StoreError::missing(Table::Accounts))?;
    let quota = read.row::<Quota>(question.account.as_bytes())?.unwrap_or_default();
    let (limits, now) = (account.quota, time.now);
    if let Some(claim) = question.idempotency
        && let Some(answer) = replay(read, question.account, claim, time)?
    {
        return Ok(Admission::Replay { answer, quota: quota.view(limits, now) });
    }
    let (domain_id, domain) = sending_domain(read, question)?;
    if suppression::is_suppressed(read, question.account, question.to)? {
        return Err(OpError::Refused(Refusal::RecipientSuppressed));
    }
    let (quota, quota_view) =
        quota.admit(limits, now).map_err(|exhausted| OpError::Refused(Refusal::QuotaExhausted(exhausted)))?;
    question.storage.check(read, question.account)?;
    Ok(Admission::Admitted(Box::new(Admitted { account, domain_id, domain, quota, quota_view })))
}

/// Returns the stored answer of a bound key if its body is the same; `None` if the key is unbound.
///
/// # Errors
/// The key is bound to another body; store failures.
pub fn replay(
    read: &impl Read,
    account: AccountId,
    claim: &IdempotencyClaim,
    time: &ServiceTime,
) -> Result<Option<Vec<u8>>, OpError<Refusal>> {
    let Some(row) = read.row::<IdempotencyRow>(&schema::named(account, &claim.key_hash))? else { return Ok(None) };
    if is_outlived(read, account, &row, time)? {
        return Ok(None);
    }
    // Running requests with the same key are only known in memory, above the store.
    match idempotency::judge(Some(row.binding), Progress::Idle, claim.body_hash, time.expiry) {
        Effect::Process | Effect::InProgress => Ok(None),
        Effect::Replay => Ok(Some(row.answer)),
        Effect::Mismatch => Err(OpError::Refused(Refusal::IdempotencyMismatch)),
    }
}

/// Returns whether a key is free although its row says otherwise: it was bound by a clock that was ahead and has been
/// corrected since, and its message is older than a key's lifetime.
fn is_outlived(
    read: &impl Read,
    account: AccountId,
    row: &IdempotencyRow,
    time: &ServiceTime,
) -> Result<bool, StoreError> {
    let is_plausible = row.binding.expires_at <= time.now + idempotency::LIFETIME + DIFFERENCE_MAX;
    if is_plausible || time.is_doubtful() {
        return Ok(false);
    }
    let accepted: Option<Accepted<'_>> = serde_json::from_slice(&row.answer).ok();
    let id: Option<MessageId> = accepted.and_then(|accepted| accepted.id.parse().ok());
    let Some(id) = id else { return Ok(false) };
    let message = read.row::<MessageRow>(&schema::message(account, id))?;
    // Messages are stored for longer than a key's lifetime.
    let Some(created_at) = message.map(|row| row.created_at) else { return Ok(true) };
    Ok(clock_doubts::corrected(read, id.0, created_at)? + idempotency::LIFETIME <= time.now)
}

/// The identifier in a stored 202.
#[derive(Deserialize)]
struct Accepted<'a> {
    id: &'a str,
}

/// Returns the sending domain if the key may send from it.
fn sending_domain(
    read: &impl Read,
    question: &AdmissionRequest<'_>,
) -> Result<(DomainId, DomainRow), OpError<Refusal>> {
    let name = question.from.domain().as_str();
    let Some((id, domain)) = domain_by_name(read, question.account, name)? else {
        return Err(OpError::Refused(Refusal::DomainUnknown));
    };
    if question.key_stream.is_some_and(|stream| stream != domain.stream) {
        return Err(OpError::Refused(Refusal::StreamForbidden { stream: domain.stream }));
    }
    if domain.stream == Stream::Marketing && !question.has_unsubscribe_url {
        return Err(OpError::Refused(Refusal::UnsubscribeUrlMissing));
    }
    if !domain.status.may_send() {
        return Err(OpError::Refused(Refusal::DomainUnverified));
    }
    Ok((id, domain))
}
