//! Submission of a valid message: everything before the 202, from the composition to the durable, signed message.
//!
//! One job, usually on a signing thread, composes the message, checks admission in a snapshot, then signs and seals the
//! message ([`message_builder`]). The accepting operation checks admission again in its transaction, and only that
//! result counts. Answers are sent only after the sync.

pub mod list;
pub(super) mod message_builder;
pub mod together;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use serde::Serialize;
use tokio::sync::oneshot;

use super::{Caller, Engine};
use crate::base::id::{self, AccountId, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::domain::account::Account;
use crate::domain::stream::Stream;
use crate::domain::submission::{Submission, SubmissionLimits};
use crate::domain::violation::Violations;
use crate::machine::quota::Quota;
use crate::machine::transfer::Status;
use crate::store::content::Place;
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::Accepted;
use crate::store::op::admission::{self, IdempotencyClaim, Refusal};
use crate::store::op::bind_answer::BindAnswer;
use crate::store::read::Read as _;
use crate::store::row::message::MessageRow;

use super::signing::SigningPool;
use message_builder::{MessageBuilder, PreparedMessage, Ready};

/// Maximum number of tries to compose a message whose domain changes meanwhile.
pub(super) const TRIES: usize = 3;
/// Maximum size, in bytes, of a single message that the async worker composes and signs itself. Composing a message of
/// this size takes about as long as signing it.
const ALONE_BYTES_MAX: usize = 64 * 1024;

/// Reason why a submission gets no 202.
#[derive(Debug)]
pub enum SubmitError {
    /// The message itself is invalid. Only composing it can show this.
    Invalid(Violations),
    /// A business rule refuses the message.
    Refused(Refusal),
    /// The idempotency key's first request is still running.
    InProgress,
    /// The disk is full.
    Full,
    /// The system failed.
    Failed(StoreError),
}

impl From<OpError<Refusal>> for SubmitError {
    fn from(stop: OpError<Refusal>) -> Self {
        match stop {
            OpError::Refused(refusal) => Self::Refused(refusal),
            OpError::Failed(StoreError::Full) => Self::Full,
            OpError::Failed(error) => Self::Failed(error),
        }
    }
}

/// Body of the 202 (contract 3), with exactly these fields.
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    /// The message's identifier.
    #[serde(serialize_with = "id::as_text")]
    pub id: MessageId,
    /// Message-ID, in angle brackets.
    pub message_id_header: String,
    /// Status, always queued.
    pub status: Status,
    /// Stream.
    pub stream: Stream,
    /// Sender, as submitted.
    pub from: &'a str,
    /// Recipient, as submitted.
    pub to: &'a str,
    /// Subject, as submitted.
    pub subject: Option<&'a str>,
    /// Time of acceptance.
    #[serde(serialize_with = "iso::serialize")]
    pub created_at: Timestamp,
}

impl Engine {
    /// Returns the clocks and limits by which a submission is checked.
    pub fn submission_limits(&self) -> SubmissionLimits {
        let time = self.clock.time();
        SubmissionLimits { queue_lifetime: self.settings.queue_lifetime, now: time.now, wall: time.wall }
    }

    /// Composes, signs and stores one message.
    ///
    /// # Errors
    /// [`SubmitError`]. Then nothing was sent, and the idempotency key is free again.
    pub async fn submit(
        self: &Arc<Self>,
        caller: &Caller,
        submission: Submission,
        idempotency: Option<IdempotencyClaim>,
    ) -> Result<Accepted, SubmitError> {
        let running = match &idempotency {
            Some(claim) => match self.begin_key(caller.account, claim)? {
                BegunKey::First(running) => Some(Arc::new(running)),
                BegunKey::Replay(accepted) => return Ok(accepted),
            },
            None => None,
        };
        let waiting = PendingSubmission::begin(&self.waiting_submissions);
        self.check_free_space()?;
        let submission = Arc::new(submission);
        for _ in 0..TRIES {
            match self.try_once(caller, &submission, idempotency, running.clone(), &waiting).await {
                Err(SubmitError::Refused(refusal)) if self.may_retry(caller.account, &submission, &refusal).await => {}
                answer => return self.noting_quota(caller.account, answer),
            }
        }
        Err(SubmitError::Refused(Refusal::DomainChanged))
    }

