//! The invariants of a store after any disk fault: one function over the acknowledged history and the store's current
//! state. It changes nothing and is independent of the disk.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, Known, Submitted, rows};
use crate::base::id::{AccountId, EndpointId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::idempotency::LIFETIME;
use crate::machine::quota::Quota;
use crate::store::Store;
use crate::store::check::{Rule, check_open};
use crate::store::content::Unreadable;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::EventLogRow;
use crate::store::row::idempotency::IdempotencyRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table, meta};
use crate::store::snapshot::Snapshot;

/// A violated invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    /// Every acknowledged message exists, unchanged, with its body.
    DurableAccept,
    /// Everything that exists was acknowledged, or was being committed when power was cut.
    NoGhost,
    /// Commits are atomic, and each one implies all earlier ones.
    WholeCommits,
    /// A message has at most one end, which never changes.
    OneEnd,
    /// Every event has exactly one delivery for each endpoint that subscribes to it.
    OwedEvents,
    /// A key is bound if and only if its message exists, to its answer, and to one message.
    Idempotency,
    /// Quotas count exactly the existing messages.
    Quota,
    /// No mail goes to suppressed addresses; an acknowledged suppression persists.
    Suppression,
    /// Destroyed content stays destroyed.
    GoneContent,
    /// Identifiers only grow, in commit order.
    GrowingIds,
    /// A failed sync ends its process.
    FailedSync,
    /// Damage by the disk is found by a check, and never served.
    FoundDamage,
    /// Once faults stop, all work completes.
    Liveness,
    /// The store opens after every end of its process.
    Opens,
    /// The rules of `postrider check`.
    Check,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) invariant: Invariant,
    pub(super) what: String,
}

struct Judge<'a> {
    history: &'a History,
    store: &'a Store,
    snapshot: Snapshot,
    findings: Vec<Finding>,
    /// Number of bodies that the disk damaged.
    damaged: usize,
}

/// Judges a store by its history.
pub(super) fn judge(history: &History, store: &Store, now: Timestamp) -> Vec<Finding> {
    let mut judge = Judge { history, store, snapshot: store.snapshot().unwrap(), findings: Vec::new(), damaged: 0 };
    judge.messages();
    judge.commits();
    judge.groups();
    judge.ends();
    judge.owed_events();
    judge.bound_keys();
    judge.quotas();
    judge.suppressions();
    judge.ids();
    let report = check_open(store, now);
    let (of_bodies, others): (Vec<_>, Vec<_>) =
        report.failures.into_iter().partition(|failure| judge.damaged > 0 && failure.rule == Rule::Content);
    if of_bodies.len() != judge.damaged {
        let what = format!("{} bodies are damaged, but the check finds {of_bodies:?}", judge.damaged);
        judge.find(Invariant::FoundDamage, what);
    }
    for failure in others {
        judge.find(Invariant::Check, format!("{:?}: {}", failure.rule, failure.what));
    }
    judge.findings
}

