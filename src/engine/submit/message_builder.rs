//! Composing, admitting, signing and sealing one message: the steps between a submission and its operation. CPU-bound,
//! without side effects.

use std::sync::Arc;

use super::{SubmitError, answer};
use crate::base::id::{AccountId, MessageId};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::limits::RECEIVED_HEADERS_COUNT;
use crate::domain::return_path::{self, AccountHint};
use crate::domain::submission::{Content, Submission};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::settings::Settings;
use crate::engine::signing::{KeyCache, SigningPool, active};
use crate::machine::service_clock::ServiceTime;
use crate::machine::{retention, retry};
use crate::mail::compose::{ComposeFacts, ComposedMessage, compose};
use crate::mail::dkim::{self, SigningFailed, SigningKey};
use crate::mail::feedback::{self, Feedback};
use crate::store::Store;
use crate::store::content::{CompressedEnd, Place, SealedBody};
use crate::store::error::StoreError;
use crate::store::op::accept::{Accept, Accepted};
use crate::store::op::admission::{self, Admission, AdmissionRequest, Admitted, IdempotencyClaim, StorageRoom};
use crate::store::read::Read;
use crate::store::row::message::MessageRow;

/// Minimum size, in bytes, of a message for which waking another thread is worthwhile.
const MEANWHILE_BYTES_MIN: usize = 4096;

/// A message ready to be committed, or the answer to a repeated request.
pub(in crate::engine) enum PreparedMessage {
    Replay(Accepted),
    Message(Box<Ready>),
}

pub(in crate::engine) struct Ready {
    pub(in crate::engine) body: SealedBody,
    pub(in crate::engine) accept: Accept,
}

/// Inputs for building a message.
pub(in crate::engine) struct MessageBuilder<'a> {
    pub(in crate::engine) store: &'a Store,
    pub(in crate::engine) settings: &'a Settings,
    pub(in crate::engine) keys: &'a KeyCache,
    /// Idle signing threads, if no other submission is waiting.
    pub(in crate::engine) helpers: Option<&'a SigningPool>,
}

