//! The invariants, checked after every start and at the end. Each finding begins with the name of its invariant.
//! `docs/internals/simulation.md` lists them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plan::{Action, FaultClass};
use super::replica::fence;
use super::world::{Bounce, End, Progress, Taken, Tenant, World};
use crate::base::id::MessageId;
use crate::engine::Engine;
use crate::engine::deliveries::DeliveryRecord;
use crate::engine::listing::PageRequest;
use crate::engine::messages::{MessageFilter, MessageRecord};
use crate::machine::delivery;
use crate::machine::transfer::Status;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// Page size greater than the number of rows in any run.
const ALL: usize = 100_000;

/// Returns the messages of a tenant.
fn messages(world: &World, engine: &Engine, tenant: &Tenant) -> Vec<MessageRecord> {
    match engine.messages_from(tenant.account, &MessageFilter::default(), MessageId::default(), ALL) {
        Ok(page) => page.rows,
        Err(error) => {
            world.find(format!("durable accept: messages can't be read: {error}"));
            Vec::new()
        }
    }
}

fn deliveries(world: &World, engine: &Engine, tenant: &Tenant) -> Vec<DeliveryRecord> {
    let page = PageRequest { before: None, limit: ALL };
    match engine.deliveries(tenant.account, tenant.endpoint, None, page) {
        Ok(page) => page.map(|page| page.rows).unwrap_or_default(),
        Err(error) => {
            world.find(format!("events: deliveries can't be read: {error}"));
            Vec::new()
        }
    }
}

/// Judges the state after a start.
pub(super) fn after_start(world: &World, engine: &Engine) {
    if engine.store.health().failure().is_some() {
        return;
    }
    durable_accept(world, engine);
    no_ghosts(world, engine);
    quota(world, engine);
}

/// Judges a store that was restored from the bucket of a synchronous service: it has everything that a client, a mail
/// server or a receiver has seen.
pub(super) fn nothing_lost(world: &World, engine: &Engine) {
    durable_accept(world, engine);
    let tenants = world.tenants();
    nothing_unrecorded(world, engine, &tenants);
    for (number, tenant) in tenants.iter().enumerate() {
        seen_events(world, number, &events(world, engine, tenant));
        for record in messages(world, engine, tenant) {
            bounces(world, &record, &kinds(&engine.timeline(tenant.account, record.id).unwrap_or_default()));
        }
    }
    canceled(world, engine);
}

/// A message that its tenant knows as canceled is canceled.
fn canceled(world: &World, engine: &Engine) {
    let tenants = world.tenants();
    for submission in &world.submissions() {
        for id in submission.canceled.keys() {
            let record = engine.message(tenants[submission.tenant].account, *id).ok().flatten();
            let status = record.map(|record| record.transfer.state.status());
            if status != Some(Status::Canceled) {
                world.find(format!("cancellation: {id} was canceled, and is {status:?}"));
            }
        }
    }
}

/// Returns the first item that has not ended yet.
pub(super) fn unsettled(world: &World, engine: &Engine) -> Option<String> {
    let tenants = world.tenants();
    for tenant in &tenants {
        let waiting = |record: &MessageRecord| record.transfer.state.status().is_waiting();
        if let Some(record) = messages(world, engine, tenant).into_iter().find(waiting) {
            return Some(format!("message {} is {}", record.id, record.transfer.state.status()));
        }
        let is_open =
            |record: &DeliveryRecord| matches!(record.status(), delivery::Status::Pending | delivery::Status::Held);
        if let Some(record) = deliveries(world, engine, tenant).into_iter().find(is_open) {
            return Some(format!("delivery {} is {}", record.id, record.status()));
        }
    }
    None
}

/// Judges a run whose faults have ended.
pub(super) fn at_the_end(world: &World, engine: &Engine) {
    durable_accept(world, engine);
    no_ghosts(world, engine);
    quota(world, engine);
    let tenants = world.tenants();
    for (number, tenant) in tenants.iter().enumerate() {
        let messages = messages(world, engine, tenant);
        for record in &messages {
            timeline(world, engine, tenant, record);
            hand_off(world, record);
        }
        webhooks(world, engine, number, tenant);
    }
    nothing_unrecorded(world, engine, &tenants);
    suppression(world);
    cancellation(world);
}

