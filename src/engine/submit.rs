//! From a checked submission to a durable, signed message: the way to a 202.
//!
//! One job on a signing thread composes the message, asks a snapshot whether it may be accepted, signs and seals it;
//! then the accepting operation asks again, where the answer counts. Nothing is answered before its sync.

use std::sync::{Arc, PoisonError};

use serde::Serialize;

use super::{Caller, Engine};
use crate::base::id::{self, AccountId, MessageId};
use crate::base::secret::MasterKey;
use crate::base::time::{Timestamp, iso};
use crate::domain::account::Account;
use crate::domain::limits::RECEIVED_HEADERS_COUNT;
use crate::domain::return_path::{self, AccountHint};
use crate::domain::stream::Stream;
use crate::domain::submission::{Content, Submission};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;
use crate::machine::quota::Quota;
use crate::machine::transfer::Status;
use crate::machine::{retention, retry};
use crate::mail::compose::{ComposeFacts, Composed, compose};
use crate::mail::dkim;
use crate::mail::feedback::{self, Feedback};
use crate::store::Store;
use crate::store::content::{Place, SealedBody};
use crate::store::error::{Stop, StoreError};
use crate::store::op::accept::{Accept, Accepted};
use crate::store::op::admission::{self, Admission, Admitted, IdempotencyClaim, Question, Refusal};
use crate::store::read::Read;
use crate::store::row::message::MessageRow;

use super::settings::Settings;
use super::signing::{KeyCache, active};

/// How often a message is composed anew because its domain was changed meanwhile.
const TRIES: usize = 3;

/// Why there is no 202.
#[derive(Debug)]
pub enum SubmitError {
    /// The message itself is at fault, which only shows in composing it.
    Invalid(Violations),
    /// The account's side says no.
    Refused(Refusal),
    /// The idempotency key's first request is still running.
    InProgress,
    /// No room is left on the device.
    Full,
    /// We failed.
    Failed(StoreError),
}

impl From<Stop<Refusal>> for SubmitError {
    fn from(stop: Stop<Refusal>) -> Self {
        match stop {
            Stop::Refused(refusal) => Self::Refused(refusal),
            Stop::Failed(StoreError::Full) => Self::Full,
            Stop::Failed(error) => Self::Failed(error),
        }
    }
}

/// The body of the 202 (spec 2.2), with exactly its fields.
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    /// The message's identifier.
    #[serde(serialize_with = "id::as_text")]
    pub id: MessageId,
    /// Its Message-ID, in angle brackets.
    pub message_id_header: String,
    /// Its status: queued.
    pub status: Status,
    /// Its stream.
    pub stream: Stream,
    /// The sender, as sent.
    pub from: &'a str,
    /// The recipient, as sent.
    pub to: &'a str,
    /// The subject, as sent.
    pub subject: Option<&'a str>,
    /// When it was accepted.
    #[serde(serialize_with = "iso::serialize")]
    pub created_at: Timestamp,
}

/// A message ready to be committed, or the answer to a repeated request.
enum Prepared {
    Replay(Accepted),
    Message(Box<Ready>),
}

struct Ready {
    body: SealedBody,
    accept: Accept,
}

impl Engine {
    /// Accepts one message: composed, signed, durable.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was sent, and the idempotency key is free again.
    pub async fn submit(
        self: &Arc<Self>,
        caller: &Caller,
        submission: Submission,
        idempotency: Option<IdempotencyClaim>,
    ) -> Result<Accepted, SubmitError> {
        let _running = match &idempotency {
            Some(claim) => match Running::begin(self, caller.account, claim.key_hash) {
                Ok(running) => Some(running),
                // It may be a repetition that runs beside this one, or the first request on its last step.
                Err(in_progress) => return self.accepted_before(caller.account, claim)?.ok_or(in_progress),
            },
            None => None,
        };
        self.check_free_space()?;
        let submission = Arc::new(submission);
        for _ in 0..TRIES {
            let announcement = self.store.announce();
            let prepared = self.prepare(caller, &submission, idempotency).await?;
            let Ready { body, accept } = match prepared {
                Prepared::Replay(accepted) => return Ok(accepted),
                Prepared::Message(ready) => *ready,
            };
            let placed = move |place: Place| Accept { message: MessageRow { place, ..accept.message }, ..accept };
            match self.store.commit_with_body(announcement, body, placed).await {
                Err(Stop::Refused(Refusal::DomainChanged)) => {}
                answer => return Ok(answer?),
            }
        }
        Err(SubmitError::Refused(Refusal::DomainChanged))
    }

