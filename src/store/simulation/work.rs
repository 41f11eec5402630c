//! The random work of a run: its requests, and the evaluation of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::history::{Known, Submitted};
use super::invariants::Invariant;
use super::process::{AnswerWaker, Waiting};
use super::run::{Run, Ticket};
use crate::base::id::{DeliveryId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::{AttemptFacts, Bounce, BounceKind, BounceSource};
use crate::machine::retention::Bucket;
use crate::store::Store;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Op;
use crate::store::op::accept::Accept;
use crate::store::op::admission::{IdempotencyClaim, Refusal};
use crate::store::op::cancel::CancelMessage;
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, SettleDelivery};
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::op::suppression::{Name, Suppress, Suppression, Unsuppress};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema::Table;
use crate::store::testing::message_row;
use crate::store::timer::{Timer, TimerKind};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Intent {
    Accept(MessageId),
    /// Messages that are accepted together.
    AcceptAll(Vec<MessageId>),
    Transfer(MessageId),
    Delivery(DeliveryId),
    Cancel(MessageId),
    Suppress(String),
    Unsuppress(String),
    Housekeeping,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The key was bound already.
    Replayed,
    Refused,
    /// The key is bound to another body.
    Mismatched,
    /// No space for the body.
    Full,
    /// The store failed.
    Failed,
}

/// Returns all timers.
pub(super) fn timers(store: &Store) -> Vec<Timer> {
    let Ok(snapshot) = store.snapshot() else { return Vec::new() };
    let keys = snapshot.keys(Table::Timers, &[], &after_prefix(&[]), Order::Ascending, usize::MAX);
    keys.unwrap_or_default().iter().filter_map(|key| Timer::decode(key)).collect()
}

/// Returns the timers of transfers and deliveries that are not served by an operation in progress.
pub(super) fn waiting(store: &Store, leased: &BTreeSet<Ulid>) -> Vec<Timer> {
    let is_work = |timer: &Timer| matches!(timer.kind, TimerKind::Transfer | TimerKind::Delivery);
    timers(store).into_iter().filter(|timer| is_work(timer) && !leased.contains(&timer.id)).collect()
}

pub(super) fn outcome<T, R>(answer: Result<T, OpError<R>>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(OpError::Refused(_)) => Outcome::Refused,
        Err(OpError::Failed(_)) => Outcome::Failed,
    }
}

impl Run {
    /// Submits an operation.
    pub(super) fn ask<O: Op>(&mut self, intent: Intent, op: O) {
        let Some(process) = &self.process else { return };
        let store = process.store.clone();
        self.wait(intent, Waiting::new(async move { outcome(store.commit(op).await) }));
    }

    pub(super) fn wait(&mut self, intent: Intent, mut waiting: Waiting<Outcome>) {
        let ear = AnswerWaker::of(&self.disk);
        match waiting.poll_by(&ear.clone().into()) {
            None => self.tickets.push(Ticket { intent, waiting, ear }),
            // The body was the only one, so it was written at once, or failed.
            Some(outcome @ (Outcome::Failed | Outcome::Full)) => self.learn(vec![(intent, outcome)], Known::No),
            Some(outcome) => panic!("{intent:?} was answered before its turn: {outcome:?}"),
        }
    }

    /// Submits a random request.
    pub(super) fn submit(&mut self) {
        match self.rng.below(10) {
            0..5 if self.has_groups && self.rng.coin() => self.accept_all(),
            0..5 => self.accept(),
            5..8 => {
                let Some(process) = &self.process else { return };
                let timers = waiting(&process.store, &self.leased());
                if !timers.is_empty() {
                    let timer = timers[self.rng.index(timers.len())];
                    self.serve(&timer);
                }
            }
            8 => self.suppress_or_lift(),
            _ => self.cancel(),
        }
    }

    /// Returns the messages with an operation in progress, which no other may touch.
    fn leased(&self) -> BTreeSet<Ulid> {
        let ids = self.tickets.iter().flat_map(|ticket| match &ticket.intent {
            Intent::Transfer(id) | Intent::Cancel(id) | Intent::Accept(id) => vec![id.0],
            Intent::AcceptAll(ids) => ids.iter().map(|id| id.0).collect(),
            Intent::Delivery(id) => vec![id.0],
            Intent::Suppress(_) | Intent::Unsuppress(_) | Intent::Housekeeping => Vec::new(),
        });
        ids.collect()
    }

    pub(super) fn address(&mut self) -> String {
        format!("r{}@example.net", self.rng.below(6))
    }