/// Every message acknowledged to a client exists, as it was submitted.
fn durable_accept(world: &World, engine: &Engine) {
    let (tenants, submissions) = (world.tenants(), world.submissions());
    for submission in &submissions {
        let Progress::Accepted(ids) = &submission.progress else { continue };
        if ids.len() != submission.recipients.len() {
            world.find(format!("durable accept: {} has {} messages", submission.subject, ids.len()));
        }
        for (id, recipient) in ids.iter().zip(&submission.recipients) {
            match engine.message(tenants[submission.tenant].account, *id) {
                Ok(Some(record)) => {
                    let is_same = record.row.to.as_given() == recipient.as_str()
                        && record.row.subject.as_deref() == Some(submission.subject.as_str());
                    if !is_same {
                        world.find(format!("durable accept: {id} is not the message {}", submission.subject));
                    }
                }
                Ok(None) => world.find(format!("durable accept: {id} of {} is lost", submission.subject)),
                Err(error) => world.find(format!("durable accept: {id} can't be read: {error}")),
            }
        }
    }
}

/// Every message was submitted, and exists no more often than its client tried; with a key, once.
fn no_ghosts(world: &World, engine: &Engine) {
    let (tenants, submissions) = (world.tenants(), world.submissions());
    let mut counts: BTreeMap<(usize, String, String), usize> = BTreeMap::new();
    for (number, tenant) in tenants.iter().enumerate() {
        for record in messages(world, engine, tenant) {
            let subject = record.row.subject.clone().unwrap_or_default();
            *counts.entry((number, subject, record.row.to.as_given().to_owned())).or_default() += 1;
        }
    }
    for ((tenant, subject, recipient), count) in counts {
        let submitted = submissions.iter().find(|submission| {
            submission.tenant == tenant && submission.subject == subject && submission.recipients.contains(&recipient)
        });
        let most = submitted.map_or(0, |submission| match submission.idempotency_key {
            Some(_) if !keys_may_expire(world) => submission.tries.min(1),
            Some(_) | None => submission.tries,
        });
        if count > most {
            world.find(format!(
                "idempotency: {subject} for {recipient} exists {count} times, and at most {most} are allowed"
            ));
        }
        if submitted
            .is_some_and(|submission| matches!(submission.progress, Progress::Refused(_)) && submission.tries == 1)
        {
            world.find(format!("no ghost: {subject} was refused, but exists"));
        }
    }
}

/// The quota's use of the current day is the number of messages accepted in it. A clock that is set moves messages to
/// other days.
fn quota(world: &World, engine: &Engine) {
    if world.plan.faults.contains(&FaultClass::Clock) {
        return;
    }
    for tenant in &world.tenants() {
        let view = engine.account(tenant.account).ok().flatten().and_then(|account| engine.quota(&account).ok());
        let Some(view) = view else {
            world.find(format!("quota: that of {} can't be read", tenant.account));
            continue;
        };
        let is_of_today = |record: &MessageRecord| record.row.created_at.as_secs() + DAY >= view.day.reset;
        let count = messages(world, engine, tenant).into_iter().filter(is_of_today).count() as u64;
        if view.day.used != count {
            world.find(format!("quota: {} of {} messages of the day are counted", view.day.used, count));
        }
    }
}

/// Returns whether the clock is set forward by more than the lifetime of a key.
fn keys_may_expire(world: &World) -> bool {
    let by = |action: &Action| if let Action::SetClock(by) = action { (*by).max(0) } else { 0 };
    world.plan.actions.iter().map(|(_, action)| by(action)).sum::<i64>() >= 24 * 3_600_000
}

