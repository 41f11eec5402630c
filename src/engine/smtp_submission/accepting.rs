//! Accepting the messages of one transaction. The message is read once, its copies are admitted together, signed and
//! appended in turn, and committed by one operation.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::copies::{Chunk, Copies, SharedMessage};
use super::recipient::{COPIES_BYTES_MAX, Transaction, check_key};
use super::{SmtpClient, failed, reply};
use crate::engine::signing::JobPlace;
use crate::engine::submit::{BegunKey, KeyMark, TRIES};
use crate::engine::{Caller, Engine};
use crate::mail::submitted::{ReadingFacts, SubmittedMessage};
use crate::smtp::server::Answer;
use crate::store::AppendedBodies;
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::{Accept, Accepted};
use crate::store::op::accept_all::{AcceptAll, FirstRefusal};
use crate::store::op::admission::{IdempotencyClaim, Refusal};

/// Reason why a message has no identifiers to answer with.
#[derive(Debug)]
pub(super) enum Failure {
    /// The message is not accepted.
    Answer(Answer),
    /// The message may have been accepted or not.
    InDoubt,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Answer(failed(&error))
    }
}

impl From<Answer> for Failure {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// A transaction whose message has arrived.
pub(super) struct ReceivedTransaction {
    engine: Arc<Engine>,
    caller: Arc<Caller>,
    client: SmtpClient,
    transaction: Transaction,
}

/// Reason why one try failed.
enum AcceptFailure {
    /// The domain was changed meanwhile. Try again.
    DomainChanged,
    /// The account may not send from the domain. In `dev`, the domain may be registered automatically.
    DomainUnusable(Failure),
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for AcceptFailure {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// The idempotency key of each recipient.
pub(super) type Claims = Arc<Vec<Option<IdempotencyClaim>>>;
/// Guards that mark idempotency keys as in use, until the last owner drops them.
type KeyMarks = Arc<Vec<KeyMark>>;

impl ReceivedTransaction {
    pub(super) fn new(engine: Arc<Engine>, caller: Caller, client: SmtpClient, transaction: Transaction) -> Self {
        Self { engine, caller: Arc::new(caller), client, transaction }
    }

    /// Accepts the message for all recipients or for none. Returns the identifiers in the order of the recipients.
    pub(super) async fn accept(self, message: Vec<u8>) -> Result<Vec<String>, Failure> {
        check_key(&self.engine, &self.caller)?;
        if !self.engine.may_accept().await {
            return Err(Answer::replica_unavailable().into());
        }
        let shared = Arc::new(self.read(message).await?);
        let (claims, marks) = self.claims(&shared)?;
        self.engine.check_space()?;
        for _ in 0..TRIES {
            match self.try_once(&shared, &claims, &marks).await {
                Ok(ids) => return Ok(ids),
                Err(AcceptFailure::DomainChanged) => {}
                Err(AcceptFailure::DomainUnusable(failure)) => {
                    if !self.engine.adopt_domain(self.caller.account, shared.message.from.domain()).await {
                        return Err(failure);
                    }
                }
                Err(AcceptFailure::Failed(failure)) => return Err(failure),
            }
        }
        Err(reply::domain_changed().into())
    }

    /// Parses the message, off the async threads.
    async fn read(&self, message: Vec<u8>) -> Result<SharedMessage, Failure> {
        let (mail_from, client) = (self.transaction.sender.mail_from.clone(), self.client.clone());
        let copies = self.transaction.recipients.len();
        self.on_pool(JobPlace::Last, move |engine| {
            let facts = ReadingFacts { mail_from: &mail_from, limits: engine.submission_limits() };
            let bytes = u64::try_from(message.len().saturating_mul(copies)).unwrap_or(u64::MAX);
            let read = SubmittedMessage::read(message, &facts).map_err(|fault| reply::unsubmitted(&fault))?;
            if bytes > COPIES_BYTES_MAX {
                return Err(reply::copies_too_large().into());
            }
            Ok(SharedMessage::new(read, copies, mail_from, client))
        })
        .await?
    }

    /// Returns the idempotency key of each recipient, and the guards that mark the keys as in use. They never equal the
    /// API's keys, which don't contain NUL.
    fn claims(&self, shared: &SharedMessage) -> Result<(Claims, KeyMarks), Failure> {
        let recipients = &self.transaction.recipients;
        let (Some(key), Some(body_hash)) = (&shared.message.steering.idempotency_key, shared.fingerprint) else {
            return Ok((Arc::new(vec![None; recipients.len()]), Arc::default()));
        };
        let (mut claims, mut marks) = (Vec::new(), Vec::new());
        for to in recipients {
            let claim = IdempotencyClaim { key_hash: reply::key_hash(key, to), body_hash };
            match self.engine.begin_key(self.caller.account, &claim) {
                Ok(BegunKey::First(mark)) => marks.push(mark),
                Ok(BegunKey::Replay(_)) => {}
                Err(error) => return Err(reply::of_error(&error, to).into()),
            }
            claims.push(Some(claim));
        }
        Ok((Arc::new(claims), Arc::new(marks)))
    }

    async fn try_once(
        &self,
        shared: &Arc<SharedMessage>,
        claims: &Claims,
        marks: &KeyMarks,
    ) -> Result<Vec<String>, AcceptFailure> {
        let from = shared.message.from.domain().as_str();
        let recipients: Arc<[_]> = self.transaction.recipients.clone().into();
        let (caller, shared, claims) = (Arc::clone(&self.caller), Arc::clone(shared), Arc::clone(claims));
        let refused = |(place, stop)| self.refused(from, place, stop);
        let (mut appended, mut accepts) = (self.engine.store.announce_bodies(), Vec::new());
        let begin = move |engine: &_| {
            Copies::begin(engine, caller, shared, recipients, claims)
                .map(|copies| copies.with_next(engine, Chunk::default()))
        };
        let (mut copies, mut made) = self.on_pool(JobPlace::First, begin).await?.map_err(refused)?;
        loop {
            let mut chunk = made.map_err(refused)?;
            let is_done = copies.is_done();
            // Memory holds the message and one copy at a time, or as many small copies as fill a chunk.
            if is_done || chunk.is_full() {
                let Chunk { bodies, accepts: mut more } = std::mem::take(&mut chunk);
                accepts.append(&mut more);
                self.engine.store.append_bodies(&mut appended, bodies).await?;
            }
            if is_done {
                break;
            }
            (copies, made) = self.on_pool(JobPlace::First, move |engine| copies.with_next(engine, chunk)).await?;
        }
        let (mut ids, places) = copies.into_ids();
        if !accepts.is_empty() {
            let accepted = self.commit(appended, accepts, marks).await?;
            let accepted = accepted
                .map_err(|refused| self.refused(from, places[refused.place], OpError::Refused(refused.refusal)))?;
            self.count(&accepted);
            places.iter().zip(accepted).for_each(|(place, accepted)| ids[*place] = reply::id_of(&accepted.answer));
        }
        Ok(ids)
    }

    /// Commits the messages.
    async fn commit(
        &self,
        appended: AppendedBodies,
        accepts: Vec<Accept>,
        marks: &KeyMarks,
    ) -> Result<Result<Vec<Accepted>, FirstRefusal>, Failure> {
        let (sender, answer) = oneshot::channel();
        let op = move |at: Vec<_>| {
            let mut messages = accepts;
            messages.iter_mut().zip(at).for_each(|(accept, place)| accept.message.place = place);
            AcceptAll { messages }
        };
        let marks = Arc::clone(marks);
        self.engine.store.post_appended(appended, op, move |answer| drop((marks, sender.send(answer))));
        match answer.await {
            Ok(Ok(accepted)) => Ok(Ok(accepted)),
            Ok(Err(OpError::Refused(refused))) => Ok(Err(refused)),
            // The record may be on disk, so a refusal could be wrong.
            Ok(Err(OpError::Failed(
                error @ (StoreError::Database(_)
                | StoreError::DatabaseFull
                | StoreError::Corrupted(_)
                | StoreError::Content(_)
                | StoreError::Unsynced(_)
                | StoreError::InDoubt),
            ))) => {
                tracing::error!(%error, "could not commit an SMTP submission; closing without an answer");
                Err(Failure::InDoubt)
            }
            Ok(Err(OpError::Failed(error))) => Err(error.into()),
            Err(_) => Err(Failure::InDoubt),
        }
    }

    fn count(&self, accepted: &[Accepted]) {
        let new: HashSet<_> = accepted.iter().filter(|one| !one.is_replay).map(|one| &one.answer).collect();
        self.engine.meters.submission.messages.add(u64::try_from(new.len()).unwrap_or(u64::MAX));
    }

    /// Converts the refusal for the recipient at `place` and the sending domain `from` to the end of a try.
    fn refused(&self, from: &str, place: usize, stop: OpError<Refusal>) -> AcceptFailure {
        match stop {
            OpError::Refused(Refusal::DomainChanged) => AcceptFailure::DomainChanged,
            OpError::Refused(refusal) => {
                if let Refusal::QuotaExhausted(exhausted) = &refusal {
                    self.engine.quota_refused(self.caller.account, exhausted);
                }
                let to = &self.transaction.recipients[place];
                let failure = reply::of_refusal(&self.engine, &self.caller, from, &refusal, to).into();
                match refusal {
                    Refusal::DomainUnknown | Refusal::DomainUnverified => AcceptFailure::DomainUnusable(failure),
                    _ => AcceptFailure::Failed(failure),
                }
            }
            OpError::Failed(error) => error.into(),
        }
    }

    /// Runs work on a thread of the signing pool.
    async fn on_pool<T: Send + 'static>(
        &self,
        place: JobPlace,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let engine = Arc::clone(&self.engine);
        let done = self.engine.signing.run(self.caller.account, place, move || work(&engine)).await;
        done.ok_or_else(|| StoreError::Panicked.into())
    }
}
