//! Several messages accepted in one transaction, each independently: a refused message leaves the others unaffected.

use std::sync::Arc;

use super::message_builder::{PreparedMessage, Ready};
use super::{BegunKey, KeyMark, SubmitError, TRIES};
use crate::domain::submission::Submission;
use crate::engine::signing::{JobPlace, MESSAGES_PER_JOB};
use crate::engine::{Caller, Engine};
use crate::store::content::SealedBody;
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::{Accept, Accepted};
use crate::store::op::accept_each::AcceptEach;
use crate::store::op::admission::{IdempotencyClaim, Refusal};

/// Maximum number of messages in one transaction. Longer lists would block the writer for too long.
const TOGETHER_MAX: usize = 100;

/// One message of a list.
pub struct ListItem {
    /// The message.
    pub submission: Submission,
    /// Idempotency key of this message.
    pub idempotency: Option<IdempotencyClaim>,
}

/// Acceptance of one message, or the reason for its refusal.
type Outcome = Result<Accepted, SubmitError>;

/// The messages of one transaction, and their outcomes so far.
struct Batch {
    caller: Caller,
    items: Arc<[ListItem]>,
    outcomes: Vec<Option<Outcome>>,
    /// Marks the keys as in progress until dropped.
    running: Vec<KeyMark>,
}

/// Messages that were composed and signed, by their positions in the batch.
type PreparedMessages = Vec<(usize, Result<PreparedMessage, SubmitError>)>;

impl Engine {
    /// Accepts each message of a list independently, in order, and returns the outcomes in that order. Continues even
    /// if the caller stops waiting for the answer.
    pub async fn submit_each(self: &Arc<Self>, caller: &Caller, items: Vec<ListItem>) -> Vec<Outcome> {
        let (engine, caller, count) = (Arc::clone(self), caller.clone(), items.len());
        let task = tokio::spawn(async move {
            let (mut items, mut outcomes) = (items.into_iter(), Vec::with_capacity(count));
            loop {
                let some: Arc<[ListItem]> = items.by_ref().take(TOGETHER_MAX).collect();
                if some.is_empty() {
                    return outcomes;
                }
                outcomes.extend(Batch::new(&caller, some).accept(&engine).await);
            }
        });
        let panicked = |_| (0..count).map(|_| Err(SubmitError::Failed(StoreError::Panicked))).collect();
        task.await.unwrap_or_else(panicked)
    }
}

impl Batch {
    fn new(caller: &Caller, items: Arc<[ListItem]>) -> Self {
        let outcomes = items.iter().map(|_| None).collect();
        Self { caller: caller.clone(), items, outcomes, running: Vec::new() }
    }

    async fn accept(mut self, engine: &Arc<Engine>) -> Vec<Outcome> {
        self.begin(engine);
        for _ in 0..TRIES {
            self.try_rest(engine).await;
            self.reconsider(engine).await;
        }
        self.note_quota(engine);
        let changed = || Err(SubmitError::Refused(Refusal::DomainChanged));
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(changed)).collect()
    }

    /// Marks the keys as in progress. A message whose key is in use is not tried.
    fn begin(&mut self, engine: &Arc<Engine>) {
        for (item, outcome) in self.items.iter().zip(&mut self.outcomes) {
            let Some(claim) = &item.idempotency else { continue };
            match engine.begin_key(self.caller.account, claim) {
                Ok(BegunKey::First(running)) => self.running.push(running),
                Ok(BegunKey::Replay(accepted)) => *outcome = Some(Ok(accepted)),
                Err(error) => *outcome = Some(Err(error)),
            }
        }
    }

    /// Tries the messages that have no outcome yet.
    async fn try_rest(&mut self, engine: &Arc<Engine>) {
        let rest: Vec<_> = (0..self.items.len()).filter(|place| self.outcomes[*place].is_none()).collect();
        if rest.is_empty() {
            return;
        }
        if let Err(error) = engine.check_space() {
            return self.fail(&rest, &error);
        }
        let Some(prepared) = self.prepare(engine, &rest).await else {
            return self.fail(&rest, &StoreError::Panicked);
        };
        let (mut places, mut bodies, mut accepts) = (Vec::new(), Vec::new(), Vec::new());
        for (place, prepared) in prepared {
            match prepared {
                Ok(PreparedMessage::Message(ready)) => {
                    let Ready { body, accept } = *ready;
                    places.push(place);
                    bodies.push(body);
                    accepts.push(accept);
                }
                Ok(PreparedMessage::Replay(accepted)) => self.outcomes[place] = Some(Ok(accepted)),
                Err(error) => self.outcomes[place] = Some(Err(error)),
            }
        }
        if places.is_empty() {
            return;
        }
        match commit(engine, bodies, accepts).await {
            Ok(outcomes) => {
                for (place, outcome) in places.into_iter().zip(outcomes) {
                    self.outcomes[place] = Some(outcome.map_err(SubmitError::Refused));
                }
            }
            Err(error) => self.fail(&places, &error),
        }
    }

    /// Composes and signs messages in their order, some at a time.
    async fn prepare(&self, engine: &Arc<Engine>, places: &[usize]) -> Option<PreparedMessages> {
        let mut prepared = Vec::with_capacity(places.len());
        for some in places.chunks(MESSAGES_PER_JOB) {
            let (shared, caller, items) = (Arc::clone(engine), self.caller.clone(), Arc::clone(&self.items));
            let some = some.to_vec();
            let prepare = move |place: usize| {
                let ListItem { submission, idempotency } = &items[place];
                (place, shared.prepare(&caller, submission, *idempotency, None))
            };
            let job = move || some.into_iter().map(prepare).collect::<Vec<_>>();
            let place = JobPlace::after(prepared.len());
            prepared.append(&mut engine.signing.run(self.caller.account, place, job).await?);
        }
        Some(prepared)
    }

    fn fail(&mut self, places: &[usize], error: &StoreError) {
        for place in places {
            self.outcomes[*place] = Some(Err(OpError::<Refusal>::Failed(error.clone()).into()));
        }
    }

    /// Clears the refusals that another try may change.
    async fn reconsider(&mut self, engine: &Arc<Engine>) {
        for (place, outcome) in self.outcomes.iter_mut().enumerate() {
            let Some(Err(SubmitError::Refused(refusal))) = outcome else { continue };
            if engine.may_retry(self.caller.account, &self.items[place].submission, refusal).await {
                *outcome = None;
            }
        }
    }

    /// Records quota refusals for their alert.
    fn note_quota(&self, engine: &Engine) {
        let exhausted = self.outcomes.iter().find_map(|outcome| match outcome {
            Some(Err(SubmitError::Refused(Refusal::QuotaExhausted(exhausted)))) => Some(exhausted),
            Some(_) | None => None,
        });
        if let Some(exhausted) = exhausted {
            engine.quota_refused(self.caller.account, exhausted);
        }
    }
}

/// Appends the bodies, and commits the messages.
async fn commit(
    engine: &Engine,
    bodies: Vec<SealedBody>,
    accepts: Vec<Accept>,
) -> Result<Vec<Result<Accepted, Refusal>>, StoreError> {
    let mut appended = engine.store.announce_bodies();
    engine.store.append_bodies(&mut appended, bodies).await?;
    let at = |(accept, place): (Accept, _)| accept.at(place);
    let op = move |places: Vec<_>| AcceptEach { messages: accepts.into_iter().zip(places).map(at).collect() };
    match engine.store.commit_appended(appended, op).await {
        Ok(outcomes) => Ok(outcomes),
        Err(OpError::Refused(never)) => match never {},
        Err(OpError::Failed(error)) => Err(error),
    }
}