    fn accept(&mut self) {
        let (now, to) = (self.now(), self.address());
        let Some(process) = &self.process else { return };
        let store = process.store.clone();
        let id = store.reserve_message_id(now);
        let greatest = self.history.messages.iter().rfind(|(_, submitted)| submitted.accepted == Known::Yes);
        if greatest.is_some_and(|(greatest, _)| *greatest >= id) {
            self.find(Invariant::GrowingIds, format!("message {id} is not greater than its predecessors"));
        }
        let mut message = message_row(self.setup.domain, &to, now);
        let end = next_hour(now) + Duration::from_secs(3600 * self.rng.below(3));
        message.content_expires_at = end;
        message.metadata = BTreeMap::from([("order".to_owned(), id.to_string())]);
        let body = self.body(id);
        let claim = (self.rng.below(3) == 0).then(|| self.claim());
        let answer = format!("{{\"id\":\"{id}\"}}").into_bytes();
        let sealed = store.content().seal(Bucket { end }.end, id, body.clone());
        let (account, row, idempotency) = (self.setup.account, message.clone(), claim);
        let to_suppressed = !self.is_suppressing() && self.history.suppressed.get(&to) == Some(&Known::Yes);
        let answer_bytes = answer.clone();
        let submitted =
            Submitted { account, row, body, claim, answer: answer_bytes, to_suppressed, accepted: Known::No };
        self.history.submit(id, submitted);
        let answered = async move {
            let accept = move |place| {
                message.place = place;
                Accept { account, key_stream: None, id, message, answer, idempotency, stored_bytes_max: 0 }
            };
            match store.commit_with_body(store.announce(), sealed, accept).await {
                Ok(accepted) if accepted.is_replay => Outcome::Replayed,
                Err(OpError::Refused(Refusal::IdempotencyMismatch)) => Outcome::Mismatched,
                Err(OpError::Failed(StoreError::Full)) => Outcome::Full,
                other => outcome(other),
            }
        };
        self.wait(Intent::Accept(id), Waiting::new(answered));
    }

    /// Returns one of few keys with one of two bodies, so that some collide.
    fn claim(&mut self) -> IdempotencyClaim {
        let (key, body) = (self.rng.below(8), self.rng.below(2));
        IdempotencyClaim { key_hash: [u8::try_from(key).unwrap(); 32], body_hash: [u8::try_from(body).unwrap(); 32] }
    }

    /// Returns a body of some sectors or a few bytes. Half of them do not compress.
    pub(super) fn body(&mut self, id: MessageId) -> Vec<u8> {
        let mut body = format!("Message-ID: <{id}@example.com>\r\n\r\n").into_bytes();
        let words = [2, 60, 400][self.rng.index(3)];
        let is_noise = self.rng.coin();
        for _ in 0..self.rng.below(words) {
            let word = if is_noise { self.rng.next() } else { self.rng.below(4) };
            body.extend_from_slice(&word.to_le_bytes());
        }
        body
    }

    /// Serves a timer with a random outcome.
    pub(super) fn serve(&mut self, timer: &Timer) {
        let now = self.now();
        if timer.kind == TimerKind::Delivery {
            let error = (self.rng.below(4) == 0).then(|| "timeout".to_owned());
            let (status, duration_ms) = (error.is_none().then_some(200), 5);
            let attempt =
                Attempt { at: now, ended_at: now, status, error, duration_ms, peer: None, response_body: None };
            let (delivery, due) = (DeliveryId(timer.id), timer.due);
            let end = DeliveryEnd::Attempted(attempt);
            return self.ask(Intent::Delivery(delivery), SettleDelivery { account: timer.account, delivery, due, end });
        }
        let message = MessageId(timer.id);
        let end = match self.rng.below(8) {
            0 => TransferEnd::Deferred { bounce: None, not_before: None },
            1 => TransferEnd::Bounced(bounce(self.rng.coin())),
            2 => TransferEnd::GaveUp(bounce(false)),
            3 => TransferEnd::Postponed { until: now + Duration::from_secs(30) },
            _ => TransferEnd::Delivered,
        };
        if let (TransferEnd::Bounced(_), Some(submitted)) = (&end, self.history.messages.get(&message)) {
            self.history.touched.insert(submitted.row.to.match_key());
        }
        let settle = SettleTransfer {
            account: timer.account,
            message,
            due: timer.due,
            end,
            facts: AttemptFacts::default(),
            provider: None,
            random: [0; 4],
            transcript: Some("250 ok".to_owned()),
            others: Vec::new(),
        };
        self.ask(Intent::Transfer(message), settle);
    }

