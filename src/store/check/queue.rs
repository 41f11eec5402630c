//! Check of the queue. Every unfinished message and every pending delivery has the one timer that continues it, and
//! every such timer belongs to one of them. A message's timeline agrees with its status.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::Deserialize;

use super::{CheckInputs, Report, Rule};
use crate::base::id::{AccountId, DeliveryId, EventId, MessageId, NoticeId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::transfer::Status;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row;
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::notice::NoticeRow;
use crate::store::schema::{self, Table};
use crate::store::timer::{Timer, TimerKind};

/// Checks a row that is queued, or that queued work depends on.
pub(super) fn judge(
    sight: &CheckInputs<'_>,
    table: Table,
    key: &[u8],
    value: &[u8],
    report: &mut Report,
) -> Result<(), StoreError> {
    if table == Table::Transfers {
        transfer(sight, key, &TransferRow::decode(value)?, report)?;
    } else if table == Table::Deliveries {
        delivery(sight, key, &DeliveryRow::decode(value)?, report)?;
    } else if table == Table::Timers {
        timer(sight, key, report)?;
    } else if table == Table::Waiting {
        waiting(sight, key, report)?;
    } else if table == Table::Parked {
        parked(sight, key, report)?;
    } else if table == Table::Notices {
        notice(sight, key, &NoticeRow::decode(value)?, report)?;
    }
    Ok(())
}

fn owned(key: &[u8]) -> (AccountId, Ulid) {
    let part = |range: std::ops::Range<usize>| Ulid(key[range].try_into().unwrap_or_default());
    (AccountId(part(0..16)), part(16..32))
}

fn transfer(sight: &CheckInputs<'_>, key: &[u8], row: &TransferRow, report: &mut Report) -> Result<(), StoreError> {
    let (account, id) = owned(key);
    let (message, status) = (MessageId(id), row.state.status());
    let mut fail = |what: &str| report.fail(Rule::Queue, || format!("message {message}, {}: {what}", status.as_str()));
    let has_timer = match row.due {
        Some(due) => sight.has(Table::Timers, &Timer::new(due, TimerKind::Transfer, account, id).encode())?,
        None => false,
    };
    match row.due {
        Some(_) if !has_timer => fail("its timer is missing, so it would never be retried"),
        None if status.is_waiting() => fail("its status is queued, but it has no due time"),
        Some(_) | None => {}
    }
    if let Some(accepted) = sight.find::<MessageRow>(key)? {
        let listed = sight.has(Table::Waiting, &schema::waiting(account, &accepted.to.match_key(), message))?;
        if listed != row.due.is_some() {
            fail("its queue entry and the list of its recipient address disagree");
        }
    }
    timeline(sight, account, message, status, report)
}

/// Members of an event that a check compares with the other rows.
#[derive(Deserialize)]
struct EventFacts {
    id: String,
    message_id: String,
    #[serde(rename = "type")]
    kind: String,
}

fn timeline(
    sight: &CheckInputs<'_>,
    account: AccountId,
    message: MessageId,
    status: Status,
    report: &mut Report,
) -> Result<(), StoreError> {
    let prefix = schema::message(account, message);
    let (mut first, mut kinds) = (None, BTreeSet::new());
    let mut strange = None;
    sight.snapshot.scan_sound(
        Table::Timeline,
        &prefix,
        &after_prefix(&prefix),
        Order::Ascending,
        &mut |key, bytes| {
            // Unreadable rows are reported with their table.
            let Ok(facts) = serde_json::from_slice::<EventFacts>(bytes) else { return Ok(ControlFlow::Continue(())) };
            let event = EventId(Ulid(key[32..].try_into().unwrap_or_default()));
            if facts.id != event.to_string() || facts.message_id != message.to_string() {
                strange.get_or_insert(event);
            }
            first.get_or_insert_with(|| facts.kind.clone());
            kinds.insert(facts.kind);
            Ok(ControlFlow::Continue(()))
        },
    )?;
    let mut fail = |what: String| report.fail(Rule::Timeline, || format!("message {message}: {what}"));
    if let Some(event) = strange {
        fail(format!("the event {event} is stored under the key of another event"));
    }
    if first.as_deref() != Some(Status::Queued.as_str()) {
        fail("its timeline does not begin with an acceptance event".to_owned());
    }
    if !kinds.contains(status.as_str()) {
        fail(format!("its status is {}, but no event has it", status.as_str()));
    }
    Ok(())
}

fn delivery(sight: &CheckInputs<'_>, key: &[u8], row: &DeliveryRow, report: &mut Report) -> Result<(), StoreError> {
    let (account, id) = owned(key);
    let Some(due) = row.state.due(Timestamp::ZERO) else { return Ok(()) };
    let timer = sight.has(Table::Timers, &Timer::new(due, TimerKind::Delivery, account, id).encode())?;
    let parked = sight.has(Table::Parked, &schema::parked(account, row.endpoint, due, DeliveryId(id)))?;
    if timer == parked {
        let what =
            if timer { "both scheduled and parked" } else { "neither scheduled nor parked, so it would never be sent" };
        report.fail(Rule::Queue, || format!("delivery {}: it is pending and {what}", DeliveryId(id)));
    }
    Ok(())
}

fn notice(sight: &CheckInputs<'_>, key: &[u8], row: &NoticeRow, report: &mut Report) -> Result<(), StoreError> {
    let id = Ulid(key.try_into().unwrap_or_default());
    if !sight.has(Table::Timers, &Timer::new(row.due, TimerKind::Notice, AccountId::default(), id).encode())? {
        report.fail(Rule::Queue, || format!("notice {}: its timer is missing, so it is never sent", NoticeId(id)));
    }
    Ok(())
}

fn timer(sight: &CheckInputs<'_>, key: &[u8], report: &mut Report) -> Result<(), StoreError> {
    let Some(timer) = Timer::decode(key) else { return Ok(()) };
    let serves = match timer.kind {
        TimerKind::Transfer => {
            let row = sight.find::<TransferRow>(&schema::message(timer.account, MessageId(timer.id)))?;
            row.is_some_and(|row| row.due == Some(timer.due))
        }
        TimerKind::Notice => sight.find::<NoticeRow>(&timer.id.0)?.is_some_and(|row| row.due == timer.due),
        TimerKind::Delivery => {
            let row = sight.find::<DeliveryRow>(&schema::delivery(timer.account, DeliveryId(timer.id)))?;
            row.is_some_and(|row| row.state.due(Timestamp::ZERO) == Some(timer.due))
        }
        // The handlers of these timers look up their work and may find none.
        TimerKind::Unpark
        | TimerKind::DomainCheck
        | TimerKind::DkimRotation
        | TimerKind::Idempotency
        | TimerKind::Content
        | TimerKind::EventLog
        | TimerKind::EndpointEnd
        | TimerKind::Deliveries
        | TimerKind::StsPolicy
        | TimerKind::TlsReport
        | TimerKind::TlsReports
        | TimerKind::MessageIndex
        | TimerKind::SuppressionImport
        | TimerKind::ViewEnd
        | TimerKind::AlertAnnouncement
        | TimerKind::AlertReminder
        | TimerKind::AlertExpiry
        | TimerKind::Reputation => true,
    };
    if !serves {
        report.fail(Rule::Queue, || format!("a timer of {:?} for {} has nothing to continue", timer.kind, timer.id));
    }
    Ok(())
}

fn waiting(sight: &CheckInputs<'_>, key: &[u8], report: &mut Report) -> Result<(), StoreError> {
    let id = MessageId(Ulid(key[key.len() - 16..].try_into().unwrap_or_default()));
    let (account, _) = owned(key);
    let row = sight.find::<TransferRow>(&schema::message(account, id))?;
    if row.is_some_and(|row| row.due.is_none()) {
        report.fail(Rule::Queue, || format!("message {id}: it is listed as waiting, but has ended"));
    }
    Ok(())
}

fn parked(sight: &CheckInputs<'_>, key: &[u8], report: &mut Report) -> Result<(), StoreError> {
    let (account, _) = owned(key);
    let Some((due, id)) = schema::parked_parts(key) else { return Ok(()) };
    let row = sight.find::<DeliveryRow>(&schema::delivery(account, id))?;
    if row.is_some_and(|row| row.state.due(Timestamp::ZERO) != Some(due)) {
        report.fail(Rule::Queue, || format!("delivery {id}: its parking time differs from its due time"));
    }
    Ok(())
}