impl MessageBuilder<'_> {
    pub(in crate::engine) fn prepare(
        &self,
        caller: &Caller,
        submission: &Submission,
        idempotency: Option<IdempotencyClaim>,
        time: ServiceTime,
    ) -> Result<PreparedMessage, SubmitError> {
        let (account, now) = (caller.account, time.now);
        let stored_bytes_max = self.settings.stored_bytes_per_account;
        let key_stream = caller.key.as_ref().and_then(|key| key.stream);
        let snapshot = self.store.snapshot().map_err(SubmitError::Failed)?;
        let id = self.store.reserve_message_id(now);
        // Errors of the message come before those of the account (contract 1, order of checks), so the message is
        // composed first.
        let hosted = self.hosted_unsubscribe(&snapshot, account, id, submission)?;
        let facts = ComposeFacts { message_id: id, at: time.wall, hosted_unsubscribe: hosted.as_ref() };
        let composed = compose(submission, &facts).map_err(SubmitError::Invalid)?;
        if composed.received_count > RECEIVED_HEADERS_COUNT {
            let fault = format!("has more than {RECEIVED_HEADERS_COUNT} Received headers: possible mail loop");
            return Err(SubmitError::Invalid(Violations::of("raw", fault)));
        }
        let question = AdmissionRequest {
            account,
            key_stream,
            from: &submission.from,
            to: &submission.to,
            has_unsubscribe_url: submission.unsubscribe_url.is_some(),
            idempotency: idempotency.as_ref(),
            storage: StorageRoom { max: stored_bytes_max, wanted: 1 },
        };
        let admitted = match admission::check(&snapshot, &question, &time)? {
            Admission::Replay { answer, quota } => {
                return Ok(PreparedMessage::Replay(Accepted { answer, quota, is_replay: true }));
            }
            Admission::Admitted(admitted) => admitted,
        };
        drop(snapshot);
        let feedback = self.feedback(account, id, &admitted);
        let unsigned = Arc::new([feedback.as_slice(), &composed.bytes].concat());
        // Signing takes long enough to compress the signed bytes meanwhile.
        let helpers = self.helpers.filter(|_| unsigned.len() >= MEANWHILE_BYTES_MIN);
        let end = helpers.map(|helpers| {
            let unsigned = Arc::clone(&unsigned);
            helpers.meanwhile(account, move || CompressedEnd::of(&unsigned))
        });
        let signed = self.sign(&unsigned, &admitted, time.wall)?;
        let bucket = bucket(&admitted, &time);
        let message = MessageRow {
            // The exact place is known once the body is on disk.
            place: Place::unknown(bucket),
            ..self.row(caller, id, submission, &composed, &admitted, now, signed.len())
        };
        let content = self.store.content();
        let body = match end.and_then(|end| end.try_recv().ok()) {
            Some(end) => content.seal_with(bucket, id, signed, &end),
            None => content.seal(bucket, id, signed),
        };
        self.check_storage(account, &body)?;
        let answer = answer(id, &message);
        let accept = Accept { account, key_stream, id, message, answer, idempotency, stored_bytes_max };
        Ok(PreparedMessage::Message(Box::new(Ready { body, accept })))
    }

    /// Checks the storage limit again once the size is known. If the body were refused only after it was appended, it
    /// would take disk space outside every account's limit.
    fn check_storage(&self, account: AccountId, body: &SealedBody) -> Result<(), SubmitError> {
        let max = self.settings.stored_bytes_per_account;
        if max == 0 {
            return Ok(());
        }
        let snapshot = self.store.snapshot().map_err(SubmitError::Failed)?;
        Ok(StorageRoom { max, wanted: body.stored_bytes() }.check(&snapshot, account)?)
    }

    /// Returns our own unsubscribe link for a message that offers one, if the account uses hosted links.
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

    /// Returns the message's DKIM signatures and the data that they cover.
    fn sign(&self, message: &[u8], admitted: &Admitted, now: Timestamp) -> Result<Vec<u8>, SubmitError> {
        let mut signed = self.signatures(admitted, |keys| dkim::sign(keys, message, now))?;
        signed.extend_from_slice(message);
        Ok(signed)
    }

    /// Returns the result of `sign` with the domain's keys.
    pub(in crate::engine) fn signatures(
        &self,
        admitted: &Admitted,
        sign: impl FnOnce(&[&SigningKey]) -> Result<Vec<u8>, SigningFailed>,
    ) -> Result<Vec<u8>, SubmitError> {
        let master: &MasterKey = self.store.master_key();
        let failed = |fault: String| SubmitError::Failed(StoreError::Content(fault));
        let keys = self.keys.active(admitted.domain_id, &admitted.domain, master).map_err(failed)?;
        let keys: Vec<_> = keys.iter().map(Arc::as_ref).collect();
        sign(&keys).map_err(|error| failed(error.to_string()))
    }

    /// Returns the header fields by which a complaint is matched to the message.
    pub(in crate::engine) fn feedback(&self, account: AccountId, id: MessageId, admitted: &Admitted) -> Vec<u8> {
        let token = return_path::token(account, id, &self.settings.feedback_keys);
        feedback::fields(&Feedback {
            token: &token,
            stream: admitted.domain.stream,
            sender: AccountHint::of(account),
            aligned: admitted.domain.return_path_seen.then_some(&admitted.domain.name),
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the row combines all facts about a message")]
    pub(in crate::engine) fn row(
        &self,
        caller: &Caller,
        id: MessageId,
        submission: &Submission,
        composed: &ComposedMessage,
        admitted: &Admitted,
        now: Timestamp,
        bytes: usize,
    ) -> MessageRow {
        let settings = self.settings;
        let days = admitted.account.content_retention_days;
        let content_expires_at = retention::content_deadline(now, days);
        let expires_at = submission.expires_at.map(|expiry| expiry.at);
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
            expires_at: submission.expires_at.map(|expiry| expiry.given),
            give_up_at: retry::give_up_at(now, settings.queue_lifetime, expires_at, content_expires_at),
            content_expires_at,
            key: caller.key.as_ref().map(|key| key.id),
            selectors: active(&admitted.domain).into_iter().map(|key| key.selector.clone()).collect(),
            size_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            place: Place::unknown(retention::Bucket::of(now, days).end),
            return_path: format!("{local}@{host}"),
            eight_bit: composed.eight_bit,
            smtputf8: composed.smtputf8,
            waives_tls: composed.waives_tls,
            is_raw: parts.is_none(),
            text_ends_line: ends_line(parts.and_then(|parts| parts.text.as_ref())),
            html_ends_line: ends_line(parts.and_then(|parts| parts.html.as_ref())),
            submission: None,
        }
    }
}

/// Returns the end of the bucket that holds the content of a message accepted at `time`.
pub(in crate::engine) fn bucket(admitted: &Admitted, time: &ServiceTime) -> Timestamp {
    let bucket = retention::Bucket::of(time.now, admitted.account.content_retention_days);
    // Content accepted while the clock is in doubt is destroyed at a different time than other content of the same
    // hour.
    time.doubt.map_or(bucket, |number| bucket.in_doubt(number)).end
}

fn ends_line(body: Option<&String>) -> bool {
    body.is_some_and(|body| body.ends_with(['\n', '\r']))
}