    /// What a key that is bound already is answered, where the body is the one that it is bound to. Asked before the
    /// body is looked at, for what was valid then may be too late now; a repetition needs neither room nor a signature.
    ///
    /// # Errors
    /// The key is bound to another body; the store failed.
    pub fn accepted_before(
        &self,
        account: AccountId,
        claim: &IdempotencyClaim,
    ) -> Result<Option<Accepted>, SubmitError> {
        let snapshot = self.store.snapshot().map_err(SubmitError::Failed)?;
        let now = self.clock.now();
        let Some(answer) = admission::replay(&snapshot, account, claim, now)? else { return Ok(None) };
        let row: Option<Account> = snapshot.row(account.as_bytes()).map_err(SubmitError::Failed)?;
        let limits = row.map_or(self.settings.quota, |account| account.quota);
        let quota: Option<Quota> = snapshot.row(account.as_bytes()).map_err(SubmitError::Failed)?;
        let quota = quota.unwrap_or_default().view(limits, now);
        Ok(Some(Accepted { answer, quota, is_replay: true }))
    }

    fn check_free_space(&self) -> Result<(), SubmitError> {
        match self.store.free_octets() {
            Ok(free) if free < self.settings.min_free_octets => Err(SubmitError::Full),
            Ok(_) => Ok(()),
            Err(error) => Err(SubmitError::Failed(error)),
        }
    }

    async fn prepare(
        self: &Arc<Self>,
        caller: &Caller,
        submission: &Arc<Submission>,
        idempotency: Option<IdempotencyClaim>,
    ) -> Result<Prepared, SubmitError> {
        let engine = Arc::clone(self);
        let submission = Arc::clone(submission);
        let keys = Arc::clone(self.signing.keys());
        let caller = caller.clone();
        let prepared = self.signing.run(move || {
            let workbench = Workbench { store: &engine.store, settings: &engine.settings, keys: &keys };
            workbench.prepare(&caller, &submission, idempotency, engine.clock.now())
        });
        prepared.await.unwrap_or(Err(SubmitError::Failed(StoreError::Panicked)))
    }
}

/// Marks an idempotency key as in progress until it is dropped.
struct Running {
    engine: Arc<Engine>,
    key: (AccountId, [u8; 32]),
}

impl Running {
    fn begin(engine: &Arc<Engine>, account: AccountId, key_hash: [u8; 32]) -> Result<Self, SubmitError> {
        let key = (account, key_hash);
        let mut running = engine.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.insert(key) {
            return Err(SubmitError::InProgress);
        }
        drop(running);
        Ok(Self { engine: Arc::clone(engine), key })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.in_progress.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// What a signing thread works with.
struct Workbench<'a> {
    store: &'a Store,
    settings: &'a Settings,
    keys: &'a KeyCache,
}

impl Workbench<'_> {
    fn prepare(
        &self,
        caller: &Caller,
        submission: &Submission,
        idempotency: Option<IdempotencyClaim>,
        now: Timestamp,
    ) -> Result<Prepared, SubmitError> {
        let account = caller.account;
        let key_stream = caller.key.as_ref().and_then(|key| key.stream);
        let snapshot = self.store.snapshot().map_err(SubmitError::Failed)?;
        let id = self.store.reserve_message_id(now);
        // Faults of the message come before the account's (contract 1, order of checks), so it is composed first.
        let hosted = self.hosted_unsubscribe(&snapshot, account, id, submission)?;
        let facts = ComposeFacts { message_id: id, at: now, hosted_unsubscribe: hosted.as_ref() };
        let composed = compose(submission, &facts).map_err(SubmitError::Invalid)?;
        if composed.received_count > RECEIVED_HEADERS_COUNT {
            let fault = format!("has more than {RECEIVED_HEADERS_COUNT} Received headers: it goes in circles");
            return Err(SubmitError::Invalid(Violations::of("raw", fault)));
        }
        let question = Question {
            account,
            key_stream,
            from: &submission.from,
            to: &submission.to,
            has_unsubscribe_url: submission.unsubscribe_url.is_some(),
            idempotency: idempotency.as_ref(),
        };
        let admitted = match admission::check(&snapshot, &question, now)? {
            Admission::Replay { answer, quota } => {
                return Ok(Prepared::Replay(Accepted { answer, quota, is_replay: true }));
            }
            Admission::Admitted(admitted) => admitted,
        };
        drop(snapshot);
        let token = return_path::token(account, id, &self.settings.return_path_keys);
        let feedback = Feedback {
            token: &token,
            stream: admitted.domain.stream,
            sender: AccountHint::of(account),
            aligned: admitted.domain.return_path_seen.then_some(&admitted.domain.name),
        };
        let signed = self.sign(&feedback, &composed, &admitted, now)?;
        let bucket = retention::Bucket::of(now, admitted.account.content_retention_days).end;
        let message = self.row(caller, id, submission, &composed, &admitted, now, signed.len());
        let body = self.store.content().seal(bucket, id, signed);
        let answer = answer(id, &message);
        let accept = Accept { account, key_stream, id, message, answer, idempotency };
        Ok(Prepared::Message(Box::new(Ready { body, accept })))
    }