/// A message has one event of its acceptance and one end.
fn timeline(world: &World, engine: &Engine, tenant: &Tenant, record: &MessageRecord) {
    let events = match engine.timeline(tenant.account, record.id) {
        Ok(events) => events,
        Err(error) => return world.find(format!("one ending: the timeline of {} can't be read: {error}", record.id)),
    };
    let kinds = kinds(&events);
    let ends = ["delivered", "bounced", "failed", "suppressed", "canceled"];
    let endings: Vec<&String> = kinds.iter().filter(|kind| ends.contains(&kind.as_str())).collect();
    let status = record.transfer.state.status();
    let bounces = bounces(world, record, &kinds);
    // A bounce is the last event. It follows a delivery, or the end of a message whose delivery was not recorded.
    let is_first = |kind: &String| kind == "delivered" || kind == "failed";
    let endings = match &endings[..] {
        [first, last] if !bounces.is_empty() && is_first(first) && *last == "bounced" => &endings[1..],
        all => all,
    };
    if endings.len() != 1 || endings[0] != status.as_str() || kinds.iter().filter(|kind| *kind == "queued").count() != 1
    {
        world.find(format!("one ending: {} is {status}, with the events {kinds:?}", record.id));
    }
}

/// Returns the types of events.
fn kinds(events: &[Vec<u8>]) -> Vec<String> {
    let kind = |event: &Vec<u8>| serde_json::from_slice::<Value>(event).ok()?["type"].as_str().map(str::to_owned);
    events.iter().filter_map(kind).collect()
}

/// An accepted bounce has its event. Returns the bounces of the message.
fn bounces(world: &World, record: &MessageRecord, kinds: &[String]) -> Vec<Bounce> {
    let message_id = record.row.message_id_header(record.id);
    let bounces: Vec<Bounce> =
        world.state().bounces.iter().filter(|bounce| bounce.message_id == message_id).cloned().collect();
    if bounces.iter().any(|bounce| bounce.answer == Some(250)) && !kinds.iter().any(|kind| kind == "bounced") {
        world.find(format!("bounces: a bounce of {} was accepted, and its events are {kinds:?}", record.id));
    }
    bounces
}

/// A server receives a message a second time only in three cases. It did not answer the first time, or the process
/// ended before the answer was recorded, or the log of its successor lacked the record. Without the bucket two may send
/// it.
fn hand_off(world: &World, record: &MessageRecord) {
    let message_id = record.row.message_id_header(record.id);
    let state = world.state();
    let taken: Vec<_> = state.taken.iter().filter(|taken| taken.message_id == message_id).cloned().collect();
    let lives = state.lives.clone();
    drop(state);
    for pair in taken.windows(2) {
        let ended = lives.get(usize::try_from(pair[0].life).unwrap());
        let is_recorded = match ended {
            Some(End::Lost | End::Deposed) => !fence::may_lack(world, pair[0].life, pair[0].at),
            ended => matches!(ended, Some(End::Stopped)),
        };
        let is_after_end = pair[0].life < pair[1].life && !is_recorded;
        let is_of_both = pair[1].life < pair[0].life && fence::may_continue(world, pair[1].life);
        if pair[0].is_answered && !is_after_end && !is_of_both {
            world.find(format!("hand-off: {} was accepted again after its 250", record.id));
        }
    }
    let status = record.transfer.state.status();
    if status == Status::Delivered && !taken.iter().any(|taken| taken.is_answered) {
        world.find(format!("hand-off: {} is delivered, but no server accepted it", record.id));
    }
    let is_certain = |taken: &&Taken| {
        taken.is_answered
            && matches!(lives.get(usize::try_from(taken.life).unwrap()), Some(End::Stopped) | None)
            && !fence::may_lack(world, taken.life, taken.at)
    };
    let is_bounced = has_bounce(world, &message_id);
    if status != Status::Delivered && !is_bounced && taken.iter().any(|taken| is_certain(&taken)) {
        world.find(format!("hand-off: a server accepted {}, but it is {status}", record.id));
    }
}

/// Returns whether a server sent a bounce for this message.
fn has_bounce(world: &World, message_id: &str) -> bool {
    world.state().bounces.iter().any(|bounce| bounce.message_id == message_id)
}

