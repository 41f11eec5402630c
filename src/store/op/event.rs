//! Appending an event. Its identifier and bytes are created here, once, in the writer. Every endpoint subscribed to its
//! type gets a delivery in the same transaction.

use super::{message_index, outcomes, outstanding};
use crate::base::id::{AccountId, DeliveryId, EndpointId, EventId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::{AttemptFacts, Bounce, Complaint, EventRecord, EventType};
use crate::machine::delivery;
use crate::store::error::StoreError;
use crate::store::meters::CountedEvent;
use crate::store::read::Read;
use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
use crate::store::row::endpoint::EndpointRow;
use crate::store::row::event::{EventLogRow, EventOfTypeRow};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of endpoints of an account (contract 5).
pub const ENDPOINTS_MAX: usize = 10;

/// Details of an event beside its type.
#[derive(Default)]
pub struct EventDetails<'a> {
    /// Facts of the attempt.
    pub facts: AttemptFacts,
    /// Due time of the next attempt.
    pub next_attempt_at: Option<Timestamp>,
    /// The failure.
    pub bounce: Option<&'a Bounce>,
    /// The complaint.
    pub complaint: Option<&'a Complaint>,
    /// State of the transfer, if an attempt or a report caused the event.
    pub transfer: Option<&'a TransferRow>,
}

/// A message with the members that its events contain.
pub struct Subject<'a> {
    /// Account of the message.
    pub account: AccountId,
    /// Identifier.
    pub id: MessageId,
    /// The accepted message.
    pub row: &'a MessageRow,
}

/// Appends an event of `kind` to the message's timeline and the account's log, counts it, and creates deliveries for
/// the endpoints.
///
/// # Errors
/// Store errors.
pub fn record(
    tables: &mut Tables<'_>,
    subject: &Subject<'_>,
    kind: EventType,
    details: &EventDetails<'_>,
) -> Result<EventId, StoreError> {
    let Subject { account, id: message, row } = *subject;
    let id: EventId = tables.next_id();
    let record = EventRecord {
        id,
        kind,
        message_id: message,
        message_id_header: &row.message_id_header(message),
        stream: row.stream,
        from: row.from.as_given(),
        to: row.to.as_given(),
        subject: row.subject.as_deref(),
        metadata: &row.metadata,
        created_at: tables.now(),
        facts: &details.facts,
        next_attempt_at: details.next_attempt_at,
        bounce: details.bounce,
        complaint: details.complaint,
    };
    let bytes = serde_json::to_vec(&record).unwrap_or_else(|error| unreachable!("an event is plain JSON: {error}"));
    tables.put_bytes(Table::Timeline, &schema::timeline(account, message, id), bytes);
    tables.put(&schema::event(account, id), &EventLogRow { message, kind });
    tables.put(&schema::event_of_type(account, kind, id), &EventOfTypeRow { message });
    let bounce = details.bounce.map(|bounce| bounce.kind);
    tables.count_event(CountedEvent { message, kind, stream: row.stream, bounce });
    tables.notify_followers(account);
    outcomes::count(tables, subject, kind, details)?;
    if kind != EventType::Queued {
        message_index::note_status(tables, account, message, kind)?;
    }
    fan_out(tables, subject, kind, id)?;
    Ok(id)
}

fn fan_out(tables: &mut Tables<'_>, subject: &Subject<'_>, kind: EventType, event: EventId) -> Result<(), StoreError> {
    let account = subject.account;
    // A damaged endpoint must not keep an outcome from being recorded. It gets no delivery until it is repaired.
    for (key, endpoint) in tables.sound_rows::<EndpointRow>(account.as_bytes(), ENDPOINTS_MAX)? {
        if !endpoint.takes(kind) {
            continue;
        }
        let Some(id) = key.last_chunk::<16>() else { continue };
        let delivery = DeliveryRow {
            endpoint: EndpointId(Ulid(*id)),
            event,
            owed: DeliveryPayload::Event { message: subject.id, kind },
            state: delivery::State::new(tables.now()),
        };
        owe(tables, account, &delivery, endpoint.state.is_enabled())?;
    }
    Ok(())
}

/// Writes a new delivery, and makes it due.
///
/// # Errors
/// Store errors.
pub fn owe(
    tables: &mut Tables<'_>,
    account: AccountId,
    row: &DeliveryRow,
    endpoint_enabled: bool,
) -> Result<DeliveryId, StoreError> {
    outstanding::began(tables, account, row.endpoint)?;
    let id: DeliveryId = tables.next_id();
    tables.put(&schema::delivery(account, id), row);
    tables.put_bytes(Table::DeliveriesByEndpoint, &schema::delivery_of_endpoint(account, row.endpoint, id), Vec::new());
    let now = tables.now();
    if endpoint_enabled {
        tables.arm(Timer::new(now, TimerKind::Delivery, account, id.0));
    } else {
        tables.put_bytes(Table::Parked, &schema::parked(account, row.endpoint, now, id), Vec::new());
    }
    Ok(id)
}