    fn suppress_or_lift(&mut self) {
        let address = self.address();
        if self.is_suppressing() {
            return;
        }
        let (account, parsed) = (self.setup.account, address.parse().unwrap());
        self.history.touched.insert(address.clone());
        if self.history.suppressed.get(&address) == Some(&Known::Yes) {
            self.ask(Intent::Unsuppress(address), Unsuppress { account, name: Name::Address(parsed) });
        } else {
            let suppression = Suppression::of(parsed, SuppressionReason::Manual);
            self.ask(Intent::Suppress(address), Suppress { account, suppression, waiting: Vec::new() });
        }
    }

    pub(super) fn is_suppressing(&self) -> bool {
        self.tickets.iter().any(|ticket| matches!(&ticket.intent, Intent::Suppress(_) | Intent::Unsuppress(_)))
    }

    fn cancel(&mut self) {
        let leased = self.leased();
        let known: Vec<_> = self.history.messages.keys().filter(|id| !leased.contains(&id.0)).copied().collect();
        if !known.is_empty() {
            let message = known[self.rng.index(known.len())];
            self.ask(Intent::Cancel(message), CancelMessage { account: self.setup.account, message });
        }
    }

    /// Records an answer. Returns whether it proves a commit.
    pub(super) fn answered(&mut self, intent: &Intent, outcome: Outcome) -> bool {
        match (intent, outcome) {
            (Intent::Accept(id), Outcome::Done) => {
                self.accepted(*id);
                true
            }
            (Intent::AcceptAll(ids), Outcome::Done) => {
                ids.iter().for_each(|id| self.accepted(*id));
                true
            }
            (Intent::Accept(id), Outcome::Replayed | Outcome::Mismatched) => {
                let claim = self.history.messages.get(id).and_then(|submitted| submitted.claim);
                if claim.is_none_or(|claim| self.history.bound(&claim.key_hash).is_none()) {
                    self.find(
                        Invariant::Idempotency,
                        format!("message {id}: its key is reported as bound, but is not"),
                    );
                }
                false
            }
            (Intent::Suppress(address), Outcome::Done) => {
                self.history.suppressed.insert(address.clone(), Known::Yes);
                true
            }
            (Intent::Unsuppress(address), Outcome::Done) => {
                self.history.suppressed.insert(address.clone(), Known::No);
                true
            }
            (_, Outcome::Done) => true,
            (_, Outcome::Refused | Outcome::Full | Outcome::Replayed | Outcome::Mismatched | Outcome::Failed) => false,
        }
    }

    fn accepted(&mut self, id: MessageId) {
        let Some(submitted) = self.history.messages.get_mut(&id) else { return };
        submitted.accepted = Known::Yes;
        let (to, to_suppressed) = (submitted.row.to.match_key(), submitted.to_suppressed);
        if to_suppressed && !self.is_lifting && self.history.suppressed.get(&to) == Some(&Known::Yes) {
            self.find(Invariant::Suppression, format!("message {id} was accepted for a suppressed address"));
        }
    }

    /// Records that an operation failed, and whether it may have been committed anyway.
    pub(super) fn failed(&mut self, intent: &Intent, known: Known) {
        match intent {
            Intent::Accept(id) => {
                if let Some(submitted) = self.history.messages.get_mut(id) {
                    submitted.accepted = known;
                }
            }
            Intent::AcceptAll(ids) => ids.iter().for_each(|id| self.failed(&Intent::Accept(*id), known)),
            Intent::Suppress(address) | Intent::Unsuppress(address) if known == Known::InDoubt => {
                self.history.suppressed.insert(address.clone(), Known::InDoubt);
            }
            Intent::Suppress(_)
            | Intent::Unsuppress(_)
            | Intent::Transfer(_)
            | Intent::Delivery(_)
            | Intent::Cancel(_)
            | Intent::Housekeeping => {}
        }
    }
}

pub(super) fn next_hour(now: Timestamp) -> Timestamp {
    const HOUR_MS: u64 = 3_600_000;
    Timestamp::from_millis((now.as_millis() / HOUR_MS + 1) * HOUR_MS)
}

fn bounce(suppressed: bool) -> Bounce {
    Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".to_owned(),
        status: None,
        source: BounceSource::Smtp,
        rule: "none".to_owned(),
        advice: "Send no more.".to_owned(),
        suppressed,
    }
}