    /// Marks an idempotency key as in progress, or returns the answer that it is bound to.
    ///
    /// # Errors
    /// The key's first request is still running, the key is bound to another body, or the store failed.
    pub(super) fn begin_key(
        self: &Arc<Self>,
        account: AccountId,
        claim: &IdempotencyClaim,
    ) -> Result<BegunKey, SubmitError> {
        match KeyMark::begin(self, account, claim.key_hash) {
            Ok(running) => Ok(BegunKey::First(running)),
            // The key may belong to a concurrent repetition, or to a first request that is about to finish.
            Err(in_progress) => self.accepted_before(account, claim)?.map(BegunKey::Replay).ok_or(in_progress),
        }
    }

    /// Returns whether another try may accept a refused message: its domain changed meanwhile, or `dev` has registered
    /// it now.
    async fn may_retry(&self, account: AccountId, submission: &Submission, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::DomainChanged => true,
            Refusal::DomainUnknown | Refusal::DomainUnverified => {
                self.adopt_domain(account, submission.from.domain()).await
            }
            Refusal::IdempotencyMismatch
            | Refusal::StreamForbidden { .. }
            | Refusal::UnsubscribeUrlMissing
            | Refusal::RecipientSuppressed
            | Refusal::QuotaExhausted(_)
            | Refusal::StorageExhausted => false,
        }
    }

    /// Returns `answer`, after recording a quota refusal for its alert.
    fn noting_quota<T>(&self, account: AccountId, answer: Result<T, SubmitError>) -> Result<T, SubmitError> {
        if let Err(SubmitError::Refused(Refusal::QuotaExhausted(exhausted))) = &answer {
            self.quota_refused(account, exhausted);
        }
        answer
    }

    /// Composes and signs on one thread, which passes the message to the store. This task wakes only for the answer.
    async fn try_once(
        self: &Arc<Self>,
        caller: &Caller,
        submission: &Arc<Submission>,
        idempotency: Option<IdempotencyClaim>,
        running: Option<Arc<KeyMark>>,
        waiting: &PendingSubmission<'_>,
    ) -> Result<Accepted, SubmitError> {
        let (sender, answer) = oneshot::channel();
        let announcement = self.store.announce();
        // For a small single message, waking a thread would only add latency. It blocks one async worker for the
        // duration of a signature.
        let is_done_here = waiting.is_alone() && submission.content.bytes() <= ALONE_BYTES_MAX;
        let (engine, account) = (Arc::clone(self), caller.account);
        let (caller, submission) = (caller.clone(), Arc::clone(submission));
        let work = move || {
            let helpers = is_done_here.then_some(&engine.signing);
            match engine.prepare(&caller, &submission, idempotency, helpers) {
                Ok(PreparedMessage::Message(ready)) => {
                    let Ready { body, accept } = *ready;
                    let op = move |place: Place| accept.at(place);
                    let done = move |answer: Result<Accepted, _>| {
                        drop((running, sender.send(answer.map_err(SubmitError::from))));
                    };
                    engine.store.post_with_body(announcement, body, op, done);
                }
                Ok(PreparedMessage::Replay(accepted)) => drop(sender.send(Ok(accepted))),
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        if is_done_here {
            SigningPool::do_here(work);
        } else {
            self.signing.post(account, work);
        }
        // The sender is dropped without an answer if its thread panicked.
        answer.await.unwrap_or(Err(SubmitError::Failed(StoreError::Panicked)))
    }

    /// Returns the recorded answer of a key, if the body matches the one that the key is bound to. Called before the
    /// body is validated, because a body that was valid then may be too late now. A repetition does not need a permit
    /// or a signature.
    ///
    /// # Errors
    /// The key is bound to another body, or the store failed.
    pub fn accepted_before(
        &self,
        account: AccountId,
        claim: &IdempotencyClaim,
    ) -> Result<Option<Accepted>, SubmitError> {
        let snapshot = self.store.snapshot().map_err(SubmitError::Failed)?;
        let time = self.clock.time();
        let Some(answer) = admission::replay(&snapshot, account, claim, &time)? else { return Ok(None) };
        let row: Option<Account> = snapshot.row(account.as_bytes()).map_err(SubmitError::Failed)?;
        let limits = row.map_or(self.settings.quota, |account| account.quota);
        let quota: Option<Quota> = snapshot.row(account.as_bytes()).map_err(SubmitError::Failed)?;
        let quota = quota.unwrap_or_default().view(limits, time.now);
        Ok(Some(Accepted { answer, quota, is_replay: true }))
    }

    /// Marks the idempotency key of a list of messages as in progress until the result is dropped.
    ///
    /// # Errors
    /// [`SubmitError::InProgress`].
    pub fn use_key(self: &Arc<Self>, account: AccountId, key_hash: [u8; 32]) -> Result<KeyInUse, SubmitError> {
        KeyMark::begin(self, account, key_hash).map(|running| KeyInUse { _running: running })
    }

    /// Binds an idempotency key to the answer of a list whose messages were accepted one by one.
    ///
    /// # Errors
    /// The key was bound to another answer meanwhile, or the store failed.
    pub async fn bind_answer(
        &self,
        account: AccountId,
        claim: IdempotencyClaim,
        answer: Vec<u8>,
    ) -> Result<(), SubmitError> {
        Ok(self.store.commit(BindAnswer { account, claim, answer }).await?)
    }

    fn check_free_space(&self) -> Result<(), SubmitError> {
        self.check_space().map_err(|error| match error {
            StoreError::Full => SubmitError::Full,
            error => SubmitError::Failed(error),
        })
    }

    fn prepare(
        &self,
        caller: &Caller,
        submission: &Submission,
        idempotency: Option<IdempotencyClaim>,
        helpers: Option<&SigningPool>,
    ) -> Result<PreparedMessage, SubmitError> {
        let Self { store, settings, signing, .. } = self;
        let workbench = MessageBuilder { store, settings, keys: signing.keys(), helpers };
        self.signing.timed(|| workbench.prepare(caller, submission, idempotency, self.clock.time()))
    }
}

/// Counts a submission until it is answered.
struct PendingSubmission<'a>(&'a AtomicUsize);

