//! Several messages accepted in one transaction, all or none: a list that its sender submits as a whole.

use std::sync::Arc;

use super::message_builder::{PreparedMessage, Ready};
use super::{KeyInUse, SubmitError, TRIES};
use crate::base::id::MessageId;
use crate::domain::submission::Submission;
use crate::engine::signing::{JobPlace, MESSAGES_PER_JOB};
use crate::engine::{Caller, Engine};
use crate::machine::quota::QuotaView;
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::Accept;
use crate::store::op::accept_all::{AcceptAll, FirstRefusal};
use crate::store::op::admission::{IdempotencyClaim, Refusal};

/// Messages to be accepted together.
pub struct WholeList {
    /// The messages, at least one.
    pub submissions: Vec<Submission>,
    /// The list's idempotency key, and the guard that marks it as in progress.
    pub key: Option<(IdempotencyClaim, KeyInUse)>,
    /// Returns the answer to which the key is bound.
    pub answer: fn(&[MessageId]) -> Vec<u8>,
}

/// Accepted messages.
#[derive(Debug)]
pub struct AllAccepted {
    /// The bytes that [`WholeList::answer`] returned.
    pub answer: Vec<u8>,
    /// Quota after the messages were accepted.
    pub quota: QuotaView,
}

/// Reason why none of the messages was accepted.
#[derive(Debug)]
pub struct ListRefused {
    /// Position of the first failing message, counted from 0; `None` if no single message caused the error.
    pub place: Option<usize>,
    /// The error.
    pub error: SubmitError,
}

impl From<SubmitError> for ListRefused {
    fn from(error: SubmitError) -> Self {
        Self { place: None, error }
    }
}

impl From<StoreError> for ListRefused {
    fn from(error: StoreError) -> Self {
        SubmitError::from(OpError::Failed(error)).into()
    }
}

impl From<OpError<FirstRefusal>> for ListRefused {
    fn from(stop: OpError<FirstRefusal>) -> Self {
        match stop {
            OpError::Refused(FirstRefusal { place, refusal }) => {
                Self { place: Some(place), error: SubmitError::Refused(refusal) }
            }
            OpError::Failed(error) => error.into(),
        }
    }
}

impl Engine {
    /// Accepts all of the messages or none. Continues even if the caller stops waiting for the answer.
    ///
    /// # Errors
    /// [`ListRefused`]. Then nothing was sent, and the idempotency key is free again.
    pub async fn submit_all(self: &Arc<Self>, caller: &Caller, list: WholeList) -> Result<AllAccepted, ListRefused> {
        let (engine, caller) = (Arc::clone(self), caller.clone());
        let task = tokio::spawn(async move { engine.accept_all(&caller, list).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Panicked.into()))
    }

    async fn accept_all(self: &Arc<Self>, caller: &Caller, list: WholeList) -> Result<AllAccepted, ListRefused> {
        self.check_free_space()?;
        let WholeList { submissions, key, answer } = list;
        let submissions: Arc<[Submission]> = submissions.into();
        let claim = key.as_ref().map(|(claim, _)| *claim);
        // Each message may be from another domain that `dev` registers automatically.
        for _ in 0..TRIES + submissions.len() {
            let outcome = match self.prepare_all(caller, &submissions).await {
                Ok(ready) => self.commit_all(ready, claim, answer).await,
                Err(not_all) => Err(not_all),
            };
            match outcome {
                Err(ListRefused { place: Some(place), error: SubmitError::Refused(refusal) })
                    if self.may_retry(caller.account, &submissions[place], &refusal).await => {}
                Err(ListRefused { error: SubmitError::Refused(Refusal::QuotaExhausted(exhausted)), place }) => {
                    self.quota_refused(caller.account, &exhausted);
                    return Err(ListRefused { error: SubmitError::Refused(Refusal::QuotaExhausted(exhausted)), place });
                }
                outcome => return outcome,
            }
        }
        Err(SubmitError::Refused(Refusal::DomainChanged).into())
    }

    /// Composes and signs the messages in their order, some at a time.
    async fn prepare_all(
        self: &Arc<Self>,
        caller: &Caller,
        submissions: &Arc<[Submission]>,
    ) -> Result<Vec<Ready>, ListRefused> {
        let mut ready = Vec::with_capacity(submissions.len());
        while ready.len() < submissions.len() {
            let (engine, of, all, first) = (Arc::clone(self), caller.clone(), Arc::clone(submissions), ready.len());
            let prepare = move |place: usize| match engine.prepare(&of, &all[place], None, None) {
                Ok(PreparedMessage::Message(ready)) => Ok(*ready),
                Ok(PreparedMessage::Replay(_)) => unreachable!("a message without a key is never a repetition"),
                Err(error) => Err(ListRefused { place: Some(place), error }),
            };
            let end = submissions.len().min(first + MESSAGES_PER_JOB);
            let job = move || (first..end).map(prepare).collect::<Result<Vec<_>, _>>();
            let prepared = self.signing.run(caller.account, JobPlace::after(first), job).await;
            ready.append(&mut prepared.ok_or(StoreError::Panicked)??);
        }
        Ok(ready)
    }

    async fn commit_all(
        &self,
        ready: Vec<Ready>,
        claim: Option<IdempotencyClaim>,
        answer: fn(&[MessageId]) -> Vec<u8>,
    ) -> Result<AllAccepted, ListRefused> {
        let (bodies, mut messages): (Vec<_>, Vec<_>) = ready.into_iter().map(|one| (one.body, one.accept)).unzip();
        let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        let answer = answer(&ids);
        // The first message carries the list's key, bound to the list's answer.
        if let Some(first) = messages.first_mut() {
            first.idempotency = claim;
            first.answer.clone_from(&answer);
        }
        let mut appended = self.store.announce_bodies();
        self.store.append_bodies(&mut appended, bodies).await?;
        let at = |(accept, place): (Accept, _)| accept.at(place);
        let op = move |places: Vec<_>| AcceptAll { messages: messages.into_iter().zip(places).map(at).collect() };
        let accepted = self.store.commit_appended(appended, op).await?;
        let last = accepted.into_iter().next_back().ok_or(StoreError::Panicked)?;
        Ok(AllAccepted { answer, quota: last.quota })
    }
}