impl Judge<'_> {
    fn find(&mut self, invariant: Invariant, what: String) {
        self.findings.push(Finding { invariant, what });
    }

    fn messages(&mut self) {
        for (id, submitted) in &self.history.messages {
            let row: Option<MessageRow> = self.snapshot.row(&schema::message(submitted.account, *id)).unwrap();
            match (submitted.accepted, row) {
                (Known::Yes, None) => self.find(Invariant::DurableAccept, format!("message {id} is missing")),
                (Known::No, Some(_)) => self.find(Invariant::NoGhost, format!("message {id} was never committed")),
                (Known::Yes | Known::InDoubt, Some(row)) => self.message(*id, submitted, &row),
                (Known::No | Known::InDoubt, None) => {}
            }
        }
        let found = self.snapshot.keys(Table::Messages, &[], &after_prefix(&[]), Order::Ascending, usize::MAX);
        for key in found.unwrap() {
            let id = MessageId(Ulid(*key.last_chunk().unwrap()));
            if !self.history.messages.contains_key(&id) {
                self.find(Invariant::NoGhost, format!("message {id} was never submitted"));
            }
        }
    }

    fn message(&mut self, id: MessageId, submitted: &Submitted, row: &MessageRow) {
        if !submitted.is(row) {
            self.find(Invariant::DurableAccept, format!("message {id} differs from its submission"));
        }
        let destroyed = self.history.destroyed.get(&row.place.bucket).copied().unwrap_or(Known::No);
        match (self.store.content().read(row.place, id), destroyed) {
            (Ok(_), Known::Yes) => self.find(Invariant::GoneContent, format!("message {id} still has its body")),
            (Ok(body), Known::No | Known::InDoubt) if body != submitted.body => {
                self.find(Invariant::DurableAccept, format!("message {id} has a different body"));
            }
            (Ok(_), Known::No | Known::InDoubt) | (Err(Unreadable::Gone), Known::Yes | Known::InDoubt) => {}
            (Err(Unreadable::Failed(_)), Known::No | Known::InDoubt) if self.history.is_damaged => self.damaged += 1,
            (Err(error), Known::No | Known::Yes | Known::InDoubt) => {
                self.find(Invariant::DurableAccept, format!("message {id} has no body: {error}"));
            }
        }
    }

    fn commits(&mut self) {
        let rows = rows(&self.snapshot);
        let changed: Vec<_> =
            rows.iter().filter(|(table, seen)| self.history.rows.get(*table) != Some(*seen)).collect();
        if !changed.is_empty() && !self.history.is_in_doubt {
            let tables: Vec<_> = changed.iter().map(|(table, _)| **table).collect();
            self.find(
                Invariant::WholeCommits,
                format!("no commit was in progress, but these tables differ: {tables:?}"),
            );
        }
        if changed.is_empty() && self.history.is_promised {
            self.find(Invariant::WholeCommits, "an answered operation has no effect".to_owned());
        }
        let is_in_doubt = |(id, submitted): &(&MessageId, &Submitted)| {
            submitted.accepted == Known::InDoubt && !self.history.could_be_refused(**id, submitted)
        };
        let in_doubt = self.history.messages.iter().filter(is_in_doubt);
        let key = |(id, submitted): (&MessageId, &Submitted)| schema::message(submitted.account, *id);
        let there: Vec<_> =
            in_doubt.map(|one| self.snapshot.get(Table::Messages, &key(one)).unwrap().is_some()).collect();
        let is_whole = there.iter().all(|is_there| *is_there != changed.is_empty());
        if !is_whole {
            self.find(
                Invariant::WholeCommits,
                format!("only some messages of a commit exist: {there:?}; {} tables changed", changed.len()),
            );
        }
    }

    /// Checks that messages submitted together exist all or not at all.
    fn groups(&mut self) {
        for group in &self.history.groups {
            let key = |id: &MessageId| schema::message(self.history.account, *id);
            let is_there = |id: &&MessageId| self.snapshot.get(Table::Messages, &key(id)).unwrap().is_some();
            let there = group.iter().filter(is_there).count();
            if there != 0 && there != group.len() {
                self.find(Invariant::WholeCommits, format!("only {there} of the messages {group:?} exist"));
            }
        }
    }

    fn log(&self) -> Vec<(AccountId, EventId, EventLogRow)> {
        let rows = self.snapshot.rows::<EventLogRow>(&[], usize::MAX).unwrap();
        let parts =
            |key: &[u8]| (AccountId(Ulid(*key.first_chunk().unwrap())), EventId(Ulid(*key.last_chunk().unwrap())));
        rows.into_iter().map(|(key, row)| (parts(&key).0, parts(&key).1, row)).collect()
    }

    fn ends(&mut self) {
        let mut ends: BTreeMap<MessageId, Vec<EventType>> = BTreeMap::new();
        for (_, _, row) in self.log() {
            if is_end(row.kind) {
                ends.entry(row.message).or_default().push(row.kind);
            }
        }
        for (id, submitted) in &self.history.messages {
            let row: Option<TransferRow> = self.snapshot.row(&schema::message(submitted.account, *id)).unwrap();
            let (reported, before) = (ends.get(id).map_or(0, Vec::len), self.history.ended.get(id));
            let status = row.as_ref().map(|row| row.state.status());
            if row.is_some_and(|row| reported != usize::from(row.due.is_none())) || reported > 1 {
                self.find(Invariant::OneEnd, format!("message {id} has {reported} ends: {:?}", ends.get(id)));
            }
            if before.is_some() && before != status.as_ref() {
                self.find(Invariant::OneEnd, format!("message {id} had ended as {before:?} and is now {status:?}"));
            }
        }
    }

    fn owed_events(&mut self) {
        let mut owed: BTreeMap<(EndpointId, EventId), usize> = BTreeMap::new();
        for (_, row) in self.snapshot.rows::<DeliveryRow>(&[], usize::MAX).unwrap() {
            *owed.entry((row.endpoint, row.event)).or_default() += 1;
        }
        let endpoints = self.snapshot.rows::<EndpointRow>(&[], usize::MAX).unwrap();
        for (account, event, row) in self.log() {
            for (key, endpoint) in &endpoints {
                let id = EndpointId(Ulid(*key.last_chunk().unwrap()));
                let expected = usize::from(key.starts_with(account.as_bytes()) && endpoint.takes(row.kind));
                let found = owed.get(&(id, event)).copied().unwrap_or_default();
                if found != expected {
                    self.find(Invariant::OwedEvents, format!("event {event} is owed {found} times to endpoint {id}"));
                }
            }
        }
    }

    fn bound_keys(&mut self) {
        let mut of_keys: BTreeMap<[u8; 32], Vec<&Submitted>> = BTreeMap::new();
        for (id, submitted) in &self.history.messages {
            let Some(claim) = submitted.claim else { continue };
            let of_key = of_keys.entry(claim.key_hash).or_default();
            if self.snapshot.get(Table::Messages, &schema::message(submitted.account, *id)).unwrap().is_some() {
                of_key.push(submitted);
            }
        }
        for (key_hash, of_key) in of_keys {
            let row: Option<IdempotencyRow> =
                self.snapshot.row(&schema::named(self.history.account, &key_hash)).unwrap();
            let answers = (row.map(|row| row.answer), of_key.last().map(|submitted| submitted.answer.clone()));
            if answers.0 != answers.1 {
                self.find(
                    Invariant::Idempotency,
                    format!("a key is bound to {:?}, but its message is {:?}", answers.0, answers.1),
                );
            }
            let is_soon = |pair: &[&Submitted]| pair[1].row.created_at < pair[0].row.created_at + LIFETIME;
            if !self.history.clock_went_back && of_key.windows(2).any(is_soon) {
                self.find(Invariant::Idempotency, format!("{} messages have the same key", of_key.len()));
            }
        }
    }

    fn quotas(&mut self) {
        if self.history.clock_went_back {
            return;
        }
        for (key, quota) in self.snapshot.rows::<Quota>(&[], usize::MAX).unwrap() {
            let messages = self.snapshot.rows::<MessageRow>(&key, usize::MAX).unwrap();
            let counted = |width_ms: u64, window: u64| {
                messages.iter().filter(|(_, row)| row.created_at.as_millis() / width_ms == window).count() as u64
            };
            let found = (counted(3_600_000, quota.hour_window), counted(86_400_000, quota.day_window));
            if found != (quota.hour_used, quota.day_used) {
                self.find(Invariant::Quota, format!("{quota:?}, but {found:?} exist"));
            }
        }
    }

    fn suppressions(&mut self) {
        for (address, known) in &self.history.suppressed {
            let key = schema::named(self.history.account, address.as_bytes());
            let there = self.snapshot.get(Table::Suppressions, &key).unwrap().is_some();
            // A bounce may have suppressed a removed address again.
            if *known == Known::Yes && !there {
                self.find(Invariant::Suppression, format!("{address} is no longer suppressed"));
            }
        }
    }

    fn ids(&mut self) {
        let found: BTreeSet<EventId> = self.log().into_iter().map(|(_, event, _)| event).collect();
        for gone in self.history.events.difference(&found) {
            self.find(Invariant::GrowingIds, format!("event {gone} is missing"));
        }
        for new in found.difference(&self.history.events).filter(|event| event.0 <= self.history.last_id) {
            self.find(Invariant::GrowingIds, format!("event {new} is new but not greater than its predecessors"));
        }
        let last = self.snapshot.get(Table::Meta, meta::LAST_ID).unwrap().unwrap_or_default();
        let greatest = found.last().map_or(self.history.last_id, |event| event.0.max(self.history.last_id));
        if last.as_slice() < greatest.0.as_slice() {
            self.find(
                Invariant::GrowingIds,
                format!("identifiers up to {greatest} were assigned, but the store does not know it"),
            );
        }
    }
}

/// Returns whether an event ends a transfer.
const fn is_end(kind: EventType) -> bool {
    match kind {
        EventType::Delivered | EventType::Bounced | EventType::Failed | EventType::Suppressed | EventType::Canceled => {
            true
        }
        EventType::Queued | EventType::Deferred | EventType::Complained | EventType::Unsubscribed => false,
    }
}