impl<'a> PendingSubmission<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }

    /// Returns whether no other submission is waiting for an answer.
    fn is_alone(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }
}

impl Drop for PendingSubmission<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Marks an idempotency key as in progress until dropped. Held by the request and by its message, which continues if
/// the client disconnects.
pub(super) struct KeyMark {
    engine: Arc<Engine>,
    key: (AccountId, [u8; 32]),
}

/// Outcome of [`Engine::begin_key`].
pub(super) enum BegunKey {
    /// The key was free. It is in progress until the mark is dropped.
    First(KeyMark),
    /// An earlier request with the same body was accepted.
    Replay(Accepted),
}

/// An idempotency key in progress, until it is dropped.
pub struct KeyInUse {
    _running: KeyMark,
}

impl KeyMark {
    pub(super) fn begin(engine: &Arc<Engine>, account: AccountId, key_hash: [u8; 32]) -> Result<Self, SubmitError> {
        let key = (account, key_hash);
        let mut running = engine.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.insert(key) {
            return Err(SubmitError::InProgress);
        }
        drop(running);
        Ok(Self { engine: Arc::clone(engine), key })
    }
}

impl Drop for KeyMark {
    fn drop(&mut self) {
        self.engine.in_progress.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Returns the body of the 202 as bytes.
pub(super) fn answer(id: MessageId, message: &MessageRow) -> Vec<u8> {
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