    /// The link of ours for a message that offers one, where its account has us host them.
    fn hosted_unsubscribe(
        &self,
        read: &impl Read,
        account: AccountId,
        message: MessageId,
        submission: &Submission,
    ) -> Result<Option<UnsubscribeUrl>, SubmitError> {
        if submission.unsubscribe_url.is_none() {
            return Ok(None);
        }
        let row: Option<Account> = read.row(account.as_bytes()).map_err(SubmitError::Failed)?;
        let is_hosted = row.is_some_and(|account| account.hosted_unsubscribe);
        Ok(if is_hosted { self.settings.unsubscribe_link(account, message) } else { None })
    }

    /// The message as it goes out: its signatures, the fields that bring complaints back, and what was composed.
    fn sign(
        &self,
        feedback: &Feedback<'_>,
        composed: &Composed,
        admitted: &Admitted,
        now: Timestamp,
    ) -> Result<Vec<u8>, SubmitError> {
        let master: &MasterKey = self.store.master_key();
        let failed = |fault: String| SubmitError::Failed(StoreError::Content(fault));
        let keys = self.keys.active(admitted.domain_id, &admitted.domain, master).map_err(failed)?;
        let keys: Vec<_> = keys.iter().map(Arc::as_ref).collect();
        let mut message = feedback::fields(feedback);
        message.extend_from_slice(&composed.bytes);
        let mut signed = dkim::sign(&keys, &message, now).map_err(|error| failed(error.to_string()))?;
        signed.extend_from_slice(&message);
        Ok(signed)
    }

    #[expect(clippy::too_many_arguments, reason = "the row joins everything that is known of a message")]
    fn row(
        &self,
        caller: &Caller,
        id: MessageId,
        submission: &Submission,
        composed: &Composed,
        admitted: &Admitted,
        now: Timestamp,
        octets: usize,
    ) -> MessageRow {
        let settings = self.settings;
        let days = admitted.account.content_retention_days;
        let content_expires_at = retention::content_deadline(now, days);
        let local = return_path::encode(caller.account, id, &settings.return_path_keys);
        let host = match admitted.domain.return_path_seen {
            true => format!("rp.{}", admitted.domain.name),
            false => settings.bounce_host.clone(),
        };
        let parts = match &submission.content {
            Content::Composed(parts) => Some(parts),
            Content::Raw(_) => None,
        };
        MessageRow {
            domain: admitted.domain_id,
            stream: admitted.domain.stream,
            from: submission.from.clone(),
            from_name: submission.from_name.clone(),
            to: submission.to.clone(),
            subject: composed.subject.clone(),
            metadata: submission.metadata.clone(),
            unsubscribe_url: submission.unsubscribe_url.as_ref().map(|url| url.as_given().to_owned()),
            created_at: now,
            expires_at: submission.expires_at,
            give_up_at: retry::give_up_at(now, settings.queue_lifetime, submission.expires_at, content_expires_at),
            content_expires_at,
            key: caller.key.as_ref().map(|key| key.id),
            selectors: active(&admitted.domain).into_iter().map(|key| key.selector.clone()).collect(),
            size_octets: u32::try_from(octets).unwrap_or(u32::MAX),
            // Known when the body is on disk.
            place: Place::unknown(retention::Bucket::of(now, days).end),
            return_path: format!("{local}@{host}"),
            eight_bit: composed.eight_bit,
            smtputf8: composed.smtputf8,
            waives_tls: composed.waives_tls,
            is_raw: parts.is_none(),
            text_ends_line: ends_line(parts.and_then(|parts| parts.text.as_ref())),
            html_ends_line: ends_line(parts.and_then(|parts| parts.html.as_ref())),
        }
    }
}

fn ends_line(body: Option<&String>) -> bool {
    body.is_some_and(|body| body.ends_with(['\n', '\r']))
}

fn answer(id: MessageId, message: &MessageRow) -> Vec<u8> {
    let answer = Answer {
        id,
        message_id_header: message.message_id_header(id),
        status: Status::Queued,
        stream: message.stream,
        from: message.from.as_given(),
        to: message.to.as_given(),
        subject: message.subject.as_deref(),
        created_at: message.created_at,
    };
    serde_json::to_vec(&answer).unwrap_or_else(|error| unreachable!("the answer is plain JSON: {error}"))
}