/// Returns the events of a tenant by their identifiers.
fn events(world: &World, engine: &Engine, tenant: &Tenant) -> BTreeMap<String, Vec<u8>> {
    let mut events = BTreeMap::new();
    for record in messages(world, engine, tenant) {
        for event in engine.timeline(tenant.account, record.id).unwrap_or_default() {
            let id = serde_json::from_slice::<Value>(&event).unwrap()["id"].as_str().unwrap_or_default().to_owned();
            events.insert(id, event);
        }
    }
    events
}

/// No receiver sees an unknown event or different bytes. Returns the events that receivers acknowledged.
fn seen_events(world: &World, number: usize, events: &BTreeMap<String, Vec<u8>>) -> BTreeSet<String> {
    let posted: Vec<_> = world.state().posted.iter().filter(|posted| posted.tenant == number).cloned().collect();
    let mut acknowledged = BTreeSet::new();
    for posted in posted {
        match events.get(&posted.event) {
            None if fence::may_lose(world, posted.life, posted.at) => {}
            None => world.find(format!("events: a receiver saw {}, which does not exist", posted.event)),
            Some(bytes) if *bytes != posted.body => {
                world.find(format!("events: a receiver saw different bytes of {}", posted.event));
            }
            Some(_) => {}
        }
        if posted.is_acknowledged {
            acknowledged.insert(posted.event);
        }
    }
    acknowledged
}

/// Every event reaches the endpoint, or its delivery failed after seven attempts.
fn webhooks(world: &World, engine: &Engine, number: usize, tenant: &Tenant) {
    let events = events(world, engine, tenant);
    let acknowledged = seen_events(world, number, &events);
    let mut owed = BTreeSet::new();
    for record in deliveries(world, engine, tenant) {
        let event = record.row.event.to_string();
        let is_acknowledged = acknowledged.contains(&event);
        match record.status() {
            delivery::Status::Delivered if !is_acknowledged => {
                world.find(format!("events: {event} counts as delivered, but no receiver acknowledged it"));
            }
            delivery::Status::Failed if record.row.state.attempts < delivery::ATTEMPTS_MAX => {
                world.find(format!("events: {event} failed after {} attempts", record.row.state.attempts));
            }
            _ => {}
        }
        owed.insert(event);
    }
    for event in events.keys().filter(|event| !owed.contains(*event)) {
        world.find(format!("events: {event} has no delivery"));
    }
}

/// Every message that a server received exists.
fn nothing_unrecorded(world: &World, engine: &Engine, tenants: &[Tenant]) {
    let known: BTreeSet<String> = tenants
        .iter()
        .flat_map(|tenant| messages(world, engine, tenant))
        .map(|record| record.row.message_id_header(record.id))
        .collect();
    let taken = world.state().taken.clone();
    let is_unknown = |taken: &&Taken| !known.contains(&taken.message_id);
    for taken in taken.iter().filter(is_unknown).filter(|taken| !fence::may_lose(world, taken.life, taken.at)) {
        world.find(format!("nothing unrecorded: {} of {} does not exist", taken.message_id, taken.subject));
    }
}

/// No message to an address is started after its tenant knows that it is suppressed.
fn suppression(world: &World) {
    let state = world.state();
    let late: Vec<String> = state
        .offered
        .iter()
        .filter(|offered| state.suppressed.get(&offered.recipient).is_some_and(|at| offered.mail_at > *at))
        .map(|offered| format!("suppression: {} was mailed after it was suppressed", offered.recipient))
        .collect();
    drop(state);
    late.into_iter().for_each(|finding| world.find(finding));
}

/// No message is started after its tenant knows that it is canceled.
fn cancellation(world: &World) {
    let submissions = world.submissions();
    let taken = world.state().taken.clone();
    for submission in &submissions {
        for (message, at) in &submission.canceled {
            let prefix = format!("<{message}@");
            let is_it = |message_id: &str| message_id.starts_with(&prefix);
            if taken.iter().any(|taken| is_it(&taken.message_id) && taken.mail_at > *at) {
                world.find(format!("cancellation: {message} was sent after it was canceled"));
            }
        }
    }
}
